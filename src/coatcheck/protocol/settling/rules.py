"""Rules of settling: the steps, letters and decisions by which candidates agree who meets whom.

One person's side is a plain state machine over lists of candidates (`Settling`): it returns the
letters of each step, takes in the candidates' letters, and decides (`verdict`). It has the rounded
place; keys, seals and the board are elsewhere. Everybody writes the same number of letters of one
size at every step, so that letters show nobody the outcome. The ticket stores `Progress`. SPEC
section 15.
"""

import hmac
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Final

from msgspec import Meta, Struct

from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Misuse, Refused

MARK: Final = 0
"""The first byte of the body of every letter of settling; no text begins with it."""
HALF: Final = 16
TAG_SIZE: Final = 16
HERE, YOURS, WOULD = 1, 2, 4
"""Flags of a letter: "I am free and here"; "I ask you", or "I hold you"; "I would take you"."""
_HEAD: Final = struct.Struct(">BBB")
_LABEL: Final = b"coatcheck/v1/settle/"

_LAST: Final = 2**31 - 8

Small = Annotated[int, Meta(ge=0, le=2**31)]
Cell = tuple[Annotated[int, Meta(ge=-(2**31), lt=2**31)], ...]


class Kind(Enum):
    """The kind of a step: what people write at it."""

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
    """A step: its kind, and the number of its list of candidates."""

    kind: Kind
    turn: int


