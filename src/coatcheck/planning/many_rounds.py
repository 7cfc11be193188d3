"""Many rounds, and questions asked backwards: how many people, or which ε, an error takes."""

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

# How close the answer to a backward question comes, as a share of it, and which ε may be it.
_CLOSE: Final = 0.005
_LEAST: Final = 0.01
_MOST: Final = 16.0
# How far one looks from a guess at first, in logs; then twice as far each time.
_STRIDE: Final = 1.2


@dataclass(frozen=True, kw_only=True)
class Season:
    """What many rounds ask of each person; prints as sentences.

    Attributes:
        rounds: how many there are.
        rate: the chance with which a person reports in one of them.
        sampling: by coins of their own, or by a secret sample.
        skipped: the rounds in which a person does not report, on average.
        fitting: the rounds that a ledger with this limit takes, even if terms depend on what
            earlier rounds gave.
        population: the people from whom a round's crowd comes.
    """

    rounds: int
    rate: float
    sampling: Sampling
    skipped: float
    fitting: int
    population: int

    def __str__(self) -> str:
        reports = f"{self.rounds - self.skipped:,.4g}"
        kept = f"takes {self.fitting:,} of them, because later terms might change"
        if self.rate == 1:
            told = (
                "Each person may report in every round, and may skip any of them in which the crowd"
                " is large enough without them"
            )
        elif self.sampling == "coins":
            told = (
                f"Each person reports in about {reports} of them, by a coin of their own, and sends"
                " silence in the others; who skips more than the coin says counts as lost"
            )
        else:
            told = (
                f"Each person is drawn for about {reports} of them, out of {self.population:,};"
                " who is drawn and skips the round counts as lost"
            )
            kept = f"takes {self.fitting:,} reports, and cannot know of the sample"
        return f"{told}. A ledger with this limit {kept}."


def season_of(promise: Promise, law: Law) -> Season:
    """Say what the rounds of a promise ask of each person."""
    drawn = promise.secret
    return Season(
        rounds=promise.rounds,
        rate=promise.rate,
        sampling=promise.sampling,
        skipped=promise.rounds * (1 - promise.rate),
        fitting=promise.fitting(law),
        population=round(promise.crowd / drawn),
    )


def people_for(
    error: float,
    promise: Callable[[int], Promise],
    *,
    domain: Domain,
    goal: Goal,
    prior: Prior | None = None,
) -> int:
    """Find how many people it takes to keep a promise with at most this error.

    `promise` gives it for a crowd. The answer is at most a percent too large.
    """

    def predicted(crowd: float, *, quick: bool) -> float:
        made = promise(_whole(crowd))
        return designs(made, domain=domain, goal=goal, prior=prior, quick=quick)[0].error

    least = promise(CROWD).corrupted + 2
    found = _smallest(predicted, error, range_=(least, 1_000, CROWD), rounded=_whole)
    if found is None:
        raise Misuse(
            f"no crowd of up to {CROWD:,} people has an error of {error:g} at this ε: ask for more"
        )
    return int(found)


def epsilon_for(
    error: float, promise: Promise, *, domain: Domain, goal: Goal, prior: Prior | None = None
) -> float:
    """Find the least ε, to three digits and rounded up, at which a crowd has this error."""

    def predicted(epsilon: float, *, quick: bool) -> float:
        made = replace(promise, epsilon=epsilon)
        return designs(made, domain=domain, goal=goal, prior=prior, quick=quick)[0].error

    found = _smallest(predicted, error, range_=(_LEAST, 1.0, _MOST), rounded=_rounded_up)
    if found is None:
        raise Misuse(f"no ε up to {_MOST:g} makes the error as small as {error:g}: ask for more")
    return found


def _smallest(
    predicted: Callable[..., float],
    error: float,
    *,
    range_: tuple[float, float, float],
    rounded: Callable[[float], float],
) -> float | None:
    """Find about where a falling error gets as small as asked; none if it never does.

    The range is the least value, a guess and the most. A quick prediction finds the place, and a
    whole one confirms it.
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
