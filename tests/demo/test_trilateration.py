"""The trilaterator finds each person in an app that rounds distances, and none in coatcheck.

Rounds of coatcheck are made with the demo's own mechanism and task. Seeds are fixed.
"""

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from coatcheck.demo import city
from coatcheck.demo.scenarios import make_scenario
from coatcheck.demo.trilateration import (
    WITHIN,
    RoundingApp,
    Rounds,
    Trilaterator,
    densest,
    trilaterate,
    trilateration,
)
from coatcheck.domains import Floats
from coatcheck.entropy import seeded
from coatcheck.errors import Refused
from coatcheck.tasks.contract import scaled

PEOPLE = 150


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    """Provide a crowd that stays where it is; the trilaterator is one more person."""
    return Rounds(make_scenario("nearby", people=PEOPLE + 1, epsilon=1.0), people=PEOPLE)


@pytest.fixture(scope="module")
def attacker(rounds: Rounds) -> Trilaterator:
    """Provide an attacker who knows the city but no person in it."""
    return Trilaterator(rounds, scaled(city.places(2_000, entropy=5), rounds.scale))


@pytest.mark.parametrize("step", [100.0, 500.0, 2_000.0])
def test_all_people_are_found_in_an_app_that_rounds(step: float) -> None:
    """Within 10 m of their places, from anywhere, in a few hundred requests."""
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 8_000, size=(60, 2))
    app = RoundingApp(places, step)
    for who in range(60):
        start = rng.uniform(-2_000, 10_000, size=2)
        located = trilaterate(partial(app.distance, person=who), start=start, step=step)
        assert np.hypot(*(located.guess - places[who])) < 10
        assert len(located.questions) < 500


def test_an_app_without_distances_is_not_trilaterated() -> None:
    """The attack reports this instead of guessing."""
    with pytest.raises(Refused, match="do not change"):
        trilaterate(lambda _: 0.0, start=(0.0, 0.0), step=500.0)


def test_the_densest_disc_holds_more_than_any_disc_that_was_tried() -> None:
    """One disc reaches it, so the bound is no larger than necessary."""
    rng = np.random.default_rng(4)
    places = rng.uniform(0, 1_000, size=(80, 2))
    tried = rng.uniform(0, 1_000, size=(20_000, 2))
    shares = [(np.hypot(*(places - one).T) <= WITHIN).mean() for one in tried]
    assert max(shares) <= densest(places) <= max(shares) + 0.05
    ring = WITHIN * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    assert densest(np.concatenate([ring, [[9_999.0, 0.0]]])) == 0.75


def test_an_account_learns_of_at_most_a_list_and_truly_near_or_not(rounds: Rounds) -> None:
    """Each listed person is truly within the radius and a small margin."""
    claimed = scaled(city.places(6, entropy=9), rounds.scale)
    for place, seen in zip(claimed, rounds.join(claimed, seeded(1)), strict=True):
        assert seen.near == len(seen.named) <= seen.candidates <= 40
        apart = np.hypot(*(rounds.places[sorted(seen.named)] - place).T)
        assert (apart <= 1_300).all()


def test_without_names_no_number_of_rounds_finds_a_person(
    rounds: Rounds, attacker: Trilaterator
) -> None:
    """The best guess after 1, 4 and 12 rounds succeeds for no larger share than the bound."""
    for count in (1, 4, 12):
        guess, seen = attacker.without_names(count=count, entropy=seeded(count))
        assert len(seen) == count
        found = _share(rounds.places, guess)
        assert found <= rounds.share < 0.1


def test_by_name_the_trilaterator_stays_below_two_to_the_rounds(
    rounds: Rounds, attacker: Trilaterator
) -> None:
    """Of 100 people who sign with their names; fails by chance once in a million."""
    for count in (1, 3):
        off = [
            one
            for seed in range(5)
            for one in attacker.by_name(
                range(20 * seed, 20 * seed + 20), count=count, entropy=seeded(seed)
            )
        ]
        found, bound = sum(one <= WITHIN for one in off), min(1.0, 2.0**count * rounds.share)
        assert found <= binom.isf(1e-6, len(off), bound) < len(off)


@pytest.mark.world
def test_a_person_who_is_always_listed_and_named_is_found() -> None:
    """The attack can win: with everyone in every answer, names and many rounds suffice."""
    scenario = make_scenario("nearby", people=13, epsilon=60.0)
    rounds = Rounds(scenario, people=12)
    attacker = Trilaterator(rounds, scaled(city.places(2_000, entropy=5), rounds.scale))
    early = np.median(attacker.by_name(range(12), count=1, entropy=seeded(1)))
    late = np.median(attacker.by_name(range(12), count=30, entropy=seeded(1)))
    assert late < 500 < early


def test_the_story_has_both_sides_and_the_ledger_refuses() -> None:
    """Ada is found by the app, not by coatcheck; her ledger refuses where it should."""
    told = trilateration(make_scenario("nearby", people=120, epsilon=1.0))
    assert told["app"]["error_m"] < 10
    here, ledger = told["coatcheck"], told["ledger"]
    assert here["error_m"] > WITHIN
    assert here["found"] <= here["bound"] < here["bound_if_named"] <= 1
    assert len(here["rounds"]) == len(ledger["spent"]) >= 2
    assert ledger["spent"] == sorted(ledger["spent"])
    assert ledger["spent"][-1] <= ledger["limit"]
    assert "nothing was sent" in ledger["refused"]


def _share(places: Floats, guess: Floats) -> float:
    return float((np.hypot(*(places - guess).T) <= WITHIN).mean())
