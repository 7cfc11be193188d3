"""A performance: every person of a play takes part as a client of their own, side by side.

Each one is a `Visit`, the client that ships: it examines the terms with its own arithmetic, joins
with system randomness, keeps its ticket in a file, uploads, waits, collects, checks the board and
writes. This file holds everybody's tickets, as only a demo may. SPEC section 12.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from coatcheck.accounting.amplification import Guarantee
from coatcheck.demo.plays import Play
from coatcheck.protocol import client
from coatcheck.protocol.client import Limit
from coatcheck.protocol.messages import Answer
from coatcheck.protocol.notices import Bulletin
from coatcheck.protocol.server import Opened
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import HttpClient
from coatcheck.services.person.visit import Visit

T = TypeVar("T")
AT_ONCE: Final = 80
"""How many people are busy at the same moment."""
WRITERS: Final = 200
"""How many write letters; each reader downloads all of them."""
_PATIENCE: Final = 60.0
_GLANCE: Final = 0.25
_DELTA: Final = 1e-3


class Scene(Protocol):
    """The roles as a performance needs them."""

    @property
    def folder(self) -> Path:
        """Where people keep their tickets."""

    @property
    def trusted(self) -> Trust:
        """The verifying keys that people know from elsewhere."""

    def open(self, play: Play) -> str:
        """Have a round proposed, counter-signed and opened; where people find it."""

    def check(self) -> None:
        """Refuse to go on if a role has ended."""

    def published(self) -> bool:
        """Tell whether the round's answers are on the board."""

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Return what the server saw of each group, which only whoever holds its key can."""


class Watcher(Protocol):
    """Whoever wants to see how far a step is."""

    def begin(self, step: str, total: int) -> None:
        """Start a step of so many parts."""

    def advance(self) -> None:
        """Note that a part is done."""


@dataclass(frozen=True)
class Step:
    """A step of the round and how long it took."""

    name: str
    seconds: float
    people: int = 0


@dataclass(frozen=True)
class Sent:
    """A letter that arrived: from and to whom (group, row), and what it says."""

    sender: tuple[int, int]
    reader: tuple[int, int]
    body: str


@dataclass
class Performance:
    """What happened, from every chair at once."""

    play: Play
    watcher: Watcher
    visits: tuple[tuple[Visit, ...], ...] = ()
    round: Round = field(init=False)
    bulletin: Bulletin = field(init=False)
    guarantees: tuple[Guarantee, ...] = ()
    tickets: tuple[tuple[Ticket, ...], ...] = ()
    answers: tuple[tuple[Answer, ...], ...] = ()
    seen: Sequence[Opened] = ()
    letters: list[Sent] = field(default_factory=list)
    posted: int = 0
    steps: list[Step] = field(default_factory=list)
    whose: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, *, parts: int = 1, people: int = 0) -> Iterator[None]:
        """Show and time what is done inside."""
        self.watcher.begin(name, parts)
        start = time.perf_counter()
        yield
        self.steps.append(Step(name, time.perf_counter() - start, people))

    def partners(self, group: int) -> list[tuple[tuple[int, int], ...]]:
        """Return for each person of a group the partners told of, as (group, row)."""
        return [
            tuple(self.whose[client.address(partner, self.round)] for partner in answer.partners)
            for answer in self.answers[group]
        ]

    def by_group(self, flat: Sequence[T]) -> tuple[tuple[T, ...], ...]:
        """Cut what was done for everybody into groups again."""
        rest = iter(flat)
        return tuple(tuple(next(rest) for _ in rows) for rows in self.play.values)


def perform(play: Play, scene: Scene, *, epsilon: float, watcher: Watcher) -> Performance:
    """Play a round: everybody joins, the roles do their work, everybody collects and writes."""
    show = Performance(play, watcher)
    asyncio.run(_watched(_perform(show, scene, epsilon), scene))
    uploads = [ticket.upload for tickets in show.tickets for ticket in tickets]
    show.seen = scene.seen(uploads, show.round, play)
    return show


async def _watched(whole: Coroutine[Any, Any, None], scene: Scene) -> None:
    """Run it all, and stop as soon as one of the roles has ended."""
    task = asyncio.ensure_future(whole)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_GLANCE)
            scene.check()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _perform(show: Performance, scene: Scene, epsilon: float) -> None:
    people = show.play.people
    with show.step("terms are drafted, signed, counter-signed, opened"):
        url = await asyncio.to_thread(scene.open, show.play)
        show.watcher.advance()
    peers = HttpClient()
    try:
        show.visits = _people(show, scene, url, peers)
        with show.step("people join", parts=people, people=people):
            await _join(show, Limit(epsilon, _DELTA))
        with show.step("the roles shuffle, compute, seal and publish"):
            while not await asyncio.to_thread(scene.published):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_GLANCE / 5)
            show.watcher.advance()
        with show.step("people collect their answers", parts=people, people=people):
            await _collect(show)
        pairs = [(row, told[0]) for row, told in enumerate(show.partners(0)) if told][:WRITERS]
        if pairs:
            await _correspond(show, pairs)
    finally:
        await peers.close()


def _people(
    show: Performance, scene: Scene, url: str, peers: HttpClient
) -> tuple[tuple[Visit, ...], ...]:
    homes = scene.folder / "people"
    homes.mkdir(mode=0o700)
    trusted = scene.trusted
    return tuple(
        tuple(
            Visit(url, path=homes / f"{draft.name}-{row}.ticket", trusted=trusted, peers=peers)
            for row in range(len(values))
        )
        for draft, values in zip(show.play.drafts, show.play.values, strict=True)
    )


async def _side_by_side(errands: Sequence[Coroutine[Any, Any, T]], watcher: Watcher) -> list[T]:
    """Run everybody's errand, so many at a time; a failure stops the others."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def run(errand: Coroutine[Any, Any, T]) -> T:
        async with turns:
            found = await errand
        watcher.advance()
        return found

    tasks = [asyncio.ensure_future(run(errand)) for errand in errands]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for errand in errands:
            errand.close()


