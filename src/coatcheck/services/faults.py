"""Named places where a test may end the process as a power failure would, and its clock.

Nothing happens unless the environment names a place: this is how "kill -9 at each commit" is
tested with the code that ships.
"""

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

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
