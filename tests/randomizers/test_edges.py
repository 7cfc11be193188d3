"""Every bound of the exact mechanisms is tight: one step further is refused or less private."""

import decimal
import itertools
import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Categories
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, GridResponse, MinkowskiResponse
from coatcheck.randomizers.contract import TOSSES, float_above, heads_for, spent
from coatcheck.randomizers.lattice_balls import LatticeBall
from coatcheck.randomizers.minkowski import CapResponse

LINE = Box((-1,), (1,), steps=16)
SQUARE = Box((-1, -1), (1, 1), steps=8)
DISC = Ball(radius=1, p=2, dimension=2, steps=16)
BALL = Ball(radius=1, p=2, dimension=2)
ABC = Categories(("a", "b", "c"))


# -- the coin


@given(st.integers(1, TOSSES - 1), st.integers(1, 2**40), st.integers(1, 2**60))
def test_what_a_coin_spends_is_rounded_up_and_closely(heads: int, cap: int, more: int) -> None:
    """Against 60 digits of ln(1 + heads whole / ((2^64 - heads) cap)); never below, never far."""
    whole = cap + more
    with decimal.localcontext(prec=60):
        excess = decimal.Decimal(heads * whole) / decimal.Decimal((TOSSES - heads) * cap)
        true = (1 + excess).ln() if excess > 0 else decimal.Decimal(0)
        ours = decimal.Decimal(spent(heads, cap=cap, whole=whole))
        # ln of 1 + tiny loses digits even here, so tiny odds get an absolute room.
        assert ours >= true * (1 - decimal.Decimal("1e-30")) - decimal.Decimal("1e-55")
        assert ours <= true * (1 + decimal.Decimal("3e-15")) + decimal.Decimal("1e-55")


@pytest.mark.parametrize(
    "ratio", [Fraction(1, 3), Fraction(1, 10), Fraction(2, 3), Fraction(1, 2), Fraction(0)]
)
def test_a_ratio_is_rounded_up_to_the_next_float(ratio: Fraction) -> None:
    """`above` is the least float that is not below, also where the ratio is a float itself."""
    found = float_above(ratio)
    assert Fraction(found) >= ratio
    assert Fraction(math.nextafter(found, -1.0)) < ratio


def test_a_coin_for_no_budget_or_a_huge_one() -> None:
    """No cap needs no coin; at the largest ε the coin still falls tails now and then."""
    assert TOSSES == 2**64  # which the coins of `entropy` are tossed of
    assert heads_for(1.0, cap=0, whole=9) == 0
    assert heads_for(64.0, cap=1, whole=1) < TOSSES
    assert heads_for(math.log(3), cap=1, whole=2) == pytest.approx(TOSSES / 2, rel=1e-15)


# -- caps


def test_a_cap_is_read_in_its_usual_way_unless_another_is_named() -> None:
    """The way to read is settled when a mechanism is made, and a wrong one is refused there."""
    assert MinkowskiResponse(domain=SQUARE, epsilon=1, radius=0.5).decode == "project"
    assert BoundedResponse(domain=SQUARE, epsilon=1, radius=0.5).decode == "raw"
    randomizer = MinkowskiResponse(domain=SQUARE, epsilon=1, radius=0.5, decode="unbiased")
    assert randomizer.decode == "unbiased"
    with pytest.raises(Misuse, match="are decoded by"):
        BoundedResponse(domain=SQUARE, epsilon=1, radius=0.5, decode="project")


