"""One person's part in one round over the network: join, upload, collect, write and read letters.

The private data of the round is in the ticket, which is on the disk before the session sends
anything. A retry sends the same bytes. If a relay fails, the session never connects directly
instead. SPEC section 12.

    async with Session(url, path=Path("my.ticket"), trusted=trusted) as session:
        await session.join((31.2, 121.4), group="riders", limit=Limit(1.0, 1e-6), ledger=ledger)
        answer = await session.collect(ledger=ledger)

Settling with candidates is in `letters.settle`. Below the class are the steps before a session: to
find the current round of a service, and to make the credentials for shufflers.
"""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from coatcheck.durable_files import write_bytes
from coatcheck.entropy import system
from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse, Refused, Unavailable
from coatcheck.protocol import client, privacy_pass
from coatcheck.protocol.agreement import Trust, TrustedTerms, accept
from coatcheck.protocol.client import Budget, Inbox, Invitation, Limit, examine
from coatcheck.protocol.log.verification import VerifiedBulletin
from coatcheck.protocol.outcomes import check_not_overdue, pending_text
from coatcheck.protocol.terms import PrivacyPass, Round, Tokens
from coatcheck.protocol.ticket import Ticket, keep_receipt, keep_registered
from coatcheck.protocol.wire.bulletins import Heading, KeyList, posting_size
from coatcheck.protocol.wire.encoding import document, read_document
from coatcheck.protocol.wire.messages import Answer
from coatcheck.services.documents import Offer, Posted
from coatcheck.services.person.board_view import BoardView, Peers, Retrieval, by_size
from coatcheck.services.person.letters import LetterSource, OwnLetters, RoundLetters
from coatcheck.services.person.relay_client import (
    RelayedClient,
    random_delay,
    wait_random,
    window_of,
)
from coatcheck.services.person.store import TicketFile
from coatcheck.services.web.client import Absent, HttpClient, NotTaken, Unprocessable, patiently

BYTES: Final = {"content-type": "application/octet-stream"}
_T = TypeVar("_T")


def stored_offer(ticket: Path) -> Offer | None:
    """Return the offer that is stored beside a ticket; None without the ticket."""
    path = Path(f"{ticket}.offer")
    if not ticket.exists() or not path.exists():
        return None
    return read_document(path.read_bytes(), Offer, f"{path} is not an offer")


