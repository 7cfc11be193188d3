"""Codebook response: tell the nearest of a few public places, or any of them.

The places are put where people are expected, by public data, so they are many in a city's middle
and few outside. A report names one of the `closest` points to the value, in integers, or any of
them, and is read as the point itself. With one closest point this is k-ary response on the cells
of the points; with one point in all it is the answer without any report. SPEC section 13.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Decode, Goal, check_epsilon
from coatcheck.randomizers.mixing import TOSSES, MixedResponse
from coatcheck.randomizers.placement import best_places, evenest_line
from coatcheck.randomizers.prediction import evenly
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.voronoi import cell_corners

MOST_POINTS: Final = 4096
MOST_DIMENSIONS: Final = 16  # so that squared distances fit 64 bits
_LARGEST_WEIGHT: Final = 256
_PAIRS: Final = 1 << 19  # distances at a time
_NODES: Final = 1 << 13
_PEOPLE: Final = 20_000  # drawn from a prior


@dataclass(frozen=True, kw_only=True)
class CodebookResponse(MixedResponse):
    """One of the public points nearest to the value, or any of them.

    `points` are the codebook, on the lattice. `weights` says how much a squared step along each
    axis counts when the nearest points are sought: whole numbers in the ratio of the axes' squared
    lengths, unless they are given. A report names one of the `closest`, or any. `placed` finds
    points for public places.
    """

    name: ClassVar[str] = "codebook"
    exact: ClassVar[bool] = True
    decodes: ClassVar[tuple[Decode, ...]] = ("raw",)
    domain: Box | Ball
    epsilon: float
    points: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] = ()
    closest: int = 1
    decode: Decode = "raw"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"codebook response works on a Box or a Ball, not on {self.domain}")
        if self.domain.dimension > MOST_DIMENSIONS and len(self.points) > 1:
            raise Misuse(f"a codebook has at most {MOST_DIMENSIONS} dimensions, or one point")
        if not 1 <= len(self.points) <= MOST_POINTS:
            raise Misuse(f"a codebook has 1 to {MOST_POINTS} points, got {len(self.points)}")
        object.__setattr__(self, "points", _whole_rows(self.points, self.domain.dimension))
        if len(set(self.points)) < len(self.points):
            raise Misuse("a point stands twice in the codebook")
        if not self.domain.holds(self._array):
            raise Misuse("a point of the codebook is not on the lattice of the domain")
        if type(self.closest) is not int or not 1 <= self.closest <= max(1, self.size - 1):
            raise Misuse(f"the closest are some of {self.size} points, got {self.closest!r}")
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
        cls,
        *,
        domain: Box | Ball,
        epsilon: float | Callable[[int], float],
        points: Any,
        size: int | None = None,
        goal: Goal = "mean",
        quick: bool = False,
    ) -> "CodebookResponse":
        """Return the codebook with the least expected error for people spread as these places.

        `points` are public places in the user's units, such as venues or a census, and never the
        values to protect; or a `Prior`, from which made-up people are drawn. Without a `size` the
        best one is searched for; fewer points are used where two would be the same. An `epsilon`
        may depend on the size, as it does in a crowd. The goal `squared` makes the mean squared
        distance small, every other the mean distance.
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
        budget = epsilon if callable(epsilon) else partial(_same, check_epsilon(epsilon))
        length = domain.scale / (domain.steps // 2)  # of a lattice step
        found = best_places(
            public * length,
            budget=budget,
            size=size,
            most=MOST_POINTS,
            squared=goal == "squared",
            quick=quick,
        )
        kept = _on_lattice(domain, found / domain.scale)
        return cls(domain=domain, epsilon=budget(len(kept)), points=kept)

    @classmethod
    def evenest(
        cls, *, domain: Box | Ball, budget: Callable[[int, int], float]
    ) -> "CodebookResponse":
        """Return the codebook on a line whose error at the worst value is least.

        `budget` gives its ε by the number of close points and of all.
        """
        places, closest = evenest_line(budget, MOST_POINTS)
        points = _on_lattice(domain, places[:, None])
        closest = min(closest, max(1, len(points) - 1))
        epsilon = budget(closest, len(points))
        return cls(domain=domain, epsilon=epsilon, points=points, closest=closest)

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

    @property
    def _counts(self) -> tuple[int, int]:
        return self.closest, self.size

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        named = np.asarray(reports)[:, 0]
        possible = (named >= 0) & (named < self.size)
        is_near = (named[:, None] == self._nearest(points)).any(axis=1)
        near = np.where(is_near, self.mixing / self.closest, 0.0)
        return possible * (near + (1 - self.mixing) / self.size)

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        (named,) = report
        if not 0 <= named < self.size:
            return Fraction(0)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / self.size
        is_near = named in self._nearest(np.array([point], dtype=np.int64))
        return far + heads / self.closest if is_near else far

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
        # All are made every time, so that the work does not tell how the coin fell.
        is_near = entropy.coins(self.heads, len(points))
        ranks = entropy.below(self.closest, len(points))
        anywhere = entropy.below(self.size, len(points))
        near = np.take_along_axis(self._nearest(points), ranks[:, None], axis=1)
        return np.where(is_near[:, None], near, anywhere[:, None])

    def _nearest(self, points: Points) -> Points:
        """Return the indices of the closest points, the first among equals, in integers."""
        found = np.empty((len(points), self.closest), dtype=np.int64)
        step = max(1, _PAIRS // self.size)
        for start in range(0, len(points), step):
            some = points[start : start + step]
            squares = np.zeros((len(some), self.size), dtype=np.int64)
            for axis, weight in enumerate(self.weights):
                apart = some[:, axis, None] - self._array[:, axis]
                apart *= apart
                apart *= weight
                squares += apart
            if self.closest == 1:
                found[start : start + step, 0] = squares.argmin(axis=1)
            else:
                ordered = squares.argsort(axis=1, kind="stable")
                found[start : start + step] = ordered[:, : self.closest]
        return found

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

        The error is convex where the closest points are the same, so it is largest at a corner of
        such a cell. On a line, and for one closest point on boxes of two and three axes, these
        are computed; elsewhere the worst of many places is taken.
        """
        self._check_decode(how)
        scale, ball = self.domain.scale, self.domain
        corners = cell_corners(self._places * scale, scale, ball.p, self.closest)
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
        cells = self._nearest(np.rint(places * (self.domain.steps // 2)).astype(np.int64))
        step = max(1, _PAIRS // self.size)
        for start in range(0, len(places), step):
            rows = slice(start, start + step)
            apart = (places[rows, None, :] - self._places) * scale
            misses = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart)) ** power
            own = np.take_along_axis(misses, cells[rows], axis=1).mean(axis=1)
            found[rows] = self.mixing * own + (1 - self.mixing) * misses.mean(axis=1)
        return found


def _same(epsilon: float, _size: int) -> float:
    return epsilon


def _on_lattice(domain: Box | Ball, places: Floats) -> tuple[tuple[int, ...], ...]:
    """Return places of the unit ball as different lattice points, in order.

    On a line, points that fall on one another are moved to the next free one inwards.
    """
    half = domain.steps // 2
    snapped = domain.snap(domain.from_unit(places), clamp=True)
    if domain.dimension == 1 and len(places) <= half:
        line = np.sort(snapped[:, 0])
        steps = np.arange(len(line))
        line = np.maximum.accumulate(line - steps) + steps
        line = np.minimum.accumulate((line - steps)[::-1])[::-1] + steps
        line = np.minimum(line, half - steps[::-1])
        return tuple((int(i),) for i in line)
    return tuple(sorted({tuple(point) for point in snapped.tolist()}))


def _whole_rows(rows: Any, dimension: int) -> tuple[tuple[int, ...], ...]:
    """Return rows of whole numbers as tuples, or say what they must be."""
    for row in rows:  # none is copied before all are known to be short
        whole = len(row) == dimension and all(type(i) is int and not abs(i) >> 32 for i in row)
        if not whole:
            raise Misuse(f"points and weights have {dimension} whole numbers each, of the lattice")
    return tuple(tuple(row) for row in rows)
