"""Boxes that overlap: no data set exceeds the closer bound, and it is nearly reached."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting import box_caps, hockey_stick
from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.box_caps import BoxCaps, with_pool
from coatcheck.accounting.certificate import certify, delta_interval
from coatcheck.accounting.laws import Boxed, TwoLevel, bounded, minkowski, pair
from coatcheck.domains import Box
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse
from support.crowds import Array, bounded_caps, law_of, minkowski_caps, two_level, worst_delta


def boxes_of(law: TwoLevel) -> BoxCaps:
    """Return the boxes of a law that has some."""
    worst = pair(law)
    assert isinstance(worst, Boxed)
    return worst.caps


def two_of_three(epsilon: float) -> tuple[TwoLevel, Array]:
    """Return the smallest mechanism of this kind: two caps of two of the three reports."""
    p = math.exp(epsilon)
    whole = 2 * p + 1
    law = TwoLevel(epsilon=epsilon, cap=2 / whole, apart=1 / whole, kernel=1 / whole, axes=1)
    return law, np.array([[p, p, 1.0], [1.0, p, p]]) / whole


def one_more(law: Array, row: Array) -> Array:
    """Add a report to the law of the numbers of first and of last reports."""
    more: Array = row[1] * law
    more[1:] += row[0] * law[:-1]
    more[:, 1:] += row[2] * law[:, :-1]
    return more


def every_split(rows: Array, crowd: int) -> list[tuple[Array, Array]]:
    """Return the list's law under either value, for every number of others with the second."""
    first = np.zeros((crowd + 1, crowd + 1))
    first[0, 0] = 1.0
    starts = [first]
    for _ in range(crowd - 1):
        starts.append(one_more(starts[-1], rows[0]))
    laws = []
    for many in range(crowd):
        others = starts[crowd - 1 - many]
        for _ in range(many):
            others = one_more(others, rows[1])
        laws.append((one_more(others, rows[0]), one_more(others, rows[1])))
    return laws


@pytest.mark.parametrize("crowd", [8, 40])
@pytest.mark.parametrize("local", [0.5, 1.0, 2.0, 4.0])
def test_no_split_of_a_crowd_exceeds_any_pool(local: float, crowd: int) -> None:
    """Every split of the others enumerated, for pools of every size, in both directions.

    The closest of these bounds is 1.02 times the truth, so one that is a little too small fails.
    """
    law, rows = two_of_three(local)
    laws, caps = every_split(rows, crowd), boxes_of(law)
    closest = math.inf
    for share in (0.05, 0.2, 0.4, 0.7):
        epsilon = share * local
        e = math.exp(epsilon)
        truth = max(
            float(np.maximum(x - e * y, 0).sum())
            for one, two in laws
            for x, y in ((one, two), (two, one))
        )
        bounds = [with_pool(caps, pool, size=crowd, epsilon=epsilon) for pool in POOLS]
        assert truth * (1 - 1e-12) <= min(bounds)
        assert truth * (1 - 1e-12) <= hockey_stick.upper(pair(law), size=crowd, epsilon=epsilon)
        closest = min(closest, min(bounds) / truth)
    if crowd == 40 and local <= 1:
        assert closest < 1.06


POOLS = (0.02, 0.1, 0.3, 0.6, 0.9)
LAYOUTS = [
    (minkowski_caps(1, 2, 1), 3, 1),
    (bounded_caps(3, 2, 1), 3, 1),
    (bounded_caps(4, 3, 1), 2, 1),
]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(LAYOUTS),
    st.floats(0.05, 6),
    st.floats(0.02, 0.98),
    st.integers(2, 4),
    st.floats(0.01, 0.95),
)
def test_no_data_set_exceeds_a_pool_of_any_size(
    layout: tuple[tuple[Sequence[frozenset[int]], int], int, int],
    epsilon: float,
    share: float,
    crowd: int,
    pool: float,
) -> None:
    """All pairs of values and all data sets of small lattices, values between the ends included."""
    (caps, reports), most, axes = layout
    crowd = min(crowd, most)
    law = law_of(caps, reports, epsilon)
    side = round(len(caps[0]) ** (1 / axes))
    common = round(len(frozenset.intersection(*caps)) ** (1 / axes))
    boxes = BoxCaps(epsilon=epsilon, cap=law.cap, share=common / side, axes=axes)
    truth = worst_delta(two_level(caps, reports, epsilon), crowd, share * epsilon)
    assert truth * (1 - 1e-12) <= with_pool(boxes, pool, size=crowd, epsilon=share * epsilon)


