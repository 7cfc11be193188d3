"""From what people ask ("ε 1, 4,000 riders and 900 taxis") to mechanisms and an honest error.

A plan names, for each group, the mechanism, its local ε and its radius or grid, chosen together
under the mechanism's own law; what that guarantees at the smallest crowd that the shuffler will
release and at the expected one; how fast the guarantee fades as people are lost; and what the next
best mechanism would give. A round's terms are drafted from `Plan.groups`, and `simulate(plan,
values)` tries it out.

    >>> from coatcheck.domains import Box
    >>> found = plan({"riders": Group(Box((-1, -1), (1, 1)), crowd=10_000)}, epsilon=1.0,
    ...              delta=1e-6, goal="unbiased")
    >>> found["riders"].best.randomizer.name
    'minkowski'
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from coatcheck.accounting.amplification import Guarantee
from coatcheck.accounting.guarantee import html_table
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.planning.budget_search import Design, Promise, Sampling, designs, priors_by_group
from coatcheck.planning.many_rounds import Season, season_of
from coatcheck.planning.tuning import designs_for
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import CoinResponse, FieldwiseResponse, Goal, Prior, Randomizer
from coatcheck.randomizers.choice import AVERAGES, EVENLY
from coatcheck.randomizers.contract import check_goal
from coatcheck.randomizers.density import LEARNED
from coatcheck.tasks import Task, exposure

# HOUSE-DOC planning.words: 'What a plan says in words and units.'
Aim = Goal | Literal["task"]

GOALS: Final[dict[Aim, str]] = {
    "mean": "mean distance",
    "squared": "root mean squared distance",
    "median": "distance within which half of all people are read",
    "worst": "mean distance at the worst value",
    "unbiased": "root mean squared error at the worst value, unbiased",
    "task": "what a round of the task loses, tried on a prior",
}


def shape(made: Randomizer) -> str:
    """Name the radius or the grid of a mechanism, if it has one."""
    given = made.params()
    if "radius" in given:
        return f"radius {given['radius']:.4g}"
    if "points" in given:
        return f"{len(given['points'])} points"
    return f"cells {' x '.join(map(str, given['cells']))}" if "cells" in given else ""


def described(design: Design) -> str:
    """Name a mechanism with its parameters."""
    made = design.randomizer
    if not design.worth_a_report:
        return "no report, the same place for everybody"
    told = (f"{made.name} with local ε = {made.epsilon:.4g}", shape(made), f"read by {design.how}")
    return ", ".join(part for part in told if part)


def told_error(design: Design, goal: Aim = "mean") -> str:
    """Tell the error in the unit of the domain, or of the score; a product has one per field."""
    made = design.randomizer
    if goal == "task":
        return f"{design.error:.4g} ± {2 * (design.standard_error or 0):.2g}"
    if isinstance(made, FieldwiseResponse):
        parts = made.parts.items()
        return ", ".join(f"{name} {_size(part.expected_error(), part)}" for name, part in parts)
    return _size(design.error, made)


def told_assumption(design: Design) -> list[str]:
    """Say for whom the error holds, and within which distance most people are read."""
    if not design.worth_a_report:
        told = f"everybody is answered the same place, with this error for {design.people}"
        return [f"No report is worth asking for: {told}. Ask for a larger ε or a larger crowd."]
    found = []
    errors = design.errors if design.goal in GOALS and design.goal != "task" else None
    if errors is not None and not isinstance(design.randomizer.domain, Categories):
        near, far = (
            _size(x, design.randomizer) for x in (errors.percentile_90, errors.percentile_99)
        )
        whom = design.people if design.goal in AVERAGES else EVENLY
        found.append(f"For {whom}: 90 % are read within {near}, 99 % within {far}.")
    if design.how in LEARNED and design.prior is None:
        found.append(
            "Reports are read by where the batch shows people to be, so the error is less where "
            "people crowd together."
        )
    return found


def _size(error: float, made: Randomizer) -> str:
    if isinstance(made.domain, Categories):
        return f"{error:.1%} wrong labels"
    unit = made.domain.unit if isinstance(made.domain, Box | Ball) else ""
    return f"{error:,.0f} {unit}" if unit and error >= 100 else f"{error:.4g} {unit}".rstrip()


def told_unit(domain: Domain, goal: Aim) -> str:
    """Say what the error is for a goal, and in which unit."""
    if goal == "task":
        return "lost by a round"
    if isinstance(domain, Categories):
        return "share of wrong labels"
    unit = domain.unit if isinstance(domain, Box | Ball) else ""
    name = {
        "mean": "mean error",
        "squared": "rms error",
        "median": "median error",
        "worst": "worst mean error",
        "unbiased": "worst rms error",
    }
    return name[goal] + (f" ({unit})" if unit else "")


__all__ = ["Design", "Group", "GroupPlan", "Plan", "Promise", "Recommendation", "plan"]

LOSSES: Final = (0.01, 0.05, 0.1, 0.2)
# Far from saturation ε grows by half a percent when one percent of the crowd is lost.
_FRAGILE: Final = 0.02
_USELESS: Final = 0.99  # of the error of a constant answer


@dataclass(frozen=True)
class Group:
    """A kind of people with a common domain, as an organizer asks for a plan.

    Attributes:
        domain: where their values live.
        crowd: the least number of them without whom nothing is released.
        expected: how many are likely to come; the least number if it is not known.
        corrupted: how many of them may work for the server.
        note_size: bytes of the note that travels beside a report, unrandomized.
    """

    domain: Domain
    crowd: int
    expected: int | None = None
    corrupted: int = 0
    note_size: int = 0

    def __post_init__(self) -> None:
        if self.expected is not None and self.expected < self.crowd:
            raise Misuse(
                f"{self.expected} people are expected but at least {self.crowd} are needed; "
                "lower the crowd, or no round will ever be released"
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class Recommendation(GroupPlan):
    """The plan of a group with its reasons: every mechanism at its best, the recommended first.

    Attributes:
        group: as it was asked for.
        promise: what every design keeps.
        goal: what was made small.
        designs: the mechanisms, the least error first.
        prior: what the plan knows of where people are; none if they are thought to be even.
    """

    group: Group
    promise: Promise
    goal: Aim
    designs: tuple[Design, ...]
    prior: Prior | None = None

    def __repr__(self) -> str:
        return f"Recommendation({self.name}: {described(self.best)})"

    @property
    def best(self) -> Design:
        """The recommended design."""
        return self.designs[0]

    @property
    def expected(self) -> Guarantee:
        """What the recommended design guarantees if as many people come as expected."""
        return self.promise.kept_by(self.best.randomizer.law, crowd=self.group.expected)

    def without(self, mechanism: str) -> "Recommendation":
        """Give the plan that a mechanism is left out of."""
        rest = [design for design in self.designs if design.randomizer.name != mechanism]
        return _planned(self.name, self.group, self.promise, self.goal, rest, prior=self.prior)

    @cached_property
    def total(self) -> float:
        """The ε of all rounds together at the least crowd."""
        return self.promise.total(self.best.randomizer.law)

    @cached_property
    def fading(self) -> dict[float, float]:
        """For a share of the least crowd that is lost besides, the ε of all rounds together."""
        law, crowd = self.best.randomizer.law, self.minimum
        return {n: self.promise.total(law, lost=math.ceil(n * crowd)) for n in LOSSES}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise relies on, one clause each."""
        return self.best.guarantee.assumptions + self.promise.assumptions

    @cached_property
    def season(self) -> Season | None:
        """What the rounds ask of each person, if there are several or not everybody reports."""
        return None if self.promise.single else season_of(self.promise, self.best.randomizer.law)

    @property
    def reason(self) -> str:
        """Why the recommended design is recommended."""
        if len(self.designs) == 1:
            return "the only exact mechanism that serves this goal on this domain"
        other = self.designs[1]
        more = other.error / self.best.error - 1
        return f"least error; {other.randomizer.name} would have {more:.1%} more"

    @property
    def sentences(self) -> list[str]:
        """Whom the error is for, what the recommended design guarantees, and what to beware of."""
        best = self.best.guarantee
        lost = self.fading.items()
        fading = ", ".join(f"{left:.4g} with {share:.0%} of them lost" for share, left in lost)
        honest = f"{best.crowd:,} people, {best.anonymous:,} honest and anonymous"
        told = told_assumption(self.best)
        season = self.season
        if season is None:
            told.append(f"At least {honest}: ε = {best.epsilon:.4g}; {fading}.")
        else:
            told.append(f"At least {honest}: ε = {best.epsilon:.4g} per round.")
            together = f"All {season.rounds:,} rounds together: ε = {self.total:.4g}; {fading}."
            told += [together, str(season)]
        told.append(f"Assumes: {'; '.join(self.assumptions)}.")
        if self.group.expected is not None:
            told.append(f"With {self.group.expected:,} people: ε = {self.expected.epsilon:.4g}.")
        if best.caveat:
            told.append(best.caveat)
        return told + [f"Warning: {warning}." for warning in self.warnings]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What somebody who signs this plan should know."""
        found = []
        if self.fading[LOSSES[0]] > (1 + _FRAGILE) * self.promise.epsilon:
            found.append(
                f"close to saturation: with 1 % of the crowd lost ε is {self.fading[0.01]:.3g} "
                f"instead of {self.promise.epsilon:.3g}; ask for a smaller ε or a larger crowd"
            )
        if self.best.randomizer.epsilon < 1.001 * self.promise.epsilon / self.promise.rounds:
            found.append("the crowd is too small to help: the local ε is the promised one")
        error, free = self.best.error, self.best.report_free
        if self.best.worth_a_report and free and error >= _USELESS * free:
            where = "the middle of the domain" if self.prior is None else "the median of the prior"
            found.append(
                f"answering {where} for everybody, without any report, has an error of "
                f"{free:.3g}, hardly more than this; ask for a larger ε or a larger crowd"
            )
        return tuple(found)


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A plan for all groups of a round; prints as a paragraph, turns into terms."""

    epsilon: float
    delta: float
    goal: Aim
    groups: tuple[Recommendation, ...]
    task: Task | None = None
    rounds: int = 1

    def __iter__(self) -> Iterator[Recommendation]:
        return iter(self.groups)

    def __getitem__(self, name: str) -> Recommendation:
        """Give the plan of a group."""
        for group in self.groups:
            if group.name == name:
                return group
        raise Misuse(f"the plan has no group {name!r}: {', '.join(g.name for g in self.groups)}")

    def __repr__(self) -> str:
        people = ", ".join(f"{group.minimum:,} {group.name}" for group in self.groups)
        return f"Plan(ε = {self.epsilon:g}, δ = {self.delta:g}, {people})"

    def _repr_html_(self) -> str:
        head = ("group", "at least", "mechanism", "error")
        rows = [
            (g.name, f"{g.minimum:,}", described(g.best), told_error(g.best, g.goal))
            for g in self.groups
        ]
        return html_table(self.headline.rstrip(":"), head, rows, note=str(self))

    def __str__(self) -> str:
        lines = [self.headline]
        for group in self.groups:
            best, error = described(group.best), told_error(group.best, group.goal)
            lines.append(f"- {group.name}: {best}; error {error} ({group.reason}).")
            lines += [f"  {sentence}" for sentence in group.sentences]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """What is promised, and what the plan makes small."""
        over = f" over {self.rounds:,} rounds together" if self.rounds > 1 else ""
        return f"To keep ε = {self.epsilon:g} at δ = {self.delta:.3g}{over} ({GOALS[self.goal]}):"


