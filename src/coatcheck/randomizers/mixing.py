"""The coin that decides between truth and noise, computed in integers on the private side.

A mechanism answers from a cap of `cap` lattice points with probability heads / 2^64, otherwise
from all `whole` points. A point of the cap is then 1 + heads whole / ((2^64 - heads) cap) times
as likely as one outside, and `heads` is the largest integer that keeps this at most e^ε.
"""

import math
from fractions import Fraction
from typing import Final

TOSSES: Final = 1 << 64
_BITS: Final = 160  # of the fraction of e^ε; far below the 2^-64 of the coin


def exp_below(epsilon: float) -> Fraction:
    """Return a rational number at most e^epsilon, and closer to it than the coin can tell."""
    exponent = Fraction(epsilon)
    term = total = 1 << _BITS
    order = 0
    while term:
        order += 1
        # Every term is positive and rounded down, so the sum stays below e^epsilon.
        term = term * exponent.numerator // (exponent.denominator * order)
        total += term
    return Fraction(total, 1 << _BITS)


def heads_for(epsilon: float, *, cap: int, whole: int) -> int:
    """Return the coin's heads out of 2^64.

    Guarantee: heads whole <= (e^epsilon - 1) cap (2^64 - heads). With gain = (e^epsilon - 1) cap
    that is heads (gain + whole) <= 2^64 gain, of which this is the largest solution.
    """
    gain = (exp_below(epsilon) - 1) * cap
    return math.floor(TOSSES * gain / (gain + whole))


def spent(heads: int, *, cap: int, whole: int) -> float:
    """Return an upper bound on ln(1 + heads whole / ((2^64 - heads) cap)), within a few ulp."""
    excess = Fraction(heads * whole, (TOSSES - heads) * cap)
    return math.log1p(float(excess)) * (1 + 4 * 2.0**-52)


def above(ratio: Fraction) -> float:
    """Return the smallest convenient float that is at least this ratio."""
    near = float(ratio)
    return near if Fraction(near) >= ratio else math.nextafter(near, math.inf)
