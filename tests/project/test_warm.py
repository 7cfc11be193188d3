"""Services from the warm process behave like those that `Cluster` starts without it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from support.service_rounds import QUICK, until

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="only Linux lets a process adopt others",
    ),
]
ROLE = "board"


def parent(pid: int) -> int:
    """Return a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def test_a_service_is_a_child_with_its_own_session(tmp_path: Path) -> None:
    """Its id, its end and its environment are those of a directly started process."""
    cluster = Cluster(tmp_path, extra=QUICK)
    (tmp_path / "faults").mkdir()
    try:
        cluster.start(ROLE)
        pid = cluster.processes[ROLE].pid
        assert parent(pid) == os.getpid()
        assert os.getsid(pid) == os.getpgid(pid) == pid
        assert Path(f"/proc/{pid}/cwd").resolve() == Path.cwd()
        cluster.kill(ROLE)
        assert cluster.processes[ROLE].returncode == -signal.SIGKILL
        cluster.start(ROLE)
        process = cluster.processes[ROLE]
        assert process.pid != pid
        assert process.stdin is not None
        process.stdin.close()  # as if this process had ended
        until(lambda: not cluster.running(ROLE))
    finally:
        cluster.end()
    assert process.returncode == -signal.SIGKILL


def test_a_wrong_start_has_a_code_and_an_error(tmp_path: Path) -> None:
    """A process that ends at once is reported as usual."""
    cluster = Cluster(tmp_path, extra=QUICK)
    (tmp_path / f"{ROLE}.toml").write_text("[board]\n", encoding="utf-8")
    cluster.start(ROLE, wait=False)
    until(lambda: not cluster.running(ROLE))
    cluster.end()
    assert cluster.processes[ROLE].returncode == 1
    assert "coatcheck: " in (tmp_path / f"{ROLE}.log").read_text(encoding="utf-8")
