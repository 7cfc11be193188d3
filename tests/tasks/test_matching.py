"""Matchings against independent solvers: the cost is scipy's least, the size Hopcroft-Karp's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial.distance import cdist

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse, Refused
from coatcheck.tasks import Floats, References, answer
from coatcheck.tasks.contract import distinct, scale_of
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.solvers import assignment
from coatcheck.tasks.solvers.assignment import assign
from coatcheck.tasks.solvers.maximum import (
    _all_pairs,
    _by_flow,
    _by_reach,
    _compiled_graph,
    _graph,
    _match,
    _tree,
    maximum,
)
from coatcheck.tasks.solvers.maximum_kernels import matched

KINDS = ("spread", "lattice", "clusters", "equal")


def points(seed: int, count: int, kind: str, dimension: int = 2) -> Floats:
    """Points of a kind: in general position, with ties, in few dense places, or all equal."""
    drawn = seeded(seed).uniforms(count * dimension).reshape(count, dimension)
    if kind == "lattice":
        return np.rint(drawn * 4)
    if kind == "clusters":
        return np.rint(drawn * 2) + (drawn * 97 % 1) * 0.05
    return drawn if kind == "spread" else np.full((count, dimension), 0.25)


CROWDS = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(0, 40),
    st.sampled_from(KINDS),
    st.integers(1, 3),
)


@pytest.fixture(params=["compiled", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute: with numba, and without."""
    if request.param == "plain":
        monkeypatch.setattr(assignment, "available", lambda: False)
    else:
        monkeypatch.setattr(assignment, "_SMALL_PAIRS", 20)
    return str(request.param)


@settings(max_examples=1000, deadline=None)
@given(CROWDS, st.sampled_from([0.0, 1e9]), st.sampled_from([1.0, 2.0**-530, 2.0**500]))
def test_least_cost_equals_the_dense_solver(
    crowd: tuple[int, int, int, str, int], offset: float, scale: float
) -> None:
    """The auction finds scipy's least cost and proves it, wherever the places lie."""
    seed, n, more, kind, dimension = crowd
    rows = points(seed, n, kind, dimension) + offset
    columns = points(seed + 1, n + more, kind, dimension) + offset
    distances = cdist(rows - offset, columns - offset)
    least = distances[linear_sum_assignment(distances)].sum() * scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "_SMALL_PAIRS", 0)
        found = assign(rows * scale, columns * scale)
    assert len(set(found.columns.tolist())) == n
    paid = distances[np.arange(n), found.columns].sum() * scale
    assert found.cost == pytest.approx(paid, rel=1e-9, abs=0.0)
    assert found.cost == pytest.approx(least, rel=1e-9, abs=1e-12 * scale)
    assert found.lower_bound == pytest.approx(found.cost, rel=1e-9, abs=1e-12 * scale)


def crowded(seed: int, count: int, places: int) -> Floats:
    """Points at few places, some of them far more crowded than others."""
    entropy = seeded(seed)
    where = np.rint(entropy.uniforms(places * 2).reshape(places, 2) * 20)
    return where[(entropy.uniforms(count) ** 3 * places).astype(np.int64)]


@pytest.mark.parametrize("places", [1, 2, 6, 40, 300])
@pytest.mark.parametrize(("n", "m"), [(400, 400), (400, 500), (150, 900)])
def test_crowded_places_are_exact_too(n: int, m: int, places: int, loops: str) -> None:
    """Many points at one place, as grid reports are: scipy's least cost, proven."""
    assert loops
    for seed in range(6):
        rows, columns = crowded(seed, n, places), crowded(seed + 50, m, places)
        distances = cdist(rows, columns)
        found = assign(rows, columns)
        least = distances[linear_sum_assignment(distances)].sum()
        assert found.cost == pytest.approx(least, rel=1e-9)
        assert found.gap < 1e-9
        assert len(set(found.columns.tolist())) == n


