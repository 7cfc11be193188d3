"""A privacy filter: does one more round fit a limit, even if its terms depend on earlier results?

Adding up privacy losses (`composition`) needs each round's law and crowd fixed in advance. A server
may choose them from what it has seen, so a person's ledger uses this file instead. It treats each
round as a stretch of one Brownian motion whose drift is the person's value. The limit fixes how
long the motion may be watched, and an odometer bounds what was spent at any moment until then.
Proof: docs/explanation/repeated-rounds.md.

    >>> from coatcheck.accounting.laws import AnyLdp
    >>> budget = Budget(epsilon=3.0, delta=1e-6)
    >>> stretch = budget.stretch(AnyLdp(epsilon=4.0), crowd=10_000)
    >>> int(budget.whole / stretch)
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

# Shares of the limit's δ: for the motion up to the limit, for the odometer at all moments before,
# for the moment after the first round; and, counted twice (for the limit and for the odometer), for
# losses that no Gaussian bounds, such as far tails.
_LIMIT: Final = 0.8
_READ: Final = 0.1
_FIRST: Final = 0.05
_UNBOUNDED: Final = 0.025
# The odometer's marks: their number, and each length as a share of the next.
_MARKS: Final = 88
_RATIO: Final = 0.9
# Points of a round's curve, and the share of δ at which the curve ends.
_POINTS: Final = 120
_FAR: Final = 1e-8
# Far more than the rounding errors of SciPy's normal distribution.
_DOUBT: Final = 1e-12


class HiddenReport(NamedTuple):
    """One report: its law, the people that it hides among, and the chance that they do not.

    They do not if a cascade's traps count wrongly; the adversary then knows whose report it is.
    """

    law: Law
    crowd: int
    failing: float = 0.0


class Charge(NamedTuple):
    """One round in the sum: its report, how it counts, and whether it broke its promise.

    How it counts is fixed when the round is entered (`Budget.charge`) and never changes: as a
    stretch of the motion, or `by_itself` with its local ε. A round that broke its promise costs
    its local ε on top of what it counts for, so that no charge ever lowers the sum.
    """

    report: HiddenReport
    by_itself: bool
    broken: bool = False

    @property
    def exposed(self) -> HiddenReport:
        """The report as if nobody hid it."""
        return self.report._replace(crowd=1, failing=0.0)


Charges: TypeAlias = Sequence[Charge]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit (ε, δ), fixed before the first round, and how much of it each round uses.

    *Guarantee:* rounds whose stretches add up to at most `whole` are (ε, δ)-indistinguishable
    together, even if each round's law and crowd are chosen from the results of earlier rounds. At
    every moment before, even one chosen in that way, ε is what the odometer reads.
    """

    epsilon: float
    delta: float

    @cached_property
    def whole(self) -> float:
        """How long the motion may be watched: the μ² of a Gaussian with the limit's (ε, δ)."""
        target = _LIMIT * self.delta

        def fits(mu: float) -> bool:
            return _gaussian(mu, self.epsilon) <= target

        good, bad = doubled(lambda mu: not fits(mu))
        return bisect(fits, good=good, bad=bad) ** 2

    def stretch(self, law: Law, *, crowd: int, failing: float = 0.0) -> float:
        """Return μ² of one round in a crowd of honest, anonymous people, rounded up.

        It is infinite if the local ε is so large that no crowd hides the report, or if the chance
        that the crowd fails is too large.
        """
        return _least_stretch(self, law, crowd, failing) if law.epsilon <= EPSILON else math.inf

    def unbounded(self, watched: float) -> float:
        """Return the chance of an unbounded loss that a stretch of this length may have."""
        return _UNBOUNDED * self.delta * watched / self.whole if self.whole > 0 else math.inf

    def fixed(self, watched: float) -> float:
        """Return the ε of stretches of this total length, if fixed in advance; rounded up.

        At the whole length this is the limit's ε.
        """
        if not math.isfinite(watched):
            return math.inf
        return _gaussian_epsilon(math.sqrt(watched), _LIMIT * self.delta)

    def odometer(self, watched: float) -> float:
        """Return the ε of stretches of this total length at a moment chosen from their results.

        It is infinite beyond the whole length.
        """
        if watched <= 0:
            return 0.0
        at = bisect_left(self._marks, (watched, 0.0))
        return self._marks[at][1] if at < len(self._marks) else math.inf

    def charge(self, report: HiddenReport, *, after: Charges) -> Charge:
        """Return how a new round counts beside the rounds that were entered before it.

        It counts by itself if that is the smaller share of the limit, or if its stretch would take
        the motion beyond its end. Only promises decide, never how earlier rounds ended.
        """
        stretch = self._stretch(report)
        expensive = stretch * self.epsilon > report.law.epsilon * self.whole
        beyond = self._in_motion(after) + stretch > self.whole
        return Charge(report, by_itself=expensive or beyond)

    def spent(self, charges: Charges) -> float:
        """Bound the ε of rounds together at the limit's δ, at any moment; more never lowers it.

        The smallest of three sums counts. The plain sum of local budgets needs no δ at all. The
        limit itself holds as long as the whole motion is not used up. The odometer covers the
        rounds in the motion; the local budgets of rounds that count by themselves, and of rounds
        that broke their promise, are added.
        """
        plain = sum(charge.report.law.epsilon for charge in charges)
        added = sum(
            charge.report.law.epsilon for charge in charges if charge.by_itself or charge.broken
        )
        total = min(plain, self.odometer(self._in_motion(charges)) + added)
        if self._watched(charges) <= self.whole:
            total = min(total, self.epsilon)
        if len(charges) != 1 or charges[0].broken or plain > EPSILON:
            return total
        # The first round depends on no result, and the moment after it has its own share of δ.
        first = charges[0].report
        total = min(total, _alone(first, _FIRST * self.delta))
        if total <= self.epsilon:
            return total
        # A single round may use up the whole limit; then no other can be added.
        return min(total, _alone(first, self.delta))

    def left(self, charges: Charges) -> float:
        """Return the ε that one more round may cost, roughly."""
        rest = self.fixed(max(0.0, self.whole - self._watched(charges)))
        return min(self.epsilon, max(0.0, self.epsilon - self.spent(charges), rest))

    def _in_motion(self, charges: Charges) -> float:
        """Return the length of the motion that the rounds take which do not count by themselves."""
        return sum(self._stretch(charge.report) for charge in charges if not charge.by_itself)

    def _watched(self, charges: Charges) -> float:
        """Return the length that all rounds would take, one that broke its promise by itself."""
        return sum(
            max(
                self._stretch(charge.report),
                self._stretch(charge.exposed) if charge.broken else 0.0,
            )
            for charge in charges
        )

    def _stretch(self, report: HiddenReport) -> float:
        return self.stretch(report.law, crowd=report.crowd, failing=report.failing)

    @cached_property
    def _marks(self) -> list[tuple[float, float]]:
        """List lengths up to the whole, each with the ε read between the previous mark and it."""
        target = _READ * self.delta / _MARKS
        lengths = [self.whole * _RATIO**k for k in reversed(range(_MARKS))]
        return [(length, _gaussian_epsilon(math.sqrt(length), target)) for length in lengths]


