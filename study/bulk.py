"""Real reports of thousands of gradients, drawn in bulk by the law of sphere response.

The codebook, its turns, the lattice and the coins are the product's. Three shortcuts save time, and
none changes the law of a report. Where the coin says "any codeword", the report does not depend on
the value, so that gradient is not computed. The nearest codewords are searched in single precision,
and the product's exact keys decide where that is too close to call. Only the sum of the decoded
reports is computed, because decoding is linear. The sampler's running time reveals how the coins
fell, so it is for simulations only. study/tests/test_bulk.py compares all three with the product.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.entropy import Entropy
from coatcheck.randomizers import SphereResponse
from coatcheck.randomizers.sphere import Codewords, inverse_lengths
from coatcheck.tasks.solvers import jit

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
Rows = NDArray[np.intp]
Turn = tuple[Integers, NDArray[np.int8]]

_CHUNK: Final = 1_000
_CLOSE: Final = 1e-6  # of cosines: single precision errs by less than a tenth of this
_BELOW: Final = 1 - 1e-9  # so that rounding never leaves the ball


@dataclass(frozen=True, eq=False)
class Bulk:
    """The sampler and the decoder of one mechanism for gradients.

    Attributes:
        clip: gradients are shortened to this length; reports are of gradient / clip.
        stretch: whether shorter ones are also lengthened to it.
    """

    part: SphereResponse
    clip: float
    stretch: bool = False

    def draw(
        self, rows: Rows, gradients: Callable[[Rows], NDArray[Any]], entropy: Entropy
    ) -> Integers:
        """Return one report for each of these people."""
        drawn = self._drawn(rows, gradients, entropy)
        return np.concatenate([turns * self.part.size + indices for turns, indices, _ in drawn])

    def total(
        self,
        rows: Rows,
        gradients: Callable[[Rows], NDArray[Any]],
        entropy: Entropy,
        *,
        project: bool = False,
    ) -> Floats:
        """Draw the same reports, and return the sum of their estimates.

        They are decoded without bias, or each estimate is projected into the unit ball.
        """
        part, sums = self.part, np.zeros(self.part.domain.dimension + 1)
        for _, indices, (moves, signs) in self._drawn(rows, gradients, entropy):
            _add(indices, self._directions, moves, signs, part.strength, project, sums)
        return sums[:-1] / part.strength

    def _drawn(
        self, rows: Rows, gradients: Callable[[Rows], NDArray[Any]], entropy: Entropy
    ) -> Iterator[tuple[Integers, Integers, Turn]]:
        """Yield the turns and indices of reports, some people at a time, and the turns' maps."""
        part = self.part
        is_near = entropy.coins(part.heads, len(rows))
        turns = entropy.below(part.turns, len(rows))
        ranks = entropy.below(part.closest, len(rows))
        indices = entropy.below(part.size, len(rows))
        for start in range(0, len(rows), _CHUNK):
            some = slice(start, start + _CHUNK)
            moves, signs = self._codewords.turn(turns[some])
            near_rows = np.flatnonzero(is_near[some])
            if len(near_rows):
                who = start + near_rows
                near = self.nearest(
                    gradients(rows[who]), turns[who], (moves[near_rows], signs[near_rows])
                )
                indices[who] = near[np.arange(len(who)), ranks[who]]
            yield turns[some], indices[some], (moves, signs)

    def nearest(self, gradients: NDArray[Any], turns: Integers, turn: Turn) -> Integers:
        """Return the nearest codewords of each gradient, in no order."""
        seen, near = self.turned(gradients, turn), self.part.closest
        scores = seen @ self._scaled.T
        last = self.part.size - near
        nearest = np.argpartition(scores, (last - 1, last), axis=1)
        edge = np.take_along_axis(scores, nearest[:, last - 1 : last + 1], axis=1)
        nearest = nearest[:, last:]
        doubtful = np.flatnonzero(edge[:, 1] - edge[:, 0] < _CLOSE)
        if len(doubtful):
            points = self._points(gradients[doubtful])
            exact = self._codewords.nearest(points, turns[doubtful], near)
            nearest[doubtful] = np.concatenate([one for _, one in exact])
        return nearest

    def turned(self, gradients: NDArray[Any], turn: Turn) -> Singles:
        """Return clipped gradients on the lattice, lifted and turned, at length 1."""
        moves, signs = turn
        turned = np.empty(signs.shape, dtype=np.float32)
        _turn(gradients, moves, signs, self.clip, self.stretch, self._codewords.half, turned)
        return turned

    def _points(self, gradients: NDArray[Any]) -> Integers:
        """Return clipped gradients on the lattice of the domain."""
        values = gradients.astype(np.float64)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        reach = lengths if self.stretch else np.maximum(lengths, self.clip)
        return self.part.domain.snap(values / np.maximum(reach, 1e-300) * _BELOW)

    @property
    def _codewords(self) -> Codewords:
        part = self.part
        width, half = part.domain.dimension + 1, part.domain.steps // 2
        return Codewords(part.seed, width, part.size, part.turns, half)

    @cached_property
    def _directions(self) -> Floats:
        return self._codewords.directions(np.arange(self.part.size))

    @cached_property
    def _scaled(self) -> Singles:
        """Return codewords as the product's keys weigh them, at a length of about 1."""
        points = np.empty((self.part.size, self.part.domain.dimension + 1), dtype=np.float32)
        for start, rows in self._codewords.blocks():
            weights = np.array(inverse_lengths(rows)) * 2.0**-26
            points[start : start + len(rows)] = rows * weights[:, None]
        return points


@jit
def _turn(  # noqa: PLR0917 - a compiled loop has no objects
    gradients: Any,
    moves: Any,
    signs: Any,
    clip: float,
    stretch: bool,  # noqa: FBT001 - as above
    half: int,
    lattice: Any,
) -> None:
    size = gradients.shape[1]
    point = np.empty(size + 1, dtype=np.int64)
    inverse = 1.0 / half
    for row in range(len(gradients)):
        square = 0.0
        for i in range(size):
            square += np.float64(gradients[row, i]) ** 2
        length = np.sqrt(square)
        reach = length if stretch or length > clip else clip
        scale = half * (1 - 1e-9) / max(reach, 1e-300)
        left = half * half
        for i in range(size):
            point[i] = np.int64(np.trunc(gradients[row, i] * scale))
            left -= point[i] * point[i]
        root = np.int64(np.sqrt(left))
        point[size] = root - (root * root > left) + ((root + 1) * (root + 1) <= left)
        split = size + 1 - moves[row]
        for i in range(split):
            lattice[row, i] = point[i + moves[row]] * signs[row, i] * inverse
        for i in range(split, size + 1):
            lattice[row, i] = point[i - split] * signs[row, i] * inverse


@jit
def _add(  # noqa: PLR0917 - as above
    indices: Any,
    directions: Any,
    moves: Any,
    signs: Any,
    strength: float,
    project: bool,  # noqa: FBT001 - as above
    total: Any,
) -> None:
    width = directions.shape[1]
    for row in range(len(indices)):
        index, split = indices[row], width - moves[row]
        weight = 1.0
        if project:
            # A codeword's length without the lift, which stands elsewhere in every turn.
            lift = directions[index, split - 1]
            weight = 1.0 / max(1.0, np.sqrt(1 - lift * lift) / strength)
        for i in range(split):
            total[i + moves[row]] += weight * signs[row, i] * directions[index, i]
        for i in range(split, width):
            total[i - split] += weight * signs[row, i] * directions[index, i]
