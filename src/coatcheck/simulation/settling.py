"""Results of settling by letter in a simulated round, and forecasts of its benefit.

A simulation knows every place, so it needs no letters: among people who follow the rules, the rings
decide alone who is near whom, and deferred acceptance by rings who meets whom.
tests/simulation/test_settling.py compares this with the letters of the protocol.

`forecast_settling` shows an operator the quality for several numbers of candidates and of steps. It
draws crowds from the plan's prior, or evenly; they report, get candidates and settle, and true
places measure the result. No crowd had a part in choosing the design, so the figures are held out;
each has the standard error of its mean. People are honest; docs/how-to/settle-by-letter.md has the
cost of faults.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.planning import Plan, Recommendation, plan
from coatcheck.planning.settled_rounds import people_only, with_decoys
from coatcheck.protocol.drafting import usual_settling
from coatcheck.protocol.keys import address_of
from coatcheck.protocol.server import belief, numbers
from coatcheck.protocol.settling.rings import Rings, cell_of
from coatcheck.protocol.settling.rules import NOTICES, Kind, schedule
from coatcheck.protocol.terms import SettleTerms
from coatcheck.protocol.wire.messages import Partner
from coatcheck.randomizers.choice import misses
from coatcheck.simulation.quality import names_many, one_partner, shorter_side
from coatcheck.tasks.contract import Positions, scale_of
from coatcheck.tasks.matching import lists_of
from coatcheck.tasks.shortlists import settled

if TYPE_CHECKING:
    from coatcheck.simulation.round import Outcome


def settle_by_rings(
    few: Floats,
    many: Floats,
    lists: Sequence[Positions],
    *,
    terms: SettleTerms,
    scale: Sequence[float] = (),
) -> Positions:
    """Return the partner of each of `few`, or -1, when all settle by the terms."""
    factors = np.array(scale or (1.0,) * few.shape[1])
    first, second = (np.floor(places * factors / terms.cell) for places in (few, many))
    radii = [radius / terms.cell for radius in terms.rings]
    return settled(first, second, lists[: len(terms.asks)], asks=terms.asks, radii=radii)


def settle_round(
    outcome: "Outcome", values: Sequence[Floats], *, terms: SettleTerms
) -> list[tuple[int, int]]:
    """Let everybody of a simulated round settle; return the pairs of rows of the two groups."""
    params: Any = outcome.round.terms.task.params
    sizes = outcome.bulletin.heading.sizes
    few = min(range(len(sizes)), key=sizes.__getitem__)
    answers = outcome.answers[few]
    count = max((len(answer.partners) for answer in answers), default=0)
    lists = [np.full((len(values[few]), count), -1) for _ in terms.asks]
    for group, row in outcome.whose.values():
        if group == few:
            answer = answers[row]
            for named, partners in zip(lists, (answer.partners, answer.second), strict=False):
                named[row, : len(partners)] = _rows(outcome, partners)
    partner = settle_by_rings(
        np.asarray(values[few]),
        np.asarray(values[1 - few]),
        lists,
        terms=terms,
        scale=params["scale"],
    )
    pairs = [(row, other) for row, other in enumerate(partner.tolist()) if other >= 0]
    return sorted(pairs if few == 0 else [(other, row) for row, other in pairs])


def find_near(outcome: "Outcome", places: Floats, *, terms: SettleTerms) -> list[tuple[int, int]]:
    """Let everybody of a simulated round learn who on their list is near; return pairs of rows."""
    params: Any = outcome.round.terms.task.params
    rings = Rings(terms.rings, side=terms.cell, axes=places.shape[1])
    cells = [cell_of(place, scale=params["scale"], side=terms.cell) for place in places]
    return sorted(
        (row, other)
        for _, row in outcome.whose.values()
        for other in _rows(outcome, outcome.answers[0][row].partners)
        if other >= 0 and rings.ring(cells[row], cells[other])
    )


def _rows(outcome: "Outcome", partners: Sequence[Partner]) -> list[int]:
    """Return the rows of the people whom an answer names; -1 for a decoy, as nobody is there."""
    names = (address_of(outcome.round.suite, partner.contact) for partner in partners)
    return [outcome.whose.get(name, (0, -1))[1] for name in names]


COUNTS: Final = (3, 5, 10)
"""The numbers of candidates to try, besides the task's own."""
FORECAST_ASKS: Final = ((1,), (2,), (3,), (3, 2))
"""How often people ask with the first list, and with the second."""
ROUNDS: Final = 6
_MAX_PEOPLE: Final = 1_000  # of a group in a trial round
_SEED: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The expected result for people of the smaller group; distances in the domain's unit.

    Attributes:
        candidates: how many possible partners a list has; 1 if the server names one.
        asks: the `asks` of the terms; empty if nobody settles.
        letters: how many letters and notices a person writes.
        paired: the share of people with a partner.
        mean_distance: the mean distance to a partner.
        median_distance: the median distance to a partner.
        within: the share of all people with a partner within the radius.
        standard_errors: of the last four, in their order.
    """

    candidates: int
    asks: tuple[int, ...]
    letters: int
    paired: float
    mean_distance: float
    median_distance: float
    within: float
    standard_errors: tuple[float, float, float, float]


def forecast_settling(planned: Plan, task: tasks.Task, *, rounds: int = ROUNDS) -> list[Forecast]:
    """Try how well people are served, by the server alone and with more and more letters."""
    if not names_many(task):
        raise Misuse(
            f"task {task.name} gives no candidates to settle with; set `candidates` above 1"
        )
    boxes = [group.group.domain for group in planned.groups]
    if len(boxes) != 2 or not all(isinstance(box, Box) for box in boxes):
        raise Misuse("settling by letter needs two groups with places in a box")
    own = int(getattr(task, "candidates", 1))
    forecasts = [_tried(planned, one_partner(task), ((),), rounds)]
    fewest = min(group.group.crowd for group in planned.groups)
    for count in sorted({*COUNTS, own}):
        if count <= fewest:
            listed = tasks.from_params({**task.params(), "candidates": count})
            forecasts.append(_tried(_again(planned, listed), listed, FORECAST_ASKS, rounds))
    return list(chain.from_iterable(forecasts))


def _again(planned: Plan, task: tasks.Task) -> Plan:
    """Plan again if corrupted people expose others, since more candidates expose more people."""
    if not any(group.group.corrupted for group in planned.groups):
        return planned
    groups = {group.name: group.group for group in planned.groups}
    goal = "mean" if planned.goal == "task" else planned.goal
    prior = planned.groups[0].prior
    return plan(
        groups, epsilon=planned.epsilon, delta=planned.delta, goal=goal, task=task, prior=prior
    )


def _tried(
    planned: Plan, task: tasks.Task, ways: Sequence[tuple[int, ...]], rounds: int
) -> list[Forecast]:
    entropies = [seeded(_SEED + number) for number in range(rounds)]
    figures = np.array([_round(planned, task, ways, entropy) for entropy in entropies])
    count = int(getattr(task, "candidates", 1))
    errors = figures.std(axis=0, ddof=1) / math.sqrt(rounds) if rounds > 1 else figures[0] * np.nan
    return [
        Forecast(
            candidates=count,
            asks=asks,
            letters=_letters(count, asks),
            paired=float(mean[0]),
            mean_distance=float(mean[1]),
            median_distance=float(mean[2]),
            within=float(mean[3]),
            standard_errors=tuple(error.tolist()),
        )
        for asks, mean, error in zip(ways, figures.mean(axis=0), errors, strict=True)
    ]


def _letters(count: int, asks: tuple[int, ...]) -> int:
    """Count the letters and notices of a person of the smaller group, with full lists."""
    if not asks:
        return 0
    kinds = [step.kind for step in schedule(asks)]
    to_all = sum(kind in {Kind.TABLE, Kind.SHARE, Kind.WORDS} for kind in kinds)
    notices = sum(kind in NOTICES for kind in kinds)
    return count * (len(asks) * to_all + kinds.count(Kind.ASK)) + notices


def _round(
    planned: Plan, task: tasks.Task, ways: Sequence[tuple[int, ...]], entropy: Entropy
) -> list[tuple[float, ...]]:
    """Try one crowd; for each way return the share paired, two distances and the share near."""
    box = cast("Box", planned.groups[0].group.domain)
    sizes = [group.group.expected or group.group.crowd for group in planned.groups]
    shrink = min(1.0, _MAX_PEOPLE / max(sizes))
    truth = [
        _people(group, max(2, round(size * shrink)), entropy)
        for group, size in zip(planned.groups, sizes, strict=True)
    ]
    reports, owners = zip(
        *(
            with_decoys(group.best.randomizer, people, group.decoys, entropy)
            for group, people in zip(planned.groups, truth, strict=True)
        ),
        strict=True,
    )
    small = int(len(truth[1]) < len(truth[0]))
    few, many = truth[small], truth[1 - small]
    named = _answers(planned, task, reports)[small]
    if not isinstance(named, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers, not with partners; choose another")
    return [
        _figures(pairs, few, many, box, task)
        for pairs in _pairs(
            named, (few, many), (owners[small], owners[1 - small]), (task, box), ways
        )
    ]


def _people(group: Recommendation, count: int, entropy: Entropy) -> Floats:
    box = cast("Box", group.group.domain)
    if group.prior is not None:
        return np.asarray(group.prior.draw(box, count, entropy), dtype=np.float64)
    low, high = np.array(box.lo), np.array(box.hi)
    shares = entropy.uniforms(count * box.dimension).reshape(count, -1)
    return np.asarray(low + shares * (high - low))


def _answers(
    planned: Plan, task: tasks.Task, batch: Sequence[NDArray[np.int64]]
) -> list[tasks.Answers]:
    """Answer reports as the server does."""
    groups = list(zip(planned.groups, batch, strict=True))
    estimates = [
        numbers(group.best.randomizer, reports, group.best.how, decoys=group.decoys)
        for group, reports in groups
    ]
    beliefs = None
    if getattr(task, "reads_beliefs", False):
        beliefs = [
            belief(group.best.randomizer, reports, prior=group.prior, decoys=group.decoys)
            for group, reports in groups
        ]
    return tasks.answer(task, estimates, beliefs=beliefs)


def _pairs(
    named: tasks.References,
    sides: tuple[Floats, Floats],
    owners: tuple[Positions, Positions],
    of: tuple[tasks.Task, Box],
    ways: Sequence[tuple[int, ...]],
) -> Iterator[Positions]:
    """Yield for each way the partner of everybody of the smaller group, or -1.

    `owners` says whose each message of either side is.
    """
    (few, many), (task, box) = sides, of
    if named.second is None:
        table = np.full((len(named), 1), -1)
        table[named.owners(), 0] = named.indices
        yield people_only(table, *owners, rows=len(few))[:, 0]
        return
    count = int(named.counts().max(initial=1))
    lists = [people_only(table, *owners, rows=len(few)) for table in lists_of(named, count)]
    for asks in ways:
        terms = replace(usual_settling(task, box), asks=asks)
        yield settle_by_rings(few, many, lists, terms=terms, scale=scale_of(box))


def _figures(
    partner: Positions, few: Floats, many: Floats, box: Box, task: tasks.Task
) -> tuple[float, ...]:
    radius = getattr(task, "radius", shorter_side(box) / 5)
    (paired,) = np.nonzero(partner >= 0)
    apart = misses(box, few[paired], many[partner[paired]])
    near = float((apart <= radius).sum() / len(few))
    return len(paired) / len(few), float(apart.mean()), float(np.median(apart)), near
