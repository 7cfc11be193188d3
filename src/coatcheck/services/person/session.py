"""One person's part in one round over the network: join, wait, collect, write, read.

What is private stays in the ticket, which is stored before anything is sent. A retry sends the
same bytes; whatever fails, no other and no less private way is tried. SPEC section 12.

    async with Session(url, path=Path("my.ticket"), trusted=trusted) as session:
        await session.join((31.2, 121.4), group="riders", limit=Limit(1.0, 1e-6), ledger=ledger)
        answer = await session.collect(ledger=ledger)
"""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from coatcheck.durable_files import write_bytes
from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse, Refused, Unavailable
from coatcheck.protocol import client, privacy_pass
from coatcheck.protocol.agreement import SignedTerms, Trust, TrustedTerms, accept
from coatcheck.protocol.client import Budget, Inbox, Invitation, Limit, examine
from coatcheck.protocol.log.verification import VerifiedBulletin
from coatcheck.protocol.outcomes import check_not_overdue, pending_text
from coatcheck.protocol.terms import PrivacyPass, Round, Tokens
from coatcheck.protocol.ticket import Ticket, keep_receipt, keep_registered
from coatcheck.protocol.wire.bulletins import Heading, posting_size
from coatcheck.protocol.wire.encoding import document, read_document
from coatcheck.protocol.wire.messages import Answer
from coatcheck.services.documents import Posted
from coatcheck.services.person.board_view import BoardView, Peers, Retrieval, by_size
from coatcheck.services.person.letters import Feed, LettersFeed, OwnFeed
from coatcheck.services.person.relay_client import (
    RelayedClient,
    drawn,
    kept_relay,
    linger,
    window_of,
)
from coatcheck.services.person.store import TicketFile
from coatcheck.services.web.client import Absent, HttpClient, NotTaken, Wrong, patiently

if TYPE_CHECKING:
    from coatcheck.services.person.board_view import Peers


# HOUSE-DOC services.person.offer: 'The offer of a round: what a shuffler tells to people who may take part.'
@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, and where it stands."""

    signed: SignedTerms
    status: dict[str, Any]


def stored_offer(ticket: Path) -> Offer | None:
    """Read what was kept beside a ticket; without the ticket it is of no round."""
    kept = Path(f"{ticket}.offer")
    if not ticket.exists() or not kept.exists():
        return None
    return read_document(kept.read_bytes(), Offer, f"{kept} is no offer")


def check_place(round_: Round, url: str) -> None:
    """Refuse terms of a round that is elsewhere: they say where everything is asked."""
    if round_.address != url:
        raise Refused(
            f"the terms are of the round at {round_.address}, not at {url}: ask whoever told you"
            " this address for the right one"
        )


# HOUSE-DOC services.person.current: "The current round of a service: a person who knows the first shuffler need not know the round.\n\nIts address is made of the shuffler's address, as the person was told it, and a digest: an answer\nnever sends anybody elsewhere. Asked through the relay, if there is one. SPEC section 12.\n"
class _Newest(Struct, frozen=True):
    """What is read of the answer."""

    digest: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


def service_of(url: str) -> str:
    """Give the address of the service, if this is one and no address of a round; else nothing."""
    bare = url.rstrip("/").removesuffix("/rounds/current")
    return "" if urlsplit(bare).path else bare


async def current_round(
    service: str, *, trusted: Trust, relay: str = "", ca: str = "", patience: float = 30.0
) -> str:
    """Ask a shuffler for its current round, and give the round's address."""
    direct = HttpClient(ca=ca)
    way = RelayedClient(relay, first=service, trusted=trusted, http=direct) if relay else direct
    try:
        raw = await patiently(lambda: way.get(f"{service}/rounds/current"), patience)
    except (Absent, Wrong) as none:
        hint = f"coatcheck round list {service} tells; people ask the first shuffler"
        raise Refused(f"{none} ({hint})") from None
    finally:
        await way.close()
    return f"{service}/rounds/{read_document(raw, _Newest, f'{service} is no shuffler').digest}"


# HOUSE-DOC services.person.credentials: 'Credentials: what a person shows to a shuffler that does not admit everybody.\n\nA token is checked here before anything is spent, as far as a person can. It says nothing of the\nreport. SPEC section 6.\n'
def credential(round_: Round, token: str, *, hop: int = 0) -> Mapping[str, str]:
    """Give the headers by which a shuffler of the round admits the owner of a token."""
    party = round_.terms.shufflers[hop]
    if isinstance(party.admission, PrivacyPass):
        return {"authorization": _private_token(round_, token, hop=hop)}
    if isinstance(party.admission, Tokens):
        if not token:
            raise Misuse(
                f"{party.name!r} admits who has a one-use token: ask its operator for one, and give"
                " it as --token or in a file as --token-file"
            )
        return {"coatcheck-token": token}
    return {}


