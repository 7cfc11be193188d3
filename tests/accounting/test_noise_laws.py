"""Separate laws of mechanisms with noise: no pair of values and no crowd is worse."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coatcheck.accounting import hockey_stick, noise_laws
from coatcheck.accounting.amplification import amplify, delta_curve
from coatcheck.accounting.laws import (
    AnyLdp,
    Atoms,
    Fieldwise,
    Law,
    OwnCoin,
    Ratios,
    bounded,
    minkowski,
    pair,
)
from coatcheck.accounting.noise_laws import laplace, planar_laplace
from coatcheck.domains import Ball, Box
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, CodebookResponse, MinkowskiResponse
from coatcheck.randomizers.baselines import (
    Laplace,
    PlanarLaplace,
    PrivHS,
    PrivUnit,
    PrivUnitG,
    SquareWave,
    Staircase,
)
from coatcheck.randomizers.sphere import SphereResponse
from support.crowds import Array, worst_delta
from support.tiers import some_slow

LINE = Box((-1.0,), (1.0,))
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
DISC = Ball(radius=1.0, p=2, dimension=2)
BUDGETS = some_slow([2.0, 0.5, 5.0], every=3)


def at(law: Law, crowd: int, epsilon: float) -> float:
    """Evaluate the δ curve of a law at one point."""
    return float(delta_curve(law, epsilons=[epsilon], crowd=crowd)[0])


def line(made: Any, values: list[float]) -> Array:
    """Return the chances of a mechanism on a line in narrow cells of reports, one row per value."""
    width = 2e-3
    reports = np.arange(-60.0, 60.0, width) + width / 2
    half = made.domain.steps // 2
    rows = [
        made.density(reports[:, None], np.full((reports.size, 1), round(x * half))) for x in values
    ]
    table = np.asarray(rows) * width
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def disc(made: Any, values: list[tuple[float, float]]) -> Array:
    """Return the chances of a mechanism of the plane in small squares of reports."""
    reach = 3 + 24 / made.epsilon
    edge = np.linspace(-reach, reach, 301)
    reports = np.stack(np.meshgrid(edge, edge), axis=-1).reshape(-1, 2)
    half = made.domain.steps // 2
    rows = [
        made.density(reports, np.tile(np.rint(np.array(x) * half).astype(int), (len(reports), 1)))
        for x in values
    ]
    table = np.asarray(rows)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def gathered(table: Array, cells: int) -> Array:
    """Gather reports that distinguish the same two values alike into one of a few cells."""
    score = np.log(table[0] + 1e-300) - np.log(table[-1] + 1e-300)
    edges = np.quantile(score, np.linspace(0, 1, cells + 1)[1:-1])
    cell = np.searchsorted(edges, score)
    return np.stack([np.bincount(cell, row, cells) for row in table])


LINES: dict[str, Callable[[float], Any]] = {
    "laplace": lambda x: Laplace(domain=LINE, epsilon=x),
    "planar laplace": lambda x: PlanarLaplace(domain=LINE, epsilon=x),
    "staircase": lambda x: Staircase(domain=LINE, epsilon=x),
    "square wave": lambda x: SquareWave(domain=LINE, epsilon=x),
}


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("name", LINES)
def test_no_crowd_on_a_line_exceeds_the_law(name: str, epsilon: float) -> None:
    """All data sets of 3 people with 4 values, whose reports are gathered into 4 cells."""
    made = LINES[name](epsilon)
    table = gathered(line(made, [1.0, 0.4, -0.3, -1.0]), 4)
    for share in (0.1, 0.4, 0.8):
        truth = worst_delta(table, 3, share * epsilon)
        assert truth <= at(made.law, 3, share * epsilon) * (1 + 1e-3)


@pytest.mark.parametrize("epsilon", BUDGETS)
def test_no_crowd_in_the_plane_exceeds_the_law(epsilon: float) -> None:
    """The same for the disc, with values on its edge, inside it and off the line of the two."""
    randomizer = PlanarLaplace(domain=DISC, epsilon=epsilon)
    table = gathered(disc(randomizer, [(1.0, 0.0), (0.5, 0.5), (0.0, -0.8), (-1.0, 0.0)]), 4)
    for share in (0.1, 0.4, 0.8):
        truth = worst_delta(table, 3, share * epsilon)
        assert truth <= at(randomizer.law, 3, share * epsilon) * (1 + 1e-3)


@pytest.mark.parametrize("kind", [PrivUnit, PrivUnitG, PrivHS])
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_no_crowd_of_unit_vectors_exceeds_the_law(kind: Any, epsilon: float) -> None:
    """Reports of 3 people, classified by which of the values' caps contain them."""
    made = kind(domain=LINE, epsilon=epsilon)
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=(200_000, 2)) / math.sqrt(2)
    if kind is not PrivUnitG:
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    values = np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    near = drawn @ values.T >= made.threshold
    above, below = made._levels
    cell = np.unique(near, axis=0, return_inverse=True)[1].ravel()
    table: Array = np.stack([np.bincount(cell, np.where(row, above, below)) for row in near.T])
    table = table / table.sum(axis=1, keepdims=True)
    for share in (0.1, 0.4, 0.8):
        truth = worst_delta(table, 3, share * epsilon)
        # 200,000 draws: the chances are off by about a half per cent
        assert truth <= at(made.law, 3, share * epsilon) * 1.03 + 1e-3


