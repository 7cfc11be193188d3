"""Integer points of l_p balls: their number, and uniform draws of them.

Draws are exact, in integers, for p = 1 and p = inf in any dimension and for p = 2 up to dimension
8; in other balls they are floats that are rounded, and `exact` is False.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.entropy import Entropy
from coatcheck.randomizers.expected_error import Floats, unit_ball

Points = NDArray[np.int64]

_COUNTABLE: Final = 1 << 18  # additions to count an l2 ball; beyond, volumes bound the count
_FINE: Final = 1 << 20  # parts of a lattice step, in which cubes are measured
_REJECTABLE: Final = 8  # dimensions in which the l2 ball fills enough of its cube (1.6 % at 8)


@dataclass(frozen=True)
class LatticeBall:
    """The integer vectors of `dimension` coordinates within a reach in the l_p norm."""

    p: float
    dimension: int

    @property
    def exact(self) -> bool:
        """Return whether draws are exactly uniform, in integers."""
        if self.p in {1.0, math.inf} or self.dimension == 1:
            return True
        return self.p == 2 and self.dimension <= _REJECTABLE

    def counts(self, cap: int, whole: int) -> tuple[int, int]:
        """Return two integers in the ratio of the counts of a cap and of the whole.

        Where counting is too much work, volumes bound the ratio from below: every lattice point
        has a unit cube, whose corners are h = d^(1/p)/2 away, so that
        vol(reach - h) <= count <= vol(reach + h).
        """
        if self.countable(whole):
            return self.count(cap), self.count(whole)
        inner, outer = max(cap * _FINE - self._corner, 0), whole * _FINE + self._corner
        return int(inner**self.dimension), int(outer**self.dimension)

    def share_above(self, cap: int, whole: int) -> Fraction:
        """Return an upper bound on the share of a cap in the whole; exact where `counts` is."""
        if self.countable(whole):
            return Fraction(self.count(cap), self.count(whole))
        outer, inner = cap * _FINE + self._corner, whole * _FINE - self._corner
        return min(Fraction(outer, max(inner, 1)) ** self.dimension, Fraction(1))

    def lens(self, cap: int, apart: int) -> float:
        """Return a lower bound on the share of a cap inside another, centers 2 `apart` apart.

        In l2 this is a lens: shrunk by h (see `counts`), its volume is below its number of points.
        """
        h = self._corner / _FINE
        inner = cap - h
        if self.p != 2 or self.dimension == 1 or inner <= apart:
            return 0.0
        share = _lens_share(self.dimension, (inner - apart) * (inner + apart) / inner**2)
        points = (inner / (cap + h)) ** self.dimension
        if self.countable(cap):
            points = self.volume(inner) / self.count(cap)
        return share * points * (1 - 1e-9)

    @property
    def _corner(self) -> int:
        """Return how far a unit cube's corners are from its center, rounded up, in fine steps."""
        return math.ceil(math.pow(self.dimension, 1 / self.p) / 2 * _FINE) + 1

    def countable(self, reach: int) -> bool:
        """Return whether `count` can count the points within this reach."""
        if self.p in {1.0, math.inf} or self.dimension == 1:
            return True
        return self.p == 2 and self.dimension * reach**3 <= _COUNTABLE

    def count(self, reach: int) -> int:
        """Return the exact number of lattice points; only where they are `countable`."""
        d = self.dimension
        if self.p == math.inf or d == 1:
            return int((2 * reach + 1) ** d)
        if self.p == 1:
            return sum(_l1_layers(d, reach))
        return _l2_count(d, reach)

    def volume(self, reach: float) -> float:
        """Return the volume of the continuous ball of this radius, close to the count."""
        if self.p == math.inf:
            return (2 * reach) ** self.dimension
        log = self.dimension * (math.log(2 * reach) + math.lgamma(1 / self.p + 1))
        return math.exp(log - math.lgamma(self.dimension / self.p + 1))

    def sample(self, reach: int, size: int, entropy: Entropy) -> Points:
        """Return `size` lattice points, each uniform on the ball."""
        d = self.dimension
        if self.p == math.inf or d == 1:
            drawn = entropy.below(2 * reach + 1, size * d).reshape(size, d)
            drawn -= reach
            return drawn
        if self.p == 1:
            return _l1_sample(d, reach, size, entropy)
        if self.exact:
            return _l2_sample(d, reach, size, entropy)
        places = unit_ball(self.p, entropy.uniforms(size * (d + 1)).reshape(size, d + 1))
        return np.rint(places * reach).astype(np.int64)

    def sample_one(self, reach: int, entropy: Entropy) -> tuple[int, ...]:
        """Return one uniform lattice point, without arrays where those would be slow."""
        side = 2 * reach + 1
        if self.p == math.inf or self.dimension == 1:
            return tuple([entropy.integer(side) - reach for _ in range(self.dimension)])
        if self.p == 2 and self.exact:
            while True:
                point = tuple([entropy.integer(side) - reach for _ in range(self.dimension)])
                if sum(i * i for i in point) <= reach * reach:
                    return point
        return tuple(self.sample(reach, 1, entropy)[0].tolist())

    def shrink(self, points: Points, reach: int) -> Points:
        """Move points towards the center until they are within reach, in integers."""
        if self.p == math.inf or self.dimension == 1:
            clipped: Points = np.clip(points, -reach, reach)
            return clipped
        norms = self.norms(points)
        inside = (norms <= reach)[:, None]
        shorter = np.abs(points) * reach // np.maximum(norms, 1)[:, None]
        moved: Points = np.where(inside, points, np.sign(points) * shorter)
        return moved

    def norms(self, points: Points) -> Points:
        """Return the norm of each point, rounded up to an integer; exact for p = 1, 2 and inf."""
        sizes: Points = np.abs(points)
        if self.p == math.inf or self.dimension == 1:
            norms: Points = sizes.max(axis=1)
        elif self.p == 1:
            norms = sizes.sum(axis=1)
        elif self.p == 2:
            squares = (sizes * sizes).sum(axis=1)
            norms = np.sqrt(squares.astype(np.float64)).astype(np.int64)
            norms -= norms * norms > squares
            norms += norms * norms < squares
        else:
            norms = np.ceil(np.linalg.norm(sizes, ord=self.p, axis=1)).astype(np.int64)
        return norms

    def project(self, places: Floats) -> Floats:
        """Return the nearest places of the unit ball in l2; radially for unusual p."""
        if self.p == math.inf or self.dimension == 1:
            clipped: Floats = np.clip(places, -1.0, 1.0)
            return clipped
        if self.p == 1:
            return _l1_project(places)
        shorter: Floats = (
            places / np.maximum(np.linalg.norm(places, ord=self.p, axis=1), 1)[:, None]
        )
        return shorter

    @property
    def spread(self) -> float:
        """Return κ, the mean of |u|_2^2 over the continuous unit ball (paper, Lemma on MSE)."""
        d, p = self.dimension, self.p
        if p == math.inf:
            return d / 3
        gamma = math.lgamma
        log = gamma(3 / p) + gamma(d / p + 1) - gamma(1 / p) - gamma((d + 2) / p + 1)
        return d * math.exp(log)


