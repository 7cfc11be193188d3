"""Points cut into boxes, by halves: what lets a search skip most pairs without losing one.

Cutting along the widest side adapts to crowds that are dense in a few places. Knows points, not
people. Used by the least-cost matching (pricing) and by the exact pair counts.
"""

from dataclasses import dataclass

import numpy as np

from coatcheck.tasks.answers import Floats, Positions


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
    """Cut the points, at least one, into blocks of at most `size`; needs compiled loops."""
    from coatcheck.tasks import blocks_kernels  # noqa: PLC0415 - an extra

    room = 4 * (len(points) // max(size, 1) + 1)  # blocks hold more than size / 2 points
    order = np.arange(len(points))
    start, stop, skip = (np.empty(room, dtype=np.int64) for _ in range(3))
    low, high = np.empty((room, points.shape[1])), np.empty((room, points.shape[1]))
    nodes = blocks_kernels.cut(
        np.ascontiguousarray(points), size, order, start, stop, skip, low, high
    )
    return Blocks(order, start[:nodes], stop[:nodes], skip[:nodes], low[:nodes], high[:nodes])
