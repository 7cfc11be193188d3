"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import time
from collections import Counter
from collections.abc import Awaitable

from msgspec import Struct

from coatcheck.errors import TwoFaces
from coatcheck.protocol.agreement import (
    SignedTerms,
    check_entry,
    countersign,
    read_signed,
    settle,
    write_signed,
)
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.shuffler import MOVES, Phase
from coatcheck.protocol.terms import AdmissionTerms, read_terms
from coatcheck.services import faults
from coatcheck.services.http.connections import Wire
from coatcheck.services.http.deliveries import delivery
from coatcheck.services.http.gateway import GATEWAY, Gateway
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import ROUND, Digest, Nothing, Reply, Route
from coatcheck.services.rounds import RoundService
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.admission import TOKEN, admission_of
from coatcheck.services.shuffler.intake import Intake
from coatcheck.services.shuffler.jobs import release
from coatcheck.services.shuffler.rounds import RoundStatus, ShufflerLiveRound, role_of
from coatcheck.stores.shuffler import ShufflerRound, ShufflerStore

_REST = 9.0
"""How many times as long as a release took nothing is released again, if it fell short."""
_QUICK = 0.5
"""Seconds that a release may take without a rest after it."""
_STEPS = {
    "close": ("closed", ""),
    "release": ("released", ""),
    "reopen": ("reopened", ""),
    "forget": ("delivered", ""),
    "abandon": ("abandoned", ""),
    "expire": ("abandoned", ", because its crowd did not come in time"),
}
"""How each move is counted and logged."""


class Offer(Struct, frozen=True):
    """What a person needs to take part: the terms, and where the round stands."""

    signed: SignedTerms
    status: RoundStatus


