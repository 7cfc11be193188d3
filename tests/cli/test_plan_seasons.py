"""`coatcheck plan` over repeated rounds, and solved for people or ε."""

import json
import re

import pytest
from click.testing import CliRunner, Result

from coatcheck.cli import main
from support.plans import remember

LABELS = ("plan", "--labels", "a,b,c", "--delta", "1e-6")


def run(*arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, arguments)


def test_a_plan_of_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan shows the ε of each round and of all, and what each person does."""
    remember(monkeypatch, "make_plan")
    given = (*LABELS, "--epsilon", "1", "--people", "3000", "--rounds", "12", "--rate", "0.25")
    found = json.loads(run(*given, "--json").stdout)
    (group,) = found["groups"]
    assert (found["rounds"], found["people"]) == (12, 3_000)
    assert group["total"] <= 1.002
    assert group["guarantee"]["epsilon"] < 0.5
    season = group["season"]
    assert (season["rate"], season["sampling"], season["population"]) == (0.25, "coins", 3_000)
    told = run(*given).stdout
    assert "over 12 rounds together" in told
    assert "All 12 rounds together" in told
    assert "per round" in told
    assert "fixed in advance" in told
    assert found["terms"][0]["randomizer"]["name"] == "coin"
    assert "decided by a separate coin, and sends silence" in told
    secret = json.loads(run(*given, "--sampling", "secret", "--json").stdout)["groups"][0]
    assert secret["recommended"]["local_epsilon"] > group["recommended"]["local_epsilon"]


@pytest.mark.world
def test_how_many_people_an_error_takes() -> None:
    """Given the promise and the error in metres, it returns the number of people and their δ."""
    city = ("--geographic", "31,121,31.02,121.02")
    found = json.loads(run("plan", "--error", "0.5km", "--epsilon", "1", *city, "--json").stdout)
    (group,) = found["groups"]
    assert group["recommended"]["error"] <= 500
    assert 0.001 < found["delta"] * found["people"] <= 0.01


@pytest.mark.world
def test_which_epsilon_an_error_takes() -> None:
    """Given the people and the error, it returns ε and states the city that it assumes."""
    done = run("plan", "--error", "2km", "--people", "2000")
    told = re.search(r"An error of 2,000 m takes 2,000 people at ε = (\S+)\.\n", done.stdout)
    assert told
    assert 0.01 < float(told[1]) < 4
    assert "10 km by 10 km is assumed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--people", "100"], "give `--epsilon`"),
        (["--people", "0", "--epsilon", "1"], "must be at least 1"),
        (["--people", "0", "--error", "0.1"], "must be at least 1"),
        (["--error", "0.1"], "either `--epsilon`"),
        (["--error", "0.1", "--epsilon", "1", "--people", "100"], "either `--epsilon`"),
        (["--error", "0.1", "--epsilon", "1", "--group", "a:100"], "one group"),
        (["--error", "0.1", "--epsilon", "1", "--task", "neighbours"], "one group"),
        (["--error", "far", "--epsilon", "1"], "such as 300m"),
        (["--error", "3k", "--epsilon", "1"], "such as 300m"),
        (["--error", "-3m", "--epsilon", "1"], "such as 300m"),
        (["--error", "3m", "--epsilon", "1", "--box", "0:4"], "a plain number"),
        (["--error", "3", "--epsilon", "1", "--geographic", "31,121,32,122"], "in metres"),
        (["--epsilon", "1", "--people", "100", "--delta", "0"], "between 0 and 1"),
        (["--epsilon", "1", "--people", "100", "--rounds", "0"], "must be at least 1"),
        (["--epsilon", "1", "--people", "100", "--rate", "2"], "`rate` must be"),
        (["--epsilon", "1", "--people", "100", "--sampling", "x"], "coins | secret"),
    ],
)
def test_mistakes_are_errors(arguments: list[str], told: str) -> None:
    """Missing, excess or wrong-unit input is refused."""
    done = run("plan", "--dimension", "1", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr
