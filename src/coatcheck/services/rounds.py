"""Live rounds, and the service that takes every unfinished one a step further at each tick.

The shuffler and the server share it. They differ in how a stored record becomes a live round, and
in the steps that are due in each phase.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec import Struct

from coatcheck.errors import Error, Fenced, Unavailable
from coatcheck.protocol.log.verification import verify_outcome
from coatcheck.protocol.outcomes import PATIENCE, outcome_due
from coatcheck.protocol.state_machine import Transitions
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.bulletins import heading_size
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services import clock
from coatcheck.services.documents import StageCount
from coatcheck.services.telemetry import log, place_of
from coatcheck.services.web.app import S, Service
from coatcheck.services.web.client import Absent, HttpClient
from coatcheck.services.web.connections import Wire, read_body
from coatcheck.services.web.routing import Problem
from coatcheck.services.worker_pools import (
    JobWorkers,
    check_runner,
    run_by_name,
    run_with_store,
)
from coatcheck.stores.round_store import R, RoundStore, StoredRound


@dataclass(kw_only=True)
class LiveRound(Generic[R]):
    """A round as this process holds it.

    Attributes:
        stored: the record as it was last read.
        again: when a failed step is tried again, by the steady clock.
        failed: how often it failed in a row.
        turn: held while a step of the round runs, so that only one runs at a time.
        progress: how many parts of each stage of a job are done, and how many there are.
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
        """How far the job of the round is."""
        return [StageCount(name, parts, done) for name, (done, parts) in self.progress.items()]

    @property
    def is_due(self) -> bool:
        """Whether the pause after a failed step is over."""
        return time.monotonic() >= self.again

    def tried(self, *, succeeds: bool, tick: float) -> None:
        """Set the pause after a step: none, or after each failure twice as long, up to 64 ticks."""
        self.failed = 0 if succeeds else min(self.failed + 1, 6)
        self.again = time.monotonic() + (0 if succeeds else tick * 2**self.failed)


L = TypeVar("L", bound=LiveRound[Any])


class LiveRounds(dict[bytes, L], Generic[L]):
    """The live rounds of a role by digest, by name and by phase."""

    def __init__(self, moves: Transitions[Any]) -> None:
        super().__init__()
        self._moves = moves
        self._unfinished: dict[bytes, L] = {}
        self._names: dict[str, L] = {}
        self._phases: Counter[Enum] = Counter()

    def take(self, live: L) -> None:
        """Add a round, unless it is here."""
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
        for index in (self._unfinished, self._names, self._phases):
            index.clear()


CLOCK_OFFSET: Final = 60
"""Seconds by which two clocks may differ."""
COMPARING: Final = 60.0
"""Seconds for which a service that starts asks the other roles for their clocks."""
_SOON: Final = 5.0
_WATCH: Final = 1.0
"""Least seconds between two readings of a job's progress."""
_R = TypeVar("_R")


class _Health(Struct, frozen=True):
    """The clock in another role's health document."""

    now: int


T = TypeVar("T", bound=RoundStore[Any, Any])


