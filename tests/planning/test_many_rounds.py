"""Plans for repeated rounds: promises, demands on people, and solving for people or ε."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from coatcheck.accounting.composition import compose
from coatcheck.accounting.ledger import Ledger
from coatcheck.domains import Box, Categories, Product
from coatcheck.errors import Misuse, Refused
from coatcheck.planning import Group, Promise, Recommendation, plan
from coatcheck.planning.many_rounds import epsilon_for, people_for
from coatcheck.randomizers import CoinResponse
from coatcheck.tasks.neighbours import Neighbours

LINE = Box((-1,), (1,))
LABELS = Categories(("a", "b", "c"))  # one mechanism only, so that a plan is quick


@pytest.fixture(scope="module")
def twelve_rounds() -> Recommendation:
    """Plan twelve rounds in which all people report, once for all tests."""
    return plan({"all": Group(LABELS, 3_000)}, epsilon=1.0, delta=1e-6, rounds=12)["all"]


@pytest.mark.world
def test_all_rounds_together_keep_the_promise() -> None:
    """The local ε is the largest that composition allows, for every mechanism of the plan."""
    found = plan({"all": Group(LINE, 3_000)}, epsilon=1.0, delta=1e-6, rounds=12)["all"]
    for design in found.designs:
        if not design.worth_a_report:  # it says nothing, so there is nothing to calibrate
            continue
        law = design.randomizer.law
        assert compose(law, crowd=3_000, delta=1e-6, rounds=12) <= 1.002
        more = replace(design.randomizer, epsilon=1.02 * law.epsilon).law  # type: ignore[type-var]
        assert compose(more, crowd=3_000, delta=1e-6, rounds=12) > 1
    assert [design.error for design in found.designs] == sorted(d.error for d in found.designs)
    assert found.total == pytest.approx(1.0, abs=2e-3)
    one = plan({"all": Group(LINE, 3_000)}, epsilon=1.0, delta=1e-6)["all"]
    assert one.best.error < found.best.error
    assert one.repeated is None
    assert found.fading[0.2] > found.fading[0.01] > 1


def test_fewer_reports_per_round_allow_a_larger_local_epsilon(
    twelve_rounds: Recommendation,
) -> None:
    """Participation coins and secret samples both allow more than reports in each round."""
    group = {"all": Group(LABELS, 3_000)}
    every = twelve_rounds
    coins = plan(group, epsilon=1.0, delta=1e-6, rounds=12, rate=0.25)["all"]
    secret = plan(group, epsilon=1.0, delta=1e-6, rounds=12, rate=0.25, sampling="secret")["all"]
    locals_ = [one.best.randomizer.epsilon for one in (every, coins, secret)]
    assert locals_ == sorted(locals_)
    assert coins.randomizer == CoinResponse(part=coins.best.randomizer, rate=0.25)
    tossed = coins.randomizer.law
    assert compose(tossed, crowd=3_000, delta=1e-6, rounds=12) == pytest.approx(1.0, abs=2e-3)
    drawn = compose(secret.best.randomizer.law, crowd=3_000, delta=1e-6, rounds=12, sampled=0.25)
    assert drawn == pytest.approx(1.0, abs=2e-3)
    assert any("with chance 0.25" in one for one in coins.best.guarantee.assumptions)
    assert (coins.repeated.skipped, secret.repeated.population) == (9.0, 12_000)  # type: ignore[union-attr]
    assert "silence" in str(coins.repeated)
    assert any("learns who was drawn" in one for one in secret.assumptions)
    assert not any("learns who was drawn" in one for one in coins.assumptions)
    assert "may skip any" in str(every.repeated)


def test_a_ledger_takes_as_many_rounds_as_the_plan_says(
    twelve_rounds: Recommendation, tmp_path: Path
) -> None:
    """A little fewer than planned, because a ledger allows for terms that change."""
    found = twelve_rounds
    repeated = found.repeated
    assert repeated is not None
    book = Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-6)
    for number in range(repeated.ledger_rounds):
        book.spend(found.best.guarantee, round_id=str(number))
    assert 10 <= repeated.ledger_rounds < 12
    with pytest.raises(Refused):
        book.spend(found.best.guarantee, round_id="one more")
    assert f"accepts {repeated.ledger_rounds} of them" in str(repeated)


def test_products_and_labels_can_be_planned_for_many_rounds() -> None:
    """Their local ε is calibrated for all rounds as well."""
    both = Product({"place": LINE, "kind": LABELS})
    for domain in (LABELS, both):
        found = plan({"all": Group(domain, 3_000)}, epsilon=1.0, delta=1e-6, rounds=5)["all"]
        assert found.total <= 1.002


def test_people_and_epsilon_for_an_error() -> None:
    """The result reaches the error, and slightly less does not; both ways agree."""
    asked = Promise(epsilon=1.0, delta=1e-6, crowd=2)

    def of(crowd: int) -> Promise:
        return replace(asked, crowd=crowd)

    people = people_for(0.1, of, domain=LABELS, goal="mean")
    errors = [
        plan({"all": Group(LABELS, n)}, epsilon=1.0, delta=1e-6)["all"].best.error
        for n in (people, int(0.98 * people))
    ]
    assert errors[0] <= 0.1 < errors[1]
    epsilon = epsilon_for(0.1, of(people), domain=LABELS, goal="mean")
    assert 0.97 <= epsilon <= 1.0
    assert epsilon == float(f"{epsilon:.3g}")
    assert people_for(0.9, of, domain=LABELS, goal="mean") == 2  # less than answering the middle
    assert epsilon_for(0.9, of(people), domain=LABELS, goal="mean") == 0.01


@pytest.mark.world
def test_epsilon_for_the_best_of_several_mechanisms() -> None:
    """The result of the quick search reaches the error, and little less does not."""
    asked = Promise(epsilon=1.0, delta=1e-6, crowd=4_300)
    epsilon = epsilon_for(0.1, asked, domain=LINE, goal="mean")
    errors = [
        plan({"all": Group(LINE, 4_300)}, epsilon=one, delta=1e-6)["all"].best.error
        for one in (epsilon, 0.98 * epsilon)
    ]
    assert errors[0] <= 0.1 < errors[1]


def test_an_error_out_of_reach_is_refused() -> None:
    """No crowd and no ε reach an error that is too small."""
    tiny = Promise(epsilon=0.01, delta=1e-6, crowd=10)
    with pytest.raises(Misuse, match="no crowd"):
        people_for(1e-6, lambda crowd: replace(tiny, crowd=crowd), domain=LABELS, goal="mean")
    with pytest.raises(Misuse, match="no ε"):
        epsilon_for(1e-9, tiny, domain=LABELS, goal="mean")


def test_mistakes_get_a_sentence() -> None:
    """What cannot be planned for many rounds says so."""
    group = {"all": Group(LINE, 3_000, corrupted=5)}
    with pytest.raises(Misuse, match="sampling='coins'"):
        plan(group, epsilon=1.0, delta=1e-6, rate=0.5, sampling="secret")
    with pytest.raises(Misuse, match="'coins' or 'secret'"):
        plan(group, epsilon=1.0, delta=1e-6, rate=0.5, sampling="known")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="need method"):
        plan(group, epsilon=1.0, delta=1e-6, rounds=3, method="generic")
    with pytest.raises(Misuse, match="must be at least 1"):
        plan(group, epsilon=1.0, delta=1e-6, rounds=0)
    for rate in (0.0, 1.5, math.nan):
        with pytest.raises(Misuse, match="`rate` must be"):
            plan(group, epsilon=1.0, delta=1e-6, rate=rate)
    near = Neighbours(radius=0.1, groups=("all",))
    with pytest.raises(Misuse, match="plans a single round"):
        plan(group, epsilon=1.0, delta=1e-6, rounds=3, goal="task", task=near)
