"""Compiled loops of the least-cost matching: bids, shortest augmenting paths, pricing.

Rows are the smaller side. `u` and `v` are the prices of rows and columns: u[i] + v[j] <= cost[i, j]
for every pair that is known, with equality on matched pairs; v <= 0, and v = 0 on columns that
nobody has. Edges of a row are sorted by cost, so that a scan can stop early, because v <= 0.
Imported only when numba is there (`compiled.available`).
"""

import numpy as np

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import jit

_FAR = np.inf


@jit
def measure(
    rows: Floats, places: Floats, indptr: Positions, columns: Positions, costs: Floats
) -> None:
    """Fill in the costs of all edges and sort every row's edges by cost, in place."""
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            apart = 0.0
            for a in range(rows.shape[1]):
                gap = rows[i, a] - places[columns[k], a]
                apart += gap * gap
            costs[k] = np.sqrt(apart)
        for k in range(indptr[i] + 1, indptr[i + 1]):
            cost, column = costs[k], columns[k]
            place = k
            while place > indptr[i] and costs[place - 1] > cost:
                costs[place] = costs[place - 1]
                columns[place] = columns[place - 1]
                place -= 1
            costs[place] = cost
            columns[place] = column


@jit
def _best_two(columns: Positions, costs: Floats, v: Floats) -> tuple[int, int, float, float]:
    """A row's best and next column, and what they are worth to it."""
    best = second = _FAR
    first = other = -1
    for k in range(len(columns)):
        if costs[k] >= second:
            break
        j = columns[k]
        worth = costs[k] - v[j]
        if worth < best:
            second, other = best, first
            best, first = worth, j
        elif worth < second and j != first:
            second, other = worth, j
    if other < 0:
        second = best
    return first, other, best, second


@jit
def bid(
    indptr: Positions,
    columns: Positions,
    costs: Floats,
    u: Floats,
    v: Floats,
    column_of: Positions,
    row_of: Positions,
    most: int,
) -> None:
    """Let rows take their best column at a price that leaves them indifferent to the next.

    The auction with increment zero (augmenting row reduction of Jonker and Volgenant): rows that
    end up without a column are left to the augmenting paths. All rows must be free.
    """
    count = len(indptr) - 1
    waiting = np.arange(count)[::-1].copy()
    for _ in range(most):
        if count == 0:
            return
        count -= 1
        i = waiting[count]
        edges = slice(indptr[i], indptr[i + 1])
        taken, other, best, second = _best_two(columns[edges], costs[edges], v)
        tied = best == second
        if tied and other >= 0 and row_of[taken] >= 0:
            taken = other
        owner = row_of[taken]
        if owner >= 0 and tied:
            continue  # a tie moves no price: bidding on would go in circles
        v[taken] -= second - best
        u[i] = second
        row_of[taken] = i
        column_of[i] = taken
        if owner >= 0:
            column_of[owner] = -1
            waiting[count] = owner
            count += 1


@jit
def _rise(heap: Positions, place: Positions, far: Floats, at: int) -> None:
    """Move a heap entry up to where it belongs."""
    j = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if far[heap[above]] <= far[j]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = j
    place[j] = at


@jit
def _pop(heap: Positions, place: Positions, far: Floats, size: int) -> int:
    """Take the nearest column off the heap; the caller shrinks the size by one."""
    top = heap[0]
    place[top] = -2
    last = heap[size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and far[heap[child + 1]] < far[heap[child]]:
            child += 1
        if far[heap[child]] >= far[last]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    if size > 0:
        heap[at] = last
        place[last] = at
    return int(top)


@jit
def _scan(
    edges: tuple[Positions, Floats],
    i: int,
    base: float,
    prices: tuple[Floats, Floats],
    row_of: Positions,
    reach: tuple[Floats, Positions, Positions, Positions, Positions],
    state: Positions,
    bound: float,
) -> float:
    """Extend the shortest paths over the edges of row i; return the length to a free column.

    `state` holds the sink, the size of the heap, and how many columns were seen and done.
    """
    columns, costs = edges
    u, v = prices
    far, before, place, heap, seen = reach
    for k in range(len(columns)):
        slack = base + costs[k] - u[i]
        if slack >= bound:
            break
        j = columns[k]
        length = slack - v[j]
        if length >= bound or length >= far[j] or place[j] == -2:
            continue
        if far[j] == _FAR:
            seen[state[2]] = j
            state[2] += 1
        far[j] = length
        before[j] = i
        if row_of[j] < 0:
            bound, state[0] = length, j
            continue
        if place[j] < 0:
            heap[state[1]] = j
            place[j] = state[1]
            state[1] += 1
        _rise(heap, place, far, place[j])
    return bound


@jit
def _flip(column_of: Positions, row_of: Positions, before: Positions, source: int, j: int) -> None:
    """Match along the path that ends in column j."""
    i = -1
    while i != source:
        i = before[j]
        row_of[j] = i
        j, column_of[i] = column_of[i], j


@jit
def augment(
    indptr: Positions,
    columns: Positions,
    costs: Floats,
    u: Floats,
    v: Floats,
    column_of: Positions,
    row_of: Positions,
) -> None:
    """Match every free row by a shortest augmenting path, and keep the prices feasible."""
    size = len(v)
    far = np.full(size, _FAR)
    before = np.full(size, -1, dtype=np.int64)
    place = np.full(size, -1, dtype=np.int64)  # -1 never seen, -2 done, else place in the heap
    heap, seen = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    done = np.empty(size, dtype=np.int64)
    reach = (far, before, place, heap, seen)
    for source in range(len(indptr) - 1):
        if column_of[source] >= 0:
            continue
        edges = slice(indptr[source], indptr[source + 1])
        u[source] = (costs[edges] - v[columns[edges]]).min()
        state = np.array([-1, 0, 0, 0])
        bound, base, i = _FAR, 0.0, source
        while True:
            edges = slice(indptr[i], indptr[i + 1])
            bound = _scan(
                (columns[edges], costs[edges]), i, base, (u, v), row_of, reach, state, bound
            )
            if state[1] == 0 or far[heap[0]] >= bound:
                break
            j = _pop(heap, place, far, state[1])
            state[1] -= 1
            done[state[3]] = j
            state[3] += 1
            i, base = row_of[j], far[j]
        u[source] += bound
        for k in range(state[3]):
            v[done[k]] -= bound - far[done[k]]
            u[row_of[done[k]]] += bound - far[done[k]]
        _flip(column_of, row_of, before, source, state[0])
        far[seen[: state[2]]] = _FAR
        place[seen[: state[2]]] = -1


@jit
def _tops(v: Floats, start: Positions, stop: Positions, skip: Positions) -> Floats:
    """The largest price in each box."""
    top = np.full(len(skip), -_FAR)
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
    tolerance: float,
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
        worth = u[i] - tolerance
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
