"""The search behind a plan: every mechanism at its best under one promise.

A smaller cap hides better in a crowd and so earns a larger local ε; which of the two wins is
decided by the mechanism's own law for every candidate, never by a formula for one of them alone.
Over many rounds the shape is searched for one round that costs about as much, and the local ε of
what was found is then calibrated for all of them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from coatcheck.accounting.amplification import (
    Guarantee,
    amplify,
    anonymous,
    any_ldp,
    calibrate,
    central,
)
from coatcheck.accounting.composition import calibrate_rounds, compose
from coatcheck.accounting.laws import Law, OwnCoin
from coatcheck.accounting.numerics import check_rounds, check_share
from coatcheck.accounting.privacy_filter import Budget
from coatcheck.domains import Domain
from coatcheck.errors import Misuse
from coatcheck.randomizers.choice import Choice, by_worth, enough_to_learn, goal_error
from coatcheck.randomizers.composed import FieldwiseResponse
from coatcheck.randomizers.contract import Goal
from coatcheck.randomizers.mechanism_search import ranked
from coatcheck.randomizers.prior import Prior

Sampling: TypeAlias = Literal["coins", "secret"]
Curves: TypeAlias = dict[str, list[tuple[float, float]]]

_CROWDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
_BUDGETS: Final = (0.2, 0.45, 1.0, 1.7, 3.0)


def usual_delta(sizes: Sequence[int]) -> float:
    """Return a power of ten that is at most one over a hundred times the largest crowd."""
    return float(10.0 ** -math.ceil(math.log10(100 * max(1, *sizes))))


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What is to be kept: ε and δ for each person, in a crowd of which some do not count.

    Attributes:
        epsilon: for all rounds together.
        delta: for all rounds together.
        crowd: the people of a round. With coins this is everybody who tosses one.
        corrupted: of these, how many help the server.
        exposed: of these, how many the answers give away.
        method: how to account for a single round.
        rounds: how many rounds, fixed in advance.
        rate: the chance with which a person reports in a round.
        sampling: how that comes about. `coins`: each person tosses a coin of their own, and sends
            silence as a message. `secret`: the crowd is drawn from a population of crowd/rate in
            which nobody is corrupted, and nobody but the sampler and the drawn learns who it is.
    """

    epsilon: float
    delta: float
    crowd: int
    corrupted: int = 0
    exposed: int = 0
    method: str = "mechanism"
    rounds: int = 1
    rate: float = 1.0
    sampling: Sampling = "coins"

    def __post_init__(self) -> None:
        check_rounds(self.rounds)
        check_share(self.rate, "the rate of reports")
        if self.sampling not in {"coins", "secret"}:
            raise Misuse(f"people report by coins or by a secret sample, not by {self.sampling!r}")
        if self.secret < 1 and self.corrupted:
            raise Misuse(
                "corrupted people know whether they were drawn, so a secret sample has none: "
                "plan with coins"
            )
        if not self.single and self.method != "mechanism":
            raise Misuse("many rounds are added up by the mechanism's own law only")

    @property
    def single(self) -> bool:
        """Whether this is about one round in which everybody reports."""
        return self.rounds == 1 and self.rate == 1

    @property
    def secret(self) -> float:
        """The share of the population that is drawn in secret."""
        return self.rate if self.sampling == "secret" else 1.0

    def tossed(self, law: Law) -> Law:
        """Give the law of a message, which may be silence."""
        if self.rate == 1 or self.sampling == "secret" or isinstance(law, OwnCoin):
            return law
        return OwnCoin(law=law, rate=self.rate)

    @cached_property
    def one(self) -> "Promise":
        """A promise for one round that costs about as much as one of these."""
        if self.single:
            return self
        law = self.tossed(any_ldp(self.budget(any_ldp)))
        epsilon = max(1e-6, central(law, size=self._hidden(), delta=self.delta))
        rate = 1.0 if self.sampling == "secret" else self.rate
        return replace(self, epsilon=epsilon, rounds=1, rate=rate)

    def budget(self, make: Callable[[float], Law]) -> float:
        """Find the largest local ε of a mechanism that keeps the promise."""

        def message(epsilon: float) -> Law:
            return self.tossed(make(epsilon))

        if self.rounds > 1 or self.secret < 1:
            return calibrate_rounds(
                message,
                epsilon=self.epsilon,
                crowd=self._hidden(),
                delta=self.delta,
                rounds=self.rounds,
                sampled=self.secret,
            )
        given = {**self._people(), "delta": self.delta, "method": self.method}
        return calibrate(message, epsilon=self.epsilon, **given).local_epsilon

    def kept_by(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> Guarantee:
        """Say what a law guarantees in one round, in this crowd or another, with more lost."""
        people = self._people(crowd, lost)
        return amplify(self.tossed(law), **people, delta=self.delta, method=self.method)

    def total(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> float:
        """Give the ε of all rounds together, in this crowd or another, with more people lost."""
        if self.single:
            return self.kept_by(law, crowd=crowd, lost=lost).epsilon
        return compose(
            self.tossed(law),
            crowd=self._hidden(crowd, lost),
            delta=self.delta,
            rounds=self.rounds,
            sampled=self.secret,
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a sum over rounds relies on, besides what each round does."""
        if self.single:
            return ()
        drawn = "nobody in the population is corrupted or learns who was drawn for a round"
        fixed = "the rounds, their mechanism and their least crowd are fixed in advance"
        return (fixed,) if self.secret == 1 else (fixed, drawn)

    def fitting(self, law: Law) -> int:
        """Count the rounds that a ledger with this limit takes, whatever their terms depend on."""
        limit = Budget(epsilon=self.epsilon, delta=self.delta)
        stretch = limit.stretch(self.tossed(law), crowd=self._hidden())
        plain = int(self.epsilon / law.epsilon) if law.epsilon > 0 else self.rounds
        return min(self.rounds, max(plain, int(limit.whole / stretch) if stretch else self.rounds))

    def _people(self, crowd: int | None = None, lost: int = 0) -> dict[str, Any]:
        gone = {"corrupted": self.corrupted, "exposed": self.exposed, "lost": lost}
        return {"crowd": crowd or self.crowd, **gone}

    def _hidden(self, crowd: int | None = None, lost: int = 0) -> int:
        return anonymous(**self._people(crowd, lost))


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
            "standard_error": self.standard_error,
            "errors": asdict(self.errors) if self.errors else None,
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
    A quick search over many rounds takes the local ε of a single one that costs about as much.
    """
    near = promise.one
    found = ranked(domain, budget=near.budget, goal=goal, exact=True, quick=quick, prior=prior)
    if near is not promise and not quick:
        found = sorted((_calibrated(promise, one, goal) for one in found), key=by_worth)
    if goal == "mean":
        found = [
            replace(choice, how="learned")
            if enough_to_learn(choice.randomizer, promise.crowd)
            else choice
            for choice in found
        ]
    return [designed(promise, choice) for choice in found]


def _calibrated(promise: Promise, choice: Choice, goal: Goal) -> Choice:
    """Give a shape the local ε that keeps the promise over all rounds."""
    made: Any = choice.randomizer
    several = isinstance(made, FieldwiseResponse)
    if not choice.worth_a_report:
        return choice

    def at(epsilon: float) -> Any:
        return made.at(epsilon) if several else replace(made, epsilon=epsilon)

    fitted = at(promise.budget(lambda epsilon: at(epsilon).law))
    if several:
        return replace(choice, randomizer=fitted)
    error = goal_error(fitted, goal, choice.how, prior=choice.prior)
    return replace(choice, randomizer=fitted, error=error)


def designed(promise: Promise, choice: Choice) -> Design:
    """Say what a choice guarantees under a promise."""
    guarantee = promise.kept_by(choice.randomizer.law)
    asked = {field.name: getattr(choice, field.name) for field in fields(choice)}
    return Design(**asked, guarantee=guarantee)


# -- how the error would change, for charts


def against_crowd(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Give each mechanism's least error for a tenth to ten times the crowd."""
    gone = promise.corrupted + promise.exposed
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


def priors_by_group(names: Sequence[str], prior: Any, goal: str) -> list[Prior | None]:
    """Give the prior of each group."""
    if isinstance(prior, Prior) or prior is None:
        return [prior] * len(names)
    if isinstance(prior, Mapping):
        if not set(prior) <= set(names) or not all(isinstance(p, Prior) for p in prior.values()):
            raise Misuse(f"priors are given by the names of groups: {', '.join(names)}")
        return [prior.get(name) for name in names]
    if goal != "task":
        raise Misuse("a prior is a Prior, such as Prior.from_points(places), or one per group")
    return [None] * len(names)
