"""The ledger's arithmetic against servers that choose the next round by earlier results."""

import contextlib
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from coatcheck.accounting.amplification import amplify, delta_curve
from coatcheck.accounting.composition import losses
from coatcheck.accounting.laws import AnyLdp, Law, OwnCoin, bounded, grid, minkowski
from coatcheck.accounting.ledger import Ledger
from coatcheck.accounting.privacy_filter import Budget, Charge, HiddenReport, _needed
from coatcheck.errors import Refused

# Rounds without a crowd, in tenths of a budget and the chance to report: losses are whole tenths.
MENU = ((2, 1.0), (4, 1.0), (9, 0.3), (20, 0.05), (30, 0.01))


def law_of(tenths: int, rate: float) -> Law:
    """Return the law of a round on the menu."""
    law = AnyLdp(epsilon=tenths / 10)
    return law if rate == 1 else OwnCoin(law=law, rate=rate)


def gaussian(mu: float, epsilon: float) -> float:
    """Return δ(ε) of N(μ, 1) against N(0, 1)."""
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    )


def best_stop(readings: list[float], law: Law, crowd: int) -> float:
    """Give the largest δ of a server that stops when it likes, if so much is read after each round.

    Full search over all outcomes, on the worst pair's losses: δ = E[(1 - e^(reading - loss))_+].
    """
    reach = amplify(law, crowd=crowd, delta=1e-13).epsilon
    one = losses(law, crowd=crowd, step=reach / 60, reach=reach)
    side = one.mass.size // 2
    loss = one.step * np.arange(-10 * side, math.ceil((max(readings) + 1) / one.step))
    value = np.zeros(loss.size)
    for reading in reversed(readings):
        gain = -np.expm1(np.minimum(0.0, reading - loss))
        value = np.maximum(gain, value)
        wide = np.concatenate([np.full(side, value[0]), value, np.ones(side)])
        value = np.convolve(wide, one.mass[::-1], "valid") + one.infinite
    return float(value[10 * side])


@pytest.mark.parametrize(
    ("epsilon", "delta", "crowd"), [(3.0, 1e-6, 32_000), (1.0, 1e-6, 250_000), (3.0, 0.01, 9_500)]
)
def test_nobody_beats_the_odometer_by_stopping(
    epsilon: float, delta: float, crowd: int, tmp_path: Path
) -> None:
    """After 120 rounds, stopping when the loss exceeds the spent ε succeeds with less than δ.

    With sums for rounds that are fixed in advance the same attack gets many times δ.
    """
    law, budget = AnyLdp(epsilon=4.0), Budget(epsilon=epsilon, delta=delta)
    promise = amplify(law, crowd=crowd, delta=delta)
    book, readings = Ledger.open(tmp_path / "mine", epsilon=epsilon, delta=delta), list[float]()
    with contextlib.suppress(Refused):
        for number in range(200):
            readings.append(book.spend(promise, round_id=str(number)))
    assert 100 < len(readings) < 140
    assert readings == sorted(readings)
    assert readings[-1] == epsilon
    assert 0.3 * delta < best_stop(readings, law, crowd) <= delta
    stretch = budget.stretch(law, crowd=crowd)
    fixed = [budget.fixed((number + 1) * stretch) for number in range(len(readings))]
    assert best_stop(fixed, law, crowd) > 2 * delta


def spent_with(budget: Budget, report: HiddenReport, *, kept: int, charged: int) -> float:
    """Return what a ledger reads after equal rounds, some of which are charged."""
    charges: list[Charge] = []
    for _ in range(kept + charged):
        charges.append(budget.charge(report, after=charges))
    return budget.spent([one._replace(broken=at < charged) for at, one in enumerate(charges)])


def best_end(budget: Budget, law: AnyLdp, crowd: int, *, charging: bool) -> float:
    """Give the largest δ of a server that ends rounds badly, and stops, by what it has seen.

    Full search over all outcomes, for as many equal rounds as fit by their promises. With
    `charging` each round may show its report alone, and then has to be charged; a round that kept
    its promise may be charged, too, once its loss is known.
    """
    report, rounds = HiddenReport(law, crowd), 0
    while spent_with(budget, report, kept=rounds + 1, charged=0) <= budget.epsilon:
        rounds += 1
    readings = {
        (kept, charged): spent_with(budget, report, kept=kept, charged=charged)
        for kept in range(rounds + 1)
        for charged in range(rounds + 1 - kept)
    }
    reach = amplify(law, crowd=crowd, delta=1e-10).epsilon
    step = law.epsilon / math.ceil(12 * law.epsilon / reach)
    one, alone = losses(law, crowd=crowd, step=step, reach=reach), round(law.epsilon / step)
    side, up = one.mass.size // 2, 1 / (1 + math.exp(-law.epsilon))
    first = -10 * side - rounds * alone
    loss = step * np.arange(first, math.ceil((max(readings.values()) + 1) / step))

    def moved(values: np.ndarray, by: int) -> np.ndarray:
        wide = np.concatenate([np.full(abs(by), values[0]), values, np.ones(abs(by))])
        return wide[abs(by) + by :][: values.size]

    best: dict[tuple[int, int], np.ndarray] = {}
    for kept, charged in sorted(readings, key=sum, reverse=True):
        value = -np.expm1(np.minimum(0.0, readings[kept, charged] - loss))
        if kept + charged < rounds:
            keep = best[kept + 1, charged]
            charge = best[kept, charged + 1] if charging else np.zeros(loss.size)
            good = sum(
                chance * np.maximum(moved(keep, at - side), moved(charge, at - side))
                for at, chance in enumerate(one.mass)
            )
            bad = up * moved(charge, alone) + (1 - up) * moved(charge, -alone)
            value = np.maximum(value, np.maximum(good + one.infinite, bad))
        best[kept, charged] = value
    return float(best[0, 0][-first])


