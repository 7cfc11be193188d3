"""The least-cost matching of two sets of points, exact and with a proof, without the dense matrix.

Every point of the smaller side is matched, and the sum of distances is least. Reports repeat, so
the problem is solved over distinct places with the number of points at each (the transportation
problem). Points of both sides at one place are matched first: the triangle inequality says that
this costs nothing. For the rest, near candidates and one full plan make a sparse graph; an auction
solves it with prices; then *all* omitted pairs are priced, and those that could improve join the
graph, until none is left. That is the proof: the prices are feasible for all pairs, so by linear
programming duality no matching is cheaper. Stopped early, the gap is stated.
Paper, server-side algorithms of the crowdsourcing experiments.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from coatcheck.tasks.contract import Belief, Floats, Positions, distinct, normalised
from coatcheck.tasks.solvers import available, needed
from coatcheck.tasks.solvers.close_pairs import Blocks, cut, side_by_side

DENSE_PAIRS = 10**8
_SMALL_PAIRS = 400_000
_FEW = 64  # columns that every row gets all of
_FAR = 2
_THIN = 8
_ADDED = 16
_BLOCK = 16
_ROUNDS = 500
_FIRST = 0.5  # of the mean distance over edges: the step of the first auction
_FIRST_LOOSE = 1e-5  # the same, where there is room enough that few compete
_LOOSE = 1.5  # columns for each row
_SHRINK = 7.0  # from one step of the auction to the next
_FINE = 1e-4  # of the mean distance: with smaller steps the plan is often the best already
_MARGIN = 0.4  # of the mean distance: pairs this close to an improvement join the graph as well
_LOOKED = 4  # edges looked at for exact prices, as a multiple of all
_PATIENCE = 100  # bids for each point, until an auction is tried with a larger step first
_MANY = 0.02  # of the rows: while more than these know a better column, the step stays
_COARSE = 1000  # columns: above, a coarse problem gives the prices to start from
_COARSE_GAP = 0.05
_NOTHING = 1e-12  # a distance that is nothing, where all places span about 1
_TINY = 2.0**-46  # a share of prices that is their rounding
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
        """Return the relative gap that is not proven; 0 up to rounding when fully solved."""
        return max(0.0, self.cost - self.lower_bound) / max(self.cost, np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Plan:
    """Amounts from places of rows to places of columns, and what is proven about their cost."""

    sources: Positions
    targets: Positions
    amounts: Positions
    cost: float
    lower_bound: float
    rounds: int


def assign(rows: Floats, columns: Floats, *, gap: float = 0.0) -> Assignment:
    """Match every row to its own column at the least total distance.

    A `gap` above 0 stops as soon as the cost is proven to be within that share of the least.
    Points at one place get their partners in the order of the rows.
    *Assumes:* there are at least as many columns as rows.
    """
    (rows, columns), unit = normalised(rows, columns)
    if len(rows) * len(columns) <= _SMALL_PAIRS:
        return dense(rows, columns, unit=unit)
    where, place = distinct(np.concatenate([rows, columns]))
    ours, theirs = place[: len(rows)], place[len(rows) :]
    supply, demand = (np.bincount(side, minlength=len(where)) for side in (ours, theirs))
    stay = np.minimum(supply, demand)
    sources, targets = np.flatnonzero(supply > stay), np.flatnonzero(demand > stay)
    amounts = (supply - stay)[sources], (demand - stay)[targets]
    plan = transport(where[sources], where[targets], *amounts, gap=gap)
    common = np.flatnonzero(stay)
    partners = partners_from_flows(
        (ours, theirs),
        np.concatenate([common, sources[plan.sources]]),
        np.concatenate([common, targets[plan.targets]]),
        np.concatenate([stay[common], plan.amounts]),
    )
    return Assignment(
        columns=partners,
        cost=plan.cost * unit,
        lower_bound=plan.lower_bound * unit,
        rounds=plan.rounds,
    )


def dense(rows: Floats, columns: Floats, *, unit: float = 1.0) -> Assignment:
    """Match by scipy's dense solver: the way without compiled loops, and for small sizes."""
    distances = cdist(rows, columns)
    picked, partners = linear_sum_assignment(distances)
    cost = float(distances[picked, partners].sum()) * unit
    return Assignment(columns=partners.astype(np.int64), cost=cost, lower_bound=cost, rounds=0)


