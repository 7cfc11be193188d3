"""Signed notes (C2SP): checkpoints as any transparency log writes them, and cosignatures.

A note is a text with signatures under it. A witness cosigns a checkpoint after it has checked that
the log only grew. Knows keys that check; signing is a function that is handed in. SPEC section 18.
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
"""The most signatures that are read; C2SP asks for at least 16."""
_DASH: Final = "\u2014 "
_NAME: Final = re.compile(r"[^\s+\x00-\x1f\x7f]{1,255}")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
Sign = Callable[[bytes], bytes]


@dataclass(frozen=True)
class NoteKey:
    """Who may sign a note: a name with an Ed25519 key, for texts or for cosignatures."""

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
        given, _, coded = rest.partition("+")
        raw = _bytes(coded)
        if not raw or raw[0] not in {ED25519, COSIGNATURE} or len(raw) != 1 + VERIFYING_SIZE:
            raise Malformed("this key of notes is of a kind that is not known here")
        key = cls(name, raw[1:], raw[0])
        if not _NAME.fullmatch(name) or given != key.id.hex():
            raise Malformed("the id in this key of notes is not that of its name and bytes")
        return key

    def check(self, text: str, signature: bytes) -> int:
        """Raise `BadSignature` unless the key's owner signed a text; the time of a cosignature."""
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
            raise Malformed("this note is no text") from None
        cut = whole.rfind("\n\n")
        text, lines = whole[: cut + 1], whole[cut + 2 :]
        if cut < 0 or not lines.endswith("\n") or _CONTROL.search(whole):
            raise Malformed("this is no note: a text, an empty line, and signatures")
        listed = lines.split("\n")[:-1]
        if not 1 <= len(listed) <= _LINES:
            raise Malformed(f"a note has 1 to {_LINES} signatures")
        return cls(text, tuple(_signature(line) for line in listed))

    def write(self) -> bytes:
        """Write the note."""
        return f"{self.text}\n{''.join(map(_line, self.signatures))}".encode()

    def signed(self, key: NoteKey, sign: Sign, *, time: int = 0) -> "Note":
        """Put a signature under it, or for a key of that kind a cosignature with its time."""
        made = sign(self.text.encode())
        if key.kind == COSIGNATURE:
            made = time.to_bytes(_TIME_SIZE, "big") + sign(_cosigned(self.text, time))
        return Note(self.text, (*self.signatures, (key.name, key.id, made)))

    def signers(self, keys: Collection[NoteKey]) -> dict[NoteKey, int]:
        """Find which of these keys signed, with the times of cosignatures.

        Signatures of others are ignored. One of a known key that does not hold refuses the note.
        """
        known = {(key.name, key.id): key for key in keys}
        found: dict[NoteKey, int] = {}
        for name, number, signature in self.signatures:
            key = known.get((name, number))
            if key is not None:
                found[key] = key.check(self.text, signature)
        return found

    def only(self, key: NoteKey) -> "Note | None":
        """Give the note with the signature of one key alone, or None if it has none."""
        if not self.signers([key]):
            return None
        own = (one for one in self.signatures if one[:2] == (key.name, key.id))
        return Note(self.text, (next(own),))


@dataclass(frozen=True)
class LogCheckpoint:
    """A checkpoint as a note's text: which log, how many leaves, and the root over them."""

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
            raise Malformed("this note is no checkpoint: origin, size and root")
        root = _bytes(lines[2])
        if len(root) != HASH_SIZE:
            raise Malformed("the root of this checkpoint is no hash")
        return cls(lines[0], int(lines[1]), root)


@dataclass(frozen=True)
class Submission:
    """What a log sends to a witness: from which size on, the proof, and the signed checkpoint."""

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
            raise Malformed("this is no submission: old size, proof, empty line, checkpoint")
        path = tuple(_bytes(line) for line in lines[1:])
        if any(len(step) != HASH_SIZE for step in path):
            raise Malformed("a line of this proof is no hash")
        return cls(int(number), path, Note.read(rest))


def signature_lines(signatures: Sequence[tuple[str, bytes, bytes]]) -> bytes:
    """Write signatures as they stand under a note."""
    return "".join(map(_line, signatures)).encode()


def read_lines(raw: bytes) -> tuple[tuple[str, bytes, bytes], ...]:
    """Read signatures as a witness answers with them."""
    return Note.read(b"\n\n" + raw).signatures


def _cosigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _line(signature: tuple[str, bytes, bytes]) -> str:
    name, number, made = signature
    return f"{_DASH}{name} {_base64(number + made)}\n"


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, _, coded = line.removeprefix(_DASH).partition(" ")
    raw = _bytes(coded)
    if not line.startswith(_DASH) or not _NAME.fullmatch(name) or len(raw) <= _ID_SIZE:
        raise Malformed("a signature of this note is none")
    return name, raw[:_ID_SIZE], raw[_ID_SIZE:]


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    """Read standard base64; what is none gives nothing."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


# HOUSE-DOC protocol.witness: 'A witness: cosigns checkpoints of logs that it has seen only grow (C2SP tlog-witness).\n\nKnows logs by their keys and the last checkpoint of each; neither what a log shows nor who reads it.\nIts caller stores the new checkpoint before the cosignature leaves. SPEC section 18.\n'
class Unknown(Refused):
    """The log is none that this witness follows."""


class Behind(Refused):
    """The submission starts from another size than the last that was cosigned.

    Attributes:
        size: the size to start from.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"the last checkpoint cosigned here has the size {size}: start from it")
        self.size = size


class Forked(Equivocation):
    """The log has signed another root for the size that was cosigned last.

    Attributes:
        size: this size.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"the log has two roots for the size {size}: keep both checkpoints")
        self.size = size


@dataclass(frozen=True)
class Accepted:
    """A checkpoint that continues the last one, to be stored and cosigned.

    Its note has the log's own signature alone: anybody may hand in a checkpoint, and what else
    stands under it is nobody's word here.
    """

    checkpoint: LogCheckpoint
    note: Note


def examine(
    raw: bytes, *, logs: Mapping[str, NoteKey], last: Mapping[str, LogCheckpoint]
) -> Accepted:
    """Check a submission against the last checkpoint of its log.

    The order of the checks is that of C2SP, which decides what a log is told.
    """
    sent = Submission.read(raw)
    point = LogCheckpoint.read(sent.note.text)
    key = logs.get(point.origin)
    if key is None:
        raise Unknown("this witness does not follow this log: ask its operator")
    signed = sent.note.only(key)
    if signed is None:
        raise BadSignature("the log's key has not signed this checkpoint")
    if sent.old > point.size:
        raise Malformed("the old size is larger than the new one")
    before = last.get(point.origin, LogCheckpoint(point.origin, 0, EMPTY))
    if sent.old != before.size:
        raise Behind(before.size)
    if not sent.old and sent.path:
        raise Equivocation("a first checkpoint has no consistency proof")
    if not point.size and point.root != EMPTY:
        raise Equivocation("a log without leaves has another root")
    if sent.old == point.size and not sent.path and point.root != before.root:
        raise Forked(before.size)
    check_consistency(
        old=before.size,
        old_root=before.root,
        new=point.size,
        new_root=point.root,
        path=sent.path,
    )
    return Accepted(point, signed)
