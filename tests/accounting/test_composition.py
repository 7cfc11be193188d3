"""Many rounds: the figures of the study, agreement with dp-accounting, and the safe direction."""

import itertools
import math
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import amplify, delta_curve
from coatcheck.accounting.composition import Losses, calibrate_rounds, compose, losses
from coatcheck.accounting.laws import AnyLdp, OwnCoin, grid, minkowski
from coatcheck.errors import Misuse
from support.crowds import Array, grid_caps, histogram, two_level


@pytest.mark.parametrize(
    ("epsilon", "sampled", "coins", "known"),
    [(1.0, 4.276, 4.363, 2.884), (3.0, 6.091, 6.367, 4.763)],
)
def test_eighty_rounds_of_the_study(
    epsilon: float, sampled: float, coins: float, known: float
) -> None:
    """10,000 of 50,000 people, δ = 2e-7: secret samples, participation coins, 16 known rounds."""
    find = {"delta": 2e-7, "rounds": 80}
    assert compose(AnyLdp(epsilon=sampled), crowd=10_000, sampled=0.2, **find) <= epsilon  # type: ignore[arg-type]
    assert compose(AnyLdp(epsilon=sampled + 0.01), crowd=10_000, sampled=0.2, **find) > epsilon  # type: ignore[arg-type]
    tossed = OwnCoin(law=AnyLdp(epsilon=coins), rate=0.2)
    assert compose(tossed, crowd=50_000, **find) <= epsilon  # type: ignore[arg-type]
    more = OwnCoin(law=AnyLdp(epsilon=coins + 0.01), rate=0.2)
    assert compose(more, crowd=50_000, **find) > epsilon  # type: ignore[arg-type]
    assert compose(AnyLdp(epsilon=known), crowd=10_000, delta=2e-7, rounds=16) <= epsilon
    assert compose(AnyLdp(epsilon=known + 0.01), crowd=10_000, delta=2e-7, rounds=16) > epsilon


