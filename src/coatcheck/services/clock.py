"""A clock for rounds that does not jump, and the fault points of the crash tests.

A fault point is a named place at which a test may kill the process, as a power failure would.
Nothing happens there unless the environment names a folder of them: so the tests of "kill -9 at
each commit" run the code that ships.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Clock:
    """Seconds since 1970, without jumps.

    It follows the wall clock, but never goes back and never runs at more than twice the pace of
    the steady clock. So a jump forward by ten minutes takes ten minutes to come through: the
    operator has time to correct it, and no round closes twice or long before its time.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._last = wall()
        self._seen = steady()

    def now(self) -> int:
        """Return the time."""
        steady = self._steady()
        elapsed, self._seen = steady - self._seen, steady
        self._last = min(max(self._last, self._wall()), self._last + 2 * elapsed)
        return int(self._last)


VARIABLE = "COATCHECK_FAULT"
_FOLDER = os.environ.get(VARIABLE)


def wall() -> float:
    """Return the wall clock's time; a file `clock` in the folder shifts it by so many seconds."""
    shift = 0.0
    if _FOLDER:
        with suppress(OSError, ValueError):
            shift = float((Path(_FOLDER) / "clock").read_text(encoding="ascii"))
    return time.time() + shift


def reach(place: str, *, alone: bool = False) -> None:
    """Kill this process here (and the service, if this is its worker) if a test asks for it.

    The variable names a folder. If it has a file with the name of this place, the first process
    that comes here removes the file and is killed; with `alone` its service lives on.
    """
    if not _FOLDER:
        return
    try:
        (Path(_FOLDER) / place).unlink()
    except FileNotFoundError:
        return
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and not alone:
        os.kill(parent.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
