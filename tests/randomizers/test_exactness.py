"""On tiny lattices every probability is counted: mass one, ratio at most e^ε, draws that follow."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Categories, Product, lattice_norm_within
from coatcheck.entropy import seeded
from coatcheck.randomizers import (
    BoundedResponse,
    CoinResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    lattice_balls,
)
from coatcheck.randomizers.contract import TOSSES, exp_below, heads_for, spent
from support.tiers import mostly_slow

LINE = Box((0,), (1,), steps=8)
TINY = Box((-1, -1), (1, 1), steps=4)
DIAMOND = Ball(radius=1, p=1, dimension=3, steps=4)
DISC = Ball(radius=1, p=2, dimension=2, steps=8)
DICE = Ball(radius=1, p=math.inf, dimension=2, steps=4)
KINDS = Categories(("a", "b", "c"))


def tiny_mechanisms() -> Iterator[Randomizer]:
    """Every exact mechanism on lattices small enough to enumerate, small caps and large."""
    for epsilon, radius in itertools.product((0.3, 4.0), (0.3, 0.75, 1.6)):
        for domain in (LINE, TINY, DIAMOND, DISC, DICE):
            yield MinkowskiResponse(domain=domain, epsilon=epsilon, radius=radius)
            yield BoundedResponse(domain=domain, epsilon=epsilon, radius=radius)
    for epsilon in (0.3, 1.0, 4.0):
        yield GridResponse(domain=TINY, epsilon=epsilon, cells=(3, 2))
        yield GridResponse(domain=LINE, epsilon=epsilon, cells=(1,))
        yield GridResponse(domain=KINDS, epsilon=epsilon)
    place = BoundedResponse(domain=LINE, epsilon=0.5, radius=0.4)
    kind = GridResponse(domain=KINDS, epsilon=0.5)
    both = Product({"place": LINE, "kind": KINDS})
    yield FieldwiseResponse(domain=both, parts={"place": place, "kind": kind})
    yield CoinResponse(part=GridResponse(domain=TINY, epsilon=1.0, cells=(3, 2)), rate=0.2)


def label(randomizer: Randomizer) -> str:
    """Name a case."""
    size = getattr(randomizer, "radius", getattr(randomizer, "cells", ""))
    where = type(randomizer.domain).__name__ + str(getattr(randomizer.domain, "p", ""))
    return f"{randomizer.name}-{where}-{randomizer.epsilon:g}-{size}"


def is_quick(randomizer: Randomizer) -> bool:
    """Return whether `make test` runs it: a small and a large cap in each class of domains."""
    shape = (randomizer.epsilon, getattr(randomizer, "radius", None))
    return randomizer.name not in {"minkowski", "bounded"} or shape in {(0.3, 1.6), (4.0, 0.3)}


CASES = mostly_slow(tiny_mechanisms(), quick=is_quick)


def inputs_of(randomizer: Randomizer) -> list[tuple[int, ...]]:
    """Every point of the domain's lattice."""
    domain = randomizer.domain
    if isinstance(domain, Categories):
        return [(k,) for k in range(len(domain.labels))]
    if isinstance(domain, Product):
        return [(i, k) for i in range(-4, 5) for k in range(3)]
    half = domain.steps // 2
    every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
    return [point for point in every if lattice_norm_within(point, domain.p, half)]


def reports_of(randomizer: Randomizer) -> list[tuple[int, ...]]:
    """Every combination of numbers that the wire can carry."""
    spans = zip(randomizer.low.tolist(), randomizer.high.tolist(), strict=True)
    return list(itertools.product(*(range(low, high + 1) for low, high in spans)))


@pytest.mark.parametrize("randomizer", CASES, ids=label)
def test_masses_sum_to_one_and_differ_by_at_most_e_to_epsilon(randomizer: Randomizer) -> None:
    """The whole table of probabilities, in fractions, loses no mass."""
    inputs = inputs_of(randomizer)
    limit = exp_below(randomizer.epsilon) if randomizer.name != "fieldwise" else exp_below(0.5) ** 2
    totals = dict.fromkeys(inputs, Fraction(0))
    worst = Fraction(1)
    for report in reports_of(randomizer):
        column = {point: randomizer.mass(report, point) for point in inputs}
        for point, mass in column.items():
            totals[point] += mass
        low, high = min(column.values()), max(column.values())
        assert (low == 0) == (high == 0)
        worst = max(worst, high / low) if low else worst
    assert set(totals.values()) == {Fraction(1)}
    assert worst <= limit
    # What it says to cost bounds what it costs, and is next to it wherever a cap can be missed.
    assert float(worst) <= math.exp(randomizer.epsilon_spent) * (1 + 1e-12)


