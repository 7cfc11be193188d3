"""Named places where a test may end the process as a power failure would, and its clock.

Nothing happens unless the environment names a place: this is how "kill -9 at each commit" is
tested with the code that ships.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


# HOUSE-DOC services.clock: "A clock for rounds that does not jump when the system's clock does.\n\nIt follows the wall clock, but never goes back and never runs at more than twice the pace of the\nsteady clock. So a jump forward by ten minutes takes ten minutes to come through: an operator has\ntime to mend it, and no round closes twice or long before its time.\n"
class Clock:
    """Seconds since 1970, without steps."""

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
        """Tell the time."""
        steady = self._steady()
        elapsed, self._seen = steady - self._seen, steady
        self._last = min(max(self._last, self._wall()), self._last + 2 * elapsed)
        return int(self._last)


VARIABLE = "COATCHECK_FAULT"
_FOLDER = os.environ.get(VARIABLE)


def wall() -> float:
    """Tell the wall clock's time; a file `clock` in the folder says by how much it is off."""
    off = 0.0
    if _FOLDER:
        with suppress(OSError, ValueError):
            off = float((Path(_FOLDER) / "clock").read_text(encoding="ascii"))
    return time.time() + off


def reach(place: str, *, alone: bool = False) -> None:
    """End this process (and the service, if this is its worker) if a test asked for it here.

    `alone`: the service stays.

    The variable names a folder; a file in it with the name of a place ends whoever comes there
    first, and is gone.
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