@pytest.mark.parametrize(
    ("made", "reach"),
    [
        (MinkowskiResponse(domain=LINE, epsilon=1, radius=1e-9), 1),
        (BoundedResponse(domain=LINE, epsilon=1, radius=1e-9), 1),
        (MinkowskiResponse(domain=LINE, epsilon=1, radius=0.25), 2),
        (MinkowskiResponse(domain=LINE, epsilon=1, radius=1e30), 2**30 - 8),
        (BoundedResponse(domain=LINE, epsilon=1, radius=1e30), 8),
        (BoundedResponse(domain=LINE, epsilon=1, radius=np.float32(0.5)), 4),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_radius_is_rounded_to_the_lattice_and_kept_in_reach(
    made: CapResponse, reach: int
) -> None:
    """A cap holds its center's neighbors at least, and at most what bulk draws can reach."""
    assert made.reach == reach
    assert made.radius == reach / 8
    whole = reach + 8 if isinstance(made, MinkowskiResponse) else 8
    assert (made.low.tolist(), made.high.tolist()) == ([-whole], [whole])
    assert made.respond(np.array([[8]]), seeded(1)).shape == (1, 1)


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", None, True])
@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_what_is_no_radius_is_refused(kind: Any, radius: Any) -> None:
    """A cap needs a finite radius above 0."""
    with pytest.raises(Misuse, match="`radius` must be a number above 0"):
        kind(domain=LINE, epsilon=1, radius=radius)


def test_an_inset_is_a_share_below_one() -> None:
    """0 is allowed, 1 would put every estimate into the middle."""
    for inset in (-0.01, 1.0, math.nan):
        with pytest.raises(Misuse, match="inset"):
            MinkowskiResponse(domain=LINE, epsilon=1, radius=0.5, inset=inset)
    plain = MinkowskiResponse(domain=LINE, epsilon=1, radius=0.5, inset=0.0)
    inner = MinkowskiResponse(domain=LINE, epsilon=1, radius=0.5, inset=0.25)
    reports = np.array([[12], [7], [-12], [3]])
    assert plain.estimate(reports, "project").ravel().tolist() == [1.0, 7 / 8, -1.0, 3 / 8]
    assert inner.estimate(reports, "project").ravel().tolist() == [0.75, 0.75, -0.75, 3 / 8]


def test_a_cap_that_is_never_chosen_has_no_unbiased_estimate() -> None:
    """Where rounding leaves the coin no heads, a report says nothing, and the error says so."""
    silent = MinkowskiResponse(
        domain=Box((-1,) * 6, (1,) * 6, steps=2**24), epsilon=1e-3, radius=1e-9
    )
    assert silent.heads == 0
    assert silent.squared_error(np.zeros(6)) == math.inf
    with pytest.raises(Misuse, match="too small to reveal anything"):
        silent.estimate(silent.high[None], "unbiased")


@pytest.mark.parametrize("domain", [LINE, SQUARE, DISC], ids=str)
@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_the_law_is_the_counted_one_rounded_to_the_private_side(kind: Any, domain: Any) -> None:
    """For every reach: cap and apart are the next floats above, the kernel one below or 0."""
    half = domain.steps // 2
    for reach in range(1, half + 3):
        made = kind(domain=domain, epsilon=1.5, radius=reach / half)
        ball, whole = made._ball, made.high.tolist()[0]
        tails = Fraction(TOSSES - made.heads, TOSSES)
        blanket = tails * ball.count(made.reach) / ball.count(whole)
        centers = half if kind is MinkowskiResponse else half - made.reach
        deep = made.reach - centers
        kernel = tails * ball.count(deep) / ball.count(whole) if deep >= 0 else Fraction(0)
        law = made.law
        assert isinstance(law, TwoLevel)
        assert law.cap == float_above(blanket)
        shared = max(kernel / blanket, Fraction(ball.lens(made.reach, centers)))
        assert law.apart == float_above(blanket * (1 - shared))
        assert Fraction(law.kernel) < kernel or kernel == law.kernel == 0
        assert law.kernel == pytest.approx(float(kernel), rel=1e-12)
        assert law.epsilon <= made.epsilon_spent <= 1.5
        tells = ball.count(made.reach) < ball.count(whole)  # else every value gives the same
        assert law.epsilon == pytest.approx(1.5 if tells else 0.0, abs=1e-9)
        assert made.total_variation == pytest.approx(made.mixing * law.apart / law.cap)


@pytest.mark.parametrize("domain", [LINE, SQUARE], ids=str)
@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_three_caps_are_called_disjoint_exactly_where_they_can_be(kind: Any, domain: Any) -> None:
    """Every triple of centers is looked at, on boxes where that is quick."""
    half, d = domain.steps // 2, domain.dimension
    for reach in range(1, half + 1):
        made = kind(domain=domain, epsilon=1.0, radius=reach / half)
        edge = half if kind is MinkowskiResponse else half - reach
        centers = list(itertools.product(range(-edge, edge + 1), repeat=d))
        far = [
            [max(abs(a - b) for a, b in zip(x, y, strict=True)) > 2 * reach for y in centers]
            for x in centers
        ]
        apart = np.array(far, dtype=np.int64)
        assert made.law.third == bool(np.trace(apart @ apart @ apart) > 0)


@pytest.mark.parametrize("domain", [LINE, SQUARE, DISC], ids=str)
@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_one_center_is_that_of_many(kind: Any, domain: Any) -> None:
    """The light path moves a cap as the bulk path does, and never beyond the last center."""
    made, half = kind(domain=domain, epsilon=1.0, radius=0.5), domain.steps // 2
    every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
    points = [point for point in every if domain.holds(np.array([point]))]
    many = made._centers(np.array(points))
    assert [tuple(made._center_one(point)) for point in points] == [tuple(c) for c in many.tolist()]
    reach = half if kind is MinkowskiResponse else half - made.reach
    assert made._ball.norms(many).max() == reach
    unit = made._unit_centers(np.array(points) / half)
    assert np.abs(unit - many / half).max() <= 1.5 / half


@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_points_and_reports_beyond_the_lattice(kind: Any) -> None:
    """The last point has a report, the next one is refused; impossible reports have no mass."""
    made = kind(domain=DISC, epsilon=1.0, radius=0.25)
    made.respond_one((0, 8), seeded(1))
    for wrong in ((0, 9), (8, 1), (-9, 0)):
        with pytest.raises(Misuse, match="not a point"):
            made.respond_one(wrong, seeded(1))
    edge = made.high.tolist()[0]
    assert made.mass((0, edge), (0, 0)) > 0
    assert made.mass((1, edge), (0, 0)) == 0
    assert made.density(np.array([[1, edge], [0, edge]]), np.zeros((2, 2), int)).tolist()[0] == 0
    with pytest.raises(Misuse, match="too large to count"):
        kind(domain=BALL, epsilon=1.0, radius=0.25).mass((0, 0), (0, 0))
    odd = Ball(radius=1, p=3, dimension=2, steps=4)
    with pytest.raises(Misuse, match="too large to count"):
        kind(domain=odd, epsilon=1.0, radius=0.5).mass((0, 0), (0, 0))


@pytest.mark.parametrize("reach", [1, 3, 5, 8])
@pytest.mark.parametrize("kind", [MinkowskiResponse, BoundedResponse])
def test_the_median_is_that_of_where_the_value_can_have_been(kind: Any, reach: int) -> None:
    """Against the weights of 40,001 places of the line, for every report."""
    made = kind(domain=LINE, epsilon=2.0, radius=reach / 8)
    places = np.linspace(-1, 1, 40_001)
    edge = 1.0 if kind is MinkowskiResponse else 1 - reach / 8
    centers = np.clip(places, -edge, edge)
    for report in range(-made.high[0], made.high[0] + 1):
        near = np.abs(report / 8 - centers) <= reach / 8 + 1e-9
        weights = np.cumsum(1 + math.expm1(2.0) * near)
        median = places[np.searchsorted(weights, weights[-1] / 2)]
        assert made.estimate(np.array([[report]]), "median")[0, 0] == pytest.approx(
            median, abs=2e-4
        )


def test_a_cap_as_large_as_the_domain_says_nothing() -> None:
    """Bounded response of radius 1 reports the same for all values, and predicts that error."""
    for domain in (LINE, DISC):
        randomizer = BoundedResponse(domain=domain, epsilon=3.0, radius=1.0)
        assert randomizer.total_variation == 0
        assert randomizer.law.apart == 0
        assert randomizer.expected_error("raw") > 0.5


# -- grids


def test_the_most_cells() -> None:
    """As fine as the lattice and 2^32 cells in all, but not one more."""
    box = Box((-1, -1), (1, 1))
    GridResponse(domain=SQUARE, epsilon=1, cells=(8, 8))
    GridResponse(domain=box, epsilon=1, cells=(2**16, 2**16))
    with pytest.raises(Misuse, match="steps of the lattice along"):
        GridResponse(domain=SQUARE, epsilon=1, cells=(8, 9))
    with pytest.raises(Misuse, match=r"at most 2\^32"):
        GridResponse(domain=box, epsilon=1, cells=(2**16, 2**16 + 1))
    for wrong in ((), (2,), (2, 0), (2, -1), (2, 2.0), (2, True), (2, 2, 2)):
        with pytest.raises(Misuse, match="whole number per axis"):
            GridResponse(domain=box, epsilon=1, cells=wrong)  # type: ignore[arg-type]


def test_one_cell_costs_nothing() -> None:
    """A grid of one cell says nothing: no ε, no distance between two people, one cap for all."""
    randomizer = GridResponse(domain=LINE, epsilon=2.0, cells=(1,))
    assert (randomizer.epsilon_spent, randomizer.total_variation, randomizer.report_bits) == (
        0.0,
        0.0,
        0,
    )
    assert randomizer.law == TwoLevel(epsilon=0.0, cap=1.0, apart=0.0, kernel=1.0)
    two = GridResponse(domain=LINE, epsilon=2.0, cells=(2,))
    assert two.total_variation == two.mixing == pytest.approx(math.tanh(1.0))
    blanket = Fraction(TOSSES - two.heads, 2 * TOSSES)
    cap = float_above(blanket)
    law = TwoLevel(epsilon=two.epsilon_spent, cap=cap, apart=cap, reached=True, binary=True)
    assert two.law == law


@pytest.mark.parametrize(
    ("made", "last", "wrong"),
    [
        (
            GridResponse(domain=SQUARE, epsilon=1, cells=(3, 2)),
            ((-4, -4), (4, 4)),
            ((5, 0), (0, -5), (0,), (0, 0, 0)),
        ),
        (GridResponse(domain=ABC, epsilon=1), ((0,), (2,)), ((3,), (-1,), (0, 0))),
    ],
    ids=["box", "categories"],
)
def test_cells_of_the_outermost_points(made: GridResponse, last: Any, wrong: Any) -> None:
    """The first and last points lie in the first and last cells; one step further is refused."""
    sides = [(0,) * len(made.cells), tuple(count - 1 for count in made.cells)]
    for point, cell in zip(last, sides, strict=True):
        assert made._cell_of(point) == cell
        assert made._cells_of(np.array([point])).tolist() == [list(cell)]
        assert made.mass(cell, point) == max(
            made.mass(other, point) for other in itertools.product(*map(range, made.cells))
        )
        made.respond_one(point, seeded(1))
    for point in wrong:
        with pytest.raises(Misuse, match="not a point"):
            made.respond_one(point, seeded(1))
    for outside in ([-1] * len(made.cells), list(made.cells)):
        assert made.mass(outside, last[0]) == 0
        assert made.density(np.array([outside]), np.array([last[0]])).tolist() == [0.0]


def test_every_lattice_point_lies_in_the_cell_of_its_place() -> None:
    """Cells share the lattice evenly: sizes differ by at most one point per axis."""
    randomizer = GridResponse(domain=LINE, epsilon=1, cells=(5,))
    cells = [randomizer._cell_of((i,))[0] for i in range(-8, 9)]
    assert cells == sorted(cells)
    sizes = [cells.count(cell) for cell in range(5)]
    assert max(sizes) - min(sizes) <= 1
    assert randomizer.estimate(np.array([[0], [2], [4]]), "raw").ravel() == pytest.approx(
        [-0.8, 0, 0.8]
    )


@pytest.mark.parametrize("heads", [0, 1 << 64], ids=["far", "near"])
def test_the_work_is_the_same_on_both_sides_of_the_coin(
    heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the coin falls, the cap's center is found and both places are drawn."""
    calls: list[str] = []
    center, draw = BoundedResponse._center_one, LatticeBall.sample_one

    def counted_center(self: BoundedResponse, point: tuple[int, ...]) -> Any:
        calls.append("center")
        return center(self, point)

    def counted_draw(self: LatticeBall, reach: int, entropy: Any) -> Any:
        calls.append(f"draw {reach}")
        return draw(self, reach, entropy)

    randomizer = BoundedResponse(
        domain=Ball(radius=1.0, p=2, dimension=3, steps=64), epsilon=1.0, radius=0.5
    )
    randomizer.__dict__["heads"] = heads  # where the cached property keeps it
    monkeypatch.setattr(BoundedResponse, "_center_one", counted_center)
    monkeypatch.setattr(LatticeBall, "sample_one", counted_draw)
    randomizer.respond_one((20, -3, 11), seeded(1))
    assert sorted(calls) == ["center", "draw 16", "draw 32"]


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("dimension", [3, 8, 1000])
@pytest.mark.parametrize("steps", [60, 1000, 1 << 24])
def test_a_strangers_mechanism_is_cheap_to_examine(p: float, dimension: int, steps: int) -> None:
    """The law of any ball that a client accepts takes milliseconds of CPU, not minutes."""
    ball = Ball(radius=1.0, p=p, dimension=dimension, steps=steps)
    start = time.process_time()
    for radius in (0.01, 0.9, 1000.0):
        for kind in (MinkowskiResponse, BoundedResponse):
            made = kind(domain=ball, epsilon=1.0, radius=radius)
            if made.exact:
                assert made.law.epsilon <= 1.0
    assert time.process_time() - start < 2.0
