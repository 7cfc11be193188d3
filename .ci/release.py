"""Cut a release with one command: `make release VERSION=X.Y.Z`.

It sets the version in every file that states it, moves the news fragments into the changelog,
builds wheel and source distribution twice and compares their bytes, writes the bill of materials
and the checksums, commits and tags. It pushes nothing: `git push --follow-tags` starts the workflow
that builds everything again from the tag and publishes it. If a step fails, the tree is as before.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements/image.lock", "requirements/build.lock")
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class NotReady(Exception):
    """The tree cannot be released as it is."""


def run(*words: str, **environment: str) -> str:
    """Run a program of this release in the tree; return what it prints."""
    done = subprocess.run(  # noqa: S603 - our own words
        words,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotReady(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def check(version: str) -> None:
    """Refuse a version that is none or exists, and a tree with changes that are not committed."""
    if not VERSION.fullmatch(version):
        raise NotReady(f"the version must be three numbers such as 0.1.0, got {version!r}")
    if run("git", "status", "--porcelain"):
        raise NotReady("the tree has changes: commit them, or put them away, and try again")
    if run("git", "tag", "--list", f"v{version}").strip():
        raise NotReady(f"the tag v{version} exists: a release is cut once; choose the next version")


def replace(name: str, pattern: str, text: str) -> None:
    """Replace the one place of a file that a pattern finds."""
    path = ROOT / name
    changed, count = re.subn(pattern, text, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise NotReady(f"{name} has {count} places for the version, not one: mend .ci/release.py")
    path.write_text(changed, encoding="utf-8")


def set_version(version: str, day: str) -> None:
    """Write the version into every file that states it, and the day into the citation."""
    replace("pyproject.toml", r'^version = ".*"$', f'version = "{version}"')
    replace("src/coatcheck/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"')
    replace("CITATION.cff", r"^version: .*$", f"version: {version}")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if "date-released:" in citation:
        replace("CITATION.cff", r"^date-released: .*$", f"date-released: {day}")
    else:
        replace("CITATION.cff", r"^(version: .*)$", rf"\1\ndate-released: {day}")
    replace("web-client/package.json", r'^ "version": ".*",$', f' "version": "{version}",')
    lock = ROOT / "web-client/package-lock.json"
    text = lock.read_text(encoding="utf-8")
    document = json.loads(text)
    document["version"] = document["packages"][""]["version"] = version
    indent = len(text.split("\n")[1]) - len(text.split("\n")[1].lstrip())
    lock.write_text(json.dumps(document, indent=indent) + "\n", encoding="utf-8")


def towncrier(how: str, *, version: str, day: str) -> str:
    """Run towncrier for a version; return what it prints."""
    words = ("build", how, "--version", version, "--date", day)
    return run(sys.executable, "-m", "towncrier", *words)


def write_news(version: str, day: str) -> None:
    """Move the news fragments into the changelog; the first release has a section of its own."""
    changelog = ROOT / "CHANGELOG.md"
    unreleased = f"## {version} (unreleased)"
    text = changelog.read_text(encoding="utf-8")
    fragments = [path for path in (ROOT / "newsfragments").glob("*.md") if path.name != "README.md"]
    if unreleased in text:
        # What changed since the section was written goes to its end, under headings of its own.
        news = towncrier("--draft", version=version, day=day)
        body = news.split(f"## {version} ({day})", 1)[-1].strip() if fragments else ""
        before, _, section = text.partition(unreleased)
        section, mark, older = section.partition("\n## ")
        whole = f"{before}## {version} ({day}){section.rstrip()}\n"
        whole += (f"\n{body}\n" if body else "") + (f"{mark}{older}" if older else "")
        changelog.write_text(whole, encoding="utf-8")
        for path in fragments:
            path.unlink()
    elif fragments:
        towncrier("--yes", version=version, day=day)
    else:
        raise NotReady(f"there is nothing new to release as {version}: newsfragments/ is empty")


def build(folder: Path, epoch: str) -> None:
    """Build wheel and source distribution into a folder, with one time in all archives."""
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), SOURCE_DATE_EPOCH=epoch)


def build_twice(dist: Path, epoch: str) -> None:
    """Build into `dist`, and refuse the release unless a second build has the same bytes."""
    shutil.rmtree(dist, ignore_errors=True)
    build(dist, epoch)
    with tempfile.TemporaryDirectory() as second:
        build(Path(second), epoch)
        for path in sorted(dist.iterdir()):
            if path.read_bytes() != (Path(second) / path.name).read_bytes():
                raise NotReady(f"two builds of {path.name} differ: the build is not reproducible")


def write_bill_and_checksums(dist: Path) -> None:
    """Write the bill of materials, and the SHA-256 of everything in `dist`."""
    bill = run(sys.executable, str(ROOT / ".ci/sbom.py"), *LOCKS)
    (dist / "sbom.json").write_text(bill, encoding="utf-8")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
    ]
    (dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def artifacts() -> None:
    """Build everything that a release publishes, from the commit that is checked out."""
    dist = ROOT / "dist"
    build_twice(dist, run("git", "log", "-1", "--format=%ct").strip())
    write_bill_and_checksums(dist)
    print(f"dist/: {', '.join(path.name for path in sorted(dist.iterdir()))}")


def release(version: str) -> None:
    """Cut a release: version, changelog, artifacts, commit and tag."""
    check(version)
    day = datetime.now(UTC).date().isoformat()
    commit = run("git", "rev-parse", "HEAD").strip()
    try:
        set_version(version, day)
        write_news(version, day)
        run("git", "add", "--all")
        run("git", "commit", "--quiet", "--message", f"Release {version}")
        artifacts()
        run("git", "tag", "--annotate", f"v{version}", "--message", f"coatcheck {version}")
    except NotReady:
        run("git", "reset", "--quiet", "--hard", commit)
        raise
    print(f"tagged v{version}; `git push --follow-tags` starts the workflow that publishes it")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 1 and say why if the tree is not ready."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("version", nargs="?", help="the version to release, such as 0.1.0")
    parser.add_argument(
        "--artifacts", action="store_true", help="only build dist/ from the commit checked out"
    )
    options = parser.parse_args(words)
    try:
        if options.artifacts:
            artifacts()
        elif options.version:
            release(options.version)
        else:
            parser.error("give a version, or --artifacts")
    except NotReady as error:
        print(f"not released: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
