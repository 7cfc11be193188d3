"""Sphere response: a public codebook of directions, exact in any dimension, in four bytes.

The value is lifted to the sphere of one dimension more, as in PrivUnit. A report names a codeword:
one of the `closest` to the value with probability β, else any of the `size` codewords. So, by
counting, each of the closest is at most e^ε times as likely as each of the others. The estimate
codeword / m is unbiased, with m the mean component of a report along the lifted value.

`Codewords` is the codebook, which everybody computes from a seed. A codeword is a vector of small
integers that are nearly Gaussian, so its direction is nearly uniform on the sphere. The closest
codewords are computed in integers, ties by index, so two machines never disagree. Only a block of
codewords is in memory at a time. A turn rotates the coordinates by a public number of places and
gives them public signs. The value is turned before the comparison and the codeword is turned back,
which makes one codebook into as many as there are turns, each derived only where a report names it.
SPEC section 13.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy, public
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import TOSSES, Decode, MixedResponse, check_epsilon
from coatcheck.randomizers.expected_error import evenly
from coatcheck.randomizers.lattice_balls import LatticeBall

_BLOCK: Final = 1 << 18  # entries of the codebook at a time: 2 MB as floats
_SCORES: Final = 1 << 19  # scores at a time, for many values
_TURNED: Final = 1 << 18  # coordinates that are turned at a time

# Entry b of 128 is the mean of a Gaussian between its quantiles (128 + b)/256 and (129 + b)/256,
# times 42.77, rounded, but at least 1, so that no codeword is 0.
_UPPER: Final = (
    *(1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8, 9, 9, 10, 10, 10, 11, 11, 12),
    *(12, 13, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 22),
    *(23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31, 32, 32, 33, 33, 34),
    *(35, 35, 36, 36, 37, 38, 38, 39, 40, 40, 41, 41, 42, 43, 44, 44, 45, 46, 46, 47, 48, 49, 50),
    *(50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 64, 65, 66, 68, 69, 71, 73, 74, 76, 79),
    *(81, 84, 87, 90, 94, 100, 108, 127),
)
# A byte below 128 stands for entry `byte`, one from 128 on for minus entry `byte - 128`.
_ENTRIES: Final = bytes(_UPPER) + bytes(256 - entry for entry in _UPPER)


@dataclass(frozen=True)
class Codewords:
    """`size` codewords of `width` integers, derived from a seed, with `turns` turns."""

    seed: int
    width: int
    size: int
    turns: int
    half: int  # the lattice steps in a value of length 1

    def rows(self, start: int, stop: int) -> NDArray[np.int8]:
        """Return codewords start .. stop - 1."""
        label = f"coatcheck sphere codewords {self.seed}"
        drawn = public(label, start=start * self.width, stop=stop * self.width)
        entries = np.frombuffer(drawn.translate(_ENTRIES), dtype=np.int8)
        return entries.reshape(stop - start, self.width)

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Yield the codebook block by block: the first index, and the codewords as floats."""
        step = max(1, _BLOCK // self.width)
        for start in range(0, self.size, step):
            yield start, self.rows(start, min(start + step, self.size)).astype(np.float64)

    def directions(self, indices: Points) -> Floats:
        """Return codewords as unit vectors."""
        vectors = np.empty((len(indices), self.width))
        for start, rows in self.blocks():
            here = (indices >= start) & (indices < start + len(rows))
            if here.any():
                vectors[here] = rows[indices[here] - start]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def turn(self, turns: Points) -> tuple[Points, NDArray[np.int8]]:
        """Return by how many places each turn rotates, and a row of its signs."""
        numbers, which = np.unique(turns, return_inverse=True)
        size = 4 + (self.width + 7) // 8
        label = f"coatcheck sphere turn {self.seed}"
        drawn = b"".join(
            public(f"{label} {number}", start=0, stop=size) for number in numbers.tolist()
        )
        table = np.frombuffer(drawn, dtype=np.uint8).reshape(len(numbers), size)
        moves = np.ascontiguousarray(table[:, :4]).view("<u4")[:, 0].astype(np.int64) % self.width
        bits = np.unpackbits(table[:, 4:], axis=1, count=self.width, bitorder="little")
        return moves[which], (1 - 2 * bits.astype(np.int8))[which]

    def turned(self, vectors: Any, turns: Points) -> Any:
        """Turn vectors, each by its own turn."""
        moved = np.empty_like(vectors)
        for rows in self._some(len(vectors)):
            moves, signs = self.turn(turns[rows])
            sources = (np.arange(self.width) + moves[:, None]) % self.width
            moved[rows] = np.take_along_axis(vectors[rows], sources, axis=1) * signs
        return moved

    def turned_back(self, vectors: Floats, turns: Points) -> Floats:
        """Undo the turns of vectors."""
        moved = np.empty_like(vectors)
        for rows in self._some(len(vectors)):
            moves, signs = self.turn(turns[rows])
            sources = (np.arange(self.width) - moves[:, None]) % self.width
            moved[rows] = np.take_along_axis(vectors[rows] * signs, sources, axis=1)
        return moved

    def _some(self, count: int) -> Iterator[slice]:
        step = max(1, _TURNED // self.width)
        return (slice(first, first + step) for first in range(0, count, step))

    # -- nearness

    def lift(self, points: Points) -> Points:
        """Lift lattice points of the ball to the sphere of one dimension more, in integers."""
        squares = self.half * self.half - (points * points).sum(axis=1)
        roots = np.sqrt(squares.astype(np.float64)).astype(np.int64)
        roots -= roots * roots > squares
        roots += (roots + 1) * (roots + 1) <= squares
        return np.concatenate([points, roots[:, None]], axis=1)

    def nearest(self, points: Points, turns: Points, near: int) -> Iterator[tuple[slice, Points]]:
        """Yield rows of points with the indices of the `near` nearest codewords, in any order.

        Keys are whole numbers below 2^53, which floats hold exactly, and those of a point differ.
        """
        for rows, keys in self.keys(points, turns):
            yield rows, np.argpartition(keys, self.size - near, axis=1)[:, self.size - near :]

    def keys(self, points: Points, turns: Points) -> Iterator[tuple[slice, Floats]]:
        """Yield rows of points with a key per codeword; the nearest one has the largest key."""
        step = max(1, _SCORES // self.size)
        for first in range(0, len(points), step):
            rows = slice(first, first + step)
            turned = self.turned(self.lift(points[rows]), turns[rows])
            yield rows, self._keys(turned.astype(np.float64))

    def _keys(self, lifted: Floats) -> Floats:
        # For a codeword g of length |g|, with L = floor(sqrt(2^24 |g|^2)) and I = floor(2^38 / L):
        # key = floor(<g, z> I / 2^shift) size + (size - 1 - index).
        keys = np.empty((len(lifted), self.size))
        for start, rows in self.blocks():
            here = slice(start, start + len(rows))
            keys[:, here] = lifted @ rows.T
            keys[:, here] *= inverse_lengths(rows)
        keys *= 2.0 ** -max(0, self.half.bit_length() - 10)
        np.floor(keys, out=keys)
        keys *= self.size
        keys += np.arange(self.size - 1, -1, -1)
        return keys


def inverse_lengths(rows: Floats) -> list[int]:
    """Return 2^26 over the length of each codeword, in whole numbers."""
    squares = np.einsum("ij,ij->i", rows, rows).tolist()
    return [(1 << 38) // math.isqrt(int(square) << 24) for square in squares]


_MOST_DIMENSIONS: Final = 5000
_MOST_CODEWORDS: Final = 1 << 16
_MOST_REPORTS: Final = 1 << 32  # different reports over all turns: a report has four bytes
_MOST_ENTRIES: Final = 1 << 23  # integers of a codebook: about 40 ms for one report
_USUAL: Final = 1 << 8  # codewords, unless a large ε needs more
_FEWEST_NEAR: Final = 6  # fewer near codewords cost more than 3 % of the error
_LARGEST_SEED: Final = (1 << 53) - 1  # what every reader of JSON keeps exactly
_NODES: Final = 1 << 14


@dataclass(frozen=True, kw_only=True)
class SphereResponse(MixedResponse):
    """One of the codewords nearest to the value, or any codeword.

    Each report also names one of `turns` public turns of the codebook, drawn independently of the
    value. A single codebook leans a little to one side at every value, the same for all people
    who hold nearly that value; the turns average this out. `lean` is what remains of it.

    The defaults of `size`, `closest` and `turns` depend on ε and the dimension: 256 codewords
    unless ε is large, and as many turns as a report of 32 bits can name.
    """

    name: ClassVar[str] = "sphere"
    exact: ClassVar[bool] = True
    decodes: ClassVar[tuple[Decode, ...]] = ("unbiased", "project")
    _disjoint: ClassVar[bool] = False
    domain: Ball
    epsilon: float
    size: int = 0
    closest: int = 0
    turns: int = 0
    seed: int = 0
    decode: Decode = "unbiased"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Ball) or self.domain.p != 2:
            raise Misuse(f"a sphere works on a Ball with p = 2, not on {self.domain}")
        if self.domain.dimension > _MOST_DIMENSIONS:
            raise Misuse(
                f"a sphere works on at most {_MOST_DIMENSIONS} dimensions, "
                f"got {self.domain.dimension}"
            )
        for name in ("size", "closest", "turns", "seed"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise Misuse(
                    f"`{name}` must be a whole number from 0 on, got {getattr(self, name)!r}"
                )
        if not (self.size and self.closest):
            self._choose_caps()
        object.__setattr__(self, "turns", self.turns or _MOST_REPORTS // self.size)
        self._check_sizes()
        self._check_decode(self.decode)

    def _check_sizes(self) -> None:
        if not 1 <= self.closest < self.size:
            raise Misuse(f"`closest` must be from 1 to {self.size - 1}, got {self.closest}")
        if self.size > _MOST_CODEWORDS:
            raise Misuse(f"`size` must be at most 2^16, got {self.size}")
        if self.size * self.turns > _MOST_REPORTS:
            raise Misuse(
                f"`size` times `turns` must be at most 2^32, got {self.size} codewords with "
                f"{self.turns} turns"
            )
        if self.size * self._width > _MOST_ENTRIES:
            raise Misuse(
                f"a codebook has at most {_MOST_ENTRIES} integers, got {self.size} codewords of "
                f"{self._width}"
            )
        if self.seed > _LARGEST_SEED:
            raise Misuse(f"`seed` must be below 2^53, got {self.seed}")

    def _choose_caps(self) -> None:
        """Choose the smallest codebook with enough near codewords, and the best number of them."""
        most = min(_MOST_CODEWORDS, 1 << ((_MOST_ENTRIES // self._width).bit_length() - 1))
        size = self.size or _USUAL
        while True:
            near = self.closest or _leaning_most(self.epsilon, size, self._width)
            if self.size or near >= _FEWEST_NEAR or 2 * size > most:
                break
            size *= 2
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "closest", near)

    @property
    def _width(self) -> int:
        """Return D, the dimensions of the sphere."""
        return self.domain.dimension + 1

    @property
    def _codewords(self) -> Codewords:
        half = self.domain.steps // 2
        return Codewords(self.seed, self._width, self.size, self.turns, half)

    # -- the promise

    @property
    def _counts(self) -> tuple[int, int]:
        return self.closest, self.size

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        named = np.asarray(reports)[:, 0]
        possible = (named >= 0) & (named < self.size * self.turns)
        turns, indices = np.divmod(np.where(possible, named, 0), self.size)
        is_near = np.empty(len(points), dtype=np.bool_)
        for rows, keys in self._codewords.keys(points, turns):
            own = np.take_along_axis(keys, indices[rows, None], axis=1)
            is_near[rows] = (keys > own).sum(axis=1) < self.closest
        likely = np.where(is_near, self.mixing / self.closest, 0.0) + (1 - self.mixing) / self.size
        return possible * likely / self.turns

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        (named,) = report
        if not 0 <= named < self.size * self.turns:
            return Fraction(0)
        turn, index = divmod(named, self.size)
        place = np.array([point], dtype=np.int64)
        (_, nearest), *_ = self._codewords.nearest(place, np.array([turn]), self.closest)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / self.size
        return (far + heads / self.closest if index in nearest[0] else far) / self.turns

    @property
    def width(self) -> int:
        """Return 1: a report is one number."""
        return 1

    @property
    def low(self) -> Points:
        """Return 0, the report of the first codeword."""
        return np.zeros(1, dtype=np.int64)

    @property
    def high(self) -> Points:
        """Return the largest report: a turn times `size`, plus a codeword's index."""
        return np.array([self.size * self.turns - 1], dtype=np.int64)

    # -- drawing

    def _respond(self, points: Points, entropy: Entropy) -> Points:
        # All four are drawn every time, so that the work does not reveal how the coin fell.
        n = len(points)
        is_near = entropy.coins(self.heads, n)
        turns = entropy.below(self.turns, n)
        ranks = entropy.below(self.closest, n)
        indices = entropy.below(self.size, n)
        for rows, nearest in self._codewords.nearest(points, turns, self.closest):
            chosen = np.take_along_axis(nearest, ranks[rows, None], axis=1)[:, 0]
            indices[rows] = np.where(is_near[rows], chosen, indices[rows])
        return (turns * self.size + indices)[:, None]

    @property
    def takes_decoys(self) -> bool:
        """Return True: an answer from everywhere is a uniform report."""
        return True

    def decoy(self, entropy: Entropy) -> tuple[int, ...]:
        """Return a uniform report."""
        return (entropy.integer(self.size * self.turns),)

    # -- decoding

    def _frame(self, reports: Points) -> Floats:
        turns, indices = np.divmod(reports[:, 0], self.size)
        if len(reports) and not (0 <= turns.min() and turns.max() < self.turns):
            raise Misuse(f"reports must be from 0 to {self.size * self.turns - 1}")
        codewords = self._codewords
        return codewords.turned_back(codewords.directions(indices), turns)

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        places = reports[:, :-1] / self.strength
        if how == "unbiased":
            return places
        return LatticeBall(2.0, self.domain.dimension).project(places)

    @cached_property
    def strength(self) -> float:
        """Return m, the mean component of a report along the lifted value."""
        return self.mixing * self._top_moment(1)

    def _top_moment(self, power: int) -> float:
        """Return the mean power of the component of the `closest` best of `size` directions.

        With Q(u) the component that a share u of directions exceeds, and B the number of other
        codewords that exceed it, this is size/closest ∫ Q(u)^power P(B < closest) du.
        """
        top = min(1.0, (self.closest + 12 * math.sqrt(self.closest) + 40) / self.size)
        nodes, weights = np.polynomial.legendre.leggauss(400)
        roots = (nodes + 1) / 2 * math.sqrt(top)
        shares = roots * roots
        within = special.betainc(self.size - self.closest, self.closest, 1 - shares)
        terms = _component(shares, self._width) ** power * within * roots
        return float((weights * terms).sum() * math.sqrt(top) * self.size / self.closest)

    @property
    def lean(self) -> float:
        """Return how far the mean of all reports of one value is from it, in the unit of values.

        It is the root mean square over values of full length, and falls with √turns.
        """
        across = (1 - self._top_moment(2)) / (self.closest * self.turns)
        return self.domain.radius * self.mixing * math.sqrt(across) / self.strength

    # -- the error, for a random codebook, which is what the turns make of it

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate at a place of the unit ball."""
        return self._squared_error(float((place * place).sum()))

    def _squared_error(self, length: float) -> float:
        """Return the same, linear in the squared length of the place."""
        square = self._square
        across = (1 - square) / (self._width - 1)
        second = square * length + across * (self.domain.dimension - length)
        return self.domain.radius**2 * max(second / self.strength**2 - length, 0.0)

    @cached_property
    def _square(self) -> float:
        """Return the mean squared component of a report along the lifted value."""
        return self.mixing * self._top_moment(2) + (1 - self.mixing) / self._width

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain."""
        if self._check_decode(how) == "unbiased" and power == 2:
            d = self.domain.dimension
            return self._squared_error(d / (d + 2))
        places, draws = evenly(_NODES, dimension=1, p=math.inf, extra=3)
        lengths = ((places[:, 0] + 1) / 2) ** (1 / self.domain.dimension)
        return float(self._misses(lengths, draws, self._check_decode(how), power).mean())

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power over values of the domain."""
        if self._check_decode(how) == "unbiased" and power == 2:
            return max(self._squared_error(0.0), self._squared_error(1.0))
        _, draws = evenly(_NODES, dimension=1, p=math.inf, extra=3)
        return max(
            float(self._misses(np.array([length]), draws, self._check_decode(how), power).mean())
            for length in np.linspace(0.0, 1.0, 11).tolist()
        )

    def _misses(self, lengths: Floats, draws: Floats, how: Decode, power: int) -> Floats:
        """Return errors of values of these lengths; by symmetry three coordinates are enough.

        The first is along the value, the second along the lift; the third is the length across
        both.
        """
        lifts = np.sqrt(1 - lengths * lengths)
        errors = np.zeros(len(draws))
        for weight, along in self._components(draws[:, 0]):
            rest = np.sqrt(1 - along * along)
            side = _component(draws[:, 1], self._width - 1)
            first = along * lengths - rest * side * lifts
            other = rest * np.sqrt(np.maximum(1 - side * side, 0.0))
            places = np.stack([first, other], axis=1) / self.strength
            if how == "project":
                places /= np.maximum(np.linalg.norm(places, axis=1), 1.0)[:, None]
            misses = np.hypot(places[:, 0] - lengths, places[:, 1]) * self.domain.radius
            errors += weight * misses**power
        return errors

    def _components(self, uniforms: Floats) -> list[tuple[float, Floats]]:
        """Return weighted components along the value: of near codewords, and of any codeword."""
        ranks = np.minimum(np.floor(uniforms * self.closest), self.closest - 1)
        within = uniforms * self.closest - ranks
        shares = special.betaincinv(ranks + 1, self.size - ranks, np.clip(within, 1e-9, 1 - 1e-9))
        near = _component(shares, self._width)
        return [(self.mixing, near), (1 - self.mixing, _component(uniforms, self._width))]


def has_sphere(domain: Box | Ball) -> TypeGuard[Ball]:
    """Return whether sphere response works on a domain."""
    return isinstance(domain, Ball) and domain.p == 2 and domain.dimension <= _MOST_DIMENSIONS


def _component(shares: Any, width: int) -> Floats:
    """Return the component along an axis that this share of directions exceeds."""
    if width == 1:
        return np.where(shares < 0.5, 1.0, -1.0)
    half = (width - 1) / 2
    components: Floats = 1 - 2 * special.betaincinv(half, half, shares)
    return components


def _leaning_most(epsilon: float, size: int, width: int) -> int:
    """Return the number of near codewords whose mean report is longest (Blom's ranks)."""
    counts = np.arange(1, size)
    components = _component((counts - 0.375) / (size + 0.25), width)
    lean = np.cumsum(components) / (counts + size / math.expm1(epsilon))
    return int(counts[np.argmax(lean)])
