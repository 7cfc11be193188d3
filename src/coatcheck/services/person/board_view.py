"""One person's view of a board, and the ways to fetch an answer from it.

Each checkpoint of the board must continue the last one that the person stored: a board must show
forever what it has shown once. A log that shrank or forked is rejected, and both signed checkpoints
stay on the disk as proof. This file handles public data only. SPEC section 9.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from coatcheck.durable_files import write_bytes
from coatcheck.entropy import system
from coatcheck.errors import Equivocation, Missing, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import AgreedTerms, Trust
from coatcheck.protocol.log.merkle import HASH_SIZE, check_inclusion
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note
from coatcheck.protocol.log.verification import (
    VerifiedBulletin,
    VerifiedCheckpoint,
    VerifiedEntry,
    VerifiedHeading,
    check_heading,
    check_logged,
    follow,
    follow_watched,
    verify_bulletin,
    verify_entry,
    verify_heading,
)
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import (
    KEYS_LEAF,
    LETTER_LEAF,
    Checkpoint,
    Heading,
    KeyList,
)
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services.documents import Entry, Logged
from coatcheck.services.person.relay_client import RelayedClient, wait_random, window_of
from coatcheck.services.person.store import folder_lock
from coatcheck.services.web.client import BULK, Absent, HttpClient, patiently

Peers = HttpClient | RelayedClient
_NO_WITNESSES: Final = Trust()
_BYTES: Final = {"content-type": "application/octet-stream"}
_PATIENCE: Final = 60.0
"""Seconds to wait for witnesses to cosign what was logged just now."""
_NOT_COSIGNED: Final = "the witnesses have not cosigned this yet; try again later"
_WRONG_DOCUMENT: Final = (
    "the board's answer is not a document of its OpenAPI page; ask its operator"
)


class BoardView:
    """The view of a board by the owner of one ticket.

    Attributes:
        url: the board's address in the terms.
        path: the last checkpoint is stored beside it as `.checkpoint`; if the board equivocates,
            the checkpoint that does not continue it as `.forked`. Several rounds of a person may
            share the path: a stored checkpoint is only replaced by a larger one.
        relayed: whether requests go through a relay.
        window: the seconds within which the times of requests are drawn; 0 without a relay.
    """

    def __init__(
        self, round_: AgreedTerms, *, path: Path, peers: Peers, trusted: Trust = _NO_WITNESSES
    ) -> None:
        self.url = round_.terms.board.url
        self._trusted = trusted
        self.round = round_
        self.relayed = isinstance(peers, RelayedClient)
        self.window = window_of(round_, peers)
        self._stored = Path(f"{path}.checkpoint")
        self._forked = Path(f"{path}.forked")
        self._peers = peers

    async def follow(self) -> VerifiedCheckpoint:
        """Fetch the board's checkpoint, check that it continues the last one, and store it."""
        if self._trusted.witnesses.least:
            return await self._follow_watched()
        # First, because another round of this person may store a newer one.
        before = self._stored_checkpoint()
        return await self._continue(await self._peers.get(f"{self.url}/checkpoint"), before)

    async def _follow_watched(self) -> VerifiedCheckpoint:
        """Do the same as `follow`, with the signed note and its cosignatures."""
        path = Path(f"{self._stored}.note")
        before = _stored_note(path)
        raw = await self._peers.get(f"{self.url}/log/checkpoint")
        check = partial(
            follow_watched,
            raw,
            board=self.round.terms.board.verifying,
            witnesses=self._trusted.witnesses,
        )
        point = check(before=None)  # the signatures, before anything else
        if before is not None:
            try:
                point = check(before=before, path=await self._consistency_path(before, point))
            except Equivocation as error:
                raise await self._proof_of(error, path, raw) from None
        await asyncio.to_thread(_store_larger, path, raw, lambda: _stored_note(path), point.size)
        return point

    def _stored_checkpoint(self) -> Checkpoint | None:
        return Checkpoint.decode(self._stored.read_bytes()) if self._stored.exists() else None

    async def _proof_of(self, error: Equivocation, stored: Path, raw: bytes) -> Equivocation:
        """Store the checkpoint that does not continue the stored one, and name both files."""
        self._forked.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(write_bytes, self._forked, raw, secret=True, replace=True)
        return Equivocation(f"{error} (they are {stored} and {self._forked})")

    async def _continue(self, raw: bytes, before: Checkpoint | None) -> VerifiedCheckpoint:
        board = self.round.terms.board.verifying
        point = follow(raw, board=board, before=None)  # the signature, before anything else
        try:
            path = await self._consistency_path(before, point) if before else []
            point = follow(raw, board=board, before=before, path=path)
        except Equivocation as error:
            raise await self._proof_of(error, self._stored, raw) from None
        await asyncio.to_thread(
            _store_larger, self._stored, raw, self._stored_checkpoint, point.size - 1
        )
        return point

    async def bulletin(self) -> VerifiedBulletin:
        """Fetch the whole bulletin, and check that the board shows everybody the same one."""
        raw = await self._peers.get(f"{self._round_url}/bulletin", most=BULK)
        bulletin = await asyncio.to_thread(verify_bulletin, raw, self.round)
        await self.check_bulletin(bulletin)
        return bulletin

    async def heading(self) -> Heading:
        """Fetch the bulletin's signed heading, without a proof that the log has it."""
        heading = Heading.decode(await self._peers.get(f"{self._round_url}/heading"))
        check_heading(heading, self.round)
        return heading

    async def entry(self, group: int, address: bytes) -> tuple[VerifiedHeading, VerifiedEntry]:
        """Fetch one entry, with the proof that it is on the bulletin that everybody sees."""
        point, before, url = await self._proof_target(
            f"{self._round_url}/entries/{group}/{address.hex()}"
        )
        document = read_document(await self._peers.get(url), Entry, _WRONG_DOCUMENT)
        heading = verify_heading(
            Heading.decode(document.heading),
            self.round,
            point=point or await self._continue(document.checkpoint, before),
            place=document.log_place,
            path=_hashes(document.log_path),
        )
        entry = verify_entry(
            document.entry,
            group=group,
            heading=heading,
            place=document.place,
            path=_hashes(document.path),
        )
        return heading, entry

    async def check_logged(self) -> None:
        """Check that the board's log has the terms, before anything of a report is sent."""
        point, before, url = await self._proof_target(f"{self._round_url}/logged")
        try:
            logged = read_document(await self._peers.get(url), Logged, _WRONG_DOCUMENT)
        except Absent:
            raise Refused(
                "the board has not logged the terms of this round, so other people may get other"
                " terms; nothing was sent; ask the round's organizer"
            ) from None
        point = point or await self._continue(logged.checkpoint, before)
        check_logged(self.round, point=point, place=logged.place, path=_hashes(logged.path))

    async def _proof_target(
        self, url: str
    ) -> tuple[VerifiedCheckpoint | None, Checkpoint | None, str]:
        """Return the checkpoint to prove something under, the one before, and the address to ask.

        Without witnesses the answer itself brings the checkpoint.
        """
        if not self._trusted.witnesses.least:
            return None, self._stored_checkpoint(), url
        point = await self.follow()
        if not point.size:  # size=0 would mean the newest checkpoint, cosigned or not
            raise Unavailable(_NOT_COSIGNED)
        return point, None, f"{url}?size={point.size}"

    async def check_bulletin(self, bulletin: VerifiedBulletin) -> None:
        """Check that a bulletin is in the log that the board signs for everybody."""
        point = await self.follow()
        place = read_document(
            await self._peers.get(f"{self._round_url}/place"), int, _WRONG_DOCUMENT
        )
        path = await self._inclusion_path(place, point)
        verify_heading(bulletin.heading, self.round, point=point, place=place, path=path)

    async def check_letters(
        self, placed: Sequence[tuple[int, bytes]], *, patience: float = 0.0
    ) -> None:
        """Check that letters are in the log, each at the place that the board's answer named."""
        try:
            await patiently(lambda: self._check_letters(placed), patience)
        except Unavailable as error:
            raise Unavailable(
                f"the board accepted your letter but has not proven yet that it shows it ({error});"
                " read your letters later to check"
            ) from None

    async def check_keys(self, keys: KeyList) -> None:
        """Check that the log has the key list of a gateway; have the board log it first if not."""
        await patiently(lambda: self._check_keys(keys.encode()), _PATIENCE)

    async def _check_keys(self, keys: bytes) -> None:
        point, before, url = await self._proof_target(f"{self.url}/gateways")
        raw = await self._peers.send(url, keys, headers=_BYTES)
        logged = read_document(raw, Logged, _WRONG_DOCUMENT)
        point = point or await self._continue(logged.checkpoint, before)
        check_inclusion(
            KEYS_LEAF + keys,
            place=logged.place,
            size=point.size,
            root=point.root,
            path=_hashes(logged.path),
        )

    async def _check_letters(self, placed: Sequence[tuple[int, bytes]]) -> None:
        point = await self.follow()
        for place, posting in placed:
            path, leaf = await self._inclusion_path(place, point), LETTER_LEAF + posting
            check_inclusion(leaf, place=place, size=point.size, root=point.root, path=path)

    @property
    def _round_url(self) -> str:
        return f"{self.url}/rounds/{self.round.digest.hex()}"

    async def _consistency_path(
        self, before: Checkpoint | LogCheckpoint, point: Checkpoint
    ) -> list[bytes]:
        if not 0 < before.size < point.size:
            return []
        url = f"{self.url}/proofs/consistency?old={before.size}&new={point.size}"
        return await self._path(url)

    async def _inclusion_path(self, place: int, point: Checkpoint) -> list[bytes]:
        if self._trusted.witnesses.least and place >= point.size:
            raise Unavailable(_NOT_COSIGNED)
        return await self._path(f"{self.url}/proofs/inclusion?place={place}&size={point.size}")

    async def _path(self, url: str) -> list[bytes]:
        """Fetch a proof; treat a board that gives none as one that equivocates."""
        try:
            proof = read_document(await self._peers.get(url), dict[str, list[str]], _WRONG_DOCUMENT)
            return [bytes.fromhex(step) for step in proof["path"]]
        except (Refused, KeyError, ValueError):
            raise Equivocation(
                "the board gives no proof that its log only grew and contains this; do not rely"
                " on it"
            ) from None


