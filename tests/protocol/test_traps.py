"""Traps: the theorem behind the count, by enumeration, by simulation, and with exact numbers."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from bench.traps import STRATEGIES, attack
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.wire.uploads import _EXACT, commitment, people, slack

CHANCES = (0.4, 0.25, 0.1, 0.03, 1e-3)


def upper(lost: int, delta: float | Fraction) -> int:
    """Return U(lost) by its definition, in exact fractions."""
    tails = (
        Fraction(sum(math.comb(m, i) for i in range(lost + 1)), 2**m)
        for m in itertools.count(2 * lost + 1)
    )
    below = itertools.takewhile(lambda tail: tail > Fraction(delta), tails)
    return 2 * lost + sum(1 for _ in below)


@pytest.mark.parametrize("delta", [*CHANCES, 1e-7, 1e-12])
def test_the_slack_is_its_definition(delta: float) -> None:
    """s(L) = U(L) - 2 L, and it is the largest U(j) - 2 j of all j up to L."""
    slacks = [slack(lost, delta) for lost in range(60)]
    assert slacks == [upper(lost, delta) - 2 * lost for lost in range(60)]
    assert slacks == sorted(slacks)
    assert slacks[0] == math.ceil(-math.log2(delta)) - 1


def test_the_slack_of_many_lost_traps_is_that_of_scipy() -> None:
    """The chance of so few falls below delta right after U, by an independent binomial."""
    for lost in (1_000, 20_000):
        top = slack(lost, 1e-7) + 2 * lost
        assert binom.cdf(lost, top, 0.5) > 1e-7 * (1 - 1e-6)
        assert binom.cdf(lost, top + 1, 0.5) <= 1e-7 * (1 + 1e-6)


def test_beyond_the_exact_range_the_slack_is_slightly_larger() -> None:
    """Millions of lost traps neither stall a shuffler nor are undercounted."""
    top = slack(_EXACT + 1, 1e-9) + 2 * (_EXACT + 1)
    assert binom.cdf(_EXACT + 1, top + 1, 0.5) <= 1e-9
    assert slack(_EXACT, 1e-9) < slack(_EXACT + 1, 1e-9) < 1.1 * slack(_EXACT, 1e-9)
    assert slack(10**9, 1e-9) > 10**5


@pytest.mark.parametrize("delta", [0.0, 0.5, 1.0, -1.0, math.nan])
def test_an_invalid_chance_has_no_slack(delta: float) -> None:
    """The terms check the range of δ, and so does the function."""
    with pytest.raises(Misuse):
        slack(0, delta)


def shortfalls(kept: tuple[tuple[int, ...], ...], items: int) -> Counter[tuple[int, int]]:
    """Count over all orders of all items how many (reports, traps) arrive.

    An order says at which place the report is (0) and the trap that counts (1); `kept` says which
    places the attacker passes on, of each person.
    """
    orders = list(itertools.permutations(range(items)))
    found: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for places in kept:
        after: Counter[tuple[int, int]] = Counter()
        for (reports, traps), ways in found.items():
            for order in orders:
                here = {order[place] for place in places}
                after[reports + (0 in here), traps + (1 in here)] += ways
        found = after
    return found


@pytest.mark.parametrize(
    ("items", "most"), [(2, 7), (3, 5), (4, 3)], ids=["two items", "three", "four"]
)
def test_no_strategy_beats_the_bound(items: int, most: int) -> None:
    """Every way to pass on some of everybody's items: the count is wrong with chance <= delta.

    The attacker chooses places for each person and does not see the orders. Places alone matter
    up to the order of people, so every multiset of choices is every strategy.
    """
    choices = [
        places for size in range(items + 1) for places in itertools.combinations(range(items), size)
    ]
    worst = dict.fromkeys(CHANCES, Fraction(0))
    for n in range(1, most + 1):
        for kept in itertools.combinations_with_replacement(choices, n):
            found = shortfalls(kept, items)
            total = sum(found.values())
            for delta in CHANCES:
                wrong = sum(
                    ways
                    for (reports, traps), ways in found.items()
                    if reports < people(counted=traps, registered=n, delta=delta)
                )
                worst[delta] = max(worst[delta], Fraction(wrong, total))
    assert all(worst[delta] <= Fraction(delta) for delta in CHANCES)
    assert worst[0.4] > Fraction(1, 10)  # some strategy comes near the bound


@pytest.mark.parametrize(("reports", "most"), [(2, 5), (3, 3)], ids=["one decoy", "two"])
def test_no_strategy_beats_the_bound_for_reports_and_decoys(reports: int, most: int) -> None:
    """The first reports of all people, the second ones and so on: none is short but by chance.

    Each person has so many reports and a trap. The attacker passes on some places of each person.
    """
    items = reports + 1
    choices = [
        places for size in range(items + 1) for places in itertools.combinations(range(items), size)
    ]
    orders = list(itertools.permutations(range(items)))
    worst = dict.fromkeys(CHANCES, Fraction(0))
    for n in range(1, most + 1):
        for kept in itertools.combinations_with_replacement(choices, n):
            counts: Counter[tuple[int, ...]] = Counter({(0,) * items: 1})
            for places in kept:
                after: Counter[tuple[int, ...]] = Counter()
                arriving = Counter(
                    tuple(int(item in {order[place] for place in places}) for item in range(items))
                    for order in orders
                )
                for (before, ways), (more, times) in itertools.product(
                    counts.items(), arriving.items()
                ):
                    after[tuple(map(sum, zip(before, more, strict=True)))] += ways * times
                counts = after
            total = sum(counts.values())
            for delta in CHANCES:
                wrong = sum(
                    ways
                    for (*arrived, traps), ways in counts.items()
                    if min(arrived)
                    < people(counted=traps, registered=n, delta=delta, reports=reports)
                )
                worst[delta] = max(worst[delta], Fraction(wrong, total))
    assert all(worst[delta] <= Fraction(delta) for delta in CHANCES)
    assert worst[0.4] > Fraction(1, 12)  # some strategy comes near the bound


@pytest.mark.parametrize("reports", [2, 3, 9])
def test_the_slack_of_several_reports_divides_the_chance(reports: int) -> None:
    """Exactly, although the quotient is no float."""
    bound = Fraction(1e-3) / reports
    for lost in (0, 3, 20):
        assert slack(lost, 1e-3, reports=reports) == upper(lost, bound) - 2 * lost


def test_corrupted_people_take_no_more_than_themselves() -> None:
    """If they register, send or withhold, at least minimum - corrupted honest reports remain."""
    delta, n = 0.1, 5
    for corrupted in (1, 2):
        for registered, sent in itertools.product(range(corrupted + 1), repeat=2):
            counted_of_them = min(registered, sent)
            for kept in itertools.combinations_with_replacement([(), (0,), (1,), (0, 1)], n):
                found = shortfalls(kept, 2)
                wrong = sum(
                    ways
                    for (reports, traps), ways in found.items()
                    if reports
                    < people(
                        counted=traps + counted_of_them, registered=n + registered, delta=delta
                    )
                    - corrupted
                )
                assert Fraction(wrong, sum(found.values())) <= Fraction(delta)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_simulated_attacks_leave_the_crowd_that_is_promised(strategy: str) -> None:
    """Of 2,000 attacks at delta = 0.01 no more than chance allows go wrong unnoticed.

    More than 38 of 2,000 at a chance of 0.01 happen with a chance below 1e-4.
    """
    rng = np.random.default_rng(20_26)
    outcomes = [attack(strategy, people=200, minimum=100, delta=0.01, rng=rng) for _ in range(2000)]
    broken = sum(passed and reports < 100 for passed, reports in outcomes)
    assert broken <= 38
    if strategy == "honest":
        assert all(passed for passed, _ in outcomes)
    if strategy == "victim alone":
        assert not any(passed for passed, _ in outcomes)


def test_a_commitment_is_for_one_round_group_and_shuffler() -> None:
    """The same bytes elsewhere give another commitment."""
    trap = seeded(1).token(100)
    places = list(itertools.product((bytes(32), bytes(31) + b"\1"), (0, 1), (1, 2)))
    found = {commitment(trap, digest=d, group=g, hop=h) for d, g, h in places}
    assert len(found) == len(places)
