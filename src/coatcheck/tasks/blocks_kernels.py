"""Compiled cutting of points into blocks.

Imported only when numba is there (`compiled.available`).
"""

import numpy as np

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import jit


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
    """Fill the arrays of `blocks.Blocks`; return the number of nodes."""
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
