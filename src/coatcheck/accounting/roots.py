"""Where a bound crosses its target: every search of the accountant ends on the side it names.

`bisect` is for a yes or no that is cheap to ask. `root` is for a bound that is dear: it is given
the log of a δ over the δ that was asked for, so that at most zero is good; a cheap and looser
version of the bound finds the neighborhood, the close one finishes. Both return the end called
`good`, or a point that was itself seen to be good, and never a point between the two.

    >>> bisect(lambda x: x * x <= 2, good=0.0, bad=2.0) ** 2 <= 2
    True
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


class Excess(Protocol):
    """The log of a δ over its target at a point, with care or cheaply and no lower."""

    def __call__(self, point: float, /, *, fine: bool) -> float:
        """Evaluate it."""
        ...


# The result is good by at most this much, in logs of δ.
CLOSE: Final = 2e-6
_NEARBY: Final = 0.05


def bisect(
    holds: Callable[[float], bool], *, good: float, bad: float, close: float = 1e-12
) -> float:
    """Find the point nearest `bad`, seen from `good`, at which a condition still holds.

    *Guarantee:* the result is `good` or a point at which `holds` was seen to be true. With `good`
    below `bad` it is rounded down, with `good` above `bad` it is rounded up.

    Args:
        holds: the condition, true near `good` and false near `bad`.
        good: where it is known to hold, and is not asked.
        bad: where it is known to fail, and is not asked.
        close: how near the two ends come, as a share of the larger.
    """
    while abs(bad - good) > close * max(abs(good), abs(bad)):
        middle = (good + bad) / 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def doubled(holds: Callable[[float], bool], *, most: float = 1e300) -> tuple[float, float]:
    """Double 1 until a condition holds; give the last point of failure and the first of success.

    The former is 0 if it holds at once, the latter is infinite if it does not hold up to `most`.
    """
    before, now = 0.0, 1.0
    while not holds(now):
        if now > most:
            return now, math.inf
        before, now = now, 2 * now
    return before, now


def root(excess: Excess, *, good: float, bad: float, start: float) -> float:
    """Find the point nearest `bad`, seen from `good`, at which the excess is still at most zero.

    *Guarantee:* the result is `good` or a point at which the excess was seen to be at most zero.

    Args:
        excess: the function, at a point, with or without care.
        good: where it is known to be at most zero, and is not asked.
        bad: where it is thought to be above zero; returned if it is not.
        start: a guess.
    """
    if excess(bad, fine=False) <= 0:
        return bad
    last = good + 1e-6 * (bad - good)
    near = abs(start - good) < 0.3 * abs(bad - good)
    if near and excess(last, fine=False) > 0:
        return good
    ends = _Bracket(good=good, bad=bad)
    start, slope, _ = _walk(
        excess, ends, fine=False, start=start, slope=0.0, goal=(-_NEARBY, _NEARBY)
    )
    # Where the cheap bound is good nowhere, one look tells if the dear one is.
    if start == good and excess(last, fine=True) > 0:
        return good
    point, _, value = _walk(excess, ends, fine=True, start=start, slope=slope, goal=(-CLOSE, 0.0))
    return point if value <= 0 else good


class _Bracket(NamedTuple):
    good: float
    bad: float

    def holds(self, point: float) -> bool:
        return min(self) < point < max(self)

    def closed(self) -> bool:
        return abs(self.bad - self.good) <= 1e-13 * max(abs(self.bad), abs(self.good))


def _walk(
    excess: Excess,
    ends: _Bracket,
    *,
    fine: bool,
    start: float,
    slope: float,
    goal: tuple[float, float],
) -> tuple[float, float, float]:
    """Follow secants inside a shrinking bracket until the excess is within the goal.

    Gives the point, the last slope and the value; if the bracket closes first, its good end.
    """
    middle = (ends.good + ends.bad) / 2
    outward = 1 if ends.good > ends.bad else -1
    point = start if ends.holds(start) else middle
    before, kept = None, -700.0
    for turn in range(100):
        value = excess(point, fine=fine)
        if goal[0] <= value <= goal[1]:
            return point, slope, value
        if value <= 0:
            ends, kept = ends._replace(good=point), value
        else:
            ends = ends._replace(bad=point)
        if ends.closed():
            break
        if before is not None and value != before[1]:
            slope = (value - before[1]) / (point - before[0])
        before = (point, value)
        if slope:
            point -= (value - sum(goal) / 2) / slope
        else:
            point += 0.1 * point * outward * (1 if value > 0 else -1)
        if turn % 8 == 7 or not ends.holds(point):
            point = (ends.good + ends.bad) / 2
    return ends.good, slope, kept
