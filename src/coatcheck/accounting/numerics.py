"""Argument checks, binomial tails and one-sided root finding for the accountant.

`check_*` reject arguments outside the limits within which the bounds were compared with exact
arithmetic (tests of soundness). The binomial part computes point masses to twelve digits up to a
billion draws, without the cancellation of log-gamma; expected excesses; and a binomial on a few
nodes, in a way that can only spread it. It uses nothing of SciPy but the incomplete beta function.

`bisect` and `root` find where a bound crosses its target. Both return the end called `good`, or a
point at which they evaluated the condition as good, and never a point in between. `bisect` is for
a cheap yes or no. `root` is for an expensive bound: the logarithm of a δ over the target δ, good if
at most zero. A cheap, looser version of the bound finds the neighborhood; the close one finishes.

    >>> bisect(lambda x: x * x <= 2, good=0.0, bad=2.0) ** 2 <= 2
    True
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Misuse

# e^-64 is far below any δ, so a report with a larger ε is as good as public in any crowd.
EPSILON: Final = 64.0
CROWD: Final = 10**9
DELTA: Final = 1e-15


def check_epsilon(value: Any, name: str = "the local epsilon", *, positive: bool = False) -> None:
    """Raise `Misuse` unless the value is a privacy budget."""
    if not _number(value) or value < 0 or (positive and value == 0):
        kind = "a positive number" if positive else "a finite number, zero or more"
        raise Misuse(f"{name} must be {kind}, not {value!r}; 0.1 to 3 is usual for a promise")
    if value > EPSILON:
        raise Misuse(f"{name} must be at most {EPSILON:g}, not {value:g}, which protects nothing")


def check_delta(value: Any) -> None:
    """Raise `Misuse` unless the value is a chance of failure that floating point can resolve."""
    if not _number(value) or not 0 < value < 1:
        raise Misuse(
            f"`delta` must lie between 0 and 1, not {value!r}; a usual choice is 1 / (100 x crowd)"
        )
    if value < DELTA:
        raise Misuse(
            f"`delta` must be at least {DELTA:g}, the precision of the sums, not {value:g}"
        )


def check_count(value: Any, name: str) -> None:
    """Raise `Misuse` unless the value is a count of people or rounds."""
    if not _number(value) or not float(value).is_integer() or value < 0:
        raise Misuse(f"{name} must be a whole number, zero or more, not {value!r}")
    if value > CROWD:
        raise Misuse(f"{name} must be at most {CROWD:,}, not {value:,}")


def check_rounds(value: Any) -> None:
    """Raise `Misuse` unless the value is a number of rounds."""
    check_count(value, "rounds")
    if value < 1:
        raise Misuse(f"`rounds` must be at least 1, not {value}")


def check_share(value: Any, name: str) -> None:
    """Raise `Misuse` unless the value is a positive share."""
    if not _number(value) or not 0 < value <= 1:
        raise Misuse(f"{name} must be in (0, 1], not {value!r}")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


Array: TypeAlias = NDArray[np.float64]

_SMALL: Final = 16
# With less room above t than this, an excess has at most two terms.
_TOP: Final = 2.0
# With less room than this share of the draws, subtraction loses too many digits.
_CANCELLED: Final = 1e-4
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
    """A finite distribution: ascending points and their masses."""

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
    """Return P[Bin(draws, chance) = k] for 0 < chance < 1; zero outside 0..draws."""
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
    """Return P[Bin(draws, chance) >= k]."""
    from scipy.special import betainc  # noqa: PLC0415 - only here, and slow to load

    inner = (k > 0) & (k <= draws)
    a = np.where(inner, k, 1.0)
    b = np.where(inner, draws - k + 1, 1.0)
    return np.where(inner, betainc(a, b, chance), np.where(k <= 0, 1.0, 0.0))


def doubt(draws: Array, chance: float, k: Array) -> Array:
    """Bound the relative error of `point` and `at_least` (three times that seen with 50 digits)."""
    return 1e-13 + 1e-15 * np.abs(k - draws * chance)


def excess(draws: Array, chance: float, above: Array, *, room: Array, sign: float = 1.0) -> Array:
    """Return E[(B - t)_+] for B ~ Bin(draws, chance), t = draws·chance + above = draws - room.

    It is rounded up, or down with sign -1, and so must `room` be. Callers compute `room` without
    subtracting, and where the float t is close to `draws` the result depends on it.
    """
    k = first_above(draws, chance, above, room)
    tail, mass = at_least(draws, chance, k), point(draws, chance, k)
    return combine(draws, chance, above, room=room, k=k, tail=tail, mass=mass, sign=sign)


def first_above(draws: Array, chance: float, above: Array, room: Array) -> Array:
    """Return the least whole number above t; at most `draws` if `room` is positive."""
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
    """Combine P[>= k] and P[= k] to the excess, widened by the rounding errors of both."""
    gain = np.maximum(k, 0.0) * (1 - chance) * mass
    loss = above * tail
    value, scale = np.maximum(gain - loss, 0.0), gain + np.abs(loss)
    if (top := room < np.minimum(_TOP, _CANCELLED * draws)).any():
        # Here gain and loss cancel, but the excess is a sum of at most two terms.
        most = point(draws, chance, draws)
        less = most * draws * ((1 - chance) / chance)
        few = np.maximum(room, 0.0) * most + np.maximum(room - 1, 0.0) * less
        value, scale = np.where(top, few, value), np.where(top, few, scale)
    return np.maximum(value + sign * doubt(draws, chance, k) * scale, 0.0)


@dataclass(frozen=True, kw_only=True)
class Smear:
    """The increase of an expected excess by the randomness of a weight N.

    That is E[(u - N)_+] - (u - E N)_+, tabulated.

    It is convex on either side of the mean, so that lines between the
    points of the table lie above it.
    """

    mean: float
    at: Array
    value: Array

    def __call__(self, u: Array) -> Array:
        """Interpolate; outside the table, the end values are too large, which is safe."""
        return np.interp(u, self.at, self.value)

    def nodes(self, count: int) -> Weights:
        """Spread N further over about `count` nodes; E[(u - N)_+] gains `value[0]` at most."""
        every = max(1, self.at.size // count)
        chosen = np.zeros(self.at.size, dtype=bool)
        chosen[::every] = chosen[-1] = True
        chosen |= self.at == self.mean
        at, value = self.at[chosen], self.value[chosen]
        slope = np.concatenate([[0.0], np.diff(value) / np.diff(at), [0.0]])
        # The two excesses differ by a line of slope one, which starts at the mean.
        return Weights(at=at, mass=np.maximum(np.diff(slope) + (at == self.mean), 0.0))


def smear(draws: int, chance: float, *, reach: float, nodes: int = 128) -> Smear:
    """Tabulate the smear of Bin(draws, chance) within `reach` standard deviations of its mean."""
    if chance < 1e-15 or chance > 1 - 1e-15:
        # Only rounding leads here; treat a chance this close to 0 or 1 as 0 or 1.
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
    """Return E[(at - N)_+] below the mean of N and E[(N - at)_+] above it, rounded up."""
    mean = draws * chance
    off, many = at - mean, np.full_like(at, draws)
    calls = excess(many, chance, np.maximum(off, 0.0), room=draws - np.maximum(at, mean))
    puts = excess(many, 1 - chance, np.maximum(-off, 0.0), room=np.minimum(at, mean))
    return np.where(off > 0, calls, puts)


# Sums over points of an integral (section 7a) add noise, a sum of this many uniform variables, and
# end where the transform of the noise has fallen: 1e-7 of the integral is left.
UNIFORMS: Final = 16
END: Final = 4.0


def smoothing(at: Array, *, c: float, noise: float) -> NDArray[np.complex128]:
    """Return the transform of the noise over z², at z = c + it."""
    z = c + 1j * at
    half = z * (noise / 2)
    kernel = np.sinh(half) / half
    for _ in range(UNIFORMS.bit_length() - 1):  # to the 16th power
        kernel = kernel * kernel
    return np.asarray(kernel / (z * z))


class Excess(Protocol):
    """The logarithm of a δ over its target at a point; the cheap version is never lower."""

    def __call__(self, point: float, /, *, fine: bool) -> float:
        """Evaluate it, closely if `fine`."""
        ...


# How far below the target the result may be, in logarithms of δ.
CLOSE: Final = 2e-6
_NEARBY: Final = 0.05


def bisect(
    holds: Callable[[float], bool], *, good: float, bad: float, close: float = 1e-12
) -> float:
    """Find the point nearest to `bad`, coming from `good`, at which a condition still holds.

    *Guarantee:* the result is `good` or a point at which `holds` returned true. With `good`
    below `bad` it is rounded down, with `good` above `bad` it is rounded up.

    Args:
        holds: the condition, true near `good` and false near `bad`.
        good: a point at which it is known to hold; not evaluated.
        bad: a point at which it is known to fail; not evaluated.
        close: the final distance of the two ends, as a share of the larger.
    """
    while abs(bad - good) > close * max(abs(good), abs(bad)):
        middle = (good + bad) / 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def doubled(holds: Callable[[float], bool], *, most: float = 1e300) -> tuple[float, float]:
    """Double 1 until a condition holds; return the last failing and the first holding point.

    The former is 0 if it holds at 1; the latter is infinite if it does not hold up to `most`.
    """
    before, now = 0.0, 1.0
    while not holds(now):
        if now > most:
            return now, math.inf
        before, now = now, 2 * now
    return before, now


def root(excess: Excess, *, good: float, bad: float, start: float) -> float:
    """Find the point nearest to `bad`, coming from `good`, where the excess is at most zero.

    *Guarantee:* the result is `good` or a point at which the close version of the excess was
    evaluated as at most zero.

    Args:
        excess: the function.
        good: a point at which it is known to be at most zero; not evaluated.
        bad: a point at which it should be above zero; returned if it is not.
        start: a guess.
    """
    if excess(bad, fine=False) <= 0 and excess(bad, fine=True) <= 0:
        return bad
    last = good + 1e-6 * (bad - good)
    near = abs(start - good) < 0.3 * abs(bad - good)
    if near and excess(last, fine=False) > 0:
        return good
    ends = _Bracket(good=good, bad=bad)
    start, slope, _ = _walk(
        excess, ends, fine=False, start=start, slope=0.0, goal=(-_NEARBY, _NEARBY)
    )
    # If the cheap bound is good nowhere, evaluate the close one once.
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

    Return the point, the last slope and the value; if the bracket closes first, its good end.
    """
    middle = (ends.good + ends.bad) / 2
    outward = 1 if ends.good > ends.bad else -1
    point = start if ends.holds(start) else middle
    before, at_good = None, -700.0
    for turn in range(100):
        value = excess(point, fine=fine)
        if goal[0] <= value <= goal[1]:
            return point, slope, value
        if value <= 0:
            ends, at_good = ends._replace(good=point), value
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
    return ends.good, slope, at_good
