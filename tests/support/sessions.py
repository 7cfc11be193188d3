"""A session of one person in a small round, with peers that are objects in this process."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.board import Board
from coatcheck.services.documents import Logged
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import Absent, HttpClient
from support.rounds import OPENS, SmallRound

SMALL = SmallRound()
URL = SMALL.round.address
BOARD = f"{SMALL.round.terms.board.url}/rounds/{SMALL.round.digest.hex()}"


def logged(board: Board, small: SmallRound) -> bytes:
    """Return the board's answer to a request for the logged terms of a round."""
    record = board.record(small.round.digest)
    if record is None:
        raise Absent("nothing here")
    path = b"".join(board.inclusion(record.terms))
    return msgspec.json.encode(Logged(record.terms, path, board.checkpoint()))


class First(HttpClient):
    """The first shuffler of the round, in this process."""

    def __init__(self, *, phase: str = "open", small: SmallRound = SMALL) -> None:
        self.phase = phase
        self.small = small
        self.board = small.board()
        self.shuffler = small.shuffler()
        self.sent: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.lose = False

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def get(self, url: str, *, most: int = 0) -> bytes:
        """Return the offer, or the board's proof that it has the terms."""
        del most
        if url == f"{BOARD}/logged":
            return logged(self.board, self.small)
        assert url == URL
        return msgspec.json.encode(self.small.offer(self.phase))

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Accept an upload; with `lose` set, its answer is lost."""
        assert (url, method) == (f"{URL}/uploads", "POST")
        self.sent.append(body)
        self.headers.append(headers or {})
        if self.phase != "open":
            raise Refused("the round takes no more uploads")
        receipt = self.shuffler.receive(body, now=OPENS)
        if self.lose:
            raise Unavailable("no answer")
        return receipt


class AtBoard(First):
    """A board that has no bulletin yet, shows one letter and refuses new ones."""

    letter = b""
    end = b""
    away = False

    async def get(self, url: str, *, most: int = 0) -> bytes:
        """Return the board's documents, its letters page by page, or the offer."""
        what, board = url.rpartition("/")[2], self.board
        if self.end:
            board.publish(self.end, self.small.round)
        if what == "bulletin" and self.away:
            raise Unavailable("nobody answers")
        if what == "bulletin" and not self.end:
            raise Absent("nothing here")
        known = {
            "checkpoint": board.checkpoint(),
            "bulletin": self.end,
            "place": b"1",
            "inclusion?place=1&size=2": msgspec.json.encode(
                {"path": [step.hex() for step in board.inclusion(len(board) - 1)]}
            ),
            "letters?since=0": self.letter,
            "letters?since=1": b"",
        }
        if what in known:
            return known[what]
        return await super().get(url, most=most)

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Refuse a letter."""
        del url, body, headers, method
        raise Refused("no letters today")


def open_session(path: Path, peers: First) -> Session:
    """Open a session with the ticket at `path`."""
    return Session(URL, path=path, trusted=SMALL.roles.trusted, peers=peers)
