"""A witness: cosigns checkpoints of logs that it has seen only grow (C2SP tlog-witness).

Knows logs by their keys and the last checkpoint of each; neither what a log shows nor who reads it.
Its caller stores the new checkpoint before the cosignature leaves. SPEC section 18.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coatcheck.errors import BadSignature, Malformed, Refused, TwoFaces
from coatcheck.protocol.merkle import EMPTY, check_consistency
from coatcheck.protocol.notes import LogCheckpoint, Note, NoteKey, Submission


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


class Forked(TwoFaces):
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
        raise TwoFaces("a first checkpoint has no consistency proof")
    if not point.size and point.root != EMPTY:
        raise TwoFaces("a log without leaves has another root")
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
