"""Which mechanism serves a task best: by playing rounds on a prior crowd, not by squared error.

The least squared error is the wrong goal for most tasks: for neighbours at ε 8 it gives an F1 of
0.50 where a smaller cap, read as it is, gives 0.77 at the same ε. So candidates are tried on a
sample that is no secret (public data, a grid, or a made-up crowd), scored by the task itself.
Knows no person's value: the prior must not be the crowd that will report. Paper, evaluation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from coatcheck.domains import Ball, Box
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    BoundedResponse,
    Decode,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
)
from coatcheck.tasks import Floats, Score, Scored, Task

_RADII = tuple(float(r) for r in np.geomspace(0.02, 0.8, 9))
_GRIDS = (3, 5, 8, 12, 16, 24, 32, 48)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism and how its reports are read."""

    randomizer: Randomizer
    how: Decode


Team = tuple[Candidate, ...]
Make = Callable[[float], Randomizer]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What candidates scored, averaged over rounds, with the standard error of that mean.

    Attributes:
        team: the candidate of each group.
        score: the mean over rounds.
        standard_error: of that mean; not a number after a single round.
    """

    team: Team
    score: Score
    standard_error: float

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
    """Play rounds of the task on the prior with every candidate; the best score comes first.

    `prior` has one array a group, in the user's units. A candidate serves every group, or a tuple
    of them has one for each, as when groups of different size earn different local budgets.
    *Assumes:* the prior is public. The result is a choice of parameters, so it costs no budget.
    """
    if not candidates or rounds < 1:
        raise Misuse("tuning needs at least one candidate and one round")
    play = scored_by(task, prior, entropy)
    count = len(task.groups)
    teams = [one if isinstance(one, tuple) else (one,) * count for one in candidates]
    tried = [_try(team, play, rounds) for team in teams]
    sign = -1.0 if tried[0].score.higher_is_better else 1.0
    return sorted(tried, key=lambda one: sign * one.score.value)


def scored_by(task: Task, prior: Sequence[Floats], entropy: Entropy) -> Callable[[Team], Score]:
    """The function that plays one round on the prior and scores it."""
    truth = [np.asarray(group, dtype=np.float64) for group in prior]
    if not isinstance(task, Scored):
        raise Misuse(f"task {task.name} does not say how to score a round; give it a `score`")
    if len(truth) != len(task.groups):
        raise Misuse(f"task {task.name} has groups {task.groups}; the prior has {len(truth)}")

    def play(team: Team) -> Score:
        estimates = [
            one.randomizer.estimate(one.randomizer.randomize(group, entropy, clamp=True), one.how)
            for one, group in zip(team, truth, strict=True)
        ]
        return task.score(truth, estimates=estimates)

    return play


def spread(*, epsilon: float, domain: Box | Ball, exact: bool = True) -> list[Candidate]:
    """Candidates at one ε: small caps to large ones, coarse grids to fine, read in every way."""
    made = [make(epsilon) for make in shapes(domain, epsilon=epsilon)]
    return [
        Candidate(randomizer=randomizer, how=how)
        for randomizer in made
        if randomizer.exact or not exact
        for how in randomizer.decodes
    ]


def shapes(domain: Box | Ball, *, epsilon: float) -> list[Make]:
    """Mechanisms but for their ε: caps of many radii, and grids that are sensible near this ε."""
    made: list[Make] = []
    for radius in _RADII:
        made.append(partial(_minkowski, domain, radius))
        made.append(partial(_bounded, domain, radius))
    if isinstance(domain, Box):
        # Beyond so many cells in all, the truth is told less often than some wrong cell.
        sides = [k for k in _GRIDS if k**domain.dimension <= 4 * math.exp(epsilon) + 9]
        made += [partial(_grid, domain, k) for k in sides]
    return made


def _minkowski(domain: Box | Ball, radius: float, epsilon: float) -> Randomizer:
    return MinkowskiResponse(domain=domain, epsilon=epsilon, radius=radius)


def _bounded(domain: Box | Ball, radius: float, epsilon: float) -> Randomizer:
    return BoundedResponse(domain=domain, epsilon=epsilon, radius=radius)


def _grid(domain: Box, cells: int, epsilon: float) -> Randomizer:
    return GridResponse(domain=domain, epsilon=epsilon, cells=(cells,) * domain.dimension)


def even_prior(domain: Box, *, count: int) -> Floats:
    """About `count` places evenly over a box: the prior of somebody who knows nothing."""
    side = max(1, round(count ** (1 / domain.dimension)))
    along = (np.arange(side) + 0.5) / side * 2 - 1
    places = np.stack(np.meshgrid(*[along] * domain.dimension), axis=-1)
    return np.asarray(domain.from_unit(places.reshape(-1, domain.dimension)))


def _try(team: Team, play: Callable[[Team], Score], rounds: int) -> Tried:
    scores = [play(team) for _ in range(rounds)]
    values = np.array([score.value for score in scores])
    mean = Score(
        name=scores[0].name,
        value=float(values.mean()),
        higher_is_better=scores[0].higher_is_better,
    )
    error = float(values.std(ddof=1) / math.sqrt(rounds)) if rounds > 1 else math.nan
    return Tried(team=team, score=mean, standard_error=error)
