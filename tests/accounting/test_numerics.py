"""The accountant's searches end on the side that they promise."""

import math

import pytest

from coatcheck.accounting.numerics import bisect, doubled, root


@pytest.mark.parametrize("close", [1e-3, 1e-12])
def test_a_bisection_ends_where_the_condition_holds(close: float) -> None:
    """Good below bad rounds down, good above bad rounds up, both to the given tolerance."""
    edge = math.sqrt(2)
    down = bisect(lambda x: x * x <= 2, good=0.0, bad=2.0, close=close)
    up = bisect(lambda x: x * x >= 2, good=2.0, bad=0.0, close=close)
    assert edge * (1 - 2 * close) <= down <= edge * (1 + 1e-15)
    assert edge * (1 - 1e-15) <= up <= edge * (1 + 2 * close)
    assert bisect(lambda _: False, good=1.0, bad=2.0, close=close) == 1.0


def test_doubling_gives_the_last_failure_and_the_first_success() -> None:
    """It starts at 1 and returns infinity where nothing up to the maximum holds."""
    assert doubled(lambda x: x >= 1) == (0.0, 1.0)
    assert doubled(lambda x: x >= 1.5) == (1.0, 2.0)
    assert doubled(lambda x: x >= 100) == (64.0, 128.0)
    assert doubled(lambda x: x >= 100, most=20.0)[1] == math.inf
    assert doubled(lambda x: x >= 100, most=64.0) == (64.0, 128.0)


@pytest.mark.parametrize(("good", "bad"), [(0.0, 4.0), (4.0, 0.0)])
def test_a_root_was_seen_to_be_good(good: float, bad: float) -> None:
    """The returned point was evaluated: its excess is at most zero, and barely below."""
    sign = 1 if good < bad else -1

    def excess(x: float, /, *, fine: bool) -> float:
        return sign * (x * x - 2) + (0.0 if fine else 0.01)

    found = root(excess, good=good, bad=bad, start=1.0)
    assert -1e-5 <= excess(found, fine=True) <= 0
    assert root(lambda _, /, *, fine: -1.0 - fine, good=good, bad=bad, start=1.0) == bad
    assert root(lambda _, /, *, fine: 1.0 + fine, good=good, bad=bad, start=1.0) == good
