"""What the board's routes take and give, and what of the log may be seen."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Struct

PAGE: Final = 1 << 18
"""The most bytes of a page of letters: a copy is held for each reader."""
OWN_PAGE: Final = 3800
"""The same for letters to one address; sealed by the gateway, such a page has the least size."""
NUMBERS: Final = "coatcheck-numbers"
MORE: Final = "coatcheck-more"
AT_ONCE: Final = 64
"""The most letters in one request."""
Group = Annotated[int, Meta(ge=0, lt=16)]
Address = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Number = Annotated[int, Meta(ge=0, le=2**40)]


class BoardRoundStatus(Struct, frozen=True):
    """What the board has of a round."""

    round: str
    digest: str
    shown: bool
    letters: int


class Entry(Struct, frozen=True):
    """One entry of a bulletin with all that proves it; bytes in base64, paths in one piece.

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
    """Where the log has the terms of a round, with the proof; bytes in base64.

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
