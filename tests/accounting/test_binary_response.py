"""Reports with two values: the bound is the truth of the worst data set, never less."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.accounting import binary_response
from coatcheck.accounting.amplification import amplify, delta_curve
from coatcheck.accounting.binary_response import Blocks, blocks, deltas, modes, symmetric, tilts
from coatcheck.accounting.certificate import certify, delta_interval
from coatcheck.accounting.laws import AnyLdp, Channel, OwnCoin, grid
from coatcheck.domains import Box, Categories
from coatcheck.randomizers import GridResponse
from support.crowds import Array


def with_one_more(law: list[Fraction], one: Fraction) -> list[Fraction]:
    """Return the law of a number of ones after one more report."""
    return [
        stays * (1 - one) + rises * one
        for stays, rises in zip([*law, Fraction(0)], [Fraction(0), *law], strict=True)
    ]


def exact_delta(ones: list[Fraction], crowd: int, e: Fraction) -> Fraction:
    """Return the largest δ over all pairs of values and all data sets, in exact fractions."""
    worst = Fraction(0)
    least, most = min(ones), max(ones)
    for value in ones:  # every value of another person lies between: data sets of all values
        for many in range(crowd):
            law = [Fraction(1)]
            for person in range(crowd - 1):
                law = with_one_more(law, value if person < many else least)
            for one, two in ((least, most), (most, least)):
                first, second = with_one_more(law, one), with_one_more(law, two)
                excess = (max(x - e * y, Fraction(0)) for x, y in zip(first, second, strict=True))
                worst = max(worst, sum(excess, Fraction(0)))
    return worst


CHANCES = st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=60)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(CHANCES, min_size=2, max_size=3), st.integers(2, 8), st.floats(0.0, 0.999))
def test_a_table_with_two_reports_is_bounded_by_the_truth(
    ones: list[Fraction], crowd: int, share: float
) -> None:
    """Against exact fractions, every data set of two values: not below, and at most 1e-9 above."""
    if max(ones) - min(ones) < Fraction(1, 1000):
        return
    table = [[float(1 - one), float(one)] for one in ones]
    law = Channel(table)
    e = Fraction(math.exp(share * law.epsilon))
    truth = float(exact_delta(ones, crowd, e))
    above = float(delta_curve(law, epsilons=[math.log(e)], crowd=crowd)[0])
    assert truth * (1 - 1e-12) - 1e-15 <= above
    assert above <= truth * (1 + 1e-9) + 1e-14


def splits(local: float, crowd: int, epsilon: float) -> Array:
    """Return δ of binary response for every number of others who hold the second value."""
    p, e = math.exp(local), math.exp(epsilon)
    q = p / (1 + p)
    laws = [np.ones(1)]
    for _ in range(crowd - 1):
        laws.append(np.convolve(laws[-1], [q, 1 - q]))
    worst = []
    for many in range(crowd):
        others = np.convolve(laws[crowd - 1 - many], laws[many][::-1])
        first, second = np.convolve(others, [q, 1 - q]), np.convolve(others, [1 - q, q])
        worst.append(float(np.maximum(first - e * second, 0).sum()))
    return np.array(worst)


@pytest.mark.parametrize("local", [1.0, 3.0])
@pytest.mark.parametrize("crowd", [2, 3, 20, 100])
def test_binary_response_is_exact(local: float, crowd: int) -> None:
    """All splits of the others enumerated: δ at the promised ε is the δ that was asked for.

    The blanket, which the library used before, promised up to a fifth more ε here.
    """
    for delta in (1e-2, 0.01 / crowd, 1e-9):
        promised = amplify(grid(local, cells=2), crowd=crowd, delta=delta).epsilon
        truth = splits(local, crowd, promised).max()
        assert truth <= delta * (1 + 1e-10)
        if promised < 0.999 * local:
            assert truth >= delta * (1 - 3e-4)


def test_the_worst_split_is_not_always_the_same() -> None:
    """One person with the other value is sometimes worse than nobody, so every split is covered."""
    at = {int(splits(1.0, 100, x).argmax()) for x in (0.1, 0.3, 0.6)}
    assert at == {0, 1}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.floats(0.05, 8), st.integers(257, 3000), st.floats(0.2, 7))
def test_blocks_cover_every_split(local: float, crowd: int, deviations: float) -> None:
    """No split of a large crowd, one by one, is above the bound; the cheap bound is above both."""
    law = symmetric(local)
    epsilon = min(0.99 * local, deviations * math.sqrt(law.noise / crowd))
    (tilt,) = tilts(law, epsilon)
    for fine in (False, True):
        chosen, _ = blocks(tilt, crowd - 1, fine=fine)
        held = sorted(zip(chosen.many, chosen.many + crowd - 1 - chosen.others, strict=True))
        assert (held[0][0], held[-1][1]) == (0, crowd - 1)
        assert all(before[1] + 1 == after[0] for before, after in pairwise(held))
    truth = float(deltas(tilt, Blocks(np.full(crowd, crowd - 1), np.arange(crowd))).max())
    close = binary_response.upper(law, size=crowd, epsilon=epsilon)
    assert truth <= close <= 1.05 * truth
    assert truth <= binary_response.upper(law, size=crowd, epsilon=epsilon, fine=False)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=40))
def test_the_mode_of_coins_is_next_to_their_mean(chances: list[float]) -> None:
    """Darroch's theorem, as `modes` uses it."""
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    listed = {int(m[0]) for m in modes(np.array([sum(chances)])) if m[0] >= 0}
    assert max(law[m] for m in listed if m < law.size) >= law.max() * (1 - 1e-12)


