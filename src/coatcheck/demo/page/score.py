"""The score of a live round: the events that the page is told, and the pace at which they come.

An event is plain data with a `kind`; what the page shows is a fold over all of them, so whoever
comes late is told everything from the beginning. Knows nothing of what the events mean.
"""

import threading
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]


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
