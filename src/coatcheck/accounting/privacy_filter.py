"""Whether one more round fits a limit, even if its terms depend on what earlier rounds gave.

Adding up privacy losses (`composition`) needs each round's law and crowd fixed in advance. A
server may choose them by what it has seen, so a person's ledger asks this file instead. Each
round is treated as a stretch of one Brownian motion whose drift is the person's value; the limit
says how long the motion may be watched, and an odometer what was spent at any moment until then.
Proof: docs/explanation/repeated-rounds.md.

    >>> from coatcheck.accounting.laws import AnyLdp
    >>> budget = Budget(epsilon=3.0, delta=1e-6)
    >>> one = budget.stretch(AnyLdp(epsilon=4.0), crowd=10_000)
    >>> int(budget.whole / one)
    38
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from coatcheck.accounting.amplification import central
from coatcheck.accounting.composition import Array, losses
from coatcheck.accounting.laws import Law
from coatcheck.accounting.numerics import EPSILON, bisect, doubled

# Shares of the limit's δ: for the motion as far as the limit, for the odometer at all moments
# before, for the moment after the first round; and twice, once for the limit and once for the
# odometer, for what no Gaussian bounds, such as far tails.
_LIMIT: Final = 0.8
_READ: Final = 0.1
_FIRST: Final = 0.05
_KEPT: Final = 0.025
# The odometer's marks: how many, and each as a share of the next.
_MARKS: Final = 88
_RATIO: Final = 0.9
# Points of a round's curve, and the share of δ at which the curve ends.
_POINTS: Final = 120
_FAR: Final = 1e-8
# Far more than the rounding errors of SciPy's normal distribution.
_DOUBT: Final = 1e-12


class Hidden(NamedTuple):
    """One report: its law, the people that it hides among, and the chance that they are not there.

    The chance is that of a cascade whose traps count wrongly; then the whole report is seen.
    """

    law: Law
    crowd: int
    failing: float = 0.0


Reports: TypeAlias = Sequence[Hidden]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit (ε, δ), fixed before the first round, and how much of it a round takes.

    *Guarantee:* rounds whose stretches add up to at most `whole` are (ε, δ)-indistinguishable
    together, even if each round's law and crowd are chosen by what earlier rounds gave; and at
    every moment before, even one so chosen, ε is what the odometer reads.
    """

    epsilon: float
    delta: float

    @cached_property
    def whole(self) -> float:
        """How long the motion may be watched: the μ² at which a Gaussian has the limit's (ε, δ)."""
        target = _LIMIT * self.delta

        def fits(mu: float) -> bool:
            return _gaussian(mu, self.epsilon) <= target

        good, bad = doubled(lambda mu: not fits(mu))
        return bisect(fits, good=good, bad=bad) ** 2

    def stretch(self, law: Law, *, crowd: int, failing: float = 0.0) -> float:
        """Give μ² of one round in a crowd of honest, anonymous people, rounded up.

        It is infinite if the local ε is so large that no crowd hides the report, or if the crowd
        fails with too large a chance.
        """
        return _stretch(self, law, crowd, failing) if law.epsilon <= EPSILON else math.inf

    def kept(self, watched: float) -> float:
        """Give the chance of an unbounded loss that a stretch of this length may have."""
        return _KEPT * self.delta * watched / self.whole if self.whole > 0 else math.inf

    def fixed(self, watched: float) -> float:
        """Give the ε of stretches of this total length, if they were fixed in advance; rounded up.

        At the whole length this is the limit's ε.
        """
        if not math.isfinite(watched):
            return math.inf
        return _gaussian_epsilon(math.sqrt(watched), _LIMIT * self.delta)

    def odometer(self, watched: float) -> float:
        """Give the ε of stretches of this total length at a moment chosen by what they gave.

        It is infinite beyond the whole length.
        """
        if watched <= 0:
            return 0.0
        at = bisect_left(self._marks, (watched, 0.0))
        return self._marks[at][1] if at < len(self._marks) else math.inf

    def spent(self, reports: Reports) -> float:
        """Bound the ε of reports together at the limit's δ, at any moment; within it, all fit.

        The smallest of three sums counts. The plain sum of local budgets needs no δ at all. As long
        as the whole motion is not used up, the limit holds. The odometer reads the motion of the
        rounds that are cheaper there, and adds the local budgets of the others.
        """
        plain = sum(report.law.epsilon for report in reports)
        watched, apart = 0.0, 0.0
        for law, crowd, failing in reports:
            stretch = self.stretch(law, crowd=crowd, failing=failing)
            dear = stretch * self.epsilon > law.epsilon * self.whole
            if dear or watched + stretch > self.whole:
                apart += law.epsilon
            else:
                watched += stretch
        total = min(plain, self.odometer(watched) + apart)
        if self._watched(reports) <= self.whole:
            total = min(total, self.epsilon)
        if len(reports) != 1 or plain > EPSILON:
            return total
        # The first round depends on nothing, and that moment has its own share of δ.
        total = min(total, _alone(reports[0], _FIRST * self.delta))
        if total <= self.epsilon:
            return total
        # A single round may use up the whole limit: nothing can be added to it then.
        return min(total, _alone(reports[0], self.delta))

    def left(self, reports: Reports) -> float:
        """Give the ε that one more round may cost, roughly."""
        rest = self.fixed(max(0.0, self.whole - self._watched(reports)))
        return min(self.epsilon, max(0.0, self.epsilon - self.spent(reports), rest))

    def _watched(self, reports: Reports) -> float:
        return sum(self.stretch(law, crowd=n, failing=chance) for law, n, chance in reports)

    @cached_property
    def _marks(self) -> list[tuple[float, float]]:
        """List lengths up to the whole one, and the ε that is read from the mark before on."""
        target = _READ * self.delta / _MARKS
        lengths = [self.whole * _RATIO**k for k in reversed(range(_MARKS))]
        return [(length, _gaussian_epsilon(math.sqrt(length), target)) for length in lengths]


