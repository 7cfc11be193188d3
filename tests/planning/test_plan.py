"""Plans: the gain of joint search, never worse than the paper, with effects of lost people."""

import json
import math
from pathlib import Path

import pytest

from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.errors import Misuse
from coatcheck.planning import Group, plan
from coatcheck.planning.budget_search import Promise, designed
from coatcheck.randomizers import Goal, MinkowskiResponse, choose, from_params
from coatcheck.randomizers.baselines import published_minkowski
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours

ACCOUNTING = Path(__file__).parents[1] / "support" / "accounting.json"
TABLE = json.loads(ACCOUNTING.read_text())["errors"]
SQUARE = Box((-1, -1), (1, 1))
SIX = Box((-1,) * 6, (1,) * 6)


def squared(row: dict[str, float], domain: Box, goal: Goal = "unbiased") -> float:
    """Plan one group for a cell of the table and give the squared error."""
    crowd = int(row["crowd"])
    planned = plan(
        {"all": Group(domain, crowd)}, epsilon=row["epsilon"], delta=0.01 / crowd, goal=goal
    )
    best = planned["all"].best
    assert best.guarantee.epsilon <= row["epsilon"] * (1 + 1e-12)
    return best.error**2


def paper(row: dict[str, float], domain: Box) -> MinkowskiResponse:
    """Return Minkowski response as published, with the local ε of the paper's equation."""
    crowd = int(row["crowd"])
    local = calibrate(
        epsilon=row["epsilon"], crowd=crowd, delta=0.01 / crowd, method="closed-form"
    ).local_epsilon
    return published_minkowski(domain=domain, epsilon=local)


def picked(every: int) -> list[dict[str, float]]:
    """Select some cells of the table."""
    return TABLE[::every]  # type: ignore[no-any-return]


@pytest.mark.parametrize("row", picked(12), ids=lambda row: f"{row['crowd']}-{row['epsilon']}")
def test_joint_search_reproduces_the_square(row: dict[str, float]) -> None:
    """The worst squared error on the square is that of the joint search, below the paper's.

    Where caps overlap it is lower: the table counts the blanket alone.
    """
    found = squared(row, SQUARE)
    assert 0.8 * row["square_joint"] < found < 1.004 * row["square_joint"]
    assert found < row["square_search"]
    assert found < paper(row, SQUARE).worst_error("unbiased", power=2)


@pytest.mark.parametrize("row", picked(18), ids=lambda row: f"{row['crowd']}-{row['epsilon']}")
def test_joint_search_reproduces_six_dimensions(row: dict[str, float]) -> None:
    """The same in six dimensions, where caps overlap."""
    found = squared(row, SIX)
    assert 0.8 * row["six_joint"] < found < 1.004 * row["six_joint"]
    assert found < paper(row, SIX).worst_error("unbiased", power=2)


@pytest.mark.parametrize("goal", ["mean", pytest.param("worst", marks=pytest.mark.world)])
def test_other_mechanisms_go_below(goal: Goal) -> None:
    """Read with the least error, the plan goes below unbiased Minkowski at the same promise."""
    row = next(row for row in TABLE if (row["crowd"], row["epsilon"]) == (10_000, 1.0))
    found = plan({"all": Group(SQUARE, 10_000)}, epsilon=1.0, delta=1e-6, goal=goal)["all"]
    rival = paper(row, SQUARE)
    old = rival.expected_error("unbiased") if goal == "mean" else rival.worst_error("unbiased")
    assert found.best.error < 0.6 * old
    assert found.best.error**2 < row["square_joint"]
    assert [design.error for design in found.designs] == sorted(d.error for d in found.designs)
    if goal == "mean":
        assert found.best.randomizer.name == "grid"


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['crowd']}-{row['epsilon']}")
def test_never_worse_than_the_paper(row: dict[str, float]) -> None:
    """In every cell of the table, in 2 and 6 dimensions, for every goal."""
    for domain, joint in ((SQUARE, "square_joint"), (SIX, "six_joint")):
        rival = paper(row, domain)
        found = squared(row, domain)
        assert found == pytest.approx(row[joint], rel=4e-3)
        assert found < rival.worst_error("unbiased", power=2)
        assert math.sqrt(squared(row, domain, "mean")) < rival.expected_error("unbiased")
        assert math.sqrt(squared(row, domain, "worst")) < rival.worst_error("unbiased")


def test_corruption_of_the_other_group_counts() -> None:
    """With a matching, the riders lose their corrupted and the partners of corrupted taxis."""
    groups = {"riders": Group(SQUARE, 1000, corrupted=10), "taxis": Group(SQUARE, 800, corrupted=5)}
    task = LeastCostMatching(groups=("riders", "taxis"))
    planned = plan(groups, epsilon=1.0, delta=1e-6, goal="unbiased", task=task)
    assert planned["riders"].best.guarantee.anonymous == 1000 - 10 - 5
    assert planned["taxis"].best.guarantee.anonymous == 800 - 5 - 10
    assert planned["riders"].best.error < planned["taxis"].best.error
    with pytest.raises(Misuse, match="must name the groups of the task"):
        plan({"taxis": groups["taxis"]}, epsilon=1.0, delta=1e-6, task=task)


