"""One person's part in one round over the network: join, wait, collect, write, read.

What is private stays in the ticket, which is stored before anything is sent. A retry sends the
same bytes; whatever fails, no other and no less private way is tried. SPEC section 12.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from coatcheck.errors import Misuse, Refused, TwoFaces, Unavailable
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SignedTerms, settle
from coatcheck.protocol.client import Budget, Inbox, Invitation, Limit, examine, keep_receipt
from coatcheck.protocol.keyfiles import document, read_secret, write_bytes
from coatcheck.protocol.messages import Answer
from coatcheck.protocol.notices import Bulletin, posting_size
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from coatcheck.protocol.trust import Trust
from coatcheck.protocol.witness import check_bulletin
from coatcheck.services.board.view import BoardView
from coatcheck.services.http.client import BULK, Absent, NotTaken, Peers, patiently

_PAUSE: Final = 0.25
_LONGEST: Final = 5.0
_OVER: Final = frozenset({"abandoned"})


@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, where the board is, how many are there."""

    signed: SignedTerms
    board: str
    status: dict[str, Any]


class Visit:
    """One person's part in one round.

    *Guarantee:* the ticket is on the disk before the report leaves, and only its bytes ever leave.

    Attributes:
        url: the round's address at the first shuffler, `http://HOST/rounds/DIGEST`.
        path: where the ticket is kept; if it is there already, the visit goes on from it. The
            terms, the board's address and its last checkpoint are kept beside it.
        ca: a file of certificates to trust instead of the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        path: Path,
        trusted: Trust,
        peers: Peers | None = None,
        offer: Offer | None = None,
        ca: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self.path = path
        self._trusted = trusted
        self._own = peers is None
        self._peers = peers or Peers(ca=ca)
        self._offer = offer
        self._kept = Path(f"{path}.offer")
        self._letters = 0
        self._maybe_sent = False
        self._away = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._own:
            await self._peers.close()

    @property
    def ticket(self) -> Ticket:
        """The ticket, as it is stored."""
        if not self.path.exists():
            raise Misuse(f"there is no ticket at {self.path}: join first")
        return read_ticket(read_secret(self.path))

    async def offer(self, *, patience: float = 0.0) -> Offer:
        """Fetch the terms of the round and where it stands."""
        raw = await patiently(lambda: self._peers.get(self.url), patience)
        try:
            plain = msgspec.json.decode(raw, type=dict[str, Any])
            signed = msgspec.convert(plain["signed"], type=SignedTerms)
            found = Offer(signed, plain["board"].rstrip("/"), plain["status"])
        except (msgspec.MsgspecError, KeyError, AttributeError) as error:
            raise Refused(f"{self.url} is no round of a shuffler: {error}") from None
        self._offer = self._as_first(found)
        return self._offer

    def _as_first(self, found: Offer) -> Offer:
        """Keep the terms and the board that came first: nobody signs for the board's address."""
        first = self._offer or self._stored_offer()
        if first is None:
            return found
        if found.signed.document != first.signed.document:
            raise TwoFaces("the shuffler shows other terms now than before: keep both as proof")
        return Offer(found.signed, first.board, found.status)

    def _stored_offer(self) -> Offer | None:
        """Read what was kept beside the ticket; without a ticket it is of no round."""
        if not self.path.exists() or not self._kept.exists():
            return None
        return msgspec.json.decode(self._kept.read_bytes(), type=Offer)

    async def invitation(self, *, group: str, limit: Limit, patience: float = 30.0) -> Invitation:
        """Check the terms with one's own arithmetic."""
        offer = await self.offer(patience=patience)
        now = int(time.time())
        return await asyncio.to_thread(
            examine, offer.signed, group=group, trusted=self._trusted, limit=limit, now=now
        )

    async def join(
        self,
        value: Any,
        *,
        group: str,
        limit: Limit,
        ledger: Budget | None,
        note: bytes = b"",
        clamp: bool = False,
        token: str = "",
        patience: float = 60.0,
    ) -> Ticket:
        """Take part with a value, or go on after a crash: the stored report is sent again.

        `patience` is for how many seconds a shuffler that is away is asked again.
        """
        invitation = await self.invitation(group=group, limit=limit, patience=patience)
        self.prepare(invitation, value, ledger=ledger, note=note, clamp=clamp)
        return await self.hand_in(invitation.round, token=token, patience=patience)

    def prepare(
        self,
        invitation: Invitation,
        value: Any,
        *,
        ledger: Budget | None,
        note: bytes = b"",
        clamp: bool = False,
    ) -> Ticket:
        """Randomize and seal once, store the ticket, then pay; a stored ticket is only paid for."""
        fresh = not self.path.exists()
        self._maybe_sent = not fresh
        if fresh:
            made = invitation.join(value, ledger=None, note=note, clamp=clamp)
            if self._offer is not None:
                write_bytes(self._kept, document(self._offer), secret=True, replace=True)
            write_bytes(self.path, write_ticket(made), secret=True)
        ticket = self.ticket
        if (ticket.digest, ticket.group) != (invitation.round.digest, invitation.group):
            raise Misuse(
                f"{self.path} is the ticket of another round or group: choose another name"
            )
        try:
            if ledger is not None:
                invitation.pay(ticket, ledger)
        except Refused:
            if fresh:
                self.path.unlink()
                self._kept.unlink(missing_ok=True)
            raise
        return ticket

    async def hand_in(self, round_: Round, *, token: str = "", patience: float = 60.0) -> Ticket:
        """Send the stored bytes until the shuffler has signed for them.

        If an answer was lost and the round closed meanwhile, the report may be in without a
        receipt: the ticket comes back without one, and collecting tells.
        """
        ticket, url = self.ticket, f"{self.url}/uploads"
        if ticket.receipt:
            return ticket
        headers = {"content-type": "application/octet-stream"}
        if token:
            headers["coatcheck-token"] = token

        async def once() -> bytes:
            try:
                return await self._peers.send(url, ticket.upload, headers=headers)
            except NotTaken:
                raise
            except Unavailable:
                self._maybe_sent = True
                raise

        try:
            receipt = await patiently(once, patience)
        except Refused:
            if self._maybe_sent:
                return ticket
            raise
        kept = keep_receipt(ticket, receipt, round_)
        self._store(kept)
        return kept

    async def bulletin(self, *, patience: float) -> Bulletin:
        """Wait for the bulletin, and check that the board shows the same to everybody."""
        await self._known()
        end, pause = time.monotonic() + patience, _PAUSE
        while True:
            found = await self._bulletin()
            if found is not None:
                return found
            if time.monotonic() > end:
                away = f" ({self._away})" if self._away else ""
                raise Unavailable(
                    f"the round is not answered yet{away}: your ticket waits, try later"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, _LONGEST)

    async def collect(self, *, patience: float = 600.0) -> Answer:
        """Wait for the round's answers and open one's own."""
        bulletin = await self.bulletin(patience=patience)
        return client.collect(self.ticket, bulletin, self.round)

    async def write(self, body: bytes, *, to: bytes, patience: float = 60.0) -> None:
        """Write a letter to a partner's contact and post it on the board."""
        await self._known()
        posting, after = client.write(self.ticket, body, to=to, round_=self.round)
        # The ticket first: a counter that was used must never be used again.
        self._store(after)
        headers = {"content-type": "application/octet-stream"}
        url = f"{self._at_board}/letters"
        raw = await patiently(lambda: self._peers.send(url, posting, headers=headers), patience)
        view = self._view()
        try:
            await patiently(lambda: view.check_letter(posting, raw), patience)
        except Unavailable as away:
            raise Unavailable(
                f"the board took your letter; no proof that it shows it yet ({away}): read later"
            ) from None

    async def read(self) -> Inbox:
        """Fetch all letters of the round and read those to oneself; each is read once."""
        await self._known()
        await self._view().follow()
        postings = await self._postings()
        inbox = client.read(self.ticket, postings, self.round)
        self._store(inbox.ticket)
        self._letters += len(postings)
        return inbox

    async def _postings(self) -> list[bytes]:
        """Fetch the letters that are new, page by page; an empty page is the last."""
        size, found = posting_size(self.round), list[bytes]()
        where = f"{self._at_board}/letters"
        while raw := await self._peers.get(f"{where}?since={self._letters + len(found)}"):
            found += [raw[at : at + size] for at in range(0, len(raw), size)]
            if len(found) * size > BULK:
                raise Refused(f"{where} does not end: more letters than {BULK} bytes are not read")
        return found

    @property
    def round(self) -> Round:
        """The round on the terms one joined with."""
        round_ = settle(self._offer_known.signed, trusted=self._trusted)
        if self.path.exists() and self.ticket.digest != round_.digest:
            raise TwoFaces("the shuffler shows other terms now than those you joined on")
        return round_

    @property
    def _at_board(self) -> str:
        return f"{self._offer_known.board}/rounds/{self.round.digest.hex()}"

    @property
    def _offer_known(self) -> Offer:
        if self._offer is None:
            raise Misuse("fetch the offer first")
        return self._offer

    async def _known(self) -> None:
        """Know the terms and the board: from the own disk, so that the shuffler may be gone."""
        self._offer = self._offer or self._stored_offer()
        if self._offer is None:
            await self.offer(patience=30.0)

    async def _bulletin(self) -> Bulletin | None:
        """Fetch the bulletin if it is there; whoever is away is asked again later."""
        self._away = ""
        try:
            raw = await self._peers.get(f"{self._at_board}/bulletin", most=BULK)
            round_ = self.round
            bulletin = await asyncio.to_thread(check_bulletin, raw, round_)
            await self._view().check_bulletin(bulletin)
        except Absent:
            await self._check_alive()
            return None
        except Unavailable as away:
            self._away = str(away)
            return None
        return bulletin

    async def _check_alive(self) -> None:
        """Refuse to wait for a bulletin that will never come."""
        with contextlib.suppress(Unavailable):
            status = (await self.offer()).status
            if status.get("phase") in _OVER:
                raise Refused(
                    "the round was abandoned: too few took part, nothing left the shuffler"
                )

    def _view(self) -> BoardView:
        """The board as it is followed from this ticket, by checkpoints kept beside it."""
        return BoardView(
            self._offer_known.board, round_=self.round, path=self.path, peers=self._peers
        )

    def _store(self, ticket: Ticket) -> None:
        write_bytes(self.path, write_ticket(ticket), secret=True, replace=True)
