"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import asyncio
import time
from collections import Counter

from coatcheck.entropy import system
from coatcheck.errors import TwoFaces
from coatcheck.protocol.agreement import SignedTerms, countersign, settle, write_signed
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.shuffler import MOVES, Phase, fresh_state
from coatcheck.protocol.terms import read_terms
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.http.problems import Problem
from coatcheck.services.rounds import RoundService
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.intake import Intake
from coatcheck.services.shuffler.jobs import release
from coatcheck.services.shuffler.rounds import ShufflerLiveRound, blank_role, live_round
from coatcheck.services.shuffler.routes import ROUTES
from coatcheck.stores.shuffler import ShufflerRound, ShufflerStore

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


class ShufflerService(RoundService[ShufflerSettings, ShufflerStore, ShufflerLiveRound]):
    """One shuffler for many rounds."""

    role = "shuffler"
    table = ROUTES
    moves = MOVES
    store_type = ShufflerStore

    def __init__(
        self,
        settings: ShufflerSettings,
        *,
        store: ShufflerStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings, store=store, clock=clock)
        self._unclean = True
        self.intake = Intake(self)
        self.commits = self.intake.commits
        self.loops += [self.commits.run]

    # -- what roles ask

    async def sign(self, signed: SignedTerms) -> SignedTerms:
        """Counter-sign terms, once per name."""
        fence = self.leadership.fence
        memory: dict[str, bytes] = {}
        answer = countersign(signed, keys=self._signer(signed.document), pledged=memory)
        ((name, digest),) = memory.items()
        if await asyncio.to_thread(self.store.pledge, name, digest, fence=fence) != digest:
            raise TwoFaces(f"round {name!r} is already signed with other terms: use a new name")
        return answer

    async def open(self, digest: bytes, signed: SignedTerms) -> None:
        """Open a round on terms that everybody signed."""
        round_ = settle(signed)
        if round_.digest != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        self._signer(signed.document)
        blank_role(round_, self.keyring)  # what cannot be led is refused before it is stored
        name, fence = round_.terms.round, self.leadership.fence
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

    async def refresh(self) -> None:
        """Read the rounds again; those that are new are counted."""
        await super().refresh()
        await self.intake.recount()

    def hold(self, stored: ShufflerRound) -> ShufflerLiveRound:
        """Make a live round of its record, and count its crowd."""
        return live_round(stored, self.keyring, self.store.crowd(stored.digest))

    async def step(self) -> None:
        """Look at every round that is not over."""
        await super().step()
        self.metrics.waiting.set(self.commits.waiting)
        if self._unclean:
            await self._clean()

    async def _clean(self) -> None:
        """Take what was forgotten off the disk; what comes meanwhile is for the next look."""
        self._unclean, clean = False, False
        try:
            clean = await asyncio.to_thread(self.store.scrub)
        finally:
            self._unclean = self._unclean or not clean

    async def proceed(self, live: ShufflerLiveRound) -> None:
        """Close, release, deliver or give up, whatever is due."""
        if live.stored.phase is Phase.OPEN:
            if self.enough(live):
                await self.attempt("close", lambda: self._close(live))
            elif live.role is not None and live.role.expired(now=self.clock.now()):
                await self.attempt("abandon", lambda: self._move(live, "expire"))
        if live.stored.phase is Phase.CLOSED:
            await self.attempt("release", lambda: self._release(live))
        if live.stored.phase is Phase.RELEASED:
            done = await self.attempt("deliver", lambda: self._deliver(live))
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
        if await self.work(release, live):
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
        mine = live.round.terms.shufflers[live.hop or 0].verifying
        await self.deliver(live, "batch", to=self.settings.next, signer=mine)
        await self._move(live, "forget")

    async def _move(self, live: ShufflerLiveRound, move: str) -> None:
        fence = self.leadership.fence
        await asyncio.to_thread(self.store.move, live.round.digest, move, fence=fence)
        await self._done(live, move)

    async def _done(self, live: ShufflerLiveRound, move: str) -> None:
        if move in _STEPS:
            # Something was forgotten: the disk is looked after until it has forgotten it too.
            self._unclean = True
            self.done(live, *_STEPS[move])
        await self.refresh()
