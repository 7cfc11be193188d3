"""The choice of a mechanism by trial rounds of a task on a prior crowd, not by squared error.

The least squared error is the wrong goal for most tasks: for neighbours at ε 8 it gives an F1 of
0.50, where a smaller cap, decoded as it is, gives 0.77 at the same ε. So this file tries candidates
on a public sample (public data, or a made-up crowd) and ranks them by the task's own score. The
best of many noisy scores flatters its candidate, so a few finalists are tried again, and the winner
is scored once more on crowds that had no part in choosing it. Nothing about the people who will
report is used, so the choice costs no budget. Paper, evaluation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from coatcheck.domains import Ball, Box, Domain
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.planning.budget_search import Design, Promise, designed, designs
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    GridResponse,
    MinkowskiResponse,
    Prior,
)
from coatcheck.randomizers.choice import Budget, Candidate, Choice, Shape, any_ldp, constant, fit
from coatcheck.tasks import Floats, Score, Scored, Task

_PEOPLE: Final = 4_096  # of a trial round
_RADII: Final = tuple(float(r) for r in np.geomspace(0.02, 0.8, 9))
_SIDES: Final = (3, 5, 8, 12, 16, 24, 32, 48)
_FINALISTS: Final = 4  # besides the best of each mechanism
_AGAIN: Final = 6  # rounds of a finalist
_HELD_OUT: Final = 10  # rounds that score the winner
_CLEARLY: Final = 2.0  # standard errors by which it must beat the design of least mean error

Team = tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The score of candidates, averaged over rounds, with the standard error of that mean.

    Attributes:
        team: the candidate of each group.
        score: the mean over rounds.
        standard_error: of that mean; not a number after a single round.
        values: the score of each round.
    """

    team: Team
    score: Score
    standard_error: float
    values: Floats

    @property
    def candidate(self) -> Candidate:
        """The candidate of the first group: that of all groups, unless each has its own."""
        return self.team[0]


def tune(
    task: Task,
    candidates: Sequence[Candidate | Team],
    *,
    prior: Sequence[Floats],
    entropy: Entropy,
    rounds: int = 2,
) -> list[TrialResult]:
    """Try every candidate in rounds of the task on the prior; return the best score first.

    `prior` has one array per group, in the user's units. A candidate is for every group, or a tuple
    has one for each, such as for groups of different sizes with different local budgets.
    *Assumes:* the prior is public. The result is a choice of parameters, so it costs no budget.
    """
    if not candidates:
        raise Misuse("`candidates` must list at least one candidate")
    if rounds < 1:
        raise Misuse(f"`rounds` must be at least 1, got {rounds}")
    # In random order, as in a round: where estimates tie, the order must not reveal the truth.
    truth = [_shuffled(np.asarray(group, dtype=np.float64), entropy) for group in prior]
    teams = [
        candidate if isinstance(candidate, tuple) else (candidate,) * len(truth)
        for candidate in candidates
    ]
    return _tried(task, teams, crowds=[truth] * rounds, entropy=entropy)


def _tried(
    task: Task, teams: Sequence[Team], *, crowds: Sequence[Sequence[Floats]], entropy: Entropy
) -> list[TrialResult]:
    """Try every team in one round on each crowd; return the best score first."""
    if not isinstance(task, Scored):
        raise Misuse(f"task {task.name} has no method `score`, which scores a round; add it")
    if len(crowds[0]) != len(task.groups):
        raise Misuse(
            f"`prior` must have one array for each of {list(task.groups)}, got {len(crowds[0])}"
        )

    def score(team: Team, truth: Sequence[Floats]) -> Score:
        estimates = [
            member.randomizer.estimate(
                member.randomizer.randomize(group, entropy, clamp=True), member.how
            )
            for member, group in zip(team, truth, strict=True)
        ]
        return task.score(truth, estimates=estimates)

    tried = []
    for team in teams:
        scores = [score(team, truth) for truth in crowds]
        values = np.array([score.value for score in scores])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        mean = replace(scores[0], value=float(values.mean()))
        tried.append(TrialResult(team=team, score=mean, standard_error=error, values=values))
    sign = -1.0 if tried[0].score.higher_is_better else 1.0
    return sorted(tried, key=lambda result: sign * result.score.value)


def _shuffled(people: Floats, entropy: Entropy) -> Floats:
    return people[np.argsort(entropy.uniforms(len(people)), kind="stable")]


def spread(*, epsilon: float, domain: Box | Ball) -> list[Candidate]:
    """Return candidates at one ε: small to large caps, coarse to fine grids, every decoder."""
    return [team[0] for team in _spread([domain], budgets=[constant(epsilon)])]


def even_prior(domain: Box, *, count: int) -> Floats:
    """Return about `count` places evenly over a box: the prior without any knowledge."""
    side = max(1, round(count ** (1 / domain.dimension)))
    along = (np.arange(side) + 0.5) / side * 2 - 1
    places = np.stack(np.meshgrid(*[along] * domain.dimension), axis=-1)
    return np.asarray(domain.from_unit(places.reshape(-1, domain.dimension)))


