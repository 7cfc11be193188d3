"""The steps of settling, the bodies of its letters, and what a ticket keeps of it.

Plain data and layouts: `settling` decides what is said. SPEC section 15.
"""

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from coatcheck.errors import SHAPELESS, Refused

MARK: Final = 0
"""The first byte of the body of every letter of settling; no text begins with it."""
HALF: Final = 16
TAG_SIZE: Final = 16
HERE, YOURS, WOULD = 1, 2, 4
"""What a letter says: "I am free and here"; "I ask you", or "I hold you"; "I would take you"."""
_HEAD: Final = struct.Struct(">BBB")
_LABEL: Final = b"coatcheck/v1/settle/"

_LAST: Final = 2**31 - 8

Small = Annotated[int, Meta(ge=0, le=2**31)]
Cell = tuple[Annotated[int, Meta(ge=-(2**31), lt=2**31)], ...]


class Kind(Enum):
    """What is said at a step, and by whom."""

    PLACES = "places"
    ASK = "ask"
    ANSWER = "answer"
    TAG = "tag"
    CLOSE = "close"
    BLIND = "blind"
    REPLY = "reply"
    WORDS = "words"


NOTICES: Final = frozenset({Kind.TAG, Kind.CLOSE})
"""The steps at which everybody writes one public notice instead of letters."""
TALK: Final = frozenset({Kind.PLACES, Kind.ASK, Kind.ANSWER})
"""The steps at which candidates write letters that say something."""


@dataclass(frozen=True)
class Step:
    """One step: its kind, and the number of the list of candidates that it is about."""

    kind: Kind
    turn: int


def schedule(asks: Sequence[int]) -> tuple[Step, ...]:
    """Give the steps of settling for so many times of asking with each list."""
    kinds = [
        (turn, kind)
        for turn, times in enumerate(asks)
        for kind in (Kind.PLACES, *(Kind.ASK, Kind.ANSWER) * times, Kind.TAG, Kind.CLOSE)
    ]
    return (*(Step(kind, turn) for turn, kind in kinds), Step(Kind.WORDS, len(asks) - 1))


class Word(Struct, frozen=True, array_like=True):
    """The newest letter of a candidate: the step it is for, and what it says."""

    step: Small
    said: Small
    half: bytes
    cell: Cell


class Notice(Struct, frozen=True, array_like=True):
    """A public notice, and who signed it."""

    sender: bytes
    step: Small
    tag: bytes


class Progress(Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a person is: all that a ticket keeps of settling.

    Attributes:
        cell: the person's rounded place.
        begun: when the person began, in seconds since 1970.
        step: the step at which the person speaks next.
        read: how many letters of the round were read.
        heard: the newest letter of each candidate, by address in hex.
        notices: the first notice of everybody for each step, in the order of the board.
        chosen: for each list whom the person's tag is for; empty for nobody.
        points: the blinded cells of candidates, by address in hex; for the test of nearness.
        replies: what they replied to the person's own.
        words: what candidates wrote at the last step, by address in hex.
        placed: the person's own notices with their places in the board's log.
        outbox: the postings of the step before; after a crash these and no others are sent.
        dropped: how many letters were dropped, by reason.
    """

    cell: Cell
    begun: float = 0.0
    step: Small = 0
    read: Small = 0
    heard: dict[str, Word] = {}
    notices: list[Notice] = []
    chosen: list[bytes] = []
    points: dict[str, bytes] = {}
    replies: dict[str, bytes] = {}
    words: dict[str, bytes] = {}
    placed: list[tuple[Annotated[int, Meta(ge=0, le=2**53)], bytes]] = []
    outbox: list[bytes] = []
    dropped: dict[str, Small] = {}

    def keep_place(self, place: int, posting: bytes) -> None:
        """Keep where the board's log has a notice; after a crash it is told again."""
        if (place, posting) not in self.placed:
            self.placed.append((place, posting))


def prf(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    """Derive 32 bytes for one purpose."""
    return hmac.digest(key, _LABEL + label + b"\0" + data, "sha256")


def cell_of(place: Sequence[float], *, scale: Sequence[float], side: float) -> Cell:
    """Round a place to its cell: the number of the cell on each axis.

    Numbers that letters and tickets do not hold, also those of the cells around it, are refused.
    """
    factors = scale or (1.0,) * len(place)
    try:
        found = [float(x * f // side) for x, f in zip(place, factors, strict=True)]
    except SHAPELESS as error:
        raise Refused(f"the terms give this place no cell: {error}") from None
    if not all(-_LAST <= number <= _LAST for number in found):
        raise Refused("the cells of this round are too small for this place: do not settle here")
    return tuple(int(number) for number in found)


def write_word(index: int, said: int, *, half: bytes, cell: Cell) -> bytes:
    """Write the body of a letter for a step."""
    return _HEAD.pack(MARK, index, said) + half + struct.pack(f">{len(cell)}i", *cell)


def read_word(body: bytes) -> Word:
    """Read what a body of the right size says."""
    half, rest = body[_HEAD.size : _HEAD.size + HALF], body[_HEAD.size + HALF :]
    return Word(body[1], body[2], half, struct.unpack(f">{len(rest) // 4}i", rest))


def word_size(axes: int) -> int:
    """Bytes of such a body for places with so many axes."""
    return _HEAD.size + HALF + 4 * axes


def pair_tag(key: bytes, turn: int, sender: bytes) -> bytes:
    """Give the tag by which a sender names the other owner of a pair's key."""
    return prf(key, b"tag", bytes((turn,)) + sender)[:TAG_SIZE]
