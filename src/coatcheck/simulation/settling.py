"""What settling would bring: quality against the number of candidates and of steps.

For an operator who has to choose. Crowds are drawn from the plan's prior, or evenly; they report,
get candidates and settle, and each is judged by its true places. No crowd had a part in choosing
the design, so the figures are held out; each has the standard error of its mean. Honest people and
no seals: what faults cost is in docs/how-to/settle-by-letter.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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

# HOUSE-DOC simulation.settling: "Settling in memory: everybody's state machine, step by step, without seals.\n\nKnows every place, as a simulation does. A person is anything that speaks and hears as\n`protocol.settling.Settling` does, so that tests can put in people who break the rules.\n\n    >>> from coatcheck.simulation.settling import settle\n    >>> settle([[0, 1], [0, 1]], cells=([(0,), (9,)], [(8,), (1,)]), asks=(2,))\n    [1, 0]\n"
ASKS: Final = (3, 2)
_ACROSS: Final = 80


class Speaker(Protocol):
    """Somebody who takes part in settling."""

    @property
    def address(self) -> bytes:
        """Their address."""

    @property
    def lists(self) -> Sequence[Sequence[bytes]]:
        """Their candidates."""

    @property
    def done(self) -> bool:
        """Whether they have nothing more to write."""

    def speak(self) -> list[tuple[bytes, bytes]]:
        """Write the letters of the next step."""

    def receive(self, sender: bytes, body: bytes) -> object:
        """Take in a letter."""

    def notice(self, sender: bytes, body: bytes) -> object:
        """Take in a public notice."""


def make_people(
    lists: Sequence[Sequence[Sequence[int]]],
    *,
    cells: tuple[Sequence[Cell], Sequence[Cell]],
    asks: Sequence[int],
    entropy: Entropy | int = 0,
) -> tuple[list[Settling], list[Settling]]:
    """Make everybody of both sides from the lists of the side that asks, one set per pass."""
    if len(lists) != len(asks):
        raise Misuse(f"there are {len(lists)} sets of lists, but {len(asks)} passes")
    secret = source(entropy).token(32)
    names = [
        [prf(secret, b"name", bytes((side,)) + n.to_bytes(4, "big"))[:16] for n in range(len(row))]
        for side, row in enumerate(cells)
    ]
    listed: list[list[list[list[bytes]]]] = [[[[] for _ in asks] for _ in row] for row in cells]
    for turn, rows in enumerate(lists):
        for one, others in enumerate(rows):
            for other in others:
                listed[0][one][turn].append(names[1][other])
                listed[1][other][turn].append(names[0][one])
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
    """Let everybody speak and hear, step by step, to the end."""
    everybody = {person.address: person for person in people}
    audience = defaultdict[bytes, list[Speaker]](list)
    for person in everybody.values():
        audience[person.address].append(person)
        for who in {who for names in person.lists for who in names}:
            audience[who].append(person)
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
    """Settle among honest people; the partner of each person of the side that asks, or -1."""
    askers, others = make_people(lists, cells=cells, asks=asks, entropy=entropy)
    run_together([*askers, *others])
    places = {person.address: at for at, person in enumerate(others)}
    return [-1 if one.partner is None else places[one.partner] for one in askers]


def usual_cell(box: Box) -> float:
    """Give the side of a cell for rounded places: an eightieth of the box's shorter side."""
    return shorter_side(box) / _ACROSS


def settle_round(
    outcome: "Outcome", values: Sequence[Floats], *, side: float, asks: Sequence[int] = ASKS
) -> list[tuple[int, int]]:
    """Let everybody of a simulated round settle; the pairs, by their rows in the two groups."""
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
            lists=[_listed(outcome, one) for one in (answer.partners, answer.second)[: len(asks)]],
            secret=_secret(outcome, group, row),
            steps=steps,
        )
    run_together(people.values())
    first = ((row, people[who].partner) for who, (group, row) in outcome.whose.items() if not group)
    return sorted((row, outcome.whose[found][1]) for row, found in first if found is not None)


def find_near(
    outcome: "Outcome", places: Floats, *, radius: float, side: float
) -> list[tuple[int, int]]:
    """Let everybody of a simulated round find out who of their list is near; the pairs, by row."""
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
        (outcome.whose[who][1], outcome.whose[other][1])
        for who, person in people.items()
        for other in person.near
    )


def _listed(outcome: "Outcome", partners: Sequence[Partner]) -> list[bytes]:
    return [address_of(outcome.round.suite, partner.contact) for partner in partners]


def _secret(outcome: "Outcome", group: int, row: int) -> bytes:
    return prf(outcome.tickets[group][row].seed, b"secret", outcome.round.digest)


