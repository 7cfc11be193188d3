"""The pair laws: their means, their shapes at the ends, and errors for impossible ones."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting.laws import (
    AnyLdp,
    Channel,
    Fieldwise,
    Law,
    OwnCoin,
    Pair,
    TwoLevel,
    blanket,
    bounded,
    grid,
    minkowski,
    pair,
)
from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, GridResponse, MinkowskiResponse
from support.crowds import any_law


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_law(), st.floats(0, 1))
def test_amplification_variable_has_mean_one_minus_e(law: Law, share: float) -> None:
    """E[G] = 1 - e for every law and every ε_c, and the chances are chances."""
    epsilon = share * law.epsilon
    values = blanket(law).values(epsilon)
    assert all(chance >= 0 for _, chance in values)
    assert math.isclose(sum(chance for _, chance in values), 1, rel_tol=1e-9)
    scale = sum(abs(value) * chance for value, chance in values)
    mean = sum(value * chance for value, chance in values)
    assert mean == pytest.approx(1 - math.exp(epsilon), abs=1e-9 * max(1.0, scale))


def two_sided(law: Law) -> Pair:
    """Return the pair of a law with two caps."""
    found = blanket(law)
    assert isinstance(found, Pair)
    return found


def test_parts_above_the_whole_are_taken_to_the_safe_side() -> None:
    """Apart and kernel may exceed the cap by rounding; then the kernel gives way, or the cap."""
    fits = TwoLevel(epsilon=2.0, cap=0.1, apart=0.06, kernel=0.04)
    above = replace(fits, kernel=0.04 * (1 + 2e-9))
    assert two_sided(above).flat <= two_sided(fits).flat + 1e-15
    wide = blanket(replace(fits, apart=0.1 * (1 + 5e-10), kernel=0.0))
    mean = sum(value * chance for value, chance in wide.values(1.0))
    assert mean == pytest.approx(1 - math.e, abs=1e-14)
    with pytest.raises(Misuse, match="do not fit"):
        pair(replace(fits, kernel=0.0401))


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
    binary = two_sided(grid(2.0, cells=2))
    assert binary.side == pytest.approx(two_sided(AnyLdp(epsilon=2.0)).side)
    assert binary.flat == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: pair(AnyLdp(epsilon=-1.0)),
        lambda: pair(AnyLdp(epsilon=math.nan)),
        lambda: pair(TwoLevel(epsilon=1.0, cap=0.7, apart=0.7)),
        lambda: pair(TwoLevel(epsilon=1.0, cap="0.1", apart=0.1)),  # type: ignore[arg-type]
        lambda: pair(TwoLevel(epsilon=1.0, cap=math.nan, apart=0.1)),
        lambda: pair(TwoLevel(epsilon=1.0, cap=0.1, apart=-0.1)),
        lambda: pair(OwnCoin(law=AnyLdp(epsilon=1.0), rate=1.1)),
        lambda: pair(AnyLdp(epsilon=65.0)),
        lambda: pair(Fieldwise(laws=())),
        lambda: Channel([[0.5, 0.5]]),
        lambda: Channel([[0.5, 0.5], [0.5]]),
        lambda: Channel([[0.5, 0.5], [0.7, 0.4]]),
        lambda: Channel([[0.5, 0.5], [1.1, -0.1]]),
        lambda: Channel([[0.5, 0.5], [1.0, 0.0]]),
        lambda: Channel([[0.5, "half"], [0.5, 0.5]]),  # type: ignore[list-item]
        lambda: Channel(3),  # type: ignore[arg-type]
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
    """A law that no mechanism has is refused with an error."""
    with pytest.raises(Misuse, match=r"[a-z]"):
        wrong()  # type: ignore[operator]


def excess(law: Law, epsilon: float, above: float) -> float:
    """Return E[(G - above)_+]: larger for every `above` means larger in the convex order."""
    return sum(max(0.0, value - above) * chance for value, chance in blanket(law).values(epsilon))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.1, 6),
    radius=st.floats(0.05, 3),
    dimension=st.integers(1, 6),
    what=st.sampled_from(["epsilon", "cap", "apart", "kernel"]),
    much=st.floats(0.001, 0.2),
    share=st.floats(0, 1),
)
def test_overstating_a_law_is_safe(
    *, epsilon: float, radius: float, dimension: int, what: str, much: float, share: float
) -> None:
    """A larger ε, cap or part apart, or a smaller kernel, is a spread of G (Lemmas 2 to 5)."""
    law = minkowski(epsilon, radius=radius, dimension=dimension, norm=2)
    rest = law.cap - law.apart - law.kernel
    more = {
        "epsilon": replace(law, epsilon=epsilon + much),
        "cap": replace(law, cap=law.cap * (1 + much), apart=law.apart + much * law.cap),
        "apart": replace(law, apart=law.apart + much * rest),
        "kernel": replace(law, kernel=law.kernel * (1 - much)),
    }[what]
    p = math.exp(more.epsilon)
    flat = 1 - (p - 1) * more.cap - more.apart - more.cap + p * more.kernel
    if flat < 0 or (p - 1) * more.cap > 1:
        return  # no such mechanism: the library falls back or refuses
    central = share * epsilon
    low, high = 1 - p * math.exp(central), p - math.exp(central)
    for step in range(21):
        above = low + (high - low) * step / 20
        assert excess(law, central, above) <= excess(more, central, above) + 1e-9 * (high - low)


def test_randomizers_state_the_laws_of_their_shapes() -> None:
    """On a fine lattice Minkowski, Bounded and Grid state the laws of continuous caps, or more."""
    for dimension in (1, 2, 3):
        box = Box((-1.0,) * dimension, (1.0,) * dimension)
        for radius in (0.3, 0.8, 2.0):
            randomizer = MinkowskiResponse(domain=box, epsilon=3.0, radius=radius)
            _agree(randomizer.law, minkowski(3.0, radius=radius, dimension=dimension))
            if radius < 1:
                inside = BoundedResponse(domain=box, epsilon=3.0, radius=radius)
                _agree(inside.law, bounded(3.0, radius=radius, dimension=dimension))
        cells = GridResponse(domain=box, epsilon=3.0, cells=(4,) * dimension)
        _agree(cells.law, grid(3.0, cells=4**dimension))


def _agree(stated: TwoLevel | AnyLdp, shape: TwoLevel) -> None:
    assert isinstance(stated, TwoLevel)
    assert stated.epsilon == pytest.approx(shape.epsilon, rel=1e-4)
    assert stated.cap == pytest.approx(shape.cap, rel=1e-4)
    assert stated.apart == pytest.approx(shape.apart, rel=1e-4)
    assert stated.kernel == pytest.approx(shape.kernel, rel=1e-4, abs=1e-12)
