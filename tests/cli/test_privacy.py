"""The commands amplify, calibrate and plan at the shell."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck.accounting.amplification import amplify, attainable_delta
from coatcheck.accounting.laws import bounded
from coatcheck.cli import main
from coatcheck.domains import Box
from coatcheck.randomizers import BoundedResponse

LOCAL = ["--local-epsilon", "4", "--crowd", "10000", "--delta", "1e-6"]
BALL = ["--mechanism", "minkowski", "--radius", "2", "--norm", "2"]
SMALL = ["--epsilon", "1", "--crowd", "1000", "--delta", "1e-6", "--goal", "unbiased"]


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments))


def test_amplify_as_json() -> None:
    """The documented call gives the documented keys."""
    done = run("amplify", *LOCAL, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["epsilon"] == pytest.approx(0.41081, abs=1e-5)
    assert (found["delta"], found["method"], found["crowd"]) == (1e-6, "mechanism", 10_000)


def test_amplify_knows_mechanisms_and_methods() -> None:
    """A mechanism's own law gives less than the generic one; the lower bound is below both."""
    caps = ("--mechanism", "minkowski", "--radius", ".37", "--dimension", "2", "--json")
    own = json.loads(run("amplify", *LOCAL, *caps, "--lower").stdout)
    generic = json.loads(run("amplify", *LOCAL, *caps, "--method", "generic").stdout)
    assert own["least"] <= own["epsilon"] < generic["epsilon"]
    assert own["epsilon"] == pytest.approx(0.36848, abs=1e-5)
    grid = json.loads(
        run("amplify", *LOCAL, "--mechanism", "grid", "--cells", "25", "--json").stdout
    )
    silent = json.loads(run("amplify", *LOCAL, "--rate", "0.5", "--json").stdout)
    assert 0 < grid["epsilon"] < generic["epsilon"]
    assert 0 < silent["epsilon"] < generic["epsilon"]


def test_amplify_knows_fields() -> None:
    """Each field keeps its own law; the whole report costs less than the worst law of its ε."""
    done = run("amplify", *LOCAL[2:], "--fields", "10:1,10:1,10:1,10:1", "--json")
    found = json.loads(done.stdout)
    assert found["mechanism"] == "fields"
    assert found["local_epsilon"] == pytest.approx(4.0)
    assert found["epsilon"] == pytest.approx(0.0729, abs=1e-4)


def test_amplify_in_words() -> None:
    """Without --json it is a sentence with a rounded-up figure."""
    done = run("amplify", *LOCAL, "--corrupted", "50")
    assert done.exit_code == 0
    assert "at most 50" in done.stdout
    assert "9,950" in done.stdout


def test_amplify_can_be_certified() -> None:
    """With --certify it shows the enclosure of ε and δ, and ε is its upper end."""
    found = json.loads(run("amplify", *LOCAL, "--certify", "--json").stdout)
    assert 0.999 * found["epsilon"] < found["low"] < found["epsilon"] == found["high"]
    assert found["delta_low"] <= found["delta_high"] <= found["delta"]
    assert "interval arithmetic" in run("amplify", *LOCAL, "--certify").stdout
    refused = run("amplify", *LOCAL, "--certify", "--method", "closed-form")
    assert refused.exit_code != 0


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        (("laplace", "--dimension", "1", "--local-epsilon", "6"), 1.05),
        (("planar-laplace", "--norm", "2", "--local-epsilon", "6"), 0.81),
        (("minkowski", "--norm", "2", "--radius", "1.5", "--local-epsilon", "3"), 0.1945),
        (("staircase", "--local-epsilon", "4"), 0.335),
        (("privunit", "--local-epsilon", "4"), 0.387),
        (("sphere", "--norm", "2", "--dimension", "8", "--local-epsilon", "4"), 0.4),
    ],
)
def test_every_mechanism_has_its_own_law(asked: tuple[str, ...], known: float) -> None:
    """A command names each mechanism; none costs as much as the worst one of its budget."""
    crowd = ("--crowd", "1e4", "--delta", "1e-6", "--json")
    found = json.loads(run("amplify", "--mechanism", *asked, *crowd).stdout)
    assert found["mechanism"] == asked[0]
    assert 0.9 * known < found["epsilon"] <= known
    back = json.loads(
        run("calibrate", "--mechanism", *asked[:-2], "--epsilon", str(known), *crowd).stdout
    )
    assert back["local_epsilon"] >= float(asked[-1])