def designs_for(
    task: Task,
    promises: Sequence[Promise],
    *,
    domains: Sequence[Domain],
    prior: Sequence[Floats | Prior | None] | None,
    entropy: Entropy,
) -> list[list[Design]]:
    """Return for each group the best design of every mechanism, the best of all first.

    The error of a design is the loss of its rounds: the score itself if a lower one is better,
    otherwise one minus the score. All groups use one shape, each at the ε that its crowd allows.
    People are the public values of each group, or are drawn from its prior for every round;
    without a prior they are drawn evenly over each box.

    The error of the first design is from crowds that were not used to choose it. It is the design
    of least mean error, unless another is clearly better on those crowds.
    """
    plain = [domain for domain in domains if isinstance(domain, Box | Ball)]
    if len(plain) != len(domains):
        raise Misuse("goal 'task' needs boxes and balls; use goal 'mean' for labels")
    if prior is None and not all(isinstance(domain, Box) for domain in plain):
        raise Misuse("goal 'task' on a ball needs `prior`: public values of each group")
    priors = prior or [None] * len(plain)
    # As many people as the crowd, but at most what a few seconds allow.
    sizes = [min(promise.crowd, _PEOPLE) for promise in promises]

    def crowd() -> list[Floats]:
        return [
            (own or Prior.even(domain)).draw(domain, count, entropy)
            if own is None or isinstance(own, Prior)
            else _shuffled(np.asarray(own, dtype=np.float64), entropy)
            for own, domain, count in zip(priors, plain, sizes, strict=True)
        ]

    def rounds(teams: Sequence[Team], count: int) -> list[TrialResult]:
        return _tried(task, teams, crowds=[crowd() for _ in range(count)], entropy=entropy)

    teams = [tuple(team) for team in _spread(plain, budgets=[p.budget for p in promises])]
    public = [own if isinstance(own, Prior) else None for own in priors]
    usual = tuple(
        designs(promise, domain=domain, goal="mean", prior=own)[0]
        for promise, domain, own in zip(promises, plain, public, strict=True)
    )
    finalists = _finalists(rounds(teams, 2))
    again = rounds([*finalists, usual], _AGAIN)
    best: dict[str, TrialResult] = {}
    for tried in [_winner(rounds([again[0].team, usual], _HELD_OUT), usual), *again]:
        best.setdefault(tried.candidate.randomizer.name, tried)
    return [
        [designed(promise, _choice(tried.team[g], tried)) for tried in best.values()]
        for g, promise in enumerate(promises)
    ]


def _finalists(tried: Sequence[TrialResult]) -> list[Team]:
    """Return the best candidates, and the best one of each mechanism."""
    names = [result.candidate.randomizer.name for result in tried]
    return [
        result.team
        for place, result in enumerate(tried)
        if place < _FINALISTS or names[place] not in names[:place]
    ]


def _winner(tried: Sequence[TrialResult], usual: Team) -> TrialResult:
    """Return the better of two; but the usual design if the other is not clearly better."""
    first, second = tried
    gain = first.values - second.values
    clear = abs(gain.mean()) > _CLEARLY * gain.std(ddof=1) / math.sqrt(len(gain))
    if first.team == usual or clear:
        return first
    return second


def _choice(candidate: Candidate, tried: TrialResult) -> Choice:
    value = tried.score.value
    return Choice(
        randomizer=candidate.randomizer,
        how=candidate.how,
        goal="task",
        error=1 - value if tried.score.higher_is_better else value,
        standard_error=tried.standard_error,
    )


def _spread(domains: Sequence[Box | Ball], *, budgets: Sequence[Budget]) -> list[list[Candidate]]:
    """Return candidates for trial rounds: for each shape and decode, one candidate per group.

    Small to large caps and coarse to fine grids, with every decoder, each group at the ε of its own
    budget. Only exact mechanisms are included.
    """
    generous = max(budget(any_ldp) for budget in budgets)
    groups = zip(domains, budgets, strict=True)
    sides = _sides(domains, generous)
    fitted = [[fit(shape, budget) for shape in _shapes(domain, sides)] for domain, budget in groups]
    return [
        [Candidate(randomizer=randomizer, how=how) for randomizer in same]
        for same in zip(*fitted, strict=True)
        if all(randomizer.exact for randomizer in same)
        for how in same[0].plain_decodes
        if all(how in randomizer.plain_decodes for randomizer in same)
    ]


def _shapes(domain: Box | Ball, sides: Sequence[int]) -> list[Shape]:
    shapes: list[Shape] = [
        partial(family, domain=domain, radius=radius)
        for radius in _RADII
        for family in (MinkowskiResponse, BoundedResponse)
    ]
    middle = (0,) * domain.dimension
    shapes.append(partial(CodebookResponse, domain=domain, points=(middle,)))  # without reports
    if isinstance(domain, Box):
        cells = [(side,) * domain.dimension for side in sides]
        shapes += [partial(GridResponse, domain=domain, cells=each) for each in cells]
    return shapes


def _sides(domains: Sequence[Box | Ball], epsilon: float) -> list[int]:
    """Return the numbers of cells to try along each axis; none if a domain is a ball."""
    if not all(isinstance(domain, Box) for domain in domains):
        return []
    # With more cells than this, reports name the true cell too rarely.
    dimension = max(domain.dimension for domain in domains)
    return [side for side in _SIDES if side**dimension <= 4 * math.exp(epsilon) + 9]