def schedule(asks: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps of settling (S15.1): `asks` is how often people ask with each list."""
    kinds = [
        (turn, kind)
        for turn, times in enumerate(asks)
        for kind in (Kind.PLACES, *(Kind.ASK, Kind.ANSWER) * times, Kind.TAG, Kind.CLOSE)
    ]
    return (*(Step(kind, turn) for turn, kind in kinds), Step(Kind.WORDS, len(asks) - 1))


class Word(Struct, frozen=True, array_like=True):
    """The newest letter of a candidate: its step, and what it says."""

    step: Small
    flags: Small
    half: bytes
    cell: Cell


class Notice(Struct, frozen=True, array_like=True):
    """A public notice with its sender."""

    sender: bytes
    step: Small
    tag: bytes


class Progress(Struct, kw_only=True, forbid_unknown_fields=True):
    """The state of settling that a ticket stores.

    Attributes:
        cell: the person's rounded place.
        begun: when the person began, in seconds since 1970.
        step: the step at which the person speaks next.
        read: how many letters of the round were read.
        heard: the newest letter of each candidate, by address in hex.
        notices: the first notice of everybody for each step, in the order of the board.
        chosen: for each list the candidate whom the person's tag is for; empty for nobody.
        points: the blinded cells of candidates, by address in hex; for the test of nearness.
        replies: the candidates' replies to the person's blinded cell.
        words: what candidates wrote at the last step, by address in hex.
        placed: the person's own notices with their places in the board's log.
        outbox: the postings of the last step; after a crash the client sends these again.
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
        """Store the place of a notice in the board's log; a crash may repeat it."""
        if (place, posting) not in self.placed:
            self.placed.append((place, posting))


def prf(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    """Derive 32 bytes for one purpose."""
    return hmac.digest(key, _LABEL + label + b"\0" + data, "sha256")


def cell_of(place: Sequence[float], *, scale: Sequence[float], side: float) -> Cell:
    """Round a place to its cell: the number of the cell on each axis (S15.5).

    Refused if letters and tickets cannot hold these numbers, or those of the cells around (S15.6).
    """
    factors = scale or (1.0,) * len(place)
    try:
        numbers = [float(x * f // side) for x, f in zip(place, factors, strict=True)]
    except UNTRUSTED_DATA_ERRORS as error:
        raise Refused(f"the terms give this place no cell: {error}; do not settle here") from None
    if not all(-_LAST <= number <= _LAST for number in numbers):
        raise Refused("the cells of this round are too small for this place: do not settle here")
    return tuple(int(number) for number in numbers)


def write_word(index: int, flags: int, *, half: bytes, cell: Cell) -> bytes:
    """Write the body of a letter for a step."""
    return _HEAD.pack(MARK, index, flags) + half + struct.pack(f">{len(cell)}i", *cell)


def read_word(body: bytes) -> Word:
    """Read a body that has the right size."""
    half, rest = body[_HEAD.size : _HEAD.size + HALF], body[_HEAD.size + HALF :]
    return Word(body[1], body[2], half, struct.unpack(f">{len(rest) // 4}i", rest))


def word_size(axes: int) -> int:
    """Return the bytes of the body of a letter, for places with `axes` axes."""
    return _HEAD.size + HALF + 4 * axes


def pair_tag(key: bytes, turn: int, sender: bytes) -> bytes:
    """Return the tag by which a sender names the other owner of a pair's key."""
    return prf(key, b"tag", bytes((turn,)) + sender)[:TAG_SIZE]


_SILENCES: Final = 2  # missing letters in a row after which a candidate is gone (S15.10)


class Settling:
    """One person's side of settling.

    *Guarantee:* an honest person ends with at most one partner, and an honest partner ends with
    that person, if both read the same log: see `verdict`.

    Attributes:
        address: the person's own address.
        asks: whether the person is on the side that asks (S15.2).
        lists: for each pass the addresses of the candidates; no address is in two of them.
        secret: 32 bytes that only this person can derive, also after a crash.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        address: bytes,
        asks: bool,
        lists: Sequence[Sequence[bytes]],
        secret: bytes,
        steps: Sequence[Step],
    ) -> None:
        if len(lists) != steps[-1].turn + 1:
            raise Misuse(f"{steps[-1].turn + 1} passes need as many lists, got {len(lists)}")
        self.progress, self.steps = progress, steps
        self.address, self.asks = address, asks
        self.lists = tuple(tuple(names) for names in lists)
        self._secret = secret
        self._keys: dict[tuple[bytes, bytes], bytes] = {}
        self._turn_of = {name: turn for turn, names in enumerate(self.lists) for name in names}

    # -- writing

    @property
    def done(self) -> bool:
        """Whether the person has nothing more to write."""
        return self.progress.step >= len(self.steps)

    def speaks(self, index: int, *, asks: bool) -> bool:
        """Return whether a side writes at a step."""
        kind = self.steps[index].kind
        return asks if kind is Kind.ASK else not asks if kind is Kind.ANSWER else True

    def ready(self, *, late: bool = False) -> bool:
        """Return whether the next step may begin: all have written, or it is late.

        Even when it is late, the person's own notices must be on the board (S15.20).
        """
        before = self.progress.step - 1
        if before < 0:
            return True
        step = self.steps[before]
        if step.kind in NOTICES and (self.address, before) not in self._order:
            return False
        if late or step.kind is Kind.CLOSE:
            return True
        active = [name for name in self.lists[step.turn] if not self._missed(name, before)]
        if step.kind is Kind.TAG:
            return all((name, before) in self._order for name in active)
        if not self.speaks(before, asks=not self.asks):
            return True
        return all(
            (word := self._word(name)) is not None and word.step >= before for name in active
        )

    def speak(self, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Advance one step; return the recipients and bodies of its letters.

        A letter to one's own address is a public notice. `words` go to the partner at the end.
        """
        index = self.progress.step
        step = self.steps[index]
        self.progress.step += 1
        if step.kind is Kind.TAG:
            return [(self.address, bytes((MARK, index)) + self._tag(step.turn))]
        if step.kind is Kind.CLOSE:
            return [(self.address, bytes((MARK, index)))]
        if step.kind is Kind.WORDS:
            return [
                (name, bytes((MARK, index)) + (words if name == self.partner else b""))
                for name in self._turn_of
            ]
        if not self.speaks(index, asks=self.asks):
            return []
        free = self.partner is None
        chosen = self._choice(step.turn) if free and step.kind is not Kind.PLACES else None
        return [
            (name, self._body(index, name, chosen if free else None, dummy=not free))
            for name in self.lists[step.turn]
        ]

    def _body(self, index: int, name: bytes, chosen: bytes | None, *, dummy: bool) -> bytes:
        cell = self.progress.cell
        if dummy:
            return write_word(index, 0, half=bytes(HALF), cell=(0,) * len(cell))
        flags = HERE
        if name == chosen:
            flags |= YOURS
        if self.steps[index].kind is Kind.ANSWER and (chosen is None or self._nearer(name, chosen)):
            flags |= WOULD
        return write_word(index, flags, half=self._half(name), cell=cell)

    # -- reading

    def receive(self, sender: bytes, body: bytes) -> bool:
        """Take in a candidate's letter; drop and count one that does not belong here (S15.24)."""
        reason = self._wrong(sender, body) or self._stale(sender, body)
        if reason:
            return self._drop(reason)
        if self.steps[body[1]].kind is Kind.WORDS:
            self.progress.words[sender.hex()] = body[2:]
        else:
            self.progress.heard[sender.hex()] = read_word(body)
        return True

    def _wrong(self, sender: bytes, body: bytes) -> str:
        """Say why these bytes are no letter of a candidate, at any time; empty if they are one."""
        if sender not in self._turn_of:
            return "sender"
        if len(body) < 2 or body[0] != MARK:
            return "size"
        step = self._step(body)
        if step is None or step.kind in NOTICES or not self.speaks(body[1], asks=not self.asks):
            return "step"
        if step.kind is Kind.WORDS:
            return ""
        if step.turn != self._turn_of[sender]:
            return "step"
        return "" if len(body) == word_size(len(self.progress.cell)) else "size"

    def _stale(self, sender: bytes, body: bytes) -> str:
        """Say why a candidate's letter does not count after earlier ones; empty if it does."""
        index, last = body[1], self._word(sender)
        step = self.steps[index]
        if step.kind is Kind.WORDS:
            return "repeated" if sender.hex() in self.progress.words else ""
        if self.progress.step > self._notices_of[step.turn][0]:
            return "late"
        if last is None:
            return ""
        if index <= last.step:
            return "repeated" if index == last.step else "late"
        word = read_word(body)
        moved = (last.half, last.cell) != (word.half, word.cell)
        return "changed" if moved and last.flags & word.flags & HERE else ""

    def notice(self, sender: bytes, body: bytes) -> bool:
        """Take in a public notice, in the order of the board; the first of each step counts."""
        step = self._step(body)
        reason = ""
        if sender != self.address and sender not in self._turn_of:
            reason = "sender"
        elif step is None or step.kind not in NOTICES:
            reason = "step"
        elif len(body) != 2 + (TAG_SIZE if step.kind is Kind.TAG else 0):
            reason = "size"
        elif (sender, body[1]) in self._order:
            reason = "repeated"
        if reason:
            return self._drop(reason)
        self._order[sender, body[1]] = len(self.progress.notices)
        self.progress.notices.append(Notice(sender, body[1], body[2:]))
        return True

    def _step(self, body: bytes) -> Step | None:
        """Find the step that a body is for."""
        is_step = len(body) >= 2 and body[0] == MARK and body[1] < len(self.steps)
        return self.steps[body[1]] if is_step else None

    def _drop(self, reason: str) -> bool:
        self.progress.dropped[reason] = self.progress.dropped.get(reason, 0) + 1
        return False

    # -- deciding

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The partner, once it is certain; empty before."""
        return () if self.partner is None else (self.partner,)

    @property
    def partner(self) -> bytes | None:
        """The partner's address, as soon as it is certain."""
        verdicts = (self.verdict(turn) for turn in range(len(self.progress.chosen)))
        return next((partner for partner in verdicts if partner is not None), None)

    def verdict(self, turn: int) -> bytes | None:
        """Return the partner that a pass gave the person, by the board alone (S15.16).

        Two people are paired if the tag of each names the other and both tags are on the board
        before the first `close` of either. All readers of the same log find the same.
        """
        chosen = self.progress.chosen[turn] if turn < len(self.progress.chosen) else b""
        tagged, closed = self._notices_of[turn]
        if not chosen or (self.address, closed) not in self._order:
            return None
        tags = [self._order.get((name, tagged)) for name in (self.address, chosen)]
        closes = [self._order.get((name, closed)) for name in (self.address, chosen)]
        first = min(place for place in closes if place is not None)
        key = self._pair_key(chosen)
        for place, name in zip(tags, (self.address, chosen), strict=True):
            if place is None or place > first or key is None:
                return None
            if not hmac.compare_digest(self.progress.notices[place].tag, pair_tag(key, turn, name)):
                return None
        return chosen

    def _choice(self, turn: int) -> bytes | None:
        """Choose the candidate to ask, or the asking candidate to hold, by the newest letters."""
        free = [name for name in self.lists[turn] if self._free(name)]
        choosers = [name for name in free if self._has_flag(name, YOURS)]
        if not self.asks:
            return self._nearest(choosers)
        return self._nearest(choosers or [name for name in free if self._open(name)])

    def _tag(self, turn: int) -> bytes:
        """Fix the choice of this pass, and return the tag that only the chosen one can read."""
        chosen = self._choice(turn) if self.partner is None else None
        if self.asks and chosen is not None and not self._has_flag(chosen, YOURS):
            chosen = None
        key = self._pair_key(chosen) if chosen is not None else None
        self.progress.chosen.append(chosen if chosen is not None and key is not None else b"")
        if key is None:
            return prf(self._secret, b"nobody", bytes((turn,)))[:TAG_SIZE]
        return pair_tag(key, turn, self.address)

    def _word(self, name: bytes) -> Word | None:
        return self.progress.heard.get(name.hex())

    def _has_flag(self, name: bytes, flag: int) -> bool:
        word = self._word(name)
        return word is not None and bool(word.flags & flag)

    def _open(self, name: bytes) -> bool:
        """Return whether a candidate would take the person, or has not answered yet."""
        word = self._word(name)
        if word is None:
            return False
        return self.steps[word.step].kind is Kind.PLACES or bool(word.flags & WOULD)

    def _free(self, name: bytes) -> bool:
        return self._has_flag(name, HERE) and self._missed(name, self.progress.step) < _SILENCES

    def _missed(self, name: bytes, until: int) -> int:
        """Count the letters before a step that a candidate has not sent since the newest one."""
        turn, word = self._turn_of[name], self._word(name)
        newest = -1 if word is None else word.step
        return sum(
            self.steps[index].turn == turn
            and self.steps[index].kind in TALK
            and self.speaks(index, asks=not self.asks)
            for index in range(newest + 1, until)
        )

    def _nearest(self, names: Sequence[bytes]) -> bytes | None:
        return min(names, key=self._distance, default=None)

    def _nearer(self, name: bytes, other: bytes) -> bool:
        return self._word(name) is not None and self._distance(name) < self._distance(other)

    def _distance(self, name: bytes) -> tuple[int, bytes]:
        """Return the squared distance in cells; the pair key orders equal ones (S15.11)."""
        word, key = self._word(name), self._pair_key(name)
        if word is None or key is None:
            raise Misuse("this candidate has written no letter yet")
        apart = sum((a - b) ** 2 for a, b in zip(self.progress.cell, word.cell, strict=True))
        return apart, key

    def _half(self, name: bytes) -> bytes:
        return prf(self._secret, b"half", name)[:HALF]

    def _pair_key(self, name: bytes) -> bytes | None:
        word = self._word(name)
        if word is None:
            return None
        if (name, word.half) not in self._keys:
            halves = sorted(((self.address, self._half(name)), (name, word.half)))
            self._keys[name, word.half] = prf(b"".join(half for _, half in halves), b"pair")
        return self._keys[name, word.half]

    @cached_property
    def _order(self) -> dict[tuple[bytes, int], int]:
        """The place of each notice among all that count."""
        return {(notice.sender, notice.step): at for at, notice in enumerate(self.progress.notices)}

    @cached_property
    def _notices_of(self) -> Mapping[int, tuple[int, int]]:
        """For each pass the steps of its tag and its close."""
        return {
            step.turn: (index, index + 1)
            for index, step in enumerate(self.steps)
            if step.kind is Kind.TAG
        }
