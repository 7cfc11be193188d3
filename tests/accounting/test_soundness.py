"""Attempts to refute the proofs: every bound against full enumeration of small crowds."""

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import amplify, attainable_delta, calibrate, delta_curve
from coatcheck.accounting.laws import (
    AnyLdp,
    Atoms,
    Channel,
    Clones,
    Fieldwise,
    Law,
    OwnCoin,
    Pair,
    TwoLevel,
    blanket,
    grid,
    minkowski,
    pair,
)
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.randomizers import BoundedResponse, FieldwiseResponse, MinkowskiResponse, fieldwise
from coatcheck.randomizers.baselines import Laplace
from support.crowds import (
    Array,
    bounded_caps,
    grid_caps,
    law_of,
    minkowski_caps,
    sixty_digits,
    two_level,
    worst_delta,
)

SHARES = st.floats(0.02, 0.98)
BUDGETS = st.floats(0.05, 6)


def at(law: Law, crowd: int, epsilon: float) -> float:
    """Evaluate the δ curve at one point."""
    return float(delta_curve(law, epsilons=[epsilon], crowd=crowd)[0])


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.integers(2, 4), st.integers(2, 6), BUDGETS, SHARES)
def test_grid_bound_holds_for_every_data_set(
    cells: int, crowd: int, epsilon: float, share: float
) -> None:
    """No data set of up to 6 people under k-ary response has a δ above ours."""
    caps, reports = grid_caps(cells)
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert truth <= at(law_of(caps, reports, epsilon), crowd, share * epsilon)
    assert law_of(caps, reports, epsilon).cap == pytest.approx(grid(epsilon, cells=cells).cap)


LAYOUTS = [
    (minkowski_caps(1, 1, 1), 4),
    (minkowski_caps(1, 2, 1), 3),
    (minkowski_caps(2, 1, 1), 3),
    (minkowski_caps(1, 3, 1), 2),
    (minkowski_caps(2, 3, 1), 2),
    (bounded_caps(2, 1, 1), 5),
    (bounded_caps(3, 1, 1), 3),
    (bounded_caps(3, 2, 1), 4),
    (bounded_caps(4, 3, 1), 3),
    (bounded_caps(1, 0, 2), 2),
]


@settings(max_examples=90, deadline=None, derandomize=True)
@given(st.sampled_from(LAYOUTS), BUDGETS, SHARES, st.integers(1, 5))
def test_cap_bounds_hold_for_every_data_set(
    layout: tuple[tuple[Sequence[frozenset[int]], int], int],
    epsilon: float,
    share: float,
    crowd: int,
) -> None:
    """No data set under a small Minkowski or Bounded response, overlap included, exceeds ours."""
    (caps, reports), most = layout
    crowd = min(crowd, most)
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert truth <= at(law_of(caps, reports, epsilon), crowd, share * epsilon) * (1 + 1e-12)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), BUDGETS, SHARES, st.integers(2, 4))
def test_bound_holds_for_caps_of_any_shape(
    seed: int, epsilon: float, share: float, crowd: int
) -> None:
    """No family of equal caps, however they overlap, exceeds ours, and each reaches the lower."""
    rng = np.random.default_rng(seed)
    reports, size = int(rng.integers(3, 7)), int(rng.integers(1, 4))
    size = min(size, reports - 1)
    caps = [frozenset(rng.permutation(reports)[:size].tolist()) for _ in range(3)]
    if len(set(caps)) == 1:
        return
    law = law_of(caps, reports, epsilon)
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert truth <= at(law, crowd, share * epsilon) * (1 + 1e-12)
    assert attainable_delta(law, size=crowd, epsilon=share * epsilon) <= truth + 1e-15


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), BUDGETS, SHARES, st.integers(2, 5))
def test_generic_bound_holds_for_random_randomizers(
    seed: int, epsilon: float, share: float, crowd: int
) -> None:
    """No random ε-LDP channel (3 inputs, 3 reports) beats the generic bound, nor its own."""
    rng = np.random.default_rng(seed)
    channel = _random_channel(rng, epsilon)
    spent = float(np.log((channel[:, None] / channel[None]).max()))
    truth = worst_delta(channel, crowd, share * spent)
    assert truth <= at(AnyLdp(epsilon=spent), crowd, share * spent)
    assert truth <= at(Clones(epsilon=spent), crowd, share * spent)
    own = pair(Channel(channel.tolist()))
    assert truth <= hockey_stick.upper(own, size=crowd, epsilon=share * spent)


