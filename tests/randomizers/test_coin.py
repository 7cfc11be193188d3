"""Own coins: silence is a report like any other, reveals nothing, and counts in the crowd."""

from typing import Any

import numpy as np
import pytest

from coatcheck.accounting.laws import OwnCoin
from coatcheck.cli.documents import terms_document
from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse, Refused
from coatcheck.planning import Group, plan
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.terms import suite_named
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.randomizers import (
    CoinResponse,
    FieldwiseResponse,
    GridResponse,
    SphereResponse,
    from_params,
)
from coatcheck.randomizers.baselines import Laplace
from coatcheck.randomizers.composed import spoken_reports, without_coin
from coatcheck.simulation.round import RoleKeys, simulate, view
from coatcheck.tasks import from_params as task_from
from coatcheck.tasks.learning import Learning

BALL = Ball(radius=1.0, p=2, dimension=8)
SPHERE = SphereResponse(domain=BALL, epsilon=6.0)
COIN = CoinResponse(part=SPHERE, rate=0.3)


def gradients(people: int, seed: int = 1) -> Any:
    """Draw gradients of unit length that share a direction."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(people, 8)) / 3 + np.eye(8)[0]
    return 0.99 * found / np.linalg.norm(found, axis=1, keepdims=True)


def test_a_coin_says_what_it_is() -> None:
    """Parameters make an equal one; law, budget and bounds are the part's with one number more."""
    assert from_params(COIN.params()) == COIN
    assert COIN.law == OwnCoin(law=SPHERE.law, rate=0.3)
    assert (COIN.epsilon, COIN.domain, COIN.decodes) == (6.0, BALL, SPHERE.decodes)
    assert COIN.heads == int(0.3 * 2**64)
    assert PayloadFormat.between(COIN.low, COIN.high).size == 5
    assert COIN.low.tolist() == [0, 0]


def test_reports_follow_the_coin_and_decode_without_bias() -> None:
    """The share of reports is the rate (five standard errors); their mean is unbiased as before."""
    values = gradients(20_000)
    reports = COIN.randomize(values, seeded(3))
    who, said = spoken_reports(COIN, reports)
    assert abs(len(who) / 20_000 - 0.3) < 5 * (0.21 / 20_000) ** 0.5
    estimates = without_coin(COIN).estimate(said)
    error = np.abs(estimates.mean(axis=0) - values[who].mean(axis=0))
    assert (error < 5 * estimates.std(axis=0) / len(who) ** 0.5 + SPHERE.lean / 20).all()
    silent = reports[np.setdiff1d(np.arange(20_000), who)]
    assert (silent == COIN.low).all()
    with pytest.raises(Misuse, match="are silent and say nothing"):
        COIN.estimate(reports)
    one = [COIN.randomize_one(values[0], seeded(n)) for n in range(200)]
    assert {report[0] for report in one} == {0, 1}
    assert all(report == (0, 0) for report in one if not report[0])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rate": 1.0}, "`rate` must be"),
        ({"rate": 0}, "`rate` must be"),
        ({"rate": "a"}, "`rate` must be"),
        ({"rate": True}, "`rate` must be"),
        ({"part": COIN}, "a mechanism without a coin"),
        ({"part": Laplace(domain=BALL, epsilon=1.0)}, "draws floats"),
    ],
)
def test_an_invalid_coin_is_refused(change: dict[str, Any], sentence: str) -> None:
    """Rates that are no chance, and mechanisms that cannot follow a coin."""
    with pytest.raises(Misuse, match=sentence):
        CoinResponse(**{"part": SPHERE, "rate": 0.3, **change})


def test_a_coin_stands_before_the_whole_report() -> None:
    """A field alone cannot be silent."""
    from coatcheck.domains import Product  # noqa: PLC0415 - only here

    with pytest.raises(Misuse, match="before the whole report"):
        FieldwiseResponse(domain=Product({"g": BALL}), parts={"g": COIN})


def test_a_round_with_coins_from_plan_to_answer() -> None:
    """The plan drafts it; all hide each other, the mean is of the reports, all are answered."""
    people = 120
    made = plan({"people": Group(BALL, people)}, epsilon=4.0, delta=1e-4, goal="unbiased", rate=0.5)
    assert isinstance(made["people"].randomizer, CoinResponse)
    task = Learning(dimension=8, share_mean=True).judged_by(np.eye(8)[0])
    outcome = simulate(made, [gradients(people)], task=task, entropy=5)
    assert outcome.tallies[0].kept == people
    assert outcome.guarantees[0].epsilon <= 4.0 * (1 + 1e-9)
    (reports,) = view(outcome, "server").reports
    who, said = spoken_reports(made["people"].randomizer, reports)
    assert 0 < len(who) < people
    mean = without_coin(made["people"].randomizer).estimate(said).mean(axis=0)
    assert np.allclose(outcome.answers[0][0].shared, mean)
    assert all(answer.shared == outcome.answers[0][0].shared for answer in outcome.answers[0])
    assert sum(bool(row[0]) for row in outcome.values(0)) == len(who)
    assert len({len(upload) for upload in outcome.uploads}) == 1
    told = terms_document(outcome.round)["groups"]["people"]
    assert told["mechanism"] == "coin of rate 0.5 before sphere"


def test_without_any_report_all_are_answered() -> None:
    """With a small rate (a chance of 0.995, the seed fixed) the mean is zero, not a failure."""
    group = GroupPlan(
        name="people", randomizer=CoinResponse(part=SPHERE, rate=0.001), minimum=5, delta=1e-6
    )
    task = Learning(dimension=8, share_mean=True).judged_by(np.eye(8)[0])
    outcome = simulate([group], [gradients(5)], task=task)
    assert (outcome.values(0) == 0).all()
    assert not any(outcome.answers[0][0].shared)


def test_answers_that_name_people_need_all_to_report() -> None:
    """A matching is not drafted with a coin, and a client refuses such terms."""
    square = Box((-1, -1), (1, 1))
    coin = CoinResponse(part=GridResponse(domain=square, epsilon=1.0, cells=(3, 3)), rate=0.5)
    plans = [GroupPlan(name=n, randomizer=coin, minimum=9, delta=1e-3) for n in ("riders", "cars")]
    matching = task_from({"name": "least-cost-matching", "groups": ["riders", "cars"]})
    suite = suite_named("x25519")
    keys = RoleKeys.draw(suite=suite, shufflers=1, entropy=seeded(1))
    with pytest.raises(Misuse, match="everybody must report"):
        keys.agree(plans, task=matching, name="wrong", suite=suite)
    names_nobody = type("Quiet", (type(matching),), {"exposed": lambda *_: ((0, 0), (0, 0))})
    quiet = names_nobody(groups=("riders", "cars"))
    signed = keys.agree(plans, task=quiet, name="wrong", suite=suite)
    with pytest.raises(Refused, match="everybody must report"):
        examine(
            signed,
            group="riders",
            trusted=keys.trusted,
            limit=Limit(9.0, 0.1),
            now=1_000,
            simulated=True,
        )
