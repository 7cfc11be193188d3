"""A board as one person follows it: the last checkpoint is kept, and the next must continue it.

Knows public things only. What a board showed once it must show for ever: a log that shrank or
forked is refused, and both signed checkpoints stay on the disk as the proof. SPEC section 9.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from coatcheck.durable_files import write_bytes
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
from coatcheck.protocol.wire.bulletins import LETTER_LEAF, Checkpoint, Heading
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services.documents import Entry, Logged
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.store import alone_beside
from coatcheck.services.web.client import BULK, Absent, HttpClient, patiently

Peers = HttpClient | RelayedClient
_NOBODY: Final = Trust()
_UNSEEN: Final = "the witnesses have not seen this on the board yet: try later"
_STRANGE: Final = "the board's answer is not what its documents say: ask its operator"


class BoardView:
    """What one ticket's owner has seen of a board.

    Attributes:
        url: the board's address, as the terms say it.
        path: the last checkpoint is kept beside it, as `.checkpoint`, and if the board shows two
            faces, the one that does not continue it as `.forked`. Several rounds of a person may
            share it: what another one has kept meanwhile never goes back.
        relayed: whether the board sees a relay instead of this person.
    """

    def __init__(
        self, round_: AgreedTerms, *, path: Path, peers: Peers, trusted: Trust = _NOBODY
    ) -> None:
        self.url = round_.terms.board.url
        self._trusted = trusted
        self.round = round_
        self.relayed = isinstance(peers, RelayedClient)
        self._kept = Path(f"{path}.checkpoint")
        self._forked = Path(f"{path}.forked")
        self._peers = peers

    async def follow(self) -> VerifiedCheckpoint:
        """Fetch the board's checkpoint, check that it continues the last one, and keep it."""
        if self._trusted.demanded:
            return await self._follow_watched()
        before = self._before()  # first: another round of this person may keep a newer one
        return await self._continue(await self._peers.get(f"{self.url}/checkpoint"), before)

    async def _follow_watched(self) -> VerifiedCheckpoint:
        """Do the same with the note that witnesses cosigned."""
        kept = Path(f"{self._kept}.note")
        before = _kept_note(kept)
        raw = await self._peers.get(f"{self.url}/log/checkpoint")
        check = partial(
            follow_watched,
            raw,
            board=self.round.terms.board.verifying,
            witnesses=self._trusted.witnesses,
            demanded=self._trusted.demanded,
        )
        point = check(before=None)  # the signatures, before anything else
        if before is not None:
            try:
                point = check(before=before, path=await self._grown(before, point))
            except Equivocation as found:
                await _write(self._forked, raw)
                raise Equivocation(f"{found} (they are {kept} and {self._forked})") from None
        await asyncio.to_thread(_keep, kept, raw, lambda: _kept_note(kept), point.size)
        return point

    def _before(self) -> Checkpoint | None:
        return Checkpoint.decode(self._kept.read_bytes()) if self._kept.exists() else None

    async def _continue(self, raw: bytes, before: Checkpoint | None) -> VerifiedCheckpoint:
        board = self.round.terms.board.verifying
        point = follow(raw, board=board, before=None)  # the signature, before anything else
        try:
            path = await self._grown(before, point) if before else []
            point = follow(raw, board=board, before=before, path=path)
        except Equivocation as found:
            await _write(self._forked, raw)
            raise Equivocation(f"{found} (they are {self._kept} and {self._forked})") from None
        await asyncio.to_thread(_keep, self._kept, raw, self._before, point.size - 1)
        return point

    async def bulletin(self) -> VerifiedBulletin:
        """Fetch the whole bulletin, and check that the board shows the same to everybody."""
        raw = await self._peers.get(f"{self._at}/bulletin", most=BULK)
        bulletin = await asyncio.to_thread(verify_bulletin, raw, self.round)
        await self.check_bulletin(bulletin)
        return bulletin

    async def heading(self) -> Heading:
        """Fetch the head of the bulletin, which the server signed; the log is not asked."""
        heading = Heading.decode(await self._peers.get(f"{self._at}/heading"))
        check_heading(heading, self.round)
        return heading

    async def entry(self, group: int, address: bytes) -> tuple[VerifiedHeading, VerifiedEntry]:
        """Fetch one entry, with the proof that it is the one that everybody can see."""
        point, before, url = await self._under(f"{self._at}/entries/{group}/{address.hex()}")
        found = read_document(await self._peers.get(url), Entry, _STRANGE)
        heading = verify_heading(
            Heading.decode(found.heading),
            self.round,
            point=point or await self._continue(found.checkpoint, before),
            place=found.log_place,
            path=_steps(found.log_path),
        )
        place, path = found.place, _steps(found.path)
        entry = verify_entry(found.entry, group=group, heading=heading, place=place, path=path)
        return heading, entry

    async def check_logged(self) -> None:
        """Check that the board's log has the terms, before anything of a report leaves."""
        point, before, url = await self._under(f"{self._at}/logged")
        try:
            found = read_document(await self._peers.get(url), Logged, _STRANGE)
        except Absent:
            raise Refused(
                "the board has not logged the terms of this round, so others may be shown other"
                " ones: nothing was sent; ask its organizer"
            ) from None
        point = point or await self._continue(found.checkpoint, before)
        check_logged(self.round, point=point, place=found.place, path=_steps(found.path))

    async def _under(self, url: str) -> tuple[VerifiedCheckpoint | None, Checkpoint | None, str]:
        """Give the checkpoint under which to ask for a proof, the one before, and the question.

        Without witnesses the answer brings the checkpoint.
        """
        if not self._trusted.demanded:
            return None, self._before(), url
        point = await self.follow()
        if not point.size:  # asked for no size, the board would prove it under all it shows
            raise Unavailable(_UNSEEN)
        return point, None, f"{url}?size={point.size}"

    async def check_bulletin(self, bulletin: VerifiedBulletin) -> None:
        """Check that a bulletin is in the log that the board signs for everybody."""
        point = await self.follow()
        place = read_document(await self._peers.get(f"{self._at}/place"), int, _STRANGE)
        path = await self._included(place, point)
        verify_heading(bulletin.heading, self.round, point=point, place=place, path=path)

    async def check_letters(
        self, placed: Sequence[tuple[int, bytes]], *, patience: float = 0.0
    ) -> None:
        """Check that letters are in the log, each at the place that the board's answer named."""
        try:
            await patiently(lambda: self._check_letters(placed), patience)
        except Unavailable as away:
            raise Unavailable(
                f"the board took your letter; no proof that it shows it yet ({away}): read later"
            ) from None

    async def _check_letters(self, placed: Sequence[tuple[int, bytes]]) -> None:
        point = await self.follow()
        for place, posting in placed:
            path, leaf = await self._included(place, point), LETTER_LEAF + posting
            check_inclusion(leaf, place=place, size=point.size, root=point.root, path=path)

    @property
    def _at(self) -> str:
        return f"{self.url}/rounds/{self.round.digest.hex()}"

    async def _grown(self, before: Checkpoint | LogCheckpoint, point: Checkpoint) -> list[bytes]:
        if not 0 < before.size < point.size:
            return []
        url = f"{self.url}/proofs/consistency?old={before.size}&new={point.size}"
        return await self._path(url)

    async def _included(self, place: int, point: Checkpoint) -> list[bytes]:
        if self._trusted.demanded and place >= point.size:
            raise Unavailable(_UNSEEN)
        return await self._path(f"{self.url}/proofs/inclusion?place={place}&size={point.size}")

    async def _path(self, url: str) -> list[bytes]:
        """Fetch a proof; a board that gives none counts as one that shows two faces."""
        try:
            proof = read_document(await self._peers.get(url), dict[str, list[str]], _STRANGE)
            return [bytes.fromhex(step) for step in proof["path"]]
        except (Refused, KeyError, ValueError):
            raise Equivocation(
                "the board gives no proof that its log only grew and shows this: do not rely on it"
            ) from None


