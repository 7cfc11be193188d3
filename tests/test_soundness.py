"""Tries to refute the proofs: every bound against full enumeration of small shuffled crowds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting.amplification import delta_curve
from coatcheck.accounting.attainable import lower
from coatcheck.accounting.laws import AnyLdp, Clones, Law, grid, minkowski
from crowds import Array, bounded_caps, grid_caps, law_of, minkowski_caps, two_level, worst_delta

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
    """No family of equal caps, however they overlap in twos and threes, exceeds ours."""
    rng = np.random.default_rng(seed)
    reports, size = int(rng.integers(3, 7)), int(rng.integers(1, 4))
    size = min(size, reports - 1)
    caps = [frozenset(rng.permutation(reports)[:size].tolist()) for _ in range(3)]
    if len(set(caps)) == 1:
        return
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert truth <= at(law_of(caps, reports, epsilon), crowd, share * epsilon) * (1 + 1e-12)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), BUDGETS, SHARES, st.integers(2, 5))
def test_generic_bound_holds_for_random_randomizers(
    seed: int, epsilon: float, share: float, crowd: int
) -> None:
    """No random ε-LDP channel (3 inputs, 3 reports) beats the generic bound (Lemma 1)."""
    rng = np.random.default_rng(seed)
    channel = _random_channel(rng, epsilon)
    spent = float(np.log((channel[:, None] / channel[None]).max()))
    truth = worst_delta(channel, crowd, share * spent)
    assert truth <= at(AnyLdp(epsilon=spent), crowd, share * spent)
    assert truth <= at(Clones(epsilon=spent), crowd, share * spent)


def _random_channel(rng: np.random.Generator, epsilon: float) -> Array:
    while True:
        levels = np.exp(epsilon * rng.choice([0.0, 1.0, rng.random()], size=(3, 3)))
        channel = levels / levels.sum(axis=1, keepdims=True)
        if 1e-6 < np.log((channel[:, None] / channel[None]).max()):
            return np.asarray(channel)


def test_published_counterexample_is_covered() -> None:
    """The data set on which the variation-ratio bound is 2.6 times too small is within ours."""
    law = minkowski(4.6847, radius=0.3729, dimension=2)
    assert at(law, 532, 3.0) >= 1.6987e-5
    assert lower(law, size=532, epsilon=3.0) == pytest.approx(1.6987e-5, rel=3e-3)


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
    assert lower(grid(epsilon, cells=cells), size=crowd, epsilon=share * epsilon) <= truth + 1e-15
