"""Which mechanism serves a task best: by trial rounds on a prior crowd, not by squared error.

The least squared error is the wrong goal for most tasks: for neighbours at ε 8 it gives an F1 of
0.50 where a smaller cap, read as it is, gives 0.77 at the same ε. So candidates are tried on a
sample that is no secret (public data, or a made-up crowd) and ranked by the task's own score. The
best of many noisy scores flatters, so a few finalists are tried again, and the one that wins is
scored once more on crowds that had no part in choosing it. Nothing about the people who will report
is used, so the choice costs no budget. Paper, evaluation.
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
_HELD_OUT: Final = 10  # rounds that say what the winner is worth
_CLEARLY: Final = 2.0  # standard errors by which it must beat the design for the least mean error

Team = tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What candidates scored, averaged over rounds, with the standard error of that mean.

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
        """The candidate of the first group: everybody's, unless groups were given their own."""
        return self.team[0]


def tune(
    task: Task,
    candidates: Sequence[Candidate | Team],
    *,
    prior: Sequence[Floats],
    entropy: Entropy,
    rounds: int = 2,
) -> list[Tried]:
    """Try every candidate in rounds of the task on the prior; the best score comes first.

    `prior` has one array per group, in the user's units. A candidate serves every group, or a tuple
    of them has one for each, as when groups of different size earn different local budgets.
    *Assumes:* the prior is public. The result is a choice of parameters, so it costs no budget.
    """
    if not candidates or rounds < 1:
        raise Misuse("tuning needs at least one candidate and one round")
    # In an order of chance, as in a round: where estimates tie, the order must not tell the truth.
    truth = [_shuffled(np.asarray(group, dtype=np.float64), entropy) for group in prior]
    teams = [one if isinstance(one, tuple) else (one,) * len(truth) for one in candidates]
    return _tried(task, teams, crowds=[truth] * rounds, entropy=entropy)


def _tried(
    task: Task, teams: Sequence[Team], *, crowds: Sequence[Sequence[Floats]], entropy: Entropy
) -> list[Tried]:
    """Try every team in one round on each crowd; the best score comes first."""
    if not isinstance(task, Scored):
        raise Misuse(f"task {task.name} does not say how to score a round; give it a `score`")
    if len(crowds[0]) != len(task.groups):
        raise Misuse(f"task {task.name} has groups {task.groups}; the prior has {len(crowds[0])}")

    def score(team: Team, truth: Sequence[Floats]) -> Score:
        estimates = [
            one.randomizer.estimate(one.randomizer.randomize(group, entropy, clamp=True), one.how)
            for one, group in zip(team, truth, strict=True)
        ]
        return task.score(truth, estimates=estimates)

    tried = []
    for team in teams:
        scores = [score(team, truth) for truth in crowds]
        values = np.array([score.value for score in scores])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        mean = replace(scores[0], value=float(values.mean()))
        tried.append(Tried(team=team, score=mean, standard_error=error, values=values))
    sign = -1.0 if tried[0].score.higher_is_better else 1.0
    return sorted(tried, key=lambda one: sign * one.score.value)


def _shuffled(people: Floats, entropy: Entropy) -> Floats:
    return people[np.argsort(entropy.uniforms(len(people)), kind="stable")]


def spread(*, epsilon: float, domain: Box | Ball) -> list[Candidate]:
    """Candidates at one ε: small caps to large ones, coarse grids to fine, read in every way."""
    return [team[0] for team in _spread([domain], budgets=[constant(epsilon)])]


def even_prior(domain: Box, *, count: int) -> Floats:
    """About `count` places evenly over a box: the prior of somebody who knows nothing."""
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
    """Give for each group the best design of every mechanism, the best of all first.

    The error of a design is what its round lost: the score itself if less of it is better, else
    one minus the score. All groups use one shape, each at the ε that its crowd earns. People are
    the values that a prior has for each group, or are drawn from it for every round; without a
    prior they are drawn evenly over each box.

    The first design has the error of rounds on crowds that were not used to choose it. It is the
    design for the least mean error, unless another is clearly better in those rounds.
    """
    plain = [domain for domain in domains if isinstance(domain, Box | Ball)]
    if len(plain) != len(domains):
        raise Misuse("the goal task is for boxes and balls; choose for labels by mean")
    if prior is None and not all(isinstance(domain, Box) for domain in plain):
        raise Misuse("the goal task needs a prior on a ball: values that are no secret")
    known = prior or [None] * len(plain)
    # As many people as the crowd, but no more than take seconds.
    sizes = [min(promise.crowd, _PEOPLE) for promise in promises]

    def crowd() -> list[Floats]:
        return [
            (own or Prior.even(domain)).draw(domain, count, entropy)
            if own is None or isinstance(own, Prior)
            else _shuffled(np.asarray(own, dtype=np.float64), entropy)
            for own, domain, count in zip(known, plain, sizes, strict=True)
        ]

    def rounds(teams: Sequence[Team], count: int) -> list[Tried]:
        return _tried(task, teams, crowds=[crowd() for _ in range(count)], entropy=entropy)

    teams = [tuple(team) for team in _spread(plain, budgets=[p.budget for p in promises])]
    public = [own if isinstance(own, Prior) else None for own in known]
    usual = tuple(
        designs(promise, domain=domain, goal="mean", prior=own)[0]
        for promise, domain, own in zip(promises, plain, public, strict=True)
    )
    finalists = _finalists(rounds(teams, 2))
    again = rounds([*finalists, usual], _AGAIN)
    best: dict[str, Tried] = {}
    for one in [_winner(rounds([again[0].team, usual], _HELD_OUT), usual), *again]:
        best.setdefault(one.candidate.randomizer.name, one)
    return [
        [designed(promise, _lost(one.team[g], one)) for one in best.values()]
        for g, promise in enumerate(promises)
    ]


def _finalists(tried: Sequence[Tried]) -> list[Team]:
    """The best few, and the best of each mechanism."""
    names = [one.candidate.randomizer.name for one in tried]
    return [
        one.team for at, one in enumerate(tried) if at < _FINALISTS or names[at] not in names[:at]
    ]


def _winner(tried: Sequence[Tried], usual: Team) -> Tried:
    """The first of two, unless it is the usual design or not clearly better than that."""
    first, second = tried
    gain = first.values - second.values
    clear = abs(gain.mean()) > _CLEARLY * gain.std(ddof=1) / math.sqrt(len(gain))
    if first.team == usual or clear:
        return first
    return second


def _lost(candidate: Candidate, tried: Tried) -> Choice:
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

    Small caps to large ones and coarse grids to fine, read in every way, each group at the ε that
    its own budget gives. Only exact mechanisms are offered.
    """
    generous = max(budget(any_ldp) for budget in budgets)
    groups = zip(domains, budgets, strict=True)
    sides = _sides(domains, generous)
    fitted = [[fit(shape, budget) for shape in _shapes(domain, sides)] for domain, budget in groups]
    return [
        [Candidate(randomizer=made, how=how) for made in same]
        for same in zip(*fitted, strict=True)
        if all(made.exact for made in same)
        for how in same[0].plain_decodes
        if all(how in made.plain_decodes for made in same)
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
    """Return how finely to cut each axis; not at all where a domain is a ball."""
    if not all(isinstance(domain, Box) for domain in domains):
        return []
    # Beyond so many cells in all, the truth is told less often than some wrong cell.
    d, most = max(domain.dimension for domain in domains), 4 * math.exp(epsilon) + 9
    return [side for side in _SIDES if side**d <= most]
