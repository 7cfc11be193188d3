"""The browser's noise: the same integers as Python's mechanisms, and the exact distribution."""

import itertools
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from scipy.stats import chi2

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    CoinResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
)
from coatcheck.randomizers.baselines import Laplace
from vectors.noises import near_reports
from world.web.browser import Refusal, ask

Exact = MinkowskiResponse | BoundedResponse | GridResponse | CodebookResponse
CITY = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
SMALL = Box((0.0, 0.0), (1.0, 1.0), steps=6)
LABELS = Categories(("a", "b", "c"))
FIELDS = FieldwiseResponse(
    domain=Product({"place": SMALL, "label": LABELS}),
    parts={
        "place": GridResponse(domain=SMALL, epsilon=1.5, cells=(3, 2)),
        "label": GridResponse(domain=LABELS, epsilon=0.5),
    },
)


def mechanisms(domain: Box, *, seed: int, count: int) -> list[Exact]:
    """Make mechanisms with all sorts of budgets and radii."""
    draw = random.Random(seed)  # noqa: S311 - parameters, not noise
    drawn: list[Exact] = []
    for _ in range(count):
        epsilon, radius = draw.uniform(0.05, 12), draw.uniform(0.001, 1.5)
        drawn += [
            MinkowskiResponse(domain=domain, epsilon=epsilon, radius=radius),
            BoundedResponse(domain=domain, epsilon=epsilon, radius=min(radius, 1.0)),
            GridResponse(
                domain=domain, epsilon=epsilon, cells=(draw.randint(2, 40), draw.randint(1, 40))
            ),
            CodebookResponse(
                domain=domain,
                epsilon=epsilon,
                points=tuple(tuple(row) for row in domain.snap(_places(draw, domain)).tolist()),
                closest=draw.randint(1, 6),
            ),
        ]
    return drawn


def _places(draw: random.Random, domain: Box) -> list[list[float]]:
    axes = list(zip(domain.lo, domain.hi, strict=True))
    return [[draw.uniform(low, high) for low, high in axes] for _ in range(draw.randint(7, 60))]


def test_the_coin_and_the_caps_are_the_same_integers() -> None:
    """Heads, bounds, lattice points and centers agree with Python's in every bit."""
    cases = mechanisms(CITY, seed=3, count=40)
    draw = random.Random(4)  # noqa: S311 - places, not noise
    values = [(draw.uniform(31.0, 31.5), draw.uniform(121.0, 122.0)) for _ in range(50)]
    values += [(31.0, 121.0), (31.5, 122.0), (31.25, 121.5)]
    answers = ask("mechanism", params=[mechanism.params() for mechanism in cases], values=values)
    for mechanism, here in zip(cases, answers, strict=True):
        assert int(here["heads"]) == mechanism.heads
        assert here["low"] == mechanism.low.tolist()
        assert here["high"] == mechanism.high.tolist()
        points = CITY.snap(values)
        assert here["points"] == points.tolist()
        assert here["centers"] == near_reports(mechanism, points).tolist()


@pytest.mark.parametrize(
    "mechanism",
    [
        MinkowskiResponse(domain=SMALL, epsilon=1.0, radius=0.4),
        BoundedResponse(domain=SMALL, epsilon=2.0, radius=0.4),
        GridResponse(domain=SMALL, epsilon=1.0, cells=(3, 2)),
        CodebookResponse(
            domain=SMALL, epsilon=1.0, points=((3, 3), (-3, 2), (0, 0), (2, -3)), closest=2
        ),
        CoinResponse(part=GridResponse(domain=SMALL, epsilon=1.0, cells=(3, 2)), rate=0.3),
        GridResponse(domain=LABELS, epsilon=1.0),
        FIELDS,
    ],
    ids=["minkowski", "bounded", "grid", "codebook", "coin", "categories", "fieldwise"],
)
def test_reports_follow_the_exact_distribution(mechanism: Any) -> None:
    """20,000 draws of the browser's own randomness pass a chi-square test against exact masses.

    The draws are fresh each run: each of the seven fails by chance once in a million runs.
    """
    points = {SMALL: (3, -1), LABELS: (2,), FIELDS.domain: (3, -1, 2)}
    check_distribution(mechanism, points[mechanism.domain])


def check_distribution(mechanism: Any, point: tuple[int, ...], count: int = 20_000) -> None:
    """Compare draws of the browser with the exact masses of Python."""
    low, high = mechanism.low.tolist(), mechanism.high.tolist()
    cells = list(itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))))
    masses = {cell: mechanism.mass(cell, point) for cell in cells}
    assert sum(masses.values()) == Fraction(1)
    drawn = Counter(map(tuple, ask("reports", params=mechanism.params(), point=point, count=count)))
    assert set(drawn) <= {cell for cell, mass in masses.items() if mass}
    expected = {cell: float(mass) * count for cell, mass in masses.items() if mass}
    statistic = sum((drawn[cell] - mean) ** 2 / mean for cell, mean in expected.items())
    assert statistic < chi2.isf(1e-6, len(expected) - 1)


@pytest.mark.parametrize(
    ("mechanism", "sentence"),
    [
        (
            Laplace(domain=CITY, epsilon=1.0),
            "supports minkowski, bounded, grid, codebook, sphere, fieldwise, coin only",
        ),
        (
            FieldwiseResponse(
                domain=Product({"7": LABELS}),
                parts={"7": GridResponse(domain=LABELS, epsilon=0.5)},
            ),
            "a field is called 7",
        ),
        (
            MinkowskiResponse(domain=Ball(radius=1.0, p=3, dimension=2), epsilon=1.0, radius=0.5),
            "supports p = 1, 2 and inf only",
        ),
    ],
    ids=["laplace", "numbered", "l3"],
)
def test_what_the_browser_cannot_draw_it_refuses(mechanism: Randomizer, sentence: str) -> None:
    """A mechanism or a domain beyond the page's is refused with a sentence, never approximated."""
    with pytest.raises(Refusal, match=sentence):
        ask("refusal", params=mechanism.params())


def plain(law: Any) -> dict[str, float]:
    """Return the numbers of a law by which the browser names them."""
    assert isinstance(law, TwoLevel)
    return {"epsilon": law.epsilon, "cap": law.cap, "apart": law.apart, "kernel": law.kernel}


def test_the_browser_states_the_same_law() -> None:
    """What a mechanism tells the accountant is, to rounding, what Python tells it."""
    cases = mechanisms(CITY, seed=9, count=20)
    answers = ask("mechanism", params=[mechanism.params() for mechanism in cases], values=[])
    for mechanism, here in zip(cases, answers, strict=True):
        there = plain(mechanism.law)
        assert [here["law"][name] for name in there] == pytest.approx(
            list(there.values()), rel=1e-6, abs=1e-12
        )