class RoundService(Service[S, T], Generic[S, T, L]):
    """A service that leads rounds from phase to phase.

    Attributes:
        moves: the role's table of transitions.
        steps: the steps that are due in each phase: the phase, the step's name, and the method.
        rounds: the live rounds.
        faulty: rounds that cannot be loaded, because of their terms or a missing key file.
        untidy: whether there may be a key that no round needs, or a round without its key.
    """

    moves: ClassVar[Transitions[Any]]
    steps: ClassVar[Sequence[tuple[Enum, str, Callable[..., Coroutine[Any, Any, None]]]]]

    def __init__(self, settings: S, store: T | None = None) -> None:
        check_runner(settings)
        super().__init__(settings, store)
        self.rounds: LiveRounds[L] = LiveRounds(self.moves)
        self._read = False
        self._refreshes = 0
        self.faulty: set[bytes] = set()
        self.untidy = True
        self._stages: set[str] = set()
        self.peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = JobWorkers()

    def hold(self, stored: Any) -> L:
        """Make a live round of its record."""
        raise NotImplementedError

    async def load(self) -> None:
        """Read the rounds when this process begins to lead."""
        self.faulty.clear()
        self.untidy, self._read = True, False
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds that may have changed, and load those that are new.

        All of them are read once, then only the unfinished ones. If another refresh ends while this
        one reads, nobody knows which of them has read the newer state: this one reads again.
        """
        while True:
            before = self._refreshes
            if self._read:
                digests = [live.round.digest for live in self.rounds.unfinished()]
                stored_rounds = await asyncio.to_thread(self.store.unfinished, digests)
            else:
                stored_rounds = await asyncio.to_thread(self.store.rounds)
            if self._refreshes == before:
                break
        self._read, self._refreshes = True, before + 1
        number = self._refreshes
        for stored in stored_rounds:
            if number != self._refreshes:
                return
            if stored.digest in self.rounds:
                self.rounds.update_one(stored)
            elif stored.digest not in self.faulty:
                await self._load(stored)
        for phase in self.moves.phases:
            self.metrics.rounds.labels(phase.value).set(self.rounds.count(phase))
        self.metrics.rounds.labels("faulty").set(len(self.faulty))

    async def _load(self, stored: StoredRound[Any]) -> None:
        """Make a live round of its record; an error in one never stops the others."""
        try:
            self.rounds.take(await asyncio.to_thread(self.hold, stored))
        except (Unavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the other rounds must outlive whatever it is
            self.faulty.add(stored.digest)
            log.error(
                "cannot load round %s (%s); check that the settings list every key file that its"
                " terms name",
                stored.name,
                place_of(error),
            )

    def live_round(self, digest: str) -> L:
        """Find a round by its digest in hex, or raise the problem that says why it is not here."""
        raw = bytes.fromhex(digest)
        if raw in self.faulty:
            raise Problem(
                "unavailable",
                "this round cannot be loaded; its operator finds the reason in the log",
            )
        if raw not in self.rounds:
            raise self.absent(f"this {self.role} has no such round")
        return self.rounds[raw]

    def live_rounds(self) -> list[L]:
        """List the rounds; a standby process without any cannot tell that there is none."""
        if not self.rounds:
            self.leadership.check()
        return list(self.rounds.values())

    async def compare(self) -> None:
        """Stop if this clock is wrong, because rounds close, expire and are abandoned by it.

        If this clock disagrees with every role that answers, it is probably this one that is wrong.
        If no role answers for a minute, the rounds go on.
        """
        deadline = time.monotonic() + COMPARING
        while time.monotonic() < deadline and (urls := self._other_roles()):
            answers = await asyncio.gather(*map(self._clock_offset, urls))
            offsets = [offset for offset in answers if offset is not None]
            if offsets and min(map(abs, offsets)) > CLOCK_OFFSET:
                self.fail(
                    f"this clock is {min(offsets, key=abs):+d} s off the clocks of all other roles"
                    " that answer; correct it (NTP), or theirs, and start again"
                )
            if offsets:
                return
            await asyncio.sleep(self.settings.tick)

    def _other_roles(self) -> set[str]:
        """Return the addresses of the other roles in the unfinished rounds."""
        urls = set[str]()
        for terms in (live.round.terms for live in self.rounds.unfinished()):
            urls |= {party.url for party in (terms.server, terms.board, *terms.shufflers)}
        return urls - {self.url}

    async def _clock_offset(self, url: str) -> int | None:
        """Return by how many seconds this clock is ahead of a role's; None without an answer."""
        try:
            raw = await asyncio.wait_for(self.peers.get(f"{url}/healthz"), _SOON)
            wrong = f"{url}/healthz does not state the time"
            health = read_document(raw, _Health, wrong, error=Unavailable)
        except (Error, TimeoutError):
            return None
        offset = self.clock.now() - health.now
        if abs(offset) > CLOCK_OFFSET:
            log.warning("this clock is %+d s off that of %s", offset, url)
        return offset

    async def step(self) -> None:
        """Take every unfinished round as far as it goes now."""
        await self.refresh()
        if self.untidy:
            await self._sweep()
        for live in self.rounds.unfinished():
            if live.is_due and not live.turn.locked():
                self.spawn(partial(self.advance, live))

    async def _sweep(self) -> None:
        """Destroy keys that no round needs, and end the rounds whose key is gone."""
        self.untidy = False
        try:
            for digest in await self.write(self.store.sweep):
                if digest in self.rounds:
                    live = self.rounds[digest]
                    text = "round %s is abandoned: its key in the folder of round keys is gone"
                    log.error(text, live.round.terms.round)
                    await self.lose(live)
            if not await self.attempt("clear", partial(asyncio.to_thread, self.store.clear)):
                self.untidy = True
        except BaseException:
            self.untidy = True
            raise

    async def lose(self, live: L) -> None:
        """End a round whose key is gone."""
        raise NotImplementedError

    async def advance(self, live: L) -> None:
        """Take the steps that are due for a round, phase by phase, until one fails."""
        async with live.turn:
            succeeds, first_phase = True, live.stored.phase
            for phase, name, step in self.steps:
                if succeeds and live.stored.phase is phase:
                    succeeds = await self.attempt(name, partial(step, self, live))
            # A key may be left over, or be what a step did not find.
            self.untidy |= not succeeds or live.stored.phase is not first_phase
            live.tried(succeeds=succeeds, tick=self.settings.tick)

    async def done(self, live: L, step: str, why: str = "") -> None:
        """Count and log a step of a round, and read where the round stands now."""
        self.metrics.steps.labels(step).inc()
        log.info("round %s: %s%s", live.round.terms.round, step, why)
        await self.refresh()

    def batched(self, digest: str) -> tuple[L, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        raise NotImplementedError

    async def receive_outcome(self, live: L, wire: Wire, *, before: int) -> bytes:
        """Read the signed outcome of an earlier shuffler that abandoned the round."""
        scope, receive, _ = wire
        terms = live.round.terms
        limit = heading_size(len(terms.groups), len(terms.shufflers))
        raw = await read_body(scope, receive, limit=limit)
        await asyncio.to_thread(verify_outcome, raw, live.round, before=before)
        clock.reach("end.receive")
        return raw

    async def shown_outcome(self, live: L) -> bytes:
        """Fetch the outcome of the round that the board shows; empty if none."""
        url = f"{live.round.terms.board.url}/rounds/{live.round.digest.hex()}/heading"
        try:
            return await self.peers.get(url)
        except Absent:
            return b""

    def is_too_late(self, live: L) -> bool:
        """Tell whether it is too late to send the board an outcome."""
        return self.clock.now() >= outcome_due(live.round) + PATIENCE

    async def within(self, deadline: int, job: Awaitable[_R]) -> _R:
        """Wait for a job, but not beyond a deadline."""
        try:
            async with asyncio.timeout(max(0, deadline - self.clock.now())):
                return await job
        except TimeoutError:
            raise Unavailable("the step did not finish before the round's deadline") from None

    async def run_in_worker(self, job: str, live: L) -> Any:
        """Run a job of a round, named as `package.module:function`, in a worker.

        The worker opens the store by itself. A store in memory cannot be opened twice: then the
        job runs in a thread, on this store.
        """
        args = (self.settings, live.round.digest, self.leadership.fence)
        if self.settings.store == "memory:":
            return await asyncio.to_thread(run_by_name, job, self.store, *args)
        watcher = asyncio.create_task(self._watch(live))
        try:
            return await self.workers.run(run_with_store, job, self.store_type, *args)
        finally:
            watcher.cancel()
            self._show(live, {})

    async def _watch(self, live: L) -> None:
        """Show how far a job is, by the results that it has stored."""
        while True:
            await asyncio.sleep(max(_WATCH, self.settings.tick))
            with suppress(Error):
                progress = await asyncio.to_thread(self.store.progress, live.round.digest)
                self._show(live, progress)

    def _show(self, live: L, progress: dict[str, tuple[int, int]]) -> None:
        """Export how far the stages of a round are, and log each that moved."""
        for stage, (done, parts) in progress.items():
            if (done, parts) != live.progress.get(stage, (0, parts)):
                log.info("round %s: %s %d of %d", live.round.terms.round, stage, done, parts)
        live.progress = progress
        every = [unfinished.progress for unfinished in self.rounds.unfinished()]
        self._stages |= {stage for of_round in every for stage in of_round}
        for stage in self._stages:
            counts = [(0, 0), *(of_round.get(stage, (0, 0)) for of_round in every)]
            for state, numbers in zip(("done", "all"), zip(*counts, strict=True), strict=True):
                self.metrics.parts.labels(stage, state).set(sum(numbers))

    async def end(self) -> None:
        """Let go of what the service holds."""
        await self.peers.close()
        self.workers.close()
        await super().end()
