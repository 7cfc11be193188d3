"""The search behind a plan: every mechanism at its best under one promise.

A smaller cap hides better in a crowd and so earns a larger local ε; which of the two wins is
decided by the mechanism's own law for every candidate, never by a formula for one of them alone.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

from coatcheck.accounting.amplification import Guarantee, amplify, calibrate
from coatcheck.accounting.laws import Law
from coatcheck.domains import Domain
from coatcheck.randomizers.choice import Choice
from coatcheck.randomizers.contract import Goal
from coatcheck.randomizers.informed import enough_to_learn
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.search import ranked

Curves: TypeAlias = dict[str, list[tuple[float, float]]]

_CROWDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
_BUDGETS: Final = (0.2, 0.45, 1.0, 1.7, 3.0)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What is to be kept: ε and δ for each person, in a crowd of which some do not count."""

    epsilon: float
    delta: float
    crowd: int
    corrupted: int = 0
    exposed: int = 0
    lost: int = 0
    method: str = "mechanism"

    def budget(self, make: Callable[[float], Law]) -> float:
        """Find the largest local ε of a mechanism that keeps the promise."""
        return calibrate(make, **asdict(self)).local_epsilon

    def kept_by(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> Guarantee:
        """Say what a law guarantees in this crowd, or another one, with more people lost."""
        given = asdict(replace(self, crowd=crowd or self.crowd, lost=self.lost + lost))
        del given["epsilon"]
        return amplify(law, **given)


@dataclass(frozen=True, kw_only=True)
class Design(Choice):
    """A mechanism at its best under a promise, and what the crowd makes of it."""

    guarantee: Guarantee

    def plain(self) -> dict[str, Any]:
        """Return the design as plain data."""
        return {
            "mechanism": self.randomizer.name,
            "local_epsilon": self.randomizer.epsilon,
            "decode": self.how,
            "error": self.error,
            "under_prior": asdict(self.under_prior) if self.under_prior else None,
            "parameters": self.randomizer.params(),
        }


def designs(
    promise: Promise,
    *,
    domain: Domain,
    goal: Goal,
    quick: bool = False,
    prior: Prior | None = None,
) -> list[Design]:
    """Give every exact mechanism that fits the domain, each at its best, the least error first.

    For the goal `mean` reports are read by the density that the batch shows, if the crowd is
    large enough to show one. That never costs more than chance, and errors are stated without it.
    """
    found = ranked(domain, budget=promise.budget, goal=goal, exact=True, quick=quick, prior=prior)
    if goal == "mean":
        found = [
            replace(choice, how="learned")
            if enough_to_learn(choice.randomizer, promise.crowd)
            else choice
            for choice in found
        ]
    return [designed(promise, choice) for choice in found]


def designed(promise: Promise, choice: Choice) -> Design:
    """Say what a choice guarantees under a promise."""
    guarantee = promise.kept_by(choice.randomizer.law)
    return Design(
        randomizer=choice.randomizer,
        how=choice.how,
        error=choice.error,
        report_free=choice.report_free,
        under_prior=choice.under_prior,
        guarantee=guarantee,
    )


# -- how the error would change, for charts


def against_crowd(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Give each mechanism's least error for a tenth to ten times the crowd."""
    gone = promise.corrupted + promise.exposed + promise.lost
    crowds = sorted({max(gone + 2, round(promise.crowd * factor)) for factor in _CROWDS})
    return _curves(((n, replace(promise, crowd=n)) for n in crowds), domain, goal)


def against_epsilon(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Give each mechanism's least error for a fifth to three times the promised ε."""
    budgets = [promise.epsilon * factor for factor in _BUDGETS]
    return _curves(((x, replace(promise, epsilon=x)) for x in budgets), domain, goal)


def _curves(points: Iterable[tuple[float, Promise]], domain: Domain, goal: Goal) -> Curves:
    lines: Curves = {}
    for x, promise in points:
        for design in designs(promise, domain=domain, goal=goal, quick=True):
            if math.isfinite(design.error):
                lines.setdefault(design.randomizer.name, []).append((x, design.error))
    return lines