def atoms_of(first: Array, second: Array, blanket: Array) -> Atoms:
    """Gather reports whose ratios are alike within a twentieth, which only contracts G."""
    one, two = (np.round(20 * np.log(row / blanket)) for row in (first, second))
    cell = np.unique(1e4 * one + two, return_inverse=True)[1].ravel()
    x, y, m = (np.bincount(cell, row) for row in (first, second, blanket))
    atoms = zip((x / m).tolist(), (y / m).tolist(), m.tolist(), strict=True)
    return Atoms(epsilon=64.0, pairs=(tuple(atoms),))


@pytest.mark.parametrize("where", some_slow(["line", "disc"], every=2))
def test_no_other_pair_of_values_is_worse(where: str) -> None:
    """The ends of the line, or of a diameter, are the worst pair, and the law is near it."""
    rng = np.random.default_rng(11)
    made: Laplace | PlanarLaplace = Laplace(domain=LINE, epsilon=3.0)
    if where == "line":
        table = line(made, [1.0, -1.0, *rng.uniform(-1, 1, 4).tolist(), 0.0])
    else:
        made = PlanarLaplace(domain=DISC, epsilon=3.0)
        angles, radii = rng.uniform(0, 7, 4), rng.uniform(0.2, 1, 4)
        inside = list(zip(radii * np.cos(angles), radii * np.sin(angles), strict=True))
        table = disc(made, [(1.0, 0.0), (-1.0, 0.0), *inside, (0.0, 0.0)])
    blanket = math.exp(-1.5) * table[-1]
    assert (blanket <= table * (1 + 1e-6)).all()
    for size in (2, 40, 3000):
        central = 0.8 * amplify(made.law, crowd=size, delta=0.01).epsilon
        stated = hockey_stick.upper(pair(made.law), size=size, epsilon=central)
        for one, two in itertools.permutations(range(len(table)), 2):
            own = atoms_of(table[one], table[two], blanket)
            found = hockey_stick.upper(own, size=size, epsilon=central)
            assert found <= stated * (1 + 1e-3)
            if (one, two) == (0, 1):
                assert found >= 0.97 * stated