def test_calibrate_is_the_inverse() -> None:
    """The local budget that calibrate returns keeps the promise when amplified."""
    asked = ("calibrate", "--epsilon", "1", "--crowd", "1e4", "--delta", "1e-6")
    done = run(*asked, "--json")
    local = json.loads(done.stdout)["local_epsilon"]
    assert local == pytest.approx(5.470, abs=1e-3)
    back = run(
        "amplify", "--local-epsilon", str(local), "--crowd", "10000", "--delta", "1e-6", "--json"
    )
    assert json.loads(back.stdout)["epsilon"] <= 1
    assert (
        "local ε = 5.47"
        in run(*["calibrate", "--epsilon", "1", "--crowd", "1e4", "--delta", "1e-6"]).stdout
    )


def test_plan_as_json_and_as_a_table() -> None:
    """A plan recommends one design, explains it, and contains the groups of the terms."""
    found = json.loads(run("plan", *SMALL, "--json", "--expected", "2000").stdout)
    (group,) = found["groups"]
    assert group["recommended"]["mechanism"] == "minkowski"
    assert group["guarantee"]["epsilon"] <= 1
    assert group["expected"]["epsilon"] < 1
    assert found["terms"][0]["minimum"] == 1000
    told = run("plan", *SMALL).stdout
    assert told.count("→") == 1
    assert "10% of them lost" in told


def test_plan_of_several_groups_and_domains() -> None:
    """Groups and domains are given in the user's words and units."""
    common = ("--epsilon", "2", "--delta", "1e-6", "--goal", "unbiased", "--json")
    two = run("plan", *common, "--group", "riders:900:1200:9", "--group", "taxis:800")
    assert [group["name"] for group in json.loads(two.stdout)["groups"]] == ["riders", "taxis"]
    place = run("plan", *common, "--crowd", "900", "--geographic", "31,121,31.5,122")
    assert json.loads(place.stdout)["groups"][0]["unit"].endswith("(m)")
    for domain in (("--box", "0,0:4,2"), ("--ball", "2"), ("--dimension", "3")):
        assert run("plan", *common, "--crowd", "900", *domain).exit_code == 0
    labels = run("plan", *common[:4], "--crowd", "900", "--labels", "a, b,c")
    assert "wrong labels" in labels.stdout


@pytest.mark.world
def test_plan_for_the_task_itself() -> None:
    """The goal task plays rounds in the unit of the map, and shows what a round loses."""
    common = ("plan", "--epsilon", "1", "--delta", "1e-6", "--crowd", "200", "--json")
    place = ("--geographic", "31,121,31.1,121.1", "--task", "neighbours", "--task-params")
    errors = []
    for metres in (500, 5000):
        done = run(*common, *place, json.dumps({"radius": metres, "limit": 9}), "--goal", "task")
        found = json.loads(done.stdout)
        assert found["goal"] == "task"
        assert found["groups"][0]["guarantee"]["epsilon"] <= 1
        errors.append(found["groups"][0]["recommended"]["error"])
    assert 0 < errors[1] < errors[0] < 1  # who is near is easier to tell where near means far
    table = run(*common[:-1], *place, '{"radius": 5000}', "--goal", "task")
    assert "loss of a round of the task" in table.stdout


def test_plan_counts_exposed_people() -> None:
    """A task by name, with its parameters, takes people out of the crowd."""
    limit = ("--task", "neighbours", "--task-params", '{"radius": 0.2, "limit": 7}')
    done = run("plan", *SMALL, "--corrupted", "10", *limit, "--json")
    (group,) = json.loads(done.stdout)["groups"]
    assert group["guarantee"]["exposed"] == 70
    assert group["guarantee"]["anonymous"] == 920