@pytest.mark.parametrize(
    ("limit", "local", "crowd"), [((2.0, 0.01), 2.0, 300), ((1.0, 0.05), 1.0, 150)]
)
def test_a_server_gains_nothing_by_ending_rounds_badly(
    limit: tuple[float, float], local: float, crowd: int
) -> None:
    """Nor by showing a report alone, if that is charged: the bound is that of honest rounds."""
    budget, law = Budget(epsilon=limit[0], delta=limit[1]), AnyLdp(epsilon=local)
    honest = best_end(budget, law, crowd, charging=False)
    ended = best_end(budget, law, crowd, charging=True)
    assert 0.7 * budget.delta < honest <= ended <= budget.delta
    assert ended <= honest * (1 + 1e-6)


def worst_server(budget: Budget) -> tuple[float, float]:
    """Return the largest δ that any server reaches which picks from the menu after each outcome.

    Full search: δ = E[(1 - e^(ε - loss))_+], and a server may stop or go on, whatever it saw.
    First against the limit's ε, then against what a ledger says is spent when the server stops.
    """
    laws = [law_of(*one) for one in MENU]

    @cache
    def spent(taken: tuple[int, ...]) -> float:
        charges: list[Charge] = []
        for one in taken:
            charges.append(budget.charge(HiddenReport(laws[one], 1), after=charges))
        return budget.spent(charges)

    @cache
    def gain(loss: int, taken: tuple[int, ...], *, read: bool) -> float:
        least = spent(taken) if read else budget.epsilon
        best = max(0.0, -math.expm1(least - loss / 10))
        for number, (tenths, rate) in enumerate(MENU):
            # Which round came first matters, and the order of the others hardly does.
            after = (*taken[:1], *sorted((*taken[1:], number))) if taken else (number,)
            if spent(after) > budget.epsilon:
                continue
            yes = rate / (1 + math.exp(-tenths / 10))
            best = max(
                best,
                yes * gain(loss + tenths, after, read=read)
                + (rate - yes) * gain(loss - tenths, after, read=read)
                + ((1 - rate) * gain(loss, after, read=read) if rate < 1 else 0.0),
            )
        return best

    return gain(0, (), read=False), gain(0, (), read=True)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (2.0, 0.01), (2.0, 0.05)])
def test_no_adaptive_server_passes_the_limit(epsilon: float, delta: float) -> None:
    """The best of all strategies over all outcomes stays below δ, and is not far from it."""
    limit, odometer = worst_server(Budget(epsilon=epsilon, delta=delta))
    assert 0.3 * delta < limit <= odometer <= delta


def admitted(path: Path, law: Law) -> bool:
    """Return whether a ledger accepts this round after one of AnyLdp(0.5), without a crowd."""
    path.unlink(missing_ok=True)
    book = Ledger.open(path, epsilon=1.0, delta=0.01)
    book.spend(amplify(AnyLdp(epsilon=0.5), crowd=1, delta=0.01), round_id="1")
    try:
        book.spend(amplify(law, crowd=1, delta=0.01), round_id="2")
    except Refused:
        return False
    return True


def test_a_ledger_that_adds_up_losses_can_be_led_past_its_limit(tmp_path: Path) -> None:
    """Each of two second rounds has δ ≤ 0.01; chosen by the first one's outcome it is 0.01339."""
    first, limit = AnyLdp(epsilon=0.5), 1.0
    seconds = (AnyLdp(epsilon=0.5258), OwnCoin(law=AnyLdp(epsilon=3.0), rate=0.01214))
    for law in seconds:
        both = losses(first, crowd=1, step=1e-3).then(losses(law, crowd=1, step=1e-3))
        assert both.delta(limit) <= 0.01
    up = 1 / (1 + math.exp(-0.5))
    chosen = sum(
        chance
        * max(float(delta_curve(law, epsilons=[limit - loss], crowd=1)[0]) for law in seconds)
        for chance, loss in ((up, 0.5), (1 - up, -0.5))
    )
    assert chosen == pytest.approx(0.01339, abs=1e-4)
    # So the ledger does not take them; what it does take has no δ at all.
    assert not any(admitted(tmp_path / "mine", law) for law in seconds)
    assert admitted(tmp_path / "mine", AnyLdp(epsilon=0.5))


