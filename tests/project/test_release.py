"""A release is one command: it leaves a commit, a tag and artifacts, or the tree as it was."""

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
AUTHOR = ("-c", "user.name=Maintainer", "-c", "user.email=maintainer@example.org")


def git(tree: Path, *words: str) -> str:
    """Run git in a tree."""
    done = subprocess.run(  # noqa: S603 - our own words
        ["git", *AUTHOR, *words],  # noqa: S607 - the developer's git
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a repository of its own with this tree's files, as a maintainer has."""
    copy = tmp_path / "tree"
    copy.mkdir()
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        here, there = ROOT / name, copy / name
        if name.startswith(("tests/", "study/", "docs/images/")) or not here.is_file():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(here.read_bytes())
    git(copy, "init", "--quiet", "--initial-branch", "main")
    git(copy, "config", "user.name", "Maintainer")
    git(copy, "config", "user.email", "maintainer@example.org")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message", "Everything")
    return copy


def release(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command of `make release`."""
    return subprocess.run(  # noqa: S603 - our own script
        [sys.executable, ".ci/release.py", *words],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_command_cuts_a_release(tree: Path) -> None:
    """Every file has the version, the changelog its section, the tag its artifacts."""
    fragment = tree / "newsfragments" / "+letters.added.md"
    fragment.write_text("Letters have stamps.\n", encoding="utf-8")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "A fragment")
    done = release(tree, "7.8.9")
    assert done.returncode == 0, done.stderr
    assert git(tree, "describe", "--exact-match").strip() == "v7.8.9"
    assert git(tree, "status", "--porcelain") == ""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == "7.8.9"
    stated = ("CITATION.cff", "src/coatcheck/__init__.py", "web-client/package.json")
    for name in (*stated, "web-client/package-lock.json"):
        assert "7.8.9" in (tree / name).read_text(encoding="utf-8")
    changelog = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    section = changelog.split("## 7.8.9 (", 1)[1].split("\n## ", 1)[0]
    assert "Letters have stamps." in section
    assert not fragment.exists()
    sums = (tree / "dist" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    names = [line.split("  ")[1] for line in sums]
    assert names == ["coatcheck-7.8.9-py3-none-any.whl", "coatcheck-7.8.9.tar.gz", "sbom.json"]
    for line in sums:
        digest, name = line.split("  ")
        assert hashlib.sha256((tree / "dist" / name).read_bytes()).hexdigest() == digest
    again = release(tree, "--artifacts")
    assert again.returncode == 0, again.stderr
    assert (tree / "dist" / "SHA256SUMS").read_text(encoding="utf-8").splitlines() == sums


def test_the_first_release_keeps_the_section_that_was_written_for_it(tree: Path) -> None:
    """Later news stand at its end, and a second release gets a section above."""
    changelog = tree / "CHANGELOG.md"
    text = (
        "# Changelog\n\n<!-- towncrier release notes start -->\n\n## 0.1.0 (unreleased)\n\nFirst.\n"
    )
    changelog.write_text(text, encoding="utf-8")
    news = tree / "newsfragments" / "+letters.added.md"
    news.write_text("Letters have stamps.\n", encoding="utf-8")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "As before the first release")
    assert release(tree, "0.1.0").returncode == 0
    released = changelog.read_text(encoding="utf-8")
    assert re.search(r"## 0\.1\.0 \(\d{4}-\d\d-\d\d\)\n\nFirst\.\n\n### Added\n", released)
    assert "Letters have stamps." in released


@pytest.mark.parametrize(
    ("version", "change", "reason"),
    [
        ("1.2", "", "three numbers"),
        ("1.2.3", "README.md", "has changes"),
        ("6.6.6", "", "exists"),
    ],
)
def test_a_release_that_cannot_be_cut_changes_nothing(
    tree: Path, version: str, change: str, reason: str
) -> None:
    """A wrong version, a tree with changes or an existing tag: a reason, no commit, no tag."""
    git(tree, "tag", "v6.6.6")
    if change:
        (tree / change).write_text("changed\n", encoding="utf-8")
    before = git(tree, "rev-parse", "HEAD"), git(tree, "tag"), git(tree, "status", "--porcelain")
    done = release(tree, version)
    assert done.returncode == 1
    assert reason in done.stderr
    after = git(tree, "rev-parse", "HEAD"), git(tree, "tag"), git(tree, "status", "--porcelain")
    assert after == before


def test_every_action_is_pinned_by_its_hash() -> None:
    """A tag can be moved by whoever owns the action; a hash cannot."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        used = [step["uses"] for step in steps if "uses" in step]
        assert used, path
        for action in used:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), (path.name, action)


def test_only_jobs_that_publish_may_write() -> None:
    """The workflow's own permissions are to read; no job has a password of a package index."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert re.findall(r"secrets\.(\w+)", text) == ["GITHUB_TOKEN"]
