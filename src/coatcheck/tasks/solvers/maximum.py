"""The largest matching within a radius, exact and with a proof, without the full radius graph.

Building the graph of all pairs within the radius costs far more than matching on it, unless there
are few. So it matches on each row's few nearest columns; if a row stays free, alternating
paths tell which rows and columns it can reach, and only pairs that leave that set can help. When no
pair leaves it, the reached columns and the unreached rows touch every pair and are as many as the
matching: by Koenig's theorem it is the largest. With compiled loops, places where there are too
many pairs, or where people report the same place, are matched as a flow between different places.
This file handles points and knows nothing of people. Paper, server-side algorithms.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial import cKDTree

from coatcheck.tasks.contract import Floats, Positions, distinct, normalised
from coatcheck.tasks.solvers import available
from coatcheck.tasks.solvers.assignment import partners_from_flows
from coatcheck.tasks.solvers.close_pairs import side_by_side

_NEAR = 8
_FEW = 32
_PAIRS = 30_000_000  # that the compiled loops list, in 4 bytes each
_REPEATED = 0.5  # of the people: fewer different places than this, and they are matched as places
_SAMPLE = 2048
_BLOCK = 8
_SLACK = 1e-9  # trees search a little wider than the radius; exact comparisons follow


def maximum(rows: Floats, columns: Floats, *, radius: float) -> Positions:
    """Return the column of each row, or -1, with as many pairs within `radius` as possible."""
    if not len(rows) or not len(columns):
        return np.full(len(rows), -1)
    (rows, columns), unit = normalised(rows, columns)
    radius /= unit
    tree = _tree(columns)
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    wide = radius * (1 + _SLACK)
    each = np.mean(tree.query_ball_point(sample, wide, return_length=True))
    if available() and each > _FEW:
        places = distinct(rows), distinct(columns)
        different = sum(len(where) for where, _ in places)
        crowded = different <= _REPEATED * (len(rows) + len(columns))
        if crowded or rows.shape[1] != 2 or each * len(rows) > _PAIRS:
            return _by_flow(*places, radius)
    if available() and rows.shape[1] == 2:
        return _side_by_side(rows, columns, radius)
    if each <= _FEW:
        pairs = _all_pairs(rows, columns, tree, radius)
        return _match(_graph(pairs, (len(rows), len(columns))))
    return _by_reach(rows, columns, tree, radius)


def _by_flow(
    ours: tuple[Floats, Positions], theirs: tuple[Floats, Positions], radius: float
) -> Positions:
    """Match as a flow between different places, each with as many units as it has people."""
    from coatcheck.tasks.solvers import maximum_kernels  # noqa: PLC0415 - an extra

    sides, orders, units = [], [], []
    for places, at in (ours, theirs):
        order = side_by_side(places, size=_BLOCK)  # so that boxes of neighbours are small
        sides.append(np.ascontiguousarray(places[order]))
        units.append(np.bincount(at, minlength=len(places))[order])
        orders.append(order)
    supply, room = units
    sources, targets, amounts = maximum_kernels.flow(
        sides[0], sides[1], radius * radius, supply, room
    )
    # `flow` used up what it could of the supply; the rest goes to a place that does not exist.
    over, nowhere = np.flatnonzero(supply), len(theirs[0])
    partners = partners_from_flows(
        (ours[1], np.append(theirs[1], np.full(supply.sum(), nowhere))),
        np.append(orders[0][sources], orders[0][over]),
        np.append(orders[1][targets], np.full(len(over), nowhere)),
        np.append(amounts, supply[over]),
    )
    return np.where(partners < len(theirs[1]), partners, -1)


def _by_reach(rows: Floats, columns: Floats, tree: cKDTree, radius: float) -> Positions:
    """Match on near pairs, and add pairs that leave the reached set until none does."""
    owners, partners = _near_pairs(rows, columns, tree, radius, _NEAR)
    near = _NEAR
    while True:
        graph = _graph((owners, partners), (len(rows), len(columns)))
        column_of = _match(graph)
        if np.all(column_of >= 0):
            return column_of
        reached_rows, reached_columns = _reach(graph, column_of)
        asking, offered = np.flatnonzero(reached_rows), np.flatnonzero(~reached_columns)
        if not len(offered):
            return column_of
        unreached = columns[offered]
        more = _near_pairs(rows[asking], unreached, _tree(unreached), radius, near)
        if not len(more[0]):
            return column_of
        owners = np.concatenate([owners, asking[more[0]]])
        partners = np.concatenate([partners, offered[more[1]]])
        near *= 2  # so that the rounds stay few where many points coincide


def _tree(points: Floats) -> cKDTree:
    return cKDTree(points, balanced_tree=False, compact_nodes=False)


def _match(graph: csr_array) -> Positions:
    if available():
        from coatcheck.tasks.solvers import maximum_kernels  # noqa: PLC0415 - an extra

        return maximum_kernels.matched(graph.indptr, graph.indices, graph.shape[1])
    columns = maximum_bipartite_matching(graph, perm_type="column")
    return np.asarray(columns).astype(np.int64)


def _side_by_side(rows: Floats, columns: Floats, radius: float) -> Positions:
    """Match in the plane with neighbours side by side in memory, which a search needs together."""
    first, second = (_cells(side, radius).order for side in (rows, columns))
    partners = _match(_compiled_graph(rows[first], columns[second], radius))
    column_of = np.empty(len(rows), np.int64)
    column_of[first] = np.where(partners >= 0, second[partners], -1)
    return column_of


class _Cells(NamedTuple):
    """A grid over points: its start, a cell's side, the number of cells, and the points of each."""

    low: Floats
    side: float
    shape: tuple[int, int]
    order: Positions
    begins: Positions


