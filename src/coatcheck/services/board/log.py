"""The board's log under the eyes of witnesses: its checkpoint as a signed note, with cosignatures.

The board hands every new checkpoint to the witnesses of its settings. A witness that is away delays
nobody but the people who demand its word. SPEC section 18.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, TypeVar

from msgspec import Meta

from coatcheck.errors import Error, Malformed
from coatcheck.protocol.board import Board
from coatcheck.protocol.log.merkle import TileName, write_entries
from coatcheck.protocol.log.signed_notes import (
    COSIGNATURE,
    LogCheckpoint,
    Note,
    NoteKey,
    Submission,
    read_lines,
)
from coatcheck.protocol.log.verification import board_note_key
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.bulletins import Checkpoint
from coatcheck.services.database_writer import Leadership
from coatcheck.services.documents import Logged, Number, Proof, Seen
from coatcheck.services.settings import BoardSettings, Keyring
from coatcheck.services.web.client import HttpClient, body_of
from coatcheck.services.web.routing import ROUND, TEXT, Digest, Header, Problem, Reply, Route

# HOUSE-DOC services.board.proofs: 'What the board proves of its log: a signed checkpoint, that it has something, that it only grew.\n\nSPEC section 9.\n'
R = TypeVar("R")


class Proves(Protocol):
    """What is needed of the board."""

    seen: Seen

    async def found(self, digest: str) -> Round:
        """Find a round."""

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""

    def check_size(self, size: int = 0) -> None:
        """Refuse to prove what is not there, or not known here."""


async def checkpoint(service: Proves) -> Reply:
    """Give the board's signature over everything it has shown."""
    service.check_size()
    return Reply(service.seen.checkpoint)


async def inclusion(service: Proves, place: Number, size: Number) -> Proof:
    """Prove that a place is under the checkpoint of this size."""
    service.check_size(size)
    if place >= size:
        raise Problem("not-found", "this place is not among the first ones asked for")
    path = await service.read(lambda log: log.inclusion(place, size=size))
    return Proof(path=[step.hex() for step in path])


async def consistency(service: Proves, old: Number, new: Number) -> Proof:
    """Prove that the log only grew between two sizes."""
    service.check_size(new)
    if not 1 <= old <= new:
        raise Problem("unprocessable", "the old size is at least 1 and at most the new one")
    path = await service.read(lambda log: log.consistency(old, new=new))
    return Proof(path=[step.hex() for step in path])


async def log_path(service: Proves, place: int, *, size: int, seen: Seen) -> bytes:
    """Prove a place of the log under a checkpoint of this size, or 0 for what is seen."""
    service.check_size(size)
    under = size or seen.size
    if place >= under:
        raise Problem("unavailable", "this is not under that checkpoint yet")
    return b"".join(await service.read(lambda log: log.inclusion(place, size=under)))


async def logged(service: Proves, digest: Digest, size: Number = 0) -> Logged:
    """Prove that the log has the terms of a round; whoever joins asks before.

    The proof is under the log's first `size` places, or under all of them.
    """
    seen, round_ = service.seen, await service.found(digest)
    record = await service.read(lambda log: log.record(round_.digest))
    if record is None:
        raise Problem("not-found", "the terms of this round are not in the log")
    path = await log_path(service, record.terms, size=size, seen=seen)
    return Logged(place=record.terms, path=path, checkpoint=seen.checkpoint)


PROOFS: Final = (
    Route("GET", f"{ROUND}/logged", logged, relayed=True),
    Route("GET", "/checkpoint", checkpoint, problems=(503,), relayed=True),
    Route("GET", "/proofs/inclusion", inclusion, problems=(404, 503), relayed=True),
    Route("GET", "/proofs/consistency", consistency, problems=(404, 503), relayed=True),
)
"""What the board serves of it."""

# HOUSE-DOC services.board.tiles: "The board's log as tiles, for whoever follows it as they follow any transparency log.\n\nHashes and entries are on the board's shelf. A tile shows what is on the disk and never\nchanges, so that caches may keep it. SPEC section 18.\n"
Level = Annotated[str, Meta(description="A level from 0 on, or `entries`.", max_length=8)]
Place = Annotated[
    str, Meta(description="`x001/x234/067`, or `067.p/WIDTH` for a partial one.", max_length=40)
]
_KEPT: Final = {"cache-control": "public, max-age=31536000, immutable"}


class Tiled(Protocol):
    """What is needed of the board."""

    seen: Seen
    leadership: Leadership

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""


async def tile(service: Tiled, level: Level, place: Place) -> Reply:
    """Give a tile of the log (C2SP tlog-tiles): 256 hashes or entries, or fewer at its end."""
    service.leadership.check()
    try:
        name = TileName.read(level, place)
    except Malformed as error:
        raise Problem("not-found", str(error)) from None
    if not name.is_in(service.seen.size):
        raise Problem("not-found", f"the log has {service.seen.size} places: no such tile yet")
    if name.level is None:
        leaves = await service.read(lambda log: log.leaves(name.start, name.end))
        return Reply(write_entries(leaves), _KEPT)
    return Reply(await service.read(lambda log: log.hashes(name)), _KEPT)


TILES: Final = (
    Route(
        *("GET", "/log/tile/{level}/{place*}", tile),
        sends=(Header("cache-control", "A tile never changes."),),
        problems=(404, 503),
    ),
)
"""What the board serves of it."""

_PATIENCE: Final = 5.0
"""Seconds for which a checkpoint waits for all its cosignatures before a newer one is made."""
_SIZE: Final = re.compile(rb"([0-9]{1,18})\n?")


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
            self._keys[url] = NoteKey.read(body_of(where, answer).decode("utf-8", "replace"))
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
