"""HTTP handlers and route table of the board: bulletins and letters, in a log that only grows.

The board shows only what is on its disk: a checkpoint never covers what a crash could take back. It
cannot open any seal. SPEC section 9.
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
from coatcheck.protocol.oblivious_http import SLACK
from coatcheck.protocol.terms import Round, read_terms
from coatcheck.protocol.wire.bulletins import (
    KEY_LIST_LIMIT,
    PERIOD,
    Heading,
    KeyList,
    heading_size,
)
from coatcheck.services import clock
from coatcheck.services.batch_transfer import delivery, spool_delivery
from coatcheck.services.board.letters import LETTER_ROUTES, NO_LETTER, Kind
from coatcheck.services.board.log import PROOFS, WATCHED, CosignedCheckpoint, log_path
from coatcheck.services.board.store import BoardStore
from coatcheck.services.database_writer import GroupCommit
from coatcheck.services.documents import (
    Address,
    BoardRoundStatus,
    Entry,
    Group,
    Logged,
    Number,
    Seen,
)
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

_IMMUTABLE: Final = Header("cache-control", "A bulletin never changes.")
_CACHED_ROUNDS: Final = 64
"""Number of rounds whose terms are held in memory."""
_LISTED: Final = 100
"""Number of rounds in a list."""
_HELD: Final = 1 << 20
"""Bytes of a bulletin up to which it is held in memory while it arrives."""
Item = tuple[Round | None, Kind, bytes]
"""A round, and what to append for it: its terms, the heading of a staged outcome, or a letter.

