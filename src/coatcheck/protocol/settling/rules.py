"""Settling: candidates agree by letters who meets whom, and the letters show nobody the outcome.

A person's side as a plain state machine over lists of candidates. It knows the person's rounded
place, and what the candidates wrote; keys, seals and the board are elsewhere. Everybody writes
the same number of letters of one size at every step, whatever they decide. SPEC section 15.
"""

import hmac
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Final

from msgspec import Meta, Struct

from coatcheck.errors import SHAPELESS, Misuse, Refused

# HOUSE-DOC protocol.steps: 'The steps of settling, the bodies of its letters, and what a ticket keeps of it.\n\nPlain data and layouts: `settling` decides what is said. SPEC section 15.\n'
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


_SILENCES: Final = 2  # as many letters missing in a row, and the candidate is gone


class Settling:
    """One person's side of settling.

    *Guarantee:* an honest person ends with at most one partner, and an honest partner ends with
    them, if both read the same log: see `verdict`.

    Attributes:
        address: the person's own address.
        asks: whether the person is of the side that asks.
        lists: for each pass the addresses of the candidates; nobody is in two of them.
        secret: 32 bytes that only this person has, and has again after a crash.
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
            raise Misuse(f"there are {steps[-1].turn + 1} passes, but {len(lists)} lists")
        self.progress, self.steps = progress, steps
        self.address, self.asks = address, asks
        self.lists = tuple(tuple(one) for one in lists)
        self._secret = secret
        self._keys: dict[tuple[bytes, bytes], bytes] = {}
        self._turn_of = {who: turn for turn, names in enumerate(self.lists) for who in names}

    # -- speaking

    @property
    def done(self) -> bool:
        """Whether the person has nothing more to write."""
        return self.progress.step >= len(self.steps)

    def speaks(self, index: int, *, asks: bool) -> bool:
        """Tell whether a side writes at a step."""
        kind = self.steps[index].kind
        return asks if kind is Kind.ASK else not asks if kind is Kind.ANSWER else True

    def ready(self, *, late: bool = False) -> bool:
        """Tell whether the next step may begin: all have written, or it is late.

        Also when it is late, one's own notices must be on the board: they decide.
        """
        before = self.progress.step - 1
        if before < 0:
            return True
        step = self.steps[before]
        if step.kind in NOTICES and (self.address, before) not in self._order:
            return False
        if late or step.kind is Kind.CLOSE:
            return True
        there = [who for who in self.lists[step.turn] if not self._missed(who, before)]
        if step.kind is Kind.TAG:
            return all((who, before) in self._order for who in there)
        if not self.speaks(before, asks=not self.asks):
            return True
        return all((word := self._word(who)) is not None and word.step >= before for who in there)

    def speak(self, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Write the letters of the next step and go on: recipients and bodies.

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
                (who, bytes((MARK, index)) + (words if who == self.partner else b""))
                for who in self._turn_of
            ]
        if not self.speaks(index, asks=self.asks):
            return []
        free = self.partner is None
        chosen = self._choice(step.turn) if free and step.kind is not Kind.PLACES else None
        return [
            (who, self._body(index, who, chosen if free else None, dummy=not free))
            for who in self.lists[step.turn]
        ]

    def _body(self, index: int, who: bytes, chosen: bytes | None, *, dummy: bool) -> bytes:
        cell = self.progress.cell
        if dummy:
            return write_word(index, 0, half=bytes(HALF), cell=(0,) * len(cell))
        said = HERE
        if who == chosen:
            said |= YOURS
        if self.steps[index].kind is Kind.ANSWER and (chosen is None or self._nearer(who, chosen)):
            said |= WOULD
        return write_word(index, said, half=self._half(who), cell=cell)

    # -- hearing

    def receive(self, sender: bytes, body: bytes) -> bool:
        """Take in a candidate's letter; drop and count it if it does not belong here."""
        reason = self._wrong(sender, body) or self._stale(sender, body)
        if reason:
            return self._drop(reason)
        if self.steps[body[1]].kind is Kind.WORDS:
            self.progress.words[sender.hex()] = body[2:]
        else:
            self.progress.heard[sender.hex()] = read_word(body)
        return True

    def _wrong(self, sender: bytes, body: bytes) -> str:
        """Say why these bytes are no letter of a candidate, whenever they come."""
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
        """Say why a candidate's letter does not count after what came before it."""
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
        return "changed" if moved and last.said & word.said & HERE else ""

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
        known = len(body) >= 2 and body[0] == MARK and body[1] < len(self.steps)
        return self.steps[body[1]] if known else None

    def _drop(self, reason: str) -> bool:
        self.progress.dropped[reason] = self.progress.dropped.get(reason, 0) + 1
        return False

    # -- deciding

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The partner, or nobody."""
        return () if self.partner is None else (self.partner,)

    @property
    def partner(self) -> bytes | None:
        """The partner's address, as soon as it is certain."""
        found = (self.verdict(turn) for turn in range(len(self.progress.chosen)))
        return next((partner for partner in found if partner is not None), None)

    def verdict(self, turn: int) -> bytes | None:
        """Tell with whom a pass has paired the person, by the board alone.

        Two people are paired if the tag of each names the other and both tags stand before the
        first `close` of either. Whoever reads the same log finds the same.
        """
        chosen = self.progress.chosen[turn] if turn < len(self.progress.chosen) else b""
        tagged, closed = self._notices_of[turn]
        if not chosen or (self.address, closed) not in self._order:
            return None
        tags = [self._order.get((who, tagged)) for who in (self.address, chosen)]
        closes = [self._order.get((who, closed)) for who in (self.address, chosen)]
        first = min(place for place in closes if place is not None)
        key = self._pair_key(chosen)
        for place, who in zip(tags, (self.address, chosen), strict=True):
            if place is None or place > first or key is None:
                return None
            if not hmac.compare_digest(self.progress.notices[place].tag, pair_tag(key, turn, who)):
                return None
        return chosen

    def _choice(self, turn: int) -> bytes | None:
        """Choose whom to ask, or whom of those who ask to hold, by everybody's last word."""
        there = [who for who in self.lists[turn] if self._free(who)]
        if not self.asks:
            return self._nearest([who for who in there if self._said(who, YOURS)])
        holders = [who for who in there if self._said(who, YOURS)]
        return self._nearest(holders or [who for who in there if self._open(who)])

    def _tag(self, turn: int) -> bytes:
        """Fix whom this pass is for, and give the tag that names them to them alone."""
        chosen = self._choice(turn) if self.partner is None else None
        if self.asks and chosen is not None and not self._said(chosen, YOURS):
            chosen = None
        key = self._pair_key(chosen) if chosen is not None else None
        self.progress.chosen.append(chosen if chosen is not None and key is not None else b"")
        if key is None:
            return prf(self._secret, b"nobody", bytes((turn,)))[:TAG_SIZE]
        return pair_tag(key, turn, self.address)

    def _word(self, who: bytes) -> Word | None:
        return self.progress.heard.get(who.hex())

    def _said(self, who: bytes, what: int) -> bool:
        word = self._word(who)
        return word is not None and bool(word.said & what)

    def _open(self, who: bytes) -> bool:
        """Whether a candidate would take the person, or has not said."""
        word = self._word(who)
        if word is None:
            return False
        return self.steps[word.step].kind is Kind.PLACES or bool(word.said & WOULD)

    def _free(self, who: bytes) -> bool:
        return self._said(who, HERE) and self._missed(who, self.progress.step) < _SILENCES

    def _missed(self, who: bytes, until: int) -> int:
        """Count the letters that a candidate should have written since the last one, to a step."""
        turn, word = self._turn_of[who], self._word(who)
        heard = -1 if word is None else word.step
        return sum(
            self.steps[index].turn == turn
            and self.steps[index].kind in TALK
            and self.speaks(index, asks=not self.asks)
            for index in range(heard + 1, until)
        )

    def _nearest(self, names: Sequence[bytes]) -> bytes | None:
        return min(names, key=self._distance, default=None)

    def _nearer(self, who: bytes, other: bytes) -> bool:
        return self._word(who) is not None and self._distance(who) < self._distance(other)

    def _distance(self, who: bytes) -> tuple[int, bytes]:
        """Give the squared distance in cells; equal ones are ordered by what both draw."""
        word, key = self._word(who), self._pair_key(who)
        if word is None or key is None:
            raise Misuse("nothing was heard of this candidate")
        apart = sum((a - b) ** 2 for a, b in zip(self.progress.cell, word.cell, strict=True))
        return apart, key

    def _half(self, who: bytes) -> bytes:
        return prf(self._secret, b"half", who)[:HALF]

    def _pair_key(self, who: bytes) -> bytes | None:
        word = self._word(who)
        if word is None:
            return None
        if (who, word.half) not in self._keys:
            halves = sorted(((self.address, self._half(who)), (who, word.half)))
            self._keys[who, word.half] = prf(b"".join(half for _, half in halves), b"pair")
        return self._keys[who, word.half]

    @cached_property
    def _order(self) -> dict[tuple[bytes, int], int]:
        """The place of each notice among all that count."""
        return {(one.sender, one.step): at for at, one in enumerate(self.progress.notices)}

    @cached_property
    def _notices_of(self) -> Mapping[int, tuple[int, int]]:
        """For each pass the steps of its tag and its close."""
        found: dict[int, tuple[int, int]] = {}
        for index, step in enumerate(self.steps):
            if step.kind is Kind.TAG:
                found[step.turn] = (index, index + 1)
        return found