def _store_larger(
    path: Path, raw: bytes, load: Callable[[], Checkpoint | LogCheckpoint | None], most: int
) -> None:
    """Store a checkpoint unless the stored one has a size above `most`, under the folder's lock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder_lock(path):
        stored = load()
        if stored is None or stored.size <= most:
            write_bytes(path, raw, secret=True, replace=True)


def _stored_note(path: Path) -> LogCheckpoint | None:
    return LogCheckpoint.read(Note.read(path.read_bytes()).text) if path.exists() else None


def _hashes(raw: bytes) -> list[bytes]:
    return [raw[at : at + HASH_SIZE] for at in range(0, len(raw), HASH_SIZE)]


# -- ways to fetch an answer

MOST: Final = 2_000
"""Number of entries up to which `by_size` fetches the whole bulletin, also through a relay."""


@dataclass(frozen=True)
class OwnEntries:
    """The entry of a person's report and those of the decoys, and the heading of their bulletin.

    Attributes:
        decoys: for each decoy its entry; None if the board says that it has none.
    """

    heading: VerifiedHeading
    entry: VerifiedEntry
    decoys: tuple[VerifiedEntry | None, ...] = ()


class Retrieval(Protocol):
    """A way to fetch and verify the board's answer for a ticket.

    The whole bulletin shows nobody which entry is wanted. One entry with its proof is small, but
    the board sees which one it is, so it goes through a relay; a person with decoys fetches those
    of all their addresses. Raises `Absent` while the round has no outcome.
    """

    async def __call__(self, view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntries:
        """Fetch and verify."""


async def whole_board(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntries:
    """Fetch the whole bulletin."""
    del ticket
    return await view.bulletin()


async def one_entry(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntries:
    """Fetch one entry with its proof, through a relay; for a refused round the empty bulletin.

    With decoys, fetch the entries of all addresses in random order, and each at a random time of
    its own, so that the board can tell neither the report's nor which belong together (S12.52).
    """
    if not view.relayed:
        raise Misuse(
            "a direct request for your entry would show the board which one is yours; give a relay,"
            " or fetch the whole board"
        )
    if not any((await view.heading()).sizes):
        return await view.bulletin()
    shown = await _entries(view, ticket.group, ticket.addresses)
    first, *others = (shown[address] for address in ticket.addresses)
    if first is None:
        raise Missing(
            f"the board says that your address {ticket.keys.address.hex()} is not on the bulletin;"
            " check this on the whole board with `--retrieval whole`"
        )
    heading, entry = first
    return OwnEntries(heading, entry, tuple(None if one is None else one[1] for one in others))


async def _entries(
    view: BoardView, group: int, addresses: Sequence[bytes]
) -> dict[bytes, tuple[VerifiedHeading, VerifiedEntry] | None]:
    """Fetch the entries of addresses; None for one that is not on the bulletin.

    The caller has waited for a random time already, which serves if there is one address.
    """
    shown: dict[bytes, tuple[VerifiedHeading, VerifiedEntry] | None] = {}

    async def fetch(address: bytes) -> None:
        if len(addresses) > 1:
            await wait_random(view.window)
        try:
            shown[address] = await view.entry(group, address)
        except Absent:
            shown[address] = None

    await asyncio.gather(*map(fetch, system().shuffled(addresses)))
    return shown


async def by_size(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntries:
    """Fetch one entry if there is a relay and the bulletin is large, else the whole bulletin."""
    large = view.relayed and sum((await view.heading()).sizes) > MOST
    return await (one_entry if large else whole_board)(view, ticket)


RETRIEVALS: Final[dict[str, Retrieval]] = {
    "by-size": by_size,
    "whole": whole_board,
    "entry": one_entry,
}
"""All ways, by name."""
