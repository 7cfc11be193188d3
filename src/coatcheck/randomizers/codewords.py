"""A public codebook of directions in any dimension, and which of them are nearest to a value.

Everybody computes the same codebook from a seed. A codeword is a vector of small integers that are
nearly Gaussian, so its direction is nearly uniform on the sphere. Nearness is decided in integers
alone, ties by index, so two machines never disagree. No more than a block of rows is in memory.

A turn moves all coordinates round by a public number of places and gives them public signs. The
value is turned before the comparison and the codeword is turned back, which makes many codebooks of
one: as many as there are turns, each derived only where a report names it. SPEC section 13.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains import Floats, Points
from coatcheck.entropy import public

_BLOCK: Final = 1 << 18  # entries of the codebook at a time: 2 MB as floats
_SCORES: Final = 1 << 19  # scores at a time, for many values
_TURNED: Final = 1 << 18  # coordinates at a time that are turned

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
        found = np.empty((len(indices), self.width))
        for start, rows in self.blocks():
            here = (indices >= start) & (indices < start + len(rows))
            if here.any():
                found[here] = rows[indices[here] - start]
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found

    def turn(self, turns: Points) -> tuple[Points, NDArray[np.int8]]:
        """Return by how many places each turn moves, and its signs in one row."""
        numbers, which = np.unique(turns, return_inverse=True)
        size = 4 + (self.width + 7) // 8
        label = f"coatcheck sphere turn {self.seed}"
        drawn = b"".join(public(f"{label} {one}", start=0, stop=size) for one in numbers.tolist())
        table = np.frombuffer(drawn, dtype=np.uint8).reshape(len(numbers), size)
        moves = np.ascontiguousarray(table[:, :4]).view("<u4")[:, 0].astype(np.int64) % self.width
        bits = np.unpackbits(table[:, 4:], axis=1, count=self.width, bitorder="little")
        return moves[which], (1 - 2 * bits.astype(np.int8))[which]

    def turned(self, vectors: Any, turns: Points) -> Any:
        """Return vectors turned, each by its own turn."""
        found = np.empty_like(vectors)
        for rows in self._some(len(vectors)):
            moves, signs = self.turn(turns[rows])
            sources = (np.arange(self.width) + moves[:, None]) % self.width
            found[rows] = np.take_along_axis(vectors[rows], sources, axis=1) * signs
        return found

    def turned_back(self, vectors: Floats, turns: Points) -> Floats:
        """Return vectors as they were before their turns."""
        found = np.empty_like(vectors)
        for rows in self._some(len(vectors)):
            moves, signs = self.turn(turns[rows])
            sources = (np.arange(self.width) - moves[:, None]) % self.width
            found[rows] = np.take_along_axis(vectors[rows] * signs, sources, axis=1)
        return found

    def _some(self, count: int) -> Iterator[slice]:
        step = max(1, _TURNED // self.width)
        return (slice(first, first + step) for first in range(0, count, step))

    # -- nearness

    def lift(self, points: Points) -> Points:
        """Return lattice points of the ball on the sphere of one dimension more, in integers."""
        squares = self.half * self.half - (points * points).sum(axis=1)
        roots = np.sqrt(squares.astype(np.float64)).astype(np.int64)
        roots -= roots * roots > squares
        roots += (roots + 1) * (roots + 1) <= squares
        return np.concatenate([points, roots[:, None]], axis=1)

    def nearest(self, points: Points, turns: Points, near: int) -> Iterator[tuple[slice, Points]]:
        """Yield rows of points with the indices of the `near` codewords nearest to each.

        Their order means nothing. The keys are whole numbers below 2^53, so floats hold them
        exactly, and all keys of a point are different.
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
