"""The score of a live round: who plays, on what stage, and the events that the page is told.

Plain shapes without behaviour, so that the demo's real processes and a test's roles in memory can
both be put on the page. An event is a dict with a `kind`; the page is a fold over all of them.
"""

import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.agreement import SignedTerms
from coatcheck.domain import Box
from coatcheck.drafting import GroupDraft
from coatcheck.server import Opened
from coatcheck.terms import Round

Event = dict[str, Any]
Floats = NDArray[np.float64]


class Play(Protocol):
    """A round to be played: the people, their places, the task and what partners say."""

    @property
    def task(self) -> tasks.Task: ...
    @property
    def drafts(self) -> tuple[GroupDraft, ...]: ...
    @property
    def values(self) -> tuple[Floats, ...]: ...
    @property
    def box(self) -> Box | None: ...
    @property
    def lines(self) -> tuple[str, str]: ...


class Stage(Protocol):
    """The roles as people meet them: real processes on loopback, or objects in a test."""

    @property
    def trusted(self) -> Collection[bytes]: ...
    def open(self, play: Any) -> SignedTerms: ...
    def upload(self, raw: bytes) -> bytes: ...
    def close(self) -> None: ...
    def bulletin(self) -> bytes: ...
    def post(self, posting: bytes) -> None: ...
    def letters(self) -> Sequence[bytes]: ...
    def seen(self, play: Any, round_: Round) -> Sequence[Opened]: ...


class History:
    """Everything that has been told, for whoever comes, in order; safe across threads."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._changed = threading.Condition()

    def tell(self, kind: str, **fields: Any) -> None:
        """Add an event and wake the listeners."""
        with self._changed:
            self._events.append({"kind": kind, **fields})
            self._changed.notify_all()

    def since(self, start: int) -> list[Event]:
        """Return the events from a place on."""
        with self._changed:
            return self._events[start:]

    def wait(self, start: int, *, seconds: float) -> list[Event]:
        """Return the events from a place on, after waiting for one if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > start, timeout=seconds)
            return self._events[start:]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.since(0))


class Pace:
    """How fast people come: played, paused, or step by step, as the page asks."""

    def __init__(self, *, speed: float = 1.0, playing: bool = True) -> None:
        self._changed = threading.Condition()
        self._steps = 0
        self._stopped = False
        self.speed = speed
        self.playing = playing

    def play(self, *, speed: float | None = None) -> None:
        """Go on by itself, perhaps at another speed."""
        with self._changed:
            self.playing, self.speed = True, speed or self.speed
            self._changed.notify_all()

    def pause(self) -> None:
        """Wait before the next step."""
        with self._changed:
            self.playing = False

    def step(self) -> None:
        """Take one step and wait again."""
        with self._changed:
            self.playing, self._steps = False, self._steps + 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Never wait again: the page is closing."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def rest(self, seconds: float) -> bool:
        """Wait as long as the pace asks; returns whether the round is to go on."""
        with self._changed:
            if self.playing:
                self._changed.wait_for(
                    lambda: self._stopped or not self.playing, timeout=seconds / self.speed
                )
            if not self.playing:
                self._changed.wait_for(lambda: self._stopped or self.playing or self._steps > 0)
                self._steps = max(0, self._steps - 1)
            return not self._stopped