def partners_from_flows(
    sides: tuple[Positions, Positions], sources: Positions, targets: Positions, amounts: Positions
) -> Positions:
    """Return the column of each row, from the amounts that go from place to place."""
    order = np.lexsort((targets, sources))
    to = np.repeat(targets[order], amounts[order])  # one entry for each row, rows by place
    partners = np.empty(len(to), dtype=np.int64)
    by_target = np.argsort(to, kind="stable")
    members = np.argsort(sides[1], kind="stable")
    first = np.searchsorted(sides[1][members], to[by_target])
    within = np.arange(len(to)) - np.searchsorted(to[by_target], to[by_target])
    partners[np.argsort(sides[0], kind="stable")[by_target]] = members[first + within]
    return partners


def transport(
    rows: Floats, columns: Floats, supply: Positions, demand: Positions, *, gap: float
) -> Plan:
    """Ship the supply of all rows to columns that have room, at the least cost."""
    total = int(supply.sum())
    demand = np.minimum(demand, total)
    pairs = total * int(demand.sum())
    if pairs > _SMALL_PAIRS and available():
        # Neighbours side by side in memory: the auction waits less for what it looks up.
        ours, theirs = side_by_side(rows, size=_BLOCK), side_by_side(columns, size=_BLOCK)
        market = Market(rows[ours], columns[theirs], supply[ours], demand[theirs])
        plan = market.plan(gap)
        return replace(plan, sources=ours[plan.sources], targets=theirs[plan.targets])
    if pairs > DENSE_PAIRS:
        raise needed(f"{total} x {demand.sum()} is too large for the dense method (0.8 GB)")
    owners, offered = (np.repeat(np.arange(len(side)), side) for side in (supply, demand))
    matching = dense(rows[owners], columns[offered])
    unit = np.ones(total, dtype=np.int64)
    return Plan(owners, offered[matching.columns], unit, matching.cost, matching.lower_bound, 0)


