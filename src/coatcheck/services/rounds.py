"""A role's rounds as its process holds them, and the look at each of them at every tick.

The shuffler and the server share it: what differs is how a record becomes a live round, and what
is due in which phase.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from coatcheck.errors import Fenced, Unavailable
from coatcheck.protocol.moves import Moves
from coatcheck.protocol.terms import Round
from coatcheck.services.http.app import Application
from coatcheck.services.http.problems import Problem
from coatcheck.services.log import log, place_of
from coatcheck.stores.store import R


@dataclass(kw_only=True)
class LiveRound(Generic[R]):
    """A round as this process holds it.

    Attributes:
        stored: the record as it was last read.
        again: when a step that failed is tried again, by the steady clock.
        failed: how often it failed in a row.
        turn: held while the round is advanced: one step at a time.
    """

    round: Round
    stored: R
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def update(self, stored: R) -> None:
        """Take over where the round stands now."""
        self.stored = stored

    @property
    def is_due(self) -> bool:
        """Whether the pause after a failed step is over."""
        return time.monotonic() >= self.again

    def tried(self, *, done: bool, tick: float) -> None:
        """Note how a step ended; each failure doubles the pause, up to 64 ticks."""
        self.failed = 0 if done else min(self.failed + 1, 6)
        self.again = time.monotonic() + (0 if done else tick * 2**self.failed)


L = TypeVar("L", bound=LiveRound[Any])


class Rounds(dict[bytes, L], Generic[R, L]):
    """The live rounds of a role by digest.

    Attributes:
        faulty: rounds that cannot be led, because of their terms or a missing key.
    """

    def __init__(
        self,
        app: Application,
        *,
        moves: Moves[Any],
        read: Callable[[], list[R]],
        hold: Callable[[R], L],
        advance: Callable[[L], Awaitable[None]],
    ) -> None:
        super().__init__()
        self.faulty: set[bytes] = set()
        self._app = app
        self._moves = moves
        self._read = read
        self._hold = hold
        self._advance = advance

    async def load(self) -> None:
        """Read the rounds when this process begins to lead."""
        self.clear()
        self.faulty.clear()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds again, and take up those that are new."""
        for stored in await asyncio.to_thread(self._read):
            if stored.digest in self:
                self[stored.digest].update(stored)
            elif stored.digest not in self.faulty:
                await self._take_up(stored)
        phases = Counter(live.stored.phase.value for live in self.values())
        phases["faulty"] = len(self.faulty)
        for name in (*(phase.value for phase in self._moves.phases), "faulty"):
            self._app.metrics.rounds.labels(name).set(phases[name])

    async def _take_up(self, stored: R) -> None:
        """Make a live round of its record; what is wrong with one never stops the others."""
        try:
            self.setdefault(stored.digest, await asyncio.to_thread(self._hold, stored))
        except (Unavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the other rounds must outlive whatever it is
            self.faulty.add(stored.digest)
            text = "round %s is not led: %s; are all key files listed that its terms name?"
            log.error(text, stored.name, place_of(error))

    def found(self, digest: bytes) -> L:
        """Find a round, or say why it is not here."""
        if digest in self.faulty:
            raise Problem("unavailable", "this round needs its operator, who finds why in the log")
        if digest not in self:
            raise self._app.absent(f"this {self._app.role} has no such round")
        return self[digest]

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.refresh()
        for live in list(self.values()):
            over = self._moves.is_last(live.stored.phase)
            if not over and live.is_due and not live.turn.locked():
                self._app.spawn(partial(self.advance, live))

    async def advance(self, live: L) -> None:
        """Do whatever is due for a round."""
        async with live.turn:
            await self._advance(live)

    def done(self, live: L, step: str, why: str = "") -> None:
        """Count and log a step of a round."""
        self._app.metrics.steps.labels(step).inc()
        log.info("round %s: %s%s", live.round.terms.round, step, why)
