"""With a crowd, `choose` finds the mechanism whose batch shows where people are."""

import numpy as np
import pytest

from coatcheck.domains import Ball, Box, Categories
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers import choose
from coatcheck.randomizers.choice import Choice, misses
from coatcheck.randomizers.crowd_search import city

SQUARE = Box((-1, -1), (1, 1))
PEOPLE = 1_000


def error(choice: Choice, places: np.ndarray, how: str = "") -> float:
    """Measure the mean distance of estimates in one batch of these people."""
    randomizer = choice.randomizer
    reports = randomizer.randomize(places, seeded(11), clamp=True)
    estimates = randomizer.estimate(reports, how or choice.decode)  # type: ignore[arg-type] # a decoder
    return float(misses(SQUARE, estimates, places).mean())


@pytest.mark.parametrize("epsilon", [3.0, 5.0])
def test_the_choice_for_a_batch_beats_the_choice_for_single_reports(epsilon: float) -> None:
    """On two towns that the search does not know: fixed seeds, a twentieth less error at least."""
    draws = np.random.default_rng(3)
    towns = np.array([(-0.5, 0.3), (0.6, -0.4)])[draws.integers(2, size=PEOPLE)]
    places = np.clip(towns + draws.normal(0, 0.05, (PEOPLE, 2)), -1, 1)
    alone = choose(epsilon=epsilon, domain=SQUARE)
    together = choose(epsilon=epsilon, domain=SQUARE, crowd=PEOPLE)
    assert together.decode == "learned"
    assert error(together, places) < 0.95 * error(alone, places, "learned")
    assert error(together, places) < 0.95 * error(alone, places)
    assert f"{PEOPLE:,} people in made-up cities" in together.words
    assert together.errors is None


def test_the_search_is_the_same_every_time() -> None:
    """Clients and servers on two machines find one mechanism; the squared error has its own."""
    first, again = (choose(epsilon=3.0, domain=SQUARE, crowd=60) for _ in range(2))
    assert first == again
    assert choose(epsilon=3.0, domain=SQUARE, goal="squared", crowd=60).decode == "learned-mean"


def test_where_no_batch_is_read_the_crowd_changes_nothing() -> None:
    """Labels, the worst value and many dimensions are decoded report by report."""
    labels = Categories(("a", "b", "c"))
    assert choose(epsilon=1.0, domain=labels, crowd=500) == choose(epsilon=1.0, domain=labels)
    for options in (
        {"domain": SQUARE, "goal": "worst"},
        {"domain": Ball(radius=1.0, p=2, dimension=5)},
    ):
        assert choose(epsilon=2.0, **options, crowd=500).crowd is None


def test_a_crowd_of_nobody_is_refused() -> None:
    """The error names the number."""
    with pytest.raises(Misuse, match="`crowd` must be at least 1, got 0"):
        choose(epsilon=1.0, domain=SQUARE, crowd=0)


@pytest.mark.parametrize("domain", [SQUARE, Box((0,), (5,)), Ball(radius=2.0, p=2, dimension=2)])
def test_a_made_up_city_has_clusters_inside_the_domain(domain: Box | Ball) -> None:
    """Everybody is inside, and the densest tenth along an axis has more than its share."""
    places = city(domain, 0, PEOPLE)
    assert places.shape == (PEOPLE, domain.dimension)
    assert (np.linalg.norm(places, ord=domain.p, axis=1) <= 1 + 1e-12).all()
    counts, _ = np.histogram(places[:, 0], bins=10, range=(-1, 1))
    assert counts.max() >= 0.15 * PEOPLE
