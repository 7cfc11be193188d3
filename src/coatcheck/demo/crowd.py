"""The crowd of a run: how many people are busy at once, and in which process.

A page has everybody in its own process. The command has a process of people per core.
"""

import asyncio
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from coatcheck.demo.events import Done, Invited, Person
from coatcheck.errors import Misuse, Refused
from coatcheck.services.workers import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from coatcheck.demo.people import People

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
