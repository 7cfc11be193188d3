"""Lists of those most likely near: mutual, of one length, and by Bayes' rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck import tasks
from coatcheck.errors import Misuse
from coatcheck.tasks.contract import Belief
from coatcheck.tasks.likely_lists import likely_lists, near_chances
from coatcheck.tasks.neighbours import Neighbours, share_found


def belief_of(seed: int, reports: int, kinds: int, places: int) -> Belief:
    """Return random posteriors of random reports."""
    rng = np.random.default_rng(seed)
    return Belief(
        rng.integers(0, kinds, size=reports),
        rng.dirichlet(np.full(places, 0.3), size=kinds),
        rng.uniform(-1, 1, size=(places, 2)),
        rng.uniform(0.2, 1, size=kinds),
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 9), st.integers(1, 12))
def test_lists_are_mutual_and_of_one_length(
    seed: int, reports: int, kinds: int, limit: int
) -> None:
    """Nobody lists themselves or anybody twice, nobody has more than the limit, all is mutual."""
    belief = belief_of(seed, reports, kinds, 12)
    lists = likely_lists(belief, radius=0.7, limit=limit)
    assert len(lists) == reports
    named = [set(lists.of(i).tolist()) for i in range(reports)]
    for i, others in enumerate(named):
        assert len(others) == len(lists.of(i)) <= limit
        assert i not in others
        assert all(i in named[j] for j in others)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(40, 90), st.integers(1, 6))
def test_nobody_in_one_cell_is_left_out(seed: int, reports: int, half: int) -> None:
    """In one kind of report everybody's list is full."""
    belief = belief_of(seed, reports, 1, 5)
    lists = likely_lists(belief, radius=0.5, limit=2 * half)
    assert (lists.counts() == 2 * half).all()


def test_the_chance_is_that_of_two_independent_people() -> None:
    """Against the sum over all pairs of places."""
    belief = belief_of(3, 30, 4, 7)
    chances = near_chances(belief, radius=0.6)
    for a in range(4):
        for b in range(4):
            total = sum(
                belief.weights[a, u] * belief.weights[b, v]
                for u in range(7)
                for v in range(7)
                if np.hypot(*(belief.places[u] - belief.places[v])) <= 0.6
            )
            assert chances[a, b] == pytest.approx(belief.real[a] * belief.real[b] * total)


def test_the_likely_are_listed_first() -> None:
    """People of a certain place come before people who may be anywhere, and before decoys."""
    weights = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    belief = Belief(
        np.repeat([0, 1, 2], 10), weights, np.array([[0.0], [9.0]]), np.array([1.0, 0.4, 1.0])
    )
    lists = likely_lists(belief, radius=1.0, limit=4)
    for i in range(10):
        assert (lists.of(i) < 10).all()
    assert all((lists.of(i) >= 10).all() for i in range(10, 30))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_lists_do_not_depend_on_the_order(seed: int) -> None:
    """Shuffled reports get the same lists, but for reports of one kind, which are alike."""
    belief = belief_of(seed, 50, 5, 9)
    task = Neighbours(radius=0.6, limit=4, mutual=True, by="chance")
    order = np.random.default_rng(seed).permutation(50)
    estimates = belief.places[belief.weights.argmax(axis=1)][belief.kinds]

    def kinds_listed(which: np.ndarray) -> list[list[int]]:
        moved = replace(belief, kinds=belief.kinds[which])
        (lists,) = tasks.answer(task, [estimates[which]], beliefs=[moved])
        assert isinstance(lists, tasks.References)
        whole = [
            (int(moved.kinds[i]), tuple(sorted(moved.kinds[lists.of(i)].tolist())))
            for i in range(50)
        ]
        return sorted(whole)  # type: ignore[arg-type]

    assert kinds_listed(np.arange(50)) == kinds_listed(order)


def test_without_posteriors_the_nearest_are_listed() -> None:
    """A caller without beliefs gets the mutual nearest, as by distance."""
    places = np.random.default_rng(1).uniform(size=(40, 2))
    by_chance = Neighbours(radius=0.3, limit=5, mutual=True, by="chance")
    by_distance = Neighbours(radius=0.3, limit=5, mutual=True)
    for one, other in zip(by_chance([places]), by_distance([places]), strict=True):
        assert isinstance(one, tasks.References)
        assert isinstance(other, tasks.References)
        assert np.array_equal(one.indices, other.indices)


def test_wrong_choices_are_refused() -> None:
    """Lists by chance are mutual, and there are two ways to choose."""
    with pytest.raises(Misuse, match="must be one of distance, chance"):
        Neighbours(radius=1.0, by="luck")
    with pytest.raises(Misuse, match="set `mutual`"):
        Neighbours(radius=1.0, by="chance")


def test_the_share_found_counts_a_few_for_everybody() -> None:
    """Found people beyond those wanted, far ones, and decoys count nothing."""
    places = np.array([[0.0], [0.1], [0.2], [5.0]])
    everybody = tasks.References(0, np.array([0, 3, 4, 4, 4]), np.array([1, 2, 3, 0]), ordered=True)
    assert share_found(everybody, places, radius=1.0, wanted=1) == pytest.approx(2 / 3)
    assert share_found(everybody, places, radius=1.0, wanted=2) == pytest.approx(3 / 6)
    owners = np.array([0, -1, 2, 3])
    assert share_found(everybody, places, radius=1.0, wanted=2, owners=owners) == pytest.approx(
        1 / 6
    )
