"""Codebook response: every probability on small lattices, cells in integers, points for places."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from coatcheck.domains import Ball, Box, Categories, Floats, lattice_norm_within
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers import CodebookResponse, GridResponse, Prior, choose, from_params
from coatcheck.randomizers.contract import exp_below

TINY = Box((-1, -1), (1, 1), steps=6)
DISC = Ball(radius=1.0, p=2, dimension=2, steps=6)
CITY = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
SOME = ((-2, 0), (1, 1), (1, -1), (0, 2))


def points_of(domain: Box | Ball) -> list[tuple[int, ...]]:
    """Every point of a small lattice."""
    half = domain.steps // 2
    every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
    return [point for point in every if lattice_norm_within(point, domain.p, half)]


def clusters(size: int, *, seed: int = 1) -> Floats:
    """People of a city: most in two quarters, some anywhere."""
    draw = np.random.default_rng(seed)
    middles = np.array([(31.1, 121.2), (31.4, 121.7)])[draw.integers(0, 2, size)]
    near = middles + draw.normal(size=(size, 2)) * (0.01, 0.02)
    anywhere = draw.uniform((31.0, 121.0), (31.5, 122.0), (size, 2))
    return np.where(draw.random((size, 1)) < 0.9, near, anywhere)


@pytest.mark.parametrize("domain", [TINY, DISC], ids=["box", "ball"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_every_probability(domain: Box | Ball, epsilon: float) -> None:
    """Masses sum to one exactly, no ratio is above e^ε, and `density` is the same number."""
    made = CodebookResponse(domain=domain, epsilon=epsilon, points=SOME)
    points = points_of(domain)
    table = [[made.mass((y,), point) for y in range(4)] for point in points]
    assert all(sum(row) == 1 for row in table)
    for column in zip(*table, strict=True):
        assert 1 < max(column) / min(column) <= exp_below(epsilon)
    assert made.mass((4,), points[0]) == made.mass((-1,), points[0]) == 0
    for y in range(-1, 5):
        reports = np.full((len(points), 1), y)
        expected = [float(row[y]) if 0 <= y < 4 else 0.0 for row in table]
        found = made.density(reports, np.array(points, dtype=np.int64))
        assert found == pytest.approx(expected, rel=1e-12)


def test_one_point_says_nothing() -> None:
    """A codebook of one point costs nothing."""
    made = CodebookResponse(domain=TINY, epsilon=3.0, points=((1, 1),))
    assert (made.epsilon_spent, made.total_variation, made.law.apart) == (0, 0, 0)
    assert made.mass((0,), (0, 0)) == 1


def test_cells_are_nearest_points_in_integers() -> None:
    """Distances by Python's integers, ties by index, axes by their weights."""
    for weights in ((1, 1), (256, 7)):
        made = CodebookResponse(domain=TINY, epsilon=60.0, points=SOME, weights=weights)
        for point in points_of(TINY):
            squares = [
                sum(w * (i - p) ** 2 for w, i, p in zip(weights, point, place, strict=True))
                for place in SOME
            ]
            drawn = made.respond_one(point, seeded(1))
            assert drawn == (squares.index(min(squares)),)


def test_the_largest_lattice_does_not_overflow() -> None:
    """Sixteen axes of 2^24 steps with the largest weights: cells are still right."""
    half = 1 << 23
    box = Box((-1.0,) * 16, (1.0,) * 16, steps=2 * half)
    points = ((half,) * 16, (-half,) * 16, (half, *(-half,) * 15))
    made = CodebookResponse(domain=box, epsilon=60.0, points=points)
    for index, point in enumerate(points):
        assert made.respond_one(point, seeded(1)) == (index,)
    wide = Box((0.0,) * 17, (1.0,) * 17)
    with pytest.raises(Misuse, match="at most 16 dimensions"):
        CodebookResponse(domain=wide, epsilon=1.0, points=((0,) * 17, (1,) * 17))


def test_draws_follow_the_masses() -> None:
    """Chi-square over every report of one value; false alarm 1e-6, the seed is fixed."""
    made = CodebookResponse(domain=TINY, epsilon=1.0, points=SOME)
    drawn = made.respond(np.tile([[2, 0]], (40_000, 1)), seeded(4))[:, 0]
    expected = [float(made.mass((y,), (2, 0))) * len(drawn) for y in range(4)]
    assert stats.chisquare(np.bincount(drawn, minlength=4), expected).pvalue > 1e-6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"points": [[0, 0], [0, 0]]}, "twice"),
        ({"points": [[0, 0], [4, 0]]}, "must be points of the lattice"),
        ({"points": [[0, 0], [2**70, 0]]}, "whole numbers"),
        ({"points": [[0, 0], [1.0, 0]]}, "whole numbers"),
        ({"points": [[0, 0], [True, 0]]}, "whole numbers"),
        ({"points": [[0, 0], [1]]}, "whole numbers"),
        ({"points": [[0, 0], 1]}, "describe no randomizer|cannot be built"),
        ({"points": []}, "1 to 4096"),
        ({"points": [[i, 0] for i in range(4097)]}, "1 to 4096"),
        ({"weights": [1]}, "whole numbers"),
        ({"weights": [0, 1]}, "from 1 to 256"),
        ({"weights": [1, 257]}, "from 1 to 256"),
        ({"weights": []}, "not complete"),
        ({"decode": "unbiased"}, "are decoded by"),
    ],
    ids=str,
)
def test_invalid_codebooks_are_refused(change: dict[str, Any], words: str) -> None:
    """An invalid codebook is refused before anything is computed from it."""
    plain = json.loads(json.dumps(CodebookResponse(domain=TINY, epsilon=1.0, points=SOME).params()))
    assert from_params(plain).params() == plain
    with pytest.raises(Misuse, match=words):
        from_params({**plain, **change})


