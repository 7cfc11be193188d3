"""Promises recomputed in interval arithmetic: enclosures hold, and no promise fails."""

import math

import pytest

from coatcheck.accounting import certificate
from coatcheck.accounting.amplification import amplify, bounding_laws, calibrate
from coatcheck.accounting.certificate import certify, delta_interval, replayed
from coatcheck.accounting.laws import (
    AnyLdp,
    Channel,
    Clones,
    Fieldwise,
    Law,
    OwnCoin,
    Pair,
    grid,
    minkowski,
    pair,
)
from coatcheck.errors import Misuse
from support.crowds import any_promise, sixty_digits
from support.tiers import some_slow

WAYS = ["as it is", "by the integral"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("law", "size", "epsilon"),
    [
        (AnyLdp(epsilon=1.5), 5, 0.4),
        (grid(2.0, cells=7), 4, 0.9),
        (minkowski(1.0, radius=1.7, dimension=3, norm=2), 4, 0.2),
        (OwnCoin(law=AnyLdp(epsilon=2.0), rate=0.4), 5, 0.7),
        (Clones(epsilon=1.0), 4, 0.1),
    ],
)
def test_the_truth_of_small_crowds_is_enclosed(
    monkeypatch: pytest.MonkeyPatch, how: str, law: Law, size: int, epsilon: float
) -> None:
    """Every enclosure contains the sum to 60 digits, and is narrow."""
    one = pair(law)
    assert isinstance(one, Pair)
    truth = sixty_digits(one, size, epsilon)
    if how == "by the integral":
        monkeypatch.setattr(certificate, "_ROWS", 0)
        monkeypatch.setattr(certificate, "_OUTCOMES", 0)
    low, high = delta_interval(law, size=size, epsilon=epsilon, decide=1.002 * truth)
    assert low * (1 - 1e-12) <= truth <= high * (1 + 1e-12)
    assert high - low <= 3e-3 * truth
    if how == "as it is":
        assert high - low <= 1e-12 * truth


def test_rows_and_the_integral_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two independent methods enclose the same number, in crowds up to a billion."""
    cases = [(4.0, 10_000, 0.41, 1e-6), (1.0, 10**6, 0.006, 1e-8), (12.0, 10**9, 0.1, 1e-9)]
    for local, size, epsilon, decide in cases:
        law = AnyLdp(epsilon=local)
        rows = delta_interval(law, size=size, epsilon=epsilon, decide=decide)
        monkeypatch.setattr(certificate, "_ROWS", 0)
        monkeypatch.setattr(certificate, "_OUTCOMES", 0)
        integral = delta_interval(law, size=size, epsilon=epsilon, decide=decide)
        monkeypatch.undo()
        assert integral[0] <= rows[0] <= rows[1] <= integral[1] <= 1.01 * integral[0]


def test_fields_and_tables_are_enclosed_like_their_mechanism() -> None:
    """One field and a table of chances give what the two-level law gives."""
    law, p = grid(3.0, cells=4), math.exp(3.0)
    table = [[(p if x == y else 1) / (p + 3) for y in range(4)] for x in range(4)]
    known = delta_interval(law, size=2000, epsilon=0.4, decide=1e-6)
    for other in (Fieldwise(laws=(law,)), Channel(table)):
        found = delta_interval(other, size=2000, epsilon=0.4, decide=1e-6)
        assert found[0] == pytest.approx(known[0], rel=2e-3)
        assert found[1] == pytest.approx(known[1], rel=2e-3)


# 1312 and 8146 rest on any mechanism's law: their own, rounded up, has δ 38 and 3 times as large.
@pytest.mark.parametrize("seed", [1312, 8146, *some_slow(range(60), every=4)])
def test_no_promise_is_above_what_it_says(seed: int) -> None:
    """Random promises over the whole accepted range are recomputed and hold.

    `COATCHECK_PROMISES=10000 python -m bench certificates` replays many more.
    """
    law, crowd, delta = any_promise(seed)
    told = amplify(law, crowd=crowd, delta=delta)
    _, low, high = replayed(
        *bounding_laws(law), size=crowd, epsilon=told.epsilon, decide=delta, both=False
    )
    assert low <= delta
    assert high <= delta, (law, crowd)


def test_what_calibrate_gives_is_certified() -> None:
    """The local ε that keeps a promise is confirmed by intervals."""
    for crowd in (300, 10_000, 10**7):
        found = calibrate(lambda x: grid(x, cells=20), epsilon=0.7, crowd=crowd, delta=1e-8)
        assert certify(found.law, size=crowd, epsilon=0.7, delta=1e-8).high == 0.7


def test_a_certificate_says_what_it_encloses() -> None:
    """The promise is the upper end, the lower end is close, and the sentence names both."""
    told = amplify(AnyLdp(epsilon=4.0), crowd=10_000, delta=1e-6, certify=True)
    found = told.certificate
    assert found is not None
    assert found.high == told.epsilon
    assert 0.9999 * told.epsilon < found.low < told.epsilon
    assert 0.999e-6 < found.delta_low <= found.delta_high <= 1e-6
    assert "in interval arithmetic" in str(told)
    by_clones = amplify(
        AnyLdp(epsilon=4.0), crowd=10_000, delta=1e-6, method="clones-2021", certify=True
    ).certificate
    assert by_clones is not None
    assert by_clones.low <= told.epsilon <= by_clones.high


def test_a_false_promise_is_not_certified() -> None:
    """An ε that is slightly too small is detected: only the local one is left."""
    law = grid(4.0, cells=10)
    epsilon = amplify(law, crowd=10_000, delta=1e-6).epsilon * (1 - 1e-4)
    found = certify(law, size=10_000, epsilon=epsilon, delta=1e-6)
    assert found.high == law.epsilon
    assert found.delta_low > 1e-6
    assert found.low < epsilon


def test_no_amplification_is_certain() -> None:
    """At the local ε the loss is certainly zero; just below it, it is certainly not."""
    found = certify(AnyLdp(epsilon=5.0), size=2, epsilon=5.0, delta=1e-12)
    assert (found.delta_low, found.delta_high, found.high) == (0.0, 0.0, 5.0)
    assert 4.99 < found.low < 5


def test_without_the_extra_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, and how to install it; the printed equation has nothing to sum."""
    monkeypatch.setattr(certificate, "_AVAILABLE", False)
    with pytest.raises(Misuse, match=r"pip install 'coatcheck\[certify\]'"):
        amplify(AnyLdp(epsilon=1.0), crowd=100, delta=1e-6, certify=True)
    with pytest.raises(Misuse, match="no sum to replay"):
        amplify(AnyLdp(epsilon=1.0), crowd=100, delta=1e-6, method="closed-form", certify=True)