def _keep(
    path: Path, raw: bytes, kept: Callable[[], Checkpoint | LogCheckpoint | None], most: int
) -> None:
    """Keep a checkpoint if the one that is kept has at most so many places; alone meanwhile."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone_beside(path):
        newest = kept()
        if newest is None or newest.size <= most:
            write_bytes(path, raw, secret=True, replace=True)


async def _write(path: Path, raw: bytes) -> None:
    """Keep a checkpoint; the disk must not stop others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    await asyncio.to_thread(write_bytes, path, raw, secret=True, replace=True)


def _kept_note(path: Path) -> LogCheckpoint | None:
    return LogCheckpoint.read(Note.read(path.read_bytes()).text) if path.exists() else None


def _steps(raw: bytes) -> list[bytes]:
    return [raw[at : at + HASH_SIZE] for at in range(0, len(raw), HASH_SIZE)]


# HOUSE-DOC services.person.retrieval: 'Retrieval: the ways to fetch your answer from the board, under one contract.\n\nThe whole board tells nobody which entry is yours. One entry with its proof is small, and shows the\nboard which one is asked for; so it goes through a relay, which does not see it. SPEC section 9.\n'
MOST: Final = 2_000
"""Entries up to which the whole board is fetched, also when a relay is known."""


@dataclass(frozen=True)
class OwnEntry:
    """One entry, and the head of the bulletin that it belongs to."""

    heading: VerifiedHeading
    entry: VerifiedEntry


class Retrieval(Protocol):
    """A way to fetch what the board shows for a ticket, verified; the ticket opens it.

    Raises `Absent` while the round is not answered.
    """

    async def __call__(self, view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
        """Fetch and verify."""


async def whole_board(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch the whole bulletin, as everybody does."""
    del ticket
    return await view.bulletin()


async def one_entry(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch one entry with its proof, through a relay; of a refused round the empty bulletin."""
    if not view.relayed:
        raise Misuse(
            "asking the board for your entry directly shows which one is yours: give a relay, or"
            " fetch the whole board"
        )
    if not any((await view.heading()).sizes):
        return await view.bulletin()
    try:
        return OwnEntry(*await view.entry(ticket.group, ticket.keys.address))
    except Absent:
        raise Missing(
            f"the board says that your address {ticket.keys.address.hex()} is not on it; fetch the"
            " whole board (--retrieval whole) to see for yourself"
        ) from None


async def by_size(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch one entry if there is a relay and the board is large, else the whole board."""
    large = view.relayed and sum((await view.heading()).sizes) > MOST
    return await (one_entry if large else whole_board)(view, ticket)


RETRIEVALS: Final[dict[str, Retrieval]] = {
    "by-size": by_size,
    "whole": whole_board,
    "entry": one_entry,
}
"""Every way, by its name."""
