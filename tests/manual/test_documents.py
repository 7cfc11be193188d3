"""The pages run as they are printed: every Python block and every console session.

A ```python block runs in the page's own namespace; in a ```console block the lines after `$ `
(and `> ` for what goes on) run in the page's own empty folder and must end with 0. A comment
before a block changes that: `<!-- exit: 2 -->` expects that code, `<!-- not run: reason -->` says
why a block cannot run here.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|exit): (?P<said>[^\n]+?) -->\n+)?"
    r"^```(?P<kind>[a-z]*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHELLS = ("bash", "sh", "shell", "zsh", "pycon")
COMMAND = """#!/bin/sh
exec "{python}" -m coatcheck "$@"
"""
PATIENCE = 600.0


@dataclass(frozen=True)
class Block:
    """A block of a page, with how to run it or why not."""

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
    """Return the lines that a reader would type in a session."""
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif (line.startswith("> ") or line == ">") and typed:
            typed[-1] += "\n" + line[2:]
        elif typed and typed[-1].endswith("\\"):
            typed[-1] += "\n" + line
    return typed


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Put `coatcheck` and the Python of these tests on the path, and nothing else."""
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
        "OPENBLAS_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }


class Console:
    """A reader's shell in a folder; processes that a page leaves running end with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._sessions: list[int] = []

    def type(self, command: str) -> tuple[int, str]:
        """Run a command and return its code and output."""
        with subprocess.Popen(  # noqa: S603 - our own page
            ["/bin/bash", "-euo", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            self._sessions.append(process.pid)
            said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, said

    def run(self, block: Block, *, where: str) -> None:
        """Type a session; the block's code is that of its last command, 0 of those before it."""
        typed = commands(block.text)
        assert typed, f"{where} shows a console without a command"
        for number, command in enumerate(typed, start=1):
            code, said = self.type(command)
            expected = block.exit if number == len(typed) else 0
            assert code == expected, f"{where}: {command}\nended with {code}\n{said}"

    def end(self) -> list[int]:
        """End what the page left running; return the sessions that had processes."""
        left = []
        for session in self._sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)
                left.append(session)
        return left


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(
    page: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks run one after another, in one namespace and one folder, as for a reader."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem.replace("-", "_")}
    console = Console(tmp_path, environment)
    try:
        for block in blocks(page.read_text(encoding="utf-8")):
            where = f"{page.name}, line {block.line}"
            assert block.kind not in SHELLS, f"{where}: write it as console, so that it runs"
            if block.kind == "python" and not block.not_run:
                exec(compile(block.text, where, "exec"), names)  # noqa: S102 - our own page
            elif block.kind == "console" and not block.not_run:
                console.run(block, where=where)
    finally:
        console.end()


def test_blocks_are_found_with_their_marks() -> None:
    """A mark holds for the block right after it."""
    page = """Text.
```console
$ one
output
$ two \\
> more
$ also \\
  more
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
        ("console", 2, "", 12),
        ("console", 0, "needs docker", 17),
        ("toml", 0, "", 20),
    ]
    assert commands(found[0].text) == ["one", "two \\\nmore", "also \\\n  more"]


def test_a_block_that_fails_is_noticed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Wrong exit codes fail the page, even in the middle of a session."""
    console = Console(tmp_path, environment)
    wrong = [
        Block("console", "$ coatcheck simulate\n", 1),
        Block("console", "$ false\n$ true\n", 1),
        Block("console", "$ true\n", 1, exit=2),
        Block("console", "no command\n", 1),
    ]
    for block in wrong:
        with pytest.raises(AssertionError):
            console.run(block, where="a page")
    console.run(Block("console", "$ coatcheck simulate none.csv\n", 1, exit=2), where="a page")
    assert console.end() == []
    console.run(Block("console", "$ sleep 60 > /dev/null 2>&1 &\n", 1), where="a page")
    assert len(console.end()) == 1


def test_every_link_of_a_page_leads_somewhere() -> None:
    """A link to a file of the repository names an existing file and heading."""
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for name, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
            target = (page.parent / name) if name else page
            assert target.exists(), f"{page.name} links to {name}, which is not there"
            if heading:
                titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {
                    re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
                }
                assert heading in anchors, f"{page.name} links to {name}#{heading}"


def test_there_are_pages() -> None:
    """The how-to pages of a new operator are among those that run."""
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    for name in ("deploy", "rotate-keys", "back-up", "read-metrics"):
        assert f"docs/how-to/{name}.md" in names
    assert "docs/tutorial/first-hour.md" in names
