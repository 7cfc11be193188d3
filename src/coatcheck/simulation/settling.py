"""Settling in memory, and forecasts of its benefit.

`settle` runs everybody's state machine, step by step, without seals. It knows every place, as a
simulation does. A person is any object with the methods of `protocol.settling.rules.Settling`, so
that tests can include people who break the rules.

    >>> from coatcheck.simulation.settling import settle
    >>> settle([[0, 1], [0, 1]], cells=([(0,), (9,)], [(8,), (1,)]), asks=(2,))
    [1, 0]

`forecast_settling` shows an operator the quality for several numbers of candidates and of steps. It
draws crowds from the plan's prior, or evenly; they report, get candidates and settle, and true
places measure the result. No crowd had a part in choosing the design, so the figures are held out;
each has the standard error of its mean. People are honest; docs/how-to/settle-by-letter.md has the
cost of faults.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, seeded, source
from coatcheck.errors import Misuse
from coatcheck.planning import Plan, Recommendation, plan
from coatcheck.protocol.keys import address_of
from coatcheck.protocol.server import belief
from coatcheck.protocol.settling.nearness import Nearness, offsets
from coatcheck.protocol.settling.rules import (
    NOTICES,
    Cell,
    Kind,
    Progress,
    Settling,
    cell_of,
    prf,
    schedule,
)
from coatcheck.protocol.wire.messages import Partner
from coatcheck.randomizers.choice import misses
from coatcheck.simulation.quality import names_many, one_partner, shorter_side
from coatcheck.tasks.contract import Positions, scale_of
from coatcheck.tasks.matching import lists_of
from coatcheck.tasks.shortlists import settled

if TYPE_CHECKING:
    from coatcheck.simulation.round import Outcome

ASKS: Final = (3, 2)
_ACROSS: Final = 80


class Speaker(Protocol):
    """A participant in settling."""

    @property
    def address(self) -> bytes:
        """The participant's address."""

    @property
    def lists(self) -> Sequence[Sequence[bytes]]:
        """The participant's candidates, one list per pass."""

    @property
    def done(self) -> bool:
        """Whether the participant has nothing more to write."""

    def speak(self) -> list[tuple[bytes, bytes]]:
        """Write the letters of the next step."""

    def receive(self, sender: bytes, body: bytes) -> object:
        """Process a letter."""

    def notice(self, sender: bytes, body: bytes) -> object:
        """Process a public notice."""


def make_people(
    lists: Sequence[Sequence[Sequence[int]]],
    *,
    cells: tuple[Sequence[Cell], Sequence[Cell]],
    asks: Sequence[int],
    entropy: Entropy | int = 0,
) -> tuple[list[Settling], list[Settling]]:
    """Build everybody of both sides from the lists of the asking side, one set per pass."""
    if len(lists) != len(asks):
        raise Misuse(
            f"there must be one set of lists per pass, got {len(lists)} for {len(asks)} passes"
        )
    secret = source(entropy).token(32)
    names = [
        [prf(secret, b"name", bytes((side,)) + n.to_bytes(4, "big"))[:16] for n in range(len(row))]
        for side, row in enumerate(cells)
    ]
    listed: list[list[list[list[bytes]]]] = [[[[] for _ in asks] for _ in row] for row in cells]
    for turn, rows in enumerate(lists):
        for asker, others in enumerate(rows):
            for other in others:
                listed[0][asker][turn].append(names[1][other])
                listed[1][other][turn].append(names[0][asker])
    steps = schedule(asks)
    first, second = (
        [
            Settling(
                Progress(cell=cell),
                address=name,
                asks=not side,
                lists=own,
                secret=prf(secret, b"secret", name),
                steps=steps,
            )
            for cell, name, own in zip(cells[side], names[side], listed[side], strict=True)
        ]
        for side in (0, 1)
    )
    return first, second


def run_together(people: Iterable[Speaker]) -> None:
    """Exchange everybody's letters, step by step, until all are done."""
    everybody = {person.address: person for person in people}
    audience = defaultdict[bytes, list[Speaker]](list)
    for person in everybody.values():
        audience[person.address].append(person)
        for candidate in {name for names in person.lists for name in names}:
            audience[candidate].append(person)
    while speaking := [person for person in everybody.values() if not person.done]:
        spoken = [(person.address, letter) for person in speaking for letter in person.speak()]
        for sender, (recipient, body) in spoken:
            if recipient == sender:
                for person in audience[sender]:
                    person.notice(sender, body)
            elif recipient in everybody:
                everybody[recipient].receive(sender, body)


def settle(
    *lists: Sequence[Sequence[int]],
    cells: tuple[Sequence[Cell], Sequence[Cell]],
    asks: Sequence[int],
    entropy: Entropy | int = 0,
) -> list[int]:
    """Settle among honest people; return the partner of each asker, or -1."""
    askers, others = make_people(lists, cells=cells, asks=asks, entropy=entropy)
    run_together([*askers, *others])
    places = {person.address: at for at, person in enumerate(others)}
    return [-1 if asker.partner is None else places[asker.partner] for asker in askers]


