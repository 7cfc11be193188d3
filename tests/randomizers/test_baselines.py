"""The baselines: the paper's table comes out, and predicted errors are the measured ones."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from coatcheck.cli.privacy import MECHANISMS
from coatcheck.domains import Ball, Box, Categories, Floats, domain_from_params
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.baselines import BASELINES
from coatcheck.randomizers.baselines.additive import Laplace, PlanarLaplace, SquareWave, Staircase
from coatcheck.randomizers.baselines.inverse_transform import InverseTransform
from coatcheck.randomizers.baselines.privunit import PrivHS, PrivUnit, PrivUnitG
from coatcheck.randomizers.contract import Decode
from support.tiers import mostly_slow, some_slow

SQUARE: Final = Box((-1, -1), (1, 1))
BUDGETS: Final = (0.5, 1, 2, 3, 5, 8, 10)
REPETITIONS: Final = 1000  # of the paper's experiments, which their standard errors are of

Make = Callable[..., InverseTransform]


def bhowmick(*, domain: Box | Ball, epsilon: float) -> PrivUnit:
    """Return PrivUnit as the paper has it."""
    return PrivUnit(domain=domain, epsilon=epsilon, conditions="bhowmick")


TABLE: Final[dict[Make, tuple[float, ...]]] = {
    bhowmick: (8.94, 4.68, 2.25, 1.44, 0.81, 0.32, 0.18),
    PrivUnitG: (8.73, 4.63, 2.27, 1.51, 0.96, 0.63, 0.53),
    Laplace: (12.97, 6.56, 3.27, 2.13, 1.30, 0.81, 0.64),
    PlanarLaplace: (11.17, 5.63, 2.84, 1.88, 1.14, 0.71, 0.56),
    Staircase: (13.19, 6.40, 3.13, 2.01, 1.05, 0.46, 0.28),
    SquareWave: (11.87, 5.72, 2.65, 1.68, 0.92, 0.53, 0.42),
}
CELLS: Final = [
    (make, epsilon, paper)
    for make, row in TABLE.items()
    for epsilon, paper in zip(BUDGETS, row, strict=True)
]
ALL: Final[tuple[Make, ...]] = (*TABLE, PrivUnit, PrivHS)


def misses(made: InverseTransform, *, size: int, seed: int, how: Decode = "unbiased") -> Floats:
    """Return distances between estimates and uniform values, in the unit of errors."""
    entropy = seeded(seed)
    domain = made.domain
    places = np.zeros((0, domain.dimension))
    while len(places) < size:
        drawn = 2 * entropy.uniforms(size * domain.dimension).reshape(size, -1) - 1
        inside = np.linalg.norm(drawn, ord=domain.p, axis=1) <= 1
        places = np.concatenate([places, drawn[inside]])[:size]
    values = domain.from_unit(places)
    estimates = made.estimate(made.randomize(values, entropy), how)
    unit = np.ones((1, domain.dimension))
    ratio = domain.scale / (domain.from_unit(unit) - domain.from_unit(0 * unit))
    distances: Floats = np.linalg.norm((estimates - values) * ratio, axis=1)
    return distances


@pytest.mark.parametrize(
    ("make", "epsilon", "paper"), mostly_slow(CELLS, quick=lambda cell: cell[1] == 3)
)
def test_the_papers_table_comes_out(make: Make, epsilon: float, paper: float) -> None:
    """Each cell is within 4 % or 3 standard errors of the paper's 1000 repetitions.

    Two cells of PrivUnit, which no reading of the paper explains, are 5 and 7 % above it.
    Seeds are fixed, so a pass repeats; a fresh seed moves a figure by 0.3 %.
    """
    distances = misses(make(domain=SQUARE, epsilon=epsilon), size=100_000, seed=11)
    error, noise = distances.mean(), distances.std() / math.sqrt(REPETITIONS)
    if make is bhowmick and epsilon >= 8:
        assert 1.03 < error / paper < 1.09
    else:
        assert abs(error - paper) <= max(0.04 * paper, 3 * noise)


@pytest.mark.parametrize(
    ("epsilon", "error"),
    some_slow(zip(BUDGETS, (8.85, 4.37, 2.08, 1.29, 0.625, 0.257, 0.150), strict=True), every=6),
)
def test_privunit_with_the_exact_ratio_is_better_than_the_papers(
    epsilon: float, error: float
) -> None:
    """The exact ratio gives research's figures within 1 %, below those of the conditions."""
    exact = PrivUnit(domain=SQUARE, epsilon=epsilon)
    assert exact.expected_error() == pytest.approx(error, rel=0.01)
    assert exact.expected_error() < bhowmick(domain=SQUARE, epsilon=epsilon).expected_error()