class Abandonment(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the operator is sure."""

    sure: bool


class ShufflerService(RoundService[ShufflerSettings, ShufflerStore, ShufflerLiveRound]):
    """One shuffler for many rounds."""

    role = "shuffler"
    moves = MOVES
    settings_type = ShufflerSettings
    store_type = ShufflerStore

    def __init__(self, settings: ShufflerSettings, store: ShufflerStore | None = None) -> None:
        super().__init__(settings, store)
        self.gateway = Gateway(self.keyring, clock=self.clock, period=settings.gateway_period)
        self.admission = admission_of(settings)
        self.intake = Intake(self)
        self.commits = self.intake.commits
        self.loops += [self.commits.run]

    # -- for everybody

    async def list_rounds(self) -> list[RoundStatus]:
        """List the rounds."""
        return [live.status() for live in self.rounds.values()]

    async def offer(self, digest: Digest) -> Offer:
        """Give the signed terms of a round and where it stands."""
        live = self.found(digest)
        return Offer(signed=read_signed(live.stored.signed), status=live.status())

    async def admits(self) -> AdmissionTerms:
        """Say whom this shuffler admits, as terms state it."""
        return self.admission.terms

    def upload(self, digest: Digest, wire: Wire) -> Awaitable[None]:
        """Hand in a sealed report for a signed receipt; the same bytes are no second report.

        A later shuffler of a cascade takes the registration of a trap here.
        """
        return self.intake.upload(self.found(digest), wire)

    # -- for the server and for the shuffler before

    async def batch(self, digest: Digest, wire: Wire) -> Nothing:
        """Take the batch of the shuffler before; the same one twice is one."""
        live = self.found(digest)
        if live.hop is None:
            raise Problem("closed", "the round is over, and its key was taken away")
        if not live.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        return await self.receive_batch(live, wire, hop=live.hop - 1)

    async def sign(self, body: SignedTerms) -> SignedTerms:
        """Counter-sign terms of a known server, once per name."""
        memory: dict[str, bytes] = {}
        answer = countersign(body, keys=self._signer(body.document), pledged=memory)
        ((name, digest),) = memory.items()
        await self._pledge(name, digest)
        return answer

    async def _pledge(self, name: str, digest: bytes) -> None:
        """Remember which terms are signed under a name; a second version is refused."""
        if await self.write(self.store.pledge, name, digest) != digest:
            raise TwoFaces(f"round {name!r} is already signed with other terms: use a new name")

    async def open_round(self, digest: Digest, body: SignedTerms) -> RoundStatus:
        """Open a round on terms that everybody signed."""
        round_ = settle(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        self._signer(body.document)
        role_of(round_, self.keyring)  # what cannot be led is refused before it is stored
        name = round_.terms.round
        await self._pledge(name, round_.digest)
        fresh = ShufflerRound(round_.digest, name, write_signed(body))
        await self.write(self.store.begin, fresh)
        faults.reach("shuffler.opened")
        await self.refresh()
        return self.found(digest).status()

    def _signer(self, document: str) -> KeyPairs:
        """Find this shuffler's key in terms; those of an unknown server are refused."""
        terms = read_terms(document.encode()).terms
        if bytes.fromhex(terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this shuffler does not know the server of these terms")
        mine = [party for party in terms.shufflers if self.keyring.has(party.verifying)]
        if len(mine) != 1:
            raise Problem("refused", "these terms name another shuffler, or this one twice")
        check_entry(mine[0], url=self.url, admission=self.admission.terms)
        return self.keyring.of(mine[0].verifying)

    # -- for the operator

    async def abandon(self, digest: Digest, body: Abandonment) -> RoundStatus:
        """Give a round up: nothing of it leaves, and everything of it is forgotten."""
        live = self.found(digest)
        if not body.sure:
            raise Problem("unprocessable", "say sure: true to give the round up for good")
        if not MOVES.allows(live.stored.phase, "abandon"):
            raise Problem("closed", f"the round is {live.stored.phase.value} already")
        await self._move(live, "abandon")
        return live.status()

    async def close(self, digest: Digest) -> RoundStatus:
        """Close a round whose time is over and whose crowd is there, without waiting for a look."""
        live = self.found(digest)
        if live.stored.phase is Phase.OPEN and self.clock.now() < live.round.terms.closes:
            raise Problem("refused", "the terms keep this round open longer: wait, or abandon it")
        if live.stored.phase is Phase.OPEN and not self._enough(live):
            raise Problem("refused", "a group is below its minimum crowd: wait, or abandon it")
        await self.advance(live)
        return live.status()

    # -- what happens by itself

    async def refresh(self) -> None:
        """Read the rounds again; those that are new are counted."""
        await super().refresh()
        await self.intake.recount()

    def hold(self, stored: ShufflerRound) -> ShufflerLiveRound:
        """Make a live round of its record, and count its crowd."""
        round_, crowd = settle(read_signed(stored.signed)), self.store.crowd(stored.digest)
        return ShufflerLiveRound(
            round=round_, stored=stored, keys=self.keyring, crowd=Counter(crowd)
        )

    async def step(self) -> None:
        """Look at every round that is not over."""
        await super().step()
        self.metrics.waiting.set(self.commits.waiting)

    async def lose(self, live: ShufflerLiveRound) -> None:
        """Give up a round whose key is gone: nobody can open its uploads, or its batch."""
        await self._move(live, "expire" if live.stored.phase is Phase.RELEASED else "abandon")

    def _enough(self, live: ShufflerLiveRound) -> bool:
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
        if self._enough(live):
            faults.reach("shuffler.close")
            await self._move(live, "close")
            faults.reach("shuffler.closed")
        elif live.role is not None and live.role.expired(now=self.clock.now()):
            await self._move(live, "expire")

    async def _release(self, live: ShufflerLiveRound) -> None:
        now, begun = self.clock.now(), time.monotonic()
        if await self.work(release, live):
            await self.done(live, *_STEPS["release"])
        elif live.role is None or live.role.expired(now=now):
            await self._move(live, "expire")
        else:
            live.short = Counter(live.crowd)
            took = time.monotonic() - begun
            live.rest = time.monotonic() + (took * _REST if took > _QUICK else 0)
            await self._move(live, "reopen")

    async def _deliver(self, live: ShufflerLiveRound) -> None:
        hop = live.hop or 0
        after = [*live.round.terms.shufflers, live.round.terms.server][hop + 1]
        mine = live.round.terms.shufflers[hop].verifying
        await self.deliver(live, "batch", to=after.url, signer=mine)
        await self._move(live, "forget")

    steps = (
        (Phase.OPEN, "close", _close),
        (Phase.CLOSED, "release", _release),
        (Phase.RELEASED, "deliver", _deliver),
    )

    async def _move(self, live: ShufflerLiveRound, move: str) -> None:
        self.untidy = True  # until the key is known to be gone too
        await self.write(self.store.move, live.round.digest, move)
        await self.done(live, *_STEPS[move])

    table = (
        Route(
            *("POST", f"{ROUND}/uploads", upload),
            gives=Reply,
            status=201,
            reads=(TOKEN,),
            relayed=True,
            problems=(403, 409, 425, 429, 507),
        ),
        Route("GET", "/admission", admits),
        Route("GET", "/rounds", list_rounds, problems=(503,)),
        Route("POST", "/rounds", sign, problems=(403, 409, 507)),
        Route("GET", ROUND, offer, relayed=True),
        Route("PUT", ROUND, open_round, problems=(403, 409, 507)),
        delivery(f"{ROUND}/batch", batch),
        Route("POST", f"{ROUND}/abandonment", abandon, operator=True, problems=(409, 507)),
        Route("POST", f"{ROUND}/closing", close, operator=True, problems=(409, 507)),
        *GATEWAY,
    )