def _private_token(round_: Round, token: str, *, hop: int) -> str:
    """Check a token of Privacy Pass, and write it as a header."""
    party = round_.terms.shufflers[hop]
    issuer = getattr(party.admission, "issuer", "")
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
        privacy_pass.redeem(raw, round_, hop)
    except (ValueError, Malformed, BadSignature) as error:
        why = f" ({error})" if token else ""
        raise Misuse(
            f"{party.name!r} admits who has a Privacy Pass token of {issuer} for this round{why}:"
            " have your app get one for this challenge, and give it as --token or --token-file: "
            + privacy_pass.demand(round_, hop)
        ) from None
    return privacy_pass.credential(raw)


# HOUSE-DOC services.person.handing_in: "Handing in: what a ticket holds goes to the shufflers, the later ones of a cascade first.\n\nThe upload leaves when every later shuffler has signed for its registration, and not before. Only\nthe ticket's bytes are ever sent, as often as it takes. SPEC section 12.\n"
BYTES: Final = {"content-type": "application/octet-stream"}


def headers_for(round_: Round, token: str) -> Sequence[dict[str, str]]:
    """Give what is shown to each shuffler: `token` has one each, by commas, and no two the same.

    A shuffler could use up at another one what it is shown.
    """
    hops, given = len(round_.terms.shufflers), token.split(",")
    shown = [one for one in given if one]
    if len(given) > hops or len(set(shown)) < len(shown):
        raise Misuse(
            f"the round has {hops} shufflers, and each takes a token of its own: give them in the"
            " order of the terms, separated by commas"
        )
    tokens = [*given, *[""] * hops]
    return [{**BYTES, **credential(round_, tokens[hop], hop=hop)} for hop in range(hops)]


class HandingIn:
    """One ticket on its way to the shufflers of a round.

    Attributes:
        maybe_sent: whether the report may have reached the first shuffler.
    """

    def __init__(
        self, file: TicketFile, *, peers: "Peers", token: str = "", maybe_sent: bool = False
    ) -> None:
        self._file = file
        self._peers = peers
        self._token = token
        self.maybe_sent = maybe_sent

    async def run(self, round_: Round, *, patience: float, window: float = 0.0) -> Ticket:
        """Register the traps, then send the upload; give the ticket with all receipts.

        If an answer was lost and the round closed meanwhile, the report may be in without a
        receipt: the ticket comes back without one, and collecting tells.
        """
        ticket = self._file.read()
        if ticket.receipt:
            return ticket
        headers = headers_for(round_, self._token)
        for hop in range(1 + len(ticket.registered), len(headers)):
            await linger(window)
            ticket = await self._register(ticket, round_, hop, headers[hop], patience)
        await linger(window)
        try:
            receipt = await patiently(lambda: self._once(ticket, round_, headers[0]), patience)
        except Refused:
            if self.maybe_sent:
                return ticket
            raise
        kept = keep_receipt(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, kept)
        return kept

    async def _register(
        self, ticket: Ticket, round_: Round, hop: int, headers: dict[str, str], patience: float
    ) -> Ticket:
        party, raw = round_.terms.shufflers[hop], ticket.registrations[hop - 1]
        url = f"{party.url}/rounds/{round_.digest.hex()}/uploads"
        try:
            receipt = await patiently(lambda: self._peers.send(url, raw, headers=headers), patience)
        except Refused as error:
            raise Refused(
                f"{party.name} does not take part in your trap ({error}): your report stays with"
                " you, nothing of it has left"
            ) from None
        kept = keep_registered(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, kept)
        return kept

    async def _once(self, ticket: Ticket, round_: Round, headers: dict[str, str]) -> bytes:
        try:
            return await self._peers.send(
                f"{round_.address}/uploads", ticket.upload, headers=headers
            )
        except Unavailable as away:
            self.maybe_sent |= not isinstance(away, NotTaken)
            raise


_T = TypeVar("_T")


