"""δ(ε_c) of a shuffled crowd whose reports have two values: the truth, slightly rounded up.

Such a list tells nothing but the number of its ones. Of the n - 1 others, `many` hold the value
that gives most ones and the rest the value that gives fewest: no other values are worse. Then δ is
largest on an event {S <= m}, with S the number of ones among the others, and

    δ = a P[S <= m] - b P[S <= m - 1],   a = R0(0) - e R1(0),   b = e R1(1) - R0(1).

Weighted by (a/b)^S, S has its mode at m, and δ is one sum over few points of a periodic function,
whatever the crowd (`deltas`). `blocks` lists crowds that together are no more private than every
number of `many`. Proofs: docs/explanation/amplification.md, section 7c.

    >>> print(f"{upper(symmetric(1.0), size=532, epsilon=0.25):.4g}")
    1.158e-09
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting.numerics import Array

_UNIT: Final = 2.0**-53
_ROUNDING: Final = 64 * _UNIT
# Minus the logarithm of what each end of the sum may leave out; it is added back.
CUT: Final = 45.0
# Others below which every number of `many` is a block of its own; the blocks to start with beyond
# that, how many make it stop halving them, and by how much the result may exceed the truth then.
_EACH: Final = 128
_FIRST: Final = 50
_MOST: Final = 300
_CLOSE: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class TwoReports:
    """The chances of the two reports, 0 and 1, under the values with fewest and with most ones.

    Attributes:
        epsilon: the local ε.
        fewest: R(0) and R(1) of the value with fewest ones.
        most: the same for the value with most ones; None if it is `fewest` reversed.
    """

    epsilon: float
    fewest: tuple[float, float]
    most: tuple[float, float] | None = None

    @property
    def noise(self) -> float:
        """The variance of the log of the ratio of likelihoods, times n, in a large crowd."""
        most = self.most or self.fewest[::-1]
        return (most[1] - self.fewest[1]) ** 2 / min(x * y for x, y in (self.fewest, most))


def symmetric(epsilon: float) -> TwoReports:
    """Return the law of binary response."""
    p = math.exp(epsilon)
    return TwoReports(epsilon=epsilon, fewest=(p / (1 + p), 1 / (1 + p)))


class Blocks(NamedTuple):
    """Crowds of `others`, `many` of whom hold the value with most ones."""

    others: NDArray[np.int64]
    many: NDArray[np.int64]


class Tilt(NamedTuple):
    """What one of the others adds, with few ones and with many, weighted by ratio^-ones."""

    first: float  # a
    more: float  # (b - a)/a; the ratio ρ = b/a is one more
    ones: tuple[float, float]  # the weighted chance of a one
    logs: tuple[float, float]  # ln of the sum of the weights


def upper(law: TwoReports, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above; without `fine`, cheaper and mostly looser."""
    if epsilon >= law.epsilon:
        return 0.0
    worst = 0.0
    for tilt in tilts(law, epsilon):
        _, values = blocks(tilt, size - 1, fine=fine)
        worst = max(worst, float(values.max()))
    return min(1.0, worst * (1 + 1e-11))


def tilts(law: TwoReports, epsilon: float) -> list[Tilt]:
    """Return the tilt of either direction in which δ is positive; a is rounded up, b down."""
    e = math.exp(epsilon)
    if law.most is None:
        first = e * math.expm1(law.epsilon - epsilon) * law.fewest[1] * (1 + _ROUNDING)
        return [tilted(first, math.expm1(epsilon) * (1 - _ROUNDING), law.fewest, law.fewest[::-1])]
    both = []
    for few, many in ((law.fewest, law.most), (law.most[::-1], law.fewest[::-1])):
        first = few[0] - e * many[0] + _ROUNDING * (few[0] + e * many[0])
        second = e * many[1] - few[1] - _ROUNDING * (e * many[1] + few[1])
        if first > 0:
            both.append(tilted(first, max(0.0, second - first), few, many))
    return both


def tilted(
    first: float, excess: float, few: tuple[float, float], many: tuple[float, float]
) -> Tilt:
    """Weigh the others' ones, so that their number has its mode where δ is reached; b - a known."""
    shrunk, lost = first / (first + excess), excess / (first + excess)
    ones = tuple(one * shrunk / (zero + one * shrunk) for zero, one in (few, many))
    logs = tuple(
        math.log1p(-one * lost) if one * lost < 0.5 else math.log(zero + one * shrunk)
        for zero, one in (few, many)
    )
    return Tilt(first, excess / first, (ones[0], ones[1]), (logs[0], logs[1]))


