"""Binomial chances to twelve digits up to a billion draws, and the spreads made of them.

What the accountant needs of SciPy's incomplete beta function and of nothing else: point masses
without the cancellation of log-gamma, expected excesses, and a binomial put on a few nodes in a
way that only ever spreads it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Misuse

# HOUSE-DOC accounting.limits: 'What the accountant accepts: for anything else it has a sentence and never a number.\n\nWithin these limits the bounds were compared with exact arithmetic (tests/test_soundness.py).\n'
# e^-64 is far below any δ, so a report with a larger ε is as good as public in any crowd.
EPSILON: Final = 64.0
CROWD: Final = 10**9
DELTA: Final = 1e-15


def check_epsilon(value: Any, name: str = "the local epsilon", *, positive: bool = False) -> None:
    """Refuse what is no privacy budget."""
    if not _number(value) or value < 0 or (positive and value == 0):
        kind = "a positive epsilon" if positive else "a finite number, zero or more"
        raise Misuse(f"{name} must be {kind}, not {value!r}; 0.1 to 3 is usual for a promise")
    if value > EPSILON:
        raise Misuse(f"{name} of {value:g} protects nothing; ask for at most {EPSILON:g}")


def check_delta(value: Any) -> None:
    """Refuse what is no chance of failure, or one too small for floating point."""
    if not _number(value) or not 0 < value < 1:
        raise Misuse(
            f"delta must lie between 0 and 1, not {value!r}; "
            "one over a hundred times the crowd is a usual choice"
        )
    if value < DELTA:
        raise Misuse(
            f"delta must be at least {DELTA:g}, not {value:g}: no sum here is that precise"
        )


def check_count(value: Any, name: str) -> None:
    """Refuse what does not count people or rounds."""
    if not _number(value) or not float(value).is_integer() or value < 0:
        raise Misuse(f"{name} must be a whole number, zero or more, not {value!r}")
    if value > CROWD:
        raise Misuse(f"{name} must be at most {CROWD:,}, not {value:,}")


def check_rounds(value: Any) -> None:
    """Refuse what is no number of rounds."""
    check_count(value, "rounds")
    if value < 1:
        raise Misuse(f"there is at least 1 round, not {value}")


def check_share(value: Any, name: str) -> None:
    """Refuse what is no share of the people above none."""
    if not _number(value) or not 0 < value <= 1:
        raise Misuse(f"{name} must be in (0, 1], not {value!r}")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


Array: TypeAlias = NDArray[np.float64]

_SMALL: Final = 16
# Below this much room above t an excess has two terms at most.
_TOP: Final = 2.0
# Below this share of the draws, too many digits of it are lost by subtracting.
_LOST: Final = 1e-4
# ln k! - Stirling's formula, for small k exactly and from there on by its series (Loader 2000).
_EXACT: Final = np.array(
    [0.0]
    + [
        math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi)
        for k in range(1, _SMALL)
    ]
)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A finite distribution: where, ascending, and how much."""

    at: Array
    mass: Array


def _stirling(k: Array) -> Array:
    inverse = 1 / np.maximum(k, _SMALL)
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    small = _EXACT[np.minimum(k, _SMALL - 1).astype(np.intp)]
    return np.where(k < _SMALL, small, series)


def _deviance(k: Array, mean: Array) -> Array:
    off = (k - mean) / mean
    return mean * ((1 + off) * np.log1p(off) - off)


def point(draws: Array, chance: float, k: Array) -> Array:
    """Give P[Bin(draws, chance) = k] for 0 < chance < 1; zero outside 0..draws."""
    inside = (k >= 0) & (k <= draws)
    inner = (k > 0) & (k < draws)
    j = np.where(inner, k, 1.0)
    m = np.where(inner, draws, 2.0)
    log = (
        _stirling(m)
        - _stirling(j)
        - _stirling(m - j)
        - _deviance(j, m * chance)
        - _deviance(m - j, m * (1 - chance))
        + 0.5 * np.log(m / (2 * math.pi * j * (m - j)))
    )
    edge = np.where(k > 0, draws * math.log(chance), draws * math.log1p(-chance))
    return np.where(inside, np.exp(np.where(inner, log, edge)), 0.0)


def at_least(draws: Array, chance: float, k: Array) -> Array:
    """Give P[Bin(draws, chance) >= k]."""
    from scipy.special import betainc  # noqa: PLC0415 - only here, and slow to load

    inner = (k > 0) & (k <= draws)
    a = np.where(inner, k, 1.0)
    b = np.where(inner, draws - k + 1, 1.0)
    return np.where(inner, betainc(a, b, chance), np.where(k <= 0, 1.0, 0.0))


def doubt(draws: Array, chance: float, k: Array) -> Array:
    """Bound the relative error of `point` and `at_least` (thrice what 50 digits show)."""
    return 1e-13 + 1e-15 * np.abs(k - draws * chance)


def excess(draws: Array, chance: float, above: Array, *, room: Array, sign: float = 1.0) -> Array:
    """Give E[(B - t)_+] for B ~ Bin(draws, chance), t = draws·chance + above = draws - room.

    It is rounded up, or with sign -1 down, and so must `room` be. Callers know `room` without
    subtracting; where the float t is next to `draws`, it is what counts.
    """
    k = first_above(draws, chance, above, room)
    tail, mass = at_least(draws, chance, k), point(draws, chance, k)
    return combine(draws, chance, above, room=room, k=k, tail=tail, mass=mass, sign=sign)


