"""The crowd of a run: how many people are busy at once, and in which process.

A page has everybody in its own process. The command has a process of people per core.
"""

import asyncio
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from coatcheck.demo.events import Done, Invited, Person
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.agreement import Trust
from coatcheck.randomizers import Randomizer
from coatcheck.services.local_cluster import PATIENCE
from coatcheck.services.person.letters import RoundLetters, settle
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from coatcheck.services.relay import Pipes
from coatcheck.services.web.client import DOCUMENT, Answered, origin_of
from coatcheck.services.worker_pools import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from coatcheck.protocol.wire.messages import Answer

# HOUSE-DOC demo.household: 'The people of a demo as one household: what everybody may see is fetched once, each checks it.\n\nFour hundred clients on one machine would fetch the same terms, checkpoints, proofs and boards four\nhundred times. Here they share the copy, as a household shares a newspaper: every client checks its\nsignatures and proofs as if it had come alone. What one of them sends, and what is for one of them\nalone, goes as its own sealed request. A person elsewhere has `RelayedClient`, which shares nothing.\n'
_FRESH: Final = 0.5
"""Seconds for which a copy is as good as a fetch."""
_CONNECTIONS: Final = 16


class SharedHttpCache(RelayedClient):
    """Asks roles through a relay, for everybody of a demo.

    *Guarantee:* only documents that are the same for whoever asks are shared.
    """

    def __init__(self, relay: str, *, first: str, trusted: Trust, door: "CachedClient") -> None:
        super().__init__(relay, first=first, trusted=trusted, http=door)
        self._copies: dict[str, tuple[float, asyncio.Task[bytes]]] = {}

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document, or take the copy that somebody fetched a moment ago."""
        if "/letters?" in url:  # these grow all the time, and each feed fetches them once
            return await super().get(url, most=most)
        begun, copy = self._copies.get(url, (0.0, None))
        if copy is None or time.monotonic() - begun > _FRESH or _failed(copy):
            copy = asyncio.ensure_future(super().get(url, most=most))
            self._copies[url] = time.monotonic(), copy
        return await asyncio.shield(copy)


def _failed(copy: "asyncio.Task[bytes]") -> bool:
    return copy.done() and (copy.cancelled() or copy.exception() is not None)


class CachedClient:
    """The way out of the household: a few lean connections on this machine."""

    def __init__(self) -> None:
        self._pipes = Pipes()
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> Answered:
        """Ask once; a refusal is an answer, too."""
        del most  # a pipe has a limit of its own
        origin = origin_of(url)
        async with self._turns:
            path = url[len(origin.url) :] or "/"
            return await self._pipes.exchange(method, origin, path, body, headers=headers or {})

    async def close(self) -> None:
        """Close the connections."""
        await self._pipes.close()


# HOUSE-DOC demo.people: 'Some people of a run, each a client of their own: they join, collect, settle, write and read.\n\nEach one is a `Visit`, the client that ships: it examines the terms with its own arithmetic, joins\nwith system randomness, keeps its ticket in a file, uploads, waits, collects, checks the board and\nwrites. What came of an errand is told as plain data, so that it may come from another process.\n'
_LOOK: Final = 0.1


class Noting:
    """A person's randomizer that remembers the one report it gave, for the page to show."""

    def __init__(self, inner: Randomizer) -> None:
        self._inner = inner
        self.report: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def randomize(self, values: Any, entropy: Any, *, clamp: bool = False) -> Any:
        """Randomize as the inner one does."""
        reports = self._inner.randomize(values, entropy, clamp=clamp)
        self.report = [int(number) for number in reports[0]]
        return reports