@pytest.mark.parametrize(
    ("law", "crowd"),
    [
        (AnyLdp(epsilon=1.0), 1),
        (AnyLdp(epsilon=4.0), 10_000),
        (minkowski(3.0, radius=0.6, dimension=2), 100),
        # As boxes they have no convex bound among 40; the motion covers the convex hull.
        (replace(bounded(2.0, radius=0.8, dimension=3), axes=0), 40),
        (bounded(2.0, radius=0.8, dimension=3), 4000),
        (grid(5.0, cells=30), 2000),
        (OwnCoin(law=AnyLdp(epsilon=3.0), rate=0.25), 4000),
        (AnyLdp(epsilon=0.0), 10),
    ],
)
def test_a_stretch_of_the_motion_covers_its_round(law: Law, crowd: int) -> None:
    """The Gaussian, with the chance kept for the rest, lies above the round's whole curve."""
    budget = Budget(epsilon=3.0, delta=1e-5)
    watched = budget.stretch(law, crowd=crowd)
    kept = budget.unbounded(watched)
    at = np.linspace(0.0, max(law.epsilon, 0.1), 200)
    for epsilon, truth in zip(at, delta_curve(law, epsilons=at, crowd=crowd), strict=True):
        bound = gaussian(math.sqrt(watched), epsilon) if watched else 0.0
        assert truth <= (kept + (1 - kept) * bound) * (1 + 1e-6)


def test_the_limit_is_where_the_motion_ends() -> None:
    """The whole stretch costs the limit's ε, more costs more, nothing costs nothing."""
    budget = Budget(epsilon=2.0, delta=1e-6)
    assert budget.fixed(budget.whole) == pytest.approx(2.0, rel=1e-8)
    assert budget.fixed(0.0) == 0.0
    assert budget.fixed(math.inf) == math.inf
    grown = [budget.fixed(share * budget.whole) for share in (0.1, 0.5, 0.9, 1.1, 3.0)]
    assert all(a < b for a, b in pairwise(grown))
    assert gaussian(math.sqrt(budget.whole), 2.0) == pytest.approx(0.8e-6, rel=1e-6)


def test_the_marks_of_the_odometer_share_their_delta() -> None:
    """Each mark's Gaussian has its share of δ at what is read up to there, and no more in all."""
    budget = Budget(epsilon=2.0, delta=1e-6)
    lengths = [budget.whole * 0.9**k for k in range(88)]
    used = [gaussian(math.sqrt(one), budget.odometer(one * (1 - 1e-9))) for one in lengths]
    assert sum(used) == pytest.approx(0.1e-6, rel=1e-4)
    assert budget.odometer(0.0) == 0.0
    assert budget.odometer(budget.whole * 1.001) == math.inf
    for share in (1e-9, 1e-3, 0.05, 0.3, 0.8):
        spent, fixed = budget.odometer(share * budget.whole), budget.fixed(share * budget.whole)
        assert fixed < spent < max(1.55 * fixed, 0.02 * budget.epsilon)


def test_adaptivity_costs_little() -> None:
    """Nine shuffled rounds cost 4 % more ε than if their terms were known beforehand."""
    law, budget = minkowski(3.0, radius=0.6, dimension=2), Budget(epsilon=5.0, delta=1e-6)
    adaptive = budget.fixed(9 * budget.stretch(law, crowd=2000))
    known = losses(law, crowd=2000, step=2e-3).times(9).epsilon(1e-6)
    assert known < adaptive < 1.04 * known


def test_a_hopeless_round_fits_no_limit() -> None:
    """A report with hardly any noise has an infinite stretch."""
    budget = Budget(epsilon=3.0, delta=1e-6)
    assert budget.stretch(AnyLdp(epsilon=45.0), crowd=1) == math.inf


@pytest.mark.parametrize("mu", [0.01, 0.7, 3.0])
@pytest.mark.parametrize("kept", [0.0, 1e-7, 0.2])
def test_a_gaussian_needs_itself(mu: float, kept: float) -> None:
    """Tests of N(μ, 1) that win outright with chance `kept` need μ, and hardly more."""
    thresholds = np.linspace(-2.0, 4.0, 25)
    sizes = (1 - kept) * norm.sf(thresholds)
    powers = kept + (1 - kept) * norm.sf(thresholds - mu)
    assert mu <= _needed(sizes, powers, kept) <= mu * (1 + 1e-8) + 1e-9
    assert _needed(sizes, powers * (1 + 1e-4), kept) > mu
    assert _needed(sizes * (1 - 1e-4), powers, kept) > mu


def test_tests_that_win_only_what_is_kept_need_nothing() -> None:
    """Nor do tests that are no better than a guess; one that never errs needs infinitely much."""
    sizes, powers = np.array([0.0, 0.3]), np.array([0.1, 0.37])
    assert _needed(sizes, powers, 0.1) == 0.0
    assert _needed(sizes, powers, 1.0) == 0.0
    assert _needed(sizes, powers, 0.37) == 0.0
    assert _needed(sizes, powers, 0.09) == math.inf
    assert _needed(np.array([0.3]), np.array([1.0]), 0.0) == math.inf
