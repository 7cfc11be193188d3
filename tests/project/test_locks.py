"""The lock files satisfy the project's requirements, each package with its hashes."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {
    "image": ("serve", "fast"),
    "dev": ("dev", "docs"),
    "build": (),
}


def locked(name: str) -> dict[str, str]:
    """Read a lock file: versions by package; every one has a hash."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    assert "://" not in text
    found = {}
    for entry in re.split(r"\n(?=\S)", text):
        package = re.match(r"([a-z0-9.-]+)(?:\[[a-z,]+\])?==(\S+)", entry)
        assert package, entry
        assert "--hash=sha256:" in entry, entry
        found[package[1]] = package[2]
    return found


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    """List the project's requirements with these extras."""
    listed = [Requirement(one) for one in PROJECT["dependencies"]]
    for extra in extras:
        for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
            listed += wanted(tuple(one.extras)) if one.name == PROJECT["name"] else [one]
    return listed


@pytest.mark.parametrize("name", ["image", "dev"])
def test_the_lock_fits_the_project(name: str) -> None:
    """Each dependency is locked at a version that pyproject.toml allows; else run `make lock`."""
    found = locked(name)
    for one in wanted(LOCKS[name]):
        version = found.get(one.name.lower().replace("_", "-"))
        assert version, f"{one.name} is not in requirements/{name}.lock: run `make lock`"
        assert one.specifier.contains(version), f"{one} is locked at {version}: run `make lock`"


def test_the_image_is_built_by_what_pyproject_names() -> None:
    """The wheel is built by the project's one build backend."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    (backend,) = map(Requirement, system["requires"])
    assert backend.specifier.contains(locked("build")[backend.name])


def _audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("packages", "fine", "said"),
    [
        ([], True, "not audited, the records cannot be queried"),
        ([{"name": "a", "skip_reason": "not found"}], True, "not audited"),
        ([{"name": "a", "version": "1", "vulns": []}], True, "no known weakness in 1 packages"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}],
            False,
            "a 1 has CVE-1; fixed in 2",
        ),
    ],
)
def test_only_a_known_weakness_fails(
    packages: list[dict[str, Any]], *, fine: bool, said: str
) -> None:
    """A package fails only if pip-audit reports a weakness."""
    lines, good = _audit().report("x.lock", {"dependencies": packages})
    assert good is fine
    assert said in "\n".join(lines)


def test_without_an_answer_the_audit_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An audit that fails without naming packages is reported as such."""
    module = _audit()
    monkeypatch.setattr(module.sys, "argv", ["audit", str(tmp_path / "no.lock")])
    assert module.main() == 0
    assert "the records cannot be queried" in capsys.readouterr().out
