"""The board's log under the eyes of witnesses: its checkpoint as a signed note, with cosignatures.

The board hands every new checkpoint to the witnesses of its settings. A witness that is away delays
nobody but the people who demand its word. SPEC section 18.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from coatcheck.protocol.board import Board
from coatcheck.protocol.notes import LogCheckpoint, Note, Submission, read_lines
from coatcheck.protocol.notices import Checkpoint
from coatcheck.protocol.verification import board_note_key
from coatcheck.services.board.documents import Seen
from coatcheck.services.board.tiles import TILES
from coatcheck.services.http.client import HttpClient
from coatcheck.services.http.routes import TEXT, Reply, Route
from coatcheck.services.keyring import Keyring
from coatcheck.services.leadership import Leadership
from coatcheck.services.settings import BoardSettings

R = TypeVar("R")


class Shows(Protocol):
    """What is needed of the board."""

    seen: Seen
    keyring: Keyring

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""


class Watched:
    """The latest checkpoint as a note, with the cosignatures that it has."""

    def __init__(self, board: Shows, settings: BoardSettings) -> None:
        self._board = board
        self._settings = settings
        self._signing = board.keyring.current.signing
        self._sizes = dict.fromkeys(settings.witnesses, 0)
        self._size = -1
        self._done: set[str] = set()
        self._note: Note | None = None

    @property
    def note(self) -> Note:
        """The last one that a witness cosigned; if there is none, the newest."""
        return self._note or self._fresh(self._board.seen)

    def _fresh(self, seen: Seen) -> Note:
        key = board_note_key(self._signing.public_raw.hex())
        point = Checkpoint.decode(seen.checkpoint)
        text = LogCheckpoint(key.name, point.size, point.root).write()
        return Note(text).signed(key, self._signing.sign)

    async def look(self, peers: HttpClient) -> None:
        """Have a checkpoint that is new cosigned; whoever was away is asked again."""
        seen, note, done = self._board.seen, self._note, set(self._done)
        if note is None or seen.size != self._size:
            note, done = self._fresh(seen), set()
        asked = [url for url in self._sizes if url not in done]
        found = await asyncio.gather(
            *(self._ask(url, note, seen.size, peers) for url in asked), return_exceptions=True
        )
        for url, lines in zip(asked, found, strict=True):
            if isinstance(lines, tuple) and lines:
                done.add(url)
                note = Note(note.text, (*note.signatures, *lines))
        if done:
            self._note, self._size, self._done = note, seen.size, done

    async def _path(self, old: int, new: int) -> list[bytes]:
        if not 0 < old < new:
            return []
        return await self._board.read(lambda log: log.consistency(old, new=new))

    async def _ask(
        self, url: str, note: Note, size: int, peers: HttpClient
    ) -> tuple[tuple[str, bytes, bytes], ...]:
        """Hand a checkpoint to a witness, from the size on that the witness has."""
        for _ in range(2):
            old = self._sizes[url]
            path = await self._path(old, size)
            body = Submission(old, tuple(path), note).write()
            where = self._settings.value(url)
            answer = await peers.exchange("POST", f"{where}/add-checkpoint", body)
            told = answer.body.strip()
            if answer.status == 200:
                self._sizes[url] = size
                return read_lines(answer.body)
            if answer.status != 409 or not told.isdigit() or int(told) > size:
                break
            self._sizes[url] = int(told)
        return ()


class _Board(Protocol):
    """A board's service."""

    watched: Watched
    leadership: Leadership


async def note(service: _Board) -> Reply:
    """Give the checkpoint as a signed note (C2SP), with the witnesses' cosignatures."""
    service.leadership.check()
    return Reply(service.watched.note.write())


WATCHED: Final = (
    Route("GET", "/log/checkpoint", note, media=TEXT, problems=(503,), relayed=True),
    *TILES,
)
"""What the board serves of its log for witnesses and whoever else follows it."""
