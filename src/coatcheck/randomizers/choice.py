"""A mechanism with the way its reports are read, and what is expected of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from coatcheck.accounting.laws import AnyLdp, Law
from coatcheck.randomizers.contract import Decode, Randomizer, check_epsilon

Shape: TypeAlias = Callable[..., Randomizer]
"""Makes a mechanism of an `epsilon` and, if one is given, a `decode`."""
Budget: TypeAlias = Callable[[Callable[[float], Law]], float]
"""Returns the local ε that a shape may spend, given its law as a function of ε."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far people are from where they are read, in the unit of the domain.

    Attributes:
        mean: over people and over the noise; on categories the share of wrong labels.
        percentile_90: nine of ten people are read nearer than this.
        percentile_99: 99 of 100 are.
    """

    mean: float
    percentile_90: float
    percentile_99: float


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism and how its reports are read."""

    randomizer: Randomizer
    how: Decode

    @property
    def decode(self) -> Decode:
        """How its reports are read, by the name that terms use."""
        return self.how


@dataclass(frozen=True, kw_only=True)
class Choice(Candidate):
    """A candidate and what is expected of it.

    Attributes:
        error: what a goal makes small: under the prior if one was given, else for values uniform
            on the domain; not a number for several fields.
        report_free: the same for the best answer that needs no report; none if there is no such.
        under_prior: mean and percentiles if people are as the prior says; none without a prior.
        standard_error: of the error, if it was measured in trial rounds.
    """

    error: float
    report_free: float | None = None
    under_prior: Errors | None = None
    standard_error: float | None = None

    @property
    def worth_a_report(self) -> bool:
        """Whether asking for reports beats answering everybody the same without any."""
        return self.report_free is None or not self.error >= self.report_free

    @property
    def words(self) -> str:
        """Say what the error is, under which assumption, and what no report would give."""
        people = "values uniform on the domain"
        if self.under_prior is not None:
            people = "people as the prior says"
        told = f"mean error {self.error:.4g} for {people}"
        if self.under_prior is not None:
            told += (
                f" (90 % within {self.under_prior.percentile_90:.4g}, 99 % within "
                f"{self.under_prior.percentile_99:.4g})"
            )
        if self.report_free is None:
            return told
        told += f"; the best answer without any report has {self.report_free:.4g}"
        return told if self.worth_a_report else f"{told}: do not ask for reports at this ε"


def constant(epsilon: float) -> Budget:
    """Return the budget that gives every shape the same ε."""
    checked = check_epsilon(epsilon)
    return lambda _law: checked


def fit(shape: Shape, budget: Budget, how: Decode | None = None) -> Randomizer:
    """Return the mechanism of a shape with the ε that its budget gives it."""
    epsilon = budget(lambda x: shape(epsilon=x).law)
    return shape(epsilon=epsilon, decode=how) if how else shape(epsilon=epsilon)


def any_ldp(epsilon: float) -> Law:
    """Return the law of any mechanism of an ε."""
    return AnyLdp(epsilon=epsilon)


def by_error(choice: Choice) -> float:
    """Return what choices are sorted by."""
    return choice.error