@pytest.mark.parametrize(("epsilon", "dimension"), [(0.2, 2), (3.0, 2), (6.0, 7), (22.0, 3)])
def test_the_cells_of_planar_laplace_are_measured_exactly(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, dimension: int
) -> None:
    """With a coarse rule and a fine one, every cell is off by no more than what is granted."""
    fine = noise_laws._cells(epsilon / 2, dimension)
    first, second, mass, ends = fine
    for points in (16, 10, 6, 4):
        monkeypatch.setattr(noise_laws, "_POINTS", points)
        coarse = noise_laws._cells(epsilon / 2, dimension)
        granted = noise_laws._errors(epsilon / 2, dimension)
        for one, other, error in zip(coarse[:3], fine[:3], granted, strict=True):
            assert (np.abs(one - other) <= error + noise_laws._CELL_ROUNDING * other).all()
            if points == 16:  # the rule in use: no cell but those at the peak is in doubt
                assert (error > 1e-12 * other).mean() < 0.01
    assert (first + second).sum() == pytest.approx(1, abs=1e-14)
    assert 2 * mass.sum() == pytest.approx(math.exp(-epsilon / 2), rel=1e-13)
    low, high, least, most = (np.exp(end) for end in ends)
    assert (low * mass <= first * (1 + 1e-9) + 1e-300).all()
    assert (first <= high * mass * (1 + 1e-9) + 1e-300).all()
    assert (least * mass <= second * (1 + 1e-9) + 1e-300).all()
    assert (second <= most * mass * (1 + 1e-9) + 1e-300).all()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0, 20.0])
def test_stated_ratios_add_up(epsilon: float) -> None:
    """The chances of both values sum to one, a hair above for the first and below for the other."""
    laws = [laplace(epsilon, dimension=d) for d in (1, 2, 4)]
    laws += [planar_laplace(epsilon, dimension=d) for d in (2, 5)]
    for law in laws:
        assert isinstance(law, Ratios)
        assert len(law.atoms) <= 700
        assert 1 <= sum(x * m for x, _, m in law.atoms) < 1 + 1e-10
        assert 1 - 1e-10 < sum(y * m for _, y, m in law.atoms) <= 1
        assert sum(m for *_, m in law.atoms) == pytest.approx(math.exp(-epsilon / 2), rel=3e-2)
    assert amplify(laws[0], crowd=1, delta=1e-6).epsilon == epsilon


def test_laws_of_their_own_cost_less() -> None:
    """Figures among 10,000 people at δ = 10⁻⁶, and never above any mechanism's."""

    def told(law: Law) -> float:
        return amplify(law, crowd=10_000, delta=1e-6).epsilon

    assert told(laplace(6.0)) <= 1.05 < told(AnyLdp(epsilon=6.0)) / 1.4
    assert told(laplace(6.0, dimension=2)) < 0.8
    assert told(planar_laplace(6.0, dimension=2)) < 0.81
    most = told(AnyLdp(epsilon=4.0))
    for kind in (Laplace, PlanarLaplace, Staircase, SquareWave, PrivUnit, PrivUnitG):
        for domain in (LINE, SQUARE):
            made = kind(domain=domain, epsilon=4.0)
            assert told(made.law) < 0.98 * most
    assert told(PrivHS(domain=SQUARE, epsilon=4.0).law) <= most * (1 + 1e-9)
    assert told(OwnCoin(law=laplace(6.0), rate=0.5)) < 0.9 * told(laplace(6.0))
    # Of Laplace noise on a ball in several dimensions only ε is used, and of a huge ε as well.
    assert Laplace(domain=DISC, epsilon=4.0).law == AnyLdp(epsilon=4.0)
    assert planar_laplace(40.0, dimension=2) == AnyLdp(epsilon=40.0)
    assert laplace(1.0, dimension=60) == AnyLdp(epsilon=1.0)


def test_ratios_that_no_mechanism_has_are_refused() -> None:
    """Chances that do not sum to one, and ratios above e^ε."""
    for atoms in ([(1.0, 1.0, 0.5)], [(4.0, 1.0, 0.2), (1.0, 4.0, 0.2)]):
        with pytest.raises(Misuse, match="no mechanism has these `atoms`"):
            amplify(Ratios(epsilon=1.0, atoms=tuple(atoms)), crowd=100, delta=1e-6)