def first_above(draws: Array, chance: float, above: Array, room: Array) -> Array:
    """Give the least whole number above t; at most `draws` if there is room, however little."""
    k: Array = np.floor(draws * chance + above) + 1
    return np.where(room > 0, np.minimum(k, draws), k)


def combine(
    draws: Array,
    chance: float,
    above: Array,
    *,
    room: Array,
    k: Array,
    tail: Array,
    mass: Array,
    sign: float = 1.0,
) -> Array:
    """Put the excess together from P[>= k] and P[= k], widened by what those may be off."""
    gain = np.maximum(k, 0.0) * (1 - chance) * mass
    loss = above * tail
    value, scale = np.maximum(gain - loss, 0.0), gain + np.abs(loss)
    if (top := room < np.minimum(_TOP, _LOST * draws)).any():
        # Here gain and loss cancel, but the excess is a sum of two terms at most.
        most = point(draws, chance, draws)
        less = most * draws * ((1 - chance) / chance)
        few = np.maximum(room, 0.0) * most + np.maximum(room - 1, 0.0) * less
        value, scale = np.where(top, few, value), np.where(top, few, scale)
    return np.maximum(value + sign * doubt(draws, chance, k) * scale, 0.0)


@dataclass(frozen=True, kw_only=True)
class Smear:
    """What the randomness of a weight N adds to an expected excess: E[(u - N)_+] - (u - E N)_+.

    The function is convex on either side of the mean, so that lines between the tabulated
    points lie above it.
    """

    mean: float
    at: Array
    value: Array

    def __call__(self, u: Array) -> Array:
        """Interpolate; outside the table its end values are too large, which is safe."""
        return np.interp(u, self.at, self.value)

    def nodes(self, count: int) -> Weights:
        """Spread N further over about `count` nodes; E[(u - N)_+] gains `value[0]` at most."""
        every = max(1, self.at.size // count)
        kept = np.zeros(self.at.size, dtype=bool)
        kept[::every] = kept[-1] = True
        kept |= self.at == self.mean
        at, value = self.at[kept], self.value[kept]
        slope = np.concatenate([[0.0], np.diff(value) / np.diff(at), [0.0]])
        # Puts and calls differ by a line of slope one, which starts at the mean.
        return Weights(at=at, mass=np.maximum(np.diff(slope) + (at == self.mean), 0.0))


def smear(draws: int, chance: float, *, reach: float, nodes: int = 128) -> Smear:
    """Tabulate the smear of Bin(draws, chance) within `reach` standard deviations of its mean."""
    if chance < 1e-15 or chance > 1 - 1e-15:
        # Only rounding leads here: a chance of (nearly) none or all is one of none or all.
        mean = float(draws) if chance > 0.5 else 0.0
        return Smear(mean=mean, at=np.array([mean]), value=np.zeros(1))
    mean = draws * chance
    at = _around(draws, chance, reach=reach, nodes=nodes)
    return Smear(mean=mean, at=at, value=_time_value(draws, chance, at))


def _around(draws: int, chance: float, *, reach: float, nodes: int) -> Array:
    mean = draws * chance
    span = reach * math.sqrt(mean * (1 - chance)) + reach * reach / 3
    if draws <= nodes:
        inner = np.arange(draws + 1.0)
    else:
        inner = np.linspace(max(0.0, mean - span), min(float(draws), mean + span), nodes)
    return np.unique(np.append(inner, mean))


def _time_value(draws: int, chance: float, at: Array) -> Array:
    """Give E[(at - N)_+] below the mean of N and E[(N - at)_+] above it, rounded up."""
    mean = draws * chance
    off, many = at - mean, np.full_like(at, draws)
    calls = excess(many, chance, np.maximum(off, 0.0), room=draws - np.maximum(at, mean))
    puts = excess(many, 1 - chance, np.maximum(-off, 0.0), room=np.minimum(at, mean))
    return np.where(off > 0, calls, puts)


def spread(draws: int, chance: float, *, reach: float, nodes: int) -> Weights:
    """Put Bin(draws, chance) on about `nodes` nodes: same mean, larger in the convex order.

    The masses are second differences of the expected excess, so between two nodes a value is
    split as a fair lottery over them; the outermost nodes are the ends of the support. A chance
    next to none or all, where differences are lost to rounding, is a lottery over these ends.
    """
    if chance < 1e-15 or chance > 1 - 1e-15:
        return Weights(at=np.array([0.0, draws]), mass=np.array([1 - chance, chance]))
    inner = _around(draws, chance, reach=reach, nodes=nodes)
    at = np.unique(np.concatenate([[0.0], inner, [float(draws)]]))
    value = _time_value(draws, chance, at)
    value[0] = value[-1] = 0.0
    slope = np.concatenate([[0.0], np.diff(value) / np.diff(at), [0.0]])
    # Puts and calls differ by a line of slope one, which starts at the node on the mean.
    mass = np.diff(slope) + (at == draws * chance)
    return Weights(at=at, mass=np.maximum(mass, 0.0))


# HOUSE-DOC accounting.roots: 'Where a bound crosses its target: every search of the accountant ends on the side it names.\n\n`bisect` is for a yes or no that is cheap to ask. `root` is for a bound that is dear: it is given\nthe log of a δ over the δ that was asked for, so that at most zero is good; a cheap and looser\nversion of the bound finds the neighborhood, the close one finishes. Both return the end called\n`good`, or a point that was itself seen to be good, and never a point between the two.\n\n    >>> bisect(lambda x: x * x <= 2, good=0.0, bad=2.0) ** 2 <= 2\n    True\n'
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
