"""The board as a service: bulletins and letters for everybody, in a log that only grows.

Shows what is on its disk and nothing else: a checkpoint never covers what a crash could take
back. Opens nothing. SPEC section 9.
"""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms, check_entry, read_signed, settle, write_signed
from coatcheck.protocol.board import Board, Crowded
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.notices import TERMS_LEAF, heading_size, posting_size
from coatcheck.protocol.terms import Round
from coatcheck.services import faults
from coatcheck.services.board.documents import (
    AT_ONCE,
    OWN_PAGE,
    PAGE,
    Address,
    Entry,
    Group,
    Logged,
    Number,
    Posted,
    RoundStatus,
    Seen,
)
from coatcheck.services.board.partners import NO_LETTER, letters_in, stamped_size
from coatcheck.services.board.proofs import PROOFS
from coatcheck.services.board.watched import WATCHED, Watched
from coatcheck.services.commit import GroupCommit
from coatcheck.services.http.app import Service
from coatcheck.services.http.client import HttpClient
from coatcheck.services.http.connections import Wire, read_body
from coatcheck.services.http.deliveries import delivery, read_delivery
from coatcheck.services.http.gateway import GATEWAY, Gateway
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import ROUND, Digest, Header, Nothing, Reply, Route
from coatcheck.services.settings import BoardSettings
from coatcheck.stores.board import BoardStore, LogEntry

_KEPT: Final = Header("cache-control", "A bulletin never changes.")
_NEXT: Final = Header("coatcheck-next", "The place to ask for next.", "^[0-9]+$")
Kind = Literal["terms", "bulletin", "letter"]
Item = tuple[Round, bytes, Kind]
"""A round, what is to be shown of it (for its terms their mark), and what that is."""
Placed = tuple[int, bool]
"""A place in the log, and whether something new stands there."""


