"""Every goal is served next to the best that any ε-LDP mechanism can do, or without reports."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers import CodebookResponse, MinkowskiResponse, choose, from_params
from coatcheck.randomizers.choice import misses
from support.tiers import some_slow

LINE = Box((-1.0,), (1.0,))
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
DISK = Ball(radius=1.0, p=2, dimension=2)

# The best of all ε-LDP mechanisms by linear programming; `python -m bench optimum` prints them.
LP_WORST = {0.5: 0.7905, 1.0: 0.6323, 2.0: 0.4016, 3.0: 0.2517, 5.0: 0.0958, 6.0: 0.0586}
LP_SQUARED = {0.5: 0.3183, 1.0: 0.2800, 2.0: 0.1884, 3.0: 0.1109, 5.0: 0.0333, 6.0: 0.0175}


@pytest.mark.parametrize("epsilon", some_slow(sorted(LP_WORST), every=2))
def test_the_worst_value_of_a_line(epsilon: float) -> None:
    """Within 5 % of the linear program, and no value of a fine grid is read worse than is said."""
    best = choose(epsilon=epsilon, domain=LINE, goal="worst", exact=True)
    assert best.error <= 1.05 * LP_WORST[epsilon]
    made = best.randomizer
    assert isinstance(made, CodebookResponse)
    values = np.linspace(-1, 1, 2_001)[:, None]
    every = made.expected_error(places=values)
    one_by_one = made._errors(LINE.snap(values) / (LINE.steps // 2), 1)
    assert one_by_one.mean() == pytest.approx(every)
    assert one_by_one.max() <= best.error * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", some_slow(sorted(LP_SQUARED), every=2))
def test_squared_errors_on_a_line(epsilon: float) -> None:
    """Within 5 % of the linear program, measured on 40,000 values."""
    best = choose(epsilon=epsilon, domain=LINE, goal="squared", exact=True)
    values = seeded(1).uniforms(40_000)[:, None] * 2 - 1
    reports = best.randomizer.randomize(values, seeded(2))
    squares = misses(LINE, best.randomizer.estimate(reports, best.how), values) ** 2
    assert best.error**2 <= 1.05 * LP_SQUARED[epsilon]
    error = 5 * squares.std() / math.sqrt(len(squares))
    assert squares.mean() == pytest.approx(best.error**2, abs=error)


@pytest.mark.parametrize(("p", "epsilon"), list(itertools.product((1, 2), (0.5, 3.0))))
def test_balls_are_read_better_than_their_middle(p: int, epsilon: float) -> None:
    """In six dimensions, where caps lose to no report: never worse, and 5 % better at ε 3."""
    best = choose(epsilon=epsilon, domain=Ball(radius=1.0, p=p, dimension=6), exact=True)
    assert best.report_free is not None
    assert best.error <= (0.95 if epsilon == 3.0 else 1.0) * best.report_free


def test_half_of_all_people() -> None:
    """The goal median states the distance within which half of all values are read."""
    best = choose(epsilon=3.0, domain=DISK, goal="median", exact=True)
    angles, lengths = seeded(1).uniforms(2 * 20_000).reshape(2, -1)
    turned = 2 * math.pi * angles
    values = np.sqrt(lengths)[:, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    reports = best.randomizer.randomize(values, seeded(2), clamp=True)
    found = misses(DISK, best.randomizer.estimate(reports, best.how), values)
    assert np.median(found) == pytest.approx(best.error, rel=0.05)
    assert "median error" in best.words


def test_the_answer_without_reports_wins_where_noise_is_worse() -> None:
    """A codebook of one point costs nothing, reveals nothing, and the text says so."""
    best = choose(epsilon=1.0, domain=Ball(radius=2.0, p=2, dimension=6), goal="worst", exact=True)
    assert not best.worth_a_report
    assert best.error == best.report_free == pytest.approx(2.0)
    assert "do not ask for reports at this ε" in best.words
    made = best.randomizer
    assert made.epsilon_spent == made.law.epsilon == made.total_variation == 0.0
    estimates = made.estimate(made.randomize(np.eye(6), seeded(1)))
    assert np.abs(estimates).max() < 1e-5
    assert from_params(made.params()) == made
    wide = choose(epsilon=0.1, domain=Ball(radius=1.0, p=2, dimension=40), exact=True)
    assert not wide.worth_a_report


def test_the_text_says_for_which_people() -> None:
    """The mean and the percentiles are of people spread evenly; the worst is of one value."""
    mean = choose(epsilon=3.0, domain=SQUARE)
    assert "for people spread evenly over the domain; 90 % of them are within" in mean.words
    worst = choose(epsilon=3.0, domain=LINE, goal="worst")
    assert "for the value with the largest error; 90 % of people spread evenly" in worst.words
    assert mean.errors is not None
    assert mean.errors.mean == pytest.approx(mean.error, rel=0.02)
    assert mean.errors.median < mean.errors.percentile_90 < mean.errors.percentile_99


# -- codebooks with several close points


TINY = Box((-1.0,), (1.0,), steps=24)
CLOSE = CodebookResponse(
    domain=TINY, epsilon=1.5, points=((-12,), (-9,), (-3,), (0,), (4,), (9,), (12,)), closest=3
)


def test_close_points_keep_epsilon_exactly() -> None:
    """Over every pair of values and every report, in fractions; and each value's masses are 1."""
    rows = [
        [CLOSE.mass((report,), (point,)) for report in range(CLOSE.size)]
        for point in range(-12, 13)
    ]
    assert all(sum(row) == 1 for row in rows)
    pairs = [zip(one, two, strict=True) for one in rows for two in rows]
    most = max(Fraction(a, b) for pair in pairs for a, b in pair)
    assert math.log(most) <= CLOSE.epsilon_spent <= CLOSE.epsilon
    apart = max(
        sum(abs(a - b) for a, b in zip(one, two, strict=True)) / 2 for one in rows for two in rows
    )
    assert float(apart) == pytest.approx(CLOSE.total_variation)


