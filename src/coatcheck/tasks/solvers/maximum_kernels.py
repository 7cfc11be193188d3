"""Compiled loops of the largest flow between places within a radius, without a list of pairs.

A phase searches many augmenting paths in depth (Pothen and Fan). A search needs only a column
within the radius that still has room, or that this phase has not visited; a tree of boxes gives it,
however many pairs there are. So a phase costs a few lookups per place, even where everybody is
within everybody's radius. A phase in which nothing flows proves that nothing can.
Imported only when numba is there (`solvers.available`).
"""

import numpy as np
import numpy.typing as npt

from coatcheck.tasks.contract import Floats, Positions
from coatcheck.tasks.solvers import jit

# -- pairs within a radius in the plane, and the largest matching on a graph


@jit
def _cell(at: float, low: float, side: float, count: int) -> int:
    """Return the cell along one axis; one beyond the grid for what lies outside."""
    return int(min(max(np.floor((at - low) / side), -1.0), float(count)))


@jit
def into_cells(
    columns: Floats, low: Floats, side: float, shape: tuple[int, int]
) -> tuple[Positions, Positions]:
    """Return the columns sorted by cell, and where each cell begins."""
    cells = np.empty(len(columns), dtype=np.int64)
    begins = np.zeros(shape[0] * shape[1] + 1, dtype=np.int64)
    for j in range(len(columns)):
        across = min(_cell(columns[j, 0], low[0], side, shape[0]), shape[0] - 1)
        along = min(_cell(columns[j, 1], low[1], side, shape[1]), shape[1] - 1)
        cells[j] = across * shape[1] + along
        begins[cells[j] + 1] += 1
    begins = np.cumsum(begins)
    places = begins[:-1].copy()
    order = np.empty(len(columns), dtype=np.int64)
    for j in range(len(columns)):
        order[places[cells[j]]] = j
        places[cells[j]] += 1
    return order, begins


