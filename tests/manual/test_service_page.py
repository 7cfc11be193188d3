"""The page that leads from nothing to a recurring round, run command by command."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from manual.test_documents import COMMAND, blocks
from support.wiretaps import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-as-a-service.md"
PATIENCE = 600.0


def script(folder: Path) -> str:
    """Return the page's commands as one script, with free ports and a round that waits for all.

    A round per minute would be over between two people on a busy machine.
    """
    text = PAGE.read_text(encoding="utf-8").partition("## What a schedule says")[0]
    steps = [block for block in blocks(text) if "test_service_page" in block.not_run]
    assert len(steps) >= 6
    lines = [line for block in steps for line in block.text.splitlines()]
    assert all(line.startswith(("$ ", "> ", ">")) for line in lines)
    typed = "\n".join(line[2:] for line in lines)
    for number, role in enumerate(("shuffler", "server", "board"), start=8001):
        port = free_port()
        typed = typed.replace(f"127.0.0.1:{number}", f"127.0.0.1:{port}")
        typed = typed.replace(f'name = "{role}"', f'name = "{role}"\nlisten = "127.0.0.1:{port}"')
    soon = int(time.time()) % 86_400 / 60 + 1.0
    closes = int(soon) + 1
    typed = typed.replace("every = 1\n", f"every = 1440\ncloses = {closes}\nexpires = 2880\n")
    assert f"closes = {closes}" in typed
    command = folder / "bin" / "coatcheck"
    command.parent.mkdir()
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    return f"set -e\ntrap 'kill $(cat *.pid) 2> ended.log || true' EXIT\n{typed}\n"


def test_the_page_leads_to_a_recurring_round(tmp_path: Path) -> None:
    """Every command ends with 0, and people have their answers."""
    text = script(tmp_path)
    place = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603 - the page's own commands
        ["/bin/bash", "-c", text],
        cwd=tmp_path,
        env={**os.environ, "PATH": place},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    logs = "".join(file.read_text() for file in sorted(tmp_path.glob("*.log")))
    assert done.returncode == 0, done.stderr + logs
    for number in (1, 2, 3):
        assert (tmp_path / f"person{number}.answer").read_text()
    assert len(re.findall(r"/rounds/[0-9a-f]{16}", done.stdout)) >= 2, done.stdout  # before, after
