"""Costs that know the noise: what a pair is expected to cost, given what is known of both reports.

Reports of one kind say the same about where a value can have been, so there is one cost per pair of
kinds, however many people there are: a table, over which the transportation problem is solved by
the same auction and with the same proof as over places. Knows beliefs, not people.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from coatcheck.tasks.answers import Floats, Positions
from coatcheck.tasks.assignment import DENSE_PAIRS, Market, Plan, handed_out
from coatcheck.tasks.compiled import available, needed
from coatcheck.tasks.contract import Belief

_CHEAPEST = 16  # columns that every row knows from the beginning
_SMALL_PAIRS = 400_000
_SMALL_SHARE = 1e-3  # of the largest cost: a gap is not told as a share of less

Cost = Callable[[Floats, Floats], Floats]
"""What a pair costs at these places: (a, d) and (b, d) to (a, b)."""


def expected_costs(ours: Belief, theirs: Belief, cost: Cost) -> Floats:
    """The expected cost of each kind of ours with each kind of theirs."""
    return np.asarray(ours.weights @ cost(ours.places, theirs.places) @ theirs.weights.T)


def match_kinds(costs: Floats, ours: Positions, theirs: Positions) -> tuple[Positions, float]:
    """The column of each row at the least total cost by kinds, and what of it is unproven.

    *Assumes:* there are at least as many columns as rows.
    """
    supply = np.bincount(ours, minlength=costs.shape[0])
    demand = np.bincount(theirs, minlength=costs.shape[1])
    rows, columns = np.flatnonzero(supply), np.flatnonzero(demand)
    plan = ship(costs[np.ix_(rows, columns)], supply[rows], demand[columns])
    partners = handed_out((ours, theirs), rows[plan.sources], columns[plan.targets], plan.amounts)
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
        """Let these pairs be edges too; what flows stays."""
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
        """Nothing is known beforehand."""

    def price(self, margin: float) -> tuple[Positions, Positions, Floats]:
        """Price all pairs of the table."""
        u, v = self.u[:-1], self.v
        width = min(self.added, len(v))
        worth = u[:, None] - self.costs + v[None, :]
        found = np.argpartition(-worth, width - 1, axis=1)[:, :width]
        owners = np.repeat(np.arange(len(u)), width)
        kept = worth[owners, found.ravel()] > -margin
        better = np.maximum(worth.max(axis=1), 0.0)
        self.set_bound(better)
        return owners[kept], found.ravel()[kept], better
