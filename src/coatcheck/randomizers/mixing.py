"""The coin that decides between truth and noise, computed in integers on the private side.

A mechanism answers from a cap of `cap` lattice points with probability heads / 2^64, otherwise
from all `whole` points. A point of the cap is then 1 + heads whole / ((2^64 - heads) cap) times
as likely as one outside, and `heads` is the largest integer that keeps this at most e^ε.
"""

import math
from abc import abstractmethod
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

from coatcheck.accounting.laws import TwoLevel
from coatcheck.randomizers.contract import Randomizer

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
    if heads == 0:  # also where a cap is too small to count, and `cap` is 0
        return 0.0
    excess = Fraction(heads * whole, (TOSSES - heads) * cap)
    return math.log1p(float(excess)) * (1 + 4 * 2.0**-52)


def above(ratio: Fraction) -> float:
    """Return the smallest convenient float that is at least this ratio."""
    near = float(ratio)
    return near if Fraction(near) >= ratio else math.nextafter(near, math.inf)


def counted_law(epsilon: float, *, cap: int, whole: int) -> TwoLevel:
    """Return the law of caps of so many of all reports, told apart as well as that allows.

    Two of them miss each other in at most all of one, or in all that the other leaves.
    """
    if cap == whole:
        return TwoLevel(epsilon=0.0, cap=1.0, apart=0.0, kernel=1.0)
    heads = heads_for(epsilon, cap=cap, whole=whole)
    one = Fraction(TOSSES - heads, TOSSES * whole)
    return TwoLevel(
        epsilon=min(spent(heads, cap=cap, whole=whole), epsilon),
        cap=above(cap * one),
        apart=above(min(cap, whole - cap) * one),
        reached=cap == 1,
    )


class MixedResponse(Randomizer):
    """A mechanism that answers from a value's cap with probability β, else from everywhere.

    The law here is that of caps which are told apart as well as their sizes allow; mechanisms
    whose caps always overlap say more.
    """

    _disjoint: ClassVar[bool] = True  # whether caps of one report each are known to be

    @property
    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """Return how many reports a cap has, and how many there are."""

    @cached_property
    def heads(self) -> int:
        """Return how many of 2^64 tosses of the coin choose the cap."""
        cap, whole = self._counts
        return heads_for(self.epsilon, cap=cap, whole=whole)

    @property
    def mixing(self) -> float:
        """Return β, the probability of an answer from the cap."""
        return self.heads / TOSSES

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that the mechanism really costs."""
        cap, whole = self._counts
        if cap == whole:
            return 0.0
        return min(spent(self.heads, cap=cap, whole=whole), self.epsilon)

    @property
    def law(self) -> TwoLevel:
        """Return the two-level law of the counts."""
        cap, whole = self._counts
        law = counted_law(self.epsilon, cap=cap, whole=whole)
        return law if self._disjoint else replace(law, reached=False)

    @property
    def total_variation(self) -> float:
        """Return the total variation distance of the two values whose caps overlap least."""
        return self.mixing * self.law.apart / self.law.cap
