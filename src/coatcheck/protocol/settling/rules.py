"""Rules of settling: the steps, letters and decisions by which candidates agree who meets whom.

One person's side is a plain state machine over lists of candidates (`Settling`): it returns the
letters of each step, takes in the candidates' letters, and decides (`verdict`). It learns of each
candidate a ring, by `exchange`; keys, seals and the board are elsewhere. Everybody writes the same
number of letters of one size at every step, so that letters show nobody the outcome. The ticket
stores `Progress`. SPEC section 15.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Final

from msgspec import Meta, Struct

from coatcheck.errors import Misuse
from coatcheck.protocol.settling.blinded_sets import POINT_SIZE
from coatcheck.protocol.settling.exchange import (
    Exchange,
    Points,
    box_size,
    is_share,
    prf,
    read_points,
)
from coatcheck.protocol.settling.rings import Cell, Rings

MARK: Final = 0
"""The first byte of the body of every letter of settling; no text begins with it."""
HEAD_SIZE: Final = 2
TAG_SIZE: Final = 16
HERE, YOURS, WOULD = 1, 2, 4
"""Flags of a letter: "I am free and here"; "I ask you", or "I hold you"; "I would take you"."""

Small = Annotated[int, Meta(ge=0, le=2**31)]


class Kind(Enum):
    """The kind of a step: what people write at it."""

    POINTS = "points"
    TABLE = "table"
    SHARE = "share"
    SHOW = "show"
    ASK = "ask"
    ANSWER = "answer"
    TAG = "tag"
    CLOSE = "close"
    WORDS = "words"


NOTICES: Final = frozenset({Kind.POINTS, Kind.TAG, Kind.CLOSE})
"""The steps at which everybody writes one public notice instead of letters."""
TALK: Final = frozenset({Kind.SHOW, Kind.ASK, Kind.ANSWER})
"""The steps at which candidates write what they would do."""


@dataclass(frozen=True)
class Step:
    """A step: its kind, and the number of its list of candidates."""

    kind: Kind
    turn: int


def schedule(asks: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps of settling (S15.1): `asks` is how often people ask with each list.

    Without any, people only learn which candidates are in a ring.
    """
    kinds = [
        (turn, kind)
        for turn, times in enumerate(asks)
        for kind in (Kind.SHOW, *(Kind.ASK, Kind.ANSWER) * times, Kind.TAG, Kind.CLOSE)
    ]
    first = tuple(Step(kind, 0) for kind in (Kind.POINTS, Kind.TABLE, Kind.SHARE))
    rest = tuple(Step(kind, turn) for turn, kind in kinds)
    return (*first, *rest, Step(Kind.WORDS, max(0, len(asks) - 1)))


class Word(Struct, frozen=True, array_like=True):
    """The newest letter of a candidate: its step, what it says, and the ring that it shows.

    The ring is 0 as long as no letter of the candidate could be opened.
    """

    step: Small
    flags: Small
    ring: Small


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
        points: what each candidate published, by address in hex.
        values: the value of the person's cell in each candidate's table.
        shares: the candidates' shares of the keys.
        heard: the newest letter of each candidate, by address in hex.
        notices: the first notice of everybody for each step, in the order of the board.
        chosen: for each list the candidate whom the person's tag is for; empty for nobody.
        words: what candidates wrote at the last step, by address in hex.
        placed: the person's own notices with their places in the board's log.
        outbox: the postings of the last step; after a crash the client sends these again.
        dropped: how many letters were dropped, by reason.
    """

    cell: Cell
    begun: float = 0.0
    step: Small = 0
    read: Small = 0
    points: dict[str, bytes] = {}
    values: dict[str, bytes] = {}
    shares: dict[str, bytes] = {}
    heard: dict[str, Word] = {}
    notices: list[Notice] = []
    chosen: list[bytes] = []
    words: dict[str, bytes] = {}
    placed: list[tuple[Annotated[int, Meta(ge=0, le=2**53)], bytes]] = []
    outbox: list[bytes] = []
    dropped: dict[str, Small] = {}

    def keep_place(self, place: int, posting: bytes) -> None:
        """Store the place of a notice in the board's log; a crash may repeat it."""
        if (place, posting) not in self.placed:
            self.placed.append((place, posting))