def _lens_share(d: int, x: float) -> float:
    """Return I_x((d + 1)/2, 1/2), the regularized incomplete beta function, rounded down.

    It is elementary for the first of its arguments, 1/2 or 1, and goes from b to b + 1 by one term.
    """
    side = math.sqrt(1 - x)
    if d % 2:
        b, beta, share = 1.0, 2.0, 1 - side
    else:
        b, beta, share = 0.5, math.pi, 2 / math.pi * math.asin(math.sqrt(x))
    while b < (d + 1) / 2:
        share -= x**b * side / (b * beta)
        beta *= b / (b + 0.5)
        b += 1
    return max(0.0, share - 1e-14)


@lru_cache(maxsize=256)
def _l1_layers(d: int, reach: int) -> tuple[int, ...]:
    """Return how many points of the l1 ball have k nonzero coordinates, for k = 0 .. d.

    That is C(d, k) C(reach, k) 2^k. Each is computed from the last, because terms of strangers
    may have a large d.
    """
    layers = [1]
    for k in range(min(d, reach)):
        layers.append(layers[-1] * (2 * (d - k) * (reach - k)) // (k + 1) ** 2)
    return tuple(layers)


@lru_cache(maxsize=256)
def _l2_count(d: int, reach: int) -> int:
    """Return the number of integer vectors with |i|_2 <= reach, by adding one axis at a time."""
    squares = np.arange(reach + 1, dtype=np.int64) ** 2
    ways = np.zeros(reach * reach + 1, dtype=object)
    ways[0] = 1
    for _ in range(d):
        wider = np.zeros_like(ways)
        for root, square in enumerate(squares.tolist()):
            weight = 2 if root else 1
            wider[square:] += weight * ways[: len(ways) - square]
        ways = wider
    return int(ways.sum())


def _l2_sample(d: int, reach: int, size: int, entropy: Entropy) -> Points:
    """Draw from the cube around the ball and keep what is inside."""
    accepted = [np.empty((0, d), dtype=np.int64)]
    missing = size
    share = math.exp(math.lgamma(0.5) * d - math.lgamma(d / 2 + 1)) / 2**d
    while missing > 0:
        tries = int(missing / share * 1.05) + 16
        drawn = entropy.below(2 * reach + 1, tries * d).reshape(tries, d) - reach
        inside = drawn[(drawn * drawn).sum(axis=1) <= reach * reach]
        accepted.append(inside[:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)


def _l1_sample(d: int, reach: int, size: int, entropy: Entropy) -> Points:
    """Draw how many coordinates are nonzero, which they are, their sizes and their signs.

    k positive integers with a sum of at most `reach` are a k-subset of 1 .. reach: sort it and
    take differences. So every step is a count, and the draw is exactly uniform.
    """
    layers = _draw_layers(_l1_layers(d, reach), size, entropy)
    points = np.zeros((size, d), dtype=np.int64)
    for k in np.unique(layers).tolist():
        rows = np.flatnonzero(layers == k)
        if k == 0:
            continue
        cuts = np.sort(_distinct(reach, k, rows.size, entropy), axis=1)
        parts = np.diff(cuts, axis=1, prepend=-1)
        parts *= 1 - 2 * entropy.below(2, parts.size).reshape(parts.shape)
        if k == d:
            points[rows] = parts
        else:
            points[rows[:, None], _distinct(d, k, rows.size, entropy)] = parts
    return points


def _draw_layers(weights: tuple[int, ...], size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw positions with probability exactly proportional to integers of any length.

    A 64-bit word decides, unless it falls on a boundary between two layers; these few rows draw
    more bits until they are decided.
    """
    total = sum(weights)
    bounds = np.cumsum(np.array(weights, dtype=object))[:-1].tolist()
    floors = np.array([(bound << 64) // total for bound in bounds], dtype=np.uint64)
    words = entropy.words(size)
    drawn = np.searchsorted(floors, words, side="right").astype(np.int64)
    for row in np.flatnonzero(np.isin(words, floors)).tolist():
        # The word is the top of a uniform number on 0 .. 2^(64+extra) - 1; lengthen it until the
        # interval it stands for lies on one side of every boundary.
        value, scale = int(words[row]), 64
        while len(places := _layers_of(value, scale, bounds, total)) > 1:
            value, scale = (value << 64) | int(entropy.words(1)[0]), scale + 64
        drawn[row] = places.pop()
    return drawn


def _layers_of(value: int, scale: int, bounds: list[int], total: int) -> set[int]:
    """Return the layers that numbers in [value, value + 1) / 2^scale can fall into."""
    first = sum(bound << scale <= value * total for bound in bounds)
    last = sum(bound << scale < (value + 1) * total for bound in bounds)
    return {first, last}


def _distinct(bound: int, k: int, size: int, entropy: Entropy) -> Points:
    """Return rows of k different integers of 0 .. bound - 1, every choice equally likely."""
    if 2 * k * k > bound:
        return _shuffled(bound, k, size, entropy)
    rows = entropy.below(bound, size * k).reshape(size, k)
    while True:
        ordered = np.sort(rows, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not again.size:
            return rows
        rows[again] = entropy.below(bound, again.size * k).reshape(again.size, k)


def _shuffled(bound: int, k: int, size: int, entropy: Entropy) -> Points:
    """Return the first k places of a shuffle of 0 .. bound - 1 (Fisher and Yates)."""
    deck = np.tile(np.arange(bound, dtype=np.int64), (size, 1))
    rows = np.arange(size)
    for place in range(k):
        other = place + entropy.below(bound - place, size)
        deck[rows, place], deck[rows, other] = deck[rows, other], deck[rows, place].copy()
    return deck[:, :k]


def _l1_project(places: Floats) -> Floats:
    """Project on the unit l1 ball by a soft threshold (Duchi et al. 2008)."""
    sizes = np.abs(places)
    falling = -np.sort(-sizes, axis=1)
    excess = np.cumsum(falling, axis=1) - 1.0
    ranks = np.arange(1, places.shape[1] + 1)
    last = (falling * ranks > excess).sum(axis=1) - 1
    threshold = np.take_along_axis(excess, last[:, None], axis=1) / (last[:, None] + 1)
    lengths: Floats = np.maximum(sizes - np.maximum(threshold, 0.0), 0.0)
    return np.copysign(lengths, places)