def test_local_budget_for_rounds() -> None:
    """The largest local ε for 80 rounds with secret samples is that of the study, 6.09."""
    found = calibrate_rounds(epsilon=3.0, crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    assert found == pytest.approx(6.091, abs=2e-3)
    # Each of the two is sound on its own grid; the grids differ by less than a thousandth.
    back = compose(AnyLdp(epsilon=found), crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    assert 2.997 <= back <= 3.003


@pytest.mark.parametrize("sampled", [1.0, 0.2])
def test_eighty_rounds_need_few_points_of_the_curve(
    sampled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum takes some hundred evaluations of δ and a search less than two thousand."""
    calls: list[float] = []
    upper = hockey_stick.upper

    def counted(*given: Any, **named: Any) -> float:
        calls.append(named["epsilon"])
        return upper(*given, **named)

    monkeypatch.setattr(hockey_stick, "upper", counted)
    law = minkowski(3.0, radius=0.6, dimension=2)
    compose(law, crowd=10_000, delta=2e-7, rounds=80, sampled=sampled)
    assert 50 < len(calls) < 400
    calls.clear()
    make = partial(minkowski, radius=0.6, dimension=2)
    calibrate_rounds(make, epsilon=1.0, crowd=10_000, delta=2e-7, rounds=80, sampled=sampled)
    assert 50 < len(calls) < 2_000


def one_round(step: float = 2e-3) -> Losses:
    """Return a round with an asymmetric mechanism and a secret sample."""
    law = minkowski(4.0, radius=0.5, dimension=2)
    return losses(law, crowd=2000, step=step, sampled=0.5)


def test_agrees_with_dp_accounting() -> None:
    """Our sums of losses agree with those of dp-accounting, and convert to its types."""
    ours, theirs = one_round(), one_round().to_dp_accounting()
    for rounds in (1, 7, 40):
        mine = ours.times(rounds).epsilon(1e-7)
        assert mine == pytest.approx(theirs.self_compose(rounds).get_epsilon_for_delta(1e-7), 1e-6)
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=2e-3
    )
    both = theirs.compose(gaussian).get_epsilon_for_delta(1e-7)
    assert both > max(ours.epsilon(1e-7), gaussian.get_epsilon_for_delta(1e-7))


def test_one_round_is_the_curve() -> None:
    """At the grid's points one round has the δ of the curve; between them no less."""
    law = AnyLdp(epsilon=3.0)
    one = losses(law, crowd=1000, step=0.01)
    at = [0.1, 0.3, 0.555, 0.8]
    for epsilon, truth in zip(at, delta_curve(law, epsilons=at, crowd=1000), strict=True):
        assert truth <= one.delta(epsilon) <= truth * 1.02
    found = amplify(law, crowd=1000, delta=1e-6).epsilon
    assert found * (1 - 1e-6) <= one.epsilon(1e-6) <= found * 1.002


def test_a_finer_grid_changes_little_and_lowers() -> None:
    """Halving the grid changes the total by less than a thousandth, and hardly upwards."""
    coarse, fine = (one_round(step).times(20).epsilon(1e-6) for step in (4e-3, 2e-3))
    assert coarse * (1 - 1e-3) <= fine <= coarse * (1 + 1e-4)


def test_order_does_not_matter_and_reach_is_safe() -> None:
    """Two kinds of rounds add up the same either way; counting large losses as infinite is safe."""
    one, two = one_round(), losses(AnyLdp(epsilon=2.0), crowd=500, step=2e-3)
    assert one.then(two).epsilon(1e-6) == pytest.approx(two.then(one).epsilon(1e-6), rel=1e-9)
    short = losses(AnyLdp(epsilon=2.0), crowd=500, step=2e-3, reach=0.6)
    assert short.times(5).delta(1.0) >= two.times(5).delta(1.0) * (1 - 1e-9)
    assert losses(AnyLdp(epsilon=2.0), crowd=1, step=0.01).times(3).epsilon(1e-9) <= 6.0 + 0.04


def sampled_delta(*, corrupted: int, epsilon: float) -> float:
    """Return the largest δ over all data sets when 3 of 6 people are drawn: binary response, ε = 2.

    The corrupted know whether they were drawn, so the adversary knows how many of the honest were.
    """
    caps, cells = grid_caps(2)
    channel = two_level(caps, cells, 2.0)
    honest, e = 6 - corrupted, math.exp(epsilon)

    def seen(values: tuple[int, ...], drawn: int) -> Array:
        chosen = list(itertools.combinations(values, drawn))
        return np.asarray(sum(histogram(channel, some) for some in chosen) / len(chosen))

    def delta(mine: int, other: int, others: tuple[int, ...]) -> float:
        found = 0.0
        for told in range(corrupted + 1):
            chance = math.comb(corrupted, told) * math.comb(honest, 3 - told) / math.comb(6, 3)
            one, two = (seen((value, *others), 3 - told) for value in (mine, other))
            found += chance * float(np.maximum(one - e * two, 0).sum())
        return found

    data = itertools.combinations_with_replacement((0, 1), honest - 1)
    return max(max(delta(0, 1, others), delta(1, 0, others)) for others in data)


def test_corrupted_people_tell_the_share_of_a_secret_sample() -> None:
    """What is not promised: with 2 of 6 corrupted, δ is 0.0037 where share 1/2 gives none.

    So `losses` asks that nobody of the population is corrupted, and then its claim holds.
    """
    claims = [losses(grid(2.0, cells=2), crowd=n, step=0.005, sampled=0.5) for n in (1, 2, 3)]
    assert [claim.delta(1.44) for claim in claims] == [0.0, 0.0, 0.0]
    assert sampled_delta(corrupted=2, epsilon=1.44) == pytest.approx(0.0037, abs=1e-4)
    for epsilon in (0.3, 0.9, 1.4, 1.44):
        assert sampled_delta(corrupted=0, epsilon=epsilon) <= claims[2].delta(epsilon)
    for function in (losses, compose, calibrate_rounds):
        assert "corrupted" in (function.__doc__ or "")


@pytest.mark.parametrize("sampled", [1.0, 0.3])
@pytest.mark.parametrize(("crowd", "rounds"), [(1, 1), (1, 3), (3, 2), (500, 1), (500, 2)])
def test_no_sum_is_above_the_plain_one(crowd: int, rounds: int, sampled: float) -> None:
    """Neither the rounds' ε, each with its part of δ, nor the local ε add up to less."""
    law, delta = AnyLdp(epsilon=2.0), 1e-6
    found = compose(law, crowd=crowd, delta=delta, rounds=rounds, sampled=sampled)
    parts = amplify(law, crowd=crowd, delta=delta / rounds / sampled).epsilon
    for one in (parts, 2.0):
        assert found <= rounds * math.log1p(sampled * math.expm1(one)) * (1 + 1e-12)
    if rounds == 1:
        exact = math.log1p(sampled * math.expm1(parts))
        assert found == pytest.approx(exact, rel=2e-5)


def test_rounds_that_cost_nothing_add_up_to_little() -> None:
    """A round whose ε is zero at this δ can still be composed, many times."""
    law = AnyLdp(epsilon=0.5)
    assert amplify(law, crowd=10**8, delta=1e-3).epsilon == 0.0
    assert 0 < compose(law, crowd=10**8, delta=1e-3, rounds=10_000) < 0.005


def test_an_unbounded_loss_says_so() -> None:
    """A δ below the chance of an infinite loss has no ε, and the error says so."""
    one = losses(AnyLdp(epsilon=2.0), crowd=5, step=0.01, reach=0.5)
    assert one.infinite > 0
    assert one.epsilon(one.infinite / 2) == math.inf


def test_mistakes_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different grids, no rounds, impossible shares and a missing extra are errors."""
    one = one_round()
    with pytest.raises(Misuse, match="do not add up"):
        one.then(one_round(1e-3))
    with pytest.raises(Misuse, match="do not add up"):
        one.then(replace(one, step=one.step * (1 + 1e-10)))
    with pytest.raises(Misuse, match="must be at least 1"):
        one.times(0)
    for rounds in (2.5, "3", math.nan):
        with pytest.raises(Misuse, match="whole number"):
            one.times(rounds)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="whole number"):
            compose(AnyLdp(epsilon=1.0), crowd=10, delta=1e-6, rounds=rounds)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="whole number"):
            calibrate_rounds(epsilon=1.0, crowd=10, delta=1e-6, rounds=rounds)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="`sampled`"):
        losses(AnyLdp(epsilon=1.0), crowd=10, step=0.1, sampled=0.0)
    with pytest.raises(Misuse, match="`step` must be a positive"):
        losses(AnyLdp(epsilon=1.0), crowd=10, step=0.0)
    with pytest.raises(Misuse, match="between 0 and 1"):
        one.epsilon(0.0)
    with pytest.raises(Misuse, match="positive number"):
        calibrate_rounds(epsilon=-1.0, crowd=10, delta=1e-6, rounds=3)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(Misuse, match=r"coatcheck\[accounting\]"):
        one.to_dp_accounting()
