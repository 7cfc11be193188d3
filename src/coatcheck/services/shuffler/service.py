"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import asyncio
import time
from collections import Counter
from functools import partial

from coatcheck.entropy import system
from coatcheck.errors import Fenced, TwoFaces, Unavailable
from coatcheck.protocol.agreement import countersign, read_signed, settle, write_signed
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.shuffler import SECRET_SIZE
from coatcheck.protocol.terms import Round, read_terms
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.http.app import Frame
from coatcheck.services.http.client import Peers
from coatcheck.services.http.connections import Receive, Scope, Send, respond
from coatcheck.services.http.deliveries import check_batch, delivery_headers, read_delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.keyring import Keyring
from coatcheck.services.log import log, place_of
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.intake import Intake
from coatcheck.services.shuffler.jobs import release, release_stored
from coatcheck.services.shuffler.rounds import Live, is_over, made_live, opened
from coatcheck.services.shuffler.routes import ROUTES
from coatcheck.services.workers import Workers
from coatcheck.stores import Gathering, ShufflerStore, shuffler_store

_GRACE = 86_400
"""Seconds that a later shuffler waits for a batch: one before it may have released at the end."""
_REST = 9.0
"""How many times as long as a release took nothing is released again, if it fell short."""
_QUICK = 0.5
"""Seconds that a release may take without a rest after it."""


