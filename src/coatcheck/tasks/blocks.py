"""Points cut into boxes, by halves: what lets a search skip most pairs without losing one.

Cutting along the widest side adapts to crowds that are dense in a few places. Knows points, not
people. Used by the least-cost matching (pricing) and by the exact pair counts.
"""

from dataclasses import dataclass

import numpy as np

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import available


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
        """The numbers of the nodes that are blocks."""
        return np.flatnonzero(self.skip == np.arange(len(self.skip)) + 1)


def cut(points: Floats, *, size: int) -> Blocks:
    """Cut the points into blocks of at most `size`."""
    if not len(points) or not available():
        return cut_plainly(points, size=size)
    from coatcheck.tasks import blocks_kernels  # noqa: PLC0415 - an extra

    room = 4 * (len(points) // max(size, 1) + 1)  # blocks hold more than size / 2 points
    order = np.arange(len(points))
    start, stop, skip = (np.empty(room, dtype=np.int64) for _ in range(3))
    low, high = np.empty((room, points.shape[1])), np.empty((room, points.shape[1]))
    nodes = blocks_kernels.cut(
        np.ascontiguousarray(points), size, order, start, stop, skip, low, high
    )
    return Blocks(order, start[:nodes], stop[:nodes], skip[:nodes], low[:nodes], high[:nodes])


def cut_plainly(points: Floats, *, size: int) -> Blocks:
    """Cut without compiled loops."""
    order = np.arange(len(points))
    bounds: list[tuple[int, int]] = []
    skip: list[int] = []
    # A third entry of 0 or more closes that node: what follows is no longer below it.
    stack: list[tuple[int, int, int]] = [(0, len(points), -1)] if len(points) else []
    while stack:
        start, stop, closes = stack.pop()
        if closes >= 0:
            skip[closes] = len(skip)
            continue
        bounds.append((start, stop))
        skip.append(len(skip) + 1)
        if stop - start <= size:
            continue
        inside = points[order[start:stop]]
        axis = int(np.argmax(inside.max(axis=0) - inside.min(axis=0)))
        half = (stop - start) // 2
        order[start:stop] = order[start:stop][np.argpartition(inside[:, axis], half)]
        stack.append((0, 0, len(skip) - 1))
        stack.append((start + half, stop, -1))
        stack.append((start, start + half, -1))
    starts, stops = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    nodes = np.array(skip, dtype=np.int64)
    low, high = _boxes(points[order], starts, nodes)
    return Blocks(order, starts.copy(), stops.copy(), nodes, low, high)


def _boxes(points: Floats, start: Positions, skip: Positions) -> tuple[Floats, Floats]:
    """The boxes of all nodes: of blocks from their points, above from the two halves."""
    low = np.empty((len(start), points.shape[1]))
    high = np.empty_like(low)
    leaves = np.flatnonzero(skip == np.arange(len(skip)) + 1)
    if len(leaves):
        low[leaves] = np.minimum.reduceat(points, start[leaves])
        high[leaves] = np.maximum.reduceat(points, start[leaves])
    for node in range(len(start) - 1, -1, -1):
        if skip[node] == node + 1:
            continue
        left, right = node + 1, skip[node + 1]
        low[node] = np.minimum(low[left], low[right])
        high[node] = np.maximum(high[left], high[right])
    return low, high
