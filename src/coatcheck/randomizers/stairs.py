"""Stairs: a better unbiased estimate of a report on a line.

Minkowski response is read as y/β. Let s be how far a report y lies from the middle of its stair,
where stairs are as wide as a cap and lie side by side. The mean of s over every cap is 0, and over
all reports too, so (y - a s)/β is unbiased for every a. If the reports are a whole number of
stairs its mean squared error at x is, with r the radius and t the distance of x from a middle,

    [β r² + (1 - β)(1 + r)²]/(3β²) + x²(1/β - 1) - (2a - a²) r²/(3β²) + a t(2r - t)/β.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from coatcheck.domains import Floats

_FINE: Final = 1_000  # steps of half a line: stairs then fit to a thousandth
_SHARES: Final = 100


@dataclass(frozen=True)
class Stairs:
    """The stairs of a mechanism on a line, by half its steps, its cap's reach, and its coin."""

    half: int
    reach: int
    mixing: float

    @property
    def _width(self) -> int:
        return 2 * self.reach + 1

    @property
    def _radius(self) -> float:
        return self.reach / self.half

    @cached_property
    def _count(self) -> int:
        return round((2 * (self.half + self.reach) + 1) / self._width)

    @property
    def fit(self) -> bool:
        """Return whether the reports are a whole number of stairs, but for rounding."""
        left = 2 * (self.half + self.reach) + 1 - self._count * self._width
        return self._count > 1 and abs(left) <= self._count and self.half >= _FINE

    @cached_property
    def share(self) -> float:
        """Return a: the one with the least error at the worst value; 0 if stairs do not fit."""
        if not self.fit or self.mixing == 0:
            return 0.0
        # Each value's error is convex in a, so the worst one is too: it falls, and then rises.
        return bisect_left(range(_SHARES), x=1, key=self._rises) / _SHARES

    def read(self, reports: Floats) -> Floats:
        """Return unbiased estimates of reports, both in units of half a line."""
        if not self.share:
            return reports / self.mixing
        steps, width = np.rint(reports * self.half), self._width
        if self._count % 2:  # 0 is the middle of a stair, else it lies between two
            within = (steps + self.reach) % width - self.reach
        else:
            within = np.where(steps % width == 0, 0.0, steps % width - width / 2)
        return np.asarray((reports - self.share * within / self.half) / self.mixing)

    def error(self, x: float) -> float:
        """Return the mean squared error at x."""
        return float(self._errors(np.array(x), self.share))

    def _errors(self, x: Floats, a: float) -> Floats:
        beta, r = self.mixing, self._radius
        t = (1 - np.abs(x)) % (2 * r)  # the last middle is at 1
        noise = beta * r**2 + (1 - beta) * (1 + r) ** 2 - (2 * a - a * a) * r**2
        found = noise / (3 * beta**2) + x**2 * (1 / beta - 1) + a * t * (2 * r - t) / beta
        return np.asarray(found)

    @property
    def worst(self) -> float:
        """Return the largest mean squared error of a value."""
        return self._worst(self.share)

    @property
    def mean(self) -> float:
        """Return the mean squared error if values are spread evenly."""
        places = (np.arange(_FINE) + 0.5) / _FINE
        return float(self._errors(places, self.share).mean())

    def _rises(self, step: int) -> bool:
        """Tell whether the worst error is no smaller at the next a than at this one."""
        return self._worst((step + 1) / _SHARES) >= self._worst(step / _SHARES)

    def _worst(self, a: float) -> float:
        """Return the largest error: at an end of a stair, or where its parabola is highest."""
        beta, r = self.mixing, self._radius
        middles = np.arange(1.0, -r, -2 * r)  # x = middle - t
        bend = a - (1 - beta)
        tops = (a * r - (1 - beta) * middles) / bend if bend > 0 else np.zeros_like(middles)
        places = np.concatenate([[0.0], middles, middles - np.clip(tops, 0.0, 2 * r)])
        return float(self._errors(places, a).max())
