"""Events of a run, its pace, the data that people exchange with it, and its one-line promise.

A run calls its observer with itself and an event. This file knows nothing of how a run works.
"""

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coatcheck.accounting.guarantee import rounded_up

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coatcheck.accounting.guarantee import Guarantee
    from coatcheck.protocol.agreement import Trust
    from coatcheck.protocol.client import Limit
    from coatcheck.protocol.ticket import Ticket
    from coatcheck.protocol.wire.messages import Answer


Person = tuple[int, int]
"""A person of the scenario: the number of their group, and their row in it."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Attributes:
        kind: what happened; the run itself holds the details.
        who: the person to whom it happened.
        letters: the letters that the person has read.
        step: the step that begins with this event, in words; empty if none does.
        parts: the number of events in that step.
    """

    kind: str
    person: Person = (0, 0)
    letters: tuple["Letter", ...] = ()
    step: str = ""
    parts: int = 0


@dataclass(frozen=True)
class Letter:
    """A letter that was read; its sender is None if they are not of the scenario."""

    sender: Person | None
    reader: Person
    body: str


@dataclass(frozen=True)
class Invited:
    """What people need to take part in a round.

    Attributes:
        url: the round's address.
        relay: the address of the relay through which they reach it.
        trusted: the keys that they trust.
        homes: a folder for their files.
        names: the names of the groups.
        values: the private value of each person.
        limit: the most that the round may cost a person.
        lines: a letter, and the reply to it.
    """

    url: str
    relay: str
    trusted: "Trust"
    homes: "Path"
    names: tuple[str, ...]
    values: "Mapping[Person, list[float]]"
    limit: "Limit"
    lines: tuple[str, str]


@dataclass(frozen=True)
class Done:
    """The result of one person's errand; a field that the errand does not set is empty.

    Attributes:
        report: the noisy numbers that the person reported.
        partners: the contacts of the people with whom the person settled.
        letters: what the person read, each with its sender's contact.
        posted: how many letters the person posted, or saw on the board while settling.
    """

    person: Person
    ticket: "Ticket | None" = None
    guarantee: "Guarantee | None" = None
    report: list[int] = field(default_factory=list)
    answer: "Answer | None" = None
    partners: tuple[bytes, ...] = ()
    letters: tuple[tuple[bytes, str], ...] = ()
    posted: int = 0


class Pace:
    """The pace of a run, which the page controls: playing, paused, or step by step.

    Attributes:
        playing: whether the run continues by itself.
        waiting: whether the run stands still until the page lets it continue.
    """

    def __init__(self, *, speed: float = 1.0) -> None:
        self._changed = asyncio.Event()
        self._steps = 0
        self.speed = speed
        self.playing = True
        self.waiting = False

    def play(self, *, speed: float) -> None:
        """Let the run continue by itself at a speed."""
        self.playing, self.speed = True, speed
        self._wake()

    def pause(self) -> None:
        """Let the run wait before its next step."""
        self.playing = False
        self._wake()

    def step(self) -> None:
        """Let the run take one step and wait again."""
        self.playing, self._steps = False, self._steps + 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def rest(self, seconds: float) -> None:
        """Wait for a time, given for speed 1, and for as long as the run is paused."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds / self.speed
        while self.playing and (left := end - clock()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        while not self.playing and not self._steps:
            self.waiting = True
            await self._changed.wait()
        self.waiting = False
        if not self.playing:
            self._steps -= 1


def plain_promise(*, epsilon: float, delta: float, also: str = "") -> str:
    """Write a promise in one plain line, with what else others learn."""
    factor = f"{math.ceil(100 * math.exp(epsilon)) / 100:,g}"
    addition = f"; {also}" if also else ""
    return (
        f"what others see of your report is at most {factor} times as likely as if your"
        f" value were another (ε = {rounded_up(epsilon)}, δ = {delta:g}){addition}"
    )