def usual_cell(box: Box) -> float:
    """Return the usual side of a cell for rounded places: 1/80 of the box's shorter side."""
    return shorter_side(box) / _ACROSS


def settle_round(
    outcome: "Outcome", values: Sequence[Floats], *, side: float, asks: Sequence[int] = ASKS
) -> list[tuple[int, int]]:
    """Let everybody of a simulated round settle; return the pairs of rows of the two groups."""
    params: Any = outcome.round.terms.task.params
    sizes = outcome.bulletin.heading.sizes
    few = min(range(len(sizes)), key=sizes.__getitem__)
    steps = schedule(asks)
    people = {}
    for address, (group, row) in outcome.whose.items():
        answer = outcome.answers[group][row]
        people[address] = Settling(
            Progress(cell=cell_of(values[group][row], scale=params["scale"], side=side)),
            address=address,
            asks=group == few,
            lists=[
                _listed(outcome, partners)
                for partners in (answer.partners, answer.second)[: len(asks)]
            ],
            secret=_secret(outcome, group, row),
            steps=steps,
        )
    run_together(people.values())
    partners = (
        (row, people[address].partner)
        for address, (group, row) in outcome.whose.items()
        if not group
    )
    return sorted((row, outcome.whose[name][1]) for row, name in partners if name is not None)


def find_near(
    outcome: "Outcome", places: Floats, *, radius: float, side: float
) -> list[tuple[int, int]]:
    """Let everybody of a simulated round learn who on their list is near; return pairs of rows."""
    params: Any = outcome.round.terms.task.params
    around = offsets(radius, side=side, axes=places.shape[1])
    people = {
        address: Nearness(
            Progress(cell=cell_of(places[row], scale=params["scale"], side=side)),
            address=address,
            candidates=_listed(outcome, outcome.answers[0][row].partners),
            secret=_secret(outcome, 0, row),
            around=around,
            digest=outcome.round.digest,
        )
        for address, (_, row) in outcome.whose.items()
    }
    run_together(people.values())
    return sorted(
        (outcome.whose[address][1], outcome.whose[other][1])
        for address, person in people.items()
        for other in person.near
    )


def _listed(outcome: "Outcome", partners: Sequence[Partner]) -> list[bytes]:
    return [address_of(outcome.round.suite, partner.contact) for partner in partners]


def _secret(outcome: "Outcome", group: int, row: int) -> bytes:
    return prf(outcome.tickets[group][row].seed, b"secret", outcome.round.digest)


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
    """Count the letters of a person of the smaller group: full lists, notices at tag and close."""
    if not asks:
        return 0
    steps = schedule(asks)
    talks = sum(step.kind in {Kind.PLACES, Kind.ASK} for step in steps)
    notices = sum(step.kind in NOTICES for step in steps)
    return count * talks + notices + count * len(asks)


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
    reports = [
        group.best.randomizer.randomize(people, entropy, clamp=True)
        for group, people in zip(planned.groups, truth, strict=True)
    ]
    small = int(len(truth[1]) < len(truth[0]))
    few, many = truth[small], truth[1 - small]
    named = _answers(planned, task, reports)[small]
    if not isinstance(named, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers, not with partners; choose another")
    return [_figures(pairs, few, many, box, task) for pairs in _pairs(named, few, many, box, ways)]


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
        np.asarray(group.best.randomizer.estimate(reports, group.best.how))
        for group, reports in groups
    ]
    beliefs = None
    if getattr(task, "reads_beliefs", False):
        beliefs = [
            belief(group.best.randomizer, reports, prior=group.prior) for group, reports in groups
        ]
    return tasks.answer(task, estimates, beliefs=beliefs)


def _pairs(
    named: tasks.References, few: Floats, many: Floats, box: Box, ways: Sequence[tuple[int, ...]]
) -> Iterator[Positions]:
    """Yield for each way the partner of everybody of the smaller group, or -1."""
    if named.second is None:
        partner = np.full(len(few), -1)
        partner[named.owners()] = named.indices
        yield partner
        return
    count = int(named.counts().max(initial=1))
    lists = lists_of(named, count)
    factors = np.array(scale_of(box) or (1.0,) * box.dimension)
    ours, theirs = (np.floor(side * factors / usual_cell(box)) for side in (few, many))
    for asks in ways:
        yield settled(ours, theirs, lists[: len(asks)], asks=asks)


def _figures(
    partner: Positions, few: Floats, many: Floats, box: Box, task: tasks.Task
) -> tuple[float, ...]:
    radius = getattr(task, "radius", shorter_side(box) / 5)
    (paired,) = np.nonzero(partner >= 0)
    apart = misses(box, few[paired], many[partner[paired]])
    near = float((apart <= radius).sum() / len(few))
    return len(paired) / len(few), float(apart.mean()), float(np.median(apart)), near