def test_lists_of_neighbours_count_in_full() -> None:
    """With capped lists, each corrupted person exposes as many people as an answer names."""
    task = Neighbours(radius=0.2, limit=12)
    groups = {"people": Group(SQUARE, 2000, corrupted=10)}
    planned = plan(groups, epsilon=1.0, delta=1e-6, goal="unbiased", task=task)
    assert planned["people"].best.guarantee.anonymous == 2000 - 10 - 10 * 12


def test_a_plan_turns_into_terms() -> None:
    """The group part of the terms rebuilds the randomizer, which keeps the promise it states."""
    planned = plan(
        {"all": Group(SQUARE, 2000, corrupted=20)}, epsilon=0.8, delta=1e-6, goal="unbiased"
    )
    (group,) = json.loads(json.dumps([one.params() for one in planned.groups]))
    randomizer = from_params(group["randomizer"])
    guarantee = amplify(randomizer.law, crowd=group["minimum"], corrupted=20, delta=1e-6)
    assert guarantee.epsilon <= 0.8
    assert group["decode"] == "unbiased"
    assert (group["corrupted"], group["delta"]) == (20, 1e-6)


def test_lost_and_expected_people_are_stated() -> None:
    """ε rises as people are lost and falls as more come, and the text states both."""
    planned = plan({"all": Group(SQUARE, 2000, 5000)}, epsilon=1.0, delta=1e-6, goal="unbiased")
    group = planned["all"]
    assert list(group.fading.values()) == sorted(group.fading.values())
    assert 1.0 < group.fading[0.1] < 1.2
    assert group.expected.epsilon < 0.8
    told = str(planned)
    for word in (
        "minkowski",
        "local ε",
        "radius",
        "10% of them lost",
        "With 5,000 people",
        "unbiased",
    ):
        assert word in told


def test_saturation_gives_a_warning() -> None:
    """Near saturation one percent of lost people costs much, and the plan warns."""
    planned = plan({"all": Group(SQUARE, 10_000)}, epsilon=3.0, delta=1e-6, goal="unbiased")
    assert any("saturation" in warning for warning in planned["all"].warnings)
    calm = plan({"all": Group(SQUARE, 10_000)}, epsilon=0.5, delta=1e-6, goal="unbiased")
    assert not calm["all"].warnings


@pytest.mark.world
def test_a_plan_without_reports_says_so() -> None:
    """Where no report beats a constant answer, the plan is that answer and costs nothing."""
    found = plan({"all": Group(SQUARE, 50)}, epsilon=0.05, delta=1e-6, goal="worst")["all"]
    assert not found.best.worth_a_report
    assert found.best.guarantee.epsilon == 0
    assert found.best.error == found.best.report_free == pytest.approx(math.sqrt(2))
    assert "No report is worth asking for" in " ".join(found.sentences)


def test_categories_products_and_balls_can_be_planned() -> None:
    """Labels get k-ary response, a product one budget for all fields, a ball exact caps."""
    labels = Categories(("a", "b", "c"))
    planned = plan({"all": Group(labels, 1000)}, epsilon=1.0, delta=1e-6)
    assert planned["all"].best.randomizer.name == "grid"
    assert "wrong labels" in str(planned)
    both = Product({"where": SQUARE, "what": labels})
    assert "where" in str(plan({"all": Group(both, 1000)}, epsilon=1.0, delta=1e-6))
    ball = Ball(radius=3.0, p=2, dimension=2)
    assert plan({"all": Group(ball, 1000)}, epsilon=1.0, delta=1e-6)["all"].best.error < 3.0


def test_mistakes_are_errors() -> None:
    """No group, an impossible expectation, an unknown goal, a group that is not there."""
    with pytest.raises(Misuse, match="at least one group"):
        plan({}, epsilon=1.0, delta=1e-6)
    with pytest.raises(Misuse, match="expected"):
        Group(SQUARE, 100, 50)
    with pytest.raises(Misuse, match="goal"):
        plan({"all": Group(SQUARE, 100)}, epsilon=1.0, delta=1e-6, goal="best")  # type: ignore[arg-type]
    planned = plan({"all": Group(SQUARE, 100)}, epsilon=1.0, delta=1e-6, goal="unbiased")
    with pytest.raises(Misuse, match="no group"):
        planned["some"]


def test_a_choice_with_computed_errors_becomes_a_design() -> None:
    """Cached results of a choice are no part of its design."""
    choice = choose(epsilon=2.0, domain=Box((-1.0,), (1.0,)))
    assert choice.errors is not None
    design = designed(Promise(epsilon=1.0, delta=1e-6, crowd=1000), choice)
    assert design.randomizer == choice.randomizer
    assert design.error == choice.error
