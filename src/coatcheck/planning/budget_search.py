"""The search, for each mechanism, for the best parameters that keep a promise.

A smaller cap hides better in a crowd and so allows a larger local ε. Which of the two wins is
decided by the mechanism's own law for every candidate, never by a formula for one of them alone.
For many rounds, the search finds the shape for a single round that costs about as much, and then
calibrates the local ε of that shape for all rounds.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from coatcheck.accounting.amplification import (
    USUAL_LOCAL,
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
    """The promise to keep: ε and δ for each person, in a crowd in which some people hide nobody.

    Attributes:
        epsilon: for all rounds together.
        delta: for all rounds together.
        crowd: the people of a round; with coins, everybody who tosses one.
        corrupted: of these, how many help the server.
        exposed: of these, how many the answers give away; with decoys, how many messages.
        method: how to account for a single round.
        decoys: uniform reports that each person sends besides.
        most_local: the largest local ε beside decoys.
        rounds: how many rounds, fixed in advance.
        rate: the chance with which a person reports in a round.
        sampling: who reports. `coins`: each person tosses a separate coin, and sends silence as a
            message. `secret`: the crowd is drawn from a population of crowd/rate in which nobody
            is corrupted, and only the sampler and the drawn people learn the sample.
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
    decoys: int = 0
    most_local: float = USUAL_LOCAL

    def __post_init__(self) -> None:
        check_rounds(self.rounds)
        if self.decoys and not self.is_single_round:
            raise Misuse("decoys are planned for a single round in which everybody reports")
        check_share(self.rate, "`rate`")
        if self.sampling not in {"coins", "secret"}:
            raise Misuse(f"`sampling` must be 'coins' or 'secret', not {self.sampling!r}")
        if self.sampled_share < 1 and self.corrupted:
            raise Misuse(
                "a secret sample must have no corrupted people, who would know whether they were "
                "drawn; plan with sampling='coins'"
            )
        if not self.is_single_round and self.method != "mechanism":
            raise Misuse(f"several rounds need method 'mechanism', not {self.method!r}")

    @property
    def is_single_round(self) -> bool:
        """Whether the promise is for a single round, in which everybody reports."""
        return self.rounds == 1 and self.rate == 1

    @property
    def sampled_share(self) -> float:
        """The share of the population that is drawn in secret."""
        return self.rate if self.sampling == "secret" else 1.0

    def message_law(self, law: Law) -> Law:
        """Return the law of a message: of a report, or of a report behind a participation coin."""
        if self.rate == 1 or self.sampling == "secret" or isinstance(law, OwnCoin):
            return law
        return OwnCoin(law=law, rate=self.rate)

    @cached_property
    def per_round(self) -> "Promise":
        """A promise for a single round that costs about as much as one of these rounds."""
        if self.is_single_round:
            return self
        law = self.message_law(any_ldp(self.budget(any_ldp)))
        epsilon = max(1e-6, central(law, size=self._hidden(), delta=self.delta))
        rate = 1.0 if self.sampling == "secret" else self.rate
        return replace(self, epsilon=epsilon, rounds=1, rate=rate)

    def budget(self, make: Callable[[float], Law]) -> float:
        """Find the largest local ε of a mechanism that keeps the promise."""

        def message(epsilon: float) -> Law:
            return self.message_law(make(epsilon))

        if self.rounds > 1 or self.sampled_share < 1:
            return calibrate_rounds(
                message,
                epsilon=self.epsilon,
                crowd=self._hidden(),
                delta=self.delta,
                rounds=self.rounds,
                sampled=self.sampled_share,
            )
        args = {**self._people(), "delta": self.delta, "method": self.method}
        if self.decoys:
            args["most_local"] = self.most_local
        return calibrate(message, epsilon=self.epsilon, **args).local_epsilon

    def guarantee_of(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> Guarantee:
        """Return a law's guarantee in one round, in this crowd or another, with people lost."""
        people = self._people(crowd, lost)
        return amplify(self.message_law(law), **people, delta=self.delta, method=self.method)

    def total(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> float:
        """Return the ε of all rounds together, in this crowd or another, with people lost."""
        if self.is_single_round:
            return self.guarantee_of(law, crowd=crowd, lost=lost).epsilon
        return compose(
            self.message_law(law),
            crowd=self._hidden(crowd, lost),
            delta=self.delta,
            rounds=self.rounds,
            sampled=self.sampled_share,
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the sum over rounds relies on, besides the assumptions of each round."""
        if self.is_single_round:
            return ()
        sample = "nobody in the population is corrupted or learns who was drawn for a round"
        fixed = "the rounds, their mechanism and their least crowd are fixed in advance"
        return (fixed,) if self.sampled_share == 1 else (fixed, sample)

    def ledger_rounds(self, law: Law) -> int:
        """Count the rounds that a ledger with this limit accepts, even if terms vary."""
        limit = Budget(epsilon=self.epsilon, delta=self.delta)
        stretch = limit.stretch(self.message_law(law), crowd=self._hidden())
        plain = int(self.epsilon / law.epsilon) if law.epsilon > 0 else self.rounds
        return min(self.rounds, max(plain, int(limit.whole / stretch) if stretch else self.rounds))

    def _people(self, crowd: int | None = None, lost: int = 0) -> dict[str, Any]:
        hide_nobody = {
            "corrupted": self.corrupted,
            "exposed": self.exposed,
            "lost": lost,
            "decoys": self.decoys,
        }
        return {"crowd": crowd or self.crowd, **hide_nobody}

    def _hidden(self, crowd: int | None = None, lost: int = 0) -> int:
        return anonymous(**self._people(crowd, lost))


@dataclass(frozen=True, kw_only=True)
class Design(Choice):
    """A mechanism at its best under a promise, with its guarantee in the crowd."""

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
    """Return every exact mechanism for the domain, each at its best, the least error first.

    For the goal `mean`, reports are decoded under the density learned from the batch, if the crowd
    is large enough. That never raises the error by more than chance, and errors are stated without
    it. A quick search over many rounds uses the local ε of a single round of about that cost.
    """
    single = promise.per_round
    choices = ranked(domain, budget=single.budget, goal=goal, exact=True, quick=quick, prior=prior)
    if single is not promise and not quick:
        choices = sorted((_calibrated(promise, choice, goal) for choice in choices), key=by_worth)
    if goal == "mean":
        choices = [
            replace(choice, how="learned")
            if enough_to_learn(choice.randomizer, promise.crowd)
            else choice
            for choice in choices
        ]
    return [designed(promise, choice) for choice in choices]


def _calibrated(promise: Promise, choice: Choice, goal: Goal) -> Choice:
    """Set the local ε of a shape so that it keeps the promise over all rounds."""
    randomizer: Any = choice.randomizer
    fieldwise = isinstance(randomizer, FieldwiseResponse)
    if not choice.worth_a_report:
        return choice

    def at(epsilon: float) -> Any:
        return randomizer.at(epsilon) if fieldwise else replace(randomizer, epsilon=epsilon)

    fitted = at(promise.budget(lambda epsilon: at(epsilon).law))
    if fieldwise:
        return replace(choice, randomizer=fitted)
    error = goal_error(fitted, goal, choice.how, prior=choice.prior)
    return replace(choice, randomizer=fitted, error=error)


def designed(promise: Promise, choice: Choice) -> Design:
    """Add to a choice its guarantee under a promise."""
    guarantee = promise.guarantee_of(choice.randomizer.law)
    attributes = {field.name: getattr(choice, field.name) for field in fields(choice)}
    return Design(**attributes, guarantee=guarantee)


# -- curves of the error, for charts


def against_crowd(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Return each mechanism's least error for a tenth to ten times the crowd."""
    fewest = promise.corrupted + promise.exposed + 2
    crowds = sorted({max(fewest, round(promise.crowd * factor)) for factor in _CROWDS})
    return _curves(((n, replace(promise, crowd=n)) for n in crowds), domain, goal)


def against_epsilon(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Return each mechanism's least error for a fifth to three times the promised ε."""
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
    """Return the prior of each group."""
    if isinstance(prior, Prior) or prior is None:
        return [prior] * len(names)
    if isinstance(prior, Mapping):
        if not set(prior) <= set(names):
            raise Misuse(f"`prior` must name groups of {names}, got {list(prior)}")
        if not all(isinstance(p, Prior) for p in prior.values()):
            raise Misuse("`prior` must map each group to a Prior")
        return [prior.get(name) for name in names]
    if goal != "task":
        raise Misuse(
            "`prior` must be a Prior, such as Prior.from_points(places), or one per group by name"
        )
    return [None] * len(names)
