"""The least-cost matching of two sets of points, exact and with a proof, without the dense matrix.

Every point of the smaller side is matched, and the sum of distances is least. Near candidates and
one full matching (so that there is one) make a sparse graph; shortest augmenting paths solve it
with prices; then *all* omitted pairs are priced, and those that could improve join the graph, until
none is left. That is the proof: the prices are feasible for the complete graph, so by linear
programming duality no matching is cheaper. Stopped early, the gap is stated.
Knows points, not people. Paper, server-side algorithms of the crowdsourcing experiments.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.blocks import cut
from coatcheck.tasks.compiled import available, needed

DENSE_PAIRS = 10**8
_SMALL_PAIRS = 20_000
_FAR = 2
_THIN = 8
_ADDED = 12
_BLOCK = 16
_ROUNDS = 200
_ROUNDING = 1e-12  # a gap as small as this is the rounding of long sums, not a better matching


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """A full matching of the smaller side, with what is proven about it.

    Attributes:
        columns: the partner of each point of the smaller side.
        cost: the sum of the distances.
        lower_bound: no full matching costs less than this.
        rounds: how often all omitted pairs were priced; 0 for the dense method.
    """

    columns: Positions
    cost: float
    lower_bound: float
    rounds: int

    @property
    def gap(self) -> float:
        """The relative gap that is left unproven; 0 up to rounding when solved to the end."""
        return max(0.0, self.cost - self.lower_bound) / max(self.cost, np.finfo(float).tiny)


def assign(rows: Floats, columns: Floats, *, gap: float = 0.0) -> Assignment:
    """Match every row to its own column at the least total distance.

    A `gap` above 0 stops as soon as the cost is proven to be within that share of the least.
    *Assumes:* there are at least as many columns as rows.
    """
    pairs = len(rows) * len(columns)
    if pairs <= _SMALL_PAIRS:
        return dense(rows, columns)
    if available():
        return _sparse(rows, columns, gap=gap)
    if pairs > DENSE_PAIRS:
        raise needed(f"{len(rows)} x {len(columns)} is too large for the dense method (0.8 GB)")
    return dense(rows, columns)


def dense(rows: Floats, columns: Floats) -> Assignment:
    """Match by scipy's dense solver: the way without compiled loops, and for small sizes."""
    distances = cdist(rows, columns)
    picked, partners = linear_sum_assignment(distances)
    cost = float(distances[picked, partners].sum())
    return Assignment(columns=partners.astype(np.int64), cost=cost, lower_bound=cost, rounds=0)


@dataclass(frozen=True, eq=False)
class _Graph:
    """The pairs that are known so far: edges of each row, sorted by cost."""

    indptr: Positions
    columns: Positions
    costs: Floats

    @classmethod
    def of(cls, rows: Floats, columns: Floats, found: Positions) -> "_Graph":
        """The graph in which each row knows the columns found for it."""
        from coatcheck.tasks.assignment_kernels import measure  # noqa: PLC0415 - an extra

        indptr = np.arange(len(rows) + 1) * found.shape[1]
        graph = cls(indptr, found.ravel(), np.empty(found.size))
        measure(rows, columns, graph.indptr, graph.columns, graph.costs)
        return graph

    def with_edges(self, rows: Floats, columns: Floats, found: Positions) -> "_Graph":
        """Add the found columns of each row (-1 means none)."""
        from coatcheck.tasks.assignment_kernels import measure  # noqa: PLC0415 - an extra

        owners, places = np.nonzero(found >= 0)
        owner = np.concatenate([np.repeat(np.arange(len(rows)), np.diff(self.indptr)), owners])
        order = np.argsort(owner, kind="stable")
        joined = np.concatenate([self.columns, found[owners, places]])[order]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(rows)))])
        graph = _Graph(indptr, joined, np.empty(len(joined)))
        measure(rows, columns, graph.indptr, graph.columns, graph.costs)
        return graph


