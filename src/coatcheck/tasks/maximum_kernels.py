"""Compiled listing of the pairs within a radius in the plane, as the rows of a sparse graph.

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
