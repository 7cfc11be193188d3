"""Repeated rounds, and the inverse questions: how many people, or which ε, does an error need?"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from coatcheck.accounting.laws import Law
from coatcheck.accounting.numerics import CROWD
from coatcheck.domains import Domain
from coatcheck.errors import Misuse
from coatcheck.planning.budget_search import Promise, Sampling, designs
from coatcheck.randomizers.contract import Goal
from coatcheck.randomizers.prior import Prior

# The relative precision of an inverse answer, and the range of ε that it may have.
_CLOSE: Final = 0.005
_LEAST: Final = 0.01
_MOST: Final = 16.0
# The first step of the search from a guess, in logs; it doubles each time.
_STRIDE: Final = 1.2


@dataclass(frozen=True, kw_only=True)
class RepeatedRounds:
    """What repeated rounds require of each person; prints as sentences.

    Attributes:
        rounds: the number of rounds.
        rate: the chance with which a person reports in a round.
        sampling: by participation coins, or by a secret sample.
        skipped: the number of rounds in which a person does not report, on average.
        ledger_rounds: the number of rounds that a ledger with this limit accepts, even if terms
            depend on the results of earlier rounds.
        population: the number of people from which a round's crowd is drawn.
    """

    rounds: int
    rate: float
    sampling: Sampling
    skipped: float
    ledger_rounds: int
    population: int

    def __str__(self) -> str:
        reports = f"{self.rounds - self.skipped:,.4g}"
        accepts = f"accepts {self.ledger_rounds:,} of them, because later terms might change"
        if self.rate == 1:
            task = (
                "Each person may report in every round, and may skip any of them in which the crowd"
                " is large enough without them"
            )
        elif self.sampling == "coins":
            task = (
                f"Each person reports in about {reports} of them, decided by a separate coin, and"
                " sends silence in the others; a person who skips more than the coin says counts as"
                " lost"
            )
        else:
            task = (
                f"Each person is drawn for about {reports} of them, out of {self.population:,};"
                " a person who is drawn and skips the round counts as lost"
            )
            accepts = (
                f"accepts {self.ledger_rounds:,} reports, and cannot take the sample into account"
            )
        return f"{task}. A ledger with this limit {accepts}."


def repeated_rounds(promise: Promise, law: Law) -> RepeatedRounds:
    """Return what the rounds of a promise require of each person."""
    return RepeatedRounds(
        rounds=promise.rounds,
        rate=promise.rate,
        sampling=promise.sampling,
        skipped=promise.rounds * (1 - promise.rate),
        ledger_rounds=promise.ledger_rounds(law),
        population=round(promise.crowd / promise.sampled_share),
    )


def people_for(
    error: float,
    promise: Callable[[int], Promise],
    *,
    domain: Domain,
    goal: Goal,
    prior: Prior | None = None,
) -> int:
    """Find the least crowd that keeps a promise with at most this error.

    `promise` returns the promise for a crowd. The answer is at most a percent too large.
    """

    def predicted(crowd: float, *, quick: bool) -> float:
        promised = promise(_whole(crowd))
        return designs(promised, domain=domain, goal=goal, prior=prior, quick=quick)[0].error

    least = promise(CROWD).corrupted + 2
    crowd = _smallest(predicted, error, range_=(least, 1_000, CROWD), rounded=_whole)
    if crowd is None:
        raise Misuse(
            f"no crowd of up to {CROWD:,} people has an error of {error:g} at this ε; allow a"
            " larger error or a larger ε"
        )
    return int(crowd)


def epsilon_for(
    error: float, promise: Promise, *, domain: Domain, goal: Goal, prior: Prior | None = None
) -> float:
    """Find the least ε, to three digits and rounded up, at which a crowd has this error."""

    def predicted(epsilon: float, *, quick: bool) -> float:
        promised = replace(promise, epsilon=epsilon)
        return designs(promised, domain=domain, goal=goal, prior=prior, quick=quick)[0].error

    epsilon = _smallest(predicted, error, range_=(_LEAST, 1.0, _MOST), rounded=_rounded_up)
    if epsilon is None:
        raise Misuse(
            f"no ε up to {_MOST:g} makes the error as small as {error:g}; allow a larger error or"
            " a larger crowd"
        )
    return epsilon


def _smallest(
    predicted: Callable[..., float],
    error: float,
    *,
    range_: tuple[float, float, float],
    rounded: Callable[[float], float],
) -> float | None:
    """Find about the least value at which the error is small enough; None if there is none.

    *Assumes:* the error falls as the value grows. The range is the least value, a guess and the
    largest value. Quick predictions find the value, and full ones confirm it.
    """

    @cache
    def excess(log: float) -> float:
        return math.log(predicted(math.exp(log), quick=True) / error)

    low, left, high = map(math.log, range_)
    left = right = max(low, left)
    stride = _STRIDE
    while excess(left) <= 0 and left > low:
        left, right, stride = max(low, left - stride), left, 2 * stride
    while excess(right) > 0:
        if right == high:
            return None
        left, right, stride = right, min(high, right + stride), 2 * stride
    if excess(left) > 0:
        from scipy.optimize import brentq  # noqa: PLC0415 - slow to import, and seldom needed

        left = float(brentq(excess, left, right, xtol=_CLOSE / 2, rtol=1e-6))
    value = rounded(math.exp(left))
    while predicted(value, quick=False) > error:
        value = rounded(value * (1 + _CLOSE))
    return value


def _whole(value: float) -> int:
    return math.ceil(value * (1 - 1e-12))


def _rounded_up(value: float) -> float:
    digit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / digit * (1 - 1e-12)) * digit:.3g}")
