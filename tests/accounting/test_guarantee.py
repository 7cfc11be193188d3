"""The text of a guarantee, at the ends of its range and on wrong input."""

import math

import pytest

from coatcheck.accounting.amplification import (
    amplify,
    anonymous,
    calibrate,
    delta_curve,
    exposed_by_lists,
    exposed_by_matching,
)
from coatcheck.accounting.laws import AnyLdp, OwnCoin, bounded, grid, minkowski
from coatcheck.errors import Misuse


def test_a_crowd_of_one_hides_nobody() -> None:
    """The local ε stays, and the text does not claim that a crowd made it smaller."""
    assert amplify(AnyLdp(epsilon=2.0), crowd=1, delta=1e-6).epsilon == 2.0
    assert not amplify(AnyLdp(epsilon=2.0), crowd=1, delta=1e-6).amplified
    assert not calibrate(epsilon=2.0, crowd=1, delta=1e-6).amplified
    assert amplify(AnyLdp(epsilon=2.0), crowd=10_000, delta=1e-6).amplified
    assert calibrate(epsilon=2.0, crowd=10_000, delta=1e-6).amplified


def test_corruption_counts_against_the_crowd() -> None:
    """The crowd is n' = |G| - |C| - |U| - lost, and the planned ε is lost with them."""
    law = minkowski(5.521, radius=0.386, dimension=2)
    known = {0: 1.0, 100: 1.013, 500: 1.072, 1000: 1.161, 2000: 1.433}
    for bad, epsilon in known.items():
        found = amplify(law, crowd=10_000, corrupted=bad, exposed=bad, delta=1e-6)
        assert found.anonymous == 10_000 - 2 * bad
        assert found.epsilon == pytest.approx(epsilon, abs=2e-3)
    assert anonymous(crowd=100, corrupted=3, exposed=4, lost=5) == 88
    assert exposed_by_matching(corrupted_elsewhere=7) == 7
    assert exposed_by_lists(corrupted=7, longest=20) == 140


def test_closed_form_says_when_it_does_not_apply() -> None:
    """Outside n >= 16 e^ε ln(2/δ) the paper's equation promises the local ε and no more."""
    found = amplify(AnyLdp(epsilon=5.0), crowd=10_000, delta=1e-6, method="closed-form")
    assert found.epsilon == 5.0
    assert "adds nothing" in str(found)
    inside = amplify(AnyLdp(epsilon=3.0), crowd=10_000, delta=1e-6, method="closed-form")
    p = math.exp(3)
    printed = math.log(
        1 + (p - 1) / (p + 1) * (math.sqrt(64 * p * math.log(4e6) / 10_000) + 8 * p / 10_000)
    )
    assert inside.epsilon == pytest.approx(printed, rel=1e-12)
    assert "the printed equation" in str(inside)
    assert "worst randomizer" in str(amplify(AnyLdp(epsilon=3.0), crowd=10, delta=1e-6))


def test_what_is_printed_is_rounded_up() -> None:
    """Neither δ nor the local ε reads as more private than it is."""
    told = str(amplify(AnyLdp(epsilon=1.00004), crowd=1, delta=1.0000049e-6))
    assert "δ = 1.001e-06" in told
    assert told.count("ε = 1.001") == 2


def test_laws_at_their_ends_have_a_bound() -> None:
    """A ratio so large that a chance vanishes beside one, and identical caps, have bounds."""
    sharp = minkowski(42.5, radius=1.5, dimension=8, norm=2)
    assert 0 < amplify(sharp, crowd=10**6, delta=1e-6).epsilon <= 42.5
    same = bounded(2.0, radius=1.0, dimension=2)
    found = amplify(same, crowd=10, delta=1e-6, lower=True)
    assert (found.epsilon, found.least) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        ("corrupted", "at most 7 of them are corrupted"),
        ("lost", "at least 93 of them report"),
        ("exposed", "give away at most 7 of them"),
    ],
)
def test_only_nonzero_counts_are_stated(count: str, told: str) -> None:
    """A count has its clause, a count of zero has none; permanent assumptions are always stated."""
    law = AnyLdp(epsilon=1.0)
    plain = amplify(law, crowd=100, delta=1e-6)
    some = amplify(law, crowd=100, delta=1e-6, **{count: 7})  # type: ignore[arg-type]
    assert len(plain.assumptions) == 3
    assert some.assumptions[:3] == plain.assumptions
    assert [told in clause for clause in some.assumptions[3:]] == [True]
    assert "fixed before anybody reports" in str(plain)
    assert "all of them honest and anonymous" in str(plain)
    assert "93 of them honest and anonymous" in str(some)
    assert bool(some.caveat) == (count == "exposed")