@pytest.mark.parametrize(
    "law",
    [
        bounded(4.0, radius=0.6, dimension=2),
        bounded(2.0, radius=0.6, dimension=2),
        bounded(2.0, radius=0.6, dimension=1),
        bounded(3.0, radius=0.8, dimension=3),
        minkowski(3.0, radius=1.2, dimension=1),
        minkowski(5.0, radius=1.5, dimension=6),
    ],
    ids=lambda law: f"{law.axes} axes, {law.epsilon}",
)
@pytest.mark.parametrize("crowd", [532, 4036])
def test_the_promise_is_nearly_reached(law: TwoLevel, crowd: int) -> None:
    """The promised ε is at most 1.02 times one that a data set reaches; the blanket's is not."""
    guarantee = amplify(law, crowd=crowd, delta=0.01 / crowd, lower=True)
    assert guarantee.least is not None
    assert guarantee.least <= guarantee.epsilon <= 1.02 * guarantee.least
    before = amplify(replace(law, axes=0), crowd=crowd, delta=0.01 / crowd)
    assert guarantee.epsilon < before.epsilon


@pytest.mark.parametrize("crowd", [100, 532, 10**6])
def test_promises_of_boxes_are_certified(crowd: int) -> None:
    """Intervals confirm them, closely; and an ε slightly smaller is not confirmed."""
    law, delta = bounded(3.0, radius=0.6, dimension=2), 0.01 / crowd
    epsilon = amplify(law, crowd=crowd, delta=delta).epsilon
    low, high = delta_interval(law, size=crowd, epsilon=epsilon, decide=delta)
    assert low <= high <= delta <= low * (1 + 1e-3)
    assert certify(law, size=crowd, epsilon=epsilon, delta=delta).high == epsilon
    assert certify(law, size=crowd, epsilon=0.999 * epsilon, delta=delta).high == law.epsilon


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(0.1, 0.95), st.integers(1, 4), st.floats(0.1, 8))
def test_volumes_are_those_of_boxes(share: float, axes: int, epsilon: float) -> None:
    """Each pattern has three boxes laid out; volumes by inclusion and exclusion on a grid agree."""
    caps = BoxCaps(epsilon=epsilon, cap=0.01 / math.exp(epsilon), share=share, axes=axes)
    rng = np.random.default_rng(3)
    points = rng.uniform(0, 2 - share, (4000, axes))
    for counts, volumes in zip(box_caps.patterns(axes), caps.volumes, strict=True):
        differs = np.repeat([0, 1, 2, 3], [*counts, axes - sum(counts)])
        inside = []
        for value in range(3):
            start = np.where(differs == value, 1 - share, 0.0)
            inside.append(np.all((points >= start) & (points <= start + 1), axis=1))
        for kind in range(1, 8):
            flags = (box_caps.IN0[kind], box_caps.IN1[kind], box_caps.INX[kind])
            seen = np.all([x == y for x, y in zip(inside, flags, strict=True)], axis=0)
            if kind == 1:
                seen &= ~np.all((points >= 1 - share) & (points <= 1), axis=1)
            # 4000 points: five standard deviations; 60 x 35 x 7 comparisons at most
            part = volumes[kind] / caps.cap / (2 - share) ** axes
            assert abs(seen.mean() - part) <= 5 * math.sqrt(part * (1 - part) / 4000) + 1e-3


def test_lattice_mechanisms_state_their_boxes() -> None:
    """Boxes on a lattice overlap by the stated share; balls or disjoint caps have none."""
    square = Box((0.0, 0.0), (1.0, 1.0))
    wide = BoundedResponse(domain=square, epsilon=3.0, radius=0.6)
    assert boxes_of(wide.law).share == pytest.approx(1 / 3, rel=0.02)
    assert boxes_of(wide.law).share <= (wide.law.kernel / wide.law.cap) ** 0.5
    far = MinkowskiResponse(domain=square, epsilon=3.0, radius=1.5)
    assert boxes_of(far.law).share == pytest.approx(1 / 3, rel=0.02)
    for law in (
        MinkowskiResponse(domain=square, epsilon=3.0, radius=0.5).law,
        minkowski(3.0, radius=1.5, dimension=2, norm=2),
    ):
        assert not isinstance(pair(law), Boxed)
