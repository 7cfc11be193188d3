"""The roles as objects in one process, on the stage that the page's tests need."""

import threading
import time
from collections.abc import Sequence

from coatcheck.agreement import SignedTerms, countersign, propose, settle
from coatcheck.board import Board
from coatcheck.demo.plays import Play
from coatcheck.drafting import draft_groups, draft_work, notary, party
from coatcheck.entropy import system
from coatcheck.parcels import Batch
from coatcheck.server import Opened, Server
from coatcheck.shuffler import Shuffler, fresh_state
from coatcheck.simulation import Cast
from coatcheck.suites import CLASSICAL
from coatcheck.terms import Round, Terms
from rounds import check


class InMemory:
    """A shuffler, a server and a board for one round, with a lock for all."""

    def __init__(self) -> None:
        self.cast = Cast.draw(suite=CLASSICAL, shufflers=1, entropy=system())
        self.trusted = self.cast.trusted
        self._lock = threading.Lock()

    def open(self, play: Play) -> SignedTerms:
        """Draft, sign and open a round of this play."""
        cast, now = self.cast, int(time.time())
        terms = Terms(
            round="evening",
            groups=draft_groups(play.drafts, task=play.task, suite=CLASSICAL),
            task=draft_work(play.task),
            server=party("server", cast.server),
            shufflers=(party("shuffler", cast.shufflers[0]),),
            board=notary("board", cast.board),
            opens=now - 1,
            closes=now + 3600,
            expires=now + 7200,
        )
        signed = propose(terms, signing=cast.server.signing)
        signed = countersign(signed, signing=cast.shufflers[0].signing, pledged={})
        self.round = settle(signed)
        state = fresh_state(self.round, system())
        self.shuffler = Shuffler(self.round, keys=cast.shufflers[0], state=state)
        self.server = Server(self.round, keys=cast.server, task=play.task)
        self.board = Board(sign=cast.board.signing.sign, check=check)
        return signed

    def upload(self, raw: bytes) -> bytes:
        """Hand in an upload and return the receipt."""
        with self._lock:
            return self.shuffler.receive(raw, now=int(time.time()))

    def close(self) -> None:
        """Shuffle, answer and publish."""
        with self._lock:
            self.batch = self.shuffler.release(now=self.round.terms.closes)
            self.board.publish(self.server.answer(self.batch), self.round)

    def bulletin(self) -> bytes:
        """Return the whole bulletin."""
        return self.board.bulletin(self.round.digest)

    def post(self, posting: bytes) -> None:
        """Post a letter."""
        with self._lock:
            self.board.post(posting, self.round)

    def letters(self) -> Sequence[bytes]:
        """Return every letter."""
        return self.board.letters(self.round.digest)

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Return what the server saw of each group."""
        assert len(uploads) == sum(
            tally.received for tally in Batch.decode(self.batch, round_).tallies
        )
        batch = Batch.decode(self.batch, round_)
        server = Server(round_, keys=self.cast.server, task=play.task)
        return [server.open_group(group, batch) for group in range(len(batch.items))]
