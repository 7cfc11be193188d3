"""Trials: the figures are those of the round, and the command prints them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from coatcheck.cli import main
from coatcheck.domains import Floats
from coatcheck.errors import Misuse, OutsideDomain
from coatcheck.planning.budget_search import usual_delta
from coatcheck.randomizers.choice import misses
from coatcheck.simulation.trial import Trial, box_around, make_task, plan_groups, run_trial


def city(size: int, *, seed: int) -> Floats:
    """Scatter people over ten kilometres."""
    rng = np.random.default_rng(seed)
    return np.round(rng.uniform((31.18, 121.42), (31.27, 121.525), size=(size, 2)), 6)


GROUPS = {"riders": city(120, seed=1), "drivers": city(80, seed=2)}
BOX = box_around(GROUPS, degrees=True)


@pytest.fixture(scope="module")
def evening() -> Trial:
    """Try a taxi round of two hundred."""
    task = make_task("least-cost-matching", names=tuple(GROUPS), box=BOX)
    return run_trial(GROUPS, task=task, box=BOX, epsilon=2.0, delta=1e-4, entropy=5)


def test_the_promise_is_at_most_what_was_asked_for(evening: Trial) -> None:
    """Both groups get the ε of their own crowd."""
    for guarantee in evening.outcome.guarantees:
        assert 0.5 < guarantee.epsilon <= 2.0
        assert guarantee.delta == 1e-4


def test_distances_are_metres() -> None:
    """One minute of latitude is a nautical mile, and longitude shrinks by the cosine."""
    box = box_around({"a": np.array([[59.5, 10.0], [60.5, 12.0]])}, degrees=True)
    here, north = np.array([[60.0, 11.0]]), np.array([[60.0 + 1 / 60, 11.0]])
    east = np.array([[60.0, 11.0 + 1 / 60]])
    assert misses(box, here, north)[0] == pytest.approx(1_852, rel=2e-3)
    assert misses(box, here, east)[0] == pytest.approx(926, rel=2e-3)


def test_the_service_is_that_of_the_answers(evening: Trial) -> None:
    """All on the smaller side are matched; noise costs distance but beats having no plan."""
    told = [partners for partners in evening.outcome.partners(0) if partners]
    assert evening.service.private.served == evening.service.private.pairs == len(told) == 80
    apart = [
        misses(BOX, GROUPS["riders"][[row]], GROUPS["drivers"][[other]])[0]
        for row, partners in enumerate(evening.outcome.partners(0))
        for _, other in partners
    ]
    assert evening.service.private.mean_distance == pytest.approx(np.mean(apart))
    assert evening.service.without_noise.mean_distance < evening.service.private.mean_distance
    assert evening.service.private.mean_distance < evening.service.at_random.mean_distance
    assert math.isnan(evening.service.private.within)


def test_errors_are_near_what_the_mechanism_predicts(evening: Trial) -> None:
    """The mean error over 120 uniform people is within 40 % of the predicted one.

    The seed is fixed; over 2,000 seeds the ratio had a mean of 0.97 and a standard deviation of
    0.09 and never left 0.68 to 1.40, so a right program fails with probability below 2e-3.
    """
    draft = evening.outcome.groups[0]
    how: Any = draft.decode
    predicted = draft.randomizer.expected_error(how)
    assert evening.errors[0].mean() == pytest.approx(predicted, rel=0.4)


def test_helpers_of_the_server_cost_local_budget() -> None:
    """Corrupted people, and those they expose, are taken out of the crowd before choosing."""
    task = make_task("neighbours", names=("people",), box=BOX, radius=400.0, limit=5)
    (calm,) = plan_groups([500], task=task, domain=BOX, epsilon=1.0, delta=1e-5)
    (wary,) = plan_groups([500], task=task, domain=BOX, epsilon=1.0, delta=1e-5, corrupted=[40])
    assert wary.randomizer.epsilon < calm.randomizer.epsilon - 0.1


def test_places_outside_a_stated_box_are_refused_or_clamped() -> None:
    """A place is moved only on request."""
    box = box_around({"riders": city(30, seed=1)[:5]}, degrees=True)
    task = make_task("least-cost-matching", names=tuple(GROUPS), box=box)
    with pytest.raises(OutsideDomain, match="widen the box"):
        run_trial(GROUPS, task=task, box=box, epsilon=2.0, delta=1e-4)
    found = run_trial(GROUPS, task=task, box=box, epsilon=2.0, delta=1e-4, clamp=True)
    assert found.service.private.served == 80


def test_one_person_is_no_crowd() -> None:
    """The error says so."""
    groups = {"riders": GROUPS["riders"], "drivers": GROUPS["drivers"][:1]}
    task = make_task("least-cost-matching", names=tuple(groups), box=BOX)
    with pytest.raises(Misuse, match="at least 2 people"):
        run_trial(groups, task=task, box=BOX, epsilon=1.0, delta=1e-4)


def test_the_usual_delta_is_a_power_of_ten_below_a_hundredth_of_a_person() -> None:
    """For 400 people 1e-5, for 1,000 people 1e-5, for 1,001 people 1e-6."""
    assert [usual_delta([n]) for n in (400, 1_000, 1_001)] == pytest.approx([1e-5, 1e-5, 1e-6])


def _files(folder: Path) -> list[str]:
    for name, places in GROUPS.items():
        rows = "".join(f"{lat},{lon}\n" for lat, lon in places)
        (folder / f"{name}.csv").write_text(f"lat,lon\n{rows}", encoding="utf-8")
    return [str(folder / f"{name}.csv") for name in GROUPS]


def test_the_command_prints_one_document(tmp_path: Path, evening: Trial) -> None:
    """With --json the same seed gives the same figures as the library."""
    arguments = ["simulate", *_files(tmp_path), "--epsilon", "2", "--delta", "1e-4", "--json"]
    result = CliRunner().invoke(main, [*arguments, "--seed", "5"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    private = evening.service.private
    assert document["private"]["mean_distance"] == private.mean_distance
    assert document["private"]["pairs"] == private.pairs
    assert document["simulation"] is True
    assert document["private"]["within"] is None
    (warning,) = document["warnings"]
    assert warning.startswith("partners are nearer to chance than to what true places would give")
    assert [group["name"] for group in document["groups"]] == ["riders", "drivers"]


@pytest.mark.world
def test_candidates_settle_in_the_simulation(tmp_path: Path) -> None:
    """Settling brings partners nearer, no person has two, and the table shows it."""
    arguments = ["simulate", *_files(tmp_path), "--epsilon", "2", "--seed", "5"]
    asked = [*arguments, "--candidates", "5", "--settle"]
    result = CliRunner().invoke(main, [*asked, "--json"])
    assert result.exit_code == 0, result.output
    service = json.loads(result.stdout)["service"]
    settled = service["settled"]
    assert 40 <= settled["served"] == settled["pairs"] <= 80
    assert service["without_noise"]["mean_distance"] < settled["mean_distance"]
    assert settled["mean_distance"] < service["private"]["mean_distance"]
    assert settled["within"] > service["private"]["within"]
    alone = CliRunner().invoke(main, [*arguments, "--settle"])
    assert alone.exit_code == 2
    assert "give also `--candidates 8`" in alone.output


@pytest.mark.world
def test_neighbours_find_out_by_letter_who_is_near(tmp_path: Path) -> None:
    """With `--settle` nearly all who are named are near, and most of those near are found."""
    rows = "".join(f"{lat},{lon}\n" for lat, lon in city(300, seed=3))
    (tmp_path / "members.csv").write_text(f"lat,lon\n{rows}", encoding="utf-8")
    arguments = ["simulate", str(tmp_path / "members.csv"), "--task", "neighbours"]
    options = ["--radius", "1500", "--epsilon", "2", "--settle", "--json"]
    result = CliRunner().invoke(main, [*arguments, *options])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    service = document["service"]
    assert service["settled"]["within"] > 0.95
    assert service["settled"]["recall"] > 0.6 > service["private"]["recall"]
    assert service["settled"]["served"] > 0.85 * service["without_noise"]["served"]
    assert document["task"]["by"] == "chance"
    assert document["task"]["limit"] == 40
    assert document["groups"][0]["decoys"] in {0, 1, 2}


def test_the_command_prints_a_stamp_tables_and_the_promise(tmp_path: Path) -> None:
    """The output begins by saying that it was a simulation."""
    riders, drivers = _files(tmp_path)
    arguments = ["simulate", f"People={riders}", f"taxis={drivers}", "--epsilon", "2"]
    result = CliRunner().invoke(
        main, [*arguments, "--task", "maximum-matching", "--radius", "1500"]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("SIMULATION")
    for words in (
        "people",
        "taxis",
        "warning: partners are nearer to chance",
        "of near, found",
        "with true places",
        "with ε = ",
        "--box",
    ):
        assert words in result.stdout


def test_a_crowd_that_does_not_help_is_reported(tmp_path: Path) -> None:
    """Three riders and three drivers hide hardly anyone, and the output says so."""
    for name in ("riders", "drivers"):
        rows = "".join(f"{lat},{lon}\n" for lat, lon in GROUPS[name][:3])
        (tmp_path / f"{name}.csv").write_text(f"lat,lon\n{rows}", encoding="utf-8")
    files = [str(tmp_path / "riders.csv"), str(tmp_path / "drivers.csv")]
    result = CliRunner().invoke(main, ["simulate", *files, "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["warnings"]
    assert told[0].startswith("the crowd of riders is too small to help")
    assert told[1].startswith("the crowd of drivers is too small to help")
