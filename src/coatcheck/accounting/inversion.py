"""The sum behind amplification for laws with many values, as one integral.

    δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+]                 (docs/explanation/amplification.md, *)

With M(z) = E[e^(zG)] and any c > 0 the expectation is (1/2π) ∫ M(c + it)^n / (c + it)² dt. Noise of
mean zero is added to the sum, a spread, so that the integrand ends early. What the sum over points
of the integrand adds to the integral is positive, what it leaves out and what floats may be off is
bounded and added. So the result is an upper bound (section 7a there).
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting.binomials import Array
from coatcheck.accounting.pairs import Atoms
from coatcheck.accounting.roots import bisect, doubled

_UNIT: Final = 2.0**-53
# The noise is a sum of this many uniform variables.
UNIFORMS: Final = 16
# Width of each of them over 1/c: a hundredth costs less than 1e-4 of δ.
_FINE, _COARSE = 0.01, 0.06
# Points of the integrand, times the width of a uniform: past it 1e-7 of the integral is left.
END: Final = 4.0
# Standard deviations of the sum that fit between the images which a sum over points adds.
_APART: Final = 13.0
# Values of G that are summed as they are; more are put on as many points.
_MOST: Final = 130
_UNDERFLOW: Final = 1e-250
_ROUNDING: Final = 1e-12


def upper(atoms: Atoms, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, for the worst of the law's pairs of values."""
    if epsilon >= atoms.epsilon:
        return 0.0
    e, worst = math.exp(epsilon), 0.0
    for pair in range(len(atoms.pairs)):
        first, second, mass = _columns(atoms, pair)
        values = first - e * second + 8 * _UNIT * (first + e * second)
        if values.size > _MOST:
            values, mass = _fewer(values, mass, e)
        worst = max(worst, _upper(values, mass, size=size, width=_FINE if fine else _COARSE))
    return min(1.0, worst)


@lru_cache(maxsize=1024)
def _columns(atoms: Atoms, pair: int) -> tuple[Array, Array, Array]:
    first, second, mass = np.array(atoms.pairs[pair]).T
    return first, second, mass


def _fewer(values: Array, mass: Array, e: float) -> tuple[Array, Array]:
    """Spread values over fewer points: those of two ratios of which one is 1."""
    top = max((values.max() + e) * (1 + _ROUNDING), (1 - values.min()) / e * (1 + _ROUNDING), 2.0)
    ratios = np.geomspace(1, top, _MOST // 2)
    points = np.unique(np.concatenate([1 - e * ratios, ratios - e]))
    last = np.clip(np.searchsorted(points, values), 1, points.size - 1)
    up = np.clip((values - points[last - 1]) / (points[last] - points[last - 1]), 0.0, 1.0)
    spread: Array = np.zeros(points.size)
    np.add.at(spread, last, mass * up)
    np.add.at(spread, last - 1, mass * (1 - up))
    kept = spread > 0
    return points[kept] + 16 * _UNIT * (np.abs(points[kept]) + e), spread[kept]


def _upper(values: Array, mass: Array, *, size: int, width: float) -> float:
    """Bound E[(G_1 + ... + G_n)_+]/n for a G with these values and chances, else zero."""
    if values.max() <= 0:
        return 0.0
    # One draw this low makes every sum negative, so a lower one is as good.
    values = np.maximum(values, -size * values.max())
    c = saddle(values, mass, size=size)
    grown = mass * np.exp(c * values)
    more = float(mass @ np.expm1(c * values))  # M(c) - 1
    mean = float(grown @ values) / (1 + more)
    variance = float(grown @ values**2) / (1 + more) - mean**2
    noise = width / c
    reach = _APART * math.sqrt(size * variance + UNIFORMS / 12 * noise**2) + 8 / c
    step, end = 2 * math.pi / reach, END / noise
    points = math.ceil(end / step) + 1
    # What floats may be off per draw, over M(c), is `off` times |z|.
    unit = (32 + 2 * values.size) * _UNIT / (1 + more)
    off = unit * float(grown @ np.abs(values))
    at = step * np.arange(points, dtype=np.float64)
    log, angle = _ratio(step, points, values, grown / (1 + more))
    found = _terms(at, log, angle, c=c, noise=noise, off=off, size=size)
    # Past the end the kernel is below (2 cosh(c noise/2) / (t noise))^16 / t².
    past = (2 * math.cosh(width / 2) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / math.pi
    grow = math.exp(min(700.0, size * math.log1p(more)))
    rounding = 1e-12 + unit * size * float(mass @ np.abs(np.expm1(c * values)))
    return grow * (step / (2 * math.pi) * found + past) / size * (1 + rounding) + _UNDERFLOW


def _ratio(step: float, points: int, values: Array, grown: Array) -> tuple[Array, Array]:
    """Give ln|q| and the angle of q = M(c + it)/M(c) at multiples of a step.

    Points are cut into rows: q - 1 is a product of matrices plus what belongs to the row's first
    point, because uw - 1 = (u - 1)w + (w - 1). So q is exact where it is next to one.
    """
    row = math.ceil(math.sqrt(points))
    inner = _turned(np.outer(step * np.arange(row), values / 2))
    outer = _turned(np.outer(row * step * np.arange(math.ceil(points / row)), values / 2))
    left = ((1 + outer) * grown) @ inner.T + (outer @ grown)[:, None]
    less = left.ravel()[:points]
    real, imaginary = less.real, less.imag
    square = 2 * real + real * real + imaginary * imaginary  # |q|² - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log(np.hypot(1 + real, imaginary))
        near = np.log1p(square) / 2
    return np.where(square < -0.5, far, near), np.arctan2(imaginary, 1 + real)


def _turned(half: Array) -> NDArray[np.complex128]:
    """Give e^(2ix) - 1 for each x."""
    sine = np.sin(half)
    return np.asarray(2 * sine * (1j * np.cos(half) - sine))


def _terms(
    at: Array, log: Array, angle: Array, *, c: float, noise: float, off: float, size: int
) -> float:
    """Add up the integrand at points t and at -t, over M(c)^n, with what floats may be off."""
    z = c + 1j * at
    half = z * (noise / 2)
    kernel = np.sinh(half) / half
    for _ in range(UNIFORMS.bit_length() - 1):  # to the 16th power
        kernel = kernel * kernel
    kernel = kernel / (z * z)
    turned = np.cos(size * angle) * kernel.real - np.sin(size * angle) * kernel.imag
    doubt = off * np.abs(z)
    wrong = size * doubt * np.exp((size - 1) * np.log(np.exp(log) + doubt)) + 128 * _UNIT
    weight = np.where(at > 0, 2.0, 1.0)
    return float(weight @ (np.exp(size * log) * turned + wrong * np.abs(kernel)))


def saddle(values: Array, mass: Array, *, size: int) -> float:
    """Find the c > 0 at which M(c)^n/c² is about least. Any c > 0 is sound."""
    top = float(values.max())
    none = max(0.0, 1 - float(mass.sum()))

    def low(c: float) -> bool:
        grown = mass * np.exp(c / top * values)
        return size * c * float(grown @ values) <= 2 * top * (float(grown.sum()) + none)

    bad, good = 1.0, 1.0
    if low(1.0):
        good, bad = doubled(lambda c: not low(c) or c > 500)
    else:
        while not low(good) and good > 1e-300:
            bad, good = good, good / 4
    return bisect(low, good=good, bad=bad, close=1e-3) / top
