"""The settling forecast of a plan, against settling on crowds that the plan never saw."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner

from coatcheck.cli import main
from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.planning import Group, Plan, plan
from coatcheck.simulation import settling as tried
from coatcheck.simulation.settling import FORECAST_ASKS, Forecast, forecast_settling
from coatcheck.tasks.matching import LeastCostMatching
from support.plans import remember

# On one worker: the plan and its prospects are computed once.
pytestmark = pytest.mark.xdist_group("test_prospects")
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
TASK = LeastCostMatching(groups=("riders", "drivers"), candidates=5)


@cache
def planned(corrupted: int = 0) -> Plan:
    """Plan for a small crowd."""
    asked = {
        "riders": Group(SQUARE, crowd=240, corrupted=corrupted),
        "drivers": Group(SQUARE, crowd=300, corrupted=corrupted),
    }
    return plan(asked, epsilon=2.0, delta=1e-4, task=TASK)


@cache
def found() -> dict[tuple[int, tuple[int, ...]], Forecast]:
    """Return the plan's figures, by candidates and asks."""
    return {(one.candidates, one.asks): one for one in forecast_settling(planned(), TASK, rounds=5)}


@pytest.mark.world
def test_more_candidates_and_more_asks_serve_better() -> None:
    """Beyond two standard errors: candidates beat one partner, and asking again pairs more.

    Nobody settles beyond the last ring, so more of the others are near, and fewer have a partner.
    """
    table = found()
    assert set(table) == {(1, ()), *((k, asks) for k in (3, 5, 10) for asks in FORECAST_ASKS)}
    one, five, ten = table[1, ()], table[5, (3, 2)], table[10, (3, 2)]
    for worse, better in ((one, five), (five, ten)):
        more = better.within - worse.within
        assert more > 2 * (worse.standard_errors[3] + better.standard_errors[3])
    shares = [table[5, asks].paired for asks in FORECAST_ASKS]
    assert shares == sorted(shares)
    assert (one.paired, one.letters) == (1.0, 0)
    assert five.mean_distance < one.mean_distance
    assert five.letters == 2 * 5 * 3 + 5 * (3 + 2) + 5


@pytest.mark.world
def test_the_figures_hold_for_crowds_that_come_later() -> None:
    """A fresh mean lies within four standard errors of the stated one: 1 in 10,000 is beyond."""
    stated = found()[5, (3, 2)]
    later = np.array(
        [tried._round(planned(), TASK, ((3, 2),), seeded(seed))[0] for seed in range(8)]
    )
    errors = np.hypot(stated.standard_errors, later.std(axis=0, ddof=1) / np.sqrt(8))
    told = (stated.paired, stated.mean_distance, stated.median_distance, stated.within)
    assert (np.abs(later.mean(axis=0) - told) < 4 * errors + 1e-3).all()


@pytest.mark.world
def test_corrupted_people_make_candidates_cost_something() -> None:
    """More candidates expose more people, so the same promise leaves a smaller local ε."""
    fewer = tried._again(planned(5), replace(TASK, candidates=2))
    few, five = (found["riders"].best.randomizer.epsilon for found in (fewer, planned(5)))
    assert five < few


def test_a_task_without_candidates_is_refused() -> None:
    """Without candidates there is nothing to settle."""
    with pytest.raises(Misuse, match="no candidates to settle"):
        forecast_settling(planned(), replace(TASK, candidates=1))


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """`coatcheck plan` prints the same figures as text and as JSON."""
    remember(monkeypatch, "make_plan")
    words = ["plan", "--epsilon", "2", "--group", "riders:60", "--group", "drivers:80"]
    words += ["--task", "least-cost-matching", "--task-params", '{"candidates": 4}']
    result = CliRunner().invoke(main, words)
    document = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    counts = {one["candidates"] for one in document["settling"]}
    assert counts == {1, 3, 4, 5, 10}
    assert "Settling by letter" in result.output
    for one in document["settling"]:
        assert f"{one['mean_distance']:.4g} ±" in result.output
