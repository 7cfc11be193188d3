"""Routes of the board's log: checkpoints, proofs, tiles and witness cosignatures.

The checkpoint is the board's signature over everything that it has shown. Proofs show that the log
contains an entry, and that it only grew (SPEC section 9); people check them with
`protocol.log.verification.follow`, witnesses with `protocol.log.signed_notes.examine`. Tiles serve
the log in the format of transparency logs; they never change, so that caches may keep them.
`CosignedCheckpoint` submits every new checkpoint to the witnesses of the settings; a witness that
does not answer delays only people who demand it (section 18).
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

R = TypeVar("R")


class LogService(Protocol):
    """The part of the board's service that the log uses."""

    seen: Seen
    keyring: Keyring
    leadership: Leadership
    watched: "CosignedCheckpoint"

    async def find_round(self, digest: str) -> Round:
        """Return a round by its digest in hex."""

    async def read(self, call: Callable[[Board], R]) -> R:
        """Call a function with the board."""

    def check_size(self, size: int = 0) -> None:
        """Reject a size that the log does not have, or that this process cannot know."""


# -- checkpoints and proofs


async def checkpoint(service: LogService) -> Reply:
    """Return the newest checkpoint: the board's signature over all that it has shown."""
    service.check_size()
    return Reply(service.seen.checkpoint)


async def inclusion(service: LogService, place: Number, size: Number) -> Proof:
    """Prove that a place of the log is under the checkpoint of this size."""
    service.check_size(size)
    if place >= size:
        raise Problem("not-found", "`place` must be below `size`")
    path = await service.read(lambda log: log.inclusion(place, size=size))
    return Proof(path=[step.hex() for step in path])


async def consistency(service: LogService, old: Number, new: Number) -> Proof:
    """Prove that the log of one size continues the log of a smaller size."""
    service.check_size(new)
    if not 1 <= old <= new:
        raise Problem("unprocessable", "`old` must be from 1 to `new`")
    path = await service.read(lambda log: log.consistency(old, new=new))
    return Proof(path=[step.hex() for step in path])


async def log_path(service: LogService, place: int, *, size: int, seen: Seen) -> bytes:
    """Return the proof of a place under the checkpoint of a size; 0 stands for the newest one."""
    service.check_size(size)
    under = size or seen.size
    if place >= under:
        raise Problem(
            "unavailable", "this is not under that checkpoint yet; retry with a newer one"
        )
    return b"".join(await service.read(lambda log: log.inclusion(place, size=under)))


async def logged(service: LogService, digest: Digest, size: Number = 0) -> Logged:
    """Prove that the log has the terms of a round; clients ask before they join.

    The proof is under the checkpoint of this size, or under the newest one.
    """
    seen, round_ = service.seen, await service.find_round(digest)
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
"""The routes of checkpoints and proofs."""

# -- tiles

Level = Annotated[str, Meta(description="A level from 0 on, or `entries`.", max_length=8)]
Place = Annotated[
    str, Meta(description="`x001/x234/067`, or `067.p/WIDTH` for a partial one.", max_length=40)
]
_IMMUTABLE: Final = {"cache-control": "public, max-age=31536000, immutable"}


async def tile(service: LogService, level: Level, place: Place) -> Reply:
    """Return a tile of the log (C2SP tlog-tiles): 256 hashes or entries, or fewer at its end."""
    service.leadership.check()
    try:
        name = TileName.read(level, place)
    except Malformed as error:
        raise Problem("not-found", str(error)) from None
    if not name.is_in(service.seen.size):
        raise Problem(
            "not-found", f"the log has {service.seen.size} places, so this tile does not exist yet"
        )
    if name.level is None:
        leaves = await service.read(lambda log: log.leaves(name.start, name.end))
        return Reply(write_entries(leaves), _IMMUTABLE)
    return Reply(await service.read(lambda log: log.hashes(name)), _IMMUTABLE)


TILES: Final = (
    Route(
        *("GET", "/log/tile/{level}/{place*}", tile),
        sends=(Header("cache-control", "A tile never changes."),),
        problems=(404, 503),
    ),
)
"""The routes of tiles."""

# -- cosignatures of witnesses

_PATIENCE: Final = 5.0
"""Seconds that a checkpoint waits for all its cosignatures before a newer one is submitted."""
_SIZE: Final = re.compile(rb"([0-9]{1,18})\n?")


