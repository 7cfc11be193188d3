"""The command line as its users type it: shell transcripts, run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "transcripts"
SOURCE = Path(__file__).parents[2] / "src"
COMMAND = """#!/bin/sh
exec "{python}" -c 'from coatcheck.cli import main; main(prog_name="coatcheck")' "$@"
"""


@pytest.mark.parametrize("script", sorted(HERE.glob("*.sh")), ids=lambda path: path.stem)
def test_transcript(script: Path, tmp_path: Path) -> None:
    """Every command does what the transcript says, refusals and exit codes included."""
    commands, work = tmp_path / "bin", tmp_path / "work"
    commands.mkdir()
    work.mkdir()
    command = commands / "coatcheck"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    environment = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCE),
        "OPENBLAS_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(  # noqa: S603 - our own script
        ["/bin/bash", str(script)],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
