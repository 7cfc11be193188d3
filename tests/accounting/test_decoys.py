"""Decoys in the accountant: no promise is above the truth of a crowd that is enumerated in full."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import amplify, anonymous, calibrate, delta_curve
from coatcheck.accounting.composition import compose
from coatcheck.accounting.laws import AnyLdp, OwnCoin, TwoLevel, WithDecoys, grid, minkowski, pair
from coatcheck.accounting.ledger import Ledger, read_file
from coatcheck.errors import Misuse
from support.crowds import any_decoys, grid_caps, two_level, worst_delta, worst_with_decoys


@pytest.mark.parametrize("part", range(4))
def test_no_crowd_with_decoys_exceeds_its_promise(part: int) -> None:
    """Random mechanisms, crowds and ε: the enumerated δ is at most the bound; 10,000 in bench."""
    closest = 0.0
    for seed in range(300 * part, 300 * part + 300):
        channel, law, people, epsilon = any_decoys(seed)
        truth = worst_with_decoys(channel, law, people, epsilon)
        size = anonymous(**people, decoys=law.each)
        bound = hockey_stick.upper(pair(law), size=size, epsilon=epsilon)
        coarse = hockey_stick.upper(pair(law), size=size, epsilon=epsilon, fine=False)
        assert truth <= bound * (1 + 1e-12) + 1e-14, seed
        assert bound <= coarse * (1 + 1e-5), seed
        closest = max(closest, truth / bound)
    assert closest > 0.9  # the bound is no wild overestimate either


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 4), st.integers(2, 4), st.floats(0.1, 6), st.floats(0.05, 0.95))
def test_an_exposed_decoy_costs_more_than_an_exposed_report(
    cells: int, crowd: int, local: float, share: float
) -> None:
    """Of two crowds with as many messages, the one with more decoys hides better."""
    caps, reports = grid_caps(cells)
    channel = two_level(caps, reports, local)
    fewer_decoys = worst_delta(channel, crowd, share * local, decoys=1)
    fewer_people = worst_delta(channel, crowd - 1, share * local, decoys=2)
    assert fewer_people <= fewer_decoys + 1e-14


def test_the_sum_is_that_of_all_outcomes() -> None:
    """Against a sum over all counts of the cells: the bound is within 2 % above."""
    law, people, epsilon = grid(3.0, cells=3), 12, 0.4
    chance, share = 1 / 3, 3 * grid(3.0, cells=3).cap
    bound = hockey_stick.upper(pair(WithDecoys(law=law, each=1)), size=people, epsilon=epsilon)
    p, e = math.exp(3.0), math.exp(epsilon)
    exact = 0.0
    for uniform in range(people):
        messages = 1 + uniform + people - 1
        ways = (
            math.comb(people - 1, uniform) * share**uniform * (1 - share) ** (people - 1 - uniform)
        )
        for first in range(messages + 1):
            for second in range(messages - first + 1):
                rest = messages - first - second
                mass = math.comb(messages, first) * math.comb(messages - first, second)
                total = first * (p - e) + second * (1 - p * e) + rest * (1 - e)
                exact += ways * mass * chance**messages * share * max(0.0, total) / messages
    assert exact <= bound <= 1.02 * exact


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0.5, 9), st.integers(2, 40), st.integers(2, 400), st.integers(1, 4))
def test_more_decoys_and_people_never_cost_more(
    local: float, cells: int, crowd: int, each: int
) -> None:
    """ε falls with the decoys, and with the crowd; decoys never cost more than none."""
    law = grid(local, cells=cells)
    one = amplify(law, crowd=crowd, delta=1e-5, decoys=each).epsilon
    assert amplify(law, crowd=crowd, delta=1e-5, decoys=each + 1).epsilon <= one * (1 + 1e-3)
    assert amplify(law, crowd=2 * crowd, delta=1e-5, decoys=each).epsilon <= one * (1 + 1e-3)
    assert one <= amplify(law, crowd=crowd, delta=1e-5).epsilon * (1 + 5e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0.2, 3), st.integers(2, 60), st.integers(20, 4000), st.integers(1, 3))
def test_a_calibrated_budget_keeps_its_promise(
    epsilon: float, cells: int, crowd: int, each: int
) -> None:
    """`amplify` confirms what `calibrate` returns, and the curve stays below the promise."""
    found = calibrate(
        lambda x: grid(x, cells=cells), epsilon=epsilon, crowd=crowd, delta=1e-6, decoys=each
    )
    assert epsilon <= found.local_epsilon <= 6
    assert found.decoys == each
    kept = amplify(found.law, crowd=crowd, delta=1e-6)
    assert kept.epsilon <= epsilon * (1 + 1e-12)
    (delta,) = delta_curve(found.law, epsilons=[kept.epsilon], crowd=crowd)
    assert delta <= 1e-6


def test_a_large_local_budget_is_chosen_by_an_explicit_word_only() -> None:
    """Without a word the local ε is at most 6, whatever the crowd would allow."""
    find = partial(
        calibrate, partial(grid, cells=9), epsilon=1.0, crowd=5_000, delta=1e-6, decoys=2
    )
    assert find().local_epsilon == 6
    assert find(most_local=12).local_epsilon == 12
    with pytest.raises(Misuse, match="at most 12"):
        find(most_local=13)
    with pytest.raises(Misuse, match="at most 12"):
        amplify(grid(13, cells=9), crowd=100, delta=1e-6, decoys=1)


def test_a_promise_with_decoys_says_both_figures() -> None:
    """The sentence has the ε with the crowd, the local ε if the shufflers tell, and the decoys."""
    kept = amplify(grid(6, cells=16), crowd=713, delta=1e-5, decoys=2, corrupted=3, exposed=11)
    assert kept.decoys == 2
    assert kept.anonymous == 713 - 3 - 6
    text = str(kept)
    assert "local ε = 6 and 2 decoys" in text
    assert "If the shufflers tell who sent which messages" in text
    assert "at most 11 of their messages" in text
    assert "2 decoys, drawn uniformly" in text
    assert kept.epsilon < 0.8 < amplify(grid(6, cells=16), crowd=713, delta=1e-5).epsilon


def test_decoys_of_nobody_else_hide_nothing() -> None:
    """A person who is alone keeps the local ε: a person's own decoys are not counted."""
    assert amplify(grid(2, cells=4), crowd=1, delta=1e-6, decoys=5).epsilon == 2
    lonely = amplify(grid(2, cells=4), crowd=9, delta=1e-6, decoys=2, corrupted=2, exposed=14)
    assert lonely.anonymous == 1
    assert lonely.epsilon == 2