class BoardService(Service[BoardSettings, BoardStore]):
    """One board for many rounds."""

    role = "board"
    settings_type = BoardSettings
    store_type = BoardStore

    def __init__(self, settings: BoardSettings, store: BoardStore | None = None) -> None:
        super().__init__(settings, store)
        self.rounds: dict[bytes, Round] = {}
        self.lock = threading.Lock()
        self._begin([])
        self.gateway = Gateway(self.keyring, clock=self.clock, period=settings.gateway_period)
        self.watched = Watched(self, settings)
        self._peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.commits = GroupCommit(self._commit, queue=settings.queue, group=200)
        self.loops += [self.commits.run]

    # -- rounds

    def found(self, digest: str) -> Round:
        """Find a round that was admitted, by its digest in hex."""
        raw = bytes.fromhex(digest)
        if raw not in self.rounds:
            raise self.absent("this board has no such round")
        return self.rounds[raw]

    def _shown(self, digest: str) -> Round:
        """Find a round whose bulletin is there."""
        round_ = self.found(digest)
        if round_.digest not in self.seen.letters:
            raise Problem("not-found", "this round has not ended yet: ask again later")
        return round_

    async def list_rounds(self) -> list[RoundStatus]:
        """List the rounds."""
        return [await self.round_status(digest.hex()) for digest in self.rounds]

    async def round_status(self, digest: Digest) -> RoundStatus:
        """Say what the board has of a round."""
        round_, letters = self.found(digest), self.seen.letters
        shown, count = round_.digest in letters, letters.get(round_.digest, 0)
        return RoundStatus(round=round_.terms.round, digest=digest, shown=shown, letters=count)

    async def admit(self, digest: Digest, body: SignedTerms) -> RoundStatus:
        """Log the terms of a round of a known server, which everybody signed; again, no change."""
        round_ = settle(body)
        if round_.digest.hex() != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        if bytes.fromhex(round_.terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this board does not know the server of these terms")
        if not self.keyring.has(round_.terms.board.verifying):
            raise Problem("refused", "these terms name another board")
        check_entry(round_.terms.board, url=self.url)
        await self.write(self.store.admit, round_.digest, write_signed(body))
        self.rounds[round_.digest] = round_
        faults.reach("board.admitted")
        await self._show(round_, TERMS_LEAF, "terms")
        return await self.round_status(digest)

    async def logged(self, digest: Digest, size: Number = 0) -> Logged:
        """Prove that the log has the terms of a round; whoever joins asks before.

        The proof is under the log's first `size` places, or under all of them.
        """
        seen, place = self.seen, self.log.terms_place(self.found(digest).digest)
        if place is None or place >= seen.size:
            raise Problem("not-found", "the terms of this round are not in the log")
        path = self._log_path(place, size=size, seen=seen)
        return Logged(place=place, path=path, checkpoint=seen.checkpoint)

    def _log_path(self, place: int, *, size: int, seen: Seen) -> bytes:
        """Prove a place of the log under a checkpoint of this size, or 0 for what is seen."""
        self.check_size(size)
        if size and place >= size:
            raise Problem("unavailable", "this is not under that checkpoint yet")
        with self.lock:
            return b"".join(self.log.inclusion(place, size=size or seen.size))

    # -- bulletins and letters

    async def publish(self, digest: Digest, wire: Wire) -> Nothing:
        """Show the bulletin of a round, which its server delivers; again, nothing changes."""
        round_, limit = self.found(digest), self.settings.batch_limit
        sender, (scope, receive, _) = round_.terms.server.verifying, wire
        raw = await read_delivery(scope, receive, digest=round_.digest, sender=sender, limit=limit)
        return await self._end(round_, raw)

    async def take_end(self, digest: Digest, wire: Wire) -> Nothing:
        """Show that a round was given up, as its signature says; again, nothing changes."""
        round_, (scope, receive, _) = self.found(digest), wire
        limit = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
        return await self._end(round_, await read_body(scope, receive, limit=limit))

    async def _end(self, round_: Round, raw: bytes) -> Nothing:
        await self._show(round_, raw, "bulletin")
        return Nothing()

    async def bulletin(self, digest: Digest) -> Reply:
        """Give the whole bulletin: whoever fetches all of it tells nothing about themselves."""
        raw = self.log.bulletin(self._shown(digest).digest)
        return Reply(raw, {"cache-control": "public, max-age=31536000, immutable"})

    async def heading(self, digest: Digest) -> Reply:
        """Give the signed head of a bulletin: the outcome of the round in numbers."""
        return Reply(self.log.heading(self._shown(digest).digest))

    async def entry(
        self, digest: Digest, group: Group, address: Address, size: Number = 0
    ) -> Entry:
        """Give one entry with its proof; asking shows which one you want: ask through a relay.

        The proof is under the log's first `size` places, or under all of them.
        """
        round_, seen, wanted = self._shown(digest), self.seen, bytes.fromhex(address)
        try:
            found, place, path = self.log.entry(round_.digest, group=group, address=wanted)
        except Refused as refused:
            raise Problem("not-found", str(refused)) from None
        log_place = self.log.place(round_.digest)
        return Entry(
            entry=found,
            place=place,
            path=b"".join(path),
            heading=self.log.heading(round_.digest),
            log_place=log_place,
            log_path=self._log_path(log_place, size=size, seen=seen),
            checkpoint=seen.checkpoint,
        )

    async def post(self, digest: Digest, wire: Wire) -> Posted:
        """Show a sealed letter, or several one after the other; again, nothing changes."""
        round_ = self.found(digest)
        scope, receive, _ = wire
        raw = await read_body(scope, receive, limit=AT_ONCE * stamped_size(round_))
        if round_.digest not in self.seen.letters:
            raise Problem("closed", "letters begin when the bulletin is there")
        if self.clock.now() >= round_.terms.expires + self.settings.letters_for:
            raise Problem("closed", "the time for letters of this round is over")
        shown = (self._show(round_, letter, "letter") for letter in letters_in(raw, round_))
        return Posted((await asyncio.gather(*shown))[0])

    async def letters(self, digest: Digest, since: Number = 0) -> Reply:
        """Give a page of the letters from a place on, one after the other; they have one size.

        An empty page is the last.
        """
        round_ = self._shown(digest)
        page = max(1, PAGE // posting_size(round_))
        many = min(page, max(0, self.seen.letters[round_.digest] - since))
        found = self.log.letters(round_.digest, since=since)[:many]
        return Reply(b"".join(found), {"coatcheck-next": str(since + len(found))})

    async def own_letters(self, digest: Digest, address: Address, since: Number = 0) -> Reply:
        """Give a page of the letters to one address; ask through a relay.

        An empty page is the last.
        """
        round_, size = self._shown(digest), self.seen.size
        page = max(1, OWN_PAGE // posting_size(round_))
        found = self.log.letters_to(bytes.fromhex(address), round_.digest, size=size)
        return Reply(b"".join(found[since : since + page]))

    # -- the log

    def check_size(self, size: int = 0) -> None:
        """Answer only while this process leads: an older log would look like one that shrank."""
        if not self.leadership.leads:
            raise Problem("unavailable", "this process stands by, and does not know the log")
        if size > self.seen.size:
            raise Problem("not-found", f"the log has {self.seen.size} places")

    async def place(self, digest: Digest) -> int:
        """Give the place of a round's heading in the log."""
        return self.log.place(self._shown(digest).digest)

    # -- what happens by itself

    async def _show(self, round_: Round, raw: bytes, kind: Kind) -> int:
        """Have something shown; its place in the log."""
        self.leadership.check()
        found = await self.commits.add((round_, raw, kind))
        if isinstance(found, Crowded):
            raise Problem("refused", "this address has all the letters that a round allows it")
        if isinstance(found, Refused):
            raise Problem("malformed", NO_LETTER) if kind == "letter" else found
        place, fresh = found
        self.metrics.taken.labels(kind if fresh else "known").inc()
        return place

    async def end(self) -> None:
        """Let go of what the service holds."""
        await self._peers.close()
        await super().end()

    async def load(self) -> None:
        """Build the board again from its disk, when this process begins to lead."""
        await asyncio.to_thread(self._restore)

    async def step(self) -> None:
        """Hand what is new to the witnesses, and count what is here."""
        await self.watched.look(self._peers)
        self.metrics.waiting.set(self.commits.waiting)
        self.metrics.rounds.labels("admitted").set(len(self.rounds))
        self.metrics.rounds.labels("shown").set(len(self.seen.letters))

    # -- off the event loop

    def _restore(self) -> None:
        signed = self.store.rounds()
        self.rounds = {digest: settle(read_signed(raw)) for digest, raw in signed.items()}
        self._begin((self.rounds[digest], raw) for digest, raw in self.store.history())

    def _begin(self, history: Iterable[tuple[Round, bytes]]) -> None:
        board = Board(sign=self._sign, check=_check, letters_each=self.settings.letters_each)
        board.restore(history)
        with self.lock:
            self.log = board
        self._see()

    def _see(self) -> None:
        """Let everything be seen that is on the board, which is on the disk now."""
        self.seen = Seen(len(self.log), self.log.checkpoint(), self.log.counts())
        self._stale = False

    def _commit(self, items: Sequence[Item]) -> list[Placed | Refused]:
        """Check a group, write it, and only then let it be seen.

        *Guarantee:* no checkpoint covers what is not on the disk; what is refused costs itself.
        """
        if self._stale:
            self._restore()
        fresh: list[LogEntry] = []
        results: list[Placed | Refused] = []
        with self.lock:
            for round_, raw, kind in items:
                try:
                    place = self._put(round_, raw, kind)
                except Refused as refused:
                    results.append(refused)
                    continue
                new = place == self.seen.size + len(fresh)
                results.append((place, new))
                if new:
                    fresh.append((round_.digest, raw))
        if fresh:
            self._write(fresh)
        return results

    def _put(self, round_: Round, raw: bytes, kind: Kind) -> int:
        if kind == "terms":
            return self.log.log_terms(round_)
        return (self.log.post if kind == "letter" else self.log.publish)(raw, round_)

    def _write(self, fresh: Sequence[LogEntry]) -> None:
        # Until the store has it, the role is ahead of what may be seen.
        self._stale = True
        faults.reach("board.write")
        self.store.append(fresh, at=self.seen.size, fence=self.leadership.fence)
        faults.reach("board.written")
        self._see()

    def _sign(self, message: bytes) -> bytes:
        return self.keyring.current.signing.sign(message)

    table = (
        Route("GET", "/rounds", list_rounds),
        Route("GET", ROUND, round_status),
        Route("PUT", ROUND, admit, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/logged", logged, relayed=True),
        Route("GET", f"{ROUND}/bulletin", bulletin, sends=(_KEPT,), relayed=True),
        delivery(f"{ROUND}/bulletin", publish),
        Route("POST", f"{ROUND}/end", take_end, problems=(403, 409, 429, 507)),
        Route("GET", f"{ROUND}/heading", heading, relayed=True),
        Route("GET", f"{ROUND}/letters/{{address}}", own_letters, relayed=True),
        Route("GET", f"{ROUND}/entries/{{group}}/{{address}}", entry, relayed=True),
        Route("GET", f"{ROUND}/letters", letters, sends=(_NEXT,), relayed=True),
        Route(
            *("POST", f"{ROUND}/letters", post),
            status=201,
            problems=(403, 409, 429, 507),
            relayed=True,
        ),
        Route("GET", f"{ROUND}/place", place, relayed=True),
        *PROOFS,
        *WATCHED,
        *GATEWAY,
    )


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)
