"""Codebook response: tell the nearest of a few public places, or any of them.

The places are put where people are expected, by public data, so they are many in a city's middle
and few outside. A value's cell is that of its nearest point, in integers. The cell goes through
k-ary response, as in Grid response, and a report is read as the point itself. SPEC section 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Decode, Randomizer, check_epsilon
from coatcheck.randomizers.mixing import TOSSES, above, heads_for, spent
from coatcheck.randomizers.placement import best_places
from coatcheck.randomizers.prediction import evenly
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.voronoi import cell_corners

MOST_POINTS: Final = 4096
_MOST_DIMENSIONS: Final = 16  # so that squared distances fit 64 bits
_LARGEST_WEIGHT: Final = 256
_PAIRS: Final = 1 << 19  # distances at a time
_NODES: Final = 1 << 13
_PEOPLE: Final = 20_000  # drawn from a prior


@dataclass(frozen=True, kw_only=True)
class CodebookResponse(Randomizer):
    """k-ary randomized response on the cells of points of the lattice.

    `points` are the codebook. `weights` says how much a squared step along each axis counts when
    the nearest point is sought: whole numbers in the ratio of the axes' squared lengths, unless
    they are given. `placed` finds points for public places.
    """

    name: ClassVar[str] = "codebook"
    exact: ClassVar[bool] = True
    decodes: ClassVar[tuple[Decode, ...]] = ("raw",)
    domain: Box | Ball
    epsilon: float
    points: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] = ()
    decode: Decode = "raw"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"codebook response works on a Box or a Ball, not on {self.domain}")
        if self.domain.dimension > _MOST_DIMENSIONS:
            raise Misuse(f"a codebook has at most {_MOST_DIMENSIONS} dimensions")
        if not 1 <= len(self.points) <= MOST_POINTS:
            raise Misuse(f"a codebook has 1 to {MOST_POINTS} points, got {len(self.points)}")
        object.__setattr__(self, "points", _whole_rows(self.points, self.domain.dimension))
        if len(set(self.points)) < len(self.points):
            raise Misuse("a point stands twice in the codebook")
        if not self.domain.holds(self._array):
            raise Misuse("a point of the codebook is not on the lattice of the domain")
        self._check_weights()
        self._check_decode(self.decode)

    def _check_weights(self) -> None:
        if not self.weights:
            squares = (self.domain.scale / self.domain.scale.max()) ** 2
            usual = np.maximum(np.rint(squares * _LARGEST_WEIGHT), 1).astype(np.int64)
            object.__setattr__(self, "weights", tuple(usual.tolist()))
        (weights,) = _whole_rows([self.weights], self.domain.dimension)
        if not all(1 <= weight <= _LARGEST_WEIGHT for weight in weights):
            raise Misuse(f"weights are whole numbers from 1 to {_LARGEST_WEIGHT}, got {weights}")
        object.__setattr__(self, "weights", weights)

    @classmethod
    def placed(
        cls, *, domain: Box | Ball, epsilon: float, points: Any, size: int | None = None
    ) -> "CodebookResponse":
        """Return the codebook with the least expected error for people spread as these places.

        `points` are public places in the user's units, such as venues or a census, and never the
        values to protect; or a `Prior`, from which made-up people are drawn. Without a `size` the
        best one is searched for; fewer points are used where two would be the same.
        """
        if not isinstance(domain, Box | Ball):
            raise Misuse(f"codebook response works on a Box or a Ball, not on {domain}")
        if size is not None and not (type(size) is int and 1 <= size <= MOST_POINTS):
            raise Misuse(f"a codebook has 1 to {MOST_POINTS} points, got {size!r}")
        if isinstance(points, Prior):
            points = points.draw(domain, _PEOPLE, seeded(0))
        public = domain.snap(points, clamp=True)
        if len(np.unique(public, axis=0)) < 2:
            raise Misuse("a codebook is placed for at least two different public places")
        length = domain.scale / (domain.steps // 2)  # of a lattice step
        budget = check_epsilon(epsilon)
        found = best_places(public * length, epsilon=budget, size=size, most=MOST_POINTS)
        snapped = domain.snap(domain.from_unit(found / domain.scale), clamp=True)
        kept = sorted({tuple(point) for point in snapped.tolist()})
        return cls(domain=domain, epsilon=epsilon, points=tuple(kept))

    @cached_property
    def _array(self) -> Points:
        return np.array(self.points, dtype=np.int64)

    @cached_property
    def _places(self) -> Floats:
        """Return the points as places of the unit ball."""
        return self._array / (self.domain.steps // 2)

    # -- the promise

    @property
    def size(self) -> int:
        """Return K, the number of points."""
        return len(self.points)

    @cached_property
    def heads(self) -> int:
        """Return how many of 2^64 tosses of the coin choose the true cell."""
        return heads_for(self.epsilon, cap=1, whole=self.size)

    @property
    def mixing(self) -> float:
        """Return β, the probability of an answer that is meant."""
        return self.heads / TOSSES

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that the mechanism really costs."""
        if self.size == 1:
            return 0.0
        return min(spent(self.heads, cap=1, whole=self.size), self.epsilon)

    @property
    def law(self) -> TwoLevel:
        """Return the law of k-ary response: caps of one cell, never overlapping."""
        if self.size == 1:
            return TwoLevel(epsilon=0.0, cap=1.0, apart=0.0, kernel=1.0)
        cap = above(Fraction(TOSSES - self.heads, TOSSES * self.size))
        return TwoLevel(epsilon=self.epsilon_spent, cap=cap, apart=cap, reached=True)

    @property
    def total_variation(self) -> float:
        """Return the total variation distance of two cells."""
        return self.mixing if self.size > 1 else 0.0

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        named = np.asarray(reports)[:, 0]
        possible = (named >= 0) & (named < self.size)
        same = np.where(named == self._cells(points), self.mixing, 0.0)
        return possible * (same + (1 - self.mixing) / self.size)

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        (named,) = report
        if not 0 <= named < self.size:
            return Fraction(0)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / self.size
        return far + heads if named == self._cell(point) else far

    @property
    def width(self) -> int:
        """Return 1: a report is the index of a point."""
        return 1

    @property
    def low(self) -> Points:
        """Return 0, the report of the first point."""
        return np.zeros(1, dtype=np.int64)

    @property
    def high(self) -> Points:
        """Return the report of the last point."""
        return np.array([self.size - 1], dtype=np.int64)

    # -- drawing

    def _respond(self, points: Points, entropy: Entropy) -> Points:
        # Both are made every time, so that the work does not tell how the coin fell.
        is_near = entropy.coins(self.heads, len(points))
        anywhere = entropy.below(self.size, len(points))
        return np.where(is_near, self._cells(points), anywhere)[:, None]

    def _cells(self, points: Points) -> Points:
        """Return the index of the nearest point, the first among equals, in integers."""
        cells = np.empty(len(points), dtype=np.int64)
        step = max(1, _PAIRS // self.size)
        for start in range(0, len(points), step):
            some = points[start : start + step]
            squares = np.zeros((len(some), self.size), dtype=np.int64)
            for axis, weight in enumerate(self.weights):
                apart = some[:, axis, None] - self._array[:, axis]
                apart *= apart
                apart *= weight
                squares += apart
            cells[start : start + step] = squares.argmin(axis=1)
        return cells

    def _cell(self, point: Sequence[int]) -> int:
        return int(self._cells(np.array([point], dtype=np.int64))[0])

    # -- reading and predicting

    def _frame(self, reports: Points) -> Floats:
        if len(reports) and not (0 <= reports.min() and reports.max() < self.size):
            raise Misuse(f"reports are from 0 to {self.size - 1}")
        return reports.astype(np.float64)

    def _decode(self, reports: Floats, how: Decode) -> Floats:  # noqa: ARG002 - there is one way
        places: Floats = self._places[reports[:, 0].astype(np.int64)]
        return places

    def expected_error(
        self, how: Decode | None = None, *, power: int = 1, places: Any = None
    ) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain.

        With `places`, in the user's units: for a value that is any of them, equally likely.
        """
        self._check_decode(how)
        if places is None:
            ball = self.domain
            unit, _ = evenly(_NODES, dimension=ball.dimension, p=ball.p, extra=1)
        else:
            unit = self.domain.snap(places, clamp=True) / (self.domain.steps // 2)
        return float(self._errors(unit, power).mean())

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power over values of the domain.

        The error is convex in each cell, so it is largest at a corner of one. On boxes of up to
        three axes these are computed; elsewhere the worst of many places is taken.
        """
        self._check_decode(how)
        scale, ball = self.domain.scale, self.domain
        corners = cell_corners(self._places * scale, scale, ball.p)
        if corners is None:
            inner, _ = evenly(_NODES, dimension=ball.dimension, p=ball.p, extra=1)
            norms = np.linalg.norm(inner, ord=ball.p, axis=1, keepdims=True)
            axes = np.eye(ball.dimension)
            signs = np.sign(inner) * ball.dimension ** (-1 / ball.p)
            corners = np.concatenate([inner, inner / norms, signs, axes, -axes]) * scale
        return float(self._errors(corners / scale, power).max())

    def _errors(self, places: Floats, power: int) -> Floats:
        """Return the mean error at each of these places of the unit ball."""
        scale, found = self.domain.scale, np.empty(len(places))
        cells = self._cells(np.rint(places * (self.domain.steps // 2)).astype(np.int64))
        step = max(1, _PAIRS // self.size)
        for start in range(0, len(places), step):
            rows = slice(start, start + step)
            apart = (places[rows, None, :] - self._places) * scale
            misses = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart)) ** power
            own = np.take_along_axis(misses, cells[rows, None], axis=1)[:, 0]
            found[rows] = self.mixing * own + (1 - self.mixing) * misses.mean(axis=1)
        return found


def _whole_rows(rows: Any, dimension: int) -> tuple[tuple[int, ...], ...]:
    """Return rows of whole numbers as tuples, or say what they must be."""
    found = tuple(tuple(row) for row in rows)
    whole = all(len(row) == dimension and all(type(i) is int for i in row) for row in found)
    if not whole or any(abs(i) >> 32 for row in found for i in row):
        raise Misuse(f"points and weights have {dimension} whole numbers each, of the lattice")
    return found
