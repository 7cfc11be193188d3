"""Measurements: `python -m bench [NAME ...]` runs modules of this folder, by default all.

Each prints figures beside their targets, where possible as ratios to peers measured in the same
run, and ends with exit code 1 if it misses a target.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number; with a target, it passes if it is at most the target."""

    what: str
    value: float
    unit: str
    target: float | None = None

    @property
    def passed(self) -> bool:
        """Return whether the target, if there is one, is met."""
        return self.target is None or self.value <= self.target

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        line = f"{self.what:<48} {number:>8} {self.unit:<4}"
        if self.target is None:
            return line.rstrip()
        return f"{line} at most {self.target:<6g} {'pass' if self.passed else 'MISSED'}"


def show(figures: list[Figure]) -> int:
    """Print figures and return the exit code: 1 if a target is missed.

    With `--json` on the command line each is one JSON object on a line of its own.
    """
    for figure in figures:
        if "--json" in sys.argv:
            print(json.dumps({**asdict(figure), "passed": figure.passed}))
        else:
            print(figure)
    return 0 if all(figure.passed for figure in figures) else 1


def quickest(*jobs: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the least seconds of each job over rounds that run all of them in turn.

    In turn, so that a load on the machine affects all alike; the least, because it is the cost of
    the code without that load.
    """
    best = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for place, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[place] = min(best[place], time.perf_counter() - start)
    return best
