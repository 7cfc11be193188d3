"""A role's rounds as its process holds them, by digest, by name and by phase."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from msgspec import Struct

from coatcheck.protocol.moves import Moves
from coatcheck.protocol.terms import Round
from coatcheck.stores.rounds import R


class StageCount(Struct, frozen=True):
    """How many parts a stage of a long step has, and how many of them are done."""

    stage: str
    parts: int
    done: int


@dataclass(kw_only=True)
class LiveRound(Generic[R]):
    """A round as this process holds it.

    Attributes:
        stored: the record as it was last read.
        again: when a step that failed is tried again, by the steady clock.
        failed: how often it failed in a row.
        turn: held while the round is advanced: one step at a time.
        progress: how many parts of each stage of a long step are done, and how many there are.
    """

    round: Round
    stored: R
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)

    def update(self, stored: R) -> None:
        """Take over where the round stands now."""
        self.stored = stored

    @property
    def stages(self) -> list[StageCount]:
        """How far a long step is."""
        return [StageCount(name, parts, done) for name, (done, parts) in self.progress.items()]

    @property
    def is_due(self) -> bool:
        """Whether the pause after a failed step is over."""
        return time.monotonic() >= self.again

    def tried(self, *, done: bool, tick: float) -> None:
        """Note how a step ended; each failure doubles the pause, up to 64 ticks."""
        self.failed = 0 if done else min(self.failed + 1, 6)
        self.again = time.monotonic() + (0 if done else tick * 2**self.failed)


L = TypeVar("L", bound=LiveRound[Any])


class Roster(dict[bytes, L], Generic[L]):
    """The live rounds by digest; whoever asks for the unfinished ones passes no other."""

    def __init__(self, moves: Moves[Any]) -> None:
        super().__init__()
        self._moves = moves
        self._unfinished: dict[bytes, L] = {}
        self._names: dict[str, L] = {}
        self._phases: Counter[Enum] = Counter()

    def take(self, live: L) -> None:
        """Take a round up, unless it is here."""
        if self.setdefault(live.round.digest, live) is live:
            self._names[live.stored.name] = live
            self._place(live)

    def update_one(self, stored: Any) -> None:
        """Take over where a round stands now."""
        live = self[stored.digest]
        self._phases[live.stored.phase] -= 1
        live.update(stored)
        self._place(live)

    def _place(self, live: L) -> None:
        phase, digest = live.stored.phase, live.round.digest
        self._phases[phase] += 1
        if self._moves.is_last(phase):
            self._unfinished.pop(digest, None)
        else:
            self._unfinished[digest] = live

    def unfinished(self) -> list[L]:
        """List the rounds that are not over."""
        return list(self._unfinished.values())

    def named(self, name: object) -> L | None:
        """Find a round by its name."""
        return self._names.get(name) if isinstance(name, str) else None

    def count(self, phase: Enum) -> int:
        """Count the rounds in a phase."""
        return self._phases[phase]

    def clear(self) -> None:
        """Let go of all rounds."""
        super().clear()
        for one in (self._unfinished, self._names, self._phases):
            one.clear()
