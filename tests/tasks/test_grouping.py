"""Groups: all people in groups of the stated size, near the optimum."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.tasks import Floats, References, answer
from coatcheck.tasks.grouping import Groups, group_up


def points(seed: int, count: int, side: int = 0) -> Floats:
    """Points of the unit square, or of a coarse lattice in it."""
    drawn = seeded(seed).uniforms(2 * count).reshape(count, 2)
    return np.rint(drawn * side) / side if side else drawn


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 60),
    st.integers(2, 6),
    st.sampled_from([0, 2]),
    st.sampled_from([1.0, 1e-160, 1e150]),
)
def test_groups_are_disjoint_and_full(
    seed: int, people: int, size: int, side: int, scale: float
) -> None:
    """As many full groups as fit, no person in two, and the cost is not below the bound."""
    places = points(seed, people, side) * scale
    teams = group_up(places, size)
    assert teams.shape == (people // size, size)
    assert len(set(teams.ravel().tolist())) == teams.size
    task = Groups(size=size)
    cost, bound = task.bounds([places], answer(task, [places]))
    assert bound <= cost * (1 + 1e-9)


def test_members_name_each_other() -> None:
    """Each member's answer names all others of the group."""
    (told,) = answer(Groups(size=3), [points(1, 32)])
    assert isinstance(told, References)
    assert sorted(np.unique(told.counts()).tolist()) == [0, 2]
    for person in range(32):
        for other in told.of(person):
            rest = set(told.of(int(other)).tolist())
            assert rest == {person, *told.of(person).tolist()} - {int(other)}


@pytest.mark.parametrize(("people", "size"), [(6, 2), (6, 3), (8, 2), (8, 4), (9, 3)])
def test_small_crowds_are_near_the_best(people: int, size: int) -> None:
    """Against all groupings of small crowds: on average within a tenth of the best."""
    ratios = []
    for seed in range(20):
        places = points(seed, people)
        apart = np.hypot.reduce(places[:, None] - places[None], axis=2)
        ours = sum(apart[np.ix_(team, team)].sum() for team in group_up(places, size))
        ratios.append(ours / _best(apart, tuple(range(people)), size))
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) < 1.1


def _best(apart: Floats, people: tuple[int, ...], size: int) -> float:
    """The least cost of grouping these people, by trying everything."""
    if not people:
        return 0.0
    first, *others = people
    best = np.inf
    for rest in combinations(others, size - 1):
        team = (first, *rest)
        left = tuple(one for one in others if one not in rest)
        best = min(best, apart[np.ix_(team, team)].sum() + _best(apart, left, size))
    return best


def test_large_crowds_keep_their_bound() -> None:
    """Groups of four among 3,000: the mean distance is below 1.8 times the lower bound."""
    task, places = Groups(size=4), points(9, 3000)
    cost, bound = task.bounds([places], answer(task, [places]))
    assert bound < cost < 1.8 * bound


def test_what_is_no_group() -> None:
    """One person is no group."""
    with pytest.raises(Misuse, match="two or more"):
        Groups(size=1)
    assert Groups(size=4).exposed([100]) == ((3,),)