class People:
    """People of one round on this process."""

    def __init__(self, invited: Invited) -> None:
        self._invited = invited
        self._door = CachedClient()
        first, trusted = invited.url, invited.trusted
        self.through = SharedHttpCache(invited.relay, first=first, trusted=trusted, door=self._door)
        self._sessions = {who: self._session(who) for who in invited.values}
        self._busy: dict[Person, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[Person, Answer] = {}

    def _session(self, who: Person) -> Session:
        name = f"{self._invited.names[who[0]]}-{who[1]}.ticket"
        path, trusted = self._invited.homes / name, self._invited.trusted
        return Session(self._invited.url, path=path, trusted=trusted, peers=self.through)

    async def close(self) -> None:
        """Close the connections."""
        await self._door.close()

    async def join(self, who: Person) -> Done:
        """Let a person take part."""
        session, name = self._sessions[who], self._invited.names[who[0]]
        limit = self._invited.limit
        invitation = await session.invitation(group=name, limit=limit, patience=PATIENCE)
        noting = Noting(invitation.randomizer)
        mine = replace(invitation, randomizer=cast("Randomizer", noting))
        value = self._invited.values[who]
        await asyncio.to_thread(session.prepare, mine, value, ledger=None, clamp=True)
        ticket = await session.hand_in(invitation.round, patience=PATIENCE)
        return Done(who, ticket=ticket, guarantee=invitation.guarantee, report=noting.report)

    async def collect(self, who: Person) -> Done:
        """Let a person fetch the whole bulletin, check it and open their own entry."""
        answer = await self._sessions[who].collect(patience=PATIENCE)
        self._answers[who] = answer
        return Done(who, answer=answer)

    @cached_property
    def _all_letters(self) -> RoundLetters:
        """The letters of the round, fetched once for everybody here."""
        return next(iter(self._sessions.values())).all_letters()

    async def settle(self, who: Person) -> Done:
        """Let a person settle with their candidates, by letters of their own."""
        session, place = self._sessions[who], self._invited.values[who]
        session.feed = self._all_letters
        words, terms = self._invited.lines[who[0]], session.round.terms.settle
        if terms and terms.asks:  # a partner; else all who are near
            words = ", ".join(f"{number:.5f}" for number in place) + f": {words}"
        side = await settle(session, place, words=words, look=_LOOK)
        written = side.words
        letters = ((one, _text(written.get(one, b""))) for one in side.partners)
        posted = len(self._all_letters.postings)
        return Done(who, partners=side.partners, letters=tuple(letters), posted=posted)

    async def write(self, who: Person) -> Done:
        """Let a person write to their nearest partner."""
        to = self._answers[who].partners[0].contact
        async with self._busy[who]:
            await self._sessions[who].write(self._invited.lines[0].encode(), to=to)
        return Done(who, posted=1)

    async def read(self, who: Person) -> Done:
        """Let a person read what has come, and reply to all that is no reply itself."""
        session, (_, reply) = self._sessions[who], self._invited.lines
        read, posted = [], 0
        async with self._busy[who]:
            for letter in (await session.read()).letters:
                body = _text(letter.body)
                # Not to a reply: two people would write to each other for ever.
                if body != reply:
                    await session.write(reply.encode(), to=letter.sender.raw)
                    posted += 1
                read.append((letter.sender.raw, body))
        return Done(who, letters=tuple(read), posted=posted)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


AT_ONCE: Final = 80
"""How many people are busy at the same moment."""
_ALL_AT_ONCE: Final = ("settle",)  # they wait for each other
_MOST: Final = 4  # processes
Take = Callable[[Done], object]
Make = Callable[[Invited], "People"]


class Here:
    """Everybody in this process; `make` makes people of those who are invited."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.people: People | None = None

    async def invite(self, invited: Invited) -> None:
        """Get people ready for a round."""
        await self.close()
        self.people = self._make(invited)

    async def do(self, errand: str, people: Sequence[Person], done: Take) -> None:
        """Run everybody's errand, and tell what came of each; a failure stops the others."""
        if self.people is None:
            raise Misuse("invite people before they do something")
        run: Callable[[Person], Awaitable[Done]] = getattr(self.people, errand)
        turns = asyncio.Semaphore(len(people) + 1 if errand in _ALL_AT_ONCE else AT_ONCE)

        async def one(who: Person) -> None:
            async with turns:
                done(await run(who))

        try:
            async with asyncio.TaskGroup() as group:
                for who in people:
                    group.create_task(one(who))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def close(self) -> None:
        """Close the connections."""
        if self.people is not None:
            await self.people.close()


class Spread:
    """People over several processes, each with its share of them.

    Made before anything runs side by side in this process, because its processes are copies of it.

    Attributes:
        processes: one per share.
    """

    def __init__(self, make: Make, *, processes: int) -> None:
        self.people = None
        context = multiprocessing.get_context("fork")
        self._lines: list[Connection[Any, Any]] = []
        self.processes = []
        for _ in range(processes):
            line, other = context.Pipe()
            self._lines.append(line)
            process = context.Process(
                target=_live, args=(other, list(self._lines), make), daemon=True
            )
            process.start()
            other.close()
            self.processes.append(process)

    async def invite(self, invited: Invited) -> None:
        """Get everybody ready for a round, each in their process."""
        for number, line in enumerate(self._lines):
            values = {who: invited.values[who] for who in self._share(list(invited.values), number)}
            line.send(replace(invited, values=values))

    def _share(self, people: Sequence[Person], number: int) -> list[Person]:
        return [who for who in people if who[1] % len(self._lines) == number]

    async def do(self, errand: str, people: Sequence[Person], done: Take) -> None:
        """Have everybody's errand run, and tell what came of each; a failure stops the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for number, line in enumerate(self._lines):
                    share = self._share(people, number)
                    group.create_task(_ask(line, (errand, share), done))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()
        for process, line in zip(self.processes, self._lines, strict=True):
            await asyncio.to_thread(process.join)
            line.close()


Crowd = Here | Spread


def spread_over_cores(make: Make) -> Crowd:
    """Spread people over the cores; on a machine with one, or that cannot copy a process, here."""
    if sys.platform != "linux":
        return Here(make)
    cores = min(len(os.sched_getaffinity(0)), _MOST)
    return Spread(make, processes=cores) if cores > 1 else Here(make)


async def _ask(line: "Connection[Any, Any]", errands: Any, done: Take) -> None:
    """Send a process on errands, and take in what it tells until it has ended them."""
    try:
        line.send(errands)
        while (told := await asyncio.to_thread(line.recv)) is not None:
            if isinstance(told, Exception):
                raise told
            done(told)
    except (EOFError, ConnectionError):
        raise Refused("a process of people ended: run the demo again") from None


def _live(
    line: "Connection[Any, Any]", others: "Sequence[Connection[Any, Any]]", make: Make
) -> None:
    """Be a process of people, until the one that started it ends."""
    for other in others:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it says when
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()  # in the middle of an errand too
    with suppress(EOFError, BrokenPipeError):
        asyncio.run(_obey(line, Here(make)))


async def _obey(line: "Connection[Any, Any]", crowd: Here) -> None:
    while True:
        told = await asyncio.to_thread(line.recv)
        if isinstance(told, Invited):
            await crowd.invite(told)
            continue
        errand, people = told
        try:
            await crowd.do(errand, people, line.send)
        except Exception as error:  # noqa: BLE001 - told to the process that asked
            line.send(_sendable(error))
        else:
            line.send(None)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - then in words
        return Refused(f"{type(error).__name__}: {error}")
    return error
