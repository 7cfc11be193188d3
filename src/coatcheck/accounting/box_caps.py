"""A closer bound on δ(ε_c) where the caps of a two-level mechanism are boxes that all overlap.

The blanket forgets that every other cap covers a part of the two in question. Here each of the
others leaves with a small chance κ for a common pool, and the person takes an empty place at
random. Who sees pool and places learns as much as from evidence G = (R0 - e R1)/R of every other
report under its own distribution R, except for what the pool takes. The sum over points of an
integral, taken by absolute values, is largest if all others hold one value; and volumes of boxes
make it largest if, along each axis, two of the three values are at one end and one at the other:
`patterns`. Proofs: docs/explanation/amplification.md, section 7e.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from coatcheck.accounting.numerics import END, UNIFORMS, Array, smoothing

_UNIT: Final = 2.0**-53
# Axes above which boxes have too many patterns.
MOST_AXES: Final = 8
# Width of each uniform variable of the noise over 1/c.
WIDTH: Final = 0.08
# Standard deviations of the sum between the images that a sum over points adds.
_APART: Final = 13.0
# The largest share that the pool may take of the part that x0 and x1 have in common, and which part
# of a larger bound an empty pool may cost, tried in turn.
_MOST: Final = 0.9
_EMPTY: Final = (1e-5, 0.003, 0.05)
# Of nine kinds of reports, those in the caps of x0, of x1 and of another x. The first is in all.
IN0 = np.array([1, 1, 1, 1, 0, 1, 0, 0, 0], dtype=bool)
IN1 = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0], dtype=bool)
INX = np.array([1, 1, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
_HIDDEN = IN0 == IN1
FIRST_ONLY: Final = 5
ALL = np.arange(9) == 0


@dataclass(frozen=True, kw_only=True)
class BoxCaps:
    """Caps that are boxes of one size, any two of which overlap along every axis.

    Attributes:
        epsilon: ln p.
        cap: α, the mass of a cap under the lower level.
        share: the least share of a cap's side that two caps share along an axis, rounded down.
        axes: the number of axes.
    """

    epsilon: float
    cap: float
    share: float
    axes: int

    @property
    def volumes(self) -> Array:
        """The mass under the lower level of each kind of reports, one row per pattern."""
        return _volumes(self)

    @property
    def noise(self) -> float:
        """The variance of G at ε_c = 0 if all others hold the worst value."""
        p = math.exp(self.epsilon)
        evidence = (p - 1) * (IN0.astype(float) - IN1)
        return float((self.volumes @ (evidence**2 / np.where(INX, p, 1.0))).max())


def patterns(axes: int) -> list[tuple[int, int, int]]:
    """List along how many axes x0, x1 or x differs from the other two; along the rest none does."""
    many = range(axes + 1)
    return [(i, j, k) for i in many for j in many for k in many if i + j + k <= axes]


@lru_cache(maxsize=256)
def _volumes(caps: BoxCaps) -> Array:
    first, second, third = np.array(patterns(caps.axes)).T
    q = caps.share
    pair, one, two = (q ** (x + y) for x, y in ((first, second), (first, third), (second, third)))
    three = q ** (first + second + third)
    everywhere = np.full_like(three, q**caps.axes)
    inside = [
        everywhere,
        three - everywhere,
        pair - three,
        one - three,
        two - three,
        1 - pair - one + three,
        1 - pair - two + three,
        1 - one - two + three,
    ]
    masses = caps.cap * np.maximum(0.0, np.column_stack(inside))
    whole = 1 - math.expm1(caps.epsilon) * caps.cap
    return np.column_stack([masses, np.maximum(0.0, whole - masses.sum(axis=1))])


def upper(caps: BoxCaps, *, size: int, epsilon: float, guess: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, where a larger bound is `guess`."""
    return closest(caps, size=size, epsilon=epsilon, guess=guess, fine=fine)[0]


def closest(
    caps: BoxCaps, *, size: int, epsilon: float, guess: float, fine: bool = True
) -> tuple[float, float]:
    """Return the bound, and the share of the pool that gives it; 1 and 0 if there is none.

    The pool is so large that it is empty with a small part of `guess`. A crowd that is small for
    that tries smaller pools as well; any size is sound.
    """
    if size < 2 or guess <= 0:
        return 1.0, 0.0
    apart = caps.cap * (1 - caps.share**caps.axes)
    alone = apart * math.exp(epsilon) * math.expm1(caps.epsilon - epsilon)
    hidden = float((caps.volumes @ pooled(caps)).min())
    best = (1.0, 0.0)
    for part in _EMPTY:
        share = math.log(max(2.0, alone / (part * guess))) / (size - 1) / hidden
        if share < _MOST:
            bound = with_pool(caps, share, size=size, epsilon=epsilon, fine=fine)
            best = min(best, (bound, share))
        if share < 0.2 * _MOST:
            break
    return best


