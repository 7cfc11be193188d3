"""The rounds of a role, and the look at each that is not over at every tick.

The shuffler and the server share it: what differs is how a record becomes a live round, and what
is due in which phase.
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
from coatcheck.services.telemetry import log, place_of
from coatcheck.services.web.app import S, Service
from coatcheck.services.web.client import Absent, HttpClient
from coatcheck.services.web.connections import Wire, read_body
from coatcheck.services.web.routing import Problem
from coatcheck.services.worker_pools import Workers, check_runner, with_store
from coatcheck.stores.round_store import R, RoundStore, StoredRound


# HOUSE-DOC services.roster: "A role's rounds as its process holds them, by digest, by name and by phase."
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


class LiveRounds(dict[bytes, L], Generic[L]):
    """The live rounds by digest; whoever asks for the unfinished ones passes no other."""

    def __init__(self, moves: Transitions[Any]) -> None:
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


GAP: Final = 60
"""Seconds by which two clocks may differ."""
COMPARING: Final = 60.0
"""Seconds for which the other roles' clocks are asked for."""
_SOON: Final = 5.0
_WATCH: Final = 1.0
"""Seconds at least between two looks at how far a job is."""
_R = TypeVar("_R")


class _Told(Struct, frozen=True):
    """What is read of another role's health."""

    now: int


T = TypeVar("T", bound=RoundStore[Any, Any])


