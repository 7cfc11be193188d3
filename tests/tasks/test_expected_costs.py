"""Expected costs: the table's plan is the least, and noise is weighed as the beliefs say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from coatcheck.domains import Box, Categories
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.server import belief, numbers
from coatcheck.randomizers import GridResponse
from coatcheck.tasks import Belief, Floats, References, answer
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.solvers import assignment
from coatcheck.tasks.solvers.assignment import ship

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def drawn(seed: int, *shape: int) -> Floats:
    """Uniform numbers of this shape."""
    return seeded(seed).uniforms(int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("loops", ["compiled", "plain"])
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.integers(1, 25), st.sampled_from([0, 1]))
def test_a_plan_by_a_table_costs_the_least(
    loops: str, seed: int, rows: int, columns: int, ties: int
) -> None:
    """Against scipy's dense solver on every unit, with ties and costs below zero."""
    costs = drawn(seed, rows, columns) * 4 - 2
    costs = np.rint(costs) if ties else costs
    supply = 1 + (drawn(seed + 1, rows) * 4).astype(np.int64)
    demand = 1 + (drawn(seed + 2, columns) * 4).astype(np.int64)
    demand += -(-max(0, int(supply.sum() - demand.sum())) // columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "_SMALL_PAIRS", 0)
        patch.setattr(assignment, "available", lambda: loops == "compiled")
        plan = ship(costs, supply, demand)
    units = np.repeat(np.repeat(costs, supply, axis=0), demand, axis=1)
    least = units[linear_sum_assignment(units)].sum()
    assert plan.cost == pytest.approx(least, abs=1e-9)
    assert plan.lower_bound == pytest.approx(plan.cost, abs=1e-9)
    assert costs[plan.sources, plan.targets] @ plan.amounts == pytest.approx(least, abs=1e-9)
    assert np.bincount(plan.sources, plan.amounts, minlength=rows).tolist() == supply.tolist()
    assert np.all(np.bincount(plan.targets, plan.amounts, minlength=columns) <= demand)


def exactly(places: Floats) -> Belief:
    """The belief that every report is true."""
    return Belief(np.arange(len(places)), np.eye(len(places)), places)


@pytest.mark.parametrize("sizes", [(30, 40), (40, 30)])
def test_certain_beliefs_give_the_plain_matching(sizes: tuple[int, int]) -> None:
    """If every report is known to be true, the expected distance is the distance."""
    places = [drawn(g, size, 2) for g, size in enumerate(sizes)]
    plain, aware = LeastCostMatching(), LeastCostMatching(cost="expected")
    found = answer(aware, places, beliefs=[exactly(group) for group in places])
    costs = [plain.objective(places, told) for told in (answer(plain, places), found)]
    assert costs[0] == pytest.approx(costs[1])


def test_the_expected_cost_is_the_least_of_all() -> None:
    """The matching's cost by the beliefs is what a dense solver finds on expected distances."""
    mechanism = GridResponse(domain=BOX, epsilon=2.0, cells=(3, 3))
    places = [drawn(7, 60, 2) ** 2 * 2 - 1, drawn(8, 80, 2) ** 2 * 2 - 1]
    reports = [mechanism.randomize(group, seeded(g)) for g, group in enumerate(places)]
    seen = [numbers(mechanism, group) for group in reports]
    known = [belief(mechanism, group) for group in reports]
    apart = cdist(known[0].places, known[1].places)
    costs = (known[0].weights @ apart @ known[1].weights.T)[np.ix_(known[0].kinds, known[1].kinds)]
    for task, table in (
        (LeastCostMatching(cost="expected"), costs),
        (
            MaximumMatching(radius=0.4, cost="expected"),
            (known[0].weights @ (apart > 0.4) @ known[1].weights.T)[
                np.ix_(known[0].kinds, known[1].kinds)
            ],
        ),
    ):
        told = answer(task, seen, beliefs=known)[0]
        assert isinstance(told, References)
        paid = table[told.owners(), told.indices].sum()
        assert paid == pytest.approx(table[linear_sum_assignment(table)].sum())


def test_candidates_can_be_chosen_by_expected_costs() -> None:
    """Lists by expected costs are full and balanced too."""
    mechanism = GridResponse(domain=BOX, epsilon=2.0, cells=(3, 3))
    reports = [mechanism.randomize(drawn(g, 90, 2), seeded(g)) for g in (1, 2)]
    seen = [numbers(mechanism, group) for group in reports]
    task = LeastCostMatching(candidates=5, cost="expected")
    told = answer(task, seen, beliefs=[belief(mechanism, group) for group in reports])[1]
    assert isinstance(told, References)
    assert told.second is not None
    assert np.all(told.counts() - told.second == 5)


def test_what_has_no_density_is_refused() -> None:
    """Categories have no distances, and an invalid cost is an error."""
    labels = GridResponse(domain=Categories(("a", "b", "c")), epsilon=1.0)
    with pytest.raises(Refused, match="no decoder that learns where people are"):
        belief(labels, np.zeros((3, 1), dtype=np.int64))
    with pytest.raises(Misuse, match="`cost` must be one of distance, expected"):
        LeastCostMatching(cost="regret")