@pytest.mark.parametrize("seed", [5, 46, 179, 222, 235])
def test_equal_sides_are_solved_until_no_pair_is_left_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is optimal for the pairs looked at is not the answer while another pair helps.

    With as many columns as rows nobody is idle, and the idle row has no price.
    """
    monkeypatch.setattr(assignment, "_SMALL_PAIRS", 20)
    rows, columns = crowded(seed, 400, 300), crowded(seed + 50, 400, 300)
    assert assign(rows, columns).gap < 1e-9


def test_one_crowded_cell_is_not_cut_off(loops: str) -> None:
    """2,700 riders in a cell, 2,600 drivers there and 400 one away: a hundred must travel."""
    assert loops
    riders = np.zeros((2700, 2))
    drivers = np.concatenate([np.zeros((2600, 2)), np.tile([1.0, 0.0], (400, 1))])
    found = assign(riders, drivers)
    assert found.cost == found.lower_bound == 100.0
    assert np.all(found.columns[:2600] == np.arange(2600))  # handed out in the order given


def test_what_is_not_proven_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matching cut off early states its gap; the task refuses a gap that it does not allow."""
    places = [points(8, 900, "clusters"), points(9, 900, "clusters")]
    monkeypatch.setattr(assignment, "_SMALL_PAIRS", 0)
    monkeypatch.setattr(assignment, "_ROUNDS", 1)
    assert assign(*places).gap > 1e-3
    with pytest.raises(Refused, match="allow a larger gap"):
        answer(LeastCostMatching(gap=1e-3), places)


@settings(max_examples=500, deadline=None)
@given(CROWDS, st.floats(0.01, 1.5))
def test_maximum_equals_hopcroft_karp(crowd: tuple[int, int, int, str, int], radius: float) -> None:
    """All pairs (compiled or not), reach and flow: each matches as many as Hopcroft-Karp."""
    seed, n, more, kind, dimension = crowd
    rows, columns = points(seed, n, kind, dimension), points(seed + 1, n + more, kind, dimension)
    apart = ((rows[:, None] - columns[None]) ** 2).sum(axis=2)
    graph = csr_array((apart <= radius * radius).astype(np.int8))
    largest = (maximum_bipartite_matching(graph, perm_type="column") >= 0).sum()
    ways = [
        maximum(rows, columns, radius=radius),
        _match(_graph(_all_pairs(rows, columns, _tree(columns), radius), apart.shape)),
        _by_reach(rows, columns, _tree(columns), radius),
        _by_flow(distinct(rows), distinct(columns), radius),
    ]
    if dimension == 2:
        compiled = _compiled_graph(rows, columns, radius)
        assert np.array_equal(compiled.toarray(), graph.toarray())
        ways.append(_match(compiled))
    for column_of in ways:
        matched = np.flatnonzero(column_of >= 0)
        assert len(matched) == largest
        assert len(set(column_of[matched].tolist())) == largest
        assert np.all(apart[matched, column_of[matched]] <= radius * radius)


@pytest.mark.parametrize(("n", "m"), [(700, 900), (600, 600), (300, 2000)])
@pytest.mark.parametrize("kind", ["spread", "clusters", "lattice"])
def test_larger_crowds_are_exact_too(n: int, m: int, kind: str, loops: str) -> None:
    """At sizes where candidates, pricing rounds and warm starts all matter, the cost is least."""
    rows, columns = points(5, n, kind), points(6, m, kind)
    distances = cdist(rows, columns)
    least = distances[linear_sum_assignment(distances)].sum()
    found = assign(rows, columns)
    assert found.cost == pytest.approx(least, rel=1e-9)
    assert found.gap < 1e-9
    assert (found.rounds > 0) == (loops == "compiled" and found.cost > 0)


def test_stopped_early_the_gap_is_stated_and_true() -> None:
    """With a gap allowed the bound stays below the least cost, and the cost within the gap."""
    rows, columns = points(8, 900, "clusters"), points(9, 900, "clusters")
    distances = cdist(rows, columns)
    least = distances[linear_sum_assignment(distances)].sum()
    found = assign(rows, columns, gap=0.3)
    assert found.lower_bound <= least * (1 + 1e-12)
    assert least <= found.cost * (1 + 1e-12)
    assert found.gap <= 0.3


