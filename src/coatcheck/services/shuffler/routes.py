"""The shuffler's HTTP routes: uploads in, one batch out, nothing else ever.

This process knows the clients that upload and what is sealed to this shuffler; it writes down
neither addresses nor times. It acknowledges an upload after it is on the disk. SPEC section 10.
"""

import time
from collections import Counter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coatcheck.errors import Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol.agreement import (
    SignedTerms,
    check_own_entry,
    countersign,
    read_signed,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.outcomes import OPERATOR
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.terms import AdmissionTerms, read_terms
from coatcheck.protocol.ticket import RECEIPT_SIZE, Receipt
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services import clock
from coatcheck.services.batch_transfer import BATCHES
from coatcheck.services.database_writer import GroupCommit
from coatcheck.services.documents import GroupCount, Offer, ShufflerRoundStatus, StageCount
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.admission import CHALLENGE, TOKEN, admission_of
from coatcheck.services.shuffler.rounds import ShufflerLiveRound, ShufflerRounds, shuffler_of
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.services.web.connections import FixedReply, Wire, read_body
from coatcheck.services.web.gateway import GATEWAY, Gateway
from coatcheck.services.web.routing import ROUND, Digest, Nothing, Problem, Reply, Route

_RECEIPT: Final = FixedReply(201, RECEIPT_SIZE)
_REJECTED: Final = {
    Verdict.CONFLICT: Problem(
        "conflict", "this id was used for other bytes; send the bytes that are in your ticket"
    ),
    Verdict.SPENT: Problem("forbidden", "this token was used for another upload"),
    Verdict.FULL: Problem("full", "the round has as many reports as one batch can carry"),
    Verdict.CLOSED: Problem("closed", "the round takes no more uploads"),
}
_STORED: Final = (Verdict.NEW, Verdict.KNOWN)
_Item = tuple[Shuffler, Upload, bytes]
"""The role that signs for an upload, the upload, and its bytes as they came."""


class CrowdCount(Struct, frozen=True):
    """The exact crowd of each group and how far a release is, for the operator."""

    groups: list[GroupCount]
    stages: list[StageCount]


class Abandonment(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the operator is sure."""

    sure: bool


class ShufflerService(ShufflerRounds):
    """One shuffler for many rounds.

    *Guarantee:* a receipt leaves after the upload is on the disk, and was counted there. A standby
    process takes uploads too: the store knows whether the round does.
    """

    def __init__(self, settings: ShufflerSettings, store: ShufflerStore | None = None) -> None:
        super().__init__(settings, store)
        self.gateway = Gateway(self.keyring, self.store.round_keys, clock=self.clock)
        self.admission = admission_of(settings)
        self.commits = GroupCommit(self._write_uploads, queue=settings.queue)
        self.loops += [self.commits.run, self.gateway.run]

    async def step(self) -> None:
        """Take every unfinished round as far as it goes now."""
        await super().step()
        self.metrics.waiting.set(self.commits.waiting)

    # For everybody

    async def list_rounds(self) -> list[ShufflerRoundStatus]:
        """List the rounds."""
        return [self._status(live) for live in self.live_rounds()]

    def _status(self, live: ShufflerLiveRound) -> ShufflerRoundStatus:
        return live.status(now=self.clock.now())

    async def offer(self, digest: Digest) -> Offer:
        """Return the signed terms of a round and where it stands."""
        live = self.live_round(digest)
        return Offer(signed=read_signed(live.stored.signed), status=self._status(live))

    async def current(self) -> ShufflerRoundStatus:
        """Return the round that opened last among those that take reports here."""
        return self._status(self.newest())

    async def admits(self) -> AdmissionTerms:
        """Return whom this shuffler admits, as terms state it."""
        return self.admission.terms

    async def upload(self, digest: Digest, wire: Wire) -> None:
        """Upload a sealed report and get a signed receipt; the same bytes are no second report.

        A later shuffler of a cascade takes the registration of a trap here.
        """
        live = self.live_round(digest)
        scope, receive, send = wire
        raw = await read_body(scope, receive, limit=live.largest)
        role = live.role
        if role is None or not live.holds:
            raise _REJECTED[Verdict.CLOSED]
        token = self.admission.admit(scope, live.round, hop=live.hop or 0)
        try:
            upload = role.check(raw, now=self.clock.now())
        except Malformed:
            raise Problem(
                "malformed", "the body is not an upload or a registration of this round's terms"
            ) from None
        except (Refused, Misuse):
            raise Problem("closed", "the round takes no uploads at this time") from None
        if token is not None:
            upload = replace(upload, token=token)
        verdict, receipt = await self.commits.add((role, upload, raw))
        if not receipt:
            if verdict is Verdict.CLOSED and live.holds and not live.hop:
                # It is being released, and opens again if its crowd was too small.
                raise Problem("releasing", "the round is being released; retry with the same bytes")
            raise _REJECTED[verdict]
        clock.reach("shuffler.acknowledge")
        await _RECEIPT.respond(send, receipt)

    def _write_uploads(self, group: list[_Item]) -> list[tuple[Verdict, bytes]]:
        """Write a group of uploads in the writer's thread; a verdict and a receipt for each."""
        verdicts = self._verdicts([upload for _, upload, _ in group])
        return list(zip(verdicts, _receipts(group, verdicts), strict=True))

    def _verdicts(self, uploads: list[Upload]) -> list[Verdict]:
        started = time.perf_counter()
        clock.reach("shuffler.upload")
        rounds = self.rounds
        digests = {upload.digest for upload in uploads} & rounds.keys()
        capacities = {digest: rounds[digest].capacity for digest in digests}
        verdicts = self.store.put(uploads, capacities=capacities)
        clock.reach("shuffler.uploaded")
        self.metrics.commit.observe(time.perf_counter() - started)
        self.metrics.group.observe(len(uploads))
        for verdict in Verdict:
            if count := verdicts.count(verdict):
                self.metrics.taken.labels(verdict.value).inc(count)
        new = Verdict.NEW  # looked up once: a member of an enumeration is no plain name
        new_uploads = [
            (upload.digest, upload.group)
            for upload, verdict in zip(uploads, verdicts, strict=True)
            if verdict is new
        ]
        for (digest, number), count in Counter(new_uploads).items():
            if digest in rounds:
                rounds[digest].crowd[number] += count  # until all are counted again
        return verdicts

    # For the server and the shuffler before

    async def hear(self, digest: Digest, wire: Wire) -> Nothing:
        """Take the signed outcome of an earlier shuffler; a repetition changes nothing."""
        live = self.live_round(digest)
        raw = await self.receive_outcome(live, wire, before=live.hop or 0)
        if live.stored.phase in {ShufflerPhase.ABANDONED, ShufflerPhase.ENDED}:
            return Nothing()
        if not SHUFFLER_TRANSITIONS.allows(live.stored.phase, "hear"):
            raise Problem("conflict", "this shuffler has the batch of the round, and continues")
        await self.move(live, "hear", end=raw)
        return Nothing()

    async def sign(self, body: SignedTerms) -> SignedTerms:
        """Counter-sign terms of a trusted server, once per name."""
        pledged: dict[str, bytes] = {}
        signed = countersign(body, keys=self._signer(body.document), pledged=pledged)
        ((name, digest),) = pledged.items()
        await self._pledge(name, digest)
        return signed

    async def _pledge(self, name: str, digest: bytes) -> None:
        """Remember which terms are signed under a name; reject other terms of that name."""
        if await self.write(self.store.pledge, name, digest) != digest:
            raise Equivocation(f"round {name!r} is already signed with other terms; use a new name")

    async def open_round(self, digest: Digest, body: SignedTerms) -> ShufflerRoundStatus:
        """Open a round on terms that every role signed."""
        round_ = verify_signatures(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "the terms belong to another round than the address names")
        self._signer(body.document)
        shuffler_of(round_, self.keyring)  # refused here rather than after it is stored
        name = round_.terms.round
        await self._pledge(name, round_.digest)
        await self.write(self.store.begin, ShufflerRound(round_.digest, name, write_signed(body)))
        clock.reach("shuffler.opened")
        await self.refresh()
        return self._status(self.live_round(digest))

    def _signer(self, document: str) -> KeyPairs:
        """Find this shuffler's key in terms, if the terms are of a trusted server."""
        terms = read_terms(document.encode()).terms
        if bytes.fromhex(terms.server.verifying) not in self.trusted:
            raise Problem(
                "forbidden",
                "the server's key is not trusted by this shuffler; its operator can add the key"
                " file to `trusted`",
            )
        own = [party for party in terms.shufflers if self.keyring.has(party.verifying)]
        if len(own) != 1:
            raise Problem(
                "refused", f"the terms must list this shuffler exactly once, found {len(own)}"
            )
        check_own_entry(own[0], url=self.url, admission=self.admission.terms)
        return self.keyring.of(own[0].verifying)

    # For the operator

    async def crowd(self, digest: Digest) -> CrowdCount:
        """Count the uploads of each group on the disk, and the finished parts of a release."""
        live = self.live_round(digest)
        await self.refresh()
        return CrowdCount(live.counts(), live.stages)

    async def abandon(self, digest: Digest, body: Abandonment) -> ShufflerRoundStatus:
        """Abandon a round: nothing of it leaves, and all its uploads are erased."""
        live = self.live_round(digest)
        if not body.sure:
            raise Problem("unprocessable", "`sure` must be true to abandon the round for good")
        if not SHUFFLER_TRANSITIONS.allows(live.stored.phase, "abandon"):
            raise Problem("closed", f"the round is {live.stored.phase.value} already")
        await self.abandon_round(live, "abandon", OPERATOR)
        return self._status(live)

    async def close(self, digest: Digest) -> ShufflerRoundStatus:
        """Close a round at once if its time is over and every group has its minimum crowd."""
        live = self.live_round(digest)
        if live.stored.phase is ShufflerPhase.OPEN and self.clock.now() < live.round.terms.closes:
            raise Problem(
                "refused", "the terms keep this round open until `closes`; wait, or abandon it"
            )
        if live.stored.phase is ShufflerPhase.OPEN and not self.is_ready(live):
            raise Problem("refused", "a group is below its minimum crowd; wait, or abandon it")
        await self.advance(live)
        return self._status(live)

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


def _receipts(group: list[_Item], verdicts: list[Verdict]) -> list[bytes]:
    """Sign once per round for the uploads that the disk has now; no receipt for the others."""
    receipts = [b""] * len(group)
    places_of_round: dict[bytes, list[int]] = {}
    for place, ((_, upload, _), verdict) in enumerate(zip(group, verdicts, strict=True)):
        if verdict in _STORED:
            places_of_round.setdefault(upload.digest, []).append(place)
    for places in places_of_round.values():
        role, _, _ = group[places[0]]
        signed = role.receipts(
            [Receipt.body_of(raw, upload) for _, upload, raw in map(group.__getitem__, places)]
        )
        for place, receipt in zip(places, signed, strict=True):
            receipts[place] = receipt
    return receipts
