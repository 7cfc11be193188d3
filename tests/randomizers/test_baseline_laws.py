"""The baselines' laws: densities have mass one and the promised ratio, and samples follow them."""

import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from scipy import special, stats

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import seeded
from coatcheck.randomizers.baselines.additive import Laplace, PlanarLaplace, SquareWave, Staircase
from coatcheck.randomizers.baselines.inverse_transform import GRAIN, InverseTransform, Lifted
from coatcheck.randomizers.baselines.privunit import PrivHS, PrivUnit, PrivUnitG
from support.tiers import some_slow

LINE: Final = Box((-1,), (1,))
SQUARE: Final = Box((-1, -1), (1, 1))
FALSE_ALARM: Final = 1e-4  # of each chi-square test, were its seed not fixed

Make = Callable[..., InverseTransform]
IN_SPACE: Final[tuple[Make, ...]] = (Laplace, PlanarLaplace, Staircase, SquareWave)
ON_SPHERE: Final[tuple[Make, ...]] = (PrivUnit, PrivUnitG, PrivHS)


def point_at(domain: Box | Ball, *place: float) -> Points:
    """Return the lattice point of a place of the unit ball, as one row."""
    point: Points = np.rint(np.array([place]) * (domain.steps // 2)).astype(np.int64)
    return point


def jumps(made: InverseTransform, x: float) -> list[float]:
    """Return where the density along an axis jumps, which midpoints must not straddle."""
    if isinstance(made, SquareWave):
        return [x - made.radius, x + made.radius, -1 - made.radius, 1 + made.radius]
    if isinstance(made, Staircase):
        steps = [2 * (k + part) for k in range(4) for part in (0.0, made.ledge)]
        return [x + sign * step for sign in (-1, 1) for step in steps]
    return [x]


def edges_of(made: InverseTransform, x: float) -> Floats:
    """Return the borders of cells along an axis: fine within 3, two coarse cells on each side."""
    near = [edge for edge in (*np.linspace(-3, 3, 11), *jumps(made, x)) if abs(edge) <= 3]
    far = 3.0 + 20.0 * made.domain.dimension / made.epsilon
    return np.array([-8 * far, -far, *sorted(near), far, 8 * far])


def masses(made: InverseTransform, point: Points, edges: list[Floats]) -> Floats:
    """Return the density's mass in each cell between edges (per axis), by midpoints."""
    fine = 1000 if len(edges) == 1 else 40
    parts = (np.arange(fine) + 0.5) / fine
    cells = []
    for sides in itertools.product(*(itertools.pairwise(axis) for axis in edges)):
        axes = [start + parts * (end - start) for start, end in sides]
        places = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        density = made.density(places, np.repeat(point, len(places), axis=0))
        cells.append(density.mean() * math.prod(end - start for start, end in sides))
    return np.array(cells)


@pytest.mark.parametrize("epsilon", some_slow([3, 0.7], every=2))
@pytest.mark.parametrize("domain", some_slow([LINE, SQUARE], every=2), ids=["line", "square"])
@pytest.mark.parametrize("make", IN_SPACE)
def test_samples_follow_the_density(make: Make, domain: Box, epsilon: float) -> None:
    """Counts in cells agree with the integrated density, whose whole mass is one (chi-square)."""
    made = make(domain=domain, epsilon=epsilon)
    place = (0.3, -0.6)[: domain.dimension]
    point = point_at(domain, *place)
    edges = [edges_of(made, x) for x in place]
    expected = masses(made, point, edges)
    assert expected.sum() == pytest.approx(1, abs=0.01)

    size = 20_000
    reports = made.respond(np.repeat(point, size, axis=0), seeded(8))
    cells = [np.digitize(column, axis) - 1 for column, axis in zip(reports.T, edges, strict=True)]
    shape = tuple(len(axis) - 1 for axis in edges)
    seen = np.bincount(np.ravel_multi_index(cells, shape), minlength=expected.size)
    # The coarse cells, and those too rare to count, are one.
    inside = np.zeros(shape, dtype=np.bool_)
    inside[(slice(2, -2),) * len(edges)] = True
    use = inside.ravel() & (expected * size >= 10)
    seen_all = np.append(seen[use], size - seen[use].sum() + 1)
    expected_all = np.append(expected[use] * size, size * (1 - expected[use].sum()) + 1)
    expected_all *= seen_all.sum() / expected_all.sum()
    assert stats.chisquare(seen_all, expected_all).pvalue > FALSE_ALARM


@pytest.mark.parametrize("epsilon", some_slow([3, 0.7, 8], every=3))
@pytest.mark.parametrize(
    "domain", some_slow([SQUARE, LINE, Ball(radius=1, p=2, dimension=4)], every=3), ids=str
)
@pytest.mark.parametrize("make", ON_SPHERE)
def test_lifted_samples_follow_the_density(make: Make, domain: Box | Ball, epsilon: float) -> None:
    """The component along the value has the density's law, and across it nothing leans."""
    made = make(domain=domain, epsilon=epsilon)
    assert isinstance(made, Lifted)
    place = np.zeros(domain.dimension)
    place[0] = 0.6
    size, D = 20_000, made.width
    point = point_at(domain, *place)
    reports = made.respond(np.repeat(point, size, axis=0), seeded(9)) / GRAIN
    lifted = made._lift(point / (domain.steps // 2))[0]
    along = reports @ lifted
    deviation = 1 / math.sqrt(D)

    def above(t: float) -> float:
        if make is PrivUnitG:
            return float(special.ndtr(-t / deviation))
        return float(special.betainc((D - 1) / 2, (D - 1) / 2, (1 - np.clip(t, -1, 1)) / 2))

    # Cells of equal mass under noise that leans nowhere, cut at the threshold as well.
    shares = np.unique(np.append(np.linspace(0, 1, 41)[1:-1], above(made.threshold)))
    edges = np.sort(made._component(shares))
    bounds = np.array([1.0, *[above(t) for t in edges], 0.0])
    middles = made._component((bounds[1:] + bounds[:-1]) / 2)
    density = np.where(middles >= made.threshold, *made._levels)
    expected = -np.diff(bounds) * density
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    seen = np.bincount(np.digitize(along, edges), minlength=len(expected))
    use = expected * size >= 10
    seen_all = np.append(seen[use], seen[~use].sum() + 1)
    expected_all = np.append(expected[use], expected[~use].sum() + 1 / size)
    expected_all *= seen_all.sum() / expected_all.sum()
    assert stats.chisquare(seen_all, expected_all).pvalue > FALSE_ALARM

    across = reports - along[:, None] * lifted
    leaning = np.abs(across.mean(axis=0)) / (across.std(axis=0) / math.sqrt(size) + 1e-9)
    assert leaning.max() < 5
    moments = across.T @ across / size
    plane = np.eye(D) - np.outer(lifted, lifted)
    assert np.abs(moments - made._across_variance * plane).max() < 0.1 * made._across_variance


@pytest.mark.parametrize("make", ON_SPHERE)
def test_lifted_densities_have_mass_one_and_the_promised_ratio(make: Make) -> None:
    """Averaged over noise that leans nowhere a density is 1, and its two levels are e^ε apart."""
    made = make(domain=SQUARE, epsilon=2.5)
    assert isinstance(made, Lifted)
    above, below = made._levels
    share = made._share_above(made.threshold)
    assert above * share + below * (1 - share) == pytest.approx(1, abs=1e-12)
    assert math.log(above / below) == pytest.approx(2.5, abs=1e-12)
    reports = made.respond(np.zeros((1000, 2), dtype=np.int64), seeded(4))
    found = made.density(reports, point_at(SQUARE, -1, 1).repeat(1000, axis=0))
    assert set(found.tolist()) == {above, below}
    assert (reports >= made.low).all()
    assert (reports <= made.high).all()


def test_bhowmicks_conditions_leave_budget_unspent() -> None:
    """The two sufficient conditions spend less than ε, and `epsilon_spent` says how much."""
    randomizer = PrivUnit(domain=SQUARE, epsilon=5, conditions="bhowmick")
    above, below = randomizer._levels
    share = randomizer._share_above(randomizer.threshold)
    assert above * share + below * (1 - share) == pytest.approx(1, abs=1e-9)
    assert 4 < math.log(above / below) == pytest.approx(randomizer.epsilon_spent)
    assert randomizer.epsilon_spent < 4.8
    assert randomizer.law.epsilon == randomizer.epsilon_spent


@pytest.mark.parametrize("epsilon", some_slow([2, 0.5, 6], every=3))
@pytest.mark.parametrize(
    "domain", some_slow([SQUARE, LINE, Ball(radius=1, p=2, dimension=3)], every=3), ids=str
)
@pytest.mark.parametrize("make", [*IN_SPACE, *ON_SPHERE])
def test_no_two_values_differ_more_than_promised(
    make: Make, domain: Box | Ball, epsilon: float
) -> None:
    """From opposite values no report is more than e^ε likelier, nor total variation exceeded.

    The distance is E[(1 - f'/f)+] over 20,000 reports of one value; it may pass the bound by 5
    standard errors (false alarm 3e-7). Where the bound is exact it is also reached.
    """
    made = make(domain=domain, epsilon=epsilon)
    d = domain.dimension
    corner = np.ones(d) if isinstance(domain, Box) else np.eye(d)[0]
    here, there = point_at(domain, *corner), point_at(domain, *-corner)
    size = 20_000
    reports = made.respond(here.repeat(size, axis=0), seeded(6))
    logs = np.log(made.density(reports, there.repeat(size, axis=0)))
    logs -= np.log(made.density(reports, here.repeat(size, axis=0)))
    assert np.abs(logs).max() <= epsilon * (1 + 1e-9)
    parts = np.maximum(-np.expm1(logs), 0.0)
    slack = 5 * parts.std() / math.sqrt(size)
    assert parts.mean() <= made.total_variation + slack
    if make in {PlanarLaplace, *ON_SPHERE} or d == 1:
        assert parts.mean() >= made.total_variation - slack - 1e-6