def test_too_large_without_compiled_loops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense matrix is never built beyond its limit; the message names the extra."""
    monkeypatch.setattr(assignment, "available", lambda: False)
    monkeypatch.setattr(assignment, "DENSE_PAIRS", 10**5)
    monkeypatch.setattr(assignment, "_SMALL_PAIRS", 0)
    with pytest.raises(Misuse, match=r"pip install 'coatcheck\[fast\]'"):
        assign(points(1, 400, "spread"), points(2, 400, "spread"))


@pytest.mark.parametrize("sizes", [(0, 0), (0, 4), (4, 0), (1, 1), (3, 5), (5, 3)])
@pytest.mark.parametrize("task", [LeastCostMatching(), MaximumMatching(radius=9.0)])
def test_the_smaller_side_is_matched_mutually(
    sizes: tuple[int, int], task: LeastCostMatching | MaximumMatching
) -> None:
    """Unequal and empty groups: partners refer to each other, the surplus gets no match."""
    places = [points(g, n, "spread") for g, n in enumerate(sizes)]
    users, workers = answer(task, places)
    assert isinstance(users, References)
    assert isinstance(workers, References)
    assert users.counts().sum() == workers.counts().sum() == min(sizes)
    for user in range(sizes[0]):
        for worker in users.of(user):
            assert workers.of(worker).tolist() == [user]


def test_the_unreachable_get_no_match() -> None:
    """An empty answer is valid when there is no one within the radius."""
    users, _ = answer(
        MaximumMatching(radius=1.0), [np.array([[0.0], [9.0]]), np.array([[0.5], [0.6]])]
    )
    assert isinstance(users, References)
    assert users.counts().tolist() == [1, 0]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6), st.integers(1, 4))
def test_capacities_serve_several(seed: int, users: int, workers: int, capacity: int) -> None:
    """A worker with room for c serves at most c, at the cost of c workers at that place."""
    places = [points(seed, users, "spread"), points(seed + 1, workers, "spread")]
    task = LeastCostMatching(capacity=(1, capacity))
    found = answer(task, places)
    assert isinstance(found[1], References)
    assert found[1].counts().max() <= capacity
    distances = cdist(places[0], np.repeat(places[1], capacity, axis=0))
    least = distances[linear_sum_assignment(distances)].sum()
    assert task.objective(places, found) == pytest.approx(least, rel=1e-9)


def test_degrees_are_measured_in_metres() -> None:
    """With a scale an axis the nearest in metres wins, not the nearest in degrees."""
    here, places = np.array([[60.0, 10.0]]), np.array([[60.0, 10.015], [60.01, 10.0]])
    scale = scale_of(Box.geographic(south=59.0, west=9.0, north=61.0, east=11.0))
    assert scale == pytest.approx((111_195, 55_598), rel=1e-4)
    assert scale_of(Box((0.0,), (1.0,))) == ()
    plain, _ = answer(LeastCostMatching(), [here, places])
    scaled, _ = answer(LeastCostMatching(scale=scale), [here, places])
    assert isinstance(plain, References)
    assert isinstance(scaled, References)
    assert (plain.of(0).tolist(), scaled.of(0).tolist()) == ([1], [0])
    with pytest.raises(Misuse, match="2 axes"):
        answer(LeastCostMatching(scale=(1.0,)), [here, places])


def test_scores_are_the_papers() -> None:
    """Travel cost is the true distance of the matched; success counts those truly within reach."""
    truth = [np.array([[0.0], [10.0]]), np.array([[1.0], [12.0]])]
    swapped = [truth[0][::-1], truth[1]]
    assert LeastCostMatching().score(truth, estimates=truth).value == pytest.approx(3.0)
    assert LeastCostMatching().score(truth, estimates=swapped).value == pytest.approx(21.0)
    assert MaximumMatching(radius=1.5).score(truth, estimates=truth).value == pytest.approx(0.5)


def test_meaningless_parameters_are_refused() -> None:
    """Capacities above one on both sides, a radius of zero, a gap of one."""
    for capacity in [(2, 2), (0, 1)]:
        with pytest.raises(Misuse, match="capacity"):
            LeastCostMatching(capacity=capacity)
    with pytest.raises(Misuse, match="radius"):
        MaximumMatching(radius=0.0)
    with pytest.raises(Misuse, match="gap"):
        LeastCostMatching(gap=1.0)
    with pytest.raises(Misuse, match="scale"):
        LeastCostMatching(scale=(0.0, 1.0))


@pytest.mark.parametrize("seed", range(20))
def test_compiled_and_plain_matchings_are_as_large(seed: int) -> None:
    """The compiled loops match as many as SciPy, also where many points coincide on an edge."""
    rng = np.random.default_rng(seed)
    few, many = sorted(rng.integers(1, 400, 2))
    rows = np.clip(rng.normal(size=(few, 2)), -1, 1)  # as estimates are clipped to a square
    columns = np.clip(rng.normal(size=(many, 2)), -1, 1)
    apart = np.linalg.norm(rows[:, None] - columns[None], axis=2)
    graph = csr_array(apart <= rng.uniform(0, 0.3))
    found = matched(graph.indptr, graph.indices, graph.shape[1])
    some = found >= 0
    assert graph.toarray()[np.flatnonzero(some), found[some]].all()
    assert len(set(found[some])) == some.sum() == (maximum_bipartite_matching(graph) >= 0).sum()