class Session:
    """One person's part in one round.

    *Guarantee:* the ticket is on the disk before the report leaves, and only its bytes ever leave.

    Attributes:
        url: the round's address at the first shuffler, `http://HOST/rounds/DIGEST`.
        path: where the ticket is kept; if it is there already, the visit goes on from it. The
            terms and the board's last checkpoint are kept beside it.
        relay: the address of a relay; then nothing ever goes another way. It is kept beside the
            ticket, and used again when none is named.
        boards: a folder for boards' last checkpoints, for all a person's rounds; else `path`'s.
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
        relay: str = "",
        boards: Path | None = None,
        ca: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self.path = path
        self._file = TicketFile(path)
        self._trusted, self._boards = trusted, boards
        self._own = peers is None
        self._relay = Path(f"{path}.relay")
        relay = relay or kept_relay(self._relay)
        self._peers: Peers = peers or HttpClient(ca=ca)
        if relay and peers is None:
            self._peers = RelayedClient(relay, first=self.url, trusted=trusted, ca=ca)
        self._offer = offer
        self._accepted: TrustedTerms | None = None
        self._kept = Path(f"{path}.offer")
        self._letters = 0
        self._collected: tuple[Answer, Heading] | None = None
        self._maybe_sent = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._own:
            await self._peers.close()

    @property
    def ticket(self) -> Ticket:
        """The ticket, as it is stored."""
        return self._file.read()

    # -- joining

    async def offer(self, *, patience: float = 0.0) -> Offer:
        """Fetch the terms of the round and where it stands."""
        raw = await patiently(lambda: self._peers.get(self.url), patience)
        found = read_document(raw, Offer, f"{self.url} is no round of a shuffler")
        first = self._offer or stored_offer(self.path) or found
        if found.signed.document != first.signed.document:
            raise Equivocation("the shuffler shows other terms now than before: keep both as proof")
        self._offer = found
        self._level()
        return self._offer

    async def invitation(self, *, group: str, limit: Limit, patience: float = 30.0) -> Invitation:
        """Check the terms with your own arithmetic, and that the board's log has them."""
        offer = await self.offer(patience=patience)
        now = int(time.time())
        found = await asyncio.to_thread(
            examine, offer.signed, group=group, trusted=self._trusted, limit=limit, now=now
        )
        check_place(found.round, self.url)
        await patiently(self._view().check_logged, patience)
        return found

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
        """Take part with a value, or go on after a crash: the stored report is sent again."""
        invitation = await self.invitation(group=group, limit=limit, patience=patience)
        headers_for(invitation.round, token)  # who has none spends nothing
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
        """Store a ticket and pay for it, or go on with the one that is stored.

        *Guarantee:* a round that takes no more reports costs nothing and leaves no ticket.
        """
        self._maybe_sent = self.path.exists()
        if not self._maybe_sent:
            phase = self._known_offer.status.get("phase", "open")
            if phase != "open":
                raise Refused(f"the round takes no reports now, it is {phase}: nothing was spent")
            write_bytes(self._kept, document(self._known_offer), secret=True, replace=True)
            if isinstance(self._peers, RelayedClient):
                write_bytes(self._relay, self._peers.relay.encode(), secret=True, replace=True)
        try:
            return invitation.join(value, ledger=ledger, store=self._file, note=note, clamp=clamp)
        finally:
            if not self.path.exists():
                self._kept.unlink(missing_ok=True)

    async def hand_in(self, round_: Round, *, token: str = "", patience: float = 60.0) -> Ticket:
        """Send the stored bytes until every shuffler has signed for its part.

        `token` has one token per shuffler, separated by commas, if they ask for some.
        """
        if isinstance(self._peers, RelayedClient):
            self._peers.know(party.url for party in round_.terms.shufflers)
        way = HandingIn(self._file, peers=self._peers, token=token, maybe_sent=self._maybe_sent)
        window = window_of(round_, self._peers)
        return await way.run(round_, patience=patience, window=window)

    # -- collecting, and letters

    async def bulletin(self, *, patience: float) -> VerifiedBulletin:
        """Wait for the bulletin, and check that the board shows the same to everybody."""
        await self._know_terms()
        view = self._view()
        return await self._until(view.bulletin, patience)

    async def collect(
        self,
        *,
        ledger: Budget | None = None,
        patience: float = 600.0,
        retrieval: Retrieval = by_size,
    ) -> Answer:
        """Wait for the round's answers and open yours.

        The ledger is told how the round ended. A round that was not answered is refused here, in
        the words of whoever ended it.
        """
        await self._know_terms()
        view, ticket = self._view(), self.ticket
        if self.window:
            await self._until(view.heading, patience)
            await linger(self.window)
        shown = await self._until(lambda: retrieval(view, ticket), patience)
        if isinstance(shown, VerifiedBulletin):
            answer, heading = client.collect(ticket, shown, ledger=ledger), shown.heading
        else:
            client.record_outcome(ticket, shown.heading, ledger=ledger)
            answer, heading = client.open_entry(ticket, shown.entry), shown.heading.heading
        self._collected = answer, heading
        return answer

    async def outcome(self, *, patience: float) -> tuple[Answer, Heading]:
        """Give the answer and the signed head of the bulletin; what was collected is kept."""
        while self._collected is None:
            await self.collect(patience=patience)
        return self._collected

    async def write(self, body: bytes, *, to: bytes, patience: float = 60.0) -> None:
        """Write a letter to a partner's contact and post it on the board."""
        await self._know_terms()
        with self._file.alone():  # and kept first: a counter must never be used again
            posting, after = client.write(self.ticket, body, to=to, round_=self.round)
            self.keep(after)
        await linger(self.window)
        place = await self.post([to + posting], patience=patience)
        await self.check_posted([(place, posting)], patience=patience)

    def keep(self, ticket: Ticket) -> None:
        """Store the ticket after letters were written or read."""
        self._file.update(ticket)

    async def post(self, stamped: Sequence[bytes], *, patience: float = 60.0) -> int:
        """Post letters that the stored ticket accounts for, each after its recipient's contact.

        Tells where the log has the first.
        """
        url, body = f"{self._at_board}/letters", b"".join(stamped)
        raw = await patiently(lambda: self._peers.send(url, body, headers=BYTES), patience)
        told = f"{url} does not say where your letter is: it may be lost"
        return read_document(raw, Posted, told).place

    async def check_posted(self, placed: Sequence[tuple[int, bytes]], *, patience: float) -> None:
        """Check that the board's log has letters, each at its place."""
        await self._view().check_letters(placed, patience=patience)

    async def read(self) -> Inbox:
        """Fetch the letters, all of the round or through a relay yours, and read those to you."""
        await self._know_terms()
        await linger(self.window)
        await self._view().follow()
        mine = [self.ticket.keys.address]
        await self.feed.update(mine)
        fresh = self.feed.to(mine, since=self._letters)
        with self._file.alone():
            inbox = client.read(self.ticket, fresh, self.round)
            self.keep(inbox.ticket)
        self._letters = self.feed.read
        return inbox

    @cached_property
    def feed(self) -> Feed:
        """The letters of the round, or through a relay those to the addresses one asks for.

        Several visits may be given the same one.
        """
        if isinstance(self._peers, RelayedClient):
            size = posting_size(self.round)
            return OwnFeed(self._at_board, size=size, peers=self._peers)
        return self.all_letters()

    def all_letters(self) -> LettersFeed:
        """Give the letters of the round, whoever they are for."""
        return self._letters_at("/letters")

    def _letters_at(self, path: str) -> LettersFeed:
        size = posting_size(self.round)
        return LettersFeed(self._at_board + path, size=size, peers=self._peers)

    # -- what the visit knows

    @property
    def round(self) -> TrustedTerms:
        """The terms one joined with, or would join with."""
        signed, found = self._known_offer.signed, self._accepted
        if found is None or found.document != signed.document.encode():
            found = accept(signed, trusted=self._trusted)
            check_place(found, self.url)
            if self.path.exists() and self.ticket.digest != found.digest:
                raise Equivocation("the shuffler shows other terms now than those you joined on")
            self._accepted = found
        return found

    @property
    def _known_offer(self) -> Offer:
        if self._offer is None:
            raise Misuse("fetch the offer first")
        return self._offer

    @property
    def window(self) -> int:
        """Within how many seconds the times of requests are drawn; 0 without a relay."""
        return window_of(self.round, self._peers)

    def pause(self, due: float) -> float:
        """Say for how long to wait before looking again; through a relay it is drawn at random."""
        relayed = isinstance(self._peers, RelayedClient)
        return drawn(max(2 * due, self.window)) if relayed else due

    @property
    def _at_board(self) -> str:
        return f"{self.round.terms.board.url}/rounds/{self.round.digest.hex()}"

    async def _know_terms(self) -> None:
        """Read the terms from the disk, so that the shuffler may be gone; else ask it."""
        self._offer = self._offer or stored_offer(self.path)
        if self._offer is None:
            await self.offer(patience=30.0)
        self._level()

    def _level(self) -> None:
        """Have all messages of the round through a relay at the size that its terms need."""
        if isinstance(self._peers, RelayedClient):
            offer, upload = msgspec.json.encode(self._known_offer), max(self.round.upload_sizes)
            self._peers.level(max(len(offer), upload))

    def _view(self) -> BoardView:
        """The board as this person follows it, by the checkpoint that was kept."""
        trusted, boards = self._trusted, self._boards
        path = boards / self.round.terms.board.verifying if boards else self.path
        return BoardView(self.round, path=path, peers=self._peers, trusted=trusted)

    async def _until(self, fetch: Callable[[], Awaitable[_T]], patience: float) -> _T:
        """Look for the end of the round again and again; through a relay at random times."""
        return await patiently(lambda: self._shown(fetch), patience, growth=1.3, draw=self.pause)

    async def _shown(self, fetch: Callable[[], Awaitable[_T]]) -> _T:
        """Fetch what the board has once the round has ended, or say by when its outcome is due."""
        away, now = "", int(time.time())
        try:
            return await fetch()
        except Absent:
            check_not_overdue(self.round, now=now)
        except Unavailable as error:
            away = f" ({error})"
        raise Unavailable(f"{pending_text(self.round, now=now)}{away}")
