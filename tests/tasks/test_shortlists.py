"""Candidates: full, mutual and balanced lists, the same for the same batch in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck import tasks
from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan, draft_groups
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.randomizers import GridResponse
from coatcheck.tasks import Floats, References, answer
from coatcheck.tasks.equivariance import check_equivariance
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.shortlists import candidates, settled


def cells(seed: int, count: int, side: int) -> Floats:
    """Centres of the cells of a grid, drawn at random; side 0 for points in general position."""
    drawn = seeded(seed).uniforms(2 * count).reshape(count, 2) * 2 - 1
    return np.floor(drawn * side) / side if side else drawn


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from([0, 1, 3, 9]),
    st.integers(2, 7),
)
def test_lists_are_full_and_balanced(
    seed: int, people: int, more: int, side: int, count: int
) -> None:
    """No list has a person twice; the first lists are full, and loads differ by at most one."""
    others = people + more
    first, second = candidates(
        cells(seed, people, side), cells(seed + 1, others, side), count=count
    )
    assert np.all((first >= 0).sum(axis=1) == min(count, others))
    for own in np.concatenate([first, second], axis=1):
        named = own[own >= 0]
        assert len(set(named.tolist())) == len(named)
    loads = np.bincount(first[first >= 0], minlength=others)
    assert np.ptp(loads) <= 1 if others else True
    again = np.bincount(second[second >= 0], minlength=others)
    assert again.max(initial=0) <= count


def test_second_lists_are_full_in_a_crowd() -> None:
    """With some room, second lists are as full and as balanced as first ones."""
    first, second = candidates(cells(1, 400, 1), cells(2, 500, 1), count=5)
    assert np.all(second >= 0)
    for listed in (first, second):
        assert np.ptp(np.bincount(listed.ravel(), minlength=500)) <= 1


def test_lists_name_people_nearby() -> None:
    """Candidates are far nearer than chance, whose mean distance is about one."""
    ours, theirs = cells(3, 2000, 0), cells(4, 2400, 0)
    for listed in candidates(ours, theirs, count=5):
        apart = np.hypot.reduce(ours[:, None, :] - theirs[listed], axis=2)
        assert apart.mean() < 0.15


@pytest.mark.parametrize("sizes", [(40, 55), (55, 40), (40, 40)])
def test_answers_are_mutual(sizes: tuple[int, int]) -> None:
    """A person on a list has the other on the same list, whichever side is smaller."""
    task = MaximumMatching(radius=0.4, candidates=4)
    answers = answer(task, [cells(5, sizes[0], 3), cells(6, sizes[1], 3)])
    named: list[list[set[tuple[int, int]]]] = []
    for own in answers:
        assert isinstance(own, References)
        assert own.second is not None
        passes: list[set[tuple[int, int]]] = [set(), set()]
        for report in range(len(own)):
            first = own.counts()[report] - own.second[report]
            for at, other in enumerate(own.of(report)):
                passes[int(at >= first)].add((report, int(other)))
        named.append(passes)
    for ours, theirs in zip(*named, strict=True):
        assert ours == {(b, a) for a, b in theirs}


@pytest.mark.parametrize(
    "task", [LeastCostMatching(candidates=3), MaximumMatching(radius=0.4, candidates=2)]
)
def test_lists_do_not_depend_on_the_order(task: tasks.Task) -> None:
    """The checker finds no counterexample, though ties are broken by draws."""
    verdict = check_equivariance(task, trials=100, entropy=5)
    assert verdict.equivariant, str(verdict)


def test_settling_pairs_the_nearest_who_list_each_other() -> None:
    """Two want the same partner: the nearer one gets it, the other goes on, then to list two."""
    ours = np.array([[0.0], [0.4], [5.0]])
    theirs = np.array([[0.5], [3.0], [9.0]])
    first, second = np.array([[0, 1], [0, 1], [0, -1]]), np.array([[-1], [-1], [2]])
    assert settled(ours, theirs, (first, second)).tolist() == [1, 0, 2]


def test_settling_among_candidates_beats_one_partner() -> None:
    """By the task's own score, five candidates on noisy reports beat the server's best partner."""
    truth = [cells(7, 300, 0), cells(8, 300, 0)]
    noise = seeded(9).uniforms(1200).reshape(2, 300, 2) - 0.5
    seen = [place + 1.5 * moved for place, moved in zip(truth, noise, strict=True)]
    one, five = (LeastCostMatching(candidates=k).score(truth, estimates=seen).value for k in (1, 5))
    assert five < 0.8 * one


def test_both_lists_count_as_exposed() -> None:
    """A corrupted person gets two lists; terms and promise count both."""
    task = LeastCostMatching(candidates=5)
    assert task.params()["candidates"] == 5
    assert tasks.exposure(task, sizes=(100, 100), corrupted=(2, 3)) == (30, 20)
    assert [size.references for size in task.answer_size((2, 2))] == [10, 10]


def test_more_candidates_than_people_are_refused() -> None:
    """Terms are not drafted for groups that may be smaller than a list, and odd numbers are not."""
    mechanism = GridResponse(domain=Box((-1.0, -1.0), (1.0, 1.0)), epsilon=2.0, cells=(3, 3))
    plans = [
        GroupPlan(name=name, randomizer=mechanism, minimum=minimum, delta=1e-4)
        for name, minimum in (("riders", 100), ("drivers", 4))
    ]
    with pytest.raises(Misuse, match=r"'drivers' is 4, but task.* needs 5"):
        draft_groups(plans, task=LeastCostMatching(candidates=5), suite=CLASSICAL)
    with pytest.raises(Misuse, match="`candidates` must be a whole number"):
        LeastCostMatching(candidates=0)
    with pytest.raises(Misuse, match="leave `capacity` at 1"):
        LeastCostMatching(candidates=2, capacity=(1, 3))


@pytest.mark.parametrize("cells", [2, 3, 5])
def test_lists_between_equal_places_are_found(cells: int) -> None:
    """Both sides report cells of one grid, so that most pairs cost nothing: the search ends."""
    rng = np.random.default_rng(cells)
    rows, columns = (
        rng.integers(0, cells, size=(count, 2)).astype(np.float64) for count in (300, 1500)
    )
    first, second = candidates(rows, columns, count=8)
    assert (first >= 0).all()
    assert (rows[:, None] == columns[first]).all(axis=2).mean() > 0.7
    assert second.shape == first.shape
