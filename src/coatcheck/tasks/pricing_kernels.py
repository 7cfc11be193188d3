"""Compiled search for pairs that are cheaper than their prices, among all pairs of two sides.

Columns come in the order of their blocks (`blocks.cut`), so that whole boxes can be skipped.
Imported only when numba is there (`compiled.available`).
"""

import numpy as np

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import jit


@jit
def _tops(v: Floats, start: Positions, stop: Positions, skip: Positions) -> Floats:
    """The largest price in each box."""
    top = np.full(len(skip), -np.inf)
    for node in range(len(skip) - 1, -1, -1):
        if skip[node] == node + 1:
            top[node] = v[start[node] : stop[node]].max()
        else:
            top[node] = max(top[node + 1], top[skip[node + 1]])
    return top


@jit
def _price_block(
    row: Floats,
    worth: float,
    places: Floats,
    v: Floats,
    first: int,
    held: int,
    found: Positions,
    worst: Floats,
) -> int:
    """Price the pairs of one row with one block; return how many the row's list holds then."""
    for k in range(len(v)):
        limit = worth + v[k]
        if limit <= 0.0:
            continue
        apart = 0.0
        for a in range(len(row)):
            apart += (row[a] - places[k, a]) * (row[a] - places[k, a])
        if apart < limit * limit:
            held = _keep_worst(found, worst, held, first + k, limit - np.sqrt(apart))
    return held


@jit
def price(
    rows: Floats,
    u: Floats,
    places: Floats,
    v: Floats,
    start: Positions,
    stop: Positions,
    skip: Positions,
    low: Floats,
    high: Floats,
    found: Positions,
    worst: Floats,
) -> int:
    """Find pairs cheaper than their prices, among ALL pairs; return how many rows have some.

    A pair can only be one if its distance is below u[i] + v[j] <= u[i] + the largest v of a box,
    so boxes farther than that are skipped without losing one. `places` and `v` are in the order of
    the blocks; `found` gets the worst pairs of each row (-1 fills up), `worst` by how much.
    """
    top = _tops(v, start, stop, skip)
    violated = 0
    for i in range(len(rows)):
        node = held = 0
        worth = u[i]
        while node < len(skip):
            limit = worth + top[node]
            apart = 0.0
            for a in range(rows.shape[1]):
                gap = max(low[node, a] - rows[i, a], rows[i, a] - high[node, a], 0.0)
                apart += gap * gap
            if limit <= 0.0 or apart >= limit * limit:
                node = skip[node]
                continue
            if skip[node] == node + 1:
                block = slice(start[node], stop[node])
                held = _price_block(
                    rows[i], worth, places[block], v[block], start[node], held, found[i], worst[i]
                )
            node += 1
        violated += held > 0
    return violated


@jit
def _keep_worst(found: Positions, worst: Floats, held: int, k: int, by: float) -> int:
    """Insert a pair into the list of a row's worst, sorted with the worst first."""
    if held == len(found):
        if by <= worst[held - 1]:
            return held
        held -= 1
    at = held
    while at > 0 and worst[at - 1] < by:
        found[at] = found[at - 1]
        worst[at] = worst[at - 1]
        at -= 1
    found[at] = k
    worst[at] = by
    return held + 1
