"""Settling in memory: everybody's state machine, step by step, without seals.

Knows every place, as a simulation does. A person is anything that speaks and hears as
`protocol.settling.Settling` does, so that tests can put in people who break the rules.

    >>> from coatcheck.simulation.settling import settle
    >>> settle([[0, 1], [0, 1]], cells=([(0,), (9,)], [(8,), (1,)]), asks=(2,))
    [1, 0]
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.protocol.keys import address_of
from coatcheck.protocol.messages import Partner
from coatcheck.protocol.nearness import Nearness, offsets
from coatcheck.protocol.settling import Settling
from coatcheck.protocol.steps import Cell, Progress, cell_of, prf, schedule
from coatcheck.simulation.quality import shorter_side

if TYPE_CHECKING:  # types only: whoever settles a round has simulated it
    from coatcheck.simulation.round import Outcome

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