def _random_channel(rng: np.random.Generator, epsilon: float) -> Array:
    while True:
        levels = np.exp(epsilon * rng.choice([0.0, 1.0, rng.random()], size=(3, 3)))
        channel = levels / levels.sum(axis=1, keepdims=True)
        if 1e-6 < np.log((channel[:, None] / channel[None]).max()):
            return np.asarray(channel)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([grid_caps(2), grid_caps(3), ([frozenset([0, 1]), frozenset([1, 2])], 3)]),
    BUDGETS,
    BUDGETS,
    SHARES,
)
def test_fieldwise_bound_holds_for_every_data_set(
    layout: tuple[list[frozenset[int]], int], one: float, two: float, share: float
) -> None:
    """No data set of 3 people with reports of two fields exceeds the product law (Statement 17)."""
    (caps, reports), (others, kinds) = layout, grid_caps(2)
    table = np.kron(two_level(caps, reports, one), two_level(others, kinds, two))
    channel: Array = np.asarray(table, dtype=np.float64)
    law = Fieldwise(laws=(law_of(caps, reports, one), law_of(others, kinds, two)))
    central, crowd = share * law.epsilon, 3
    truth = worst_delta(channel, crowd, central)
    stated = hockey_stick.upper(pair(law), size=crowd, epsilon=central)
    own = hockey_stick.upper(pair(Channel(channel.tolist())), size=crowd, epsilon=central)
    assert truth <= own
    assert truth <= stated
    assert own <= 1.001 * stated + 1e-12  # no pair of values is worse than the one that is used


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.floats(0.2, 5), SHARES, st.integers(2, 3))
def test_a_randomizer_of_fields_states_a_law_that_holds(
    epsilon: float, share: float, labels: int
) -> None:
    """What a fieldwise randomizer's integers do to any 3 people is within the law it states."""
    fields = {"a": Categories(tuple("abc"[:labels])), "b": Categories(("x", "y"))}
    made = fieldwise(epsilon=epsilon, domain=Product(fields))
    every = list(itertools.product(range(labels), range(2)))
    table = np.array([[float(made.mass(y, x)) for y in every] for x in every])
    law, central = made.law, share * made.epsilon_spent
    assert isinstance(law, Fieldwise)
    truth = worst_delta(table, 3, central)
    assert truth * (1 - 1e-12) <= hockey_stick.upper(pair(law), size=3, epsilon=central)


def test_fields_that_are_not_understood_are_charged_as_any() -> None:
    """One part without its own law, or too many different fields, leave only the sum."""
    box = Box((-1.0,), (1.0,))
    inside = BoundedResponse(domain=box, epsilon=1.0, radius=0.5)
    parts = {"a": Laplace(domain=box, epsilon=1.0), "b": inside}
    randomizer = FieldwiseResponse(domain=Product({"a": box, "b": box}), parts=parts)
    assert randomizer.law == AnyLdp(epsilon=randomizer.epsilon_spent)
    many = Fieldwise(laws=tuple(grid(0.1 + 0.01 * i, cells=5 + i) for i in range(9)))
    assert pair(many) == pair(AnyLdp(epsilon=many.epsilon))
    # A cap of more than half of the reports, for which nothing is left by rounding.
    wide = TwoLevel(epsilon=1.0, cap=0.3, apart=1 - 0.3 * math.e + 1e-6)
    assert pair(Fieldwise(laws=(wide, wide))) == pair(AnyLdp(epsilon=2.0 * (1 + 1e-15)))