class Session:
    """One person's part in one round.

    *Guarantee:* the ticket is on the disk before the report leaves, and only its bytes ever leave.

    Attributes:
        url: the round's address at the first shuffler, `http://HOST/rounds/DIGEST`.
        path: the file of the ticket; if it exists, the session continues from it. The terms, the
            relay and the board's last checkpoint are stored beside it.
        relay: the address of a relay; nothing is ever sent another way then. It is stored beside
            the ticket and used again when none is named.
        boards: a folder for the boards' last checkpoints, shared by all rounds of a person; by
            default they are stored beside the ticket. The gateways' key lists are beside the same.
        ca: a file of certificates to trust instead of the system's.
        decoy_answers: the answers to the person's decoys once they are collected, to write the
            letters of their addresses; None for a decoy that is not on the board.
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
        self._owns_peers = peers is None
        self._relay_file = Path(f"{path}.relay")
        if not relay and self._relay_file.exists():
            relay = self._relay_file.read_text(encoding="ascii")
        self._peers: Peers = peers or HttpClient(ca=ca)
        if relay and peers is None:
            seen = gateways_file(boards or path)
            self._peers = RelayedClient(relay, first=self.url, trusted=trusted, ca=ca, seen=seen)
        self._offer = offer
        self._offer_file = Path(f"{path}.offer")
        self._terms: TrustedTerms | None = None
        self._maybe_sent = False  # whether the report may have reached the first shuffler
        self._collected: tuple[Answer, Heading] | None = None
        self.decoy_answers: tuple[Answer | None, ...] = ()
        self._letters_read = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._owns_peers:
            await self._peers.close()

    @property
    def ticket(self) -> Ticket:
        """The ticket, as it is stored."""
        return self._file.read()

    # -- join

    async def offer(self, *, patience: float = 0.0) -> Offer:
        """Fetch the terms of the round and its phase from the first shuffler."""
        raw = await patiently(lambda: self._peers.get(self.url), patience)
        offer = read_document(raw, Offer, f"{self.url} is not the address of a round at a shuffler")
        first = self._offer or stored_offer(self.path) or offer
        if offer.signed.document != first.signed.document:
            raise Equivocation(
                "the shuffler shows other terms now than before; keep both as proof, and do not"
                " take part"
            )
        self._offer = offer
        self._use_terms()
        return offer

    async def invitation(self, *, group: str, limit: Limit, patience: float = 30.0) -> Invitation:
        """Verify the terms, recompute their promise, and check that the board has logged them."""
        offer = await self.offer(patience=patience)
        now = int(time.time())
        invitation = await asyncio.to_thread(
            examine, offer.signed, group=group, trusted=self._trusted, limit=limit, now=now
        )
        _check_address(invitation.round, self.url)
        await patiently(self._view().check_logged, patience)
        if isinstance(self._peers, RelayedClient):
            await patiently(self._peers.find_lists, patience)
        return invitation

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
        """Take part with a value, or continue after a crash: the stored report is sent again."""
        invitation = await self.invitation(group=group, limit=limit, patience=patience)
        headers_for(invitation.round, token)  # without a valid token nothing is spent
        self.prepare(invitation, value, ledger=ledger, note=note, clamp=clamp)
        return await self.upload(invitation.round, token=token, patience=patience)

    def prepare(
        self,
        invitation: Invitation,
        value: Any,
        *,
        ledger: Budget | None,
        note: bytes = b"",
        clamp: bool = False,
    ) -> Ticket:
        """Randomize and seal the value into a stored ticket, and enter the round into the ledger.

        A ticket that is already stored is used as it is.

        *Guarantee:* a round that takes no more reports costs nothing and leaves no ticket.
        """
        self._maybe_sent = self.path.exists()
        if not self._maybe_sent:
            phase = self._fetched_offer.status.phase
            if phase != "open":
                raise Refused(f"the round takes no reports now, it is {phase}: nothing was spent")
            write_bytes(self._offer_file, document(self._fetched_offer), secret=True, replace=True)
            if isinstance(self._peers, RelayedClient):
                relay = self._peers.relay.encode()
                write_bytes(self._relay_file, relay, secret=True, replace=True)
        try:
            return invitation.join(value, ledger=ledger, store=self._file, note=note, clamp=clamp)
        finally:
            if not self.path.exists():
                self._offer_file.unlink(missing_ok=True)

    # -- upload

    async def upload(self, round_: Round, *, token: str = "", patience: float = 60.0) -> Ticket:
        """Send the ticket's bytes to the shufflers; return the ticket with their receipts.

        The later shufflers of a cascade get their registrations first. The upload leaves only after
        all of them have signed. If the answer to the upload was lost and the round has closed
        since, the ticket has no receipt: `collect` shows whether it counted. `token` has one token
        per shuffler, separated by commas, if they ask for tokens.
        """
        await self._load_terms()
        ticket, window = self.ticket, window_of(round_, self._peers)
        if ticket.receipt:
            return ticket
        headers = headers_for(round_, token)
        for hop in range(1 + len(ticket.registered), len(headers)):
            await wait_random(window)
            ticket = await self._register(ticket, round_, hop, headers[hop], patience)
        await wait_random(window)
        try:
            receipt = await patiently(
                lambda: self._send_upload(ticket.upload, round_, headers[0]), patience
            )
        except Refused:
            if self._maybe_sent:
                return ticket
            raise
        ticket = keep_receipt(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, ticket)
        return ticket

    async def _register(
        self, ticket: Ticket, round_: Round, hop: int, headers: dict[str, str], patience: float
    ) -> Ticket:
        """Register the ticket's trap at a later shuffler, and store the receipt."""
        party, raw = round_.terms.shufflers[hop], ticket.registrations[hop - 1]
        url = f"{party.url}/rounds/{round_.digest.hex()}/uploads"
        try:
            receipt = await patiently(lambda: self._peers.send(url, raw, headers=headers), patience)
        except Refused as error:
            raise Refused(
                f"shuffler {party.name} rejected your trap registration ({error}); your report was"
                " not sent"
            ) from None
        ticket = keep_registered(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, ticket)
        return ticket

    async def _send_upload(self, upload: bytes, round_: Round, headers: dict[str, str]) -> bytes:
        """Send the upload once; record whether it may have arrived without an answer."""
        try:
            return await self._peers.send(f"{round_.address}/uploads", upload, headers=headers)
        except Unavailable as error:
            self._maybe_sent |= not isinstance(error, NotTaken)
            raise

    # -- wait and collect

    async def bulletin(self, *, patience: float) -> VerifiedBulletin:
        """Wait for the bulletin, and check that the board shows everybody the same one."""
        await self._load_terms()
        view = self._view()
        return await self._until(view.bulletin, patience)

    async def collect(
        self,
        *,
        ledger: Budget | None = None,
        patience: float = 600.0,
        retrieval: Retrieval = by_size,
    ) -> Answer:
        """Wait for the round's outcome, record it in the ledger, and open the answer.

        A round without answers raises `Refused` with the reason that its signer gives.
        """
        await self._load_terms()
        view, ticket = self._view(), self.ticket
        if self.window:
            await self._until(view.heading, patience)
            await wait_random(self.window)
        shown = await self._until(lambda: retrieval(view, ticket), patience)
        if isinstance(shown, VerifiedBulletin):
            answer, heading = client.collect(ticket, shown, ledger=ledger), shown.heading
            self.decoy_answers = client.decoy_answers(ticket, shown)
        else:
            client.record_outcome(ticket, shown.heading, ledger=ledger)
            answer, heading = client.open_entry(ticket, shown.entry), shown.heading.heading
            decoys = zip(ticket.decoy_tickets(), shown.decoys, strict=True)
            self.decoy_answers = tuple(
                None if entry is None else client.open_entry(decoy, entry)
                for decoy, entry in decoys
            )
        self._collected = answer, heading
        return answer

    async def outcome(self, *, patience: float) -> tuple[Answer, Heading]:
        """Return the answer and the bulletin's signed heading; collect them unless that is done."""
        while self._collected is None:
            await self.collect(patience=patience)
        return self._collected

    async def _until(self, fetch: Callable[[], Awaitable[_T]], patience: float) -> _T:
        """Fetch repeatedly until the round has ended; through a relay at random times."""
        return await patiently(
            lambda: self._fetch_outcome(fetch), patience, growth=1.3, draw=self.pause
        )

    async def _fetch_outcome(self, fetch: Callable[[], Awaitable[_T]]) -> _T:
        """Fetch what the board has if the round has ended, or say which role owes its outcome."""
        reason, now = "", int(time.time())
        try:
            return await fetch()
        except Absent:
            check_not_overdue(self.round, now=now)
        except Unavailable as error:
            reason = f" ({error})"
        raise Unavailable(f"{pending_text(self.round, now=now)}{reason}")

    # -- write and read letters

    async def write(self, body: bytes, *, to: bytes, patience: float = 60.0) -> None:
        """Write a letter to a partner's contact and post it on the board."""
        await self._load_terms()
        with self._file.lock():  # stored before it is sent, so that no counter is used twice
            posting, ticket = client.write(self.ticket, body, to=to, round_=self.round)
            self._file.update(ticket)
        await wait_random(self.window)
        place = await self.post([to + posting], patience=patience)
        await self.check_posted([(place, posting)], patience=patience)

    def keep(self, ticket: Ticket, *, decoy: int | None = None) -> None:
        """Store the letters of the report's address, or of a decoy's, into the ticket."""
        with self._file.lock():
            self._file.update(self.ticket.with_letters(ticket, decoy=decoy))

    async def post(self, stamped: Sequence[bytes], *, patience: float = 60.0) -> int:
        """Post letters, each after its recipient's contact; return the place of the first one.

        The stored ticket must account for them already.
        """
        url, body = f"{self._round_at_board}/letters", b"".join(stamped)
        raw = await patiently(lambda: self._peers.send(url, body, headers=BYTES), patience)
        wrong = (
            f"{url} did not return the place of your letter, so it may be lost; ask its operator"
        )
        return read_document(raw, Posted, wrong).place

    async def check_posted(self, placed: Sequence[tuple[int, bytes]], *, patience: float) -> None:
        """Check that the board's log has letters, each at its place."""
        await self._view().check_letters(placed, patience=patience)

    async def read(self) -> Inbox:
        """Fetch the letters of the round (through a relay, only yours) and open those to you."""
        await self._load_terms()
        await wait_random(self.window)
        await self._view().follow()
        own, *decoys = self.ticket.addresses
        # For decoys too, or the board would see which address is read (S12.53).
        sources = [(self.letter_source, own), *zip(self._decoy_sources, decoys, strict=True)]

        async def update(source: LetterSource, address: bytes) -> None:
            if decoys:  # a single request has waited above
                await wait_random(self.window)
            await source.update([address])

        await asyncio.gather(*(update(*pair) for pair in system().shuffled(sources)))
        fresh = self.letter_source.to([own], since=self._letters_read)
        with self._file.lock():
            inbox = client.read(self.ticket, fresh, self.round)
            self._file.update(inbox.ticket)
        self._letters_read = self.letter_source.read
        return inbox

    @cached_property
    def letter_source(self) -> LetterSource:
        """The source of letters: all of the round, or through a relay those to given addresses.

        Several sessions may share one.
        """
        return self._own_letters()

    @cached_property
    def _decoy_sources(self) -> Sequence[LetterSource]:
        """A source of letters for each decoy; they share one that has all letters of the round."""
        shared = self.letter_source
        alone = self._own_letters if isinstance(shared, OwnLetters) else lambda: shared
        return [alone() for _ in self.ticket.decoys]

    def _own_letters(self) -> LetterSource:
        """Return a source of the letters to given addresses; without a relay it fetches all."""
        if not isinstance(self._peers, RelayedClient):
            return self.all_letters()
        size = posting_size(self.round)
        return OwnLetters(self._round_at_board, size=size, peers=self._peers)

    def all_letters(self) -> RoundLetters:
        """Return a source of all letters of the round."""
        size, url = posting_size(self.round), f"{self._round_at_board}/letters"
        return RoundLetters(url, size=size, peers=self._peers)

    def for_decoys(self) -> Sequence["DecoyLetters"]:
        """Return who writes the letters of each decoy's address."""
        sources = enumerate(self._decoy_sources)
        return [DecoyLetters(self, number, source) for number, source in sources]

    # -- the terms, and where and when requests go

    @property
    def round(self) -> TrustedTerms:
        """The terms that the person joined with, or would join with."""
        signed, terms = self._fetched_offer.signed, self._terms
        if terms is None or terms.document != signed.document.encode():
            terms = accept(signed, trusted=self._trusted)
            _check_address(terms, self.url)
            if self.path.exists() and self.ticket.digest != terms.digest:
                raise Equivocation(
                    "the shuffler shows other terms now than those that you joined with; keep both"
                    " as proof"
                )
            self._terms = terms
        return terms

    @property
    def _fetched_offer(self) -> Offer:
        if self._offer is None:
            raise Misuse("fetch the offer first")
        return self._offer

    async def _load_terms(self) -> None:
        """Load the terms from the disk, or else from the first shuffler."""
        self._offer = self._offer or stored_offer(self.path)
        if self._offer is None:
            await self.offer(patience=30.0)
        self._use_terms()

    def _use_terms(self) -> None:
        """Tell a relayed client what it needs of the terms: sizes, and who signs key lists."""
        if isinstance(self._peers, RelayedClient):
            offer, upload = msgspec.json.encode(self._fetched_offer), max(self.round.upload_sizes)
            self._peers.pad_for(max(len(offer), upload))
            terms = self.round.terms
            self._peers.add_shufflers(party.url for party in terms.shufflers)
            roles = {party.url: party.verifying for party in (*terms.shufflers, terms.board)}
            self._peers.check_lists(self._check_list, signers=roles)

    @property
    def window(self) -> int:
        """The seconds within which the times of requests are drawn; 0 without a relay."""
        return window_of(self.round, self._peers)

    def pause(self, due: float) -> float:
        """Return how long to wait before the next request; through a relay a random time."""
        relayed = isinstance(self._peers, RelayedClient)
        return random_delay(max(2 * due, self.window)) if relayed else due

    @property
    def _round_at_board(self) -> str:
        return f"{self.round.terms.board.url}/rounds/{self.round.digest.hex()}"

    async def _check_list(self, keys: KeyList, peers: RelayedClient) -> None:
        await self._view(peers).check_keys(keys)

    def _view(self, peers: Peers | None = None) -> BoardView:
        """Return this person's view of the board, from the last stored checkpoint."""
        trusted, boards = self._trusted, self._boards
        path = boards / self.round.terms.board.verifying if boards else self.path
        return BoardView(self.round, path=path, peers=peers or self._peers, trusted=trusted)