@pytest.mark.parametrize(
    "law",
    [
        AnyLdp(epsilon=1.0),
        OwnCoin(law=grid(1.0, cells=3), rate=0.5),
        minkowski(2.0, radius=1.5, dimension=2, norm=1),
        TwoLevel(epsilon=0.0, cap=1.0, apart=0.0, kernel=1.0),
    ],
)
def test_decoys_need_an_exact_law(law: TwoLevel) -> None:
    """Laws that are rounded up, or whose noise is not uniform, have no decoys."""
    with pytest.raises(Misuse, match="decoys need a mechanism"):
        amplify(law, crowd=100, delta=1e-6, decoys=1)


def test_coins_and_certificates_are_refused() -> None:
    """Silence is no uniform report, and certificates do not cover decoys."""
    law = WithDecoys(law=grid(2.0, cells=4), each=1)
    with pytest.raises(Misuse, match="no participation coins"):
        amplify(OwnCoin(law=law, rate=0.5), crowd=100, delta=1e-6)
    with pytest.raises(Misuse, match="twice"):
        amplify(law, crowd=100, delta=1e-6, decoys=1)
    for method in ("generic", "clones-2021", "closed-form"):
        with pytest.raises(Misuse, match="by method 'mechanism' alone"):
            amplify(law, crowd=500, exposed=400, delta=1e-6, method=method)
    with pytest.raises(Misuse, match="at least 1 per person"):
        replace(law, each=0)


def test_rounds_with_decoys_add_up() -> None:
    """Four rounds cost more than one, and less than four times as much."""
    law = WithDecoys(law=grid(4.0, cells=9), each=1)
    one = amplify(law, crowd=500, delta=1e-6).epsilon
    four = compose(law, crowd=500, delta=1e-6, rounds=4)
    assert one < four < 4 * one


def test_few_digits_are_lost_in_large_crowds() -> None:
    """A million people: grouping costs at most 1 % of δ against single numbers."""
    law = pair(WithDecoys(law=grid(6.0, cells=64), each=2))
    fine = hockey_stick.upper(law, size=20_000, epsilon=0.2)
    assert fine <= hockey_stick.upper(law, size=20_000, epsilon=0.2, fine=False) <= 1.1 * fine
    assert np.isfinite(amplify(grid(6.0, cells=64), crowd=10**6, delta=1e-9, decoys=2).epsilon)


def test_the_ledger_counts_decoys(tmp_path: Path) -> None:
    """A round with decoys costs its own ε, and keeps its decoys in the file."""
    kept = amplify(grid(6, cells=16), crowd=532, delta=1e-6, decoys=2)
    ledger = Ledger.open(tmp_path / "ledger", epsilon=3.0, delta=1e-4)
    ledger.spend(kept, round_id="one", digest=b"d" * 32)
    (entry,) = read_file(tmp_path / "ledger").entries
    assert entry.law == WithDecoys(law=replace(grid(6, cells=16), third=False), each=2)
    assert 0 < ledger.spent <= 1.2 * kept.epsilon < 1
