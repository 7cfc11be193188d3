"""Neighbours and pair counts against brute force, with and without compiled loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.tasks import Floats, References
from coatcheck.tasks.neighbours import Neighbours, nearest_within
from coatcheck.tasks.solvers import close_pairs as pairs_module
from coatcheck.tasks.solvers.close_pairs import agreement, close_pairs, cut


def points(seed: int, count: int, *, steps: int, dimension: int) -> Floats:
    """Points on a lattice with `steps` steps (few steps: many ties), or anywhere for 0."""
    drawn = seeded(seed).uniforms(count * dimension).reshape(count, dimension)
    return np.rint(drawn * steps) / steps if steps else drawn


CROWDS = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(0, 60),
    st.sampled_from([0, 1, 3, 10]),
    st.integers(1, 3),
)


def close(places: Floats, radius: float) -> np.ndarray:
    """List each person's neighbours by brute force, without the person."""
    within = ((places[:, None] - places[None]) ** 2).sum(axis=2) <= radius * radius
    return np.asarray(within & ~np.eye(len(places), dtype=bool))


@settings(max_examples=1000, deadline=None)
@given(CROWDS, st.floats(0.01, 1.2), st.integers(1, 8))
def test_neighbours_equal_brute_force(
    crowd: tuple[int, int, int, int], radius: float, limit: int
) -> None:
    """The nearest within the radius, nearest first, ties by place: distances and places agree."""
    seed, count, steps, dimension = crowd
    places = points(seed, count, steps=steps, dimension=dimension)
    found = nearest_within(places, radius=radius, limit=limit)
    apart = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    for i, near in enumerate(close(places, radius)):
        others = np.flatnonzero(near)
        best = sorted((apart[i, j], *places[j]) for j in others)[:limit]
        assert [(apart[i, j], *places[j]) for j in found.of(i)] == best
        assert i not in found.of(i)
        assert len(set(found.of(i).tolist())) == len(best)


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=500, deadline=None)
@given(crowd=CROWDS, radius=st.floats(0.01, 1.5), block=st.integers(2, 40))
def test_counts_equal_brute_force(
    compiled: bool,  # noqa: FBT001 - a parameter of the test
    crowd: tuple[int, int, int, int],
    radius: float,
    block: int,
) -> None:
    """True, noisy and common pairs are exact for every block size, compiled or not."""
    seed, count, steps, dimension = crowd
    truth = points(seed, count, steps=steps, dimension=dimension)
    noisy = truth + (points(seed + 1, count, steps=0, dimension=dimension) - 0.5) * radius
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_module, "available", lambda: compiled)
        patch.setattr(pairs_module, "_BLOCK", block)
        patch.setattr(pairs_module, "_CHUNK", block)
        found = agreement(truth, noisy, radius=radius)
    near, reported = close(truth, radius), close(noisy, radius)
    assert found.true == near.sum()
    assert found.noisy == reported.sum()
    assert found.both == (near & reported).sum()


@settings(max_examples=200, deadline=None)
@given(crowd=CROWDS, size=st.integers(1, 20))
def test_blocks_hold_every_point_once(crowd: tuple[int, int, int, int], size: int) -> None:
    """Blocks partition the points, have no more places than asked, and lie in their boxes."""
    seed, count, steps, dimension = crowd
    count += 1
    places = points(seed, count, steps=steps, dimension=dimension)
    tree = cut(places, size=size)
    assert sorted(tree.order.tolist()) == list(range(count))
    covered = 0
    for node in range(len(tree.start)):
        inside = places[tree.order[tree.start[node] : tree.stop[node]]]
        assert np.array_equal(inside.min(axis=0), tree.low[node])
        assert np.array_equal(inside.max(axis=0), tree.high[node])
    for leaf in tree.leaves():
        held = tree.stop[leaf] - tree.start[leaf]
        assert held <= size or np.array_equal(tree.low[leaf], tree.high[leaf])  # all at one place
        covered += held
    assert covered == count
    for node in range(len(tree.start)):  # what a search skips is what lies below
        below = tree.start[node + 1 : tree.skip[node]]
        assert np.all((below >= tree.start[node]) & (below < tree.stop[node]))
        assert tree.skip[node] == len(tree.start) or tree.start[tree.skip[node]] == tree.stop[node]


def test_f1_is_the_papers() -> None:
    """Precision, recall and F1 of a small case by hand; two empty sets agree."""
    found = agreement(np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [9.0]]), radius=1.0)
    assert (found.true, found.noisy, found.both) == (4, 2, 2)
    assert (found.precision, found.recall) == (1.0, 0.5)
    assert found.f1 == pytest.approx(2 / 3)
    alone = agreement(np.zeros((1, 2)), np.ones((1, 2)), radius=1.0)
    assert (alone.precision, alone.recall, alone.f1) == (1.0, 1.0, 1.0)
    assert close_pairs(np.empty((0, 2)), radius=1.0) == 0
    with pytest.raises(Misuse, match="as many"):
        agreement(np.zeros((2, 1)), np.zeros((3, 1)), radius=1.0)


def test_many_at_one_place_are_served_without_a_square() -> None:
    """Five thousand people at one place: all get their limit, and never themselves."""
    places = np.zeros((5000, 2))
    found = nearest_within(places, radius=0.1, limit=4)
    assert np.all(found.counts() == 4)
    assert not np.any(found.owners() == found.indices)
    assert close_pairs(places, radius=0.1) == 5000 * 4999


def test_mutual_neighbours_bound_who_may_write() -> None:
    """With mutual neighbours only, no person is on more lists than the limit."""
    hub = np.concatenate([np.zeros((1, 2)), points(2, 60, steps=0, dimension=2) + 0.05])
    (loose,) = Neighbours(radius=3.0, limit=2)([hub])
    (strict,) = Neighbours(radius=3.0, limit=2, mutual=True)([hub])
    assert isinstance(loose, References)
    assert isinstance(strict, References)
    assert np.bincount(loose.indices).max() > 2
    assert np.bincount(strict.indices).max() <= 2
    for i in range(len(hub)):
        assert all(i in strict.of(j) for j in strict.of(i))


def test_a_score_judges_the_lists_that_are_given_out() -> None:
    """Four in a row: lists of one are right or wrong, whoever else is near."""
    truth = np.array([[0.0], [1.0], [2.0], [3.0]])
    task = Neighbours(radius=1.0, limit=1)
    assert task.score([truth], estimates=[truth]).value == 1.0
    moved = np.array([[0.0], [9.0], [9.5], [0.5]])  # lists 0-3 and 1-2, of which 1-2 is right
    assert task.score([truth], estimates=[moved]).value == pytest.approx(0.5)
    far = np.array([[0.0], [9.0], [9.5], [50.0]])  # two lists are empty, two are right
    assert task.score([truth], estimates=[far]).value == pytest.approx(2 / 3)
    assert task.score([truth], estimates=[far], answers=task([truth])).value == 1.0
    alone = [np.array([[0.0], [7.0]])]
    assert task.score(alone, estimates=alone).value == 1.0


def test_meaningless_parameters_are_refused() -> None:
    """No radius, no limit."""
    with pytest.raises(Misuse, match="radius"):
        Neighbours(radius=-1.0)
    with pytest.raises(Misuse, match="limit"):
        Neighbours(radius=1.0, limit=0)