class RoundService(Service[S, T], Generic[S, T, L]):
    """A service that leads rounds from phase to phase.

    Attributes:
        moves: the role's table.
        steps: what is due in which phase: the phase, what the step is called, and the method.
        rounds: the live rounds.
        faulty: rounds that cannot be led, because of their terms or a missing key.
        untidy: whether there may be a key that no round needs, or a round without its key.
    """

    moves: ClassVar[Transitions[Any]]
    steps: ClassVar[Sequence[tuple[Enum, str, Callable[..., Coroutine[Any, Any, None]]]]]

    def __init__(self, settings: S, store: T | None = None) -> None:
        check_runner(settings)
        super().__init__(settings, store)
        self.rounds: LiveRounds[L] = LiveRounds(self.moves)
        self._read = False
        self._looks = self._latest = 0
        self.faulty: set[bytes] = set()
        self.untidy = True
        self._shown: set[str] = set()
        self.peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = Workers()

    def hold(self, stored: Any) -> L:
        """Make a live round of its record."""
        raise NotImplementedError

    async def load(self) -> None:
        """Read the rounds when this process begins to lead."""
        self.faulty.clear()
        self.untidy, self._read = True, False
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds that may have changed, and take up those that are new.

        All of them are read once; then only those that are not over, however many were before.
        What a slow look read counts no more once a look that began later is known.
        """
        self._looks = number = self._looks + 1
        if self._read:
            known = [live.round.digest for live in self.rounds.unfinished()]
            found = await asyncio.to_thread(self.store.under_way, known)
        else:
            found, self._read = await asyncio.to_thread(self.store.rounds), True
        self._latest = max(self._latest, number)
        for stored in found:
            if number < self._latest:
                return
            if stored.digest in self.rounds:
                self.rounds.update_one(stored)
            elif stored.digest not in self.faulty:
                await self._take_up(stored)
        for phase in self.moves.phases:
            self.metrics.rounds.labels(phase.value).set(self.rounds.count(phase))
        self.metrics.rounds.labels("faulty").set(len(self.faulty))

    async def _take_up(self, stored: StoredRound[Any]) -> None:
        """Make a live round of its record; what is wrong with one never stops the others."""
        try:
            self.rounds.take(await asyncio.to_thread(self.hold, stored))
        except (Unavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the other rounds must outlive whatever it is
            self.faulty.add(stored.digest)
            text = "round %s is not led: %s; are all key files listed that its terms name?"
            log.error(text, stored.name, place_of(error))

    def found(self, digest: str) -> L:
        """Find a round by its digest in hex, or say why it is not here."""
        raw = bytes.fromhex(digest)
        if raw in self.faulty:
            raise Problem("unavailable", "this round needs its operator, who finds why in the log")
        if raw not in self.rounds:
            raise self.absent(f"this {self.role} has no such round")
        return self.rounds[raw]

    def listed(self) -> list[L]:
        """List the rounds; a process that stands by and has none yet cannot say that none is."""
        if not self.rounds:
            self.leadership.check()
        return list(self.rounds.values())

    async def compare(self) -> None:
        """Stop if this clock is wrong: rounds close, expire and are abandoned by it.

        Nobody can say which clock is right; if every role that answers disagrees, it is likely this
        one. If none answers for a minute, the rounds go on.
        """
        end = time.monotonic() + COMPARING
        while time.monotonic() < end and (others := self._others()):
            told = await asyncio.gather(*map(self._gap, others))
            gaps = [gap for gap in told if gap is not None]
            if gaps and min(map(abs, gaps)) > GAP:
                self.fail(
                    f"this clock is {min(gaps, key=abs):+d} s off the clocks of all other roles"
                    " that answer: set it right (NTP), or theirs, and start again"
                )
            if gaps:
                return
            await asyncio.sleep(self.settings.tick)

    def _others(self) -> set[str]:
        """Give the addresses of the other roles in the rounds that are not over."""
        terms = [one.round.terms for one in self.rounds.unfinished()]
        return {party.url for of in terms for party in (of.server, of.board, *of.shufflers)} - {
            self.url
        }

    async def _gap(self, url: str) -> int | None:
        """Tell by how many seconds this clock is ahead of another role's; None if it is away."""
        try:
            raw = await asyncio.wait_for(self.peers.get(f"{url}/healthz"), _SOON)
            told = read_document(raw, _Told, f"{url} does not tell the time", error=Unavailable)
        except (Error, TimeoutError):
            return None
        gap = self.clock.now() - told.now
        if abs(gap) > GAP:
            log.warning("this clock is %+d s off that of %s", gap, url)
        return gap

    async def step(self) -> None:
        """Look at every round that is not over."""
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
                    text = "round %s is given up: its key in the folder of round keys is gone"
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
        """Do whatever is due for a round, phase by phase, until a step fails."""
        async with live.turn:
            done, before = True, live.stored.phase
            for phase, name, step in self.steps:
                if done and live.stored.phase is phase:
                    done = await self.attempt(name, partial(step, self, live))
            # A key may be left over, or be what a step did not find.
            self.untidy |= not done or live.stored.phase is not before
            live.tried(done=done, tick=self.settings.tick)

    async def done(self, live: L, step: str, why: str = "") -> None:
        """Count and log a step of a round, and read where the round stands now."""
        self.metrics.steps.labels(step).inc()
        log.info("round %s: %s%s", live.round.terms.round, step, why)
        await self.refresh()

    def batched(self, digest: str) -> tuple[L, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        raise NotImplementedError

    async def receive_end(self, live: L, wire: Wire, *, before: int) -> bytes:
        """Read the word of a shuffler before this role that it gave the round up."""
        scope, receive, _ = wire
        terms = live.round.terms
        limit = heading_size(len(terms.groups), len(terms.shufflers))
        raw = await read_body(scope, receive, limit=limit)
        await asyncio.to_thread(verify_outcome, raw, live.round, before=before)
        clock.reach("end.receive")
        return raw

    async def shown(self, live: L) -> bytes:
        """Ask the board which end of the round it shows; empty if none."""
        url = f"{live.round.terms.board.url}/rounds/{live.round.digest.hex()}/heading"
        try:
            return await self.peers.get(url)
        except Absent:
            return b""

    def is_given_up(self, live: L) -> bool:
        """Tell whether the time is over in which the board is asked to take an end."""
        return self.clock.now() >= outcome_due(live.round) + PATIENCE

    async def within(self, end: int, step: Awaitable[_R]) -> _R:
        """Wait for something that takes long, but not beyond a time."""
        try:
            async with asyncio.timeout(max(0, end - self.clock.now())):
                return await step
        except TimeoutError:
            raise Unavailable("this took longer than the round has time") from None

    async def work(self, job: Callable[..., _R], live: L, *given: Any) -> _R:
        """Run a job on the store in a worker, which opens the store by itself.

        What is in memory cannot be opened twice: then the job runs in a thread, on this store.
        """
        rest = (self.settings, live.round.digest, self.leadership.fence, *given)
        if self.settings.store == "memory:":
            return await asyncio.to_thread(job, self.store, *rest)
        watching = asyncio.create_task(self._watch(live))
        try:
            return await self.workers.run(with_store, job, self.store_type, *rest)
        finally:
            watching.cancel()
            self._show(live, {})

    async def _watch(self, live: L) -> None:
        """Tell how far a long job is, by what it writes down."""
        while True:
            await asyncio.sleep(max(_WATCH, self.settings.tick))
            with suppress(Error):
                found = await asyncio.to_thread(self.store.progress, live.round.digest)
                self._show(live, found)

    def _show(self, live: L, progress: dict[str, tuple[int, int]]) -> None:
        """Show how far the stages of a round are, and log each that moved."""
        for stage, (done, parts) in progress.items():
            if (done, parts) != live.progress.get(stage, (0, parts)):
                log.info("round %s: %s %d of %d", live.round.terms.round, stage, done, parts)
        live.progress = progress
        shown = [one.progress for one in self.rounds.unfinished()]
        for stage in {stage for one in shown for stage in one} | self._shown:
            found = [(0, 0), *(one.get(stage, (0, 0)) for one in shown)]
            for state, numbers in zip(("done", "all"), zip(*found, strict=True), strict=True):
                self.metrics.parts.labels(stage, state).set(sum(numbers))
            self._shown.add(stage)

    async def end(self) -> None:
        """Let go of what the service holds."""
        await self.peers.close()
        self.workers.close()
        await super().end()