@pytest.mark.parametrize("local", [0.2, 3.0, 40.0])
@pytest.mark.parametrize("crowd", [2, 700, 10**5, 10**9])
def test_binary_promises_are_certified(local: float, crowd: int) -> None:
    """Intervals confirm the promise, and their width is nothing beside δ."""
    law, delta = grid(local, cells=2), 0.01 / crowd
    epsilon = amplify(law, crowd=crowd, delta=delta).epsilon
    low, high = delta_interval(law, size=crowd, epsilon=epsilon, decide=delta)
    assert low <= high <= delta
    assert high - low <= 1e-9 * delta
    assert certify(law, size=crowd, epsilon=epsilon, delta=delta).high == epsilon


def test_a_table_is_certified() -> None:
    """The same for two reports whose chances are no mirror images; and a false promise is not."""
    law = Channel([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5]])
    epsilon = amplify(law, crowd=2000, delta=1e-6).epsilon
    assert certify(law, size=2000, epsilon=epsilon, delta=1e-6).high == epsilon
    assert certify(law, size=2000, epsilon=0.999 * epsilon, delta=1e-6).high == law.epsilon


def test_mechanisms_with_two_reports_say_so() -> None:
    """Two cells, two categories and their table have one δ, below that of any mechanism."""
    cells = GridResponse(domain=Box((0.0,), (1.0,)), epsilon=2.0, cells=(2,))
    laws = [cells.law, GridResponse(domain=Categories(("no", "yes")), epsilon=2.0).law]
    q = math.exp(2.0) / (1 + math.exp(2.0))
    known = [amplify(law, crowd=3000, delta=1e-6).epsilon for law in (grid(2.0, cells=2), *laws)]
    assert known == pytest.approx([known[0]] * 3, rel=1e-9)
    table = amplify(Channel([[q, 1 - q], [1 - q, q]]), crowd=3000, delta=1e-6).epsilon
    assert table == pytest.approx(known[0], rel=1e-4)
    assert known[0] < 0.8 * amplify(AnyLdp(epsilon=2.0), crowd=3000, delta=1e-6).epsilon


def test_a_coin_before_two_reports_has_three() -> None:
    """Silence is a third report, so the blanket counts; it promises less than without silence."""
    silent = amplify(OwnCoin(law=grid(2.0, cells=2), rate=0.999), crowd=3000, delta=1e-6)
    assert silent.epsilon > amplify(grid(2.0, cells=2), crowd=3000, delta=1e-6).epsilon


def test_promises_fall_with_the_crowd() -> None:
    """Over six orders of magnitude, with all numbers of blocks."""
    crowds = [int(10**x) for x in np.linspace(2, 9, 15)]
    promised = [amplify(grid(3.0, cells=2), crowd=n, delta=1e-9).epsilon for n in crowds]
    assert all(later < earlier for earlier, later in pairwise(promised))