def test_plan_draws(tmp_path: Path) -> None:
    """The chart is written as an image."""
    done = run("plan", *SMALL, "--plot", str(tmp_path / "plan.png"))
    assert done.exit_code == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["amplify", *LOCAL, "--local-epsilon", "-1"], "zero or more"),
        (["amplify", *LOCAL, "--local-epsilon", "nan"], "finite"),
        (["amplify", *LOCAL, "--delta", "0"], "between 0 and 1"),
        (["amplify", *LOCAL, "--delta", "1.5"], "between 0 and 1"),
        (["amplify", *LOCAL, "--delta", "nan"], "between 0 and 1"),
        (["amplify", *LOCAL, "--crowd", "0"], "must be at least 1"),
        (["amplify", *LOCAL, "--crowd", "1.5"], "whole"),
        (["amplify", *LOCAL, "--crowd", "inf"], "whole"),
        (["amplify", *LOCAL, "--mechanism", "magic"], "any | minkowski"),
        (["amplify", *LOCAL, "--mechanism", "bounded"], "--radius"),
        (["amplify", *LOCAL, "--mechanism", "grid"], "--cells"),
        (["amplify", *LOCAL, "--method", "magic"], "must be one of"),
        (["amplify", *LOCAL, "--mechanism", "bounded", "--radius", "2"], "at most 1"),
        (["amplify", *LOCAL, *BALL, "--lower"], "no lower bound is known"),
        (["amplify", *LOCAL, "--fields", "10:1"], "either `--local-epsilon` or `--fields`"),
        (["amplify", *LOCAL[2:]], "either `--local-epsilon` or `--fields`"),
        (["amplify", *LOCAL[2:], "--fields", "10"], "LABELS:EPSILON"),
        (["amplify", *LOCAL[2:], "--fields", "ten:1"], "LABELS:EPSILON"),
        (["calibrate", "--epsilon", "0", "--crowd", "9", "--delta", "0.1"], "positive number"),
        (["plan", "--epsilon", "1", "--delta", "1e-6"], "--crowd"),
        (["plan", *SMALL, "--goal", "best"], "--goal"),
        (["plan", *SMALL, "--goal", "task"], "needs `task`"),
        (["plan", *SMALL, "--box", "0,0:1"], "one number per axis"),
        (["plan", *SMALL, "--box", "a:b"], "--box"),
        (["plan", *SMALL, "--geographic", "1,2"], "SOUTH"),
        (["plan", *SMALL, "--ball", "1", "--labels", "a,b"], "only one of"),
        (["plan", *SMALL, "--dimension", "0"], "at least 1"),
        (["plan", "--epsilon", "1", "--delta", "1e-6", "--group", "x"], "NAME:CROWD"),
        (["plan", *SMALL, "--plot", "plan.txt"], ".png"),
        (["plan", *SMALL, "--task", "magic"], "no task is called"),
        (["plan", *SMALL, "--task", "neighbours", "--task-params", "{"], "JSON object"),
        (["plan", *SMALL, "--task", "neighbours", "--task-params", "1"], "JSON object"),
    ],
)
def test_mistakes_are_errors(arguments: list[str], told: str) -> None:
    """Wrong input ends with code 2 and an error that says what to do."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("coatcheck: ")
    assert told in done.stderr


def test_commands_account_for_the_lattice() -> None:
    """The ε of the command holds for the randomizer of a round, whose caps are a little larger."""
    randomizer = BoundedResponse(domain=Box((-1.0, -1.0), (1.0, 1.0)), epsilon=10.0, radius=0.002)
    caps = ("--mechanism", "bounded", "--radius", "0.002", "--crowd", "1e5", "--delta", "1e-7")
    found = json.loads(run("amplify", "--local-epsilon", "10", *caps, "--lower", "--json").stdout)
    assert attainable_delta(randomizer.law, size=100_000, epsilon=found["epsilon"]) <= 1e-7
    # The law of the continuous mechanism claimed less than some data set reaches.
    claim = amplify(bounded(10.0, radius=randomizer.radius, dimension=2), crowd=100_000, delta=1e-7)
    assert attainable_delta(randomizer.law, size=100_000, epsilon=claim.epsilon) == pytest.approx(
        1.00647e-7, 1e-5
    )
    assert claim.epsilon < found["least"] <= found["epsilon"]
    back = json.loads(run("calibrate", "--epsilon", "1", *caps, "--json").stdout)
    again = replace(randomizer, epsilon=back["local_epsilon"])
    assert amplify(again.law, crowd=100_000, delta=1e-7).epsilon <= 1
