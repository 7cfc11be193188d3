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
from typing import Any, Final

import numpy as np

from coatcheck.accounting.amplification import Guarantee
from coatcheck.domains import Ball, Box, Domain
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.planning.search import Design, Promise, Sampling, designs
from coatcheck.planning.seasons import Season, season_of
from coatcheck.planning.tuning import designs_for
from coatcheck.planning.words import Aim, described, told_error, told_promise
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import GridResponse
from coatcheck.randomizers.contract import check_goal
from coatcheck.tasks import Task, exposure

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


@dataclass(frozen=True, kw_only=True)
class Recommendation(GroupPlan):
    """The plan of a group with its reasons: every mechanism at its best, the recommended first.

    Attributes:
        group: as it was asked for.
        promise: what every design keeps.
        goal: what was made small.
        designs: the mechanisms, the least error first.
        fading: for a share of the least crowd that is lost besides, the ε that is left.
        blind: the error of always answering the middle of the domain; none on categories.
    """

    group: Group
    promise: Promise
    goal: Aim
    designs: tuple[Design, ...]
    fading: dict[float, float]
    blind: float | None

    @property
    def best(self) -> Design:
        """The recommended design."""
        return self.designs[0]

    @property
    def next_best(self) -> Design | None:
        """The design of another mechanism with the least error."""
        return self.designs[1] if len(self.designs) > 1 else None

    @property
    def expected(self) -> Guarantee:
        """What the recommended design guarantees if as many people come as expected."""
        return self.promise.kept_by(self.best.randomizer.law, crowd=self.group.expected)

    def without(self, mechanism: str) -> "Recommendation":
        """Give the plan that a mechanism is left out of."""
        rest = [design for design in self.designs if design.randomizer.name != mechanism]
        return _planned(self.name, self.group, self.promise, self.goal, rest)

    @property
    def total(self) -> float:
        """The ε of all rounds together at the least crowd."""
        return self.promise.total(self.best.randomizer.law)

    @property
    def season(self) -> Season | None:
        """What the rounds ask of each person, if there are several or not everybody reports."""
        return None if self.promise.single else season_of(self.promise, self.best.randomizer.law)

    @property
    def reason(self) -> str:
        """Why the recommended design is recommended."""
        other = self.next_best
        if other is None:
            return "the only exact mechanism that serves this goal on this domain"
        more = other.error / self.best.error - 1
        return f"least error; {other.randomizer.name} would have {more:.1%} more"

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
        if self.blind is not None and self.best.error >= _USELESS * self.blind:
            found.append(
                f"answering the middle of the domain for everybody has an error of "
                f"{self.blind:.3g}, hardly more than this; ask for a larger ε or a larger crowd"
            )
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
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

    def __str__(self) -> str:
        lines = [told_promise(self.epsilon, self.delta, self.rounds, self.goal)]
        for group in self.groups:
            lines += _told(group)
        return "\n".join(lines)


def plan(
    groups: Mapping[str, Group],
    *,
    epsilon: float,
    delta: float,
    goal: Aim = "mean",
    task: Task | None = None,
    method: str = "mechanism",
    prior: Sequence[Any] | None = None,
    entropy: Entropy | None = None,
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
        prior: for the goal task, values of each group that are no secret; places even over each
            box by default.
        entropy: for the goal task, the randomness of those rounds; a fixed seed by default.
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
    promises = [
        Promise(
            epsilon=epsilon,
            delta=delta,
            crowd=groups[name].crowd,
            corrupted=groups[name].corrupted,
            exposed=told,
            method=method,
            rounds=rounds,
            rate=rate,
            sampling=sampling,
        )
        for name, told in zip(names, _exposed(groups, task), strict=True)
    ]
    if goal == "task":
        found = _served(list(groups.values()), promises, task, prior, entropy)
    else:
        pairs = zip(groups.values(), promises, strict=True)
        found = [designs(promise, domain=group.domain, goal=goal) for group, promise in pairs]
    made = [
        _planned(name, groups[name], promise, goal, ranked)
        for name, promise, ranked in zip(names, promises, found, strict=True)
    ]
    return Plan(
        epsilon=epsilon, delta=delta, goal=goal, groups=tuple(made), task=task, rounds=rounds
    )


def _served(
    groups: Sequence[Group],
    promises: Sequence[Promise],
    task: Task | None,
    prior: Sequence[Any] | None,
    entropy: Entropy | None,
) -> list[list[Design]]:
    """Choose by the task's own score; that needs the task, and a prior to draw people from."""
    if task is None:
        raise Misuse("the goal task needs the task that is to be served")
    return designs_for(
        task,
        promises,
        domains=[group.domain for group in groups],
        prior=prior,
        entropy=entropy or seeded(0),
    )


def _exposed(groups: Mapping[str, Group], task: Task | None) -> list[int]:
    """Count whom the answers to all corrupted people give away, group by group."""
    if task is None:
        return [0] * len(groups)
    return list(
        exposure(
            task,
            sizes=[group.crowd for group in groups.values()],
            corrupted=[group.corrupted for group in groups.values()],
        )
    )


def _planned(
    name: str, group: Group, promise: Promise, goal: Aim, found: Sequence[Design]
) -> Recommendation:
    best = found[0]
    fading = {
        share: promise.total(best.randomizer.law, lost=math.ceil(share * group.crowd))
        for share in LOSSES
    }
    return Recommendation(
        name=name,
        randomizer=best.randomizer,
        decode=best.how,
        minimum=group.crowd,
        delta=promise.delta,
        corrupted=group.corrupted,
        note_size=group.note_size,
        group=group,
        promise=promise,
        goal=goal,
        designs=tuple(found),
        fading=fading,
        blind=_blind(group.domain, goal),
    )


def _blind(domain: Domain, goal: Aim) -> float | None:
    """Give the error of answering the middle of the domain, whatever the value is."""
    if not isinstance(domain, Box | Ball) or goal in {"unbiased", "task"}:
        return None
    if goal == "worst":
        reach = (
            np.ones(domain.dimension) if isinstance(domain, Box) else np.eye(1, domain.dimension)
        )
        return float(np.linalg.norm(reach * domain.scale))
    if isinstance(domain, Ball):
        return None
    return GridResponse(domain=domain, epsilon=1.0, cells=(1,) * domain.dimension).expected_error()


def _told(group: Recommendation) -> list[str]:
    best = group.best
    fading = ", ".join(f"{eps:.3g} with {share:.0%} lost" for share, eps in group.fading.items())
    error = told_error(best, group.goal)
    lines = [f"- {group.name}: {described(best)}; error {error} ({group.reason})."]
    honest = f"{group.promise.crowd:,} people, {best.guarantee.anonymous:,} honest and anonymous"
    season = group.season
    each = "" if season is None else " per round"
    lines.append(f"  At least {honest}: ε = {best.guarantee.epsilon:.4g}{each}; {fading}.")
    if season is not None:
        lines.append(f"  {season}")
    if group.group.expected is not None:
        lines.append(f"  With {group.group.expected:,} people: ε = {group.expected.epsilon:.4g}.")
    if best.guarantee.caveat:
        lines.append(f"  {best.guarantee.caveat}")
    return lines + [f"  Warning: {warning}." for warning in group.warnings]