@pytest.mark.parametrize("randomizer", CASES, ids=label)
def test_draws_follow_the_table(randomizer: Randomizer) -> None:
    """Bulk and single draws of one input match its masses (chi-square, false alarm 1e-6 each)."""
    point = inputs_of(randomizer)[1 % len(inputs_of(randomizer))]
    reports = [r for r in reports_of(randomizer) if randomizer.mass(r, point)]
    expected = np.array([float(randomizer.mass(report, point)) for report in reports])
    bulk = randomizer.respond(np.array([point] * 20_000), seeded(17)).tolist()
    entropy = seeded(18)
    single = [randomizer.respond_one(point, entropy) for _ in range(3_000)]
    for drawn in (map(tuple, bulk), single):
        counts = dict.fromkeys(reports, 0)
        total = 0
        for report in drawn:
            counts[report] += 1
            total += 1
        if len(reports) > 1:
            test = stats.chisquare(list(counts.values()), expected * total)
            assert test.pvalue > 1e-6


@pytest.mark.parametrize("randomizer", CASES, ids=label)
def test_density_and_total_variation_are_those_of_the_table(randomizer: Randomizer) -> None:
    """The vectorised mass and the stated total variation agree with the counted ones."""
    inputs, reports = inputs_of(randomizer), reports_of(randomizer)
    table = np.array([[float(randomizer.mass(r, x)) for r in reports] for x in inputs])
    dense = randomizer.density(
        np.array(reports * len(inputs)), np.repeat(np.array(inputs), len(reports), axis=0)
    )
    assert np.allclose(dense.reshape(table.shape), table, rtol=1e-12)
    distances = np.abs(table[:, None] - table[None]).sum(axis=2) / 2
    stated = randomizer.total_variation
    assert distances.max() <= stated + 1e-12
    slack = 0.25 if randomizer.name == "fieldwise" or randomizer.domain is DISC else 1e-9
    assert stated <= distances.max() + slack


@pytest.mark.parametrize("randomizer", CASES, ids=label)
def test_the_law_bounds_the_caps_of_the_table(randomizer: Randomizer) -> None:
    """The stated law never has smaller caps or a larger kernel than the counted ones."""
    law = randomizer.law
    if not isinstance(law, TwoLevel) or law.epsilon == 0:
        return
    inputs, reports = inputs_of(randomizer), reports_of(randomizer)
    table = np.array([[float(randomizer.mass(r, x)) for r in reports] for x in inputs])
    if law.apart == 0:  # a cap as large as the domain: everybody answers alike
        assert np.ptp(table, axis=0).max() == 0
        return
    level = table[table > 0].min()
    caps = table > level * (1 + 1e-9)
    assert law.cap >= caps.sum(axis=1).max() * level * (1 - 1e-9)
    assert law.kernel <= caps.all(axis=0).sum() * level * (1 + 1e-9)
    missed = max((one & ~other).sum() for one in caps for other in caps) * level
    assert law.apart >= missed * (1 - 1e-9)


@given(
    st.floats(1e-9, 40),
    st.integers(1, 12),
    st.integers(1, 2**20),
    st.sampled_from([1.0, 2.0, math.inf]),
)
def test_the_coin_is_rounded_to_the_private_side(
    epsilon: float, dimension: int, reach: int, p: float
) -> None:
    """For any budget, dimension and radius: P B <= (e^ε - 1) A (Q - P), and one more head is over.

    The second half shows that nothing is given away: the coin is the largest allowed.
    """
    cap, whole = lattice_balls.LatticeBall(p, dimension).counts(reach, 2**19 + reach)
    heads = heads_for(epsilon, cap=cap, whole=whole)
    gain = (exp_below(epsilon) - 1) * cap
    assert 0 <= heads < TOSSES
    assert heads * whole <= gain * (TOSSES - heads)
    assert (heads + 1) * whole > gain * (TOSSES - heads - 1)
    assert spent(heads, cap=max(cap, 1), whole=whole) <= epsilon * (1 + 1e-12) + 1e-15


