"""Codebook response: a report names one of the public points nearest to the value, or any point.

The points are placed where public data says that people are: many in the middle of a city, few
outside. The report names one of the `closest` points to the value, computed in integers, or any
point, and its estimate is the point itself. With one closest point this is k-ary response on the
cells of the points; with one point in all it is the answer that needs no report. SPEC section 13.

The file begins with the placement of points, which knows public places only: for the mean or the
mean squared error in any dimension, and for the worst value on a line.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import TOSSES, Decode, Goal, MixedResponse, check_epsilon
from coatcheck.randomizers.expected_error import evenly
from coatcheck.randomizers.prior import Prior

# -- the corners of the cells of points in a box, where a convex error is largest


def cell_corners(points: Floats, half: Floats, p: float, closest: int = 1) -> Floats | None:
    """Return the corners of the cells inside the box -half .. half; None if it costs too much.

    All places of a cell have the same closest points. With the points mirrored in each side of
    the box, cells end at the sides, so the corners are vertices of one Voronoi diagram.
    """
    d = len(half)
    if d > 3 or not (d == 1 or (p == math.inf and closest == 1)):
        return None
    ends = np.stack(np.meshgrid(*[[-side, side] for side in half]), axis=-1).reshape(-1, d)
    if len(points) == 1:
        return ends
    if d == 1:
        line = np.sort(points[:, 0])
        return np.concatenate([ends, ((line[closest:] + line[:-closest]) / 2)[:, None]])
    from scipy.spatial import Voronoi  # noqa: PLC0415 - slow to import, and seldom needed

    mirrored = [points]
    for axis, side in enumerate(half.tolist()):
        for edge in (-side, side):
            other = points.copy()
            other[:, axis] = 2 * edge - other[:, axis] + np.sign(edge) * 1e-9 * side
            mirrored.append(other)
    vertices = Voronoi(np.concatenate(mirrored)).vertices
    inside = (np.abs(vertices) <= half * (1 + 1e-6)).all(axis=1)
    return np.concatenate([ends, np.clip(vertices[inside], -half, half)])


# -- where the points go: Lloyd's iteration with the noise of the channel in the loss
#
# A report names the true cell with probability β, else any cell. So the best place for a point is
# the median (or the mean, for squared errors) of where the value can have been: the public places
# of its own cell, which count e^ε times, and all others, which count once. And for given points the
# best cell of a place is that of the nearest point. The two steps alternate until they gain next to
# nothing.

_SUMMARY: Final = 512  # places that stand for all places where they count once
_QUICK: Final = 12  # rounds of a first look
_ROUNDS: Final = 60
_STARTS: Final = 3  # for small codebooks, where the start matters
_FEW: Final = 64
_STILL: Final = 2e-4  # three rounds that gain a smaller share are the last
_GROWTH: Final = 1.35  # from one size that is tried to the next

_LINE: Final = 64  # points on a line, for the worst value
_FEWEST: Final = 4  # close points among them, so that a cap moves in small steps
_SHARES: Final = 9  # shares of close points that are tried
_CURVE: Final = (1.4, -0.25, -0.1)  # close to the best for ε from 2 to 6


def best_places(
    places: Floats,
    *,
    budget: Callable[[int], float],
    size: int | None,
    most: int,
    squared: bool = False,
    quick: bool = False,
) -> Floats:
    """Return points of the least mean distance, or mean squared distance, that the search finds.

    `places` are in the unit of errors; `budget` gives the ε of a codebook by its size.
    """

    def refined(size: int, rounds: int, starts: int = 1) -> tuple[float, Floats]:
        return _refined(places, budget(size), size, rounds=rounds, starts=starts, squared=squared)

    def full(size: int) -> tuple[float, Floats]:
        return refined(size, _ROUNDS, _STARTS if size <= _FEW else 1)

    if size is None:
        tried: dict[int, tuple[float, Floats]] = {}

        def loss(size: int) -> float:
            if size not in tried:
                tried[size] = refined(size, _QUICK)
            return tried[size][0]

        size = _lowest(loss, _sizes(most), _guess(budget(_FEW), places.shape[1]))
        if quick:
            return tried[size][1]
        nearly = sorted(tried, key=loss)[:2]
        return min((full(size) for size in nearly), key=_loss)[1]
    return full(size)[1]


def _loss(tried: tuple[float, Floats]) -> float:
    return tried[0]


def _guess(epsilon: float, dimension: int) -> float:
    """Return about how many cells are best for people spread evenly."""
    return float((0.37 * math.exp(min(epsilon, 20.0))) ** (dimension / (dimension + 1)))


def _sizes(most: int) -> list[int]:
    sizes = list(range(1, 9))
    while sizes[-1] * _GROWTH <= most:
        sizes.append(math.ceil(sizes[-1] * _GROWTH))
    return [size for size in sizes if size <= most]


def _lowest(loss: Callable[[int], float], sizes: list[int], guess: float) -> int:
    """Return the size of least loss: walk downhill from a guess, looking two steps ahead."""
    best = min(range(len(sizes)), key=lambda i: abs(math.log(sizes[i] / max(guess, 1.0))))
    while True:
        near = range(max(0, best - 2), min(len(sizes), best + 3))
        lower = min(near, key=lambda i: loss(sizes[i]))
        if lower == best:
            return sizes[best]
        best = lower


def _refined(
    places: Floats, epsilon: float, size: int, *, rounds: int, starts: int, squared: bool
) -> tuple[float, Floats]:
    """Return the least loss of a codebook of this size, and its points."""
    size = min(size, len(places))
    chosen = seeded(0).below(len(places), _SUMMARY)
    summary = places if len(places) <= _SUMMARY else places[chosen]
    results = [
        _lloyd(places, summary, epsilon=epsilon, points=points, rounds=rounds, squared=squared)
        for points in (_spread(places, size, start) for start in range(starts))
    ]
    return min(results, key=_loss)


def _lloyd(
    places: Floats,
    summary: Floats,
    *,
    epsilon: float,
    points: Floats,
    rounds: int,
    squared: bool,
) -> tuple[float, Floats]:
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow to import, and seldom needed

    size, power = len(points), 2 if squared else 1
    gain = math.expm1(epsilon)
    truth = gain / (gain + size)
    nearly = 1e-6 * float(np.ptp(places, axis=0).max())  # the least distance, so that none is 0
    best, best_points, still = math.inf, points, 0
    for _ in range(rounds):
        found_at = cKDTree(points).query(places)
        distances, cells = np.asarray(found_at[0]), np.asarray(found_at[1])
        apart = np.linalg.norm(points[:, None, :] - summary, axis=2)
        loss = float(truth * (distances**power).mean() + (1 - truth) * (apart**power).mean())
        still = still + 1 if loss > (1 - _STILL) * best else 0
        if loss < best:
            best, best_points = loss, points
        if still == 3:
            break
        # One step of Weiszfeld's to the median of both: each place by its weight over its distance.
        # For squared errors the mean is the place itself.
        own = gain / np.maximum(distances, nearly) ** (2 - power)
        every = (len(places) / len(summary)) / np.maximum(apart, nearly) ** (2 - power)
        pull = np.bincount(cells, own, minlength=size) + every.sum(axis=1)
        sums = every @ summary
        for axis in range(places.shape[1]):
            sums[:, axis] += np.bincount(cells, own * places[:, axis], minlength=size)
        points = sums / pull[:, None]
    return best, best_points


def _spread(places: Floats, size: int, start: int) -> Floats:
    """Return places to start from, each drawn by its squared distance from those before."""
    entropy = seeded(start)
    some = places[entropy.below(len(places), min(len(places), 4 * size + 64))]
    chosen = [some[0]]
    nearest = np.full(len(some), np.inf)
    for draw in entropy.uniforms(size - 1) if size > 1 else ():
        nearest = np.minimum(nearest, np.square(some - chosen[-1]).sum(axis=1))
        if not nearest.any():
            break
        chosen.append(some[int(np.searchsorted(np.cumsum(nearest), draw * nearest.sum()))])
    return np.array(chosen)


# -- the worst value of a line


def evenest_line(budget: Callable[[int, int], float], most: int) -> tuple[Floats, int]:
    """Return points of -1 .. 1, and how many are close, with the least error at the worst value.

    The best mechanism by linear programming has caps that are wide in the middle and narrow at
    the ends, where an answer from anywhere costs most. So the points are denser towards the ends,
    along a curve with three parameters, which is fitted for each share of close points. `budget`
    gives the ε of a codebook by the number of close points and of all.
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

    def fitted(share: float) -> tuple[float, Floats, int]:
        size = min(most, max(_LINE, math.ceil(_FEWEST / share)))
        closest = max(1, round(share * size))
        mixing = _mixing(budget(closest, size), closest, size)

        def worst(at: Floats) -> float:
            return _worst(_curved(size, at), closest, mixing)

        simplex = np.concatenate([[_CURVE], np.array(_CURVE) + np.diag((0.15, 0.15, -0.2))])
        options: Any = {"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-5, "maxiter": 150}
        minimum: Any = optimize.minimize(worst, simplex[0], method="Nelder-Mead", options=options)
        return float(minimum.fun), _curved(size, minimum.x), closest

    usual = 0.6 * math.exp(-0.4 * min(budget(1, _LINE), 12.0))
    shares = np.geomspace(usual / 2, min(2 * usual, 0.5), _SHARES).tolist()
    _, points, closest = min(map(fitted, shares), key=lambda tried: tried[0])
    return points, closest


def _mixing(epsilon: float, closest: int, size: int) -> float:
    gain = math.expm1(epsilon) * closest
    return gain / (gain + size)


def _curved(size: int, curve: Floats) -> Floats:
    even = (np.arange(size) + 0.5) / size * 2 - 1
    length = np.abs(even)
    bent = curve[0] * length + curve[1] * length**2 + curve[2] * length**4
    return np.asarray(np.clip(np.sign(even) * bent, -1, 1))


def _worst(points: Floats, closest: int, mixing: float) -> float:
    """Return the largest error over the values of half a line; the other half mirrors it."""
    points = np.sort(points)
    ends = (points[closest:] + points[:-closest]) / 2  # where the close points change
    values = np.append(ends[ends >= 0], (0.0, 1.0))
    misses = np.abs(values[:, None] - points)
    near = np.partition(misses, closest - 1, axis=1)[:, :closest].mean(axis=1)
    return float((mixing * near + (1 - mixing) * misses.mean(axis=1)).max())


MOST_POINTS: Final = 4096
MOST_DIMENSIONS: Final = 16  # so that squared distances fit 64 bits
_LARGEST_WEIGHT: Final = 256
_PAIRS: Final = 1 << 19  # distances at a time
_NODES: Final = 1 << 13
_PEOPLE: Final = 20_000  # simulated people that are drawn from a prior


@dataclass(frozen=True, kw_only=True)
class CodebookResponse(MixedResponse):
    """One of the public points nearest to the value, or any point.

    `points` are the codebook, on the lattice. `weights` says how much a squared step along each
    axis counts in the search for the nearest points: by default whole numbers in the ratio of the
    axes' squared lengths. A report names one of the `closest` points, or any. `placed` computes
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
            raise Misuse(f"a codebook works on a Box or a Ball, not on {self.domain}")
        if self.domain.dimension > MOST_DIMENSIONS and len(self.points) > 1:
            raise Misuse(
                f"a codebook of several points has at most {MOST_DIMENSIONS} dimensions, got "
                f"{self.domain.dimension}"
            )
        if not 1 <= len(self.points) <= MOST_POINTS:
            raise Misuse(f"a codebook has 1 to {MOST_POINTS} points, got {len(self.points)}")
        object.__setattr__(
            self, "points", _whole_rows(self.points, self.domain.dimension, "each of `points`")
        )
        if len(set(self.points)) < len(self.points):
            raise Misuse("`points` has a point twice; give each point once")
        if not self.domain.holds(self._array):
            raise Misuse("`points` must be points of the lattice of the domain; snap() them first")
        if type(self.closest) is not int or not 1 <= self.closest <= max(1, self.size - 1):
            raise Misuse(
                f"`closest` must be a whole number from 1 to {max(1, self.size - 1)}, got "
                f"{self.closest!r}"
            )
        self._check_weights()
        self._check_decode(self.decode)

    def _check_weights(self) -> None:
        if not self.weights:
            squares = (self.domain.scale / self.domain.scale.max()) ** 2
            usual = np.maximum(np.rint(squares * _LARGEST_WEIGHT), 1).astype(np.int64)
            object.__setattr__(self, "weights", tuple(usual.tolist()))
        (weights,) = _whole_rows([self.weights], self.domain.dimension, "`weights`")
        if not all(1 <= weight <= _LARGEST_WEIGHT for weight in weights):
            raise Misuse(
                f"`weights` must be whole numbers from 1 to {_LARGEST_WEIGHT}, got {weights}"
            )
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

        `points` are public places in the user's units, such as venues or a census, never the
        values to protect; or a `Prior`, from which simulated people are drawn. Without a `size`
        the best one is searched; two points that would coincide become one. `epsilon` may depend
        on the size, as it does in a crowd. The goal `squared` minimises the mean squared distance,
        any other goal the mean distance.
        """
        if not isinstance(domain, Box | Ball):
            raise Misuse(f"a codebook works on a Box or a Ball, not on {domain}")
        if size is not None and not (type(size) is int and 1 <= size <= MOST_POINTS):
            raise Misuse(f"a codebook has 1 to {MOST_POINTS} points, got {size!r}")
        if isinstance(points, Prior):
            points = points.draw(domain, _PEOPLE, seeded(0))
        public = domain.snap(points, clamp=True)
        if len(np.unique(public, axis=0)) < 2:
            raise Misuse(
                "a codebook needs at least two different public places to place its points"
            )
        budget = epsilon if callable(epsilon) else partial(_same, check_epsilon(epsilon))
        length = domain.scale / (domain.steps // 2)  # of a lattice step
        places = best_places(
            public * length,
            budget=budget,
            size=size,
            most=MOST_POINTS,
            squared=goal == "squared",
            quick=quick,
        )
        codebook = _on_lattice(domain, places / domain.scale)
        return cls(domain=domain, epsilon=budget(len(codebook)), points=codebook)

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
        # All are drawn every time, so that the work does not reveal how the coin fell.
        is_near = entropy.coins(self.heads, len(points))
        ranks = entropy.below(self.closest, len(points))
        anywhere = entropy.below(self.size, len(points))
        near = np.take_along_axis(self._nearest(points), ranks[:, None], axis=1)
        return np.where(is_near[:, None], near, anywhere[:, None])

    @property
    def takes_decoys(self) -> bool:
        """Return True: an answer from everywhere is a uniform report."""
        return True

    def decoy(self, entropy: Entropy) -> tuple[int, ...]:
        """Return a uniform report."""
        return (entropy.integer(self.size),)

    def _nearest(self, points: Points) -> Points:
        """Return the indices of the closest points, ties by index, in integers."""
        nearest = np.empty((len(points), self.closest), dtype=np.int64)
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
                nearest[start : start + step, 0] = squares.argmin(axis=1)
            else:
                ordered = squares.argsort(axis=1, kind="stable")
                nearest[start : start + step] = ordered[:, : self.closest]
        return nearest

    # -- decoding and predicting

    def _frame(self, reports: Points) -> Floats:
        if len(reports) and not (0 <= reports.min() and reports.max() < self.size):
            raise Misuse(f"reports must be from 0 to {self.size - 1}")
        return reports.astype(np.float64)

    def _decode(self, reports: Floats, how: Decode) -> Floats:  # noqa: ARG002 - the only one
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

        Within a cell of the same closest points the error is convex, so it is largest at a corner.
        Corners are computed on a line, and for one closest point on boxes of two and three axes;
        elsewhere the result is the worst of many places.
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
        """Return the mean error at each place of the unit ball."""
        scale, errors = self.domain.scale, np.empty(len(places))
        cells = self._nearest(np.rint(places * (self.domain.steps // 2)).astype(np.int64))
        step = max(1, _PAIRS // self.size)
        for start in range(0, len(places), step):
            rows = slice(start, start + step)
            apart = (places[rows, None, :] - self._places) * scale
            misses = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart)) ** power
            own = np.take_along_axis(misses, cells[rows], axis=1).mean(axis=1)
            errors[rows] = self.mixing * own + (1 - self.mixing) * misses.mean(axis=1)
        return errors


def _same(epsilon: float, _size: int) -> float:
    return epsilon


def _on_lattice(domain: Box | Ball, places: Floats) -> tuple[tuple[int, ...], ...]:
    """Return places of the unit ball as different lattice points, in order.

    On a line, points that coincide move to the next free one inwards.
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


def _whole_rows(rows: Any, dimension: int, name: str) -> tuple[tuple[int, ...], ...]:
    """Return rows of whole numbers as tuples, or raise `Misuse`."""
    for row in rows:  # no row is copied before all are checked to be short
        if len(row) != dimension or not all(type(i) is int and not abs(i) >> 32 for i in row):
            raise Misuse(f"{name} must be {dimension} whole numbers below 2^32 in size")
    return tuple(tuple(row) for row in rows)