Without a round it is the key list of a gateway.
"""
Placed = tuple[int, bool]
"""A place in the log, and whether it is new."""
R = TypeVar("R")


class BoardService(Service[BoardSettings, BoardStore]):
    """A board for many rounds.

    Everything is in its key-value store. Memory holds the newest checkpoint and a cache of
    fixed size, so it does not grow with rounds, entries or letters.
    """

    role = "board"
    settings_type = BoardSettings
    store_type = BoardStore

    def __init__(self, settings: BoardSettings, store: BoardStore | None = None) -> None:
        super().__init__(settings, store)
        self._rounds: OrderedDict[bytes, Round] = OrderedDict()
        self._tiles = TileCache()
        self._publishing = asyncio.Lock()
        self.load_seen()
        self.gateway = Gateway(self.keyring, self.store.round_keys, clock=self.clock)
        self.watched = CosignedCheckpoint(self, settings)
        self._peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.commits = GroupCommit(self.commit, queue=settings.queue, group=200)
        self.loops += [self.commits.run, self.gateway.run]

    # -- rounds

    async def find_round(self, digest: str) -> Round:
        """Return a round that was admitted, by its digest in hex."""
        raw = bytes.fromhex(digest)
        if raw not in self._rounds:
            signed = await asyncio.to_thread(self.store.signed, raw)
            if signed is None:
                raise self.absent("this board has no round with this digest")
            self._cache_round(read_terms(read_signed(signed).document.encode()))
        self._rounds.move_to_end(raw)
        return self._rounds[raw]

    def _cache_round(self, round_: Round) -> None:
        self._rounds[round_.digest] = round_
        if len(self._rounds) > _CACHED_ROUNDS:
            self._rounds.popitem(last=False)

    async def read(self, call: Callable[[Board], R]) -> R:
        """Call a function with a snapshot of the board, in a thread."""
        try:
            return await asyncio.to_thread(self.read_snapshot, call)
        except NotShown:
            raise Problem("not-found", "this round has no outcome yet; retry later") from None

    async def list_rounds(self) -> list[BoardRoundStatus]:
        """Return the newest rounds, at most a hundred."""
        newest = await asyncio.to_thread(self.store.newest, _LISTED)
        return [await self.round_status(digest.hex()) for digest in newest]

    async def round_status(self, digest: Digest) -> BoardRoundStatus:
        """Return what the board has of a round."""
        round_ = await self.find_round(digest)
        record = await self.read(lambda log: log.record(round_.digest))
        shown, letters = (
            (False, 0) if record is None else (record.outcome is not None, record.letters)
        )
        return BoardRoundStatus(
            round=round_.terms.round, digest=digest, shown=shown, letters=letters
        )

    async def admit(self, digest: Digest, body: SignedTerms) -> BoardRoundStatus:
        """Log terms that all parties signed, of a trusted server; a second time changes nothing."""
        round_ = verify_signatures(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "the digest of these terms is not the one in the address")
        if bytes.fromhex(round_.terms.server.verifying) not in self.trusted:
            raise Problem(
                "forbidden",
                "this board does not trust the server's key; its operator can add it to `trusted`",
            )
        if not self.keyring.has(round_.terms.board.verifying):
            raise Problem(
                "refused",
                "the terms name the key of another board; ask for terms with the key of this one",
            )
        check_own_entry(round_.terms.board, url=self.url)
        await self.write(self.store.admit, round_.digest, write_signed(body))
        self._cache_round(round_)
        clock.reach("board.admitted")
        await self.show(round_, "terms")
        return await self.round_status(digest)

    # -- bulletins and letters

    async def publish(self, digest: Digest, wire: Wire) -> Nothing:
        """Publish the bulletin of a round, from its server; a second time changes nothing."""
        round_, limit = await self.find_round(digest), self.settings.batch_limit
        sender = round_.terms.server.verifying
        with SpooledTemporaryFile(max_size=_HELD, dir=self.settings.folder) as file:
            await spool_delivery(
                wire, digest=round_.digest, sender=sender, limit=limit, into=cast("BinaryIO", file)
            )
            await self._publish(round_, cast("PageSource", file))
        return Nothing()

    async def take_end(self, digest: Digest, wire: Wire) -> Nothing:
        """Publish the signed outcome of an abandoned round; a second time changes nothing."""
        round_, (scope, receive, _) = await self.find_round(digest), wire
        limit = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
        await self._publish(round_, io.BytesIO(await read_body(scope, receive, limit=limit)))
        return Nothing()

    async def _publish(self, round_: Round, source: PageSource) -> None:
        """Verify and stage an outcome, then append its heading; one outcome after the other."""
        self.leadership.check()
        async with self._publishing:
            heading = await asyncio.to_thread(self.stage, round_, source)
            clock.reach("board.staged")
            await self.show(round_, "bulletin", heading.encode())

    async def bulletin(self, digest: Digest) -> Reply:
        """Return the whole bulletin; to fetch all of it shows nothing about the reader."""
        raw = (await self.find_round(digest)).digest

        async def part(start: int, end: int) -> bytes:
            return await self.read(lambda log: log.part(raw, start, end))

        size = await self.read(lambda log: log.length(raw))
        cached = {"cache-control": "public, max-age=31536000, immutable"}
        return Long(headers=cached, size=size, read=part)

    async def heading(self, digest: Digest) -> Reply:
        """Return the signed heading of a bulletin: the outcome of the round in numbers."""
        raw = (await self.find_round(digest)).digest
        return Reply(await self.read(lambda log: log.heading(raw)))

    async def entry(
        self, digest: Digest, group: Group, address: Address, size: Number = 0
    ) -> Entry:
        """Return one entry with its proof; request it through a relay, as the request names it.

        The proof is under the checkpoint of this size, or under the newest one.
        """
        raw, seen = (await self.find_round(digest)).digest, self.seen

        def find(log: Board) -> tuple[tuple[bytes, int, list[bytes]], bytes, int]:
            entry = log.entry(raw, group=group, address=bytes.fromhex(address))
            return entry, log.heading(raw), log.place(raw)

        try:
            (entry, place, path), heading, log_place = await self.read(find)
        except Refused as refused:
            raise Problem("not-found", str(refused)) from None
        return Entry(
            entry=entry,
            place=place,
            path=b"".join(path),
            heading=heading,
            log_place=log_place,
            log_path=await log_path(self, log_place, size=size, seen=seen),
            checkpoint=seen.checkpoint,
        )

    async def place(self, digest: Digest) -> int:
        """Return the place of a round's heading in the log."""
        raw = (await self.find_round(digest)).digest
        return await self.read(lambda log: log.place(raw))

    def check_size(self, size: int = 0) -> None:
        """Reject a size that the log does not have; a standby's log could seem to have shrunk."""
        if not self.leadership.leads:
            raise Problem(
                "unavailable", "this process is a standby and cannot serve the log; retry"
            )
        if size > self.seen.size:
            raise Problem("not-found", f"the log has only {self.seen.size} places")

    async def log_keys(self, wire: Wire, size: Number = 0) -> Logged:
        """Log the key list of a role's gateway, one per day, and prove that the log has it.

        The proof is under the checkpoint of this size, or under the newest one.
        """
        scope, receive, _ = wire
        raw = await read_body(scope, receive, limit=KEY_LIST_LIMIT)
        keys = KeyList.decode(raw)
        if not (keys.verifying in self.trusted or self.keyring.has(keys.verifying.hex())):
            raise Problem("forbidden", "this board knows no role with this key")
        if not keys.until - PERIOD - SLACK <= self.clock.now() < keys.until + SLACK:
            raise Problem("closed", "this key list is not for today")
        _check(keys.verifying, keys.signature, KeyList.signed_part(keys.keys, keys.until))
        place, seen = await self.show(None, "keys", raw), self.seen
        path = await log_path(self, place, size=size, seen=seen)
        return Logged(place=place, path=path, checkpoint=seen.checkpoint)

    # -- appending, and background steps

    async def show(self, round_: Round | None, kind: Kind, raw: bytes = b"") -> int:
        """Append something to the log, and return its place there."""
        self.leadership.check()
        result = await self.commits.add((round_, kind, raw))
        if isinstance(result, LetterLimitReached):
            detail = "this address has reached the round's limit of letters; no more are accepted"
            raise Problem("refused", f"{detail} for it")
        if isinstance(result, NotShown):
            detail = "letters are accepted only after the bulletin is published; retry then"
            raise Problem("closed", detail)
        if isinstance(result, Error):
            raise Problem("malformed", NO_LETTER) if kind == "letter" else result
        place, fresh = result
        self.metrics.taken.labels(kind if fresh else "known").inc()
        return place

    async def end(self) -> None:
        """Close connections and the store."""
        await self.watched.close()
        await self._peers.close()
        await super().end()

    async def load(self) -> None:
        """Read the size of the log, when this process begins to lead.

        Notes from when it last led may be older than what another process has shown since.
        """
        await asyncio.to_thread(self.load_seen)
        self.watched.forget()

    async def step(self) -> None:
        """Submit a new checkpoint to the witnesses, and set the metrics."""
        await self.watched.collect(self._peers)
        self.metrics.waiting.set(self.commits.waiting)
        logged, ended = await self.read(Board.tally)
        self.metrics.rounds.labels("admitted").set(logged)
        self.metrics.rounds.labels("shown").set(ended)

    # -- in threads

    def read_snapshot(self, call: Callable[[Board], R]) -> R:
        """Call a function with a snapshot of the board."""
        with self.store.reading() as values:
            return call(self._board(values, cache=self._tiles))

    def _board(self, values: KeyValueStore, cache: TileCache | None = None) -> Board:
        # No cache while writing: a failed transaction would leave wrong tiles in it.
        each = self.settings.letters_each
        return Board(sign=self._sign, check=_check, letters_each=each, store=values, cache=cache)

    def load_seen(self) -> None:
        """Sign a checkpoint of what is on the disk."""
        self.seen = self.read_snapshot(lambda log: Seen(len(log), log.checkpoint()))

    def stage(self, round_: Round, source: PageSource) -> Heading:
        """Verify an outcome, and store its entries where no request reads them yet."""
        with self.store.staging(self.leadership.fence) as values:
            return self._board(values).stage(source, round_)

    def commit(self, items: Sequence[Item]) -> list[Placed | Error]:
        """Append a group of items in one transaction, and only then sign a checkpoint of them.

        *Guarantee:* no checkpoint covers what is not on the disk. An item that is rejected does not
        affect the others.
        """
        clock.reach("board.write")
        results: list[Placed | Error] = []
        with self.store.appending(self.leadership.fence) as values:
            log = self._board(values)
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
            # Covers also an earlier commit whose answer was lost.
            if len(log) > seen.size:
                seen = Seen(len(log), log.checkpoint())
        clock.reach("board.written")
        if seen.size > self.seen.size:  # `load` may have set a newer one meanwhile
            self.seen = seen
        return results

    def _sign(self, message: bytes) -> bytes:
        return self.keyring.current.signing.sign(message)

    table = (
        Route("GET", "/rounds", list_rounds),
        Route("GET", ROUND, round_status, relayed=True),
        Route("PUT", ROUND, admit, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/bulletin", bulletin, sends=(_IMMUTABLE,), relayed=True),
        delivery(f"{ROUND}/bulletin", publish),
        Route("POST", f"{ROUND}/end", take_end, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/heading", heading, relayed=True),
        Route("GET", f"{ROUND}/entries/{{group}}/{{address}}", entry, relayed=True),
        *LETTER_ROUTES,
        Route("GET", f"{ROUND}/place", place, relayed=True),
        Route(
            *("POST", "/gateways", log_keys),
            status=201,
            problems=(403, 409, 429, 507),
            relayed=True,
        ),
        *PROOFS,
        *WATCHED,
        *GATEWAY,
    )


def _put(log: Board, round_: Round | None, kind: Kind, raw: bytes) -> int:
    if round_ is None:
        return log.log_keys(raw)
    if kind == "terms":
        return log.log_terms(round_)
    if kind == "letter":
        return log.post(raw, round_)
    return log.show(Heading.decode(raw), round_)


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)