@pytest.mark.parametrize("crowd", [30, 1000, 10_000])
def test_a_single_field_is_its_mechanism(crowd: int) -> None:
    """One field gives what the two-level law gives, and a table of chances does as well."""
    law = grid(3.0, cells=5)
    caps, reports = grid_caps(5)
    table = Channel(two_level(caps, reports, 3.0).tolist())
    for epsilon in (0.1, 0.7, 2.0):
        known = at(law, crowd, epsilon)
        for other in (Fieldwise(laws=(law,)), table):
            found = hockey_stick.upper(pair(other), size=crowd, epsilon=epsilon)
            assert known * (1 - 1e-3) - 1e-12 <= found <= known * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize(
    ("fields", "epsilon", "known"), [(4, 1.0, 0.08), (2, 2.0, 0.20), (3, 1.5, 0.16)]
)
def test_fields_of_their_own_cost_less(fields: int, epsilon: float, known: float) -> None:
    """Several 10-ary fields are far from the worst mechanism of their sum (.41, .41 and .55)."""
    law = Fieldwise(laws=(grid(epsilon, cells=10),) * fields)
    guarantee = amplify(law, crowd=10_000, delta=1e-6)
    assert guarantee.epsilon <= known
    assert (
        guarantee.epsilon < 0.5 * amplify(law, crowd=10_000, delta=1e-6, method="generic").epsilon
    )
    silent = amplify(OwnCoin(law=law, rate=0.5), crowd=10_000, delta=1e-6)
    assert silent.epsilon < guarantee.epsilon


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(2, 3), st.integers(2, 5), BUDGETS, SHARES, st.floats(0.05, 1))
def test_own_coin_is_a_randomizer_of_its_own(
    cells: int, crowd: int, epsilon: float, share: float, rate: float
) -> None:
    """No data set of people who each report with a chance, else are silent, exceeds ours."""
    caps, reports = grid_caps(cells)
    told = rate * two_level(caps, reports, epsilon)
    table = np.column_stack([told, np.full(cells, 1 - rate)])
    truth = worst_delta(table, crowd, share * epsilon)
    law = OwnCoin(law=law_of(caps, reports, epsilon), rate=rate)
    assert truth <= at(law, crowd, share * epsilon) * (1 + 1e-12)


def test_every_statement_of_the_page_names_a_test_that_exists() -> None:
    """Statements are numbered without gaps, and the last table lists each of them."""
    root = Path(__file__).parents[1]
    page = (root.parent / "docs/explanation/amplification.md").read_text(encoding="utf-8")
    made = [int(number) for number in re.findall(r"\*\*Statement (\d+)", page)]
    assert made == list(range(1, len(made) + 1))
    table = page[page.index("## 11.") :]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    told = [
        number
        for cell in first
        for one, two in re.findall(r"(\d+) to (\d+)", cell) or [("1", "0")]
        for number in range(int(one), int(two) + 1)
    ]
    told += [int(x) for cell in first if " to " not in cell for x in re.findall(r"\b\d+\b", cell)]
    assert set(made) <= set(told)
    tests = "".join(file.read_text(encoding="utf-8") for file in root.rglob("test_*.py"))
    for name in set(re.findall(r"`(test_\w+)`", page)):
        assert f"def {name}(" in tests


def test_published_counterexample_is_covered() -> None:
    """The data set on which the variation-ratio bound is 2.6 times too small is within ours."""
    law = minkowski(4.6847, radius=0.3729, dimension=2)
    assert at(law, 532, 3.0) >= 1.6987e-5
    assert attainable_delta(law, size=532, epsilon=3.0) == pytest.approx(1.6987e-5, rel=3e-3)


def test_smallest_counterexample_is_covered() -> None:
    """Five-ary response with p = 10 among 4 people: truth 0.1524, variation ratio 0.1383."""
    epsilon, central = math.log(10), math.log(5.01)
    caps, reports = grid_caps(5)
    truth = worst_delta(two_level(caps, reports, epsilon), 4, central)
    assert truth >= 0.1524
    assert truth <= at(grid(epsilon, cells=5), 4, central)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(3, 5), st.integers(2, 5), st.floats(0.2, 5), SHARES)
def test_lower_bound_is_attained(cells: int, crowd: int, epsilon: float, share: float) -> None:
    """What the library calls attainable is below the worst of all data sets."""
    caps, reports = grid_caps(cells)
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert (
        attainable_delta(grid(epsilon, cells=cells), size=crowd, epsilon=share * epsilon)
        <= truth + 1e-15
    )