def _alone(report: Hidden, delta: float) -> float:
    """Give the ε of one report at a δ that also has the chance of a failing crowd."""
    rest = delta - report.failing
    return central(report.law, size=report.crowd, delta=rest) if rest > 0 else report.law.epsilon


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Find the ε at which N(μ, 1) against N(0, 1) has at most this δ, rounded up."""

    def enough(epsilon: float) -> bool:
        return _gaussian(mu, epsilon) <= delta

    if enough(0.0):
        return 0.0
    bad, good = doubled(enough)
    return bisect(enough, good=good, bad=bad, close=1e-10)


def _gaussian(mu: float, epsilon: float) -> float:
    """Bound δ(ε) of N(μ, 1) against N(0, 1) from above."""
    from scipy.special import log_ndtr, ndtr  # noqa: PLC0415 - slow to load

    if mu <= 0:
        return 0.0
    hit = float(ndtr(mu / 2 - epsilon / mu))
    miss = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
    return max(0.0, hit - miss) + _DOUBT * hit


@lru_cache(maxsize=256)
def _stretch(budget: Budget, law: Law, crowd: int, failing: float) -> float:
    """Find the least μ whose Gaussian, with an unbounded loss at chance `kept`, is enough."""
    sizes, powers = _tests(law, crowd, budget.delta)
    powers = np.minimum(1.0, powers + failing)

    def enough(mu: float) -> bool:
        return _needed(sizes, powers, budget.kept(mu * mu)) <= mu

    bad, good = doubled(enough, most=1e3)
    return bisect(enough, good=good, bad=bad, close=1e-9) ** 2 if good < math.inf else math.inf


def _tests(law: Law, crowd: int, delta: float) -> tuple[Array, Array]:
    """Write the round's curve as a maximum of lines b - a e, each a test of size a and power b.

    The line of size 0 is flat: it stands for what lies beyond the curve's last point.
    """
    reach = max(1e-6, central(law, size=crowd, delta=_FAR * delta))
    one = losses(law, crowd=crowd, step=reach / _POINTS, reach=reach)
    mass = one.mass[1 - one.first :]
    loss = one.step * np.arange(1, mass.size + 1)
    sizes = np.cumsum((mass * np.exp(-loss))[::-1])
    powers = one.infinite + np.cumsum(mass[::-1])
    return np.append(0.0, sizes * (1 - _DOUBT)), np.append(one.infinite, powers * (1 + _DOUBT))


def _needed(sizes: Array, powers: Array, kept: float) -> float:
    """Give the μ whose Gaussian, with an unbounded loss at chance `kept`, has such tests."""
    if kept >= 1:
        return 0.0
    hard = powers > kept
    if not hard.any():
        return 0.0
    from scipy.special import ndtri  # noqa: PLC0415 - slow to load

    power = np.minimum(1.0, (powers[hard] - kept) / (1 - kept))
    size = np.minimum(1.0, sizes[hard] / (1 - kept))
    with np.errstate(invalid="ignore"):
        needed = np.where(power > size, ndtri(power) - ndtri(size), 0.0)
    return float(np.max(needed)) * (1 + 1e-9)