class DecoyLetters:
    """One decoy's part in a session: its letters have their own place in the ticket and source.

    Through a relay its requests come at times of their own, as if from another person.
    """

    def __init__(self, session: Session, number: int, letter_source: LetterSource) -> None:
        self._session, self._number = session, number
        self.letter_source = letter_source
        self.post, self.check_posted = session.post, session.check_posted
        self.pause = session.pause

    @property
    def ticket(self) -> Ticket:
        """The decoy as a ticket, as it is stored."""
        return self._session.ticket.decoy_tickets()[self._number]

    @property
    def round(self) -> TrustedTerms:
        """The terms of the round."""
        return self._session.round

    @property
    def window(self) -> int:
        """The seconds within which the times of requests are drawn; 0 without a relay."""
        return self._session.window

    def keep(self, ticket: Ticket) -> None:
        """Store the decoy's letters into the session's ticket."""
        self._session.keep(ticket, decoy=self._number)


def _check_address(round_: Round, url: str) -> None:
    """Reject terms of a round at another address: terms say where all requests go."""
    if round_.address != url:
        raise Refused(
            f"the terms are of the round at {round_.address}, not at {url}; ask the organizer for"
            " the right one"
        )


# -- the current round of a service


class _Newest(Struct, frozen=True):
    """The part of a shuffler's answer that is read."""

    digest: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