def plan(
    groups: Mapping[str, Group],
    *,
    epsilon: float,
    delta: float,
    goal: Aim = "mean",
    task: Task | None = None,
    method: str = "mechanism",
    prior: Prior | Mapping[str, Prior] | Sequence[Any] | None = None,
    entropy: Entropy | int = 0,
    rounds: int = 1,
    rate: float = 1.0,
    sampling: Sampling = "coins",
) -> Plan:
    """Choose mechanism, local ε and radius or grid together, for each group of a round.

    *Guarantee:* with the recommended designs every group keeps (ε, δ) at its least crowd, over all
    rounds together, if they are fixed in advance.

    Args:
        groups: who takes part; with a task, in the order of its groups.
        epsilon: the promise to everybody.
        delta: the chance that it may fail, fixed in advance.
        goal: mean | worst | unbiased, what the error is to be small in; or task, which runs
            rounds of the task on a prior and chooses by the task's own score.
        task: what will be computed, for the people whom answers to the corrupted give away.
        method: how to account; the mechanism's own law by default.
        prior: what is publicly known of where people are: one for all groups, or one for each by
            its name. For the goal task it may also be values of each group that are no secret.
            People are thought to be spread evenly over each domain by default.
        entropy: for the goal task, the randomness of those rounds: a source, or a seed.
        rounds: how many rounds the promise is for, each with the same people and mechanism.
        rate: the chance with which each person reports in a round.
        sampling: coins, which each person tosses and the batch includes their silence; or secret,
            a crowd drawn from a population of crowd/rate in which nobody is corrupted.
    """
    if goal != "task":
        check_goal(goal)
    elif (rounds, rate) != (1, 1.0):
        raise Misuse("the goal task plans one round: choose mean, worst or unbiased for many")
    if not groups:
        raise Misuse("a plan needs at least one group")
    names = list(groups)
    if task is not None and names != list(task.groups):
        raise Misuse(f"the task has the groups {list(task.groups)}, the plan {names}")
    asked = list(groups.values())
    domains = [group.domain for group in asked]
    exposed: Sequence[int] = [0] * len(asked)
    if task is not None:
        sizes, corrupted = [group.crowd for group in asked], [group.corrupted for group in asked]
        exposed = exposure(task, sizes=sizes, corrupted=corrupted)
    promises = [
        Promise(
            epsilon=epsilon,
            delta=delta,
            crowd=group.crowd,
            corrupted=group.corrupted,
            exposed=told,
            method=method,
            rounds=rounds,
            rate=rate,
            sampling=sampling,
        )
        for group, told in zip(asked, exposed, strict=True)
    ]
    known = priors_by_group(names, prior, goal)
    if goal != "task":
        found = [
            designs(promise, domain=domain, goal=goal, prior=own)
            for domain, promise, own in zip(domains, promises, known, strict=True)
        ]
    elif task is None:
        raise Misuse("the goal task needs the task that is to be served")
    else:
        people: Any = known if isinstance(prior, Prior | Mapping) else prior
        drawn = source(entropy)
        found = designs_for(task, promises, domains=domains, prior=people, entropy=drawn)
    made = [
        _planned(name, group, promise, goal, ranked, prior=own)
        for name, group, promise, ranked, own in zip(
            names, asked, promises, found, known, strict=True
        )
    ]
    return Plan(
        epsilon=epsilon, delta=delta, goal=goal, groups=tuple(made), task=task, rounds=rounds
    )


def _planned(
    name: str,
    group: Group,
    promise: Promise,
    goal: Aim,
    found: Sequence[Design],
    *,
    prior: Prior | None = None,
) -> Recommendation:
    best = found[0]
    made = best.randomizer
    if promise.rate < promise.secret and best.worth_a_report:
        made = CoinResponse(part=made, rate=promise.rate)
    return Recommendation(
        name=name,
        randomizer=made,
        decode=best.how,
        minimum=group.crowd,
        delta=promise.delta,
        corrupted=group.corrupted,
        note_size=group.note_size,
        group=group,
        promise=promise,
        goal=goal,
        designs=tuple(found),
        prior=prior,
    )