async def _join(show: Performance, limit: Limit) -> None:
    drafts = show.play.drafts
    first = [
        await visits[0].invitation(group=draft.name, limit=limit)
        for visits, draft in zip(show.visits, drafts, strict=True)
    ]
    show.round, show.guarantees = first[0].round, tuple(one.guarantee for one in first)
    errands = [
        visit.join(value, group=draft.name, limit=limit, ledger=None, clamp=True)
        for draft, visits, values in zip(drafts, show.visits, show.play.values, strict=True)
        for visit, value in zip(visits, values.tolist(), strict=True)
    ]
    show.tickets = show.by_group(await _side_by_side(errands, show.watcher))
    show.whose = {
        ticket.keys.address: (group, row)
        for group, tickets in enumerate(show.tickets)
        for row, ticket in enumerate(tickets)
    }


async def _collect(show: Performance) -> None:
    """Let everybody fetch the whole bulletin, check it and open their own entry."""
    show.bulletin = await show.visits[0][0].bulletin(patience=_PATIENCE)
    errands = [visit.collect(patience=_PATIENCE) for visits in show.visits for visit in visits]
    show.answers = show.by_group(await _side_by_side(errands, show.watcher))


async def _correspond(show: Performance, pairs: Sequence[tuple[int, tuple[int, int]]]) -> None:
    """Let people of the first group write to their nearest partner, and the partner reply."""
    line, reply = (text.encode() for text in show.play.lines)
    readers = list(dict.fromkeys(partner for _, partner in pairs))

    async def write(row: int) -> None:
        to = show.answers[0][row].partners[0].contact
        await show.visits[0][row].write(line, to=to)
        show.posted += 1

    async def answer(reader: tuple[int, int]) -> None:
        visit = show.visits[reader[0]][reader[1]]
        inbox = await visit.read()
        for letter in inbox.letters:
            show.letters.append(
                Sent(show.whose[letter.sender.address], reader, letter.body.decode())
            )
            # Not to a reply that came in the meantime: two would write to each other for ever.
            if letter.body == line:
                await visit.write(reply, to=letter.sender.raw)
                show.posted += 1

    parts = len(pairs) + len(readers)
    with show.step("letters between partners", parts=parts, people=parts):
        await _side_by_side([write(row) for row, _ in pairs], show.watcher)
        await _side_by_side([answer(reader) for reader in readers], show.watcher)
        hero = await show.visits[0][0].read()
        show.letters += [
            Sent(show.whose[letter.sender.address], (0, 0), letter.body.decode())
            for letter in hero.letters
        ]
