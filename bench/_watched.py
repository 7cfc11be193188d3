"""Progress of a long rehearsal while it runs, and the peak memory of its processes."""

import sys
import time
from pathlib import Path
from typing import Any, Final

from bench._staged import children, peak_of
from coatcheck.services.local_cluster import Cluster

_OFTEN: Final = 10.0
"""Seconds between two lines of progress, at least."""


class Progress:
    """Progress of a long run, printed to standard error from time to time."""

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()

    def show(self, what: str) -> None:
        """Print a line, unless one was printed a moment ago."""
        now = time.monotonic()
        if now >= self._last + _OFTEN:
            self._last = now
            print(f"{now - self._begun:6.0f} s: {what}", file=sys.stderr, flush=True)


def last_log_line(folder: Path) -> str:
    """Return the last line of the newest log."""
    newest = max(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    lines = newest.read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{newest.stem}: {lines[-1] if lines else ''}"


def largest(local: Cluster) -> list[dict[str, Any]]:
    """Return the peak memory of each role's processes, workers included."""
    rows = []
    for name, process in local.processes.items():
        family = [process.pid]
        for pid in family:
            family += children(pid)
        rows.append({"stage": f"memory, {name}", "peak_bytes": max(map(peak_of, family))})
    return rows
