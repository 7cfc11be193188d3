"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import asyncio
import time
from collections import Counter

from coatcheck.entropy import system
from coatcheck.errors import TwoFaces
from coatcheck.protocol.agreement import countersign, read_signed, settle, write_signed
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.shuffler import MOVES, Phase, fresh_state
from coatcheck.protocol.terms import read_terms
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.http.app import Application
from coatcheck.services.http.client import HttpClient
from coatcheck.services.http.connections import Receive, Scope, Send, respond
from coatcheck.services.http.deliveries import check_batch, delivery_headers, read_delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.keyring import Keyring, key_files
from coatcheck.services.rounds import Rounds
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.intake import Intake
from coatcheck.services.shuffler.jobs import release
from coatcheck.services.shuffler.rounds import ShufflerLiveRound, blank_role, live_round
from coatcheck.services.shuffler.routes import ROUTES
from coatcheck.services.workers import Workers
from coatcheck.stores.shuffler import ShufflerRound, ShufflerStore, shuffler_store

_REST = 9.0
"""How many times as long as a release took nothing is released again, if it fell short."""
_QUICK = 0.5
"""Seconds that a release may take without a rest after it."""
_STEPS = {
    "release": ("released", ""),
    "reopen": ("reopened", ""),
    "forget": ("delivered", ""),
    "abandon": ("abandoned", ""),
    "expire": ("abandoned", ", because its crowd did not come in time"),
}
"""How each move is counted and logged."""


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
        self.keyring = Keyring(key_files(settings))
        self.trusted = settings.trusted_keys()
        self._unclean = True
        self.peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = Workers()
        self.app = Application("shuffler", settings, self.store, self.step, self.load)
        self.rounds: Rounds[ShufflerRound, ShufflerLiveRound] = Rounds(
            self.app,
            moves=MOVES,
            read=self.store.rounds,
            hold=self._hold,
            advance=self._advance,
        )
        self.intake = Intake(
            settings, store=self.store, app=self.app, clock=self.clock, rounds=self.rounds
        )
        self.commits = self.intake.commits
        self.app.loops += [self.commits.run]
        self.app.endings += [self._end]
        self.app.serve(ROUTES, self)

    # -- what people and roles ask

    async def upload(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take an upload of a round that is here."""
        await self.intake.upload(self.rounds.found(digest), scope, receive, send)

    async def accept(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the batch of the shuffler before; the same one twice is one."""
        live = self.rounds.found(digest)
        if live.hop is None:
            raise Problem("closed", "the round is over, and its key was taken away")
        if not live.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        sender = live.round.terms.shufflers[live.hop - 1].verifying
        limit = self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        await asyncio.to_thread(check_batch, raw, live.round, hop=live.hop - 1)
        fence = self.app.leadership.fence
        if not await asyncio.to_thread(self.store.accept, digest, raw, fence=fence):
            raise Problem("conflict", "another batch of this round came first, and stays")
        await self.refresh()
        await respond(send, 200, b"{}", media=b"application/json")

    async def sign(self, raw: bytes) -> bytes:
        """Counter-sign terms, once per name."""
        signed = read_signed(raw)
        fence = self.app.leadership.fence
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
        blank_role(round_, self.keyring)  # what cannot be led is refused before it is stored
        name, fence = round_.terms.round, self.app.leadership.fence
        if await asyncio.to_thread(self.store.pledge, name, digest, fence=fence) != digest:
            raise TwoFaces("this name is pledged to other terms")
        secret = bytes(fresh_state(system()).secret)
        fresh = ShufflerRound(digest, name, write_signed(signed), secret=secret)
        await asyncio.to_thread(self.store.begin, fresh, fence=fence)
        faults.reach("shuffler.opened")
        await self.refresh()

    def _signer(self, document: str) -> KeyPairs:
        """Find this shuffler's key in terms; those of an unknown server are refused."""
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
        await self.rounds.load()

    async def refresh(self) -> None:
        """Read the rounds again; those that are new are counted."""
        await self.rounds.refresh()
        await self.intake.recount()

    def _hold(self, stored: ShufflerRound) -> ShufflerLiveRound:
        return live_round(stored, self.keyring, self.store.crowd(stored.digest))

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.rounds.step()
        await self.intake.recount()
        self.app.metrics.waiting.set(self.commits.waiting)
        if self._unclean:
            await self._clean()

    async def _clean(self) -> None:
        """Take what was forgotten off the disk; what comes meanwhile is for the next look."""
        self._unclean, clean = False, False
        try:
            clean = await asyncio.to_thread(self.store.scrub)
        finally:
            self._unclean = self._unclean or not clean

    async def _advance(self, live: ShufflerLiveRound) -> None:
        """Close, release, deliver or give up, whatever is due."""
        if live.stored.phase is Phase.OPEN:
            if self.enough(live):
                await self.app.attempt("close", lambda: self._close(live))
            elif live.role is not None and live.role.expired(now=self.clock.now()):
                await self.app.attempt("abandon", lambda: self._move(live, "expire"))
        if live.stored.phase is Phase.CLOSED:
            await self.app.attempt("release", lambda: self._release(live))
        if live.stored.phase is Phase.RELEASED:
            done = await self.app.attempt("deliver", lambda: self._deliver(live))
            live.tried(done=done, tick=self.settings.tick)

    def enough(self, live: ShufflerLiveRound) -> bool:
        """Tell whether a round can close, and has more than when it last fell short.

        After a long release that fell short the round rests, open for uploads: otherwise rubbish
        that makes up the number would have everything peeled over and over.
        """
        now = self.clock.now()
        if live.role is None or live.role.why_open(now=now, crowd=live.sizes()):
            return False
        rested = time.monotonic() >= live.rest or live.role.expired(now=now)
        return live.crowd != live.short and rested

    async def _close(self, live: ShufflerLiveRound) -> None:
        faults.reach("shuffler.close")
        await self._move(live, "close")
        faults.reach("shuffler.closed")

    async def _release(self, live: ShufflerLiveRound) -> None:
        now, begun = self.clock.now(), time.monotonic()
        given = (self.settings, live.round.digest, self.app.leadership.fence)
        if await self.workers.run_with_store(release, self.store, shuffler_store, *given):
            await self._done(live, "release")
        elif live.role is None or live.role.expired(now=now):
            await self._move(live, "expire")
        else:
            live.short = Counter(live.crowd)
            took = time.monotonic() - begun
            live.rest = time.monotonic() + (took * _REST if took > _QUICK else 0)
            await self._move(live, "reopen")

    async def abandon(self, live: ShufflerLiveRound) -> None:
        """Give a round up: nothing of it leaves, everything of it is forgotten."""
        await self._move(live, "abandon")

    async def _deliver(self, live: ShufflerLiveRound) -> None:
        digest = live.round.digest
        raw = await asyncio.to_thread(self.store.batch, digest)
        mine = live.round.terms.shufflers[live.hop or 0].verifying
        headers = delivery_headers(raw, digest=digest, signing=self.keyring.of(mine).signing)
        faults.reach("shuffler.deliver")
        url = f"{self.settings.value(self.settings.next)}/rounds/{digest.hex()}/batch"
        await self.peers.send(url, raw, headers=headers)
        faults.reach("shuffler.delivered")
        await self._move(live, "forget")

    async def _move(self, live: ShufflerLiveRound, move: str) -> None:
        fence = self.app.leadership.fence
        await asyncio.to_thread(self.store.move, live.round.digest, move, fence=fence)
        await self._done(live, move)

    async def _done(self, live: ShufflerLiveRound, move: str) -> None:
        if move in _STEPS:
            # Something was forgotten: the disk is looked after until it has forgotten it too.
            self._unclean = True
            self.rounds.done(live, *_STEPS[move])
        await self.refresh()

    async def _end(self) -> None:
        await self.peers.close()
        self.workers.close()
