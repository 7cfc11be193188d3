"""People who settle in memory, without seals: everybody's state machine, step by step."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.protocol.settling.exchange import prf
from coatcheck.protocol.settling.rings import Cell, Rings
from coatcheck.protocol.settling.rules import Progress, Settling, least_letter, schedule
from coatcheck.protocol.terms import Round, SettleTerms
from coatcheck.tasks.matching import LeastCostMatching
from support.rounds import SmallRound

DIGEST = bytes(range(32))
LETTER_SIZE = 256
RINGS = Rings((1.2, 2.3, 3.4, 4.5), side=1.0, axes=2)
"""Four rings in the plane, as drafts have them; distances are in cells."""
NEAR = Rings((4.5,), side=1.0, axes=2)


def with_candidates(
    small: SmallRound, settling: SettleTerms, *, most: int, **changes: object
) -> Round:
    """Return a small round whose task gives everybody two lists of at most so many candidates."""
    old = small.round.terms
    params = LeastCostMatching(groups=("riders", "drivers"), candidates=most).params()
    name = str(params.pop("name"))
    work = replace(old.task, name=name, params=params)
    return Round(replace(old, task=work, settle=settling, **changes), small.round.document)


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


def make_person(
    secret: bytes,
    cell: Cell,
    lists: Sequence[Sequence[bytes]],
    *,
    address: bytes,
    asks: Sequence[int] = (),
    asking: bool = False,
    rings: Rings = NEAR,
) -> Settling:
    """Build one person, who only learns who is near if `asks` is empty."""
    return Settling(
        Progress(cell=cell),
        address=address,
        asks=asking,
        lists=lists,
        secret=secret,
        steps=schedule(asks),
        digest=DIGEST,
        rings=rings,
        letter_size=max(LETTER_SIZE, least_letter(rings)),
    )


def make_people(
    lists: Sequence[Sequence[Sequence[int]]],
    *,
    cells: tuple[Sequence[Cell], Sequence[Cell]],
    asks: Sequence[int],
    rings: Rings = RINGS,
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
    first, second = (
        [
            make_person(
                prf(secret, b"person", name),
                cell,
                own,
                address=name,
                asks=asks,
                asking=side == 0,
                rings=rings,
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
    rings: Rings = RINGS,
    entropy: Entropy | int = 0,
) -> list[int]:
    """Settle among honest people; return the partner of each asker, or -1."""
    askers, others = make_people(lists, cells=cells, asks=asks, rings=rings, entropy=entropy)
    run_together([*askers, *others])
    places = {person.address: at for at, person in enumerate(others)}
    return [-1 if asker.partner is None else places[asker.partner] for asker in askers]
