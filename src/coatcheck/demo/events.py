"""What is told of a run and to its people, and the pace at which it goes.

An observer of a run is called with the run and an event. Knows nothing of how a run works.
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


# HOUSE-DOC demo.words: 'The promise of a round in one plain line; the guarantee itself says it in full.'
def plain_promise(*, epsilon: float, delta: float, also: str = "") -> str:
    """Say a promise in one line, and what is told besides."""
    factor = f"{math.ceil(100 * math.exp(epsilon)) / 100:,g}"
    told = f"; {also}" if also else ""
    return (
        f"what others see of your report is at most {factor} times as likely as if your"
        f" value were another (ε = {rounded_up(epsilon)}, δ = {delta:g}){told}"
    )


Person = tuple[int, int]
"""A person of the scenario: group and row."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Attributes:
        kind: what happened; the run itself says more.
        who: whom it happened to.
        letters: what that person has read.
        step: what begins with this event, in words; empty if nothing does.
        parts: of how many events the step consists.
    """

    kind: str
    who: Person = (0, 0)
    letters: tuple["Letter", ...] = ()
    step: str = ""
    parts: int = 0


@dataclass(frozen=True)
class Letter:
    """A letter that was read; the sender is None for somebody outside the scenario."""

    sender: Person | None
    reader: Person
    body: str


@dataclass(frozen=True)
class Invited:
    """What people need for a round: where it is, whom they trust, and what they bring.

    Attributes:
        url: the round's address; `relay` is the way to it.
        homes: a folder for everybody's files.
        names: of the groups.
        values: what each person keeps to themselves.
        limit: the most that a round may cost them.
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
    """What came of one person's errand; what it does not tell of is empty.

    Attributes:
        report: the noisy numbers that the person reported.
        partners: contacts of those whom the person settled with.
        letters: what the person read, each with its sender's contact.
        posted: how many letters the person posted, or saw on the board while settling.
    """

    who: Person
    ticket: "Ticket | None" = None
    guarantee: "Guarantee | None" = None
    report: list[int] = field(default_factory=list)
    answer: "Answer | None" = None
    partners: tuple[bytes, ...] = ()
    letters: tuple[tuple[bytes, str], ...] = ()
    posted: int = 0


class Pace:
    """How fast people come: by itself, paused, or step by step, as somebody asks.

    Attributes:
        playing: whether the run goes on by itself.
        waiting: whether the run stands still until somebody asks it to go on.
    """

    def __init__(self, *, speed: float = 1.0) -> None:
        self._changed = asyncio.Event()
        self._steps = 0
        self.speed = speed
        self.playing = True
        self.waiting = False

    def play(self, *, speed: float) -> None:
        """Go on by itself at a speed."""
        self.playing, self.speed = True, speed
        self._wake()

    def pause(self) -> None:
        """Wait before the next step."""
        self.playing = False
        self._wake()

    def step(self) -> None:
        """Take one step and wait again."""
        self.playing, self._steps = False, self._steps + 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def rest(self, seconds: float) -> None:
        """Wait for so many seconds at speed 1, and for as long as the run is paused."""
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