@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_no_lower_bound_is_claimed_where_none_is_known(
    kind: type[MinkowskiResponse | BoundedResponse],
) -> None:
    """On an l2 lattice the part apart is overstated, so "no proof can go below" would be false."""
    ball = kind(domain=Ball(radius=1.0, p=2, dimension=2), epsilon=4.0, radius=0.9)
    for law in (ball.law, OwnCoin(law=ball.law, rate=0.5)):
        guarantee = amplify(law, crowd=1000, delta=1e-6, lower=True)
        assert guarantee.least is None
        assert "no proof" not in str(guarantee)
        assert attainable_delta(law, size=1000, epsilon=0.1) == 0.0
    cube = kind(domain=Ball(radius=1.0, dimension=2, p=math.inf), epsilon=4.0, radius=0.9)
    guarantee = amplify(cube.law, crowd=1000, delta=1e-6, lower=True)
    assert guarantee.least is not None
    assert 0.7 * guarantee.epsilon < guarantee.least <= guarantee.epsilon
    assert "no proof can go below" in str(guarantee)


def any_range(seed: int) -> tuple[Pair, int, float]:
    """Draw a law of any local ε up to 64, a few people, and any ε_c, also next to the local one."""
    rng = np.random.default_rng(seed)
    epsilon = float(np.exp(rng.uniform(-5, math.log(64))))
    laws: list[Law] = [
        AnyLdp(epsilon=epsilon),
        Clones(epsilon=epsilon),
        grid(epsilon, cells=int(rng.integers(2, 2000))),
        minkowski(epsilon, radius=math.exp(rng.uniform(-2, 1.5)), dimension=3, norm=2),
        OwnCoin(law=AnyLdp(epsilon=epsilon), rate=float(rng.uniform(0.01, 1))),
    ]
    law = laws[rng.integers(5)]
    share = rng.uniform() if rng.uniform() < 0.5 else 1 - 10 ** -rng.uniform(0, 14)
    one = blanket(law)
    assert isinstance(one, Pair)
    return one, int(rng.integers(2, 6)), float(share * epsilon)


def as_atoms(one: Pair) -> Atoms:
    """Write a pair law as one with any values."""
    p, scale = math.exp(one.epsilon), one.scale
    sides = ((p * scale, scale, one.side), (scale, p * scale, one.side))
    return Atoms(epsilon=one.epsilon, pairs=((*sides, (1.0, 1.0, one.flat), (p, p, one.deep)),))


@pytest.mark.parametrize("how", ["exactly", "by spreads", "by a transform"])
def test_no_bound_is_below_sixty_digits(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Over the whole range, e^-ε_c below 2^-53 included, floats do not lose any of δ.

    Small crowds are summed exactly, and are also put through what is made for large ones and for
    laws with many values.
    """
    if how == "by spreads":
        monkeypatch.setattr(hockey_stick, "_EXACT", 0)
    for seed in range(150):
        one, size, epsilon = any_range(seed)
        truth = min(1.0, sixty_digits(one, size, epsilon)) * (1 - 1e-14)
        law = as_atoms(one) if how == "by a transform" else one
        found = hockey_stick.upper(law, size=size, epsilon=epsilon)
        assert truth <= found, (seed, one)
        assert truth <= hockey_stick.upper(law, size=size, epsilon=epsilon, tail=39, fine=False)
        if how == "exactly":
            assert found <= truth * (1 + 1e-8) + 1e-200, (seed, one)


def test_a_large_promise_is_no_flip_to_nothing() -> None:
    """Where e^-ε_c is lost beside one, δ is almost one and not zero (ε = 38 once allowed 48.9)."""
    assert calibrate(epsilon=38.0, crowd=1000, delta=1e-6).local_epsilon < 38.01
    for law in (AnyLdp(epsilon=48.9), grid(48.9, cells=10)):
        below, above = (
            delta_curve(law, epsilons=[36.0, 37.0, 38.0], crowd=1000, lower=low)
            for low in (True, False)
        )
        assert np.all(0.98 < below)
        assert np.all(below <= above)
        assert np.all(above <= 1)
    for local in (10.0, 20.0, 40.0):
        near = local * (1 - 1e-12)
        assert at(AnyLdp(epsilon=local), 1000, near) > 0
        guarantee = amplify(AnyLdp(epsilon=local), crowd=2, delta=1e-9)
        assert at(AnyLdp(epsilon=local), 2, guarantee.epsilon) <= 1e-9