@lru_cache(maxsize=256)
def _alone(report: HiddenReport, delta: float) -> float:
    """Return the ε of one report at a δ that includes the chance of a failing crowd."""
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


@lru_cache(maxsize=1024)
def _least_stretch(budget: Budget, law: Law, crowd: int, failing: float) -> float:
    """Find the least μ whose Gaussian, with an unbounded loss at chance `unbounded`, is enough."""
    sizes, powers = _tests(law, crowd, budget.delta)
    powers = np.minimum(1.0, powers + failing)

    def enough(mu: float) -> bool:
        return _needed(sizes, powers, budget.unbounded(mu * mu)) <= mu

    bad, good = doubled(enough, most=1e3)
    return bisect(enough, good=good, bad=bad, close=1e-9) ** 2 if good < math.inf else math.inf


def _tests(law: Law, crowd: int, delta: float) -> tuple[Array, Array]:
    """Return the round's curve as a maximum of lines b - a e, each a test of size a and power b.

    The flat line of size 0 stands for the part beyond the curve's last point.
    """
    reach = max(1e-6, central(law, size=crowd, delta=_FAR * delta))
    single = losses(law, crowd=crowd, step=reach / _POINTS, reach=reach)
    mass = single.mass[1 - single.first :]
    loss = single.step * np.arange(1, mass.size + 1)
    sizes = np.cumsum((mass * np.exp(-loss))[::-1])
    powers = single.infinite + np.cumsum(mass[::-1])
    return np.append(0.0, sizes * (1 - _DOUBT)), np.append(single.infinite, powers * (1 + _DOUBT))


def _needed(sizes: Array, powers: Array, unbounded: float) -> float:
    """Return the μ whose Gaussian, with an unbounded loss at chance `unbounded`, has such tests."""
    if unbounded >= 1:
        return 0.0
    hard = powers > unbounded
    if not hard.any():
        return 0.0
    from scipy.special import ndtri  # noqa: PLC0415 - slow to load

    power = np.minimum(1.0, (powers[hard] - unbounded) / (1 - unbounded))
    size = np.minimum(1.0, sizes[hard] / (1 - unbounded))
    with np.errstate(invalid="ignore"):
        needed = np.where(power > size, ndtri(power) - ndtri(size), 0.0)
    return float(np.max(needed)) * (1 + 1e-9)
