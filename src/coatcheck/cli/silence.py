"""No long silence: a command that takes its time says so, on a terminal and without one."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from coatcheck.cli.output import hint, last_hint

_SOON: Final = 0.7
"""Seconds until the first sign on a terminal, where somebody waits for it."""
_LATER: Final = 10.0
"""Seconds of silence until any other sign."""


@contextmanager
def at_work(doing: str | Callable[[], str]) -> Iterator[None]:
    """Say what is being done, and for how long already, whenever nothing was said for a while."""
    over, begun = Event(), time.monotonic()
    silent = _SOON if sys.stderr.isatty() else _LATER

    def watch(silent: float) -> None:
        while not over.wait(max(0.05, max(begun, last_hint()) + silent - time.monotonic())):
            if time.monotonic() - max(begun, last_hint()) < silent:
                continue  # something was said meanwhile
            text = doing if isinstance(doing, str) else doing()
            hint(f"{text} ({time.monotonic() - begun:.0f} s)")
            silent = _LATER

    watcher = Thread(target=watch, args=(silent,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
