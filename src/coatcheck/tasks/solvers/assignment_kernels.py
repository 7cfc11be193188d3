"""Compiled loops of the least-cost matching: the edges, the auction, and exact prices.

Rows ship their supply to columns, which take at most their demand. What columns do not get from
rows comes at no cost from one more row, the idle one, so that every column is filled in the end.
The edges of row i are `indptr[i]` to `indptr[i + 1]`, cheapest first; the idle row's edge to
column j has number E + j, where E is the number of other edges. `flow` has the amount on each edge.
Prices prove a plan: if u[i] + v[j] <= cost for all pairs and = cost where something flows, then no
plan is cheaper. Imported only when numba is there (`solvers.available`).
"""

import numpy as np

from coatcheck.tasks.contract import Floats, Positions
from coatcheck.tasks.solvers import jit

_FAR = np.inf


@jit
def join(
    rows: Floats,
    places: Floats,
    edges: tuple[Positions, Positions, Floats, Positions],
    more: tuple[Positions, Positions],
) -> tuple[Positions, Positions, Floats, Positions]:
    """Add columns to the edges of each row; return the edges sorted by cost, without repeats."""
    indptr, columns, _, flow = edges
    n, m = len(rows), len(places)
    size = len(columns) + len(more[1])
    starts = np.zeros(n + 1, dtype=np.int64)
    joined, costs = np.empty(size, dtype=np.int64), np.empty(size)
    amounts = np.empty(size + m, dtype=np.int64)
    mark = np.full(m, -1, dtype=np.int64)
    stop = 0
    for i in range(n):
        start = stop
        for old in (True, False):
            bounds = indptr if old else more[0]
            for k in range(bounds[i], bounds[i + 1]):
                j = columns[k] if old else more[1][k]
                if mark[j] == i:
                    continue
                mark[j] = i
                apart = 0.0
                for a in range(rows.shape[1]):
                    apart += (rows[i, a] - places[j, a]) ** 2
                cost = np.sqrt(apart)
                at = stop
                while at > start and costs[at - 1] > cost:
                    joined[at], costs[at] = joined[at - 1], costs[at - 1]
                    amounts[at] = amounts[at - 1]
                    at -= 1
                joined[at], costs[at] = j, cost
                amounts[at] = flow[k] if old else 0
                stop += 1
        starts[i + 1] = stop
    amounts[stop : stop + m] = flow[len(columns) :]
    return starts, joined[:stop], costs[:stop], amounts[: stop + m]


@jit
def _sink(heap: Positions, keys: Floats, size: int, at: int) -> None:
    """Move a heap entry down to where it belongs; the largest key is on top."""
    j = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= keys[j]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = j


@jit
def _refresh(heap: Positions, keys: Floats, v: Floats, size: int, at: int) -> None:
    """Make the key at a place of the heap the column's price of now: prices only fall."""
    while at < size and keys[heap[at]] != v[heap[at]]:
        keys[heap[at]] = v[heap[at]]
        _sink(heap, keys, size, at)


@jit
def _push(heap: Positions, keys: Floats, size: int, j: int) -> None:
    at = size
    while at > 0 and keys[heap[(at - 1) >> 1]] < keys[j]:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = j


@jit
def _best_two(
    span: tuple[int, int],
    columns: Positions,
    costs: Floats,
    flow: Positions,
    supply: int,
    demand: Positions,
    v: Floats,
) -> tuple[int, float, float]:
    """Return a row's best edge with room, and the cost less price of the best and the next.

    No price is above 0, so the scan may stop where the cost alone is too much.
    """
    best = second = _FAR
    edge = -1
    for k in range(span[0], span[1]):
        if costs[k] >= second:
            break
        j = columns[k]
        worth = costs[k] - v[j]
        if worth < second and flow[k] < min(supply, demand[j]):
            if worth < best:
                second, best, edge = best, worth, k
            else:
                second = worth
    return edge, best, second


@jit
def _loosest(
    k: int,
    but: int,
    following: Positions,
    owner: Positions,
    costs: Floats,
    u: Floats,
) -> tuple[int, float, float]:
    """Return the edge of a column that leaves at the highest price, and the next price."""
    first = second = -_FAR
    edge = -1
    while k >= 0:
        if k != but:
            idle = k >= len(owner)
            level = -u[-1] if idle else costs[k] - u[owner[k]]
            if level > first:
                second, first, edge = first, level, k
            elif level > second:
                second = level
        k = following[k]
    return edge, first, second


