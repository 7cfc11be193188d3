"""Signed notes (C2SP): checkpoints in the format of transparency logs, and a witness's decision.

A note is a text with signatures under it. A witness cosigns a checkpoint after `examine` has proved
that the log only grew (C2SP tlog-witness). It has the key and the last checkpoint of each log, and
knows neither what a log shows nor its readers. Its caller stores the new checkpoint before the
cosignature leaves (S18.11). This file verifies with public keys; the caller passes a function that
signs. SPEC section 18.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coatcheck.errors import BadSignature, Equivocation, Malformed, Refused
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.log.merkle import EMPTY, HASH_SIZE, check_consistency
from coatcheck.protocol.terms import VERIFYING_SIZE

ED25519: Final = 1
COSIGNATURE: Final = 4
_ID_SIZE: Final = 4
_TIME_SIZE: Final = 8
_LINES: Final = 64
"""The most signatures of a note; C2SP demands at least 16."""
_DASH: Final = "\u2014 "
_NAME: Final = re.compile(r"[^\s+\x00-\x1f\x7f]{1,255}")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
Sign = Callable[[bytes], bytes]


@dataclass(frozen=True)
class NoteKey:
    """A key that signs notes: a name with an Ed25519 key, for texts or for cosignatures."""

    name: str
    raw: bytes
    kind: int = ED25519

    @property
    def id(self) -> bytes:
        """The four bytes by which a signature names its key."""
        text = self.name.encode() + b"\n" + bytes((self.kind,)) + self.raw
        return hashlib.sha256(text).digest()[:_ID_SIZE]

    @property
    def text(self) -> str:
        """The key as C2SP writes it."""
        return f"{self.name}+{self.id.hex()}+{_base64(bytes((self.kind,)) + self.raw)}"

    @classmethod
    def read(cls, text: str) -> "NoteKey":
        """Read a key as C2SP writes it; its id must be that of its bytes."""
        name, _, rest = text.strip().partition("+")
        key_id, _, coded = rest.partition("+")
        raw = _bytes(coded)
        if not raw or raw[0] not in {ED25519, COSIGNATURE} or len(raw) != 1 + VERIFYING_SIZE:
            raise Malformed("this key for notes has an unknown kind: use an Ed25519 key")
        key = cls(name, raw[1:], raw[0])
        if not _NAME.fullmatch(name) or key_id != key.id.hex():
            raise Malformed("the id in this key for notes does not match its name and bytes")
        return key

    def check(self, text: str, signature: bytes) -> int:
        """Raise `BadSignature` unless the key's owner signed; return the time of a cosignature."""
        time, message = 0, text.encode()
        if self.kind == COSIGNATURE:
            time, signature = int.from_bytes(signature[:_TIME_SIZE], "big"), signature[_TIME_SIZE:]
            message = _cosigned(text, time)
        VerifyingKey(self.raw).check(signature, message)
        return time


@dataclass(frozen=True)
class Note:
    """A text, and the signatures under it by name and key id."""

    text: str
    signatures: tuple[tuple[str, bytes, bytes], ...] = field(default=())

    @classmethod
    def read(cls, raw: bytes) -> "Note":
        """Read a note strictly; no signature is checked yet."""
        try:
            whole = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("a note must be text in UTF-8") from None
        cut = whole.rfind("\n\n")
        text, lines = whole[: cut + 1], whole[cut + 2 :]
        if cut < 0 or not lines.endswith("\n") or _CONTROL.search(whole):
            raise Malformed("a note must be a text, an empty line, and signatures")
        listed = lines.split("\n")[:-1]
        if not 1 <= len(listed) <= _LINES:
            raise Malformed(
                f"a note must have 1 to {_LINES} signatures, this one has {len(listed)}"
            )
        return cls(text, tuple(_signature(line) for line in listed))

    def write(self) -> bytes:
        """Write the note."""
        return f"{self.text}\n{''.join(map(_line, self.signatures))}".encode()

    def signed(self, key: NoteKey, sign: Sign, *, time: int = 0) -> "Note":
        """Return the note with one more signature, or for a cosignature key with a cosignature."""
        signature = sign(self.text.encode())
        if key.kind == COSIGNATURE:
            signature = time.to_bytes(_TIME_SIZE, "big") + sign(_cosigned(self.text, time))
        return Note(self.text, (*self.signatures, (key.name, key.id, signature)))

    def signers(self, keys: Collection[NoteKey]) -> dict[NoteKey, int]:
        """Find which of these keys signed, with the times of cosignatures.

        Other signatures are ignored. An invalid one of these keys refuses the note (S18.22).
        """
        by_id = {(key.name, key.id): key for key in keys}
        signers: dict[NoteKey, int] = {}
        for name, key_id, signature in self.signatures:
            key = by_id.get((name, key_id))
            if key is not None:
                signers[key] = key.check(self.text, signature)
        return signers

    def only(self, key: NoteKey) -> "Note | None":
        """Return the note with the signature of this key alone, or None if it has none."""
        if not self.signers([key]):
            return None
        own = (line for line in self.signatures if line[:2] == (key.name, key.id))
        return Note(self.text, (next(own),))


