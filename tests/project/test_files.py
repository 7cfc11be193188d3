"""Files for other tools: these can read them, and they agree with the project."""

import re
import tomllib
from pathlib import Path

import yaml

import coatcheck

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version() -> None:
    """Its version is that of the package."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == PROJECT["version"] == coatcheck.__version__
    assert cited["license"] == PROJECT["license"]
    assert len(cited["references"][0]["authors"]) == 7


def test_ci_runs_what_we_run_on_every_python() -> None:
    """The workflow runs each stage of .ci/run, and the tests from the oldest Python on."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    stages = set(workflow["jobs"]["once"]["strategy"]["matrix"]["stage"])
    for name, job in workflow["jobs"].items():
        words = " ".join(step.get("run", "") for step in job["steps"])
        assert ".ci/run" in words
        stages |= {name} if f".ci/run {name}" in words else set()
    listed = re.search(r"usage: \.ci/run \[(.*?)\]", (ROOT / ".ci" / "run").read_text())
    assert listed
    assert stages == set(listed[1].split(" | "))
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["requires-python"]


def test_issue_forms_are_complete() -> None:
    """Each form has a name, a description and a question, as GitHub requires."""
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            continue
        assert form["name"]
        assert form["description"]
        assert any(part["type"] != "markdown" for part in form["body"])