def blocks(tilt: Tilt, others: int, *, fine: bool = True) -> tuple[Blocks, Array]:
    """List crowds of which the least private is no more private than any with `others`.

    Who is told the reports of w people learns no less. So the others of whom k to k + w hold the
    value with many ones are covered by `others` - w of whom k do. Blocks that are above the truth
    of another k are halved until there are many. Return the δ of each as well.
    """
    if others < _EACH:
        edges = np.arange(others + 2)
    else:
        even, close = np.linspace(0, others + 1, _FIRST), np.geomspace(1, others + 1, _FIRST)
        edges = np.unique(np.concatenate([even, close]).astype(np.int64))
    start, width = edges[:-1], np.diff(edges) - 1
    value = deltas(tilt, Blocks(others - width, start))
    while fine and start.size < _MOST:
        reached = value[width == 0].max()
        wide = (width > 0) & (value > reached * (1 + _CLOSE))
        if not wide.any():
            break
        half = (width[wide] + 1) // 2
        new = np.concatenate([start[wide], start[wide] + half])
        left = np.concatenate([half - 1, width[wide] - half])
        start, width = np.append(start[~wide], new), np.append(width[~wide], left)
        value = np.append(value[~wide], deltas(tilt, Blocks(others - left, new)))
    return Blocks(others - width, start), value


def deltas(tilt: Tilt, crowds: Blocks) -> Array:
    """Return δ of each crowd, rounded up: the largest a P[S <= m] - b P[S <= m - 1] over m."""
    many = crowds.many.astype(np.float64)
    few = crowds.others - many
    mean = few * tilt.ones[0] + many * tilt.ones[1]
    variance = sum(c * x * (1 - x) for c, x in zip((few, many), tilt.ones, strict=True))
    reach = np.ceil(CUT / 3 + np.sqrt(CUT * CUT / 9 + 2 * variance * CUT)) + 4
    points = 2 * reach + 1
    # Beyond the last point |φ| is below e^-CUT.
    end = 2 * np.arcsin(np.sqrt(np.minimum(1.0, CUT / (2 * np.maximum(variance, 1e-9)))))
    count = int(np.minimum(reach, np.ceil(end * points / (2 * math.pi))).max())
    at = np.arange(1.0, count + 1)
    t = (2 * math.pi / points)[:, None] * at
    sine, cosine = np.sin(t / 2), np.cos(t / 2)
    rise, turn = 2 * sine * sine, 2 * sine * cosine  # 1 - cos t and sin t
    log, angle = np.zeros_like(t), np.arctan2(turn, tilt.more + rise)
    for people, one in zip((few, many), tilt.ones, strict=True):
        log += people[:, None] * (0.5 * np.log1p(-2 * one * (1 - one) * rise))
        angle += people[:, None] * np.arctan2(one * turn, 1 - one * rise)
    size = np.exp(log) / np.hypot(tilt.more + rise, turn)
    size = np.where(at <= reach[:, None], size, 0.0)
    ratio = math.log1p(tilt.more)
    rest = tilt.more / (1 + tilt.more) * np.exp(-ratio * reach)
    worst = np.zeros_like(mean)
    for m in modes(mean):
        phase = angle - m[:, None] * t
        terms = 2 * sine * np.sin(phase + t / 2)
        terms += rest[:, None] * np.cos(phase + (reach[:, None] + 1) * t)
        doubt = _ROUNDING * (1 + (mean + m + reach)[:, None] * t - log)
        total = (size * (terms + doubt * (2 * sine + rest[:, None]))).sum(axis=1)
        total = (2 * total + np.exp(-ratio * (reach + 1))) / points
        total += 6 * math.exp(-CUT) / (1 + tilt.more)
        power = few * tilt.logs[0] + many * tilt.logs[1] + (m + 1) * ratio
        doubt = 1e-12 + _ROUNDING * (np.abs(power) + (m + 1) * ratio)
        value = tilt.first * np.exp(power) * total * (1 + doubt)
        worst = np.where(m >= 0, np.maximum(worst, value), worst)
    return worst


def modes(mean: Array) -> tuple[Array, Array, Array]:
    """List numbers of which one is the mode of a sum of coins with this mean; -1 for none.

    It is the mean, rounded down or up, and down if less than 1/(that + 2) is rounded (Darroch
    1964). The mean is trusted to 1e-6.
    """
    low = np.floor(np.maximum(0.0, mean - 1e-6))
    further = mean + 1e-6 - low >= 1 / (low + 2)
    last = mean + 1e-6 >= low + 1
    return low, np.where(further, low + 1, -1.0), np.where(last, low + 2, -1.0)
