"""Many rounds, and questions asked backwards: how many people, or which ε, an error takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from coatcheck.accounting.laws import Law
from coatcheck.accounting.limits import CROWD
from coatcheck.domains import Domain
from coatcheck.errors import Misuse
from coatcheck.planning.search import Promise, Sampling, designs
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

    @cache
    def log_error(log: float) -> float:
        made = promise(math.ceil(math.exp(log)))
        return math.log(_error(made, domain=domain, goal=goal, prior=prior, quick=True))

    least = promise(CROWD).corrupted + 2
    low, start, high = math.log(least), math.log(1_000), math.log(CROWD)
    found = _crossing(log_error, math.log(error), low=low, start=start, high=high)
    if found is None:
        raise Misuse(
            f"no crowd of up to {CROWD:,} people has an error of {error:g} at this ε: ask for more"
        )
    people = max(least, math.floor(math.exp(found)))
    while _error(promise(people), domain=domain, goal=goal, prior=prior) > error:
        people = math.ceil(people * (1 + _CLOSE))
    return people


def epsilon_for(
    error: float, promise: Promise, *, domain: Domain, goal: Goal, prior: Prior | None = None
) -> float:
    """Find the least ε, to three digits and rounded up, at which a crowd has this error."""

    @cache
    def log_error(log: float) -> float:
        made = replace(promise, epsilon=math.exp(log))
        return math.log(_error(made, domain=domain, goal=goal, prior=prior, quick=True))

    low, high = math.log(_LEAST), math.log(_MOST)
    found = _crossing(log_error, math.log(error), low=low, start=0.0, high=high)
    if found is None:
        raise Misuse(f"no ε up to {_MOST:g} makes the error as small as {error:g}: ask for more")
    epsilon = _rounded_up(math.exp(found))
    while _error(replace(promise, epsilon=epsilon), domain=domain, goal=goal, prior=prior) > error:
        epsilon = _rounded_up(epsilon * (1 + _CLOSE))
    return epsilon


def _error(promise: Promise, **search: Any) -> float:
    return designs(promise, **search)[0].error


def _crossing(
    falling: Callable[[float], float], target: float, *, low: float, start: float, high: float
) -> float | None:
    """Find about where a function falls to a target, from a guess on; none if it never does."""
    left = right = min(max(start, low), high)
    stride = _STRIDE
    if falling(left) <= target:
        while falling(left) <= target:
            if left == low:
                return low
            left, right, stride = max(low, left - stride), left, 2 * stride
    else:
        while falling(right) > target:
            if right == high:
                return None
            left, right, stride = right, min(high, right + stride), 2 * stride
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import, and seldom needed

    return float(brentq(lambda x: falling(x) - target, left, right, xtol=_CLOSE / 2, rtol=1e-6))


def _rounded_up(value: float) -> float:
    digit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / digit * (1 - 1e-12)) * digit:.3g}")
