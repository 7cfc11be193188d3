"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coatcheck.errors import Equivocation, Malformed, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import (
    SignedTerms,
    check_own_entry,
    countersign,
    read_signed,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.outcomes import OPERATOR, due, outcome_due
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.terms import AdmissionTerms, read_terms
from coatcheck.protocol.ticket import RECEIPT_SIZE, Receipt
from coatcheck.protocol.wire.batches import capacity_of
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services import clock
from coatcheck.services.batch_transfer import BATCHES, hand_on
from coatcheck.services.database_writer import GroupCommit
from coatcheck.services.rounds import RoundService
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.admission import CHALLENGE, TOKEN, admission_of
from coatcheck.services.shuffler.pipeline import release
from coatcheck.services.shuffler.rounds import (
    STEPS,
    Abandonment,
    CrowdCount,
    ShufflerLiveRound,
    ShufflerRoundStatus,
    role_of,
)
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.services.web.connections import FixedReply, Wire, read_body
from coatcheck.services.web.gateway import GATEWAY, Gateway
from coatcheck.services.web.routing import OCTETS, ROUND, Digest, Nothing, Problem, Reply, Route

# HOUSE-DOC services.shuffler.intake: 'The way in: uploads are checked, written in groups, counted, and only then signed for, together.\n\nKnows who uploads and what is sealed to this shuffler; writes neither address nor time down.\nSPEC section 10.\n'
_RECEIPT: Final = FixedReply(201, RECEIPT_SIZE)
_TOLD: Final = {
    Verdict.CONFLICT: Problem("conflict", "other bytes came under this id: re-send your ticket's"),
    Verdict.SPENT: Problem("forbidden", "this token was used for another upload"),
    Verdict.FULL: Problem("full", "the round has all the reports that one batch can carry"),
    Verdict.CLOSED: Problem("closed", "the round takes no more uploads"),
}
_HELD: Final = (Verdict.NEW, Verdict.KNOWN)
_Item = tuple[Shuffler, Upload, bytes]
"""Who signs for an upload, the upload, and its bytes as they came."""


class Intake:
    """Where uploads come in.

    *Guarantee:* a receipt leaves after the upload is on the disk, and was counted there. Also a
    process that stands by takes uploads: the store knows whether the round does.
    """

    def __init__(self, service: "ShufflerService") -> None:
        self._service = service
        self.commits = GroupCommit(self._commit, queue=service.settings.queue)

    async def upload(self, live: ShufflerLiveRound, wire: Wire) -> None:
        """Take an upload: check it, have it written, then acknowledge it with a receipt."""
        scope, receive, send = wire
        raw = await read_body(scope, receive, limit=live.largest)
        role = live.role
        if role is None or not live.holds:
            raise _TOLD[Verdict.CLOSED]
        token = self._service.admission.admit(scope, live.round, hop=live.hop or 0)
        try:
            upload = role.check(raw, now=self._service.clock.now())
        except Malformed:
            raise Problem(
                "malformed", "this is no upload or registration of this round: see its terms"
            ) from None
        except (Refused, Misuse):
            raise Problem("closed", "the round takes no uploads at this time") from None
        if token is not None:
            upload = replace(upload, token=token)
        verdict, receipt = await self.commits.add((role, upload, raw))
        if not receipt:
            raise _why_not(verdict, live)
        clock.reach("shuffler.acknowledge")
        await _RECEIPT.respond(send, receipt)

    # -- in the writer's thread

    def _commit(self, group: list[_Item]) -> list[tuple[Verdict, bytes]]:
        verdicts = self._written([upload for _, upload, _ in group])
        return list(zip(verdicts, _receipts(group, verdicts), strict=True))

    def _written(self, uploads: list[Upload]) -> list[Verdict]:
        begun = time.perf_counter()
        clock.reach("shuffler.upload")
        rounds = self._service.rounds
        named = {upload.digest for upload in uploads} & rounds.keys()
        rooms = {digest: rounds[digest].room for digest in named}
        verdicts = self._service.store.put(uploads, rooms=rooms)
        clock.reach("shuffler.uploaded")
        metrics = self._service.metrics
        metrics.commit.observe(time.perf_counter() - begun)
        metrics.group.observe(len(uploads))
        for verdict in Verdict:
            if count := verdicts.count(verdict):
                metrics.taken.labels(verdict.value).inc(count)
        new = Verdict.NEW  # looked up once: a member of an enumeration is no plain name
        kept = [
            (upload.digest, upload.group)
            for upload, verdict in zip(uploads, verdicts, strict=True)
            if verdict is new
        ]
        for (digest, group), count in Counter(kept).items():
            if digest in rounds:
                rounds[digest].crowd[group] += count  # until all are counted again
        return verdicts


