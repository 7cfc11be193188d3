"""How many pairs are close, exactly, without storing one: what judges the neighbours task.

On real check-ins a quarter of the crowd is within the paper's radius of each person, some 10^9
pairs. Points are cut into blocks; a pair of blocks is skipped, counted whole, or compared point by
point. For the pairs that are close both in truth and by report, the blocks live in both spaces at
once, so that either radius can decide. Knows points, not people.
Paper, location-based social systems.

    >>> import numpy as np
    >>> from coatcheck.tasks.pairs import agreement
    >>> agreement(np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [9.0]]), radius=1.0).f1
    0.6666666666666666
"""

from dataclasses import dataclass

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.blocks import Blocks, cut
from coatcheck.tasks.compiled import available

_BLOCK = 128
_PLAIN_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well noisy neighbourhoods agree with the true ones, summed over all people.

    Attributes:
        true: pairs (i, j) that are neighbours in truth, both directions counted.
        noisy: pairs that are neighbours by report.
        both: pairs that are both.
    """

    true: int
    noisy: int
    both: int

    @property
    def precision(self) -> float:
        """The share of reported neighbours that are true ones; 1 if there are none to report."""
        return self.both / self.noisy if self.noisy else 1.0

    @property
    def recall(self) -> float:
        """The share of true neighbours that are reported; 1 if there are none to find."""
        return self.both / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 1 if there are no neighbours at all."""
        total = self.true + self.noisy
        return 2 * self.both / total if total else 1.0


def agreement(truth: Floats, reports: Floats, *, radius: float) -> Agreement:
    """Compare the neighbourhoods of the true places with those of the reported ones."""
    if len(truth) != len(reports):
        raise Misuse(f"{len(truth)} true places and {len(reports)} reports; they must be as many")
    return Agreement(
        true=close_pairs(truth, radius=radius),
        noisy=close_pairs(reports, radius=radius),
        both=_count(truth, reports, radius),
    )


def close_pairs(points: Floats, *, radius: float) -> int:
    """How many ordered pairs of different points are at most `radius` apart."""
    return _count(points, np.empty((len(points), 0)), radius)


def _count(first: Floats, second: Floats, radius: float) -> int:
    if not len(first):
        return 0
    points, weights = _merged(np.concatenate([first, second], axis=1))
    blocks = cut(points, size=_BLOCK if available() else _PLAIN_BLOCK)
    places, heavy = points[blocks.order], weights[blocks.order]
    split = first.shape[1]
    if not available():
        return _count_plainly(places, heavy, blocks, split, radius) - len(first)
    from coatcheck.tasks import pairs_kernels  # noqa: PLC0415 - an extra

    sums = np.concatenate([[0], np.cumsum(heavy)])
    boxes = (blocks.start, blocks.stop, blocks.skip, blocks.low, blocks.high)
    columns, squares = np.ascontiguousarray(places.T), (radius * radius, radius * radius)
    close = pairs_kernels.count(columns, heavy, sums, *boxes, split, squares, _BLOCK)
    return int(close) - len(first)


def _merged(points: Floats) -> tuple[Floats, Positions]:
    """Equal points made one, with their number: check-ins at one venue are many."""
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    new = np.concatenate([[True], np.any(ordered[1:] != ordered[:-1], axis=1)])
    first = np.flatnonzero(new)
    return ordered[first], np.diff(np.append(first, len(points)))


def _count_plainly(
    places: Floats, weights: Positions, blocks: Blocks, split: int, radius: float
) -> int:
    """The same count without compiled loops: ordered pairs, a point with itself included."""
    square = radius * radius
    total = 0
    leaves = blocks.leaves()
    for number, a in enumerate(leaves):
        rest = leaves[number:]
        least, largest = _boxes_apart(blocks, a, rest, split)
        near = np.all(least <= square, axis=1)
        mine = slice(blocks.start[a], blocks.stop[a])
        for b, sure in zip(rest[near], np.all(largest[near] <= square, axis=1), strict=True):
            theirs = slice(blocks.start[b], blocks.stop[b])
            if sure:
                close = int(weights[mine].sum() * weights[theirs].sum())
            else:
                met = _close(places[mine], places[theirs], split, square)
                close = int(weights[mine] @ met @ weights[theirs])
            total += close if a == b else 2 * close
    return total


def _boxes_apart(blocks: Blocks, a: int, others: Positions, split: int) -> tuple[Floats, Floats]:
    """The least and largest squared distances of a block to others, one column a part."""
    low, high = blocks.low, blocks.high
    gap = np.maximum(np.maximum(low[others] - high[a], low[a] - high[others]), 0.0) ** 2
    span = np.maximum(high[others] - low[a], high[a] - low[others]) ** 2
    parts = [slice(0, split), slice(split, None)]
    least = np.stack([gap[:, part].sum(axis=1) for part in parts], axis=1)
    return least, np.stack([span[:, part].sum(axis=1) for part in parts], axis=1)


def _close(mine: Floats, theirs: Floats, split: int, square: float) -> Positions:
    apart = (mine[:, None, :] - theirs[None, :, :]) ** 2
    close = apart[:, :, :split].sum(axis=2) <= square
    if split < apart.shape[2]:
        close &= apart[:, :, split:].sum(axis=2) <= square
    return np.asarray(close, dtype=np.int64)