@dataclass(frozen=True)
class LogCheckpoint:
    """A checkpoint as a note's text: the log's origin, the number of leaves, and their root."""

    origin: str
    size: int
    root: bytes

    def write(self) -> str:
        """Write the text."""
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"

    @classmethod
    def read(cls, text: str) -> "LogCheckpoint":
        """Read the text; lines after the third are allowed, and left out."""
        lines = text.split("\n")
        if len(lines) < 4 or not lines[0] or not _NUMBER.fullmatch(lines[1]):
            raise Malformed("a checkpoint must have an origin, a size and a root")
        root = _bytes(lines[2])
        if len(root) != HASH_SIZE:
            raise Malformed(
                f"the root of a checkpoint has {HASH_SIZE} bytes, this one has {len(root)}"
            )
        return cls(lines[0], int(lines[1]), root)


@dataclass(frozen=True)
class Submission:
    """A log's request to a witness: the old size, the proof, and the signed checkpoint."""

    old: int
    path: tuple[bytes, ...]
    note: Note

    def write(self) -> bytes:
        """Write the body of `add-checkpoint`."""
        steps = "".join(f"{_base64(step)}\n" for step in self.path)
        return f"old {self.old}\n{steps}\n".encode() + self.note.write()

    @classmethod
    def read(cls, raw: bytes) -> "Submission":
        """Read the body of `add-checkpoint` strictly."""
        head, mark, rest = raw.partition(b"\n\n")
        lines = head.decode("ascii", "replace").split("\n")
        word, _, number = lines[0].partition(" ")
        if not mark or word != "old" or not _NUMBER.fullmatch(number) or len(lines) > 64:
            raise Malformed("a submission must be old size, proof, an empty line, and a checkpoint")
        path = tuple(_bytes(line) for line in lines[1:])
        if any(len(step) != HASH_SIZE for step in path):
            raise Malformed(f"every line of a proof must be a hash of {HASH_SIZE} bytes in base64")
        return cls(int(number), path, Note.read(rest))


def signature_lines(signatures: Sequence[tuple[str, bytes, bytes]]) -> bytes:
    """Write signatures as the lines under a note."""
    return "".join(map(_line, signatures)).encode()


def read_lines(raw: bytes) -> tuple[tuple[str, bytes, bytes], ...]:
    """Read signatures from a witness's answer."""
    return Note.read(b"\n\n" + raw).signatures


def _cosigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _line(signature: tuple[str, bytes, bytes]) -> str:
    name, key_id, raw = signature
    return f"{_DASH}{name} {_base64(key_id + raw)}\n"


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, _, coded = line.removeprefix(_DASH).partition(" ")
    raw = _bytes(coded)
    if not line.startswith(_DASH) or not _NAME.fullmatch(name) or len(raw) <= _ID_SIZE:
        raise Malformed("a line under this note is not a signature")
    return name, raw[:_ID_SIZE], raw[_ID_SIZE:]


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    """Read standard base64; anything else gives no bytes."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


class Unknown(Refused):
    """This witness does not follow the log."""


class Behind(Refused):
    """The submission starts from another size than that of the last cosigned checkpoint.

    Attributes:
        size: the size to start from.
    """

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the last checkpoint that this witness cosigned has the size {size}: start from it"
        )
        self.size = size


class Forked(Equivocation):
    """The log signed another root for the size of the last cosigned checkpoint.

    Attributes:
        size: this size.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"the log has two roots for the size {size}: keep both checkpoints")
        self.size = size


@dataclass(frozen=True)
class Accepted:
    """A checkpoint that continues the last one, to be stored and cosigned.

    Its note has the log's own signature alone: anybody may submit a checkpoint with more lines
    under it (S18.16).
    """

    checkpoint: LogCheckpoint
    note: Note


def examine(
    raw: bytes, *, logs: Mapping[str, NoteKey], last: Mapping[str, LogCheckpoint]
) -> Accepted:
    """Check, for a witness, that a submission continues the last checkpoint of its log.

    The order of the checks is that of C2SP, which decides the answer to the log.
    """
    submission = Submission.read(raw)
    point = LogCheckpoint.read(submission.note.text)
    key = logs.get(point.origin)
    if key is None:
        raise Unknown("this witness does not follow this log: ask its operator")
    signed = submission.note.only(key)
    if signed is None:
        raise BadSignature("the log's key has not signed this checkpoint")
    if submission.old > point.size:
        raise Malformed(
            f"the old size, {submission.old}, is larger than that of the checkpoint, {point.size}"
        )
    before = last.get(point.origin, LogCheckpoint(point.origin, 0, EMPTY))
    if submission.old != before.size:
        raise Behind(before.size)
    if not submission.old and submission.path:
        raise Equivocation("the proof before the first checkpoint must be empty")
    if not point.size and point.root != EMPTY:
        raise Equivocation("this is not the root of a log without leaves")
    if submission.old == point.size and not submission.path and point.root != before.root:
        raise Forked(before.size)
    check_consistency(
        old=before.size,
        old_root=before.root,
        new=point.size,
        new_root=point.root,
        path=submission.path,
    )
    return Accepted(point, signed)