def _why_not(verdict: Verdict, live: ShufflerLiveRound) -> Problem:
    if verdict is Verdict.CLOSED and live.holds:
        # It is being released, and opens again if its crowd was too small.
        return Problem("releasing", "the round is being released: send the same bytes again")
    return _TOLD[verdict]


def _receipts(group: list[_Item], verdicts: list[Verdict]) -> list[bytes]:
    """Sign once per round for what a commit made durable, or found there; nothing for the rest."""
    receipts = [b""] * len(group)
    held: dict[bytes, list[int]] = {}
    for place, ((_, upload, _), verdict) in enumerate(zip(group, verdicts, strict=True)):
        if verdict in _HELD:
            held.setdefault(upload.digest, []).append(place)
    for places in held.values():
        role, _, _ = group[places[0]]
        signed = role.receipts(
            [Receipt.body_of(raw, upload) for _, upload, raw in map(group.__getitem__, places)]
        )
        for place, receipt in zip(places, signed, strict=True):
            receipts[place] = receipt
    return receipts


_REST = 9.0
"""How many times as long as a release took nothing is released again, if it fell short."""
_QUICK = 0.5
"""Seconds that a release may take without a rest after it."""


class Offer(Struct, frozen=True):
    """What a person needs to take part: the terms, and where the round stands."""

    signed: SignedTerms
    status: ShufflerRoundStatus


