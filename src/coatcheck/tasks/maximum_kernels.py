"""Compiled loops of maximum matching: pairs within a radius in the plane, and matching on a graph.

Imported only when numba is there (`compiled.available`).
"""

import numpy as np
import numpy.typing as npt

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.compiled import jit


@jit
def _cell(at: float, low: float, side: float, count: int) -> int:
    """The cell along one axis; one beyond the grid for what lies outside."""
    return int(min(max(np.floor((at - low) / side), -1.0), float(count)))


@jit
def into_cells(
    columns: Floats, low: Floats, side: float, shape: tuple[int, int]
) -> tuple[Positions, Positions]:
    """Columns sorted by cell, and where each cell begins."""
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
    """The bounds and indices of every row's columns whose squared distance is at most `square`.

    `places` are the columns in the order of their cells. Cells are wider than the radius, so a
    column that near lies in the row's own cell or in one that touches it.
    """
    indptr = np.zeros(len(rows) + 1, dtype=np.int32)
    found = np.empty(8 * len(rows) + 64, dtype=np.int32)
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
            if count + stop - start > len(found):
                larger = np.empty(2 * len(found) + stop - start, dtype=np.int32)
                larger[:count] = found[:count]
                found = larger
            for k in range(start, stop):
                x, y = rows[i, 0] - places[k, 0], rows[i, 1] - places[k, 1]
                found[count] = order[k]
                count += x * x + y * y <= square
        indptr[i + 1] = count
    return indptr, found[:count]


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
