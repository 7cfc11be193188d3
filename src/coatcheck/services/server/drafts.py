"""Recurring rounds: which one is due, and what its draft says. SPEC section 11.

A round is named after the time at which it begins. A server keeps one round per name, and a
shuffler signs one version of it: whatever crashes at which moment, no time has two rounds.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Error, Misuse
from coatcheck.protocol.terms import Title, suite_named
from coatcheck.services.settings import ScheduleSettings, ServerSettings

_LONGEST: Final = 6
"""How often the pause after a failure is doubled at most."""


class Slot(Struct, frozen=True):
    """One round of a schedule: its name and its times, in seconds since 1970."""

    name: str
    number: int
    opens: int
    closes: int
    expires: int


class Schedule:
    """The rounds that a server opens by itself, and the pause after an attempt that failed."""

    def __init__(self, settings: ServerSettings, asked: ScheduleSettings, *, suite: str) -> None:
        self._settings, self._learn = settings, asked.learn
        closes = asked.every if asked.closes is None else asked.closes
        expires = closes + asked.every if asked.expires is None else asked.expires
        self._period = _seconds("every", asked.every)
        self._closes, self._expires = _seconds("closes", closes), _seconds("expires", expires)
        if self._expires < self._closes:
            raise Misuse("[schedule]: a round closes, then expires: make `expires` larger")
        self.draft = _draft(settings.path(asked.draft), len(settings.shufflers), suite=suite)
        self._announce = settings.path(asked.announce) if asked.announce else None
        self._failed, self._again, self._announced = 0, 0.0, ""

    def due(self, now: int) -> Slot | None:
        """Give the round that should be open now; none if there is no time left to join it."""
        number = now // self._period
        opens = number * self._period
        if now >= opens + self._closes or time.monotonic() < self._again:
            return None
        begun = datetime.fromtimestamp(opens, UTC)
        form = "%Y-%m-%d %H:%M:%S" if begun.second else "%Y-%m-%d %H:%M"
        name = f"{self.draft['round']} {begun.strftime(form)}"
        return Slot(name, number, opens, opens + self._closes, opens + self._expires)

    def learns_from(self, slot: Slot) -> bool:
        """Tell whether a round is placed by what an earlier one showed."""
        return bool(self._learn and slot.number % self._learn)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Note how an attempt ends; each failure doubles the pause, up to 64 ticks."""
        try:
            yield
        except BaseException:
            self._failed = min(self._failed + 1, _LONGEST)
            self._again = time.monotonic() + self._settings.tick * 2**self._failed
            raise
        self._failed = 0

    def announce(self, url: str) -> None:
        """Write down where the newest round is, once for each."""
        if self._announce is not None and url != self._announced:
            write_bytes(self._announce, f"{url}\n".encode(), replace=True)
            self._announced = url


def _seconds(name: str, minutes: float) -> int:
    """Read minutes that are a whole number of seconds."""
    found = round(minutes * 60)
    if found < 1 or abs(found - minutes * 60) > 1e-6:
        raise Misuse(f"[schedule]: `{name}` is minutes, in whole seconds: not {minutes:g}")
    return found


def _draft(path: Path, shufflers: int, *, suite: str) -> dict[str, Any]:
    """Read the draft, and compute its promises once: what makes no terms is refused at the start.

    The numbers of a cascade's traps depend on its keys, and are left to the first round.
    """
    # Slow to load, and only needed where there is a schedule.
    from coatcheck.protocol.drafting import draft_groups, read_draft  # noqa: PLC0415

    try:
        plain = msgspec.json.decode(read_bytes(path), type=dict[str, Any])
        made = read_draft(plain)
        msgspec.convert(f"{made.round} 2000-01-01 00:00:00", Title)
        draft_groups(made.groups, task=made.task, suite=suite_named(suite), shufflers=shufflers)
    except (msgspec.MsgspecError, Error) as error:
        raise Misuse(f"[schedule]: `draft`, {path}, makes no round: {error}") from None
    return plain