class Market:
    """The present edges, the prices, and the plan that follows from them."""

    def __init__(self, rows: Floats, columns: Floats, supply: Positions, demand: Positions) -> None:
        self.start(rows, columns, supply, demand)
        self.blocks = cut(columns, size=_BLOCK)
        self.add(*_candidates(self))

    def start(self, rows: Floats, columns: Floats, supply: Positions, demand: Positions) -> None:
        """Begin with no edge, and all prices at zero."""
        from coatcheck.tasks.solvers import assignment_kernels  # noqa: PLC0415 - an extra

        self.kernels, self.pricing = assignment_kernels, assignment_kernels
        self.rows, self.columns, self.supply, self.demand = rows, columns, supply, demand
        self.u, self.v = np.zeros(len(rows) + 1), np.zeros(len(columns))
        none = np.zeros(len(rows) + 1, dtype=np.int64)
        self.edges = (none, none[:0], np.empty(0), np.zeros(len(columns), dtype=np.int64))
        self.owner = none[:0]
        self.cost = self.bound = 0.0
        self.added = _ADDED

    def add(self, owners: Positions, columns: Positions) -> None:
        """Add these pairs to the edges; present flows stay."""
        order = np.argsort(owners, kind="stable")
        bounds = np.zeros(len(self.rows) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=len(self.rows)), out=bounds[1:])
        more = bounds, columns[order]
        self.edges = self.kernels.join(self.rows, self.columns, self.edges, more)
        self.owner = np.repeat(np.arange(len(self.rows)), np.diff(self.edges[0]))

    def first_prices(self) -> None:
        """Take prices from a coarse problem where there are many columns, and little room."""
        if len(self.columns) <= _COARSE or self.demand.sum() >= _LOOSE * self.supply.sum():
            return
        self.v = prices = _coarse_prices(self)
        worth = self.edges[2] - prices[self.edges[1]]
        self.u[:-1] = np.minimum.reduceat(worth, self.edges[0][:-1])
        owners, columns, _ = self.price(0.0)
        self.add(owners, columns)

    def auction(self, step: float) -> None:
        """Find a plan whose cost is within a step of the least for each unit.

        Small steps take very long to correct prices that are far off, so larger steps go first.
        """
        step = max(step, _NOTHING)
        sides = self.supply, self.demand, self.u, self.v
        far = 4 * self.rows.shape[1] ** 0.5
        most = _PATIENCE * (len(self.rows) + len(self.columns))
        while not self.kernels.auction(*self.edges, self.owner, *sides, step, far, most):
            self.auction(_SHRINK * step)
            most *= 2
        self.cost = float(self.edges[3][: len(self.owner)] @ self.edges[2])

    def prove(self) -> bool:
        """Compute prices that prove the plan optimal for the present edges; False if none do."""
        u, v, most = self.u.copy(), self.v.copy(), _LOOKED * len(self.edges[3])
        if not self.kernels.exact_prices(*self.edges, self.owner, u, v, _TINY, most):
            return False
        self.u, self.v = u, v
        return True

    def price(self, margin: float) -> tuple[Positions, Positions, Floats]:
        """Price all pairs: those within a margin of an improvement, and each row's largest one.

        Sets the lower bound that the prices prove.
        """
        n, blocks, u, v = len(self.rows), self.blocks, self.u[:-1], self.v
        width = min(self.added, len(v))
        worst_columns, worst = np.full((n, width), -1), np.zeros((n, width))
        boxes = blocks.start, blocks.stop, blocks.skip, blocks.low, blocks.high
        places, prices = self.columns[blocks.order], v[blocks.order]
        self.pricing.price(self.rows, u + margin, places, prices, *boxes, worst_columns, worst)
        better = np.maximum(worst[:, 0] - margin, 0.0)
        self.set_bound(better)
        owners, at = np.nonzero(worst_columns >= 0)
        return owners, blocks.order[worst_columns[owners, at]], better

    def set_bound(self, better: Floats) -> None:
        """Set the lower bound on every plan's cost, if no pair improves a row by more than this."""
        idle = self.demand.sum() - self.supply.sum()
        paid = (self.u[:-1] - better) @ self.supply + self.v @ self.demand
        self.bound = float(paid - idle * self.v.max())

    def solve(self, gap: float) -> int:
        """Auction with ever smaller steps until the plan is proven; return how often it priced."""
        units = int(self.supply.sum())
        loose = self.demand.sum() >= _LOOSE * units
        self.first_prices()
        first = _FIRST_LOOSE if loose else _FIRST
        step, proven = first * float(np.mean(self.edges[2])), False
        for rounds in range(1, _ROUNDS + 1):  # noqa: B007 - the last one is returned
            if not proven:
                self.auction(step)
                proven = step <= _FINE * self.cost / units and self.prove()
            owners, columns, better = self.price(_MARGIN * self.cost / units)
            most, least = float(better.max()), _TINY * self.cost / units
            if self.cost - self.bound <= max(gap, _ROUNDING) * self.cost + _NOTHING * units:
                break
            if proven and most <= _TINY * float(np.abs(self.u[:-1]).max()):
                break  # what is left of the gap is the rounding of the prices
            if most > step or proven:
                self.add(owners, columns)
            if proven:
                proven = self.prove()
                step = step if proven else max(most / 4, least)
            elif np.mean(better > 2 * step) < _MANY:
                step = max(step / _SHRINK, least)
            else:
                self.added *= 2  # so that the rounds stay few where many want the same columns
        return rounds

    def plan(self, gap: float) -> Plan:
        """Solve, and return the plan."""
        rounds = self.solve(gap)
        used = np.flatnonzero(self.edges[3][: len(self.owner)])
        flows = self.owner[used], self.edges[1][used], self.edges[3][used]
        return Plan(*flows, self.cost, min(self.bound, self.cost), rounds)