def test_reports_out_of_range_are_refused() -> None:
    """There is no point behind such a report."""
    made = CodebookResponse(domain=TINY, epsilon=1.0, points=SOME)
    for wrong in (-1, 4):
        with pytest.raises(Misuse, match="from 0 to 3"):
            made.estimate(np.array([[wrong]]))


def test_points_are_placed_where_people_are() -> None:
    """On people held out, a placed codebook beats what `choose` finds: half the error at ε 4.

    The prediction for the public places holds for other people of the same city.
    """
    public, people = clusters(4_000), clusters(4_000, seed=2)
    for epsilon, gain in ((1.0, 0.95), (4.0, 0.5)):
        made = CodebookResponse.placed(domain=CITY, epsilon=epsilon, points=public)
        misses = made.expected_error(places=people)
        assert misses == pytest.approx(made.expected_error(places=public), rel=0.1)
        length = CITY.scale / ((np.array(CITY.hi) - np.array(CITY.lo)) / 2)
        drawn = made.estimate(made.randomize(people, seeded(3), clamp=True))
        errors = np.linalg.norm((drawn - people) * length, axis=1)
        assert abs(errors.mean() - misses) < 5 * errors.std() / math.sqrt(len(errors))
        other = choose(epsilon=epsilon, domain=CITY, exact=True)
        read = other.randomizer.estimate(
            other.randomizer.randomize(people, seeded(3), clamp=True), other.how
        )
        assert misses < gain * np.linalg.norm((read - people) * length, axis=1).mean()
        again = CodebookResponse.placed(domain=CITY, epsilon=epsilon, points=public)
        assert again == made


def test_points_are_placed_for_a_prior() -> None:
    """A prior serves like the places it is made of, and its weights count."""
    public = clusters(500)
    made, plain = (
        CodebookResponse.placed(domain=CITY, epsilon=4.0, points=points, size=6)
        for points in (Prior.from_points(public), public)
    )
    expected = plain.expected_error(places=public)
    assert made.expected_error(places=public) == pytest.approx(expected, rel=0.1)
    corners = [(31.01, 121.01), (31.02, 121.02), (31.3, 121.3)]
    heavy = Prior.from_points(corners, weights=[1, 1, 0])
    assert CodebookResponse.placed(domain=CITY, epsilon=4.0, points=heavy).size <= 2


def test_placing_keeps_to_a_size_and_says_what_it_needs() -> None:
    """A given size is an upper bound; too few places, wrong sizes and wrong domains are errors."""
    made = CodebookResponse.placed(domain=CITY, epsilon=2.0, points=clusters(500), size=5)
    assert 2 <= made.size <= 5
    for places in ([(31.2, 121.2)], [(31.2, 121.2)] * 9):
        with pytest.raises(Misuse, match="at least two different"):
            CodebookResponse.placed(domain=CITY, epsilon=2.0, points=places)
    for size in (0, 4097, 2.0, True):
        with pytest.raises(Misuse, match="1 to 4096 points"):
            CodebookResponse.placed(domain=CITY, epsilon=2.0, points=clusters(9), size=size)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="works on"):
        CodebookResponse.placed(domain=Categories(("a",)), epsilon=1.0, points=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "domain",
    [Box((0,), (1,)), Box((-1, -1), (1, 1)), Ball(radius=1.0, p=2, dimension=2)],
    ids=["line", "box", "ball"],
)
def test_the_worst_error_is_not_below_the_truth(domain: Box | Ball) -> None:
    """No place of a fine grid has a larger mean error than the stated worst error."""
    d, half = domain.dimension, domain.steps // 2
    draw = np.random.default_rng(4).integers(-(half // 2), half // 2 + 1, (7, d))
    points = tuple(sorted(tuple(row) for row in draw.tolist()))
    made = CodebookResponse(domain=domain, epsilon=2.0, points=points)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 61), repeat=d)))
    inside = domain.from_unit(grid[np.linalg.norm(grid, ord=domain.p, axis=1) <= 1])
    told = made.worst_error()
    seen = max(made.expected_error(places=place[None]) for place in inside)
    assert seen <= told * (1 + 1e-3)
    assert told <= seen * 1.1


def test_the_law_is_that_of_a_grid_with_as_many_cells() -> None:
    """So the same crowd gives the same central ε."""
    made = CodebookResponse(domain=TINY, epsilon=2.0, points=SOME)
    assert made.law == GridResponse(domain=TINY, epsilon=2.0, cells=(2, 2)).law
