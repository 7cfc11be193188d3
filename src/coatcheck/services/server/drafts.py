"""Drafts of terms: computed and signed by a job, once for each of a recurring round's slots.

A recurring round is named after the time at which it begins. A server stores one round per name,
and a shuffler signs one version of it: whatever crashes at which moment, no time has two rounds.
SPEC section 11.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Error, Misuse
from coatcheck.protocol.agreement import propose, write_signed
from coatcheck.protocol.terms import Notary, ShufflerParty, Terms, Title, read_terms, suite_named
from coatcheck.protocol.wire.batches import check_capacity
from coatcheck.services.settings import ScheduleSettings, ServerSettings, keyring_of

_LONGEST: Final = 6
"""The most times that the pause after a failure is doubled."""


def draft(
    settings: ServerSettings,
    plan: dict[str, Any],
    times: tuple[int, int, int],
    *,
    url: str,
    shufflers: Sequence[ShufflerParty],
    board: Notary,
    density: bytes = b"",
) -> bytes:
    """Compute the sizes and promises of a draft and sign the terms as the server. Runs in a worker.

    If a density of people is known, the mechanisms are placed for it, unless that promises less.
    """
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - slow to load

    keys = keyring_of(settings.key_files)

    def terms_for(plan: dict[str, Any]) -> Terms:
        return read_draft(plan).terms(
            suite=suite_named(keys.public.suite),
            server=replace(keys.public, url=url).party,
            shufflers=shufflers,
            board=board,
            times=times,
        )

    try:
        terms = terms_for(plan)
        if density:
            from coatcheck.services.server.task_stage import with_density_prior  # noqa: PLC0415 - as above

            better = terms_for(with_density_prior(plan, density))
            pairs = zip(better.groups, terms.groups, strict=True)
            if all(new.promise.epsilon <= old.promise.epsilon for new, old in pairs):
                terms = better
        signed = propose(terms, keys=keys.current)
    except msgspec.MsgspecError as error:
        raise Misuse(f"the draft makes no terms: {error}") from None
    check_capacity(read_terms(signed.document.encode()), limit=settings.batch_limit)
    return write_signed(signed)


class Slot(Struct, frozen=True):
    """One round of a schedule: its name and its times, in seconds since 1970."""

    name: str
    number: int
    opens: int
    closes: int
    expires: int


class Schedule:
    """The rounds that a server opens by itself, and the pause after a failed attempt."""

    def __init__(self, settings: ServerSettings, table: ScheduleSettings, *, suite: str) -> None:
        self._settings, self._learn = settings, table.learn
        closes = table.every if table.closes is None else table.closes
        expires = closes + table.every if table.expires is None else table.expires
        self._period = _seconds("every", table.every)
        self._closes, self._expires = _seconds("closes", closes), _seconds("expires", expires)
        if self._expires < self._closes:
            raise Misuse("[schedule]: `expires` must not be less than `closes`")
        self.draft = _draft(settings.path(table.draft), len(settings.shufflers), suite=suite)
        self._announce = settings.path(table.announce) if table.announce else None
        self._failed, self._again, self._announced = 0, 0.0, ""

    def due(self, now: int) -> Slot | None:
        """Return the round that should be open now; None if it is too late to join it."""
        number = now // self._period
        opens = number * self._period
        if now >= opens + self._closes or time.monotonic() < self._again:
            return None
        beginning = datetime.fromtimestamp(opens, UTC)
        form = "%Y-%m-%d %H:%M:%S" if beginning.second else "%Y-%m-%d %H:%M"
        name = f"{self.draft['round']} {beginning.strftime(form)}"
        return Slot(name, number, opens, opens + self._closes, opens + self._expires)

    def learns_from(self, slot: Slot) -> bool:
        """Return whether the mechanisms of a round are placed by an earlier round's density."""
        return bool(self._learn and slot.number % self._learn)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Set the pause after an attempt; each failure doubles it, up to 64 ticks."""
        try:
            yield
        except BaseException:
            self._failed = min(self._failed + 1, _LONGEST)
            self._again = time.monotonic() + self._settings.tick * 2**self._failed
            raise
        self._failed = 0

    def announce(self, url: str) -> None:
        """Write the address of the newest round to `announce`, once for each round."""
        if self._announce is not None and url != self._announced:
            write_bytes(self._announce, f"{url}\n".encode(), replace=True)
            self._announced = url


def _seconds(name: str, minutes: float) -> int:
    """Convert minutes to seconds, which must be whole."""
    seconds = round(minutes * 60)
    if seconds < 1 or abs(seconds - minutes * 60) > 1e-6:
        raise Misuse(
            f"[schedule]: `{name}` must be minutes that make whole seconds, got {minutes:g}"
        )
    return seconds


def _draft(path: Path, shufflers: int, *, suite: str) -> dict[str, Any]:
    """Read the draft and compute its promises once, so that a bad draft is refused at the start.

    The numbers of a cascade's traps depend on its keys, and are left to the first round.
    """
    # Slow to load, and only needed where there is a schedule.
    from coatcheck.protocol.drafting import draft_groups, read_draft  # noqa: PLC0415

    try:
        plain = msgspec.json.decode(read_bytes(path), type=dict[str, Any])
        draft = read_draft(plain)
        msgspec.convert(f"{draft.round} 2000-01-01 00:00:00", Title)
        draft_groups(draft.groups, task=draft.task, suite=suite_named(suite), shufflers=shufflers)
    except (msgspec.MsgspecError, Error) as error:
        raise Misuse(f"[schedule]: `draft` {path} makes no round: {error}") from None
    return plain
