"""`plan`: from ε, δ and crowds to mechanisms with predicted errors, in words and units.

1. `plan` turns each `Group` into a `Promise`: ε and δ in a crowd, less the corrupted people and
   those whom answers to the corrupted expose.
2. For each promise `budget_search.designs` finds every mechanism at its best: local ε and radius or
   grid together, under the mechanism's own law. For the goal `task`, `tuning.designs_for` ranks
   them by trial rounds of the task instead; if people then find out by letter who is near,
   `settled_rounds.choose_settled` does, and decides about decoys.
3. The first design becomes a `Recommendation`: what it guarantees at the smallest crowd that the
   shuffler releases and at the expected one, how much people who are lost weaken it, and what the
   next best mechanism would give.
4. The `Plan` holds one recommendation per group. Terms are drafted from `Plan.groups`, and
   `simulate(plan, values)` tries it out.

    >>> from coatcheck.domains import Box
    >>> planned = plan({"riders": Group(Box((-1, -1), (1, 1)), crowd=10_000)}, epsilon=1.0,
    ...                delta=1e-6, goal="unbiased")
    >>> planned["riders"].best.randomizer.name
    'minkowski'
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

from coatcheck.accounting.amplification import USUAL_LOCAL, Guarantee
from coatcheck.accounting.guarantee import html_table
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.planning.budget_search import Design, Promise, Sampling, designs, priors_by_group
from coatcheck.planning.many_rounds import RepeatedRounds, repeated_rounds
from coatcheck.planning.settled_rounds import Tried, choose_settled, has_letters
from coatcheck.planning.tuning import designs_for
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import CoinResponse, FieldwiseResponse, Goal, Prior, Randomizer
from coatcheck.randomizers.choice import AVERAGES, EVENLY
from coatcheck.randomizers.contract import check_goal
from coatcheck.randomizers.density import LEARNED
from coatcheck.tasks import Task, exposure

__all__ = ["Design", "Group", "GroupPlan", "Plan", "Promise", "Recommendation", "plan"]

Aim = Goal | Literal["task"]

GOALS: Final[dict[Aim, str]] = {
    "mean": "mean distance",
    "squared": "root mean squared distance",
    "median": "distance within which half of all people are decoded",
    "worst": "mean distance at the worst value",
    "unbiased": "root mean squared error at the worst value, unbiased",
    "task": "loss of a round of the task, tried on a prior",
}

SERVED: Final = (
    "served: of the smaller group, who settle with somebody near; or of the near people, up to "
    "five for everybody, who are found"
)
LOSSES: Final = (0.01, 0.05, 0.1, 0.2)
# Far from saturation ε grows by half a percent when one percent of the crowd is lost.
_FRAGILE: Final = 0.02
_USELESS: Final = 0.99  # of the error of a constant answer


@dataclass(frozen=True)
class Group:
    """A kind of people with a common domain, as an organizer describes it to `plan`.

    Attributes:
        domain: the domain of their values.
        crowd: the least number of them with which the shuffler releases a batch.
        expected: how many are likely to come; `crowd` if unknown.
        corrupted: how many of them may work for the server.
        note_size: bytes of the note that travels with a report, not randomized.
    """

    domain: Domain
    crowd: int
    expected: int | None = None
    corrupted: int = 0
    note_size: int = 0

    def __post_init__(self) -> None:
        if self.expected is not None and self.expected < self.crowd:
            raise Misuse(
                f"`expected` must be at least `crowd`, got {self.expected} and {self.crowd}; "
                "lower the crowd, or no round will ever be released"
            )


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
    decoys: int | None = None,
    most_local: float = USUAL_LOCAL,
) -> "Plan":
    """Choose mechanism, local ε and radius or grid together, for each group of a round.

    *Guarantee:* with the recommended designs every group keeps (ε, δ) at its least crowd, over all
    rounds together, if they are fixed in advance.

    Args:
        groups: the groups by name; with a task, in the order of its groups.
        epsilon: the ε promised to each person.
        delta: the chance with which the promise may fail, fixed in advance.
        goal: mean | worst | unbiased, the error to minimize; or task, which runs rounds of the
            task on a prior and chooses by the task's own score.
        task: the task of the round; it decides how many people the answers expose.
        method: how to account; the mechanism's own law by default.
        prior: public knowledge of where people are: one for all groups, or one for each by its
            name. For the goal task it may also be public values of each group. By default people
            are assumed to be spread evenly over each domain.
        entropy: for the goal task, the randomness of those rounds: a source, or a seed.
        rounds: how many rounds the promise is for, each with the same people and mechanism.
        rate: the chance with which each person reports in a round.
        sampling: coins, if each person tosses one and silence is part of the batch; or secret, if
            the crowd is drawn from a population of crowd/rate in which nobody is corrupted.
        decoys: for the goal task, if people settle by letter: how many uniform reports each of them
            sends besides; by default as many as serve people clearly better, which may be none.
        most_local: the largest local ε beside decoys, at most 12: all that holds if the shufflers
            tell who sent what.
    """
    if goal != "task":
        check_goal(goal)
    elif (rounds, rate) != (1, 1.0):
        raise Misuse(
            "goal 'task' plans a single round; for several, choose mean, worst or unbiased"
        )
    if not groups:
        raise Misuse("`groups` must name at least one group")
    names = list(groups)
    if task is not None and names != list(task.groups):
        raise Misuse(f"`groups` must name the groups of the task, {list(task.groups)}, not {names}")
    members = list(groups.values())
    domains = [group.domain for group in members]
    exposures: Sequence[int] = [0] * len(members)
    if task is not None:
        sizes, corrupted = zip(*((group.crowd, group.corrupted) for group in members), strict=True)
        exposures = exposure(task, sizes=sizes, corrupted=corrupted)
    promises = [
        Promise(
            epsilon=epsilon,
            delta=delta,
            crowd=group.crowd,
            corrupted=group.corrupted,
            exposed=exposed,
            method=method,
            rounds=rounds,
            rate=rate,
            sampling=sampling,
            most_local=most_local,
        )
        for group, exposed in zip(members, exposures, strict=True)
    ]
    priors = priors_by_group(names, prior, goal)
    tried: Sequence[Tried] = ()
    if decoys and not (goal == "task" and task is not None and has_letters(task)):
        raise Misuse("`decoys` are for goal 'task' and a task whose people settle by letter")
    if goal != "task":
        rankings = [
            designs(promise, domain=domain, goal=goal, prior=own)
            for domain, promise, own in zip(domains, promises, priors, strict=True)
        ]
    elif task is None:
        raise Misuse("goal 'task' needs `task`, the task of the round")
    else:
        people: Any = priors if isinstance(prior, Prior | Mapping) else prior
        if any(group.note_size for group in members):
            decoys = 0  # a note would show which reports are decoys
        promises, rankings, tried = _by_trial_rounds(
            task, promises, domains=domains, prior=people, entropy=source(entropy), decoys=decoys
        )
    recommendations = tuple(
        _recommended(name, group, promise, goal, ranked, prior=own)
        for name, group, promise, ranked, own in zip(
            names, members, promises, rankings, priors, strict=True
        )
    )
    return Plan(
        epsilon=epsilon,
        delta=delta,
        goal=goal,
        groups=recommendations,
        task=task,
        rounds=rounds,
        tried=tuple(tried),
    )


def _by_trial_rounds(
    task: Task,
    promises: list[Promise],
    *,
    domains: Sequence[Domain],
    prior: Any,
    entropy: Entropy,
    decoys: int | None,
) -> tuple[list[Promise], list[list[Design]], Sequence[Tried]]:
    """Choose designs by trial rounds: with letters, if people settle by letter in boxes."""
    if not (has_letters(task) and all(isinstance(domain, Box) for domain in domains)):
        ranked = designs_for(task, promises, domains=domains, prior=prior, entropy=entropy)
        return promises, ranked, ()
    tried, ranked = choose_settled(
        task, promises, domains=domains, prior=prior, entropy=entropy, decoys=decoys
    )
    decided = [
        replace(promise, decoys=tried[0].decoys, exposed=best.guarantee.exposed)
        for promise, (best,) in zip(promises, ranked, strict=True)
    ]
    return decided, ranked, tried


def _recommended(
    name: str,
    group: Group,
    promise: Promise,
    goal: Aim,
    ranked: Sequence[Design],
    *,
    prior: Prior | None = None,
) -> "Recommendation":
    """Recommend the first design, behind a participation coin if people toss one."""
    best = ranked[0]
    randomizer = best.randomizer
    if promise.rate < promise.sampled_share and best.worth_a_report:
        randomizer = CoinResponse(part=randomizer, rate=promise.rate)
    return Recommendation(
        name=name,
        randomizer=randomizer,
        decode=best.how,
        minimum=group.crowd,
        delta=promise.delta,
        corrupted=group.corrupted,
        note_size=group.note_size,
        decoys=promise.decoys,
        group=group,
        promise=promise,
        goal=goal,
        designs=tuple(ranked),
        prior=prior,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Recommendation(GroupPlan):
    """The plan of a group with its reasons: every mechanism at its best, the recommended first.

    Attributes:
        group: the group that it is for.
        promise: the promise that every design keeps.
        goal: the minimized error.
        designs: the mechanisms, the least error first.
        prior: public knowledge of where people are; None if they are assumed to be spread evenly.
    """

    group: Group
    promise: Promise
    goal: Aim
    designs: tuple[Design, ...]
    prior: Prior | None = None

    def __repr__(self) -> str:
        return f"Recommendation({self.name}: {design_text(self.best)})"

    @property
    def best(self) -> Design:
        """The recommended design."""
        return self.designs[0]

    @property
    def expected(self) -> Guarantee:
        """The guarantee of the recommended design if as many people come as expected."""
        return self.promise.guarantee_of(self.best.randomizer.law, crowd=self.group.expected)

    def without(self, mechanism: str) -> "Recommendation":
        """Return the plan without a mechanism."""
        rest = [design for design in self.designs if design.randomizer.name != mechanism]
        return _recommended(self.name, self.group, self.promise, self.goal, rest, prior=self.prior)

    @cached_property
    def total(self) -> float:
        """The ε of all rounds together at the least crowd."""
        return self.promise.total(self.best.randomizer.law)

    @cached_property
    def fading(self) -> dict[float, float]:
        """The ε of all rounds together, for each share of the least crowd that is lost."""
        law, crowd = self.best.randomizer.law, self.minimum
        return {n: self.promise.total(law, lost=math.ceil(n * crowd)) for n in LOSSES}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise relies on, one clause each."""
        return self.best.guarantee.assumptions + self.promise.assumptions

    @cached_property
    def repeated(self) -> RepeatedRounds | None:
        """What the rounds require of each person, if there are several or not everybody reports."""
        return (
            None
            if self.promise.is_single_round
            else repeated_rounds(self.promise, self.best.randomizer.law)
        )

    @property
    def reason(self) -> str:
        """The reason for the recommendation."""
        if len(self.designs) == 1 and self.goal == "task":
            return "served most people in trial rounds, or as many with less"
        if len(self.designs) == 1:
            return "the only exact mechanism for this goal on this domain"
        other = self.designs[1]
        more = other.error / self.best.error - 1
        return f"least error; {other.randomizer.name} would have {more:.1%} more"

    @property
    def sentences(self) -> list[str]:
        """The people that the error is for, the guarantee of the design, and its warnings."""
        best = self.best.guarantee
        losses = self.fading.items()
        fading = ", ".join(f"{eps:.4g} with {share:.0%} of them lost" for share, eps in losses)
        honest = f"{best.crowd:,} people, {best.anonymous:,} honest and anonymous"
        sentences = error_sentences(self.best)
        repeated = self.repeated
        if repeated is None:
            sentences.append(f"At least {honest}: ε = {best.epsilon:.4g}; {fading}.")
        else:
            sentences.append(f"At least {honest}: ε = {best.epsilon:.4g} per round.")
            together = f"All {repeated.rounds:,} rounds together: ε = {self.total:.4g}; {fading}."
            sentences += [together, str(repeated)]
        sentences.append(f"Assumes: {'; '.join(self.assumptions)}.")
        if self.group.expected is not None:
            sentences.append(
                f"With {self.group.expected:,} people: ε = {self.expected.epsilon:.4g}."
            )
        if best.caveat:
            sentences.append(best.caveat)
        return sentences + [f"Warning: {warning}." for warning in self.warnings]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The risks that an organizer should know before signing terms of this plan."""
        warnings = []
        if self.fading[LOSSES[0]] > (1 + _FRAGILE) * self.promise.epsilon:
            warnings.append(
                f"close to saturation: with 1 % of the crowd lost ε is {self.fading[0.01]:.3g} "
                f"instead of {self.promise.epsilon:.3g}; ask for a smaller ε or a larger crowd"
            )
        if self.best.randomizer.epsilon < 1.001 * self.promise.epsilon / self.promise.rounds:
            warnings.append("the crowd is too small to help: the local ε is the promised one")
        error, free = self.best.error, self.best.report_free
        if self.best.worth_a_report and free and error >= _USELESS * free:
            where = "the middle of the domain" if self.prior is None else "the median of the prior"
            warnings.append(
                f"answering {where} for everybody, without any report, has an error of "
                f"{free:.3g}, hardly more than this; ask for a larger ε or a larger crowd"
            )
        return tuple(warnings)


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A plan for all groups of a round; prints as a paragraph, and terms are drafted from it."""

    epsilon: float
    delta: float
    goal: Aim
    groups: tuple[Recommendation, ...]
    task: Task | None = None
    rounds: int = 1
    tried: tuple[Tried, ...] = ()

    def __iter__(self) -> Iterator[Recommendation]:
        return iter(self.groups)

    def __getitem__(self, name: str) -> Recommendation:
        """Return the plan of a group."""
        for group in self.groups:
            if group.name == name:
                return group
        raise Misuse(
            f"the plan has no group {name!r}, only {', '.join(g.name for g in self.groups)}"
        )

    def __repr__(self) -> str:
        people = ", ".join(f"{group.minimum:,} {group.name}" for group in self.groups)
        return f"Plan(ε = {self.epsilon:g}, δ = {self.delta:g}, {people})"

    def _repr_html_(self) -> str:
        head = ("group", "at least", "mechanism", "error")
        rows = [
            (g.name, f"{g.minimum:,}", design_text(g.best), error_text(g.best, g.goal))
            for g in self.groups
        ]
        return html_table(self.headline.rstrip(":"), head, rows, note=str(self))

    def __str__(self) -> str:
        lines = [self.headline]
        for group in self.groups:
            best, error = design_text(group.best), error_text(group.best, group.goal)
            lines.append(f"- {group.name}: {best}; error {error} ({group.reason}).")
            lines += [f"  {sentence}" for sentence in group.sentences]
        if self.tried:
            lines.append(f"Tried in rounds with letters, on made-up people ({SERVED}):")
            chosen = ["chosen"] + [""] * len(self.tried)
            lines += [
                f"- {one}" + f" ({word})" * bool(word)
                for one, word in zip(self.tried, chosen, strict=False)
            ]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """The promise, and the error that the plan minimizes."""
        over = f" over {self.rounds:,} rounds together" if self.rounds > 1 else ""
        return f"To keep ε = {self.epsilon:g} at δ = {self.delta:.3g}{over} ({GOALS[self.goal]}):"