@dataclass
class _Newest:
    """The checkpoint that was submitted to the witnesses, as a note that collects cosignatures."""

    note: Note
    size: int
    since: float
    pending: set[str] = field(default_factory=set)
    cosigned: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether all witnesses have answered, or have had enough time to."""
        return not self.pending or time.monotonic() - self.since >= _PATIENCE


class CosignedCheckpoint:
    """The latest checkpoint as a signed note, with the cosignatures that it has.

    *Guarantee:* the board adds an answer of a witness to the note only if it is a valid cosignature
    of that witness. A silent witness delays the next checkpoint once, by `_PATIENCE`.
    """

    def __init__(self, board: LogService, settings: BoardSettings) -> None:
        self._board = board
        self._settings = settings
        self._signing = board.keyring.current.signing
        self._sizes = dict.fromkeys(settings.witnesses, 0)
        self._keys: dict[str, NoteKey] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.forget()

    def forget(self) -> None:
        """Drop all notes, and begin again with the board's newest checkpoint."""
        self._newest: _Newest | None = None
        self._note: Note | None = None

    @property
    def note(self) -> Note:
        """The last note that a witness cosigned; if there is none, the newest checkpoint."""
        return self._note or self._fresh(self._board.seen)

    def _fresh(self, seen: Seen) -> Note:
        key = board_note_key(self._signing.public_raw.hex())
        point = Checkpoint.decode(seen.checkpoint)
        text = LogCheckpoint(key.name, point.size, point.root).write()
        return Note(text).signed(key, self._signing.sign)

    async def collect(self, peers: HttpClient) -> None:
        """Submit a new checkpoint to the witnesses, and an old one to those that did not answer.

        Wait for them a little, so that one note gets the cosignatures of all that work.
        """
        newest, seen = self._newest, self._board.seen
        if newest is None or (seen.size != newest.size and newest.is_over):
            newest = self._newest = _Newest(self._fresh(seen), seen.size, time.monotonic())
        tasks = [
            self._begin(url, newest, peers)
            for url in self._sizes
            if url not in newest.cosigned and url not in self._tasks
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)

    def _begin(self, url: str, newest: _Newest, peers: HttpClient) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._ask(url, newest, peers))
        self._tasks[url] = task
        newest.pending.add(url)

        def ended(_: object) -> None:
            newest.pending.discard(url)
            self._tasks.pop(url, None)

        task.add_done_callback(ended)
        return task

    async def close(self) -> None:
        """Cancel all submissions."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, url: str, newest: _Newest, peers: HttpClient) -> None:
        """Submit the checkpoint to a witness, and add its cosignature to the note at once."""
        try:
            address, key = await self._key_of(url, peers)
            lines = await self._submit(url, address, newest, peers)
            cosignature = _valid(newest.note.text, lines, key)
        except Error:
            return  # no valid answer: the board continues without this witness
        if not cosignature:
            self._keys.pop(url, None)  # it may have another key by now
            return
        newest.cosigned.add(url)
        newest.note = Note(newest.note.text, (*newest.note.signatures, *cosignature))
        if newest is self._newest:
            self._note = newest.note

    async def _key_of(self, url: str, peers: HttpClient) -> tuple[str, NoteKey]:
        """Return a witness's address and key, from the settings or from the witness itself.

        The board need not trust that answer: a witness cannot cosign with a key of another.
        """
        address, _, key = self._settings.value(url).partition(" ")
        if key:
            return address, NoteKey.read(key)
        if url not in self._keys:
            answer = await peers.exchange("GET", f"{address}/key")
            self._keys[url] = NoteKey.read(body_of(address, answer).decode("utf-8", "replace"))
        return address, self._keys[url]

    async def _path(self, old: int, new: int) -> list[bytes]:
        if not 0 < old < new:
            return []
        return await self._board.read(lambda log: log.consistency(old, new=new))

    async def _submit(
        self, url: str, address: str, newest: _Newest, peers: HttpClient
    ) -> tuple[tuple[str, bytes, bytes], ...]:
        """Submit a checkpoint to a witness, with the proof from the size that the witness has."""
        for _ in range(2):
            old = self._sizes[url]
            path = await self._path(old, newest.size)
            body = Submission(old, tuple(path), newest.note).write()
            answer = await peers.exchange("POST", f"{address}/add-checkpoint", body)
            if answer.status == 200:
                self._sizes[url] = newest.size
                return read_lines(answer.body)
            size = _SIZE.fullmatch(answer.body)
            if answer.status != 409 or not size or int(size[1]) > newest.size:
                break
            self._sizes[url] = int(size[1])
        return ()


def _valid(
    text: str, lines: tuple[tuple[str, bytes, bytes], ...], key: NoteKey
) -> tuple[tuple[str, bytes, bytes], ...]:
    """Return the cosignature of a key among lines if it is valid; ignore all others (C2SP)."""
    own = tuple(line for line in lines if line[:2] == (key.name, key.id))[:1]
    return own if key.kind == COSIGNATURE and Note(text, own).signers([key]) else ()


async def note(service: LogService) -> Reply:
    """Return the checkpoint as a signed note (C2SP), with the witnesses' cosignatures."""
    service.leadership.check()
    return Reply(service.watched.note.write())


WATCHED: Final = (
    Route("GET", "/log/checkpoint", note, media=TEXT, problems=(503,), relayed=True),
    *TILES,
)
"""The routes of the log as a transparency log."""
