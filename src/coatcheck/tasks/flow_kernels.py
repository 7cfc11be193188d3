"""Compiled loops of the largest flow between places within a radius, without a list of pairs.

Augmenting paths are searched in depth, many in one phase (Pothen and Fan). A search only ever asks
for a column within the radius that still has room, or that was not met yet; a tree of boxes answers
that, however many pairs there are. So a phase costs a few questions for each place, also where
everybody is within everybody's radius. A phase in which nothing flows proves that nothing can.
Imported only when numba is there (`compiled.available`).
"""

import numpy as np

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import jit

# Sources, targets, amounts, and the number of the next flow into the same target.
Flows = tuple[Positions, Positions, Positions, Positions]
_LEAF = 8  # columns in a lowest box
_DEPTH = 64


@jit
def _boxes(columns: Floats) -> tuple[Floats, Floats, Positions]:
    """A heap of boxes around columns, eight in each of the lowest; and how many each has."""
    first = 1
    while first * _LEAF < len(columns):
        first *= 2
    low = np.full((2 * first, columns.shape[1]), np.inf)
    high, inside = -low, np.zeros(2 * first, dtype=np.int64)
    for k in range(len(columns)):
        node = first + k // _LEAF
        inside[node] += 1
        for a in range(columns.shape[1]):
            low[node, a] = min(low[node, a], columns[k, a])
            high[node, a] = max(high[node, a], columns[k, a])
    for node in range(first - 1, 0, -1):
        inside[node] = inside[2 * node] + inside[2 * node + 1]
        for a in range(columns.shape[1]):
            low[node, a] = min(low[2 * node, a], low[2 * node + 1, a])
            high[node, a] = max(high[2 * node, a], high[2 * node + 1, a])
    return low, high, inside


@jit
def _count(inside: Positions, column: int, change: int) -> None:
    """Count a column in or out of its box and of all around it."""
    node = len(inside) // 2 + column // _LEAF
    while node > 0:
        inside[node] += change
        node //= 2


@jit
def _first(
    place: Floats,
    square: float,
    columns: Floats,
    low: Floats,
    high: Floats,
    inside: Positions,
    counted: Positions,
    turn: int,
) -> int:
    """A column within the radius of which something is counted, or -1."""
    stack = np.empty(_DEPTH, dtype=np.int64)
    stack[0] = 1
    depth, first = 1, len(inside) // 2
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if inside[node] == 0:
            continue
        apart = 0.0
        for a in range(len(place)):
            off = max(low[node, a] - place[a], place[a] - high[node, a], 0.0)
            apart += off * off
        if apart > square:
            continue
        if node < first:
            stack[depth] = 2 * node + 1 - turn
            stack[depth + 1] = 2 * node + turn
            depth += 2
            continue
        begin = (node - first) * _LEAF
        for k in range(begin, min(begin + _LEAF, len(columns))):
            if counted[k] == 0:
                continue
            apart = 0.0
            for a in range(len(place)):
                off = place[a] - columns[k, a]
                apart += off * off
            if apart <= square:
                return k
    return -1


@jit
def _merged(flows: Flows, count: int, head: Positions, rows: int) -> tuple[Flows, int]:
    """The flows with each pair once, and with room for more; sets each column's first."""
    room = 2 * (count + rows + len(head))
    merged = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    seen, kept = np.full(rows, -1), 0
    for column in range(len(head)):
        begin, flow_ = kept, head[column]
        head[column] = -1
        while flow_ >= 0:
            row, amount = flows[0][flow_], flows[2][flow_]
            flow_ = flows[3][flow_]
            if amount == 0:
                continue
            if seen[row] < begin:
                seen[row] = kept
                merged[0][kept], merged[1][kept], merged[2][kept] = row, column, 0
                merged[3][kept] = head[column]
                head[column] = kept
                kept += 1
            merged[2][seen[row]] += amount
    return merged, kept


