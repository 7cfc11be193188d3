"""WITNESS: cosigns checkpoints of boards, after it has checked that their logs only grew.

It has the boards' keys and the last checkpoint of each, and learns nothing about people or rounds.
Each checkpoint is on the disk before its cosignature leaves, so that no crash makes the witness
cosign a fork. One process at a time has the folder of checkpoints. SPEC section 18.
"""

import asyncio
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse
from coatcheck.protocol.keys import read_keys, read_public
from coatcheck.protocol.log.signed_notes import (
    COSIGNATURE,
    Behind,
    Forked,
    LogCheckpoint,
    Note,
    NoteKey,
    Unknown,
    examine,
    signature_lines,
)
from coatcheck.protocol.log.verification import board_note_key
from coatcheck.services.settings import WitnessSettings
from coatcheck.services.web.app import COMMON_WITHOUT_STORE, App
from coatcheck.services.web.connections import Wire, read_body, respond
from coatcheck.services.web.routing import TEXT, Problem, Reply, Route

SIZE_MEDIA: Final = "text/x.tlog.size"
_MOST: Final = 1 << 16
"""The most bytes of a submission."""
Log = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="SHA-256 of the log's origin.")]


class WitnessService(App[WitnessSettings]):
    """A witness for the boards that its settings name.

    *Guarantee:* while it runs, no other process starts on its folder of checkpoints.
    """

    role = "witness"
    settings_type = WitnessSettings

    def __init__(self, settings: WitnessSettings) -> None:
        super().__init__(settings)
        self._signing = read_keys(settings.path(settings.key)).pairs.signing
        self.note_key = NoteKey(settings.name, self._signing.public_raw, COSIGNATURE)
        listed = [read_public(settings.path(name)).verifying for name in settings.boards]
        keys = [board_note_key(verifying) for verifying in listed]
        self._logs = {key.name: key for key in keys}
        self._lock = asyncio.Lock()
        self._folder = settings.path(settings.checkpoints)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._held = _lock(self._folder)
        try:
            listed_notes = {key.name: self._stored(key) for key in keys}
        except BaseException:
            os.close(self._held)
            raise
        self._notes = {name: note for name, note in listed_notes.items() if note is not None}

    async def end(self) -> None:
        """Unlock the folder."""
        os.close(self._held)

    def _path(self, origin: str) -> Path:
        return self._folder / f"{_hash(origin)}.note"

    def _stored(self, key: NoteKey) -> Note | None:
        path = self._path(key.name)
        if not path.exists():
            return None
        note = Note.read(read_bytes(path))
        if not note.signers([key]):
            raise Misuse(
                f"{path} holds no checkpoint signed by its log; restore it from a backup. Do not"
                " delete it: without it this witness could cosign a fork"
            )
        return note

    async def add_checkpoint(self, wire: Wire) -> None:
        """Cosign a checkpoint that continues the last one of its log (C2SP tlog-witness)."""
        scope, receive, send = wire
        raw = await read_body(scope, receive, limit=_MOST)
        try:
            lines = await self._cosign(raw)
        except (Behind, Forked) as error:
            size = b"%d\n" % error.size
            await respond(send, 409, size, media=SIZE_MEDIA.encode())
            return
        await respond(send, 200, lines, media=TEXT.encode())

    async def _cosign(self, raw: bytes) -> bytes:
        async with self._lock:
            last = {name: LogCheckpoint.read(note.text) for name, note in self._notes.items()}
            try:
                accepted = examine(raw, logs=self._logs, last=last)
            except Unknown as error:
                raise Problem("not-found", str(error)) from None
            except BadSignature as error:
                raise Problem("forbidden", str(error)) from None
            except Equivocation as error:
                self.metrics.taken.labels("refused").inc()
                if isinstance(error, Forked):
                    raise
                raise Problem("unprocessable", str(error)) from None
            except Malformed as error:
                raise Problem("malformed", str(error)) from None
            now = int(time.time())
            note = accepted.note.signed(self.note_key, self._signing.sign, time=now)
            origin = accepted.checkpoint.origin
            self._check_unchanged(origin)
            path = self._path(origin)
            await asyncio.to_thread(write_bytes, path, note.write(), replace=True)
            self._notes[origin] = note
            self.metrics.taken.labels("cosigned").inc()
            return signature_lines(note.signatures[-1:])

    def _check_unchanged(self, origin: str) -> None:
        """Stop the process if something else changed the stored checkpoint of a log (S18.12)."""
        path, note = self._path(origin), self._notes.get(origin)
        if (read_bytes(path) if path.exists() else None) != (note and note.write()):
            self.fail(
                f"{path} is not as this witness stored it, so that it could cosign a fork: restore"
                " the newest copy, and let nothing but one witness write in this folder"
            )
            raise Problem("unavailable", "this witness stops: its checkpoint was changed")

    async def checkpoint(self, log: Log) -> Reply:
        """Return the last checkpoint of a log that this witness cosigned."""
        for origin, note in self._notes.items():
            if _hash(origin) == log:
                return Reply(note.write())
        raise Problem("not-found", "this witness has cosigned no checkpoint of this log")

    async def key(self) -> Reply:
        """Return the key that verifies the cosignatures, as a C2SP verifier key."""
        return Reply(f"{self.note_key.text}\n".encode())

    table = (
        Route(
            *("POST", "/add-checkpoint", add_checkpoint),
            gives=Reply,
            media=TEXT,
            problems=(403, 404, 409, 422),
        ),
        Route("GET", "/{log}/checkpoint", checkpoint, media=TEXT, problems=(404,)),
        Route("GET", "/key", key, media=TEXT),
    )
    common = COMMON_WITHOUT_STORE


def _lock(folder: Path) -> int:
    """Lock a folder of checkpoints until the end of this process (S18.13); return its lock file."""
    path = folder / ".lock"
    try:
        held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise Misuse(
            f"another witness already runs on {folder}: two could cosign a fork. Stop it first; its"
            " lock ends with its process"
        ) from None
    return held


def _hash(origin: str) -> str:
    return hashlib.sha256(origin.encode()).hexdigest()
