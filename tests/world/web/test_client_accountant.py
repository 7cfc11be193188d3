"""The browser's accounting: never below the true value, and as close to it as the library's."""

import math
from typing import Any

import pytest

from coatcheck.accounting.amplification import amplify, bounding_laws
from coatcheck.accounting.certificate import replayed
from coatcheck.accounting.laws import (
    AnyLdp,
    Fieldwise,
    Law,
    OwnCoin,
    Pair,
    TwoLevel,
    blanket,
    bounded,
    grid,
    minkowski,
)
from coatcheck.accounting.reference_bound import promised
from support.crowds import any_promise, sixty_digits
from world.web.browser import ask


def spelled(law: Law) -> dict[str, Any]:
    """Return a law in the browser's format."""
    match law:
        case OwnCoin():
            return {**spelled(law.law), "rate": law.rate}
        case Fieldwise():
            return {"epsilon": law.epsilon, "fields": [spelled(field) for field in law.laws]}
        case TwoLevel():
            return {
                "epsilon": law.epsilon,
                "cap": law.cap,
                "apart": law.apart,
                "kernel": law.kernel,
                "axes": law.axes,
            }
    raise ValueError(law)


def is_supported(law: Law) -> bool:
    """Return whether the browser has mechanisms with this law."""
    return isinstance(law.law if isinstance(law, OwnCoin) else law, TwoLevel | Fieldwise)


def test_no_bound_is_below_sixty_digits() -> None:
    """In small crowds the browser's δ is at least what 60 digits give, and hardly more."""
    laws: list[Law] = [
        grid(2.0, cells=7),
        grid(1.0, cells=2),
        grid(9.0, cells=1_000),
        minkowski(1.0, radius=1.7, dimension=3, norm=2),
        minkowski(3.0, radius=4.0, dimension=1),
        bounded(0.3, radius=0.7, dimension=2),
        OwnCoin(law=grid(2.0, cells=3), rate=0.4),
    ]
    cases = [
        (law, size, share * law.epsilon)
        for law in laws
        for size in (2, 5)
        for share in (0.01, 0.3, 0.8, 0.999)
    ]
    asks = [{"law": spelled(law), "crowd": size, "epsilon": x} for law, size, x in cases]
    for (law, size, epsilon), bound in zip(cases, ask("deltas", asks=asks), strict=True):
        distributions = blanket(law)
        assert isinstance(distributions, Pair)
        truth = sixty_digits(distributions, size, epsilon)
        assert bound >= truth, (law, size, epsilon)
        if truth < 0.1:  # nobody promises more
            assert bound < 1.01 * truth, (law, size, epsilon)


def test_no_promise_of_the_browser_is_refuted() -> None:
    """Random promises up to a billion people hold in interval arithmetic, and are the library's."""
    promises = [promise for promise in map(any_promise, range(60)) if is_supported(promise[0])]
    asks = [{"law": spelled(law), "crowd": crowd, "delta": delta} for law, crowd, delta in promises]
    confirmed = 0
    for (law, crowd, delta), epsilon in zip(promises, ask("amplify", asks=asks), strict=True):
        laws = bounding_laws(law)
        _, low, high = replayed(*laws, size=crowd, epsilon=epsilon, decide=delta, both=False)
        assert low <= delta, (law, crowd)
        confirmed += high <= delta
        # Whatever the library drafts, the browser accepts: its own search stops this close.
        assert epsilon <= promised(law, crowd=crowd, delta=delta).epsilon * (1 + 1e-6) + 1e-12
    assert confirmed > 0.8 * len(promises) > 20


@pytest.mark.parametrize("crowd", [50_000, 5_000_000, 1_000_000_000])
def test_large_crowds_are_counted_whole(crowd: int) -> None:
    """However large the crowd, everybody in it is counted."""
    laws = [grid(1.0, cells=64), minkowski(1.0, radius=0.5, dimension=2), grid(8.0, cells=1_000)]
    asks = [{"law": spelled(law), "crowd": crowd, "delta": 1e-7} for law in laws]
    library = [amplify(law, crowd=crowd, delta=1e-7).epsilon for law in laws]
    assert ask("amplify", asks=asks) == pytest.approx(library, rel=1e-4)


def test_a_coin_amplifies_in_the_browser_as_in_the_library() -> None:
    """Silence hides the others: the page's ε is the library's, and below that without a coin."""
    rates = (0.01, 0.2, 0.7, 1.0)
    laws = [OwnCoin(law=grid(3.0, cells=16), rate=rate) for rate in rates]
    asks = [{"law": spelled(law), "crowd": 2_000, "delta": 1e-6} for law in laws]
    library = [amplify(law, crowd=2_000, delta=1e-6).epsilon for law in laws]
    amplified = ask("amplify", asks=asks)
    assert amplified == pytest.approx(library, rel=2e-3)
    assert amplified == sorted(amplified)


