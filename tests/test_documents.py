"""The pages run as they are printed: every Python block, every console session.

A ```python block runs in the page's own namespace; in a ```console block the lines after `$ `
(and `> ` for what goes on) run in the page's own empty folder and must end with 0. A comment
before a block changes that: `<!-- exit: 2 -->` expects that code, `<!-- not run: reason -->` says
why a block cannot run here.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|exit): (?P<said>[^\n]+?) -->\n+)?"
    r"^```(?P<kind>[a-z]*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = ("python", "console")
SHELLS = ("bash", "sh", "shell", "zsh", "pycon")
COMMAND = """#!/bin/sh
exec "{python}" -m coatcheck "$@"
"""


@dataclass(frozen=True)
class Block:
    """A piece of a page that is to run, or why not."""

    kind: str
    text: str
    line: int
    exit: int = 0
    not_run: str = ""


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    found = []
    for match in BLOCK.finditer(page):
        mark, said = match["mark"], match["said"] or ""
        line = page.count("\n", 0, match.start("text")) + 1
        found.append(
            Block(
                match["kind"],
                match["text"],
                line,
                exit=int(said) if mark == "exit" else 0,
                not_run=said if mark == "not run" else "",
            )
        )
    return found


def commands(text: str) -> list[str]:
    """Return what a reader would type of a session."""
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif line.startswith("> ") and typed:
            typed[-1] += "\n" + line[2:]
    return typed


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Put `coatcheck` and the Python of these tests on the path, and nothing else new."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "coatcheck"
    command.write_text(COMMAND.format(python=sys.executable), encoding="utf-8")
    command.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(folder),
        "TMPDIR": str(tmp_path_factory.mktemp("tmp")),
        "LC_ALL": "C.UTF-8",
    }


def run_console(block: Block, *, where: str, folder: Path, environment: dict[str, str]) -> None:
    """Type a session; the block's code is that of its last command, 0 of those before it."""
    typed = commands(block.text)
    assert typed, f"{where} shows a console without a command"
    for number, command in enumerate(typed, start=1):
        done = subprocess.run(  # noqa: S603 - our own page
            ["/bin/bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        expected = block.exit if number == len(typed) else 0
        assert done.returncode == expected, f"{where}: {command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(
    page: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, in one namespace and one folder, as a reader would go."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem.replace("-", "_")}
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {block.line}"
        assert block.kind not in SHELLS, f"{where}: write it as console, so that it runs"
        if block.not_run or block.kind not in RUN:
            continue
        if block.kind == "python":
            exec(compile(block.text, where, "exec"), names)  # noqa: S102 - our own page
        else:
            run_console(block, where=where, folder=tmp_path, environment=environment)


def test_blocks_are_found_with_their_marks() -> None:
    """A mark holds for the block right after it."""
    page = """Text.
```console
$ one
output
$ two \\
> more
```
<!-- exit: 2 -->
```console
$ three
```

<!-- not run: needs docker -->
```console
$ docker compose up
```
```toml
[a]
```
"""
    found = blocks(page)
    assert [(one.kind, one.exit, one.not_run, one.line) for one in found] == [
        ("console", 0, "", 3),
        ("console", 2, "", 10),
        ("console", 0, "needs docker", 15),
        ("toml", 0, "", 18),
    ]
    assert commands(found[0].text) == ["one", "two \\\nmore"]


def test_a_block_that_fails_is_noticed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Wrong exit codes fail the page, in the middle of a session too."""
    wrong = [
        Block("console", "$ coatcheck simulate\n", 1),
        Block("console", "$ false\n$ true\n", 1),
        Block("console", "$ true\n", 1, exit=2),
        Block("console", "no command\n", 1),
    ]
    for block in wrong:
        with pytest.raises(AssertionError):
            run_console(block, where="a page", folder=tmp_path, environment=environment)
    right = Block("console", "$ coatcheck simulate none.csv\n", 1, exit=2)
    run_console(right, where="a page", folder=tmp_path, environment=environment)


def test_there_are_pages() -> None:
    """The how-to pages of a new operator are among those that run."""
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    for name in ("deploy", "rotate-keys", "back-up", "read-metrics"):
        assert f"docs/how-to/{name}.md" in names
    assert "docs/tutorial/first-hour.md" in names
