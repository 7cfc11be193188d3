"""The posterior mean is Bayes' rule: by exact masses where they can be counted."""

from fractions import Fraction

import numpy as np
import pytest

from coatcheck import Ball, Box, Categories, GridResponse, MinkowskiResponse, Misuse, seeded
from coatcheck.randomizers import BoundedResponse, Randomizer, posterior_mean, tuned

TINY = Box((-1, -1), (1, 1), steps=4)
DIAMOND = Ball(radius=1, p=1, dimension=2, steps=4)
PLACES = np.array([[-0.5, 0.5], [0.0, 0.0], [0.5, 0.0], [0.0, -1.0]])


def by_hand(randomizer: Randomizer, report: tuple[int, ...]) -> list[float]:
    """Weigh the places by their exact masses, in fractions."""
    assert isinstance(randomizer.domain, Box | Ball)
    points = [tuple(map(int, point)) for point in randomizer.domain.snap(PLACES).tolist()]
    masses = [randomizer.mass(report, point) for point in points]
    halves = [[Fraction(value) for value in place] for place in PLACES.tolist()]
    mean = [
        sum((m * place[axis] for m, place in zip(masses, halves, strict=True)), Fraction(0))
        / sum(masses)
        for axis in (0, 1)
    ]
    return [float(value) for value in mean]


@pytest.mark.parametrize(
    "randomizer",
    [
        MinkowskiResponse(domain=TINY, epsilon=2.0, radius=0.5),
        MinkowskiResponse(domain=DIAMOND, epsilon=0.5, radius=1.0),
        BoundedResponse(domain=TINY, epsilon=1.0, radius=0.5),
        GridResponse(domain=TINY, epsilon=1.0, cells=(3, 2)),
    ],
    ids=lambda randomizer: randomizer.name,
)
def test_it_is_bayes_rule_in_fractions(randomizer: Randomizer) -> None:
    """Every report that is drawn is read as the exact masses say."""
    reports = randomizer.randomize(np.repeat(PLACES, 50, axis=0), seeded(3))
    read = posterior_mean(randomizer, reports, prior=PLACES)
    for report, mean in zip(reports.tolist(), read.tolist(), strict=True):
        assert mean == pytest.approx(by_hand(randomizer, tuple(report)), abs=1e-12)


def test_separate_priors_decode_as_a_shared_one() -> None:
    """(n, m, d) with the same places for all is (m, d), however the work is cut."""
    made = tuned(MinkowskiResponse, domain=Box((-1, -1), (1, 1)), epsilon=3.0)
    reports = made.randomize(np.zeros((5_000, 2)), seeded(1))
    own = np.broadcast_to(PLACES, (5_000, *PLACES.shape))
    shared = posterior_mean(made, reports, prior=PLACES)
    assert (posterior_mean(made, reports, prior=own) == shared).all()
    many = np.tile(PLACES, (2_000, 1))
    assert posterior_mean(made, reports[:40], prior=many) == pytest.approx(shared[:40])
    assert posterior_mean(made, reports[:0], prior=PLACES).shape == (0, 2)


def test_invalid_input_is_refused() -> None:
    """Shapes, categories, places outside and impossible reports get different errors."""
    made = MinkowskiResponse(domain=TINY, epsilon=1.0, radius=0.5)
    reports = made.randomize(PLACES, seeded(1))
    for prior in (PLACES[:, :1], PLACES[:0], PLACES[None], PLACES[0]):
        with pytest.raises(Misuse, match=r"a prior must have the shape \(m, 2\)"):
            posterior_mean(made, reports, prior=prior)
    with pytest.raises(Misuse, match="outside"):
        posterior_mean(made, reports, prior=2 * PLACES)
    with pytest.raises(Misuse, match="reports must have the shape"):
        posterior_mean(made, reports[:, :1], prior=PLACES)
    with pytest.raises(Misuse, match="some reports are impossible"):
        posterior_mean(made, reports + 100, prior=PLACES)
    kinds = GridResponse(domain=Categories(("a", "b")), epsilon=1.0)
    with pytest.raises(Misuse, match="a Box or a Ball"):
        posterior_mean(kinds, kinds.randomize(["a"], seeded(1)), prior=PLACES)