# -- the words and units of a plan


def shape(randomizer: Randomizer) -> str:
    """Name the radius or the grid of a mechanism, if it has one."""
    params = randomizer.params()
    if "radius" in params:
        return f"radius {params['radius']:.4g}"
    if "points" in params:
        return f"{len(params['points'])} points"
    return f"cells {' x '.join(map(str, params['cells']))}" if "cells" in params else ""


def design_text(design: Design) -> str:
    """Name a mechanism with its parameters."""
    randomizer = design.randomizer
    if not design.worth_a_report:
        return "no report, the same place for everybody"
    name = f"{randomizer.name} with local ε = {randomizer.epsilon:.4g}"
    return ", ".join(filter(None, (name, shape(randomizer), f"decoded by {design.how}")))


def error_text(design: Design, goal: Aim = "mean") -> str:
    """Name the error in the unit of the domain, or of the score; a product has one per field."""
    randomizer = design.randomizer
    if goal == "task":
        return f"{design.error:.4g} ± {2 * (design.standard_error or 0):.2g}"
    if isinstance(randomizer, FieldwiseResponse):
        parts = randomizer.parts.items()
        return ", ".join(f"{name} {_size(part.expected_error(), part)}" for name, part in parts)
    return _size(design.error, randomizer)


def error_sentences(design: Design) -> list[str]:
    """Say for whom the error holds, and within which distance most people are decoded."""
    if not design.worth_a_report:
        constant = f"the same place for everybody has this error for {design.people}"
        return [f"No report is worth asking for: {constant}. Ask for a larger ε or a larger crowd."]
    sentences = []
    errors = design.errors if design.goal in GOALS and design.goal != "task" else None
    if errors is not None and not isinstance(design.randomizer.domain, Categories):
        near, far = (
            _size(x, design.randomizer) for x in (errors.percentile_90, errors.percentile_99)
        )
        people = design.people if design.goal in AVERAGES else EVENLY
        sentences.append(f"For {people}: 90 % are decoded within {near}, 99 % within {far}.")
    if design.how in LEARNED and design.prior is None:
        sentences.append(
            "Reports are decoded under the density that the batch shows, so the error is smaller "
            "where people crowd together."
        )
    return sentences


def _size(error: float, randomizer: Randomizer) -> str:
    if isinstance(randomizer.domain, Categories):
        return f"{error:.1%} wrong labels"
    unit = randomizer.domain.unit if isinstance(randomizer.domain, Box | Ball) else ""
    return f"{error:,.0f} {unit}" if unit and error >= 100 else f"{error:.4g} {unit}".rstrip()


def unit_text(domain: Domain, goal: Aim) -> str:
    """Name the error for a goal, and its unit."""
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