@jit
def _link(head: Positions, following: Positions, previous: Positions, j: int, edge: int) -> None:
    """Put an edge first in the list of those that fill column j."""
    following[edge], previous[edge] = head[j], -1
    if head[j] >= 0:
        previous[head[j]] = edge
    head[j] = edge


@jit
def _unlink(head: Positions, following: Positions, previous: Positions, j: int, edge: int) -> None:
    """Take an edge out of the list of those that fill column j."""
    if previous[edge] >= 0:
        following[previous[edge]] = following[edge]
    else:
        head[j] = following[edge]
    if following[edge] >= 0:
        previous[following[edge]] = previous[edge]


@jit
def auction(
    indptr: Positions,
    columns: Positions,
    costs: Floats,
    flow: Positions,
    owner: Positions,
    supply: Positions,
    demand: Positions,
    u: Floats,
    v: Floats,
    step: float,
    far: float,
    most: int,
) -> bool:
    """Fill `flow` with a plan that is within `step` of the least cost for each unit shipped.

    Rows take their best column at the price at which they like the next one as much, less a step
    (Bertsekas' auction; his and Castanon's for several units at one place). Start from the prices
    of a larger step: they make the detours short. Return False after `most` bids without a plan.
    """
    n, m, count = len(indptr) - 1, len(v), len(columns)
    flow[:] = 0
    v -= v.max()
    head = np.full(m, -1, dtype=np.int64)
    following = np.full(count + m, -1, dtype=np.int64)
    previous = np.full(count + m, -1, dtype=np.int64)
    room, left = demand.copy(), np.empty(n + 1, dtype=np.int64)
    left[:n], left[n] = supply, demand.sum() - supply.sum()
    waiting = np.flatnonzero(left)
    first, queued = 0, len(waiting)
    queue = np.empty(n + 1, dtype=np.int64)
    queue[:queued] = waiting
    heap, keys, size = np.argsort(-v), v.copy(), m
    while queued > 0:
        i = queue[first]
        first, queued = (first + 1) % (n + 1), queued - 1
        while left[i] > 0:
            most -= 1
            if most < 0:
                return False
            if i < n:
                span = (indptr[i], indptr[i + 1])
                edge, best, second = _best_two(span, columns, costs, flow, supply[i], demand, v)
                j = columns[edge]
                fits, cost = min(supply[i], demand[j]) - flow[edge], costs[edge]
            else:
                _refresh(heap, keys, v, size, 0)
                _refresh(heap, keys, v, size, 1)
                _refresh(heap, keys, v, size, 2)
                j = heap[0]
                edge, best, second = count + j, -v[j], _FAR
                for at in range(1, min(size, 3)):
                    second = min(second, -v[heap[at]])
                fits, cost = demand[j] - flow[edge], 0.0
            if second == _FAR:
                second = best + far
            amount = min(left[i], fits)
            if room[j] > 0:
                amount = min(amount, room[j])
                room[j] -= amount
                u[i] = best
            else:
                out, loose, after = _loosest(head[j], edge, following, owner, costs, u)
                bid = v[j] - (second - best) - step
                if bid >= loose:  # too little to displace anybody: only the price moves
                    v[j] = bid
                    continue
                amount = min(amount, flow[out])
                flow[out] -= amount
                # Those who stay must not pay more than a step above what they would leave at.
                v[j] = min(v[j], max(bid, (loose if flow[out] > 0 else after) - step))
                u[i] = cost - v[j]
                loser = owner[out] if out < count else n
                if flow[out] == 0:
                    _unlink(head, following, previous, j, out)
                if loser == n and flow[out] + amount == demand[j]:
                    keys[j] = v[j]
                    _push(heap, keys, size, j)
                    size += 1
                if left[loser] == 0:
                    queue[(first + queued) % (n + 1)] = loser
                    queued += 1
                left[loser] += amount
            if flow[edge] == 0:
                _link(head, following, previous, j, edge)
            flow[edge] += amount
            left[i] -= amount
            if i == n and flow[edge] == demand[j]:
                size -= 1
                heap[0] = heap[size]
                _sink(heap, keys, size, 0)
    # A column that one edge fills may ask for more, until that edge is no better than others.
    for j in range(m):
        k = head[j]
        if k >= 0 and flow[k] == demand[j]:
            v[j] = min(v[j], (-u[n] if k >= count else costs[k] - u[owner[k]]))
    for i in range(n):
        u[i] = (costs[indptr[i] : indptr[i + 1]] - v[columns[indptr[i] : indptr[i + 1]]]).min()
    u[n] = -v.max()
    return True