def pooled(caps: BoxCaps) -> Array:
    """Return the lower level where x0 and x1 are alike, which is e^ε in all caps; else zero."""
    return np.asarray(np.where(ALL, math.exp(caps.epsilon), 1.0) * _HIDDEN)


def kinds(local: float, epsilon: float) -> tuple[Array, Array]:
    """Return R(x) and the evidence R0 - e R1 of each kind of reports, the latter rounded up."""
    p, e = math.exp(local), math.exp(epsilon)
    first, second, other = (np.where(inside, p, 1.0) for inside in (IN0, IN1, INX))
    return other, first - e * second + 16 * _UNIT * (first + e * second)


def with_pool(
    caps: BoxCaps, share: float, *, size: int, epsilon: float, fine: bool = True
) -> float:
    """Bound δ(ε_c), where the pool takes this share of what x0 and x1 have in common."""
    level, evidence = kinds(caps.epsilon, epsilon)
    level = level - share * pooled(caps)
    values, mass = evidence / level, caps.volumes * level
    values = np.maximum(values, -size * float(values.max()))
    chance = caps.volumes @ (share * pooled(caps))  # κ of each pattern
    most = float(chance.max()) * (1 + 1e-9)
    empty = (1 - float(chance.min()) * (1 - 1e-9)) ** (size - 1)
    alone = caps.cap * (1 - caps.share**caps.axes) * max(0.0, float(evidence.max()))
    c = saddle(values, mass, size=size)
    grown, more = mass * np.exp(c * values), mass @ np.expm1(c * values)
    order = np.argsort(-more)
    mean, square = grown[order[0]] @ values, grown[order[0]] @ values**2
    spread = float(square - mean**2 / (1 + more[order[0]])) / (1 + float(more[order[0]]))
    noise = (WIDTH if fine else 4 * WIDTH) / c
    reach = _APART * math.sqrt(size * spread + UNIFORMS / 12 * noise**2) + 8 / c
    step, end = 2 * math.pi / reach, END / noise
    at = np.arange(math.ceil(end / step) + 1, dtype=np.float64) * step
    weight = np.abs(smoothing(at, c=c, noise=noise)) * np.where(at > 0, 2.0, 1.0)
    weight *= step / (2 * math.pi) * (1 + 128 * _UNIT)
    # Past the end the kernel is below (2 cosh(c noise/2) / (t noise))^16 / t².
    past = (2 * math.cosh(c * noise / 2) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / math.pi
    # |M| and |M - most| are at most these; a pattern for which that is enough is not summed.
    high = 1 + more
    ceiling = _mean_power(high, np.abs(high - 2 * chance) + most, size)
    turned = np.exp(1j * np.outer(values, at))
    worst = 0.0
    for row in order:
        if ceiling[row] * (float(weight.sum()) + past) * most <= worst:
            continue
        whole = chance[row] + (grown[row][:, None] * turned).sum(axis=0)
        doubt = 128 * _UNIT * (high[row] + float(grown[row] @ np.abs(values)) * at)
        terms = _mean_power(np.abs(whole) + doubt, np.abs(whole - most) + doubt, size)
        rounding = 64 * _UNIT * size * float(mass[row] @ np.abs(np.expm1(c * values)))
        total = (float(weight @ terms) + past * float(ceiling[row])) * most
        worst = max(worst, total * (1 + rounding + 1e-9))
    return min(1.0, worst + empty * alone + 1e-250)


def _mean_power(first: Array, second: Array, size: int) -> Array:
    """Return the mean of x^(n-1) over the numbers x between two numbers, rounded up."""
    high, low = np.maximum(first, second), np.minimum(first, second)
    ratio = np.maximum(low, 1e-300) / high
    share = -np.expm1(size * np.log(ratio)) / (size * np.maximum(1 - ratio, 1e-15))
    power = np.exp(np.minimum((size - 1) * np.log(high), 700.0))
    return np.asarray(
        np.minimum(1.0, np.where(ratio < 1 - 1e-12, share, 1.0)) * power * (1 + 1e-12)
    )


def saddle(values: Array, mass: Array, *, size: int) -> float:
    """Find the c > 0 at which the largest M(c)^n/c² is about least; any c > 0 is sound."""
    low, high = math.log(1e-9 / values.max()), math.log(600 / np.abs(values).max())

    def height(log: float) -> float:
        more = float((mass @ np.expm1(math.exp(log) * values)).max())
        return size * math.log1p(more) - 2 * log

    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = height(left), height(right)
    while high - low > 0.003:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = height(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = height(right)
    return math.exp((low + high) / 2)
