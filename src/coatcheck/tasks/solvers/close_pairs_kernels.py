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


# -- cutting points into blocks


@jit
def _halve(keys: Floats, order: Positions, start: int, stop: int, half: int) -> None:
    """Reorder so that what lies before `half` has keys no larger than what lies behind."""
    low, high = start, stop - 1
    while low < high:
        pivot = keys[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if half <= j:
            high = j
        elif half >= i:
            low = i
        else:
            return


@jit
def cut(
    points: Floats,
    size: int,
    order: Positions,
    start: Positions,
    stop: Positions,
    skip: Positions,
    low: Floats,
    high: Floats,
) -> int:
    """Fill the arrays of `close_pairs.Blocks`; return the number of nodes."""
    n, dimension = points.shape
    keys = np.empty(n)
    stack = np.empty((128, 3), dtype=np.int64)
    stack[0] = 0, n, -1
    depth, nodes = 1, 0
    while depth > 0:
        depth -= 1
        begin, end, closes = stack[depth]
        if closes >= 0:
            skip[closes] = nodes
            continue
        node = nodes
        nodes += 1
        start[node], stop[node], skip[node] = begin, end, nodes
        axis = 0
        for a in range(dimension):
            low[node, a] = high[node, a] = points[order[begin], a]
            for k in range(begin + 1, end):
                at = points[order[k], a]
                low[node, a] = min(low[node, a], at)
                high[node, a] = max(high[node, a], at)
            if high[node, a] - low[node, a] > high[node, axis] - low[node, axis]:
                axis = a
        if end - begin <= size:
            continue
        for k in range(begin, end):
            keys[k] = points[order[k], axis]
        half = (begin + end) >> 1
        _halve(keys, order, begin, end, half)
        stack[depth] = 0, 0, node
        stack[depth + 1] = half, end, -1
        stack[depth + 2] = begin, half, -1
        depth += 3
    return nodes
