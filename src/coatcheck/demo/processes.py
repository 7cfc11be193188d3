"""Processes and a folder that are gone when the demo is over, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from coatcheck.errors import Refused

_PATIENCE: Final = 5.0
_GLANCE: Final = 0.02
_LOG_LINES: Final = 5


@contextmanager
def folder(*, keep: bool) -> Iterator[Path]:
    """Make a folder for this demo alone, and remove it unless it is to be kept."""
    made = Path(tempfile.mkdtemp(prefix="coatcheck-demo-"))
    try:
        yield made
    finally:
        if not keep:
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def ended_by_term() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: with everything cleared away."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Role:
    """One process in a session of its own, with its log in a file."""

    def __init__(self, name: str, arguments: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "coatcheck.demo.role", *arguments],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def check(self) -> None:
        """Refuse to go on if the process has ended."""
        ended = self._ended()
        if ended is not None:
            last = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            told = " | ".join(line.strip() for line in last[-_LOG_LINES:] if line.strip())
            code = ended.si_status
            raise Refused(f"the {self.name} ended with code {code}: {told or 'it said nothing'}")

    def _ended(self) -> os.waitid_result | None:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def ask_to_end(self) -> None:
        """Ask the process to end by itself."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)

    def end(self, *, until: float) -> None:
        """Wait for the process, then end it and every worker that it started."""
        while self._ended() is None and time.monotonic() < until:
            time.sleep(_GLANCE)
        # The process was not reaped yet, so its number is nobody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Company:
    """The roles of a demo; leaving ends them all."""

    def __init__(self) -> None:
        self.roles: list[Role] = []

    def start(self, name: str, arguments: Sequence[str], *, log: Path) -> None:
        """Start a role."""
        self.roles.append(Role(name, arguments, log=log))

    def check(self) -> None:
        """Refuse to go on if one of them has ended."""
        for role in self.roles:
            role.check()

    def end(self) -> None:
        """End every role."""
        with ExitStack() as stack:
            until = time.monotonic() + _PATIENCE
            for role in self.roles:
                stack.callback(role.end, until=until)
                role.ask_to_end()
