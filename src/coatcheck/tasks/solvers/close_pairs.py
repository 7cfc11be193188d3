"""Exact counts of pairs within a radius, without a list of them; they judge the neighbours task.

On real check-ins a quarter of the crowd is within the paper's radius of each person, some 10^9
pairs. Points are cut into blocks; a pair of blocks is skipped, counted whole, or compared point by
point. For the pairs that are close both in truth and by report, the blocks live in both spaces at
once, so that either radius can decide. Paper, location-based social systems.

    >>> import numpy as np
    >>> from coatcheck.tasks.solvers.close_pairs import agreement
    >>> agreement(np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [9.0]]), radius=1.0).f1
    0.6666666666666666
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from coatcheck.errors import Misuse
from coatcheck.tasks.contract import Floats, Positions
from coatcheck.tasks.solvers import available

# -- points cut into boxes, by halves, so that a search can skip most pairs without losing one
#
# Cuts along the widest side adapt to crowds that are dense in a few places. The least-cost matching
# (pricing) and the exact pair counts use them.


@dataclass(frozen=True, eq=False)
class Blocks:
    """A binary tree of boxes in preorder; a node without children is a block.

    Attributes:
        order: positions of the points, block after block.
        start: per node, where its points begin in `order`.
        stop: per node, where they end.
        skip: per node, the next node that is not below it; a block's is the next number.
        low: per node, the lowest coordinates in it.
        high: per node, the highest coordinates in it.
    """

    order: Positions
    start: Positions
    stop: Positions
    skip: Positions
    low: Floats
    high: Floats

    def leaves(self) -> Positions:
        """Return the numbers of the nodes that are blocks."""
        return np.flatnonzero(self.skip == np.arange(len(self.skip)) + 1)


def cut(points: Floats, *, size: int) -> Blocks:
    """Cut the points, at least one, into blocks of at most `size` different places."""
    tree = cKDTree(points, leafsize=size)
    start, stop, skip = list[int](), list[int](), list[int]()
    waiting: list[Any] = [tree.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, int):  # everything below this node has its number by now
            skip[node] = len(start)
            continue
        waiting.append(len(start))
        start.append(node.start_idx)
        stop.append(node.end_idx)
        skip.append(0)
        if node.split_dim >= 0:
            waiting += [node.greater, node.lesser]
    bounds = np.column_stack([start, stop]).ravel()
    ordered = np.append(points[tree.indices], points[:1], axis=0)  # so that each end is an index
    low, high = (
        np.ascontiguousarray(extreme.reduceat(ordered, bounds)[::2])
        for extreme in (np.minimum, np.maximum)
    )
    return Blocks(tree.indices, np.array(start), np.array(stop), np.array(skip), low, high)


def side_by_side(points: Floats, *, size: int) -> Positions:
    """The positions of the points in an order in which the `size` next to each other are near."""
    return np.asarray(cKDTree(points, leafsize=size).indices)


_BLOCK = 128
_CHUNK = 64


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
        """Return the share of reported neighbours that are true; 1 if none is reported."""
        return self.both / self.noisy if self.noisy else 1.0

    @property
    def recall(self) -> float:
        """Return the share of true neighbours that are reported; 1 if there are none to find."""
        return self.both / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall; 1 if there are no neighbours at all."""
        total = self.true + self.noisy
        return 2 * self.both / total if total else 1.0


def agreement(truth: Floats, reports: Floats, *, radius: float) -> Agreement:
    """Compare the neighbourhoods of the true places with those of the reported ones."""
    if len(truth) != len(reports):
        raise Misuse(
            f"there must be as many reports as true places, {len(truth)}, got {len(reports)}"
        )
    return Agreement(
        true=close_pairs(truth, radius=radius),
        noisy=close_pairs(reports, radius=radius),
        both=_count(truth, reports, radius),
    )


def close_pairs(points: Floats, *, radius: float) -> int:
    """Return how many ordered pairs of different points are at most `radius` apart."""
    return _count(points, np.empty((len(points), 0)), radius)


def _count(first: Floats, second: Floats, radius: float) -> int:
    if not len(first):
        return 0
    points, weights = _merged(np.concatenate([first, second], axis=1))
    split = first.shape[1]
    if not available():
        return _count_plainly(points, weights, split, radius) - len(first)
    from coatcheck.tasks.solvers import close_pairs_kernels  # noqa: PLC0415 - an extra

    blocks = cut(points, size=_BLOCK)
    heavy = weights[blocks.order]
    sums = np.concatenate([[0], np.cumsum(heavy)])
    boxes = (blocks.start, blocks.stop, blocks.skip, blocks.low, blocks.high)
    columns = np.ascontiguousarray(points[blocks.order].T)
    squares = (radius * radius, radius * radius)
    close = close_pairs_kernels.count(columns, heavy, sums, *boxes, split, squares, _BLOCK)
    return int(close) - len(first)


def _merged(points: Floats) -> tuple[Floats, Positions]:
    """Merge equal points, with their number: many check-ins are at one venue."""
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    new = np.concatenate([[True], np.any(ordered[1:] != ordered[:-1], axis=1)])
    first = np.flatnonzero(new)
    return ordered[first], np.diff(np.append(first, len(points)))


def _count_plainly(places: Floats, weights: Positions, split: int, radius: float) -> int:
    """Return the count without compiled loops: ordered pairs, each point with itself too."""
    total, square = 0, radius * radius
    parts = [part for part in (places[:, :split], places[:, split:]) if part.shape[1]]
    for start in range(0, len(places), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        close = np.ones((len(places[chunk]), len(places)), dtype=np.bool_)
        for part in parts:
            apart = sum(
                (part[chunk, a, None] - part[None, :, a]) ** 2 for a in range(part.shape[1])
            )
            close &= apart <= square
        total += int(weights[chunk] @ (close @ weights))
    return total