@jit
def exact_prices(
    indptr: Positions,
    columns: Positions,
    costs: Floats,
    flow: Positions,
    owner: Positions,
    u: Floats,
    v: Floats,
    tiny: float,
    most: int,
) -> bool:
    """Turn prices that are nearly right for a plan into prices that prove it, if it is optimal.

    Shortest paths by label correcting (Bellman, Ford): the prices of columns fall, those of rows
    rise. A plan that can be improved has no such prices: then, or after looking at `most` edges,
    return False. Prices may be off by a share of `tiny`, which is their rounding.
    """
    n, m, count = len(indptr) - 1, len(v), len(columns)
    head = np.full(m, -1, dtype=np.int64)
    following = np.empty(count + m, dtype=np.int64)
    u[:] = -_FAR
    for k in range(count + m):
        if flow[k] > 0:
            i, j = (owner[k], columns[k]) if k < count else (n, k - count)
            following[k], head[j] = head[j], k
            u[i] = max(u[i], (costs[k] if k < count else 0.0) - v[j])
    queue, queued = np.arange(n + 1), np.ones(n + 1, dtype=np.bool_)
    first, length, looked = 0, n + 1, 0
    while length > 0:
        i = queue[first]
        first, length = (first + 1) % (n + 1), length - 1
        queued[i] = False
        start, stop = (indptr[i], indptr[i + 1]) if i < n else (count, count + m)
        looked += stop - start
        if looked > most:
            return False
        for k in range(start, stop):
            j = columns[k] if k < count else k - count
            paid = costs[k] if k < count else 0.0
            level = paid - u[i]
            if level + tiny * (paid + abs(u[i])) >= v[j]:
                continue
            v[j] = level
            other = head[j]
            while other >= 0:
                row, cost = (owner[other], costs[other]) if other < count else (n, 0.0)
                if cost - level > u[row]:
                    u[row] = cost - level
                    if not queued[row]:
                        queued[row] = True
                        queue[(first + length) % (n + 1)] = row
                        length += 1
                other = following[other]
    return True


# -- pricing: pairs that are cheaper than their prices, among all pairs of two sides
#
# Columns come in the order of their blocks (`close_pairs.cut`), so that whole boxes can be skipped.


@jit
def _tops(v: Floats, start: Positions, stop: Positions, skip: Positions) -> Floats:
    """Return the largest price in each box."""
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
    columns: Positions,
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
            held = _keep_worst(columns, worst, held, first + k, limit - np.sqrt(apart))
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
    columns: Positions,
    worst: Floats,
) -> int:
    """Find pairs cheaper than their prices, among ALL pairs; return how many rows have some.

    A pair can only be one if its distance is below u[i] + v[j] <= u[i] + the largest v of a box,
    so boxes farther than that are skipped without losing one. `places` and `v` are in the order of
    the blocks; `columns` gets the worst pairs of each row (-1 fills up), `worst` by how much.
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
                    rows[i], worth, places[block], v[block], start[node], held, columns[i], worst[i]
                )
            node += 1
        violated += held > 0
    return violated


@jit
def _keep_worst(columns: Positions, worst: Floats, held: int, k: int, by: float) -> int:
    """Insert a pair into the list of a row's worst, sorted with the worst first."""
    if held == len(columns):
        if by <= worst[held - 1]:
            return held
        held -= 1
    at = held
    while at > 0 and worst[at - 1] < by:
        columns[at] = columns[at - 1]
        worst[at] = worst[at - 1]
        at -= 1
    columns[at] = k
    worst[at] = by
    return held + 1
