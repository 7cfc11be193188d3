"""The board's log under the eyes of witnesses: its checkpoint as a signed note, with cosignatures.

The board hands every new checkpoint to the witnesses of its settings. A witness that is away delays
nobody but the people who demand its word. SPEC section 18.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from coatcheck.errors import Error
from coatcheck.protocol.board import Board
from coatcheck.protocol.notes import (
    COSIGNATURE,
    LogCheckpoint,
    Note,
    NoteKey,
    Submission,
    read_lines,
)
from coatcheck.protocol.notices import Checkpoint
from coatcheck.protocol.verification import board_note_key
from coatcheck.services.board.documents import Seen
from coatcheck.services.board.tiles import TILES
from coatcheck.services.http.client import HttpClient, taken
from coatcheck.services.http.routes import TEXT, Reply, Route
from coatcheck.services.keyring import Keyring
from coatcheck.services.leadership import Leadership
from coatcheck.services.settings import BoardSettings

_PATIENCE: Final = 5.0
"""Seconds for which a checkpoint waits for all its cosignatures before a newer one is made."""
_SIZE: Final = re.compile(rb"([0-9]{1,18})\n?")
R = TypeVar("R")


class Shows(Protocol):
    """What is needed of the board."""

    seen: Seen
    keyring: Keyring

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""


@dataclass
class _Newest:
    """The checkpoint that witnesses are asked for: a note that gathers their cosignatures."""

    note: Note
    size: int
    since: float
    asked: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether all who were asked have answered, or it was waited for them for long enough."""
        return not self.asked or time.monotonic() - self.since >= _PATIENCE


class Watched:
    """The latest checkpoint as a note, with the cosignatures that it has.

    *Guarantee:* what a witness answers is shown if it is a good cosignature of its own, so no
    witness can spoil a note. One that is silent delays the next checkpoint once, by `_PATIENCE`.
    """

    def __init__(self, board: Shows, settings: BoardSettings) -> None:
        self._board = board
        self._settings = settings
        self._signing = board.keyring.current.signing
        self._sizes = dict.fromkeys(settings.witnesses, 0)
        self._keys: dict[str, NoteKey] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self.forget()

    def forget(self) -> None:
        """Forget what was cosigned, and begin with what the board shows now."""
        self._newest: _Newest | None = None
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
        """Have a checkpoint that is new cosigned; whoever was away is asked again.

        It is waited for them a little, so that one note gets the words of all that are well.
        """
        newest, seen = self._newest, self._board.seen
        if newest is None or (seen.size != newest.size and newest.is_over):
            newest = self._newest = _Newest(self._fresh(seen), seen.size, time.monotonic())
        begun = [
            self._begin(url, newest, peers)
            for url in self._sizes
            if url not in newest.done and url not in self._asking
        ]
        if begun:
            await asyncio.wait(begun, timeout=_PATIENCE)

    def _begin(self, url: str, newest: _Newest, peers: HttpClient) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._ask(url, newest, peers))
        self._asking[url] = task
        newest.asked.add(url)

        def ended(_: object) -> None:
            newest.asked.discard(url)
            self._asking.pop(url, None)

        task.add_done_callback(ended)
        return task

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in (asking := list(self._asking.values())):
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, url: str, newest: _Newest, peers: HttpClient) -> None:
        """Have a witness cosign, and put its word under the note at once."""
        try:
            where, key = await self._known(url, peers)
            lines = await self._cosigned(url, where, newest, peers)
            made = _held(newest.note.text, lines, key)
        except Error:
            return  # it is away, or is no witness: nobody else waits for it
        if not made:
            self._keys.pop(url, None)  # it may have another key by now
            return
        newest.done.add(url)
        newest.note = Note(newest.note.text, (*newest.note.signatures, *made))
        if newest is self._newest:
            self._note = newest.note

    async def _known(self, url: str, peers: HttpClient) -> tuple[str, NoteKey]:
        """Give a witness's address and its key, by the settings or as the witness tells it.

        It need not be trusted: whoever tells another's key cannot cosign with it.
        """
        where, _, told = self._settings.value(url).partition(" ")
        if told:
            return where, NoteKey.read(told)
        if url not in self._keys:
            answer = await peers.exchange("GET", f"{where}/key")
            self._keys[url] = NoteKey.read(taken(where, answer).decode("utf-8", "replace"))
        return where, self._keys[url]

    async def _path(self, old: int, new: int) -> list[bytes]:
        if not 0 < old < new:
            return []
        return await self._board.read(lambda log: log.consistency(old, new=new))

    async def _cosigned(
        self, url: str, where: str, newest: _Newest, peers: HttpClient
    ) -> tuple[tuple[str, bytes, bytes], ...]:
        """Hand a checkpoint to a witness, from the size on that the witness has."""
        for _ in range(2):
            old = self._sizes[url]
            path = await self._path(old, newest.size)
            body = Submission(old, tuple(path), newest.note).write()
            answer = await peers.exchange("POST", f"{where}/add-checkpoint", body)
            if answer.status == 200:
                self._sizes[url] = newest.size
                return read_lines(answer.body)
            told = _SIZE.fullmatch(answer.body)
            if answer.status != 409 or not told or int(told[1]) > newest.size:
                break
            self._sizes[url] = int(told[1])
        return ()


def _held(
    text: str, lines: tuple[tuple[str, bytes, bytes], ...], key: NoteKey
) -> tuple[tuple[str, bytes, bytes], ...]:
    """Give the cosignature of a key among lines, if it holds; all others are ignored (C2SP)."""
    own = tuple(line for line in lines if line[:2] == (key.name, key.id))[:1]
    return own if key.kind == COSIGNATURE and Note(text, own).signers([key]) else ()


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
