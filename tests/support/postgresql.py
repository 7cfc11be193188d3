"""A PostgreSQL cluster for the tests, in a temporary folder, run by an unprivileged user."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

_ABSENT = "PostgreSQL is not installed: `apt-get install postgresql` lets these tests run"


def installed() -> Path | None:
    """Find the programs of the newest installed PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = shutil.which("initdb")
    return found[-1].parent if found else Path(path).parent if path else None


def required() -> Path:
    """Return the folder of PostgreSQL's programs, or skip with a reason; on CI a skip fails."""
    programs = installed()
    if programs is None and os.environ.get("CI"):
        pytest.fail(_ABSENT)
    if programs is None:
        pytest.skip(_ABSENT)
    return programs


class Postgres:
    """A running PostgreSQL that listens on a free port of loopback.

    Without `fsync` a crash of PostgreSQL loses nothing either, only one of the machine would.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self._fsync = "on" if fsync else "off"
        self.programs = required()
        self.folder = folder / "cluster"
        self._user = None if os.getuid() else pwd.getpwnam("postgres").pw_name
        self.folder.mkdir()
        if self._user:
            shutil.chown(self.folder, self._user)
            for parent in self.folder.parents:
                if parent == Path("/tmp"):  # noqa: S108 - where pytest puts temporary folders
                    break
                parent.chmod(parent.stat().st_mode | 0o055)
        self._call("initdb", "-D", ".", "-U", "coatcheck", "-A", "trust", "-N", "-E", "UTF8")
        self.port = free_port()
        self._made = 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k '' -c max_connections=50 -c shared_buffers=16MB"
        options += f" -c fsync={self._fsync}"
        self._call("pg_ctl", "-D", ".", "-l", "log", "-w", "-o", options, "start")

    def stop(self, *, crash: bool = False) -> None:
        """Stop it: immediately, as in a crash, or in order."""
        self._call("pg_ctl", "-D", ".", "-w", "-m", "immediate" if crash else "fast", "stop")

    def database(self) -> str:
        """Create an empty database and return its address."""
        self._made += 1
        base = f"postgresql://coatcheck@127.0.0.1:{self.port}"
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE d{self._made}")
        return f"{base}/d{self._made}"

    def end(self) -> None:
        """Stop it for good, whatever its state."""
        pid = self.folder / "postmaster.pid"
        if pid.exists():
            os.kill(int(pid.read_text().splitlines()[0]), signal.SIGQUIT)
        end = time.monotonic() + 60
        while pid.exists() and time.monotonic() < end:
            time.sleep(0.05)

    def _call(self, program: str, *words: str) -> None:
        command = [str(self.programs / program), *words]
        quiet = subprocess.DEVNULL
        subprocess.run(  # noqa: S603 - the tests' own command
            command, cwd=self.folder, user=self._user, stdout=quiet, check=True, env={"PATH": ""}
        )


def free_port() -> int:
    """Find a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
