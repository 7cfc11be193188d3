"""JSON documents that one role writes and another role or a person reads, one class for each."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Struct

from coatcheck.protocol.agreement import SignedTerms

PAGE: Final = 1 << 18
"""The most bytes of a page of letters: the board holds a copy for each reader."""
OWN_PAGE: Final = 3800
"""The most bytes of a page of letters to one address: sealed, it fits the smallest message."""
NUMBERS: Final = "coatcheck-numbers"
MORE: Final = "coatcheck-more"
AT_ONCE: Final = 64
"""The most letters in one request."""
Group = Annotated[int, Meta(ge=0, lt=16)]
Address = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Number = Annotated[int, Meta(ge=0, le=2**40)]


class StageCount(Struct, frozen=True):
    """How many parts a stage of a job has, and how many of them are done."""

    stage: str
    parts: int
    done: int


class GroupCount(Struct, frozen=True):
    """How many uploads of a group a shuffler has, and how many it needs.

    The shuffler shows everybody the largest power of two up to the crowd, and updates it once per
    minute: exact numbers would show when each person came.
    """

    name: str
    minimum: int
    crowd: int
    enough: bool


class ShufflerRoundStatus(Struct, frozen=True):
    """The status of a round at a shuffler: counts, and nothing about any person."""

    round: str
    digest: str
    phase: str
    hop: int | None
    opens: int
    closes: int
    expires: int
    groups: list[GroupCount]


class Offer(Struct, frozen=True):
    """A shuffler's offer of a round to people: the signed terms, and the status of the round."""

    signed: SignedTerms
    status: ShufflerRoundStatus


class ServerRoundStatus(Struct, frozen=True):
    """The status of a round at the server, with the progress of its answer."""

    round: str
    digest: str
    phase: str
    outcome: str
    opened: bool
    closes: int
    expires: int
    url: str
    stages: list[StageCount]


class BoardRoundStatus(Struct, frozen=True):
    """The status of a round at the board."""

    round: str
    digest: str
    shown: bool
    letters: int


class Entry(Struct, frozen=True):
    """One entry of a bulletin with its proofs; bytes in base64, each path as one string of hashes.

    Attributes:
        place: the entry's place in the bulletin's tree.
        path: from the entry to the root in the heading.
        heading: the bulletin's signed head.
        log_place: the heading's place in the board's log.
        log_path: from the heading to the root in the checkpoint.
        checkpoint: the board's signed checkpoint.
    """

    entry: bytes
    place: int
    path: bytes
    heading: bytes
    log_place: int
    log_path: bytes
    checkpoint: bytes


class Logged(Struct, frozen=True):
    """The place of a round's terms in the log, with the proof; bytes in base64.

    Attributes:
        place: the terms' place in the log.
        path: from the terms to the root in the checkpoint.
        checkpoint: the board's signed checkpoint.
    """

    place: int
    path: bytes
    checkpoint: bytes


class Proof(Struct, frozen=True):
    """Hashes that prove something about the log."""

    path: list[str]


class Posted(Struct, frozen=True):
    """The place of a letter in the log; of several letters, that of the first."""

    place: Annotated[int, Meta(ge=0, le=2**53)]


@dataclass(frozen=True)
class Seen:
    """The part of the log that requests may read: everything that is on the disk.

    Attributes:
        size: the number of entries of the log.
        checkpoint: the board's signed checkpoint of this size.
    """

    size: int
    checkpoint: bytes