def _sparse(rows: Floats, columns: Floats, *, gap: float) -> Assignment:
    from coatcheck.tasks import assignment_kernels as kernels  # noqa: PLC0415 - an extra

    rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(columns)
    n, m = len(rows), len(columns)
    blocks = cut(columns, size=_BLOCK)
    graph = _candidates(rows, columns, blocks.order)
    places = columns[blocks.order]
    boxes = (blocks.start, blocks.stop, blocks.skip, blocks.low, blocks.high)
    # Distances of this size carry about this much rounding; a pair cheaper by less is no proof.
    tolerance = 1e-13 * float(np.abs(rows).max() + np.abs(columns).max()) * 8
    u, v = np.zeros(n), np.zeros(m)
    column_of, row_of = np.full(n, -1), np.full(m, -1)
    square = n == m
    for rounds in range(1, _ROUNDS + 1):
        if not square or rounds == 1:
            v[:] = 0.0
            column_of[:] = row_of[:] = -1
            kernels.bid(graph.indptr, graph.columns, graph.costs, u, v, column_of, row_of, 8 * n)
        kernels.augment(graph.indptr, graph.columns, graph.costs, u, v, column_of, row_of)
        found = np.full((n, _ADDED), -1)
        worst = np.zeros((n, _ADDED))
        violated = kernels.price(rows, u, places, v[blocks.order], *boxes, tolerance, found, worst)
        apart = np.sqrt(((rows - columns[column_of]) ** 2).sum(axis=1))
        cost = float(apart.sum())
        bound = float((u - worst[:, 0]).sum() + v.sum())
        if violated == 0 or cost - bound <= max(gap, _ROUNDING) * cost:
            break
        found = np.where(found >= 0, blocks.order[found], -1)
        graph = graph.with_edges(rows, columns, found)
        if square:
            _free_loose(graph, u, v, column_of, row_of)
    return Assignment(columns=column_of, cost=cost, lower_bound=min(bound, cost), rounds=rounds)


def _free_loose(
    graph: _Graph, u: Floats, v: Floats, column_of: Positions, row_of: Positions
) -> None:
    """Lower the rows' prices to the new edges; free the rows whose partner is no longer best.

    On equal sides every column is matched in the end, so a freed column may keep its price.
    """
    worth = graph.costs - v[graph.columns]
    lowered = np.minimum.reduceat(worth, graph.indptr[:-1])
    loose = np.flatnonzero(lowered < u)
    u[loose] = lowered[loose]
    row_of[column_of[loose]] = -1
    column_of[loose] = -1


def _candidates(rows: Floats, columns: Floats, along: Positions) -> _Graph:
    """Near columns, some far ones from ever thinner subsets, and one full matching.

    `along` is an order of the columns block by block; rows in such an order take them one by one.
    """
    n, m = len(rows), len(columns)
    near = 24 if n == m else 12 if m < 2 * n else 8  # the tighter, the longer the detours
    found = [_nearest(rows, columns, np.arange(m), near)]
    # Where a crowd is denser than its partners, somebody must go far: thinner subsets show where.
    spread = np.argsort((np.arange(m, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32))
    size = m // _THIN
    while size > near:
        found.append(_nearest(rows, columns, np.sort(spread[:size]), _FAR))
        size //= _THIN
    taken = np.empty((n, 1), dtype=np.int64)
    taken[cut(rows, size=_BLOCK).order, 0] = along[(np.arange(n) * m) // n]
    found.append(taken)
    return _Graph.of(rows, columns, np.concatenate(found, axis=1))


def _nearest(rows: Floats, columns: Floats, subset: Positions, count: int) -> Positions:
    tree = cKDTree(columns[subset], balanced_tree=False, compact_nodes=False)
    _, near = tree.query(rows, k=min(count, len(subset)))
    return subset[np.asarray(near).reshape(len(rows), -1)]