DOMAINS: Final = (
    Box((-3,), (5,)),
    SQUARE,
    Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0),
    Box((0, 0, 0), (1, 1, 1)),
    Ball(radius=2, p=2, dimension=2),
    Ball(radius=1, p=1, dimension=4),
)


# Bhowmick's conditions need two dimensions.
FITTING = mostly_slow(
    (
        (make, domain)
        for make in ALL
        for domain in DOMAINS
        if make is not bhowmick or domain.dimension > 1
    ),
    quick=lambda case: case[1] is SQUARE,
)


@pytest.mark.parametrize(("make", "domain"), FITTING)
def test_predicted_errors_are_measured(make: Make, domain: Box | Ball) -> None:
    """Mean, root mean square and projected error are as predicted on every domain, at ε = 2.

    Within 1 % for the quadrature plus 5 standard errors: false alarm below 1e-6 a case.
    """
    made = make(domain=domain, epsilon=2)
    size = 20_000
    distances = misses(made, size=size, seed=5)
    squares = distances**2
    for found, predicted, slack in (
        (distances, made.expected_error("unbiased"), 0.01),
        (squares, made.expected_error("unbiased", power=2), 0.0),
        (misses(made, size=size, seed=6, how="project"), made.expected_error("project"), 0.01),
    ):
        margin = 5 * found.std() / math.sqrt(size) + slack * predicted
        assert abs(found.mean() - predicted) <= margin


@pytest.mark.parametrize(("make", "domain"), FITTING)
def test_estimates_are_unbiased_at_the_border(make: Make, domain: Box | Ball) -> None:
    """Reports of one border point average to it, within 5 standard errors an axis (1e-6)."""
    made = make(domain=domain, epsilon=1.5)
    point = np.zeros((1, domain.dimension), dtype=np.int64)
    point[0, 0] = domain.steps // 2
    reports = made.respond(np.repeat(point, 20_000, axis=0), seeded(3))
    bias = made.estimate(reports, "unbiased") - domain.values(point)
    assert (np.abs(bias.mean(axis=0)) <= 5 * bias.std(axis=0) / math.sqrt(len(bias))).all()


@pytest.mark.parametrize("epsilon", some_slow(BUDGETS, every=6))
def test_additive_noise_has_the_papers_closed_forms(epsilon: float) -> None:
    """On the square: Laplace (4/ε)(1 + ln(1+√2)/√2), planar Laplace 4√2/ε, and no worst case."""
    laplace = Laplace(domain=SQUARE, epsilon=epsilon)
    planar = PlanarLaplace(domain=SQUARE, epsilon=epsilon)
    expected = 4 / epsilon * (1 + math.log(1 + math.sqrt(2)) / math.sqrt(2))
    assert laplace.expected_error() == pytest.approx(expected, rel=1e-12)
    assert planar.expected_error() == pytest.approx(4 * math.sqrt(2) / epsilon, rel=1e-12)
    for made in (laplace, planar, Staircase(domain=SQUARE, epsilon=epsilon)):
        assert made.worst_error() == made.expected_error()
        assert made.worst_error(power=2) == made.expected_error(power=2)


