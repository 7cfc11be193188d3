"""One mechanism with its decoder, and its predicted error: the result of a search.

`Choice` describes one mechanism and decoder; nothing here looks for a better one. The search is
`mechanism_search`, and `coatcheck.choose` is its first result. `errors_under` predicts how far
estimates are from the values, for people spread evenly or by a prior. `report_free` is the error
of the best answer that needs no report, one place for everybody: a mechanism that is not better is
not worth asking people for reports.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from coatcheck.accounting.laws import AnyLdp, Law
from coatcheck.domains import Ball, Box, Categories, Domain, Floats, Product
from coatcheck.entropy import seeded
from coatcheck.randomizers.composed import FieldwiseResponse
from coatcheck.randomizers.contract import Decode, Goal, Randomizer, check_epsilon
from coatcheck.randomizers.density import LEARNED, Cells, decode_batch, geometric_median, too_coarse
from coatcheck.randomizers.expected_error import evenly, extremes
from coatcheck.randomizers.prior import Prior

Shape: TypeAlias = Callable[..., Randomizer]
"""Builds a mechanism from an `epsilon` and, optionally, a `decode`."""
Budget: TypeAlias = Callable[[Callable[[float], Law]], float]
"""Returns the local ε that a shape may spend, given its law as a function of ε."""

AVERAGES: Final = ("mean", "squared", "median")
"""Goals that depend on where people are; the others are for the worst value."""

_FINE: Final = 2_304
_PEOPLE: Final = 20_000
_NOISE: Final = 0.003
_ENOUGH: Final = 200
_KNOWN: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The distances of estimates from the values, in the unit of the domain.

    Attributes:
        mean: over people and over the noise; on categories the share of wrong labels.
        squared: the root of the mean square.
        median: half of the estimates are nearer than this.
        percentile_90: 90 % of them are nearer than this.
        percentile_99: 99 % of them are nearer than this.
    """

    mean: float
    squared: float
    median: float
    percentile_90: float
    percentile_99: float


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism and its decoder."""

    randomizer: Randomizer
    how: Decode

    @property
    def decode(self) -> Decode:
        """Return the decoder, under the name that terms use."""
        return self.how

    @property
    def worth_a_report(self) -> bool:
        """Return whether a report says anything: not if every estimate is the same place."""
        return self.randomizer.epsilon_spent > 0


@dataclass(frozen=True, kw_only=True)
class Choice(Candidate):
    """A candidate and its predicted error.

    Attributes:
        error: what the goal minimises: the error for the worst value, for people spread as in
            the prior, or for values uniform on the domain; not a number for several fields.
        goal: the goal of the search.
        report_free: the error of the best answer that needs no report; None if there is none.
        prior: where people are assumed to be; None if everywhere alike.
        standard_error: of the error, if it was measured in trial rounds.
        crowd: how many reports the batch has by whose density they are decoded; None if each is
            decoded by itself, or by the prior.
    """

    error: float
    goal: str = "mean"
    report_free: float | None = None
    prior: Prior | None = field(default=None, compare=False, repr=False)
    standard_error: float | None = None
    crowd: int | None = None

    @cached_property
    def errors(self) -> Errors | None:
        """Return mean and percentiles, computed at the first use; None for several fields.

        None also for reports that are decoded by the density of their batch: it depends on where
        the people are.
        """
        if isinstance(self.randomizer.domain, Product) or self.crowd is not None:
            return None
        return errors_under(self.randomizer, self.how, self.prior)

    @property
    def people(self) -> str:
        """Return the people for whom the error is predicted, in words."""
        if self.goal == "task":
            return "a round of the task"
        if self.goal not in AVERAGES:
            return "the value with the largest error"
        if self.crowd is not None:
            return f"{self.crowd:,} people in made-up cities, whose batch shows where they live"
        has_prior = self.prior is not None and not self.prior.is_even
        return f"people spread as in the prior ({self.prior.source})" if has_prior else EVENLY  # type: ignore[union-attr] # it has one

    @property
    def words(self) -> str:
        """Return the error in words: how large, for whom, and what no report would give."""
        words = f"{_NAMES.get(self.goal, self.goal)} {self.error:.4g} for {self.people}"
        if not self.worth_a_report:
            return f"{words} with the same estimate for everybody: do not ask for reports at this ε"
        if self.errors is not None and not isinstance(self.randomizer.domain, Categories):
            people = "of them" if self.goal in AVERAGES else f"of {EVENLY}"
            words += (
                f"; 90 % {people} are within {self.errors.percentile_90:.4g} of their estimate, "
                f"99 % within {self.errors.percentile_99:.4g}"
            )
        if self.report_free is None:
            return words
        return f"{words}; the best answer without any report has {self.report_free:.4g}"


EVENLY: Final = "people spread evenly over the domain"
_NAMES: Final = {
    "mean": "mean error",
    "squared": "root mean squared error",
    "median": "median error",
    "worst": "mean error",
    "unbiased": "root mean squared error",
}


# -- budgets


def constant(epsilon: float) -> Budget:
    """Return the budget that gives every shape the same ε."""
    checked = check_epsilon(epsilon)
    return lambda _law: checked


def fit(shape: Shape, budget: Budget, how: Decode | None = None) -> Randomizer:
    """Return the mechanism of a shape with the ε that its budget gives it.

    A shape whose reports reveal nothing gets no ε from its budget, so it takes that of any law.
    """
    epsilon = budget(lambda x: shape(epsilon=x).law) or budget(any_ldp)
    return shape(epsilon=epsilon, decode=how) if how else shape(epsilon=epsilon)


def any_ldp(epsilon: float) -> Law:
    """Return the law that any ε-LDP mechanism has."""
    return AnyLdp(epsilon=epsilon)


def by_error(choice: Choice) -> float:
    """Return the error of a choice, by which a search sorts."""
    return choice.error


def by_worth(choice: Choice) -> float:
    """Return the error, less the noise of predictions for a choice that needs no reports.

    So a mechanism must be better by more than that noise to be worth asking for reports.
    """
    return choice.error * (1 if choice.worth_a_report else 1 - _NOISE)


# -- errors


def misses(domain: Domain, estimates: Any, values: Any) -> Floats:
    """Return how far each estimate is from its value, in the unit of the domain."""
    if isinstance(domain, Categories):
        return np.asarray(np.asarray(estimates) != np.asarray(values), dtype=np.float64)
    if isinstance(domain, Product):
        raise TypeError("each field has its own error; this is a bug in coatcheck")
    unit = domain.from_unit(np.ones((1, domain.dimension)))
    unit = unit - domain.from_unit(np.zeros((1, domain.dimension)))
    return np.asarray(np.linalg.norm((estimates - values) / unit * domain.scale, axis=1))


def crowd_of(domain: Domain, prior: Prior | None, size: int) -> Any:
    """Return values of simulated people, spread as in a prior or evenly."""
    if isinstance(domain, Box | Ball) and (prior is None or prior.is_even):
        return domain.from_unit(evenly(size, dimension=domain.dimension, p=domain.p, extra=1)[0])
    return (prior or Prior.even(domain)).draw(domain, size, seeded(0))


def errors_under(
    randomizer: Randomizer, how: Decode, prior: Prior | None = None, *, people: int = _PEOPLE
) -> Errors:
    """Return the errors for people spread as in a prior, or evenly, from a fixed draw of them.

    A learned decoder gets the prior as if it had learned it; a large batch comes close to that.
    """
    domain = randomizer.domain
    values = crowd_of(domain, prior, people)
    reports = randomizer.randomize(values, seeded(1), clamp=True)
    if how in LEARNED and prior is not None and not isinstance(domain, Product):
        places = decode_batch(
            randomizer, reports, mean=how == LEARNED[1], prior=prior, prior_is_exact=True
        ).places
        estimates = _in_units(domain, np.asarray(places))
    else:
        estimates = randomizer.estimate(reports, randomizer.plain_decode(how))
    errors = misses(domain, estimates, values)
    median, percentile_90, percentile_99 = np.quantile(errors, (0.5, 0.9, 0.99)).tolist()
    return Errors(
        mean=float(errors.mean()),
        squared=math.sqrt(float((errors * errors).mean())),
        median=median,
        percentile_90=percentile_90,
        percentile_99=percentile_99,
    )


def goal_error(
    randomizer: Randomizer,
    goal: Goal,
    how: Decode,
    *,
    prior: Prior | None = None,
    people: int = _PEOPLE,
) -> float:
    """Return the error that a goal minimises.

    mean: the expected distance; squared: the root of its mean square; median: the median distance;
    worst: the largest expected distance; unbiased: the root of the largest mean squared error.
    """
    if goal in AVERAGES and (prior is not None or goal == "median"):
        return float(getattr(errors_under(randomizer, how, prior, people=people), goal))
    if goal == "mean":
        return randomizer.expected_error(how)
    if goal == "squared":
        return math.sqrt(randomizer.expected_error(how, power=2))
    if goal == "worst":
        return randomizer.worst_error(how)
    return math.sqrt(randomizer.worst_error(how, power=2))


def one_place(domain: Box | Ball, goal: Goal, prior: Prior | None) -> Floats:
    """Return the best answer that is the same for everybody, (1, d) in the user's units."""
    if prior is None or prior.is_even or goal not in AVERAGES:
        return domain.from_unit(np.zeros((1, domain.dimension)))
    cells = Cells.of(domain, most=_FINE)
    density, places = prior.on(cells)[None], cells.places * domain.scale
    middle = density @ places if goal == "squared" else geometric_median(density, places)
    return domain.from_unit(middle / domain.scale)


