"""Compiled counting of close pairs, block against block.

`places` has one row per axis and one column per point, in the order of the blocks: the inner loops
then run over neighbouring numbers. Imported only when numba is there (`solvers.available`).
"""

import numpy as np

from coatcheck.tasks.contract import Floats, Positions
from coatcheck.tasks.solvers import jit


@jit
def _boxes_apart(
    low: Floats, high: Floats, a: int, b: int, first: int, last: int
) -> tuple[float, float]:
    """Return the least and the largest squared distance between two boxes, on some of the axes."""
    least = largest = 0.0
    for axis in range(first, last):
        gap = max(low[b, axis] - high[a, axis], low[a, axis] - high[b, axis], 0.0)
        span = max(high[b, axis] - low[a, axis], high[a, axis] - low[b, axis])
        least += gap * gap
        largest += span * span
    return least, largest


@jit
def _within(
    places: Floats, i: int, start: int, stop: int, first: int, last: int, apart: Floats
) -> None:
    """Write the squared distances from point i to the points of a block."""
    x, y = places[first, i], places[last - 1, i]
    xs, ys = places[first, start:stop], places[last - 1, start:stop]
    if last - first == 2:
        for k in range(stop - start):
            apart[k] = (x - xs[k]) * (x - xs[k]) + (y - ys[k]) * (y - ys[k])
        return
    apart[: stop - start] = 0.0
    for axis in range(first, last):
        z, zs = places[axis, i], places[axis, start:stop]
        for k in range(stop - start):
            apart[k] += (z - zs[k]) * (z - zs[k])


@jit
def _compare(
    places: Floats,
    weights: Positions,
    bounds: tuple[int, int, int, int],
    axes: tuple[int, int, int],
    squares: tuple[float, float],
    decided: tuple[bool, bool],
    buffers: tuple[Floats, Floats],
) -> int:
    """Return the weight of the close pairs between two blocks, point by point."""
    total = 0
    first, second = buffers
    size = bounds[3] - bounds[2]
    heavy = weights[bounds[2] : bounds[3]]
    for i in range(bounds[0], bounds[1]):
        count = 0
        if decided[1]:
            _within(places, i, bounds[2], bounds[3], axes[0], axes[1], first)
            for k in range(size):
                count += heavy[k] * (first[k] <= squares[0])
        elif decided[0]:
            _within(places, i, bounds[2], bounds[3], axes[1], axes[2], second)
            for k in range(size):
                count += heavy[k] * (second[k] <= squares[1])
        else:
            _within(places, i, bounds[2], bounds[3], axes[0], axes[1], first)
            _within(places, i, bounds[2], bounds[3], axes[1], axes[2], second)
            for k in range(size):
                count += heavy[k] * ((first[k] <= squares[0]) & (second[k] <= squares[1]))
        total += weights[i] * count
    return total


@jit
def count(
    places: Floats,
    weights: Positions,
    sums: Positions,
    start: Positions,
    stop: Positions,
    skip: Positions,
    low: Floats,
    high: Floats,
    split: int,
    squares: tuple[float, float],
    size: int,
) -> int:
    """Return the weight of ordered pairs close in both parts, each point with itself too.

    Axes below `split` are the first part, the others the second; `squares` are the squared radii.
    `sums` are the weights added up from the start. Boxes are skipped, counted whole, or compared.
    """
    axes = (0, split, len(places))
    buffers = (np.empty(size), np.empty(size))
    nodes = len(skip)
    total = 0
    for a in range(nodes):
        if skip[a] != a + 1:
            continue
        own = sums[stop[a]] - sums[start[a]]
        inside = 0
        node = 0
        while node < nodes:
            if stop[node] <= start[a]:
                node = skip[node]
                continue
            least, most = _boxes_apart(low, high, a, node, 0, split)
            if least > squares[0]:
                node = skip[node]
                continue
            sure = most <= squares[0]
            least, most = _boxes_apart(low, high, a, node, split, axes[2])
            if least > squares[1]:
                node = skip[node]
                continue
            also = most <= squares[1]
            later = start[node] >= stop[a]
            if sure and also and later:
                inside += own * (sums[stop[node]] - sums[start[node]])
                node = skip[node]
                continue
            if skip[node] == node + 1:
                bounds = (start[a], stop[a], start[node], stop[node])
                close = _compare(places, weights, bounds, axes, squares, (sure, also), buffers)
                if node == a:
                    total += close
                else:
                    inside += close
            node += 1
        total += 2 * inside
    return total