@pytest.mark.parametrize(
    "fields",
    [
        (grid(1.0, cells=2), grid(1.5, cells=2)),
        (minkowski(2.0, radius=0.3, dimension=2), grid(1.0, cells=5)),
        (bounded(1.0, radius=0.8, dimension=2), minkowski(1.0, radius=3.0, dimension=1)),
        tuple(grid(0.3 + 0.1 * k, cells=3 + k) for k in range(5)),
        tuple(minkowski(0.2 + 0.01 * k, radius=1.5, dimension=2, norm=2) for k in range(12)),
    ],
    ids=["binary", "place and label", "overlapping caps", "243 kinds", "too many kinds"],
)
def test_fields_cost_in_the_browser_what_they_cost_in_the_library(
    fields: tuple[TwoLevel, ...],
) -> None:
    """The product of the fields' laws is summed, and not only their budgets."""
    law = Fieldwise(laws=fields)
    laws: list[Law] = [law, OwnCoin(law=law, rate=0.3)]
    cases = [(case, crowd) for case in laws for crowd in (2, 40, 3_000, 10**6)]
    asks = [{"law": spelled(case), "crowd": crowd, "delta": 1e-6} for case, crowd in cases]
    library = [amplify(case, crowd=crowd, delta=1e-6).epsilon for case, crowd in cases]
    for (_, crowd), exact, epsilon in zip(cases, library, ask("amplify", asks=asks), strict=True):
        assert epsilon <= exact * (1 + 1e-4)
        if crowd > 2:  # in the smallest crowds the library's search stops early
            assert epsilon == pytest.approx(exact, rel=1e-3)
    if len(fields) < 12:
        (alone,) = ask("amplify", asks=[{"law": spelled(law), "crowd": 3_000, "delta": 1e-6}])
        assert alone < amplify(AnyLdp(epsilon=law.epsilon), crowd=3_000, delta=1e-6).epsilon
    assert math.isclose(law.epsilon, sum(field.epsilon for field in fields))


@pytest.mark.parametrize("crowd", [2, 100, 532, 5_000, 10**9])
def test_two_reports_cost_in_the_browser_what_they_cost_in_the_library(crowd: int) -> None:
    """Binary response is counted exactly, whatever the crowd."""
    epsilons = (0.1, 1.0, 3.0, 8.0)
    laws = [grid(epsilon, cells=2) for epsilon in epsilons]
    asks = [{"law": spelled(law) | {"binary": True}, "crowd": crowd, "delta": 1e-6} for law in laws]
    library = [amplify(law, crowd=crowd, delta=1e-6).epsilon for law in laws]
    assert ask("amplify", asks=asks) == pytest.approx(library, rel=1e-3)


def test_decoys_hide_in_the_browser_as_in_the_library() -> None:
    """What the library drafts for a crowd with decoys, the browser accepts."""
    laws = [grid(6.0, cells=25), bounded(4.0, radius=0.3, dimension=2)]
    cases = [(law, crowd, each) for law in laws for crowd in (2, 532, 10**6) for each in (1, 2, 8)]
    library = [
        promised(law, crowd=crowd, delta=1e-5, decoys=each).epsilon for law, crowd, each in cases
    ]
    asks = [
        {"law": spelled(law) | {"exact": True, "decoys": each}, "crowd": crowd, "delta": 1e-5}
        for law, crowd, each in cases
    ]
    assert ask("amplify", asks=asks) == pytest.approx(library, rel=1e-4)


@pytest.mark.parametrize("crowd", [532, 5_000, 1_000_000])
def test_boxes_that_overlap_cost_less_than_the_blanket(crowd: int) -> None:
    """The browser's closer bound for boxes is below the blanket's, and confirms every draft."""
    laws = [
        (bounded(1.0, radius=0.6, dimension=2), 2),
        (bounded(3.0, radius=0.75, dimension=1), 1),
        (minkowski(2.0, radius=1.5, dimension=3), 3),
    ]
    asks = {
        known: [
            {"law": spelled(law) | {"axes": axes * known}, "crowd": crowd, "delta": 1e-6}
            for law, axes in laws
        ]
        for known in (True, False)
    }
    boxes, blankets = (ask("amplify", asks=asks[known]) for known in (True, False))
    drafted = [promised(law, crowd=crowd, delta=1e-6).epsilon for law, _ in laws]
    for close, coarse, promise in zip(boxes, blankets, drafted, strict=True):
        assert close < coarse
        assert close <= promise * (1 + 1e-6)
