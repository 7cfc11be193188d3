"""The way in: uploads are checked, written in groups, counted, and only then signed for, together.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
SPEC section 10.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.parcels import Upload
from coatcheck.protocol.receipts import RECEIPT_SIZE, Receipt
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.services import faults
from coatcheck.services.commit import GroupCommit
from coatcheck.services.http.connections import Fixed, Wire, read_body
from coatcheck.services.http.problems import Problem
from coatcheck.services.shuffler.rounds import ShufflerLiveRound
from coatcheck.stores.shuffler import Verdict

if TYPE_CHECKING:
    from coatcheck.services.shuffler.service import ShufflerService

_RECEIPT: Final = Fixed(201, RECEIPT_SIZE)
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
            upload = role.vet(raw, now=self._service.clock.now())
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
        faults.reach("shuffler.acknowledge")
        await _RECEIPT.respond(send, receipt)

    # -- in the writer's thread

    def _commit(self, group: list[_Item]) -> list[tuple[Verdict, bytes]]:
        verdicts = self._written([upload for _, upload, _ in group])
        return list(zip(verdicts, _receipts(group, verdicts), strict=True))

    def _written(self, uploads: list[Upload]) -> list[Verdict]:
        begun = time.perf_counter()
        faults.reach("shuffler.upload")
        rounds = self._service.rounds
        named = {upload.digest for upload in uploads} & rounds.keys()
        rooms = {digest: rounds[digest].room for digest in named}
        verdicts = self._service.store.put(uploads, rooms=rooms)
        faults.reach("shuffler.uploaded")
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