def test_counts_at_their_ends() -> None:
    """All but the person may be corrupted; the crowd never falls below one; 1e9 people count."""
    assert anonymous(crowd=2, corrupted=1) == 1
    assert anonymous(crowd=3, exposed=1, lost=1) == 1
    assert anonymous(crowd=3, exposed=3, lost=3) == 1
    assert anonymous(crowd=10**9) == 10**9
    assert anonymous(crowd=1) == 1
    assert exposed_by_matching(corrupted_elsewhere=0) == 0
    assert exposed_by_lists(corrupted=0, longest=9) == exposed_by_lists(corrupted=9, longest=0) == 0
    with pytest.raises(Misuse, match="nobody to protect"):
        anonymous(crowd=3, corrupted=3)


def test_guarantee_reads_as_a_sentence() -> None:
    """The sentence names adjacency, crowd, corrupted, exposed, assumptions and the lower bound."""
    law = OwnCoin(law=grid(3.0, cells=9), rate=0.5)
    told = str(amplify(law, crowd=5000, corrupted=20, exposed=30, delta=1e-6, lower=True))
    for word in (
        "Replacing one person's value",
        "5,000",
        "4,950",
        "at most 20",
        "at most 30",
        "shuffler",
        "chance 0.5",
        "no proof can go below",
    ):
        assert word in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"delta": 0.0}, "between 0 and 1"),
        ({"delta": 1.5}, "between 0 and 1"),
        ({"delta": math.nan}, "between 0 and 1"),
        ({"crowd": 0}, "`crowd` must be at least 1"),
        ({"crowd": -3}, "zero or more"),
        ({"crowd": 2.5}, "whole number"),
        ({"crowd": math.nan}, "whole number"),
        ({"crowd": "many"}, "whole number"),
        ({"crowd": 10**9 + 1}, "at most 1,000,000,000"),
        ({"lost": 0.5}, "whole number"),
        ({"delta": "1e-6"}, "between 0 and 1"),
        ({"delta": 0.9e-15}, "at least 1e-15"),
        ({"delta": 1.0}, "between 0 and 1"),
        ({"corrupted": 100}, "nobody to protect"),
        ({"method": "variation-ratio"}, "must be one of"),
    ],
)
def test_wrong_input_gets_a_sentence(change: dict[str, float], told: str) -> None:
    """A meaningless request gets an error with the remedy, for amplify and calibrate alike."""
    request = {"crowd": 100, "delta": 1e-6} | change
    with pytest.raises(Misuse, match=told):
        amplify(AnyLdp(epsilon=1.0), **request)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=told):
        calibrate(epsilon=1.0, **request)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "1", None])
def test_wrong_epsilon_gets_a_sentence(epsilon: float) -> None:
    """A promise, local budget or curve point with an invalid ε is refused."""
    with pytest.raises(Misuse, match="positive number"):
        calibrate(epsilon=epsilon, crowd=100, delta=1e-6)
    if epsilon != 0:
        with pytest.raises(Misuse, match="finite number"):
            amplify(AnyLdp(epsilon=epsilon), crowd=100, delta=1e-6)
        with pytest.raises(Misuse, match="finite number"):
            delta_curve(AnyLdp(epsilon=1.0), epsilons=[0.5, epsilon], crowd=100)


def test_the_range_ends_with_a_sentence() -> None:
    """ε = 64 among 1e9 people at δ = 1e-15 has an answer; anything beyond is refused."""
    found = amplify(AnyLdp(epsilon=64.0), crowd=10**9, delta=1e-15)
    assert found.epsilon == 64.0
    assert calibrate(epsilon=64.0, crowd=10**9, delta=1e-15).local_epsilon == 64.0
    for beyond in (64.0001, 800.0):
        with pytest.raises(Misuse, match="at most 64"):
            amplify(AnyLdp(epsilon=beyond), crowd=100, delta=1e-6)
        with pytest.raises(Misuse, match="at most 64"):
            calibrate(epsilon=beyond, crowd=100, delta=1e-6)
        with pytest.raises(Misuse, match="at most 64"):
            delta_curve(AnyLdp(epsilon=1.0), epsilons=[beyond], crowd=100)
    with pytest.raises(Misuse, match="must be a privacy law"):
        amplify("minkowski", crowd=100, delta=1e-6)  # type: ignore[arg-type]
