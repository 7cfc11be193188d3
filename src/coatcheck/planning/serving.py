"""The search for a task: mechanism, radius or grid and decode by the task's own score.

Every candidate earns its own local ε under the same promise, group by group; rounds of the task
are then played on a prior that is no secret (public data, a grid, a made-up crowd). Nothing about
the people who will report is used, so the choice costs no budget. Paper, evaluation.
"""

from collections.abc import Sequence
from typing import Final

from coatcheck.accounting.amplification import any_ldp
from coatcheck.domains import Ball, Box, Domain
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.planning.search import Design, Promise
from coatcheck.planning.tuning import Candidate, Make, Team, Tried, even_prior, shapes, tune
from coatcheck.randomizers import Randomizer
from coatcheck.tasks import Floats, Score, Task

_PLAYERS: Final = 4_096


def designs_for(
    task: Task,
    promises: Sequence[Promise],
    *,
    domains: Sequence[Domain],
    prior: Sequence[Floats] | None,
    entropy: Entropy,
) -> list[list[Design]]:
    """Give for each group the best design of every mechanism, the best of all first.

    The error of a design is what its round lost: the score itself if less of it is better, else
    one minus the score. All groups use one shape, each at the budget that its crowd earns. Without
    a prior, places even over each box are played on.
    """
    plain = [domain for domain in domains if isinstance(domain, Box | Ball)]
    if len(plain) != len(domains):
        raise Misuse("the goal task is for boxes and balls; choose for labels by mean")
    if prior is None:
        prior = _even(plain, [promise.crowd for promise in promises])
    tried = tune(task, _teams(promises, plain), prior=prior, entropy=entropy)
    best: dict[str, Tried] = {}
    for one in tried:
        best.setdefault(one.candidate.randomizer.name, one)
    return [
        [_design(one.team[g], promise, one.score) for one in best.values()]
        for g, promise in enumerate(promises)
    ]


def _even(domains: Sequence[Box | Ball], crowds: Sequence[int]) -> list[Floats]:
    """Return places even over each box, as many as its crowd, but no more than play in seconds."""
    boxes = [domain for domain in domains if isinstance(domain, Box)]
    if len(boxes) < len(domains):
        raise Misuse("the goal task needs a prior on a ball: values that are no secret")
    return [even_prior(box, count=min(n, _PLAYERS)) for box, n in zip(boxes, crowds, strict=True)]


def _teams(promises: Sequence[Promise], domains: Sequence[Box | Ball]) -> list[Team]:
    generous = max(promise.budget(any_ldp) for promise in promises)
    by_group = [
        [_fitted(make, promise) for make in shapes(domain, epsilon=generous)]
        for domain, promise in zip(domains, promises, strict=True)
    ]
    return [
        tuple(Candidate(randomizer=made, how=how) for made in same)
        for same in zip(*by_group, strict=True)
        if all(made.exact for made in same)
        for how in same[0].decodes
    ]


def _fitted(make: Make, promise: Promise) -> Randomizer:
    """The mechanism of a shape with the largest local ε that keeps the promise."""
    return make(promise.budget(lambda epsilon: make(epsilon).law))


def _design(candidate: Candidate, promise: Promise, score: Score) -> Design:
    return Design(
        randomizer=candidate.randomizer,
        how=candidate.how,
        error=1 - score.value if score.higher_is_better else score.value,
        guarantee=promise.kept_by(candidate.randomizer.law),
    )