COUNTS: Final = (3, 5, 10)
"""Numbers of candidates that are tried, besides the task's own."""
FORECAST_ASKS: Final = ((1,), (2,), (3,), (3, 2))
"""How many times people ask with the first list, and with the second."""
ROUNDS: Final = 6
_MOST: Final = 1_000  # people of a group in a trial round
_SEED: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What people of the smaller group may expect; distances in the domain's unit.

    Attributes:
        candidates: how many possible partners each has in a list; 1 if the server names one.
        asks: as the terms state them; empty if nobody settles.
        letters: how many letters and notices one of them writes.
        paired: the share that ends with a partner.
        mean_distance: of those who have one.
        median_distance: likewise.
        within: the share of all that has a partner within the radius.
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


def prospects(found: Plan, task: tasks.Task, *, rounds: int = ROUNDS) -> list[Prospect]:
    """Try out how people are served, by the server alone and by more and more letters."""
    if not names_many(task):
        raise Misuse("this task gives no candidates: there is nothing to settle")
    boxes = [group.group.domain for group in found.groups]
    if len(boxes) != 2 or not all(isinstance(box, Box) for box in boxes):
        raise Misuse("people settle by letter between two groups with places in a box")
    own = int(getattr(task, "candidates", 1))
    made = [_tried(found, one_partner(task), ((),), rounds)]
    fewest = min(group.group.crowd for group in found.groups)
    for count in sorted({*COUNTS, own}):
        if count <= fewest:
            listed = tasks.from_params({**task.params(), "candidates": count})
            made.append(_tried(_again(found, listed), listed, FORECAST_ASKS, rounds))
    return [one for several in made for one in several]


def _again(found: Plan, task: tasks.Task) -> Plan:
    """Plan anew where answers to corrupted people expose others: more candidates, more of them."""
    if not any(group.group.corrupted for group in found.groups):
        return found
    asked = {group.name: group.group for group in found.groups}
    goal = "mean" if found.goal == "task" else found.goal
    prior = found.groups[0].prior
    return plan(asked, epsilon=found.epsilon, delta=found.delta, goal=goal, task=task, prior=prior)


def _tried(
    found: Plan, task: tasks.Task, ways: Sequence[tuple[int, ...]], rounds: int
) -> list[Prospect]:
    entropies = [seeded(_SEED + number) for number in range(rounds)]
    figures = np.array([_round(found, task, ways, entropy) for entropy in entropies])
    count = int(getattr(task, "candidates", 1))
    errors = figures.std(axis=0, ddof=1) / math.sqrt(rounds) if rounds > 1 else figures[0] * np.nan
    return [
        Prospect(
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
    """Count what one of the smaller group writes: full lists, and a notice at tag and close."""
    if not asks:
        return 0
    steps = schedule(asks)
    talks = sum(step.kind in {Kind.PLACES, Kind.ASK} for step in steps)
    notices = sum(step.kind in NOTICES for step in steps)
    return count * talks + notices + count * len(asks)


def _round(
    found: Plan, task: tasks.Task, ways: Sequence[tuple[int, ...]], entropy: Entropy
) -> list[tuple[float, ...]]:
    """One crowd: for each way of settling, the share paired, two distances, the share near."""
    box = cast("Box", found.groups[0].group.domain)
    sizes = [group.group.expected or group.group.crowd for group in found.groups]
    shrink = min(1.0, _MOST / max(sizes))
    truth = [
        _people(group, max(2, round(size * shrink)), entropy)
        for group, size in zip(found.groups, sizes, strict=True)
    ]
    drawn = [
        group.best.randomizer.randomize(people, entropy, clamp=True)
        for group, people in zip(found.groups, truth, strict=True)
    ]
    small = int(len(truth[1]) < len(truth[0]))
    few, many = truth[small], truth[1 - small]
    named = _answers(found, task, drawn)[small]
    if not isinstance(named, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers: it has no partners")
    return [_figures(pairs, few, many, box, task) for pairs in _pairs(named, few, many, box, ways)]


def _people(group: Recommendation, count: int, entropy: Entropy) -> Floats:
    box = cast("Box", group.group.domain)
    if group.prior is not None:
        return np.asarray(group.prior.draw(box, count, entropy), dtype=np.float64)
    low, high = np.array(box.lo), np.array(box.hi)
    shares = entropy.uniforms(count * box.dimension).reshape(count, -1)
    return np.asarray(low + shares * (high - low))


def _answers(
    found: Plan, task: tasks.Task, drawn: Sequence[NDArray[np.int64]]
) -> list[tasks.Answers]:
    """Answer reports as the server does."""
    both = list(zip(found.groups, drawn, strict=True))
    estimates = [
        np.asarray(one.best.randomizer.estimate(reports, one.best.how)) for one, reports in both
    ]
    beliefs = None
    if getattr(task, "reads_beliefs", False):
        beliefs = [belief(one.best.randomizer, reports, prior=one.prior) for one, reports in both]
    return tasks.answer(task, estimates, beliefs=beliefs)


def _pairs(
    named: tasks.References, few: Floats, many: Floats, box: Box, ways: Sequence[tuple[int, ...]]
) -> Iterator[Positions]:
    """Give for each way the partner of everybody of the smaller group, or -1."""
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