def _coarse_prices(market: Market) -> Floats:
    """Return prices of the columns from a problem in which each block is one place."""
    rows, supply = _merged(cut(market.rows, size=_BLOCK), market.rows, market.supply)
    columns, demand = _merged(market.blocks, market.columns, market.demand)
    coarse = Market(rows, columns, supply, demand)
    coarse.solve(_COARSE_GAP)
    leaves, prices = market.blocks.leaves(), np.empty(len(market.columns))
    sizes = market.blocks.stop[leaves] - market.blocks.start[leaves]
    prices[market.blocks.order] = np.repeat(coarse.v, sizes)
    return prices


def _merged(blocks: Blocks, points: Floats, amounts: Positions) -> tuple[Floats, Positions]:
    """Return the mean place of each block, and the amount there."""
    start = blocks.start[blocks.leaves()]
    weight = np.add.reduceat(amounts[blocks.order], start)
    summed = np.add.reduceat((points * amounts[:, None])[blocks.order], start)
    return summed / weight[:, None], weight


def _candidates(market: Market) -> tuple[Positions, Positions]:
    """Return near columns, some far ones from ever thinner subsets, and one full plan."""
    rows, columns, supply, demand = market.rows, market.columns, market.supply, market.demand
    n, m = len(rows), len(columns)
    tight = demand.sum() < 2 * supply.sum()
    near = m if m <= _FEW else 24 if supply.sum() == demand.sum() else 12 if tight else 8
    tables = [_nearest(rows, columns, np.arange(m), near)]
    # Where a crowd is denser than its partners, somebody must go far: thinner subsets show where.
    spread = np.argsort((np.arange(m, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32))
    size = m // _THIN
    while size > near:
        tables.append(_nearest(rows, columns, np.sort(spread[:size]), _FAR))
        size //= _THIN
    table = np.concatenate(tables, axis=1)
    owners = np.repeat(np.arange(n), table.shape[1])
    # One full plan, so that there is one: both sides block by block, unit by unit.
    by_block = side_by_side(rows, size=_BLOCK)
    ours = np.repeat(by_block, supply[by_block])
    theirs = np.repeat(market.blocks.order, demand[market.blocks.order])
    taken = theirs[(np.arange(len(ours)) * len(theirs)) // len(ours)]
    return np.concatenate([owners, ours]), np.concatenate([table.ravel(), taken])


def _nearest(rows: Floats, columns: Floats, subset: Positions, count: int) -> Positions:
    tree = cKDTree(columns[subset], balanced_tree=False, compact_nodes=False)
    _, near = tree.query(rows, k=min(count, len(subset)))
    return subset[np.asarray(near).reshape(len(rows), -1)]


# -- expected costs: what a pair costs by the posteriors of both reports
#
# Reports of one kind have the same posterior, so there is one cost per pair of kinds, however many
# people there are. The transportation problem over this table is solved by the same auction, and
# with the same proof, as over places.
_CHEAPEST = 16  # columns of every row in the first graph
_SMALL_SHARE = 1e-3  # of the largest cost: a gap is a share of at least this

Cost = Callable[[Floats, Floats], Floats]
"""The cost of pairs at these places: (a, d) and (b, d) to (a, b)."""


def expected_costs(ours: Belief, theirs: Belief, cost: Cost) -> Floats:
    """Return the expected cost of each kind of ours with each kind of theirs."""
    return np.asarray(ours.weights @ cost(ours.places, theirs.places) @ theirs.weights.T)


def match_kinds(costs: Floats, ours: Positions, theirs: Positions) -> tuple[Positions, float]:
    """Return the column of each row at the least total cost by kinds, and what of it is unproven.

    *Assumes:* there are at least as many columns as rows.
    """
    supply = np.bincount(ours, minlength=costs.shape[0])
    demand = np.bincount(theirs, minlength=costs.shape[1])
    rows, columns = np.flatnonzero(supply), np.flatnonzero(demand)
    plan = ship(costs[np.ix_(rows, columns)], supply[rows], demand[columns])
    partners = partners_from_flows(
        (ours, theirs), rows[plan.sources], columns[plan.targets], plan.amounts
    )
    whole = max(plan.cost, _SMALL_SHARE * len(ours) * float(costs.max()), np.finfo(float).tiny)
    return partners, max(0.0, plan.cost - plan.lower_bound) / whole


def ship(costs: Floats, supply: Positions, demand: Positions, *, gap: float = 0.0) -> Plan:
    """Ship the supply of all rows to columns that have room, at the least cost by a table."""
    total = int(supply.sum())
    demand = np.minimum(demand, total)
    pairs = total * int(demand.sum())
    if pairs <= _SMALL_PAIRS or not available():
        if pairs > DENSE_PAIRS:
            raise needed(f"{total} x {demand.sum()} is too large for the dense method (0.8 GB)")
        owners, offered = (np.repeat(np.arange(len(side)), side) for side in (supply, demand))
        table = costs[np.ix_(owners, offered)]
        picked, partners = linear_sum_assignment(table)
        least = float(table[picked, partners].sum())
        ones = np.ones(total, dtype=np.int64)
        return Plan(owners[picked], offered[partners], ones, least, least, 0)
    low = float(costs.min())
    unit = max(float(costs.max()) - low, np.finfo(float).tiny)
    plan = _Table(1 + (costs - low) / unit, supply, demand).plan(gap)
    paid, bound = ((value - total) * unit + low * total for value in (plan.cost, plan.lower_bound))
    return Plan(plan.sources, plan.targets, plan.amounts, paid, bound, plan.rounds)


class _Table(Market):
    """A market whose costs stand in a table, from 1 to 2: steps are shares of the mean cost."""

    def __init__(self, costs: Floats, supply: Positions, demand: Positions) -> None:
        self.costs = costs
        n, m = costs.shape
        self.start(np.zeros((n, 1)), np.zeros((m, 1)), supply, demand)
        cheapest = np.argpartition(costs, min(_CHEAPEST, m - 1), axis=1)[:, :_CHEAPEST]
        ours, theirs = (np.repeat(np.arange(len(side)), side) for side in (supply, demand))
        taken = theirs[(np.arange(len(ours)) * len(theirs)) // len(ours)]  # so that there is a plan
        owners = np.repeat(np.arange(n), cheapest.shape[1])
        self.add(np.concatenate([owners, ours]), np.concatenate([cheapest.ravel(), taken]))

    def add(self, owners: Positions, columns: Positions) -> None:
        """Add these pairs to the edges; present flows stay."""
        m, count = self.costs.shape[1], len(self.edges[1])
        flows = np.concatenate([self.edges[3][:count], np.zeros(len(owners), dtype=np.int64)])
        pairs = np.concatenate([self.owner, owners]) * m + np.concatenate([self.edges[1], columns])
        pairs, first = np.unique(pairs, return_index=True)  # the first of equal ones flows
        owner, column = np.divmod(pairs, m)
        cost = self.costs[owner, column]
        order = np.lexsort((cost, owner))
        bounds = np.zeros(len(self.costs) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owner, minlength=len(self.costs)), out=bounds[1:])
        flow = np.concatenate([flows[first][order], self.edges[3][count:]])
        self.owner = owner[order]
        self.edges = (bounds, column[order], cost[order], flow)

    def first_prices(self) -> None:
        """Do nothing: there is no coarse problem."""

    def price(self, margin: float) -> tuple[Positions, Positions, Floats]:
        """Price all pairs of the table."""
        u, v = self.u[:-1], self.v
        width = min(self.added, len(v))
        worth = u[:, None] - self.costs + v[None, :]
        columns = np.argpartition(-worth, width - 1, axis=1)[:, :width]
        owners = np.repeat(np.arange(len(u)), width)
        joining = worth[owners, columns.ravel()] > -margin
        better = np.maximum(worth.max(axis=1), 0.0)
        self.set_bound(better)
        return owners[joining], columns.ravel()[joining], better