@given(st.floats(1e-12, 64))
def test_the_exponential_is_bounded_from_below_and_closely(epsilon: float) -> None:
    """The rational stand-in for e^ε is never above it and agrees to 40 digits."""
    import decimal  # noqa: PLC0415 - the independent calculation of this test

    with decimal.localcontext(prec=80):
        true = decimal.Decimal(epsilon).exp()
        below = exp_below(epsilon)
        ours = decimal.Decimal(below.numerator) / decimal.Decimal(below.denominator)
        assert ours <= true
        assert true - ours <= true * decimal.Decimal("1e-40")


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_lattice_balls_are_counted_right(p: float, dimension: int) -> None:
    """Formulas and enumeration agree, and the volume bounds enclose them."""
    ball = lattice_balls.LatticeBall(p, dimension)
    for reach in range(6):
        every = itertools.product(range(-reach, reach + 1), repeat=dimension)
        enumerated = sum(lattice_norm_within(point, p, reach) for point in every)
        assert ball.count(reach) == enumerated
        # l1: sum_k 2^k C(d,k) C(R,k), as the issue has it
        if p == 1:
            layers = [
                2**k * math.comb(dimension, k) * math.comb(reach, k) for k in range(dimension + 1)
            ]
            assert sum(layers) == enumerated


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_volumes_enclose_the_counts_of_large_balls(dimension: int) -> None:
    """Where l2 balls are too large to count, the bounds that replace counting are safe."""
    ball = lattice_balls.LatticeBall(2.0, dimension)
    cap, whole = 30, 60
    exact = Fraction(ball.count(cap), ball.count(whole))
    fine = lattice_balls._FINE
    corner = ball._corner
    lower = Fraction(cap * fine - corner, whole * fine + corner) ** dimension
    upper = Fraction(cap * fine + corner, whole * fine - corner) ** dimension
    assert lower <= exact <= upper
    bounds = ball.counts(600, 1200)
    assert Fraction(*bounds) < Fraction(1, 2**dimension) < ball.share_above(600, 1200)


def test_l1_draws_decide_boundary_words_by_more_bits() -> None:
    """A word that falls on a boundary between layers is lengthened until the layer is certain."""
    weights = (1, 2)  # the boundary is at 2^64 / 3: not a whole word
    boundary = (1 << 64) // 3
    assert lattice_balls._layers_of(boundary, 64, [1], 3) == {0, 1}
    assert lattice_balls._layers_of(boundary - 1, 64, [1], 3) == {0}
    assert lattice_balls._layers_of(boundary + 1, 64, [1], 3) == {1}

    class OnTheBoundary(type(seeded(0))):  # type: ignore[misc]
        """Always gives the word on the boundary first, then ones."""

        first = True

        def words(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            word, self.first = (boundary if self.first else 2**64 - 1), False
            return np.full(size, word, dtype=np.uint64)

    drawn = lattice_balls._draw_layers(weights, 1, OnTheBoundary(0))
    assert drawn.tolist() == [1]


def test_large_balls_are_sampled_evenly() -> None:
    """Mean and spread of draws from product-sized balls match the continuous ball's.

    False alarm about 1e-6 (five standard errors), seeds fixed.
    """
    for p, dimension in ((1.0, 6), (1.0, 60), (2.0, 3), (2.0, 8), (math.inf, 5), (1.5, 3)):
        ball = lattice_balls.LatticeBall(p, dimension)
        places = ball.sample(2**19, 20_000, seeded(4)) / 2**19
        squares = (places**2).sum(axis=1)
        error = squares.std() / math.sqrt(len(squares))
        assert abs(squares.mean() - ball.spread) < 5 * error
        assert np.abs(places.mean(axis=0)).max() < 5 * places.std() / math.sqrt(len(places))
        assert (np.linalg.norm(places, ord=p, axis=1) <= 1 + 1e-6).all()