def _cells(points: Floats, radius: float) -> _Cells:
    """Sort points of the plane into cells, by compiled loops."""
    from coatcheck.tasks.solvers import maximum_kernels  # noqa: PLC0415 - an extra

    low, span = points.min(axis=0), np.ptp(points, axis=0)
    # As wide as the radius, and so wide that there are no more cells than a few per point.
    side = max(radius * (1 + _SLACK * 1000), float(np.sqrt(span.prod() / len(points) / 2)))
    side = max(side, float(span.max()) / len(points)) or 1.0
    shape = (int(span[0] / side) + 1, int(span[1] / side) + 1)
    cells = maximum_kernels.into_cells(np.ascontiguousarray(points), low, side, shape)
    return _Cells(low, side, shape, *cells)


def _compiled_graph(rows: Floats, columns: Floats, radius: float) -> csr_array:
    """Return every pair within the radius in the plane, by compiled loops over a grid."""
    from coatcheck.tasks.solvers import maximum_kernels  # noqa: PLC0415 - an extra

    low, side, shape, order, begins = _cells(columns, radius)
    indptr, indices = maximum_kernels.within(
        np.ascontiguousarray(rows), columns[order], order, begins, low, side, shape, radius * radius
    )
    ones = np.ones(len(indices), dtype=np.int8)
    return csr_array((ones, indices, indptr), shape=(len(rows), len(columns)))


def _all_pairs(
    rows: Floats, columns: Floats, tree: cKDTree, radius: float
) -> tuple[Positions, Positions]:
    """Return every pair within the radius."""
    wide = radius * (1 + _SLACK)
    pairs = _tree(rows).sparse_distance_matrix(tree, wide, output_type="ndarray")
    owners, partners = pairs["i"], pairs["j"]
    close = np.flatnonzero(pairs["v"] >= radius * (1 - _SLACK))
    apart = ((rows[owners[close]] - columns[partners[close]]) ** 2).sum(axis=1)
    beyond = close[apart > radius * radius]
    if not len(beyond):
        return owners, partners
    return np.delete(owners, beyond), np.delete(partners, beyond)


def _near_pairs(
    rows: Floats, columns: Floats, tree: cKDTree, radius: float, near: int
) -> tuple[Positions, Positions]:
    """Return the nearest columns of each row that are within the radius."""
    wide = radius * (1 + _SLACK)
    _, nearest = tree.query(rows, k=min(near, len(columns)), distance_upper_bound=wide)
    nearest = np.asarray(nearest).reshape(len(rows), -1)
    owners, place = np.nonzero(nearest < len(columns))
    partners = nearest[owners, place]
    within = ((rows[owners] - columns[partners]) ** 2).sum(axis=1) <= radius * radius
    return owners[within], partners[within]


def _graph(pairs: tuple[Positions, Positions], shape: tuple[int, int]) -> csr_array:
    short = tuple(side.astype(np.int32) for side in pairs)
    pairs_array = coo_array((np.ones(len(short[0]), dtype=np.int8), short), shape=shape)
    pairs_array.has_canonical_format = True  # no pair comes twice: do not sort to look for one
    return pairs_array.tocsr()


def _reach(graph: csr_array, column_of: Positions) -> tuple[Positions, Positions]:
    """Return which rows and columns alternating paths from free rows reach."""
    rows = np.zeros(graph.shape[0], dtype=bool)
    columns = np.zeros(graph.shape[1], dtype=bool)
    row_of = np.full(graph.shape[1], -1)
    matched = np.flatnonzero(column_of >= 0)
    row_of[column_of[matched]] = matched
    front = np.flatnonzero(column_of < 0)
    while len(front):
        rows[front] = True
        counts = graph.indptr[front + 1] - graph.indptr[front]
        firsts = np.repeat(graph.indptr[front] - np.cumsum(counts) + counts, counts)
        met = np.unique(graph.indices[firsts + np.arange(counts.sum())])
        met = met[~columns[met]]
        columns[met] = True
        front = row_of[met]
        front = front[front >= 0]
    return rows, columns