@jit
def within(
    rows: Floats,
    places: Floats,
    order: Positions,
    begins: Positions,
    low: Floats,
    side: float,
    shape: tuple[int, int],
    square: float,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return bounds and indices of every row's columns at squared distance at most `square`.

    `places` are the columns in the order of their cells. Cells are wider than the radius, so a
    column that near lies in the row's own cell or in one that touches it.
    """
    indptr = np.zeros(len(rows) + 1, dtype=np.int32)
    columns = np.empty(8 * len(rows) + 64, dtype=np.int32)
    count = 0
    for i in range(len(rows)):
        across = _cell(rows[i, 0], low[0], side, shape[0])
        along = _cell(rows[i, 1], low[1], side, shape[1])
        first, last = max(along - 1, 0), min(along + 1, shape[1] - 1)
        for strip in range(max(across - 1, 0), min(across + 1, shape[0] - 1) + 1):
            if first > last:
                break
            start = begins[strip * shape[1] + first]
            stop = begins[strip * shape[1] + last + 1]
            if count + stop - start > len(columns):
                larger = np.empty(2 * len(columns) + stop - start, dtype=np.int32)
                larger[:count] = columns[:count]
                columns = larger
            for k in range(start, stop):
                x, y = rows[i, 0] - places[k, 0], rows[i, 1] - places[k, 1]
                columns[count] = order[k]
                count += x * x + y * y <= square
        indptr[i + 1] = count
    return indptr, columns[:count]


@jit
def _levels(
    indptr: npt.NDArray[np.int32],
    indices: npt.NDArray[np.int32],
    column_of: Positions,
    row_of: Positions,
    level: Positions,
) -> bool:
    """Number rows by their steps from a free row; tell whether a free column is in reach."""
    queue = np.empty(len(level), dtype=np.int64)
    last, reached = 0, False
    for row in range(len(level)):
        level[row] = -1
        if column_of[row] < 0:
            level[row] = 0
            queue[last] = row
            last += 1
    at = 0
    while at < last:
        row = queue[at]
        at += 1
        for k in range(indptr[row], indptr[row + 1]):
            owner = row_of[indices[k]]
            if owner < 0:
                reached = True
            elif level[owner] < 0:
                level[owner] = level[row] + 1
                queue[last] = owner
                last += 1
    return reached


@jit
def _augment(
    first: int,
    indptr: npt.NDArray[np.int32],
    indices: npt.NDArray[np.int32],
    column_of: Positions,
    row_of: Positions,
    level: Positions,
    after: Positions,
    path: Positions,
) -> None:
    """Walk down the levels from a free row to a free column, and match along the way.

    `after` remembers the next pair to look at of every row, so that none is looked at twice.
    """
    path[0] = first
    length = 1
    while length:
        row = path[length - 1]
        if after[row] == indptr[row + 1]:
            length -= 1
            continue
        owner = row_of[indices[after[row]]]
        after[row] += 1
        if owner < 0:
            for k in range(length):
                used = path[k]
                column = indices[after[used] - 1]
                column_of[used], row_of[column] = column, used
                level[used] = -1  # paths of a phase share no row
            return
        if level[owner] == level[row] + 1:
            path[length] = owner
            length += 1


@jit
def matched(
    indptr: npt.NDArray[np.int32], indices: npt.NDArray[np.int32], columns: int
) -> Positions:
    """Give a largest matching (Hopcroft and Karp): the column of each row, or -1.

    A phase looks at every pair once or twice, also where thousands of points coincide.
    """
    rows = len(indptr) - 1
    column_of, row_of = np.full(rows, -1), np.full(columns, -1)
    for row in range(rows):
        for k in range(indptr[row], indptr[row + 1]):
            if row_of[indices[k]] < 0:
                column_of[row], row_of[indices[k]] = indices[k], row
                break
    level, path = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    while _levels(indptr, indices, column_of, row_of, level):
        after = indptr[:-1].astype(np.int64)
        for row in range(rows):
            if column_of[row] < 0:
                _augment(row, indptr, indices, column_of, row_of, level, after, path)
    return column_of


# Sources, targets, amounts, and the number of the next flow into the same target.
Flows = tuple[Positions, Positions, Positions, Positions]
_LEAF = 8  # columns in a lowest box
_DEPTH = 64


@jit
def _boxes(columns: Floats) -> tuple[Floats, Floats, Positions]:
    """Return a heap of boxes around columns, eight in each leaf; and how many each box has."""
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
    """Change the count of a column's box, and of all boxes around it."""
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
    """Return a column within the radius with a count above 0, or -1."""
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
    """Return the flows with each pair once, and with room for more; sets each column's first."""
    room = 2 * (count + rows + len(head))
    merged = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    seen, pairs = np.full(rows, -1), 0
    for column in range(len(head)):
        begin, flow_ = pairs, head[column]
        head[column] = -1
        while flow_ >= 0:
            row, amount = flows[0][flow_], flows[2][flow_]
            flow_ = flows[3][flow_]
            if amount == 0:
                continue
            if seen[row] < begin:
                seen[row] = pairs
                merged[0][pairs], merged[1][pairs], merged[2][pairs] = row, column, 0
                merged[3][pairs] = head[column]
                head[column] = pairs
                pairs += 1
            merged[2][seen[row]] += amount
    return merged, pairs


@jit
def _longer(flows: Flows, count: int) -> Flows:
    """Return the flows in arrays with room for twice `count` flows."""
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
    open_rows = length if supply[root] > 0 else 0
    for step in range(length - 1, -1, -1):
        column = open_ if step == length - 1 else through[path[step]]
        flows[0][count], flows[1][count], flows[2][count] = path[step], column, amount
        flows[3][count] = head[column]
        head[column] = count
        count += 1
        if step > 0:
            flows[2][by[step]] -= amount
            if flows[2][by[step]] == 0:
                open_rows = min(open_rows, step)
    return open_rows


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
    closed = np.zeros(n, dtype=np.bool_)  # rows without a column in reach that has room
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
                    open_rows = _send(
                        path, by, through, length, open_, supply, demand, flows, head, count
                    )
                    count += length
                    # What lies behind the narrowest step may be met again in this phase.
                    for step in range(open_rows, length):
                        at = path[step]
                        seen[at] = False
                        if step < length - 1:
                            unmet[through[at]] = 1
                            _count(left, through[at], 1)
                        through[at] = -1
                    if demand[open_] == 0:
                        _count(spare, open_, -1)
                    moved, length = moved + 1, open_rows
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