@jit
def _longer(flows: Flows, count: int) -> Flows:
    """The flows in arrays with room for so many, and as many again."""
    larger = (
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
    )
    for side in range(4):
        larger[side][: len(flows[side])] = flows[side]
    return larger


@jit
def _send(
    path: Positions,
    by: Positions,
    through: Positions,
    length: int,
    open_: int,
    supply: Positions,
    demand: Positions,
    flows: Flows,
    head: Positions,
    count: int,
) -> int:
    """Send what the path can take to an open column; return how many of its rows can go on.

    Row k of the path goes through its column, back along flow number `by[k + 1]`, to row k + 1.
    """
    root = path[0]
    amount = min(supply[root], demand[open_])
    for step in range(1, length):
        amount = min(amount, flows[2][by[step]])
    supply[root] -= amount
    demand[open_] -= amount
    kept = length if supply[root] > 0 else 0
    for step in range(length - 1, -1, -1):
        column = open_ if step == length - 1 else through[path[step]]
        flows[0][count], flows[1][count], flows[2][count] = path[step], column, amount
        flows[3][count] = head[column]
        head[column] = count
        count += 1
        if step > 0:
            flows[2][by[step]] -= amount
            if flows[2][by[step]] == 0:
                kept = min(kept, step)
    return kept


@jit
def flow(
    rows: Floats, columns: Floats, square: float, supply: Positions, demand: Positions
) -> tuple[Positions, Positions, Positions]:
    """Send as much as possible from rows to columns whose squared distance is at most `square`.

    Returns sources, targets and amounts. Uses up `supply` and `demand`: what is left cannot flow.
    """
    n, m = len(rows), len(columns)
    low, high, inside = _boxes(columns)
    spare = inside.copy()  # of the columns that have room
    none = np.empty(0, dtype=np.int64)
    flows, count, head = (none, none, none, none), 0, np.full(m, -1)
    closed = np.zeros(n, dtype=np.bool_)  # rows that no column with room is near
    path, by, through = np.empty(n, np.int64), np.empty(n, np.int64), np.full(n, -1)
    turn, moved = 0, 1
    while moved > 0:
        flows, count = _merged(flows, count, head, n)
        after = head.copy()
        unmet, left = np.ones(m, dtype=np.int64), inside.copy()
        seen = np.zeros(n, dtype=np.bool_)
        through[:] = -1
        moved, turn = 0, 1 - turn
        for root in range(n):
            if supply[root] == 0 or seen[root]:
                continue
            path[0], length, seen[root] = root, 1, True
            while length > 0:
                row = path[length - 1]
                open_ = -1
                if not closed[row]:
                    open_ = _first(rows[row], square, columns, low, high, spare, demand, turn)
                    closed[row] = open_ < 0
                if open_ >= 0:
                    if count + length > len(flows[0]):
                        flows = _longer(flows, count + length)
                    kept = _send(
                        path, by, through, length, open_, supply, demand, flows, head, count
                    )
                    count += length
                    # What lies behind the narrowest step may be met again in this phase.
                    for step in range(kept, length):
                        at = path[step]
                        seen[at] = False
                        if step < length - 1:
                            unmet[through[at]] = 1
                            _count(left, through[at], 1)
                        through[at] = -1
                    if demand[open_] == 0:
                        _count(spare, open_, -1)
                    moved, length = moved + 1, kept
                    continue
                column = through[row]
                if column < 0:
                    column = _first(rows[row], square, columns, low, high, left, unmet, turn)
                    if column < 0:
                        length -= 1
                        continue
                    through[row], unmet[column] = column, 0
                    _count(left, column, -1)
                back = after[column]
                while back >= 0 and (flows[2][back] == 0 or seen[flows[0][back]]):
                    back = flows[3][back]
                after[column] = back
                if back < 0:
                    through[row] = -1
                    continue
                path[length], by[length] = flows[0][back], back
                seen[path[length]] = True
                length += 1
    flows, count = _merged(flows, count, head, n)
    return flows[0][:count], flows[1][:count], flows[2][:count]