class ShufflerService(RoundService[ShufflerSettings, ShufflerStore, ShufflerLiveRound]):
    """One shuffler for many rounds."""

    role = "shuffler"
    moves = SHUFFLER_TRANSITIONS
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

    async def list_rounds(self) -> list[ShufflerRoundStatus]:
        """List the rounds."""
        now = self.clock.now()
        return [live.status(now=now) for live in self.listed()]

    def _status(self, live: ShufflerLiveRound) -> ShufflerRoundStatus:
        return live.status(now=self.clock.now())

    async def offer(self, digest: Digest) -> Offer:
        """Give the signed terms of a round and where it stands."""
        live = self.found(digest)
        return Offer(signed=read_signed(live.stored.signed), status=self._status(live))

    async def current(self) -> ShufflerRoundStatus:
        """Give the round that began last of those that take reports here."""
        now = self.clock.now()
        return ShufflerLiveRound.newest(self.rounds.unfinished(), now=now, absent=self.absent)

    async def admits(self) -> AdmissionTerms:
        """Say whom this shuffler admits, as terms state it."""
        return self.admission.terms

    def upload(self, digest: Digest, wire: Wire) -> Awaitable[None]:
        """Hand in a sealed report for a signed receipt; the same bytes are no second report.

        A later shuffler of a cascade takes the registration of a trap here.
        """
        return self.intake.upload(self.found(digest), wire)

    # -- for the server and for the shuffler before

    def batched(self, digest: str) -> tuple[ShufflerLiveRound, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        live = self.found(digest)
        if live.hop is None:
            raise Problem("closed", "the round is over, and its key was taken away")
        if not live.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        return live, live.hop - 1

    async def hear(self, digest: Digest, wire: Wire) -> Nothing:
        """Take the word of a shuffler before that it gave the round up; again, nothing changes."""
        live = self.found(digest)
        raw = await self.receive_end(live, wire, before=live.hop or 0)
        if live.stored.phase in {ShufflerPhase.ABANDONED, ShufflerPhase.ENDED}:
            return Nothing()
        if not SHUFFLER_TRANSITIONS.allows(live.stored.phase, "hear"):
            raise Problem("conflict", "this shuffler has the batch of the round, and goes on")
        await self._move(live, "hear", end=raw)
        return Nothing()

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
            raise Equivocation(f"round {name!r} is already signed with other terms: use a new name")

    async def open_round(self, digest: Digest, body: SignedTerms) -> ShufflerRoundStatus:
        """Open a round on terms that everybody signed."""
        round_ = verify_signatures(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        self._signer(body.document)
        role_of(round_, self.keyring)  # what cannot be led is refused before it is stored
        name = round_.terms.round
        await self._pledge(name, round_.digest)
        fresh = ShufflerRound(round_.digest, name, write_signed(body))
        await self.write(self.store.begin, fresh)
        clock.reach("shuffler.opened")
        await self.refresh()
        return self._status(self.found(digest))

    def _signer(self, document: str) -> KeyPairs:
        """Find this shuffler's key in terms; those of an unknown server are refused."""
        terms = read_terms(document.encode()).terms
        if bytes.fromhex(terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this shuffler does not know the server of these terms")
        mine = [party for party in terms.shufflers if self.keyring.has(party.verifying)]
        if len(mine) != 1:
            raise Problem("refused", "these terms name another shuffler, or this one twice")
        check_own_entry(mine[0], url=self.url, admission=self.admission.terms)
        return self.keyring.of(mine[0].verifying)

    # -- for the operator

    async def crowd(self, digest: Digest) -> CrowdCount:
        """Count the uploads of each group that are on the disk, and how far a release is."""
        live = self.found(digest)
        await self.refresh()
        return CrowdCount(live.counts(), live.stages)

    async def abandon(self, digest: Digest, body: Abandonment) -> ShufflerRoundStatus:
        """Give a round up: nothing of it leaves, and everything of it is forgotten."""
        live = self.found(digest)
        if not body.sure:
            raise Problem("unprocessable", "say sure: true to give the round up for good")
        if not SHUFFLER_TRANSITIONS.allows(live.stored.phase, "abandon"):
            raise Problem("closed", f"the round is {live.stored.phase.value} already")
        await self._give_up(live, "abandon", OPERATOR)
        return self._status(live)

    async def close(self, digest: Digest) -> ShufflerRoundStatus:
        """Close a round whose time is over and whose crowd is there, without waiting for a look."""
        live = self.found(digest)
        if live.stored.phase is ShufflerPhase.OPEN and self.clock.now() < live.round.terms.closes:
            raise Problem("refused", "the terms keep this round open longer: wait, or abandon it")
        if live.stored.phase is ShufflerPhase.OPEN and not self._enough(live):
            raise Problem("refused", "a group is below its minimum crowd: wait, or abandon it")
        await self.advance(live)
        return self._status(live)

    # -- what happens by itself

    async def refresh(self) -> None:
        """Read the rounds again, and count their crowds as all processes took them."""
        await super().refresh()
        for digest, crowd in (await asyncio.to_thread(self.store.crowds)).items():
            if digest in self.rounds and self.rounds[digest].holds:
                self.rounds[digest].crowd = Counter(crowd)

    async def follow(self) -> None:
        """Know the rounds also while another process leads: uploads come in here too."""
        await self.refresh()

    def hold(self, stored: ShufflerRound) -> ShufflerLiveRound:
        """Make a live round of its record."""
        round_ = verify_signatures(read_signed(stored.signed))
        room = capacity_of(round_, self.settings.batch_limit)
        return ShufflerLiveRound(round=round_, stored=stored, keys=self.keyring, room=room)

    async def step(self) -> None:
        """Look at every round that is not over."""
        await super().step()
        self.metrics.waiting.set(self.commits.waiting)

    async def lose(self, live: ShufflerLiveRound) -> None:
        """Give up a round whose key is gone: nobody can open its uploads, or its batch."""
        released = live.stored.phase is ShufflerPhase.RELEASED
        await self._give_up(live, "expire" if released else "abandon", OPERATOR)

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
        if await self._expired(live, late=True):
            return
        if self._enough(live):
            clock.reach("shuffler.close")
            await self._move(live, "close")
            clock.reach("shuffler.closed")
        else:
            await self._expired(live)

    async def _release(self, live: ShufflerLiveRound) -> None:
        if await self._expired(live, late=True):
            return
        begun = time.monotonic()
        if await self.within(due(live.round, (live.hop or 0) + 1), self.work(release, live)):
            await self.done(live, *STEPS["release"])
        elif not await self._expired(live):
            live.short = Counter(live.crowd)
            took = time.monotonic() - begun
            live.rest = time.monotonic() + (took * _REST if took > _QUICK else 0)
            await self._move(live, "reopen")

    async def _deliver(self, live: ShufflerLiveRound) -> None:
        if await self._expired(live, late=True):
            return
        mine = live.round.terms.shufflers[live.hop or 0].verifying
        await hand_on(self, live, to=self._next(live), signer=mine)
        await self._move(live, "forget")

    def _next(self, live: ShufflerLiveRound) -> str:
        """Where the role after this one is: the next shuffler, or the server."""
        terms = live.round.terms
        return [*terms.shufflers, terms.server][(live.hop or 0) + 1].url

    async def _expired(self, live: ShufflerLiveRound, *, late: bool = False) -> bool:
        """Give a round up if its time is over; `late`: only if the next role waits no more."""
        now, role = self.clock.now(), live.role
        reason = role.overdue(now=now) if role and (role.is_late(now=now) or not late) else 0
        if reason:
            await self._give_up(live, "expire", reason)
        return bool(reason)

    async def _give_up(self, live: ShufflerLiveRound, move: str, reason: int) -> None:
        if live.role is None:
            raise Problem("closed", "the round is over already")
        await self._move(live, move, end=live.role.outcome(reason))
        clock.reach("shuffler.abandoned")

    async def _tell(self, live: ShufflerLiveRound) -> None:
        """Hand the signed end to the board, then to the next role, which then need not wait."""
        end = await asyncio.to_thread(self.store.kept, live.round.digest, "end")
        try:
            await self._say(live, end, to=live.round.terms.board.url)
            if self.clock.now() < outcome_due(live.round):  # later it has ended the round itself
                with suppress(Refused):  # it has a batch, or an end already
                    await self._say(live, end, to=self._next(live))
        except Unavailable:
            if not self.is_given_up(live):
                raise
        except Refused:
            if not await self.shown(live) and not self.is_given_up(live):
                raise
        await self._move(live, "tell")

    async def _say(self, live: ShufflerLiveRound, end: bytes, *, to: str) -> None:
        url = f"{to}/rounds/{live.round.digest.hex()}/end"
        clock.reach("shuffler.tell")
        await self.peers.send(url, end, headers={"content-type": OCTETS})
        clock.reach("shuffler.told")

    steps = (
        (ShufflerPhase.OPEN, "close", _close),
        (ShufflerPhase.CLOSED, "release", _release),
        (ShufflerPhase.RELEASED, "deliver", _deliver),
        (ShufflerPhase.ABANDONED, "tell", _tell),
    )

    async def _move(self, live: ShufflerLiveRound, move: str, *, end: bytes = b"") -> None:
        self.untidy = True  # until the key is known to be gone too
        call = partial(self.store.move, end=end)
        await self.write(call, live.round.digest, move)
        await self.done(live, *STEPS[move])

    table = (
        Route(
            *("POST", f"{ROUND}/uploads", upload),
            gives=Reply,
            status=201,
            reads=(TOKEN,),
            demands=CHALLENGE,
            relayed=True,
            problems=(401, 403, 409, 425, 429, 507),
        ),
        Route("GET", "/admission", admits),
        Route("GET", "/rounds", list_rounds, problems=(503,)),
        Route("POST", "/rounds", sign, problems=(403, 409, 507)),
        Route("GET", "/rounds/current", current, relayed=True, problems=(404, 503)),
        Route("GET", ROUND, offer, relayed=True),
        Route("PUT", ROUND, open_round, problems=(403, 409, 507)),
        *BATCHES,
        Route("POST", f"{ROUND}/end", hear, problems=(403, 409, 507)),
        Route("GET", f"{ROUND}/crowd", crowd, operator=True),
        Route("POST", f"{ROUND}/abandonment", abandon, operator=True, problems=(409, 507)),
        Route("POST", f"{ROUND}/closing", close, operator=True, problems=(409, 507)),
        *GATEWAY,
    )