def report_free(
    domain: Domain, *, goal: str = "mean", prior: Prior | None = None, people: int = _PEOPLE
) -> float | None:
    """Return the error of the best answer that is the same for everybody, without any report.

    That answer is the median or likeliest label of the prior, or the middle without a prior. None
    where there is no such answer: for unbiased estimates, for tasks and for several fields.
    """
    if isinstance(domain, Product) or goal not in {*AVERAGES, "worst"}:
        return None
    if isinstance(domain, Categories):
        even = 1 - 1 / len(domain.labels)
        if prior is None or prior.is_even or goal == "worst":
            return even
        return 1 - float(prior.on(Cells.of(domain, most=_FINE)).max())
    if goal == "worst":
        ends = extremes(domain.dimension, domain.p)
        return max(float(np.linalg.norm(place * domain.scale)) for place in ends)
    errors = misses(domain, one_place(domain, goal, prior), crowd_of(domain, prior, people))  # type: ignore[arg-type] # a goal
    if goal == "median":
        return float(np.median(errors))
    return float(errors.mean()) if goal == "mean" else math.sqrt(float((errors * errors).mean()))


def enough_to_learn(randomizer: Randomizer, people: int) -> bool:
    """Return whether a batch of this many reports is likely to show where people are.

    Two hundred reports are enough at a local ε of 3; below, information falls with its square.
    A grid with a few large cells shows too little, however large the crowd.
    """
    if isinstance(randomizer, FieldwiseResponse):
        return all(enough_to_learn(part, people) for part in randomizer.parts.values())
    if "learned" not in randomizer.decodes or isinstance(randomizer.domain, Categories):
        return False  # labels are decoded as reported, so that they can be counted
    return not too_coarse(randomizer) and people >= _ENOUGH * max(
        1.0, (_KNOWN / randomizer.epsilon) ** 2
    )


def _in_units(domain: Domain, places: Floats) -> Any:
    if isinstance(domain, Box | Ball):
        return domain.from_unit(places)
    return domain.values(places.astype(np.int64))