def test_close_points_are_drawn_as_their_masses_say() -> None:
    """Chi-square over every report of one value; false alarm 1e-6, the seed is fixed."""
    point, draws = (5,), 40_000
    reports = CLOSE.respond(np.array([point] * draws), seeded(3))[:, 0]
    counts = np.bincount(reports, minlength=CLOSE.size)
    expected = np.array([float(CLOSE.mass((k,), point)) for k in range(CLOSE.size)]) * draws
    assert ((counts - expected) ** 2 / expected).sum() < 38.3  # 6 degrees of freedom
    likely = CLOSE.density(np.arange(CLOSE.size)[:, None], np.array([point] * CLOSE.size))
    assert likely == pytest.approx(expected / draws)


@pytest.mark.parametrize("closest", [0, 7, 8, True, 1.5, "2"])
def test_the_number_of_close_points_is_checked(closest: object) -> None:
    """None, all, more than there are and no whole number are refused."""
    with pytest.raises(Misuse, match="`closest` must be a whole number from 1 to 6"):
        replace(CLOSE, closest=closest)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "limit"), [(0.5, 16.1), (1.0, 4.05), (3.0, 0.336)])
def test_unbiased_errors_on_a_line(epsilon: float, limit: float) -> None:
    """The worst variance is near the linear program's: 16.01, 4.005 and 0.3043."""
    found = choose(epsilon=epsilon, domain=Box((-1.0,), (1.0,)), goal="unbiased", exact=True)
    assert found.error**2 <= limit


@pytest.mark.parametrize(("epsilon", "radius"), [(0.5, 1.0), (3.0, 0.5), (2.0, 0.2), (1.0, 0.37)])
def test_stairs_are_unbiased_and_predicted(epsilon: float, radius: float) -> None:
    """Every mean is the value itself, and the errors, summed report by report, are as stated."""
    line = Box((-1.0,), (1.0,), steps=4_000)
    made = MinkowskiResponse(domain=line, epsilon=epsilon, radius=radius, decode="unbiased")
    reports = np.arange(made.low[0], made.high[0] + 1)[:, None]
    estimates, squares = made.estimate(reports)[:, 0], []
    points = np.arange(-2_000, 2_001, 25)
    for point in points:
        chances = made.density(reports, np.full_like(reports, point))
        assert chances @ estimates == pytest.approx(point / 2_000, abs=1e-12)
        squares.append(chances @ (estimates - point / 2_000) ** 2)
        told = made.squared_error(np.array([point / 2_000]))
        assert squares[-1] == pytest.approx(told, rel=4e-3)
    assert max(squares) == pytest.approx(made.worst_error(power=2), rel=4e-3)
    assert np.mean(squares) == pytest.approx(made.expected_error(power=2), rel=1e-2)
