"""Grid response: a report is the value's cell or any cell; k-ary response on categories.

The domain is cut into m cells, and the report is the true cell with probability
e^ε/(e^ε + m - 1). A small ε needs few cells (a single cell costs nothing and says nothing), a
large ε many.

The file begins with `Stairs`, the same idea on a line: a better unbiased estimate for Minkowski
response.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains import Box, Categories, Floats, Points
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import TOSSES, Decode, MixedResponse, check_epsilon
from coatcheck.randomizers.density import LEARNED, Near, Weights, decode_batch
from coatcheck.randomizers.expected_error import box_median

# -- stairs: a better unbiased estimate of a Minkowski response on a line
#
# Its plain estimate is y/β. Let s be the distance of a report y from the middle of its stair, where
# stairs are as wide as a cap and lie side by side. The mean of s is 0 over every cap, and over all
# reports too, so (y - a s)/β is unbiased for every a. If a whole number of stairs covers the
# reports, its mean squared error at x is, with r the radius and t the distance of x from a middle,
#
#     [β r² + (1 - β)(1 + r)²]/(3β²) + x²(1/β - 1) - (2a - a²) r²/(3β²) + a t(2r - t)/β.
_FINE: Final = 1_000  # steps of half a line: stairs then fit to a thousandth
_SHARES: Final = 100


@dataclass(frozen=True)
class Stairs:
    """The stairs of a mechanism on a line, from half its steps, its reach and its coin."""

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
        """Return whether a whole number of stairs covers the reports, up to rounding."""
        remainder = 2 * (self.half + self.reach) + 1 - self._count * self._width
        return self._count > 1 and abs(remainder) <= self._count and self.half >= _FINE

    @cached_property
    def share(self) -> float:
        """Return the a of the least error at the worst value; 0 if stairs do not fit."""
        if not self.fit or self.mixing == 0:
            return 0.0
        # The error of each value is convex in a, so the largest is too: it falls, then rises.
        return bisect_left(range(_SHARES), x=1, key=self._rises) / _SHARES

    def estimate(self, reports: Floats) -> Floats:
        """Return unbiased estimates from reports, both in units of half a line."""
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
        errors = noise / (3 * beta**2) + x**2 * (1 / beta - 1) + a * t * (2 * r - t) / beta
        return np.asarray(errors)

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
        """Return whether the worst error is no smaller at the next a than at this one."""
        return self._worst((step + 1) / _SHARES) >= self._worst(step / _SHARES)

    def _worst(self, a: float) -> float:
        """Return the largest error: at an end of a stair, or where its parabola is highest."""
        beta, r = self.mixing, self._radius
        middles = np.arange(1.0, -r, -2 * r)  # x = middle - t
        bend = a - (1 - beta)
        tops = (a * r - (1 - beta) * middles) / bend if bend > 0 else np.zeros_like(middles)
        places = np.concatenate([[0.0], middles, middles - np.clip(tops, 0.0, 2 * r)])
        return float(self._errors(places, a).max())


_MOST_CELLS: Final = 1 << 32


@dataclass(frozen=True, kw_only=True)
class GridResponse(MixedResponse):
    """k-ary randomized response on the cells of a box, or on categories.

    `cells` is the number of cells along each axis of a box; categories are their own cells.
    `tuned` searches the grid with the least predicted error.
    """

    name: ClassVar[str] = "grid"
    exact: ClassVar[bool] = True
    domain: Box | Categories
    epsilon: float
    cells: tuple[int, ...] = ()
    decode: Decode = None  # type: ignore[assignment] # None is the default

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if isinstance(self.domain, Categories):
            object.__setattr__(self, "cells", (len(self.domain.labels),))
        elif not isinstance(self.domain, Box):
            raise Misuse(f"a grid works on a Box or on Categories, not on {self.domain}")
        self._check_cells()
        object.__setattr__(self, "decode", self._check_decode(self.decode or self.decodes[0]))

    def _check_cells(self) -> None:
        cells = tuple(self.cells)
        if len(cells) != self.domain.dimension or not all(
            type(count) is int and count >= 1 for count in cells
        ):
            raise Misuse(f"`cells` must be one whole number per axis, at least 1, got {self.cells}")
        if isinstance(self.domain, Box) and max(cells) > self.domain.steps:
            raise Misuse(
                f"`cells` must be at most the {self.domain.steps} steps of the lattice along an "
                f"axis, got {max(cells)}"
            )
        if math.prod(cells) > _MOST_CELLS:
            raise Misuse(f"a grid has at most 2^32 cells in all, got {math.prod(cells)}")
        object.__setattr__(self, "cells", cells)

    # -- the promise

    @property
    def total(self) -> int:
        """Return m, the number of cells."""
        return math.prod(self.cells)

    @property
    def _counts(self) -> tuple[int, int]:
        return 1, self.total

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        same = (reports == self._cells_of(points)).all(axis=1)
        possible = ((reports >= 0) & (reports < np.array(self.cells))).all(axis=1)
        return possible * (np.where(same, self.mixing, 0.0) + (1 - self.mixing) / self.total)

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        if not all(0 <= y < count for y, count in zip(report, self.cells, strict=True)):
            return Fraction(0)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / self.total
        return far + heads if tuple(report) == self._cell_of(tuple(point)) else far

    @property
    def low(self) -> Points:
        """Return the least value of each number of a report."""
        return np.zeros(len(self.cells), dtype=np.int64)

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""
        return np.array(self.cells, dtype=np.int64) - 1

    # -- drawing

    def _respond(self, points: Points, entropy: Entropy) -> Points:
        size = len(points)
        near = entropy.coins(self.heads, size)
        anywhere = np.unravel_index(entropy.below(self.total, size), self.cells)
        return np.where(near[:, None], self._cells_of(points), np.stack(anywhere, axis=1))

    def respond_one(self, point: tuple[int, ...], entropy: Entropy) -> tuple[int, ...]:
        """Return the report of one lattice point, without arrays."""
        near = self._cell_of(point)
        far = self.decoy(entropy)
        return near if entropy.coin(self.heads) else far

    @property
    def takes_decoys(self) -> bool:
        """Return True: an answer from everywhere is a uniform report."""
        return True

    def decoy(self, entropy: Entropy) -> tuple[int, ...]:
        """Return a uniform report."""
        return tuple(entropy.integer(count) for count in self.cells)

    def _cells_of(self, points: Points) -> Points:
        if isinstance(self.domain, Categories):
            return points
        steps = self.domain.steps
        cells: Points = (points + steps // 2) * np.array(self.cells) // (steps + 1)
        return cells

    def _cell_of(self, point: tuple[int, ...]) -> tuple[int, ...]:
        self._check_point(point)
        if isinstance(self.domain, Categories):
            return point
        steps = self.domain.steps
        return tuple(
            (i + steps // 2) * count // (steps + 1)
            for i, count in zip(point, self.cells, strict=True)
        )

    def _check_point(self, point: tuple[int, ...]) -> None:
        low, high = self._lattice
        if len(point) != self.domain.dimension or not all(low <= i <= high for i in point):
            raise Misuse(f"{point} is not a point of the lattice; snap() the value first")

    @property
    def _lattice(self) -> tuple[int, int]:
        if isinstance(self.domain, Categories):
            return 0, len(self.domain.labels) - 1
        return -(self.domain.steps // 2), self.domain.steps // 2

    # -- decoding and predicting

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the decoders: `raw` is the middle of the cell."""
        median: tuple[Decode, ...] = () if isinstance(self.domain, Categories) else ("median",)
        return (*median, "raw", *self.learns)

    @property
    def near(self) -> Near:
        """Return the branch of the true cell."""
        return Near(self.mixing, self._cells_of, reach=0)

    def estimate(
        self, reports: Points, how: Decode | None = None, *, prior: Weights | None = None
    ) -> Floats | NDArray[np.str_]:
        """Return estimates in the user's units; labels on categories."""
        if isinstance(self.domain, Categories):
            return self.domain.values(self.label_points(reports, how, prior=prior))
        estimates: Floats = super().estimate(reports, how, prior=prior)
        return estimates

    def label_points(
        self, reports: Points, how: Decode | None = None, *, prior: Weights | None = None
    ) -> Points:
        """Return the position of each report's estimated label: the likeliest one."""
        reports = self._check_reports(reports)
        if self._check_decode(how) not in LEARNED:
            return reports
        places = decode_batch(self, reports, prior=prior).places
        return reports if places is None else places.astype(np.int64)

    def _frame(self, reports: Points) -> Floats:
        return reports.astype(np.float64)

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        sides = 2 / np.array(self.cells, dtype=np.float64)
        lo = reports * sides - 1
        hi = lo + sides
        if how == "raw":
            return (lo + hi) / 2
        return box_median(lo, hi, math.expm1(self.epsilon))

    @property
    def _axes_alike(self) -> bool:
        return len(set(self.cells)) == 1 and super()._axes_alike

    def _draws_at(self, size: int) -> Floats:
        if self.total > size:
            return super()._draws_at(size)
        cells = np.stack(np.unravel_index(np.arange(self.total), self.cells), axis=1)
        return np.pad((cells + 0.5) / np.array(self.cells), ((0, 0), (0, 1)))  # each cell once

    def _outcomes(self, places: Floats, draws: Floats) -> list[tuple[float, Floats]]:
        cells = np.array(self.cells)
        near = np.minimum(np.floor((places + 1) / 2 * cells), cells - 1)
        far = np.minimum(np.floor(draws[:, :-1] * cells), cells - 1)
        return [(self.mixing, near), (1 - self.mixing, far)]

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power; on categories, of wrong labels."""
        if isinstance(self.domain, Categories):
            self._check_decode(how)
            return (1 - self.mixing) * (1 - 1 / self.total)
        return super().expected_error(how, power=power)

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power; on categories, of wrong labels."""
        if isinstance(self.domain, Categories):
            return self.expected_error(how)
        return super().worst_error(how, power=power)


def finer_grids(domain: Box) -> Iterator[tuple[int, ...]]:
    """Yield grids of more and more cells, cutting longer axes first and equal axes in turn.

    In two dimensions this includes the small grids of one row or column.
    """
    longest = float(domain.scale.max())
    shares = (domain.scale / longest).tolist()
    lag = [axis / domain.dimension for axis in range(domain.dimension)]
    seen: set[tuple[int, ...]] = set()
    for count in itertools.count(1):
        for part in range(domain.dimension):
            fine = count + part / domain.dimension
            cells = tuple(
                max(1, int(fine * share + 1 - 1e-9 - later * share))
                for share, later in zip(shares, lag, strict=True)
            )
            if max(cells) > domain.steps or math.prod(cells) > _MOST_CELLS:
                return
            if cells not in seen:
                seen.add(cells)
                yield cells
        if count <= 3 and domain.dimension == 2:
            yield from ((count + 1, 1), (1, count + 1))
