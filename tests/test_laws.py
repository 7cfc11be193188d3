"""The pair laws: their means, their shapes at the ends, and the sentences for impossible ones."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import Misuse
from coatcheck.laws import (
    AnyLdp,
    Law,
    OwnCoin,
    TwoLevel,
    bounded,
    grid,
    minkowski,
    pair,
)
from crowds import any_law


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_law(), st.floats(0, 1))
def test_amplification_variable_has_mean_one_minus_e(law: Law, share: float) -> None:
    """E[G] = 1 - e for every law and every ε_c, and the chances are chances."""
    epsilon = share * law.epsilon
    values = pair(law).values(epsilon)
    assert all(chance >= 0 for _, chance in values)
    assert math.isclose(sum(chance for _, chance in values), 1, rel_tol=1e-9)
    scale = sum(abs(value) * chance for value, chance in values)
    mean = sum(value * chance for value, chance in values)
    assert mean == pytest.approx(1 - math.exp(epsilon), abs=1e-9 * max(1.0, scale))


@pytest.mark.parametrize("norm", [2.0, math.inf])
@pytest.mark.parametrize("dimension", [1, 2, 6])
def test_overlap_starts_continuously(dimension: int, norm: float) -> None:
    """Two caps begin to overlap at radius 1 (Minkowski) and 1/2 (Bounded), without a jump."""
    for law, edge in ((minkowski, 1.0), (bounded, 0.5)):
        below = law(3.0, radius=edge * (1 - 1e-9), dimension=dimension, norm=norm)
        above = law(3.0, radius=edge * (1 + 1e-9), dimension=dimension, norm=norm)
        assert below.apart == below.cap
        assert above.apart == pytest.approx(below.apart, rel=1e-4)
        assert above.kernel == pytest.approx(0, abs=1e-8)


def test_cube_has_no_overlap_outside_the_kernel() -> None:
    """On the cube the two farthest caps share exactly what all caps share."""
    for law in (minkowski(2.0, radius=2.5, dimension=6), bounded(2.0, radius=0.8, dimension=3)):
        assert law.kernel > 0
        assert law.cap == pytest.approx(law.apart + law.kernel, rel=1e-12)


def test_ball_overlap_is_the_lens() -> None:
    """In one dimension a ball is a cube; in two the lens has its textbook area."""
    flat = minkowski(1.0, radius=3.0, dimension=1, norm=2)
    assert flat.apart == pytest.approx(minkowski(1.0, radius=3.0, dimension=1).apart)
    radius = 2.0
    lens = 2 * radius**2 * math.acos(1 / radius) - 2 * math.sqrt(radius**2 - 1)
    law = minkowski(1.0, radius=radius, dimension=2, norm=2)
    assert 1 - law.apart / law.cap == pytest.approx(lens / (math.pi * radius**2))


def test_binary_grid_is_the_worst_case() -> None:
    """Two cells are binary randomized response, the worst randomizer of its ε."""
    assert pair(grid(2.0, cells=2)).side == pytest.approx(pair(AnyLdp(epsilon=2.0)).side)
    assert pair(grid(2.0, cells=2)).flat == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: pair(AnyLdp(epsilon=-1.0)),
        lambda: pair(AnyLdp(epsilon=math.nan)),
        lambda: pair(TwoLevel(epsilon=1.0, cap=0.7, apart=0.7)),
        lambda: pair(TwoLevel(epsilon=1.0, cap=0.1, apart=0.2)),
        lambda: pair(OwnCoin(law=AnyLdp(epsilon=1.0), rate=0.0)),
        lambda: minkowski(1.0, radius=0.0, dimension=2),
        lambda: minkowski(1.0, radius=1.0, dimension=0),
        lambda: minkowski(1.0, radius=1.0, dimension=2, norm=0.5),
        lambda: bounded(1.0, radius=1.5, dimension=2),
        lambda: grid(1.0, cells=1),
    ],
)
def test_impossible_law_is_refused(wrong: object) -> None:
    """A law that no mechanism has is the caller's mistake, with a sentence."""
    with pytest.raises(Misuse, match=r"[a-z]"):
        wrong()  # type: ignore[operator]