def service_of(url: str) -> str:
    """Return the address of a service; empty if this is the address of a round."""
    bare = url.rstrip("/").removesuffix("/rounds/current")
    return "" if urlsplit(bare).path else bare


def gateways_file(path: Path) -> Path:
    """Return the file of key lists of gateways, beside a ticket or the checkpoints of boards."""
    return Path(f"{path}.gateways")


async def current_round(
    service: str,
    *,
    trusted: Trust,
    relay: str = "",
    boards: Path | None = None,
    ca: str = "",
    patience: float = 30.0,
) -> str:
    """Ask a shuffler for its current round, and return the round's address at this shuffler.

    Only a digest is used from the answer, so that it cannot send anybody to another address.
    """
    direct = HttpClient(ca=ca)
    peers: Peers = direct
    if relay:
        seen = gateways_file(boards) if boards else None
        peers = RelayedClient(relay, first=service, trusted=trusted, http=direct, seen=seen)
    try:
        raw = await patiently(lambda: peers.get(f"{service}/rounds/current"), patience)
    except (Absent, Unprocessable) as error:
        raise Refused(
            f"{error} (people ask the first shuffler; `coatcheck round list {service}` shows which"
            " rounds there are)"
        ) from None
    finally:
        await peers.close()
    newest = read_document(raw, _Newest, f"{service} is not a shuffler")
    return f"{service}/rounds/{newest.digest}"


