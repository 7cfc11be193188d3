"""A task by regions answers as the whole does, in any order and on any worker."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.tasks import Floats, References, Values, answer
from coatcheck.tasks.execution import Region, by_regions, regions
from coatcheck.tasks.neighbours import Neighbours
from coatcheck.tasks.standing import Standing


def points(seed: int, count: int, *, steps: int, dimension: int = 2) -> Floats:
    """Points on a lattice with `steps` steps (few steps: many ties), or anywhere for 0."""
    drawn = seeded(seed).uniforms(count * dimension).reshape(count, dimension)
    return np.rint(drawn * steps) / steps if steps else drawn


def told(found: References, places: Floats) -> list[list[tuple[float, ...]]]:
    """Return the places in each answer, in order: reports at one place are interchangeable."""
    return [[tuple(places[j]) for j in found.of(i)] for i in range(len(found))]


CROWDS = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(0, 80),
    st.sampled_from([0, 1, 3, 10]),
    st.integers(1, 3),
)


@settings(max_examples=300, deadline=None)
@given(CROWDS, st.floats(0.01, 1.2), st.integers(1, 9))
def test_regions_answer_as_the_whole(
    crowd: tuple[int, int, int, int], radius: float, parts: int
) -> None:
    """Each person gets the same places in the same order, never their own or one twice."""
    seed, count, steps, dimension = crowd
    places = points(seed, count, steps=steps, dimension=dimension)
    task = Neighbours(radius=radius, limit=3)
    (whole,) = answer(task, [places])
    (found,) = answer(task, [places], regions=parts)
    assert isinstance(whole, References)
    assert isinstance(found, References)
    assert told(found, places) == told(whole, places)
    assert np.all(found.owners() != found.indices)
    pairs = list(zip(found.owners().tolist(), found.indices.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


def test_each_report_is_in_one_region_and_sees_its_reach() -> None:
    """Each report belongs to one region, which also has all reports within its reach."""
    places = points(1, 500, steps=7)
    cut = regions(places, reach=0.2, count=6)
    assert sorted(np.concatenate([part.own for part in cut]).tolist()) == list(range(500))
    assert max(len(part.own) for part in cut) <= 2 * min(len(part.own) for part in cut)
    for part in cut:
        apart = np.hypot.reduce(places[part.own][:, None] - places[None], axis=2).min(axis=0)
        assert set(np.flatnonzero(apart <= 0.2)) <= set(part.around.tolist())
        assert len(part.around) < 500


def test_regions_run_elsewhere() -> None:
    """Other processes answer regions; the whole is the same as that of this one."""
    places = points(2, 3000, steps=0)
    task = Neighbours(radius=0.1, limit=4)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        (found,) = answer(task, [places], regions=4, run=pool.map)
    (whole,) = answer(task, [places])
    assert isinstance(found, References)
    assert isinstance(whole, References)
    assert np.array_equal(found.indptr, whole.indptr)
    assert np.array_equal(found.indices, whole.indices)


def test_only_tasks_of_limited_reach_run_by_region() -> None:
    """Others are run whole: mutual lists and standings depend on all reports."""
    task = Neighbours(radius=0.1, mutual=True)
    with pytest.raises(Misuse, match="looks at everybody"):
        by_regions(task, points(3, 9, steps=0), count=2)

    def never(_do: Callable[[Region], References], _all: Iterable[Region]) -> list[References]:
        raise AssertionError("run by region")

    places = points(3, 9, steps=0, dimension=1)
    (found,) = answer(Standing(), [places], regions=3, run=never)
    assert isinstance(found, Values)
    assert len(answer(task, [places], regions=3, run=never)[0]) == 9