_LENGTH: Final = 2  # bytes of the length of words
_NOTICE_SIZES: Final = {Kind.POINTS: 2 * POINT_SIZE, Kind.TAG: TAG_SIZE, Kind.CLOSE: 0}


def words_room(letter_size: int) -> int:
    """Return how many bytes of words a letter has room for."""
    return letter_size - HEAD_SIZE - box_size(_LENGTH)


def least_letter(rings: Rings) -> int:
    """Return the least size of letters for settling with these rings."""
    return max(HEAD_SIZE + rings.table_size, HEAD_SIZE + box_size(_LENGTH))


def pair_tag(key: bytes, turn: int, sender: bytes) -> bytes:
    """Return the tag by which a sender names the other owner of a pair's key."""
    return prf(key, b"tag", bytes((turn,)) + sender)[:TAG_SIZE]


_ONCE: Final = (Kind.TABLE, Kind.SHARE, Kind.WORDS)
_SILENCES: Final = 2  # missing letters in a row after which a candidate is gone (S15.11)


class Settling:
    """One person's side of settling.

    *Guarantee:* an honest person ends with at most one partner, and an honest partner ends with
    that person, if both read the same log: see `verdict`. Without asks all candidates in a ring are
    partners.

    Attributes:
        address: the person's own address.
        asks: whether the person is on the side that asks (S15.2).
        lists: for each pass the addresses of the candidates; no address is in two of them.
        secret: 32 bytes that only this person can derive, also after a crash.
        digest: that of the round.
        rings: those of the terms.
        letter_size: that of the terms.
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
        digest: bytes,
        rings: Rings,
        letter_size: int,
    ) -> None:
        if len(lists) != steps[-1].turn + 1:
            raise Misuse(f"{steps[-1].turn + 1} passes need as many lists, got {len(lists)}")
        if letter_size < least_letter(rings):
            raise Misuse(
                f"to settle, `letter_size` must be at least {least_letter(rings)}, got"
                f" {letter_size}"
            )
        self.progress, self.steps = progress, steps
        self.address, self.asks = address, asks
        self.lists = tuple(tuple(names) for names in lists)
        self._secret, self._room = secret, words_room(letter_size)
        self._exchange = Exchange(
            secret, progress.cell, address=address, digest=digest, rings=rings
        )
        sizes = {
            Kind.TABLE: rings.table_size,
            Kind.SHARE: POINT_SIZE,
            Kind.WORDS: box_size(_LENGTH + self._room),
        }
        self._sizes = [sizes.get(step.kind, box_size(1)) for step in steps]
        self._turn_of = {name: turn for turn, names in enumerate(self.lists) for name in names}
        self._pairs = steps[3].kind is Kind.SHOW

    # -- writing

    @property
    def done(self) -> bool:
        """Whether the person has nothing more to write."""
        return self.progress.step >= len(self.steps)

    def speaks(self, index: int, *, asks: bool) -> bool:
        """Return whether a side writes at a step."""
        kind = self.steps[index].kind
        return asks if kind is Kind.ASK else not asks if kind in TALK else True

    def ready(self, *, late: bool = False) -> bool:
        """Return whether the next step may begin: all have written, or it is late.

        Even when it is late, the person's own tag and close must be on the board (S15.21).
        """
        before = self.progress.step - 1
        if before < 0:
            return True
        step = self.steps[before]
        if step.kind in {Kind.TAG, Kind.CLOSE} and (self.address, before) not in self._order:
            return False
        if late or step.kind is Kind.CLOSE:
            return True
        return not any(self._awaited(name, before) for name in self._turn_of)

    def _awaited(self, name: bytes, index: int) -> bool:
        """Return whether a candidate should still write at a step, and missed nothing before."""
        step, progress, who = self.steps[index], self.progress, name.hex()
        match step.kind:
            case Kind.POINTS:
                return who not in progress.points
            case Kind.TABLE:
                return who in progress.points and who not in progress.values
            case Kind.SHARE:
                return who in progress.values and who not in progress.shares
            case _:
                pass
        if step.turn != self._turn_of[name] or self._missed(name, index):
            return False
        if step.kind is Kind.TAG:
            return (name, index) not in self._order
        word = self._word(name)
        return self.speaks(index, asks=not self.asks) and (word is None or word.step < index)

    def speak(self, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Advance one step; return the recipients and bodies of its letters.

        A letter to one's own address is a public notice. `words` go to the partners at the end.
        """
        if len(words) > self._room:
            raise Misuse(f"words may have at most {self._room} bytes, got {len(words)}")
        index = self.progress.step
        step, head = self.steps[index], bytes((MARK, index))
        self.progress.step += 1
        if step.kind in NOTICES:
            return [(self.address, head + self._notice(step))]
        if step.kind in TALK and not self.speaks(index, asks=self.asks):
            return []
        if step.kind in TALK:
            free = self.partner is None
            chosen = self._choice(step.turn) if free else None
            return [
                (name, head + self._talk(index, name, chosen, free=free))
                for name in self.lists[step.turn]
            ]
        return [(name, head + self._write(index, name, words)) for name in self._turn_of]

    def _write(self, index: int, name: bytes, words: bytes) -> bytes:
        """Write to a candidate, of whichever list, what is no talk."""
        match self.steps[index].kind:
            case Kind.TABLE:
                return self._exchange.table(name, self._points(name))
            case Kind.SHARE:
                return self._exchange.share(name, self._value(name))
            case _:
                readable = name == self.partner or not self._pairs
                length = len(words).to_bytes(_LENGTH, "big")
                content = length + words + bytes(self._room - len(words))
                return self._box(index, name, content, readable=readable)

    def _notice(self, step: Step) -> bytes:
        if step.kind is Kind.POINTS:
            return self._exchange.points.encode()
        return self._tag(step.turn) if step.kind is Kind.TAG else b""

    def _talk(self, index: int, name: bytes, chosen: bytes | None, *, free: bool) -> bytes:
        """Write what the person would do; who is not free seals it so that nobody can open it."""
        flags, kind = HERE, self.steps[index].kind
        if name == chosen:
            flags |= YOURS
        if kind is Kind.SHOW or (kind is Kind.ANSWER and self._prefers(name, chosen)):
            flags |= WOULD
        return self._box(index, name, bytes((flags,)), readable=free)

    def _box(self, index: int, name: bytes, content: bytes, *, readable: bool) -> bytes:
        key = (self._key(name) if readable else None) or self._exchange.no_key(name)
        return self._exchange.box(key, index, name, content)

    # -- reading

    def receive(self, sender: bytes, body: bytes) -> bool:
        """Take in a candidate's letter; drop and count one that does not belong here (S15.25)."""
        reason = self._wrong(sender, body) or self._stale(sender, body)
        if reason:
            return self._drop(reason)
        index, content, who = body[1], body[HEAD_SIZE:], sender.hex()
        match self.steps[index].kind:
            case Kind.TABLE:
                points = self._points(sender)
                if points is not None:
                    self.progress.values[who] = self._exchange.read(sender, points, content)
            case Kind.SHARE:
                self.progress.shares[who] = content
            case _:
                return self._open(sender, index, content)
        return True

    def _open(self, sender: bytes, index: int, box: bytes) -> bool:
        """Open a box, and note what it says; one that does not open says "not free"."""
        key, value, last = self._key(sender), self._value(sender), self._word(sender)
        ring, content = 0, b""
        if key is not None and value is not None:
            ring, content = self._exchange.open(key, value, index, sender, box)
        shown = last.ring if last is not None else 0
        if ring and shown and ring != shown:
            return self._drop("changed")
        if self.steps[index].kind is Kind.WORDS:
            length = int.from_bytes(content[:_LENGTH], "big")
            self.progress.words[sender.hex()] = content[_LENGTH : _LENGTH + length]
        if self.steps[index].kind is not Kind.WORDS or not self._pairs:
            flags = content[0] if ring and self.steps[index].kind is not Kind.WORDS else 0
            self.progress.heard[sender.hex()] = Word(index, flags, ring or shown)
        return True

    def _wrong(self, sender: bytes, body: bytes) -> str:
        """Say why these bytes are no letter of a candidate, at any time; empty if they are one."""
        if sender not in self._turn_of:
            return "sender"
        if len(body) < HEAD_SIZE or body[0] != MARK:
            return "size"
        step = self._step(body)
        if step is None or step.kind in NOTICES or not self.speaks(body[1], asks=not self.asks):
            return "step"
        if step.kind in TALK and step.turn != self._turn_of[sender]:
            return "step"
        content = body[HEAD_SIZE:]
        if len(content) != self._sizes[body[1]]:
            return "size"
        return "point" if step.kind is Kind.SHARE and not is_share(content) else ""

    def _stale(self, sender: bytes, body: bytes) -> str:
        """Say why a candidate's letter does not count after earlier ones; empty if it does."""
        index, who, progress = body[1], sender.hex(), self.progress
        step, last = self.steps[index], self._word(sender)
        if step.kind not in TALK:
            once = progress.values, progress.shares, progress.words
            if who in once[_ONCE.index(step.kind)]:
                return "repeated"
            # The share is written already, or there is no point to read the table with.
            late = progress.step > index + 1 or who not in progress.points
            return "late" if step.kind is Kind.TABLE and late else ""
        if progress.step > self._notices_of[step.turn][0]:
            return "late"
        if last is not None and index <= last.step:
            return "repeated" if index == last.step else "late"
        return ""

    def notice(self, sender: bytes, body: bytes) -> bool:
        """Take in a public notice, in the order of the board; the first of each step counts."""
        step, reason = self._step(body), ""
        if sender != self.address and sender not in self._turn_of:
            reason = "sender"
        elif step is None or step.kind not in NOTICES:
            reason = "step"
        elif len(body) != HEAD_SIZE + _NOTICE_SIZES[step.kind]:
            reason = "size"
        elif step.kind is Kind.POINTS:
            return self._receive_points(sender, body)
        elif (sender, body[1]) in self._order:
            reason = "repeated"
        if reason:
            return self._drop(reason)
        self._order[sender, body[1]] = len(self.progress.notices)
        self.progress.notices.append(Notice(sender, body[1], body[HEAD_SIZE:]))
        return True

    def _receive_points(self, sender: bytes, body: bytes) -> bool:
        """Take in what a candidate publishes, before the person has written the tables."""
        if sender == self.address:
            return True
        if sender.hex() in self.progress.points:
            return self._drop("repeated")
        if self.progress.step > body[1] + 1:
            return self._drop("late")
        if read_points(body[HEAD_SIZE:]) is None:
            return self._drop("point")
        self.progress.points[sender.hex()] = body[HEAD_SIZE:]
        return True

    def _step(self, body: bytes) -> Step | None:
        """Find the step that a body is for."""
        is_step = len(body) >= HEAD_SIZE and body[0] == MARK and body[1] < len(self.steps)
        return self.steps[body[1]] if is_step else None

    def _drop(self, reason: str) -> bool:
        self.progress.dropped[reason] = self.progress.dropped.get(reason, 0) + 1
        return False

    # -- deciding

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The partner, once it is certain; without asks, all candidates in a ring so far."""
        if not self._pairs:
            return tuple(name for name in self._turn_of if self._ring(name))
        return () if self.partner is None else (self.partner,)

    @property
    def complete(self) -> bool:
        """Whether the words of every candidate who is not gone have arrived (S15.29).

        People with and without a partner wait for the same.
        """
        return all(
            name.hex() in self.progress.words
            for name in self._turn_of
            if name.hex() in self.progress.shares
            and self._missed(name, len(self.steps)) < _SILENCES
        )

    @property
    def partner(self) -> bytes | None:
        """The partner's address, as soon as it is certain."""
        verdicts = (self.verdict(turn) for turn in range(len(self.progress.chosen)))
        return next((partner for partner in verdicts if partner is not None), None)

    def verdict(self, turn: int) -> bytes | None:
        """Return the partner that a pass gave the person, by the board alone (S15.17).

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
        key = self._key(chosen)
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
        return self._nearest(choosers or [name for name in free if self._has_flag(name, WOULD)])

    def _tag(self, turn: int) -> bytes:
        """Fix the choice of this pass, and return the tag that only the chosen one can read."""
        chosen = self._choice(turn) if self.partner is None else None
        if self.asks and chosen is not None and not self._has_flag(chosen, YOURS):
            chosen = None
        key = self._key(chosen) if chosen is not None else None
        self.progress.chosen.append(chosen if chosen is not None and key is not None else b"")
        if key is None:
            return prf(self._secret, b"nobody", bytes((turn,)))[:TAG_SIZE]
        return pair_tag(key, turn, self.address)

    def _word(self, name: bytes) -> Word | None:
        return self.progress.heard.get(name.hex())

    def _has_flag(self, name: bytes, flag: int) -> bool:
        word = self._word(name)
        return word is not None and bool(word.flags & flag)

    def _free(self, name: bytes) -> bool:
        """Return whether a candidate is in a ring, free, and not gone."""
        is_here = self._ring(name) and self._has_flag(name, HERE)
        return bool(is_here) and self._missed(name, self.progress.step) < _SILENCES

    def _missed(self, name: bytes, until: int) -> int:
        """Count the letters before a step that a candidate has not sent since the newest one."""
        word = self._word(name)
        newest = -1 if word is None else word.step
        return sum(newest < index < until for index in self._talks[self._turn_of[name]])

    @cached_property
    def _talks(self) -> list[list[int]]:
        """For each list the steps at which its candidates say what they would do."""
        return [
            [
                index
                for index, step in enumerate(self.steps)
                if step.turn == turn
                and step.kind in TALK
                and self.speaks(index, asks=not self.asks)
            ]
            for turn in range(len(self.lists))
        ]

    def _nearest(self, names: Sequence[bytes]) -> bytes | None:
        return min(names, key=self._distance, default=None)

    def _prefers(self, name: bytes, held: bytes | None) -> bool:
        if held is None:
            return True
        return self._ring(name) > 0 and self._distance(name) < self._distance(held)

    def _distance(self, name: bytes) -> tuple[int, bytes]:
        """Return the ring; the pair's key orders equal ones (S15.12)."""
        ring, key = self._ring(name), self._key(name)
        if not ring or key is None:
            raise Misuse("this candidate is in no ring")
        return ring, key

    def _ring(self, name: bytes) -> int:
        word = self._word(name)
        return 0 if word is None else word.ring

    def _points(self, name: bytes) -> Points | None:
        return read_points(self.progress.points.get(name.hex(), b""))

    def _value(self, name: bytes) -> bytes | None:
        return self.progress.values.get(name.hex())

    def _key(self, name: bytes) -> bytes | None:
        """Return the key with a candidate, who has it too if the passwords agree."""
        value, share = self._value(name), self.progress.shares.get(name.hex())
        if value is None or share is None:
            return None
        return self._exchange.key(name, value, share)

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
