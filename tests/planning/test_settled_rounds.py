"""Plans for rounds with letters: cells and decoys by what people end up with."""

import numpy as np
import pytest

from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.planning import Group, Plan, plan
from coatcheck.planning.budget_search import Promise, usual_delta
from coatcheck.planning.settled_rounds import choose_settled, has_letters, near_radii, near_squares
from coatcheck.protocol.drafting import Draft
from coatcheck.simulation.round import simulate
from coatcheck.tasks import Task
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.neighbours import Neighbours

SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
SIDES = ("few", "many")


def matched(candidates: int = 5) -> LeastCostMatching:
    """Return a matching of two groups with candidates."""
    return LeastCostMatching(groups=SIDES, candidates=candidates)


def planned(
    sizes: tuple[int, ...], task: Task, *, epsilon: float = 1.0, decoys: int | None = None
) -> Plan:
    """Plan for people spread evenly over the square."""
    groups = {name: Group(SQUARE, size) for name, size in zip(task.groups, sizes, strict=True)}
    delta = usual_delta(sizes)
    return plan(
        groups, epsilon=epsilon, delta=delta, goal="task", task=task, entropy=4, decoys=decoys
    )


def test_decoys_are_chosen_where_they_serve_clearly_more() -> None:
    """400 and 1,600 people with short lists: one decoy each; the plan says what it tried."""
    chosen = planned((400, 1600), matched(4))
    assert [group.decoys for group in chosen] == [1, 1]
    assert all(group.randomizer.epsilon <= 6 for group in chosen)
    assert all(group.best.guarantee.epsilon <= 1 for group in chosen)
    first, plain, longer = chosen.tried
    assert first.decoys == 1
    assert plain.decoys == longer.decoys == 0
    assert longer.candidates == first.candidates == 2 * plain.candidates
    assert first.score > longer.score + 0.02 > plain.score
    assert all(one.held_out for one in chosen.tried)
    text = str(chosen)
    assert "1 decoy, 9 cells, local ε = 6" in text
    assert text.count("(chosen)") == 1
    assert "candidates per person" in text


def test_a_small_crowd_has_no_decoys() -> None:
    """150 and 180 people: as many letters to more candidates serve more people."""
    chosen = planned((150, 180), matched(8))
    assert [group.decoys for group in chosen] == [0, 0]
    assert {one.decoys for one in chosen.tried} >= {0}


def test_a_plan_with_decoys_is_a_draft_and_a_round() -> None:
    """The decoys of the plan are in the terms, and the round promises what the plan does."""
    chosen = planned((40, 60), matched(3), epsilon=3.0, decoys=2)
    draft = Draft(round="r", task=matched(3), groups=chosen.groups)
    assert [group.decoys for group in draft.groups] == [2, 2]
    rng = np.random.default_rng(5)
    outcome = simulate(chosen, [rng.uniform(-1, 1, (n, 2)) for n in (40, 60)], entropy=1)
    assert [group.decoys for group in outcome.round.terms.groups] == [2, 2]
    for group, promise in zip(chosen, outcome.guarantees, strict=True):
        assert promise.epsilon == pytest.approx(group.best.guarantee.epsilon, rel=1e-6)
        assert promise.decoys == 2


def test_corrupted_people_expose_more_messages() -> None:
    """With decoys a corrupted person gets more answers, and each exposes messages."""
    groups = {name: Group(SQUARE, 300, corrupted=2) for name in SIDES}
    task = matched(3)
    chosen = plan(groups, epsilon=2.0, delta=1e-5, goal="task", task=task, entropy=1, decoys=1)
    for group in chosen:
        assert group.best.guarantee.exposed == 2 * 2 * 6
        assert group.best.guarantee.anonymous == 300 - 2 - 24


def test_neighbours_are_planned_too() -> None:
    """People who find out by letter who is near: the share of those near who are found."""
    task = Neighbours(radius=0.25, limit=12, mutual=True, by="chance")
    chosen = planned((400,), task, epsilon=2.0)
    assert 0.5 < chosen.tried[0].score <= 1
    assert chosen.groups[0].randomizer.name == "grid"


def test_the_same_seed_plans_the_same() -> None:
    """A plan depends on its arguments alone."""
    one, two = (planned((80, 90), matched(3), decoys=0) for _ in range(2))
    assert one.tried == two.tried


def test_who_settles_and_what_is_near() -> None:
    """The radius of the task is near, else a fifth of the shorter side; cells are squares."""
    assert not has_letters(LeastCostMatching())
    assert has_letters(matched())
    assert has_letters(Neighbours(radius=1.0, mutual=True, by="chance"))
    assert near_radii(matched(), SQUARE) == pytest.approx((0.1, 0.2, 0.3, 0.4))
    wide = Box((0.0, 0.0), (4.0, 1.0))
    assert near_radii(MaximumMatching(radius=2.0, candidates=3), wide)[-1] == 2.0
    assert near_squares(wide, 16) == (8, 2)
    assert near_squares(Box((0.0,), (1.0,)), 9) == (9,)


def test_what_cannot_be_planned_is_refused() -> None:
    """Decoys need letters and boxes, and one round."""
    ball = Ball(radius=1.0, p=2, dimension=2)
    promise = Promise(epsilon=1.0, delta=1e-5, crowd=50)
    with pytest.raises(Misuse, match="places in a box"):
        choose_settled(
            matched(), [promise, promise], domains=[ball, ball], prior=None, entropy=seeded(1)
        )
    with pytest.raises(Misuse, match="settle by letter"):
        plan({"people": Group(SQUARE, 50)}, epsilon=1.0, delta=1e-4, decoys=1)
    with pytest.raises(Misuse, match="single round"):
        Promise(epsilon=1.0, delta=1e-5, crowd=50, decoys=1, rounds=2)