@pytest.mark.parametrize(
    ("dimension", "radius", "epsilon", "known"),
    [(2, 1.5, 3.0, 0.194), (3, 2.0, 5.0, 0.597), (6, 3.0, 5.0, 0.563)],
)
def test_a_lattice_ball_has_the_lens(
    dimension: int, radius: float, epsilon: float, known: float
) -> None:
    """On an l2 lattice ε is within 1 % of the continuous law's, and not below it."""
    ball = Ball(radius=1.0, p=2, dimension=dimension)
    wide = MinkowskiResponse(domain=ball, epsilon=epsilon, radius=radius)
    inside = BoundedResponse(domain=ball, epsilon=epsilon, radius=radius / (1 + radius))
    for made, law in (
        (wide, minkowski(epsilon, radius=wide.radius, dimension=dimension, norm=2)),
        (inside, bounded(epsilon, radius=inside.radius, dimension=dimension, norm=2)),
    ):
        found = amplify(made.law, crowd=10_000, delta=1e-6).epsilon
        smooth = amplify(law, crowd=10_000, delta=1e-6).epsilon
        assert smooth * (1 - 1e-5) <= found <= 1.01 * smooth
        assert found == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(("dimension", "cap", "apart"), [(2, 30, 20), (2, 9, 4), (3, 14, 9)])
def test_lattice_balls_share_the_lens_that_is_stated(dimension: int, cap: int, apart: int) -> None:
    """Every pair of centers is counted: none share fewer points than is said."""
    ball = MinkowskiResponse(
        domain=Ball(radius=1.0, p=2, dimension=dimension, steps=2 * apart), epsilon=1.0, radius=2.0
    )._ball
    reach = np.arange(-cap, cap + 1)
    points = np.stack(np.meshgrid(*[reach] * dimension), axis=-1).reshape(-1, dimension)
    inside = points[(points * points).sum(axis=1) <= cap * cap]
    assert len(inside) == ball.count(cap)
    away = np.arange(0, 2 * apart + 1)
    offsets = np.stack(np.meshgrid(*[away] * dimension), axis=-1).reshape(-1, dimension)
    squares = (offsets * offsets).sum(axis=1)
    far = offsets[(squares <= 4 * apart * apart) & (squares >= (2 * apart - 2) ** 2)]
    shared = min(int((((inside - x) ** 2).sum(axis=1) <= cap * cap).sum()) for x in far)
    stated = ball.lens(cap, apart)
    assert 0.3 * shared / len(inside) <= stated <= shared / len(inside)


@pytest.mark.parametrize("epsilon", BUDGETS)
def test_no_crowd_with_a_codebook_exceeds_the_law(epsilon: float) -> None:
    """All data sets of 3 people, by the masses of the integers of two codebooks."""
    tiny = Box((-1.0,), (1.0,), steps=4)
    few = CodebookResponse(domain=tiny, epsilon=epsilon, points=((-2,), (0,), (2,)))
    near = SphereResponse(domain=tiny_ball(), epsilon=epsilon, size=5, closest=2, turns=1)
    for made in (few, near):
        table = np.array(
            [[float(made.mass((y,), (x,))) for y in range(made.size)] for x in range(-2, 3)]
        )
        table = np.unique(table, axis=0)
        for share in (0.1, 0.4, 0.8):
            truth = worst_delta(table, 3, share * made.epsilon_spent)
            assert truth <= at(made.law, 3, share * made.epsilon_spent) * (1 + 1e-12)


def tiny_ball() -> Ball:
    """A ball of one dimension with five points."""
    return Ball(radius=1.0, p=2, dimension=1, steps=4)


def test_staircases_and_waves_are_products() -> None:
    """Each axis has two levels and spends its part of ε."""
    for kind in (Staircase, SquareWave):
        law = kind(domain=SQUARE, epsilon=3.0).law
        assert isinstance(law, Fieldwise)
        assert [field.epsilon for field in law.laws] == [1.5, 1.5]