class ShufflerService:
    """One shuffler for many rounds."""

    def __init__(
        self,
        settings: ShufflerSettings,
        *,
        store: ShufflerStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store or shuffler_store(settings.store_url)
        self.clock = clock or Clock()
        self.keyring = Keyring([settings.path(name) for name in settings.keys])
        self.trusted = settings.trusted_keys()
        self.rounds: dict[bytes, Live] = {}
        self.faulty: set[bytes] = set()
        self._unclean = True
        self.peers = Peers(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = None if settings.store == "memory:" else Workers()
        self.frame = Frame("shuffler", settings, self.store, self.step, self.load)
        self.intake = Intake(
            settings, store=self.store, frame=self.frame, clock=self.clock, rounds=self.rounds
        )
        self.commits = self.intake.commits
        self.frame.loops += [self.commits.run]
        self.frame.endings += [self._end]
        self.frame.serve(ROUTES, self)

    # -- what people and roles ask

    async def upload(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take an upload of a round that is here."""
        await self.intake.upload(self.found(digest), scope, receive, send)

    async def accept(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the batch of the shuffler before; the same one twice is one."""
        live = self.found(digest)
        if live.hop is None:
            raise Problem("closed", "the round is over, and its key was taken away")
        if not live.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        sender = live.round.terms.shufflers[live.hop - 1].verifying
        limit = self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        await asyncio.to_thread(check_batch, raw, live.round, hop=live.hop - 1)
        fence = self.frame.leadership.fence
        if not await asyncio.to_thread(self.store.accept, digest, raw, fence=fence):
            raise Problem("conflict", "another batch of this round came first, and stays")
        await self.refresh()
        await respond(send, 200, b"{}", media=b"application/json")

    async def sign(self, raw: bytes) -> bytes:
        """Counter-sign terms, once a name."""
        signed = read_signed(raw)
        fence = self.frame.leadership.fence
        memory: dict[str, bytes] = {}
        answer = countersign(signed, keys=self._signer(signed.document), pledged=memory)
        ((name, digest),) = memory.items()
        if await asyncio.to_thread(self.store.pledge, name, digest, fence=fence) != digest:
            raise TwoFaces(f"round {name!r} is already signed with other terms: use a new name")
        return write_signed(answer)

    async def open(self, digest: bytes, raw: bytes) -> None:
        """Open a round on terms that everybody signed."""
        signed = read_signed(raw)
        round_ = settle(signed)
        if round_.digest != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        self._signer(signed.document)
        opened(round_, self.keyring)  # what cannot be led is refused before it is stored
        if await asyncio.to_thread(self._pledge, round_) != digest:
            raise TwoFaces("this name is pledged to other terms")
        secret = system().token(SECRET_SIZE)
        fresh = Gathering(digest, round_.terms.round, write_signed(signed), secret)
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.begin, fresh, fence=fence)
        faults.reach("shuffler.opened")
        await self.refresh()

    def _pledge(self, round_: Round) -> bytes:
        fence = self.frame.leadership.fence
        return self.store.pledge(round_.terms.round, round_.digest, fence=fence)

    def _signer(self, document: str) -> KeyPairs:
        """Find the own key in terms, and refuse those of a server that is not known here."""
        terms = read_terms(document.encode()).terms
        if bytes.fromhex(terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this shuffler does not know the server of these terms")
        mine = [party for party in terms.shufflers if self.keyring.has(party.verifying)]
        if len(mine) != 1:
            raise Problem("refused", "these terms name another shuffler, or this one twice")
        keys = self.keyring.of(mine[0].verifying)
        if mine[0].sealing != keys.opening.public_raw.hex():
            raise Problem("refused", "these terms name another sealing key for this shuffler")
        return keys

    # -- what happens by itself

    async def load(self) -> None:
        """Read the rounds, and count their crowds, when this process begins to lead."""
        self.rounds.clear()
        self.faulty.clear()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds again; those that are new are counted."""
        for stored in await asyncio.to_thread(self.store.rounds):
            live = self.rounds.get(stored.digest)
            if live is not None:
                live.update(stored)
                continue
            made = None
            if stored.digest not in self.faulty:
                made = await asyncio.to_thread(self._live, stored)
            if made is not None:
                self.rounds[stored.digest] = made
        await self.intake.recount()
        phases = Counter(live.stored.phase for live in self.rounds.values())
        phases["faulty"] = len(self.faulty)
        for phase in ("open", "closed", "released", "abandoned", "faulty"):
            self.frame.metrics.rounds.labels(phase).set(phases[phase])

    def _live(self, stored: Gathering) -> Live | None:
        """Make a round of its record; what is wrong with one never stops the others."""
        try:
            return made_live(stored, self.keyring, self.store.crowd(stored.digest))
        except (Unavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the other rounds must outlive whatever it is
            self.faulty.add(stored.digest)
            text = "round %s is not led: %s; are all key files listed that its terms name?"
            log.error(text, stored.name, place_of(error))
            return None

    def found(self, digest: bytes) -> Live:
        """Find a round, or say why it is not here."""
        if digest in self.faulty:
            raise Problem("unavailable", "this round needs its operator, who finds why in the log")
        if digest not in self.rounds:
            raise self.frame.absent("this shuffler has no such round")
        return self.rounds[digest]

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.refresh()
        self.frame.metrics.waiting.set(self.commits.waiting)
        for live in list(self.rounds.values()):
            if not is_over(live.stored) and not live.turn.locked():
                self.frame.spawn(partial(self.advance, live))
        if self._unclean:
            await self._clean()

    async def _clean(self) -> None:
        """Take what was forgotten off the disk; what comes meanwhile is for the next look."""
        self._unclean, clean = False, False
        try:
            clean = await asyncio.to_thread(self.store.scrub)
        finally:
            self._unclean = self._unclean or not clean

    async def advance(self, live: Live) -> None:
        """Close, release, deliver or abandon, whatever is due."""
        async with live.turn:
            await self._advance(live)

    async def _advance(self, live: Live) -> None:
        phase, now, terms = live.stored.phase, self.clock.now(), live.round.terms
        if phase == "open" and not live.hop and now >= terms.closes and self.enough(live):
            await self.frame.attempt("close", lambda: self._close(live))
        elif phase == "open" and now >= terms.expires + (_GRACE if live.hop else 0):
            await self.frame.attempt("abandon", lambda: self.abandon(live))
        if live.stored.phase == "closed":
            await self.frame.attempt("release", lambda: self._release(live))
        if live.stored.waiting and time.monotonic() >= live.again:
            done = await self.frame.attempt("deliver", lambda: self._deliver(live))
            live.failed = 0 if done else min(live.failed + 1, 6)
            live.again = time.monotonic() + (0 if done else self.settings.tick * 2**live.failed)

    def enough(self, live: Live) -> bool:
        """Tell whether every group has its crowd, and more than when it last fell short.

        After a long release that fell short the round rests, open for uploads: otherwise rubbish
        that makes up the number would have everything peeled over and over.
        """
        groups = enumerate(live.round.terms.groups)
        full = all(live.crowd[number] >= group.minimum for number, group in groups)
        rested = time.monotonic() >= live.rest or self.clock.now() >= live.round.terms.expires
        return full and live.crowd != live.short and rested

    async def _close(self, live: Live) -> None:
        faults.reach("shuffler.close")
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.close_round, live.round.digest, fence=fence)
        faults.reach("shuffler.closed")
        await self.refresh()

    async def _release(self, live: Live) -> None:
        digest, fence, now = live.round.digest, self.frame.leadership.fence, self.clock.now()
        begun = time.monotonic()
        if self.workers is None:
            job = asyncio.to_thread(release, self.store, self.settings, digest, fence, now)
        else:
            job = self.workers.run(release_stored, self.settings, digest, fence, now)
        if await job:
            self._done("released", live)
        elif not live.hop and now < live.round.terms.expires:
            live.short = Counter(live.crowd)
            took = time.monotonic() - begun
            live.rest = time.monotonic() + (took * _REST if took > _QUICK else 0)
            await asyncio.to_thread(self.store.reopen, digest, fence=fence)
            self._done("reopened", live)
        else:
            await self.abandon(live)
        await self.refresh()

    async def abandon(self, live: Live) -> None:
        """Give a round up: nothing of it leaves, everything of it is forgotten."""
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.abandon, live.round.digest, fence=fence)
        self._done("abandoned", live)
        await self.refresh()

    async def _deliver(self, live: Live) -> None:
        digest, fence = live.round.digest, self.frame.leadership.fence
        raw = await asyncio.to_thread(self.store.batch, digest)
        mine = live.round.terms.shufflers[live.hop or 0].verifying
        headers = delivery_headers(raw, digest=digest, signing=self.keyring.of(mine).signing)
        faults.reach("shuffler.deliver")
        url = f"{self.settings.value(self.settings.next)}/rounds/{digest.hex()}/batch"
        await self.peers.send(url, raw, headers=headers)
        faults.reach("shuffler.delivered")
        await asyncio.to_thread(self.store.forget, digest, fence=fence)
        self._done("delivered", live)
        await self.refresh()

    def _done(self, step: str, live: Live) -> None:
        # Something was forgotten: the disk is looked after until it has forgotten it too.
        self._unclean = True
        self.frame.metrics.steps.labels(step).inc()
        log.info("round %s: %s", live.round.terms.round, step)

    async def _end(self) -> None:
        await self.peers.close()
        if self.workers is not None:
            self.workers.close()
