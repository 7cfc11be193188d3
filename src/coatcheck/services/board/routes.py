"""The board as a service: bulletins and letters for everybody, in a log that only grows.

Shows what is on its disk and nothing else: a checkpoint never covers what a crash could take
back. Opens nothing. SPEC section 9.
"""

import asyncio
import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, TypeVar, cast

from coatcheck.errors import Error, Refused
from coatcheck.protocol.agreement import (
    SignedTerms,
    check_own_entry,
    read_signed,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.board import Board, LetterLimitReached, NotShown, PageSource
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.log.merkle import KeyValueStore, TileCache
from coatcheck.protocol.terms import Round, read_terms
from coatcheck.protocol.wire.bulletins import Heading, heading_size
from coatcheck.services import clock
from coatcheck.services.batch_transfer import delivery, spool_delivery
from coatcheck.services.board.letters import MAIL, NO_LETTER, Kind
from coatcheck.services.board.log import PROOFS, WATCHED, Watched, log_path
from coatcheck.services.board.store import BoardStore
from coatcheck.services.database_writer import GroupCommit
from coatcheck.services.documents import Address, BoardRoundStatus, Entry, Group, Number, Seen
from coatcheck.services.settings import BoardSettings
from coatcheck.services.web.app import Service
from coatcheck.services.web.client import HttpClient
from coatcheck.services.web.connections import Wire, read_body
from coatcheck.services.web.gateway import GATEWAY, Gateway
from coatcheck.services.web.routing import (
    ROUND,
    Digest,
    Header,
    Long,
    Nothing,
    Problem,
    Reply,
    Route,
)

_KEPT: Final = Header("cache-control", "A bulletin never changes.")
_KNOWN: Final = 64
"""How many rounds' terms are held."""
_LISTED: Final = 100
_HELD: Final = 1 << 20
"""Bytes of a bulletin up to which no file is needed while it arrives."""
Item = tuple[Round, Kind, bytes]
"""A round, and what is to be shown of it: its terms, the heading of a staged end, or a letter."""
Placed = tuple[int, bool]
"""A place in the log, and whether something new stands there."""
R = TypeVar("R")


class BoardService(Service[BoardSettings, BoardStore]):
    """One board for many rounds.

    Everything is on its shelf. Memory holds the newest checkpoint and what was asked for last, so
    it does not grow with rounds, entries or letters.
    """

    role = "board"
    settings_type = BoardSettings
    store_type = BoardStore

    def __init__(self, settings: BoardSettings, store: BoardStore | None = None) -> None:
        super().__init__(settings, store)
        self._known: OrderedDict[bytes, Round] = OrderedDict()
        self._tiles = TileCache()
        self._ending = asyncio.Lock()
        self.load_seen()
        self.gateway = Gateway(self.keyring, clock=self.clock, period=settings.gateway_period)
        self.watched = Watched(self, settings)
        self._peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.commits = GroupCommit(self.commit, queue=settings.queue, group=200)
        self.loops += [self.commits.run]

    # -- rounds

    async def found(self, digest: str) -> Round:
        """Find a round that was admitted, by its digest in hex."""
        raw = bytes.fromhex(digest)
        if raw not in self._known:
            signed = await asyncio.to_thread(self.store.signed, raw)
            if signed is None:
                raise self.absent("this board has no such round")
            self._know(read_terms(read_signed(signed).document.encode()))
        self._known.move_to_end(raw)
        return self._known[raw]

    def _know(self, round_: Round) -> None:
        self._known[round_.digest] = round_
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board, as it is at one moment, off the event loop."""
        try:
            return await asyncio.to_thread(self.look, call)
        except NotShown:
            text = "this round has not ended yet: ask again later"
            raise Problem("not-found", text) from None

    async def list_rounds(self) -> list[BoardRoundStatus]:
        """List the newest rounds, a hundred at most."""
        newest = await asyncio.to_thread(self.store.newest, _LISTED)
        return [await self.round_status(digest.hex()) for digest in newest]

    async def round_status(self, digest: Digest) -> BoardRoundStatus:
        """Say what the board has of a round."""
        round_ = await self.found(digest)
        record = await self.read(lambda log: log.record(round_.digest))
        shown, letters = (False, 0) if record is None else (record.outcome is not None, record.letters)
        return BoardRoundStatus(
            round=round_.terms.round, digest=digest, shown=shown, letters=letters
        )

    async def admit(self, digest: Digest, body: SignedTerms) -> BoardRoundStatus:
        """Log the terms of a round of a known server, which everybody signed; again, no change."""
        round_ = verify_signatures(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        if bytes.fromhex(round_.terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this board does not know the server of these terms")
        if not self.keyring.has(round_.terms.board.verifying):
            raise Problem("refused", "these terms name another board")
        check_own_entry(round_.terms.board, url=self.url)
        await self.write(self.store.admit, round_.digest, write_signed(body))
        self._know(round_)
        clock.reach("board.admitted")
        await self.show(round_, "terms")
        return await self.round_status(digest)

    # -- bulletins and letters

    async def publish(self, digest: Digest, wire: Wire) -> Nothing:
        """Show the bulletin of a round, which its server delivers; again, nothing changes."""
        round_, limit = await self.found(digest), self.settings.batch_limit
        sender = round_.terms.server.verifying
        with SpooledTemporaryFile(max_size=_HELD, dir=self.settings.folder) as file:
            await spool_delivery(
                wire, digest=round_.digest, sender=sender, limit=limit, into=cast("BinaryIO", file)
            )
            await self._end(round_, cast("PageSource", file))
        return Nothing()

    async def take_end(self, digest: Digest, wire: Wire) -> Nothing:
        """Show that a round was given up, as its signature says; again, nothing changes."""
        round_, (scope, receive, _) = await self.found(digest), wire
        limit = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
        await self._end(round_, io.BytesIO(await read_body(scope, receive, limit=limit)))
        return Nothing()

    async def _end(self, round_: Round, source: PageSource) -> None:
        """Check an end and stage it, and then have it shown; one after the other."""
        self.leadership.check()
        async with self._ending:
            heading = await asyncio.to_thread(self.stage, round_, source)
            clock.reach("board.staged")
            await self.show(round_, "bulletin", heading.encode())

    async def bulletin(self, digest: Digest) -> Reply:
        """Give the whole bulletin: whoever fetches all of it tells nothing about themselves."""
        found = (await self.found(digest)).digest

        async def part(start: int, end: int) -> bytes:
            return await self.read(lambda log: log.part(found, start, end))

        size = await self.read(lambda log: log.length(found))
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Long(headers=kept, size=size, read=part)

    async def heading(self, digest: Digest) -> Reply:
        """Give the signed head of a bulletin: the outcome of the round in numbers."""
        found = (await self.found(digest)).digest
        return Reply(await self.read(lambda log: log.heading(found)))

    async def entry(
        self, digest: Digest, group: Group, address: Address, size: Number = 0
    ) -> Entry:
        """Give one entry with its proof; asking shows which one you want: ask through a relay.

        The proof is under the log's first `size` places, or under all of them.
        """
        of, seen, wanted = (await self.found(digest)).digest, self.seen, bytes.fromhex(address)

        def look(log: Board) -> tuple[tuple[bytes, int, list[bytes]], bytes, int]:
            found = log.entry(of, group=group, address=wanted)
            return found, log.heading(of), log.place(of)

        try:
            (found, place, path), heading, log_place = await self.read(look)
        except Refused as refused:
            raise Problem("not-found", str(refused)) from None
        return Entry(
            entry=found,
            place=place,
            path=b"".join(path),
            heading=heading,
            log_place=log_place,
            log_path=await log_path(self, log_place, size=size, seen=seen),
            checkpoint=seen.checkpoint,
        )

    async def place(self, digest: Digest) -> int:
        """Give the place of a round's heading in the log."""
        found = (await self.found(digest)).digest
        return await self.read(lambda log: log.place(found))

    def check_size(self, size: int = 0) -> None:
        """Answer only while this process leads: an older log would look like one that shrank."""
        if not self.leadership.leads:
            raise Problem("unavailable", "this process stands by, and does not know the log")
        if size > self.seen.size:
            raise Problem("not-found", f"the log has {self.seen.size} places")

    # -- what happens by itself

    async def show(self, round_: Round, kind: Kind, raw: bytes = b"") -> int:
        """Have something shown; its place in the log."""
        self.leadership.check()
        found = await self.commits.add((round_, kind, raw))
        if isinstance(found, LetterLimitReached):
            raise Problem("refused", "this address has all the letters that a round allows it")
        if isinstance(found, NotShown):
            raise Problem("closed", "letters begin when the bulletin is there")
        if isinstance(found, Error):
            raise Problem("malformed", NO_LETTER) if kind == "letter" else found
        place, fresh = found
        self.metrics.taken.labels(kind if fresh else "known").inc()
        return place

    async def end(self) -> None:
        """Let go of what the service holds."""
        await self.watched.close()
        await self._peers.close()
        await super().end()

    async def load(self) -> None:
        """Read the size of the log, when this process begins to lead.

        What was cosigned when it last led may be older than what another process has shown since.
        """
        await asyncio.to_thread(self.load_seen)
        self.watched.forget()

    async def step(self) -> None:
        """Hand what is new to the witnesses, and count what is here and what waits."""
        await self.watched.look(self._peers)
        self.metrics.waiting.set(self.commits.waiting)
        logged, ended = await self.read(Board.tally)
        self.metrics.rounds.labels("admitted").set(logged)
        self.metrics.rounds.labels("shown").set(ended)

    # -- off the event loop

    def look(self, call: Callable[[Board], R]) -> R:
        """Look at the board, as it is at one moment."""
        with self.store.reading() as shelf:
            return call(self._board(shelf, cache=self._tiles))

    def _board(self, shelf: KeyValueStore, cache: TileCache | None = None) -> Board:
        # Who writes caches nothing: a transaction that fails takes its tiles back.
        each = self.settings.letters_each
        return Board(sign=self._sign, check=_check, letters_each=each, store=shelf, cache=cache)

    def load_seen(self) -> None:
        """Sign what is on the disk, which may be seen."""
        self.seen = self.look(lambda log: Seen(len(log), log.checkpoint()))

    def stage(self, round_: Round, source: PageSource) -> Heading:
        """Check an end, and put its entries where nobody sees them yet."""
        with self.store.staging(self.leadership.fence) as shelf:
            return self._board(shelf).stage(source, round_)

    def commit(self, items: Sequence[Item]) -> list[Placed | Error]:
        """Check a group, write it, and only then let it be seen.

        *Guarantee:* no checkpoint covers what is not on the disk; what is refused costs itself.
        """
        clock.reach("board.write")
        results: list[Placed | Error] = []
        with self.store.shelving(self.leadership.fence) as shelf:
            log = self._board(shelf)
            before = len(log)
            for item in items:
                size = len(log)
                try:
                    place = _put(log, *item)
                    results.append((place, place >= size))
                except (Refused, NotShown) as refused:
                    results.append(refused)
            seen = self.seen
            if len(log) > before:
                log.save()
            # Also what a commit before this one wrote, if the answer to it was lost.
            if len(log) > seen.size:
                seen = Seen(len(log), log.checkpoint())
        clock.reach("board.written")
        if seen.size > self.seen.size:  # it may have been read anew meanwhile, and never shrinks
            self.seen = seen
        return results

    def _sign(self, message: bytes) -> bytes:
        return self.keyring.current.signing.sign(message)

    table = (
        Route("GET", "/rounds", list_rounds),
        Route("GET", ROUND, round_status, relayed=True),
        Route("PUT", ROUND, admit, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/bulletin", bulletin, sends=(_KEPT,), relayed=True),
        delivery(f"{ROUND}/bulletin", publish),
        Route("POST", f"{ROUND}/end", take_end, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/heading", heading, relayed=True),
        Route("GET", f"{ROUND}/entries/{{group}}/{{address}}", entry, relayed=True),
        *MAIL,
        Route("GET", f"{ROUND}/place", place, relayed=True),
        *PROOFS,
        *WATCHED,
        *GATEWAY,
    )


def _put(log: Board, round_: Round, kind: Kind, raw: bytes) -> int:
    if kind == "terms":
        return log.log_terms(round_)
    if kind == "letter":
        return log.post(raw, round_)
    return log.show(Heading.decode(raw), round_)


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)