# -- credentials for shufflers that do not admit everybody


def headers_for(round_: Round, token: str) -> Sequence[dict[str, str]]:
    """Return the headers for each shuffler; `token` has one each, separated by commas.

    All tokens must differ: a shuffler could spend the token that it gets at another shuffler.
    """
    hops, listed = len(round_.terms.shufflers), token.split(",")
    named = [part for part in listed if part]
    if len(listed) > hops or len(set(named)) < len(named):
        raise Misuse(
            f"the round has {hops} shufflers and takes a different token for each, got"
            f" {len(named)} ({len(set(named))} different); give them in the order of the terms,"
            " separated by commas"
        )
    tokens = [*listed, *[""] * hops]
    return [{**BYTES, **credential(round_, tokens[hop], hop=hop)} for hop in range(hops)]


def credential(round_: Round, token: str, *, hop: int = 0) -> Mapping[str, str]:
    """Return the headers by which a shuffler admits the owner of a token.

    This checks the token, as far as a person can, before anything is spent (S6.24).
    """
    party = round_.terms.shufflers[hop]
    if isinstance(party.admission, PrivacyPass):
        return {"authorization": _private_token(round_, token, hop=hop)}
    if isinstance(party.admission, Tokens):
        if not token:
            raise Misuse(
                f"shuffler {party.name!r} admits only people with a one-use token; ask its operator"
                " for one, and give it as `--token` or in a file as `--token-file`"
            )
        return {"coatcheck-token": token}
    return {}


def _private_token(round_: Round, token: str, *, hop: int) -> str:
    """Check a Privacy Pass token, and return it as the value of a header."""
    party = round_.terms.shufflers[hop]
    issuer = getattr(party.admission, "issuer", "")
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
        privacy_pass.redeem(raw, round_, hop)
    except (ValueError, Malformed, BadSignature) as error:
        reason = f" ({error})" if token else ""
        raise Misuse(
            f"shuffler {party.name!r} admits only people with a Privacy Pass token of {issuer} for"
            f" this round{reason}; get one for this challenge and give it as `--token` or"
            f" `--token-file`: {privacy_pass.demand(round_, hop)}"
        ) from None
    return privacy_pass.credential(raw)
