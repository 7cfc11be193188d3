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

from coatcheck.accounting.binomials import Array
from coatcheck.accounting.pairs import Atoms
from coatcheck.accounting.roots import bisect, doubled

_UNIT: Final = 2.0**-53
# The noise is a sum of this many uniform variables.
UNIFORMS: Final = 16
# Width of each of them over 1/c: a hundredth costs less than 1e-4 of δ.
_FINE, _COARSE = 0.008, 0.05
# Points of the integrand, times the width of a uniform: past it 1e-7 of the integral is left.
END: Final = 4.0
# Standard deviations of the sum that fit between the images which a sum over points adds.
_APART: Final = 13.0
# Points times values that are worked out at a time.
_BLOCK: Final = 1 << 16
_UNDERFLOW: Final = 1e-250


def upper(atoms: Atoms, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, for the worst of the law's pairs of values."""
    if epsilon >= atoms.epsilon:
        return 0.0
    e, worst = math.exp(epsilon), 0.0
    for pair in range(len(atoms.pairs)):
        first, second, mass = _columns(atoms, pair)
        values = first - e * second + 8 * _UNIT * (first + e * second)
        worst = max(worst, _upper(values, mass, size=size, width=_FINE if fine else _COARSE))
    return min(1.0, worst)


@lru_cache(maxsize=1024)
def _columns(atoms: Atoms, pair: int) -> tuple[Array, Array, Array]:
    first, second, mass = np.array(atoms.pairs[pair]).T
    return first, second, mass


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
    points, block = math.ceil(end / step) + 1, max(1, _BLOCK // values.size)
    # What floats may be off per draw, over M(c), is `off` times |z|.
    unit = (32 + 2 * values.size) * _UNIT / (1 + more)
    off = unit * float(grown @ np.abs(values))
    found = 0.0
    for first in range(0, points, block):
        at = np.asarray(step * np.arange(first, min(first + block, points)), dtype=np.float64)
        size_and_angle = _ratio(np.outer(at / 2, values), grown / (1 + more))
        found += _terms(at, *size_and_angle, c=c, noise=noise, off=off, size=size)
    # Past the end the kernel is below (2 cosh(c noise/2) / (t noise))^16 / t².
    past = (2 * math.cosh(width / 2) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / math.pi
    grow = math.exp(min(700.0, size * math.log1p(more)))
    rounding = 1e-12 + unit * size * float(mass @ np.abs(np.expm1(c * values)))
    return grow * (step / (2 * math.pi) * found + past) / size * (1 + rounding) + _UNDERFLOW


def _ratio(half: Array, grown: Array) -> tuple[Array, Array]:
    """Give ln|q| and the angle of q = M(c + it)/M(c), with care where q is next to one."""
    sine = np.sin(half)
    real = -2 * (sine * sine) @ grown
    imaginary = 2 * (sine * np.cos(half)) @ grown
    square = 2 * real + real * real + imaginary * imaginary  # |q|² - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log(np.hypot(1 + real, imaginary))
        near = np.log1p(square) / 2
    return np.where(square < -0.5, far, near), np.arctan2(imaginary, 1 + real)


def _terms(
    at: Array, log: Array, angle: Array, *, c: float, noise: float, off: float, size: int
) -> float:
    """Add up the integrand at points t and at -t, over M(c)^n, with what floats may be off."""
    z = c + 1j * at
    half = z * (noise / 2)
    kernel = (np.sinh(half) / half) ** UNIFORMS / (z * z)
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
