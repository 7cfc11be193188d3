"""The board as a service: bulletins and letters for everybody, in a log that only grows.

Shows what is on its disk and nothing else: a checkpoint never covers what a crash could take
back. Opens nothing. SPEC section 9.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import read_signed, settle, write_signed
from coatcheck.protocol.board import Board, Crowded
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.notices import posting_size
from coatcheck.protocol.terms import Round
from coatcheck.services import faults
from coatcheck.services.board.routes import ROUTES
from coatcheck.services.clock import Clock
from coatcheck.services.commit import GroupCommit
from coatcheck.services.http.app import Application
from coatcheck.services.http.connections import Receive, Scope, Send, read_body, respond
from coatcheck.services.http.deliveries import read_delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.keyring import Keyring, key_files
from coatcheck.services.log import log
from coatcheck.services.settings import BoardSettings
from coatcheck.stores.board import BoardStore, LogEntry, board_store

Item = tuple[Round, bytes, bool]
Placed = tuple[int, bool]
"""A place in the log, and whether something new stands there."""


@dataclass(frozen=True)
class Seen:
    """What may be seen: everything on the disk.

    Attributes:
        size: how many things were shown.
        checkpoint: the board's signed word over them.
        letters: how many letters each round has, for those with a bulletin.
    """

    size: int
    checkpoint: bytes
    letters: dict[bytes, int]


class BoardService:
    """One board for many rounds."""

    def __init__(
        self,
        settings: BoardSettings,
        *,
        store: BoardStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store or board_store(settings.store_url)
        self.clock = clock or Clock()
        self.keyring = Keyring(key_files(settings))
        self.trusted = settings.trusted_keys()
        self.rounds: dict[bytes, Round] = {}
        self.lock = threading.Lock()
        self.role = Board(sign=self._sign, check=_check, letters_each=settings.letters_each)
        self.seen = Seen(0, self.role.checkpoint(), {})
        self._stale = False
        self.app = Application("board", settings, self.store, self.step, self.load)
        self.commits = GroupCommit(self._commit, queue=settings.queue, group=200)
        self.app.loops += [self.commits.run]
        self.app.serve(ROUTES, self)

    async def publish(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Show the bulletin of a round; again, nothing changes."""
        round_ = self.found(digest)
        sender, limit = round_.terms.server.verifying, self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        await self._show(round_, raw, letter=False)
        log.info("round %s: shown", round_.terms.round)
        await respond(send, 200, b"{}", media=b"application/json")

    async def post(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Show a sealed letter; again, nothing changes."""
        round_ = self.found(digest)
        raw = await read_body(scope, receive, limit=posting_size(round_))
        if digest not in self.seen.letters:
            raise Problem("closed", "letters begin when the bulletin is there")
        if self.clock.now() >= round_.terms.expires + self.settings.letters_for:
            raise Problem("closed", "the time for letters of this round is over")
        place = await self._show(round_, raw, letter=True)
        await respond(send, 201, b'{"place":%d}' % place, media=b"application/json")

    async def admit(self, digest: bytes, raw: bytes) -> None:
        """Take up a round on terms that everybody signed, of a server that is known here."""
        signed = read_signed(raw)
        round_ = settle(signed)
        if round_.digest != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        if bytes.fromhex(round_.terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this board does not know the server of these terms")
        if not self.keyring.has(round_.terms.board.verifying):
            raise Problem("refused", "these terms name another board")
        fence = self.app.leadership.fence
        await asyncio.to_thread(self.store.admit, digest, write_signed(signed), fence=fence)
        self.rounds[digest] = round_

    def found(self, digest: bytes) -> Round:
        """Find a round that was admitted."""
        if digest not in self.rounds:
            raise self.app.absent("this board has no such round")
        return self.rounds[digest]

    async def _show(self, round_: Round, raw: bytes, *, letter: bool) -> int:
        """Have something shown; its place in the log."""
        self.app.leadership.check()
        found = await self.commits.add((round_, raw, letter))
        if isinstance(found, Crowded):
            raise Problem("refused", "this address has all the letters that a round allows it")
        if isinstance(found, Refused):
            detail = "this is no letter of this round, or to nobody in it"
            raise Problem("malformed", detail) if letter else found
        place, fresh = found
        kind = "letter" if letter else "bulletin"
        self.app.metrics.taken.labels(kind if fresh else "known").inc()
        return place

    async def load(self) -> None:
        """Build the board again from its disk, when this process begins to lead."""
        await asyncio.to_thread(self._restore)

    async def step(self) -> None:
        """Count what is here; a board does nothing by itself."""
        self.app.metrics.waiting.set(self.commits.waiting)
        self.app.metrics.rounds.labels("admitted").set(len(self.rounds))
        self.app.metrics.rounds.labels("shown").set(len(self.seen.letters))

    # -- off the event loop

    def _restore(self) -> None:
        signed = self.store.rounds()
        rounds: dict[bytes, Round] = {
            digest: settle(read_signed(raw)) for digest, raw in signed.items()
        }
        history = [(rounds[one.digest], one.raw) for one in self.store.history()]
        with self.lock:
            each = self.settings.letters_each
            self.role = Board.restore(history, sign=self._sign, check=_check, letters_each=each)
        letters = Counter(round_.digest for round_, _ in history)
        self.rounds = rounds
        # The first of each round is its bulletin.
        counts = {digest: count - 1 for digest, count in letters.items()}
        self.seen = Seen(len(history), self.role.checkpoint(), counts)
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
            for round_, raw, letter in items:
                try:
                    place = (self.role.post if letter else self.role.publish)(raw, round_)
                except Refused as refused:
                    results.append(refused)
                    continue
                new = place == self.seen.size + len(fresh)
                results.append((place, new))
                if new:
                    fresh.append(LogEntry(round_.digest, raw))
        if fresh:
            self._write(fresh)
        return results

    def _write(self, fresh: Sequence[LogEntry]) -> None:
        # Until the store has it, the role is ahead of what may be seen.
        self._stale = True
        faults.reach("board.write")
        self.store.append(fresh, at=self.seen.size, fence=self.app.leadership.fence)
        faults.reach("board.written")
        letters = dict(self.seen.letters)
        for one in fresh:
            letters[one.digest] = letters.get(one.digest, -1) + 1
        self.seen = Seen(self.seen.size + len(fresh), self.role.checkpoint(), letters)
        self._stale = False

    def _sign(self, message: bytes) -> bytes:
        return self.keyring.current.signing.sign(message)


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)
