"""The people of a run, each a client of their own, and the processes in which they are.

A person is a `Session`, the client that ships: it checks the terms with its own arithmetic, joins
with system randomness, keeps its ticket in a file, uploads, waits, collects, checks the board and
writes letters. The result of an errand is plain data, so that it may come from another process: the
page has everybody in its own process, the command has one process of people per core.
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
from coatcheck.services.relay import ConnectionPool
from coatcheck.services.web.client import DOCUMENT, HttpAnswer, origin_of
from coatcheck.services.worker_pools import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from coatcheck.protocol.wire.messages import Answer

_LOOK: Final = 0.1


class Noting:
    """A person's randomizer that stores the report it draws, for the page to show."""

    def __init__(self, inner: Randomizer) -> None:
        self._inner = inner
        self.report: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def randomize(self, values: Any, entropy: Any, *, clamp: bool = False) -> Any:
        """Randomize as the inner randomizer does, and store the report."""
        reports = self._inner.randomize(values, entropy, clamp=clamp)
        self.report = [int(number) for number in reports[0]]
        return reports


class People:
    """The people of one round in this process."""

    def __init__(self, invited: Invited) -> None:
        self._invited = invited
        self._http = CachedClient()
        first, trusted = invited.url, invited.trusted
        self.through = SharedHttpCache(invited.relay, first=first, trusted=trusted, http=self._http)
        self._sessions = {person: self._session(person) for person in invited.values}
        self._busy: dict[Person, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[Person, Answer] = {}

    def _session(self, person: Person) -> Session:
        name = f"{self._invited.names[person[0]]}-{person[1]}.ticket"
        path, trusted = self._invited.homes / name, self._invited.trusted
        return Session(self._invited.url, path=path, trusted=trusted, peers=self.through)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def join(self, person: Person) -> Done:
        """Let a person take part."""
        session, name = self._sessions[person], self._invited.names[person[0]]
        limit = self._invited.limit
        invitation = await session.invitation(group=name, limit=limit, patience=PATIENCE)
        noting = Noting(invitation.randomizer)
        noted = replace(invitation, randomizer=cast("Randomizer", noting))
        value = self._invited.values[person]
        await asyncio.to_thread(session.prepare, noted, value, ledger=None, clamp=True)
        ticket = await session.upload(invitation.round, patience=PATIENCE)
        return Done(person, ticket=ticket, guarantee=invitation.guarantee, report=noting.report)

    async def collect(self, person: Person) -> Done:
        """Let a person fetch the whole bulletin, check it and open their entry."""
        answer = await self._sessions[person].collect(patience=PATIENCE)
        self._answers[person] = answer
        return Done(person, answer=answer)

    @cached_property
    def _all_letters(self) -> RoundLetters:
        """The letters of the round, fetched once for everybody here."""
        return next(iter(self._sessions.values())).all_letters()

    async def settle(self, person: Person) -> Done:
        """Let a person settle with their candidates by letter."""
        session, place = self._sessions[person], self._invited.values[person]
        session.letter_source = self._all_letters
        words, terms = self._invited.lines[person[0]], session.round.terms.settle
        if terms and terms.asks:  # with one partner, and not with everybody near
            words = ", ".join(f"{number:.5f}" for number in place) + f": {words}"
        side = await settle(session, place, words=words, look=_LOOK)
        letters = ((partner, _text(side.words.get(partner, b""))) for partner in side.partners)
        posted = len(self._all_letters.postings)
        return Done(person, partners=side.partners, letters=tuple(letters), posted=posted)

    async def write(self, person: Person) -> Done:
        """Let a person write to their nearest partner."""
        to = self._answers[person].partners[0].contact
        async with self._busy[person]:
            await self._sessions[person].write(self._invited.lines[0].encode(), to=to)
        return Done(person, posted=1)

    async def read(self, person: Person) -> Done:
        """Let a person read the new letters, and reply to all that are no replies themselves."""
        session, (_, reply) = self._sessions[person], self._invited.lines
        read, posted = [], 0
        async with self._busy[person]:
            for letter in (await session.read()).letters:
                body = _text(letter.body)
                # No reply to a reply: two people would write to each other for ever.
                if body != reply:
                    await session.write(reply.encode(), to=letter.sender.raw)
                    posted += 1
                read.append((letter.sender.raw, body))
        return Done(person, letters=tuple(read), posted=posted)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


# -- the shared HTTP cache: what everybody may see is fetched once, and each client checks it
#
# Four hundred clients on one machine would fetch the same terms, checkpoints, proofs and boards
# four hundred times. Here they share a copy, as a household shares a newspaper: every client checks
# its signatures and proofs as if it were alone. What a client sends, and what is for one client
# only, goes as its own sealed request. A real person's client, `RelayedClient`, shares nothing.

_FRESH: Final = 0.5
"""Seconds for which a copy is used."""
_CONNECTIONS: Final = 16


class SharedHttpCache(RelayedClient):
    """The requests of all people of a demo through a relay, with a shared cache.

    *Guarantee:* only documents that are the same for every client are shared.
    """

    def __init__(self, relay: str, *, first: str, trusted: Trust, http: "CachedClient") -> None:
        super().__init__(relay, first=first, trusted=trusted, http=http)
        self._copies: dict[str, tuple[float, asyncio.Task[bytes]]] = {}

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document, or return the copy that another client has just fetched."""
        if "/letters?" in url:  # these keep growing, and each process fetches them once
            return await super().get(url, most=most)
        start, copy = self._copies.get(url, (0.0, None))
        if copy is None or time.monotonic() - start > _FRESH or _failed(copy):
            copy = asyncio.ensure_future(super().get(url, most=most))
            self._copies[url] = time.monotonic(), copy
        return await asyncio.shield(copy)


def _failed(copy: "asyncio.Task[bytes]") -> bool:
    return copy.done() and (copy.cancelled() or copy.exception() is not None)


class CachedClient:
    """A few connections on this machine, shared by all clients."""

    def __init__(self) -> None:
        self._pipes = ConnectionPool()
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> HttpAnswer:
        """Send one request; return the answer, whatever its status."""
        del most  # a pipe has a limit of its own
        origin = origin_of(url)
        async with self._turns:
            path = url[len(origin.url) :] or "/"
            return await self._pipes.exchange(method, origin, path, body, headers=headers or {})

    async def close(self) -> None:
        """Close the connections."""
        await self._pipes.close()


# -- crowds: how many people are busy at once, and in which process

AT_ONCE: Final = 80
"""How many people are busy at the same time."""
_ALL_AT_ONCE: Final = ("settle",)  # they wait for each other
_MOST: Final = 4  # processes
Take = Callable[[Done], object]
Make = Callable[[Invited], "People"]


class Here:
    """Everybody in this process; `make` makes the people that are invited."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.people: People | None = None

    async def invite(self, invited: Invited) -> None:
        """Prepare people for a round."""
        await self.close()
        self.people = self._make(invited)

    async def do(self, errand: str, people: Sequence[Person], done: Take) -> None:
        """Run an errand of each person and pass on its result; a failure stops the others."""
        if self.people is None:
            raise Misuse("invite people to a round before they run errands")
        run: Callable[[Person], Awaitable[Done]] = getattr(self.people, errand)
        turns = asyncio.Semaphore(len(people) + 1 if errand in _ALL_AT_ONCE else AT_ONCE)

        async def run_one(person: Person) -> None:
            async with turns:
                done(await run(person))

        try:
            async with asyncio.TaskGroup() as group:
                for person in people:
                    group.create_task(run_one(person))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def close(self) -> None:
        """Close the connections."""
        if self.people is not None:
            await self.people.close()


class Spread:
    """People in several processes, each with a share of them.

    Make it before this process starts threads or tasks, because the processes are forks of it.

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
        """Prepare people for a round, each in their process."""
        for number, line in enumerate(self._lines):
            values = {
                person: invited.values[person]
                for person in self._share(list(invited.values), number)
            }
            line.send(replace(invited, values=values))

    def _share(self, people: Sequence[Person], number: int) -> list[Person]:
        return [person for person in people if person[1] % len(self._lines) == number]

    async def do(self, errand: str, people: Sequence[Person], done: Take) -> None:
        """Have an errand of each person run and pass on its result; a failure stops the others."""
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
    """Return one process of people per core; this one, if there is one core or no fork."""
    if sys.platform != "linux":
        return Here(make)
    cores = min(len(os.sched_getaffinity(0)), _MOST)
    return Spread(make, processes=cores) if cores > 1 else Here(make)


async def _ask(line: "Connection[Any, Any]", errands: Any, done: Take) -> None:
    """Send errands to a process, and take in its results until it has run them all."""
    try:
        line.send(errands)
        while (message := await asyncio.to_thread(line.recv)) is not None:
            if isinstance(message, Exception):
                raise message
            done(message)
    except (EOFError, ConnectionError):
        raise Refused("a process of people has ended; run the demo again") from None


def _live(
    line: "Connection[Any, Any]", others: "Sequence[Connection[Any, Any]]", make: Make
) -> None:
    """Run a process of people, until the process that started it ends."""
    for other in others:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()  # in the middle of an errand too
    with suppress(EOFError, BrokenPipeError):
        asyncio.run(_obey(line, Here(make)))


async def _obey(line: "Connection[Any, Any]", crowd: Here) -> None:
    while True:
        message = await asyncio.to_thread(line.recv)
        if isinstance(message, Invited):
            await crowd.invite(message)
            continue
        errand, people = message
        try:
            await crowd.do(errand, people, line.send)
        except Exception as error:  # noqa: BLE001 - sent to the process that asked
            line.send(_sendable(error))
        else:
            line.send(None)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - sent as text instead
        return Refused(f"{type(error).__name__}: {error}")
    return error