@pytest.mark.parametrize("make", [SquareWave, PrivUnit, PrivUnitG, PrivHS, bhowmick])
def test_the_worst_squared_error_is_at_a_corner_or_the_middle(make: Make) -> None:
    """No place of a fine grid has a larger mean squared error than `worst_error` says."""
    made = make(domain=SQUARE, epsilon=3)
    axis = np.linspace(-1, 1, 21)
    errors = [made.squared_error(np.array([x, y])) for x in axis for y in axis]
    assert max(errors) == pytest.approx(made.worst_error("unbiased", power=2), rel=1e-12)


def test_parameters_give_an_equal_object() -> None:
    """The constructor takes exactly the keys of `params`, and makes an equal object of them."""
    for make in ALL:
        made = make(domain=Ball(radius=3, p=2, dimension=3), epsilon=0.7)
        plain = made.params()
        assert plain.pop("name") == made.name
        domain = domain_from_params(plain.pop("domain"))
        assert isinstance(domain, Ball)
        assert type(made)(domain=domain, **plain) == made


def test_wrong_arguments_are_misuse() -> None:
    """A budget of nothing, a domain without vectors and an unknown reading are misuse."""
    for make in ALL:
        with pytest.raises(Misuse, match="above 0"):
            make(domain=SQUARE, epsilon=0)
        with pytest.raises(Misuse, match="Box or a Ball"):
            make(domain=Categories(("a", "b")), epsilon=1)
        with pytest.raises(Misuse, match=r"unbiased \| project"):
            make(domain=SQUARE, epsilon=1).expected_error("median")
        with pytest.raises(Misuse, match="lattice"):
            make(domain=SQUARE, epsilon=1).respond(np.array([[1 << 20, 0]]), seeded(1))


def test_conditions_are_named_and_need_a_plane() -> None:
    """PrivUnit knows two sets of conditions, one of which holds from two dimensions up."""
    with pytest.raises(Misuse, match=r"exact \| bhowmick"):
        PrivUnit(domain=SQUARE, epsilon=1, conditions="none")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="two dimensions"):
        bhowmick(domain=Box((0,), (1,)), epsilon=1)


def test_extreme_budgets_stay_finite() -> None:
    """The smallest and largest budgets give finite reports, errors and distances."""
    for make, epsilon in itertools.product(ALL, (1e-3, 30, 64)):
        made = make(domain=Ball(radius=1, p=2, dimension=40), epsilon=epsilon)
        reports = made.respond(np.zeros((100, 40), dtype=np.int64), seeded(2))
        assert np.isfinite(made.estimate(reports)).all()
        assert 0 <= made.worst_error("unbiased", power=2) < math.inf
        assert 0 <= made.total_variation <= 1


_CORE: Final = """
import sys
from coatcheck import Box, choose, plan, simulate
from coatcheck.cli import plan as commands, privacy
from coatcheck.demo import scenarios
from coatcheck.services.server import pipeline
square = Box((0.0, 0.0), (1.0, 1.0))
choose(epsilon=2.0, domain=square)
choose(epsilon=2.0, domain=square, goal="unbiased", exact=True)
print(sorted(name for name in sys.modules if "baselines" in name))
choose(epsilon=2.0, domain=square, goal="unbiased")
print(sorted(name for name in sys.modules if "baselines" in name))
"""


def test_the_core_loads_no_baseline() -> None:
    """Only a search among inexact mechanisms loads one, and a command that names one."""
    run = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _CORE], capture_output=True, text=True, check=True
    )
    before, after = run.stdout.splitlines()
    assert before == "[]"
    assert "coatcheck.randomizers.baselines.privunit" in after
    names = {kind.name for kind in BASELINES}
    assert set(MECHANISMS) == {"any", "minkowski", "bounded", "grid", "sphere", *names}
