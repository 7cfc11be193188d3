"""Binomial chances to twelve digits up to a billion draws, and the spreads made of them.

What the accountant needs of SciPy's incomplete beta function and of nothing else: point masses
without the cancellation of log-gamma, expected excesses, and a binomial put on a few nodes in a
way that only ever spreads it.
"""

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

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
