"""The board role: append terms, outcomes and letters to one public log, and open nothing.

`Board.log_terms`, `publish` and `post` append; everything else reads. Everything that the board
ever showed is a leaf of one log, whose checkpoints and proofs let everybody detect a board that
shows different things to different people. `Pages` stores a bulletin's entries by address, so that
a lookup reads one page whatever the number of entries.

The board gets functions to sign and to check signatures; it holds no key that opens, and cannot
import one. Everything is in a key-value store and nothing in memory: the in-memory simulation uses
`MemoryKeyValueStore`, and `services.board` the store in its database. SPEC section 9.
"""

import hashlib
import io
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.log.merkle import (
    KeyValueStore,
    MemoryKeyValueStore,
    TileCache,
    TiledTree,
    TileName,
)
from coatcheck.protocol.outcomes import check_consistent, signer_of
from coatcheck.protocol.terms import ADDRESS_SIZE, Round
from coatcheck.protocol.wire.bulletins import (
    KEYS_LEAF,
    LETTER_LEAF,
    ROUND_LEAF,
    TERMS_LEAF,
    Checkpoint,
    Heading,
    KeyList,
    Posting,
    heading_size,
)

Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes, bytes], None]
"""A function of key, signature and message; raises `BadSignature` unless the key signed it."""

# Prefixes of the keys in the key-value store.
_SIZE: Final = b"s"
_LEAF: Final = b"l"
_ROUND: Final = b"r"
_POSTED: Final = b"k"
_LETTER: Final = b"n"
_RECIPIENT: Final = b"a"
_TERMS_COUNT, _OUTCOME_COUNT = b"cl", b"ce"
_KEYS: Final = b"g"
_PAGE: Final = b"p"
_FIRST: Final = b"f"
_TREE: Final = b"t"
_LOG: Final = _TREE + b"\0" * 32  # the log's own tree: no digest of terms is zero
_RECORD: Final = struct.Struct(">QQQB")
_NONE: Final = 2**64 - 1
_ANOTHER: Final = "the board shows another outcome of this round, and the first one stays"
_ENTRIES: Final = 64
_BYTES: Final = 1 << 15
"""The most entries of a page, and the most bytes of its entries together."""


class PageSource(Protocol):
    """A source of the bytes of a bulletin, in order: an open file, for example."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end."""


class NotShown(Misuse):
    """The board has no outcome of the round yet."""


class LetterLimitReached(Refused):
    """An address has reached the round's limit of letters."""


@dataclass(frozen=True)
class Record:
    """The log's record of one round.

    Attributes:
        terms: the place of the terms.
        outcome: the place of the heading, if the round has ended.
        letters: the number of letters.
        widths: the bytes of an entry of each group.
    """

    terms: int
    outcome: int | None = None
    letters: int = 0
    widths: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Write the record."""
        outcome = _NONE if self.outcome is None else self.outcome
        head = _RECORD.pack(self.terms, outcome, self.letters, len(self.widths))
        return head + struct.pack(f">{len(self.widths)}I", *self.widths)

    @classmethod
    def decode(cls, raw: bytes) -> "Record":
        """Read a record."""
        terms, outcome, letters, groups = _RECORD.unpack_from(raw)
        widths = struct.unpack_from(f">{groups}I", raw, _RECORD.size)
        return cls(terms, None if outcome == _NONE else outcome, letters, widths)


class Board:
    """An append-only public board for many rounds.

    *Guarantee:* the log has a round's terms before anything else of it, one outcome per round, and
    letters only to addresses on its bulletin; nothing is ever removed.

    Attributes:
        letters_each: the most letters to one address in a round. Anybody may write, and the sender
            is sealed inside, so the board can only limit letters by recipient.
    """

    def __init__(
        self,
        *,
        sign: Sign,
        check: Check,
        letters_each: int | None = None,
        store: KeyValueStore | None = None,
        cache: TileCache | None = None,
    ) -> None:
        self.letters_each = letters_each
        self._sign = sign
        self._check = check
        self._store: KeyValueStore = store or MemoryKeyValueStore()
        self._cache = cache
        self._log = TiledTree(
            self._store, _LOG, _unpack_number(self._store.get(_SIZE)), cache=cache
        )

    def __len__(self) -> int:
        return len(self._log)

    # -- appending

    def log_terms(self, round_: Round) -> int:
        """Log the terms of a round before it opens, and return their place in the log."""
        logged = self.record(round_.digest)
        if logged is not None:
            return logged.terms
        place = self._append(TERMS_LEAF + round_.digest)
        self._store_record(round_.digest, Record(place), new=_TERMS_COUNT)
        return place

    def publish(self, raw: bytes, round_: Round) -> int:
        """Show the outcome of a round and return its place in the log; again, the same place."""
        self.stage(io.BytesIO(raw), round_)
        return self.show(read_heading(io.BytesIO(raw), round_), round_)

    def stage(self, source: PageSource, round_: Round) -> Heading:
        """Check an outcome (S9.24) and store its entries, which the board shows after `show`.

        Refused if the board has another outcome of the round. A failure leaves nothing stored.
        """
        record = self._logged(round_.digest)
        heading = read_heading(source, round_)
        if record.outcome is not None:
            self._check_same(heading, source)
            return heading
        check_consistent(heading, round_)
        key = bytes.fromhex(signer_of(heading, round_).verifying)
        self._check(key, heading.signature, heading.signed_part())
        pages = self._pages_of(heading, _widths(round_))
        try:
            if pages.write(source) != heading.root:
                raise Malformed("the entries of this bulletin do not match its root")
        except Refused:
            pages.drop()
            raise
        return heading

    def _check_same(self, heading: Heading, source: PageSource) -> None:
        """Refuse another outcome than the one that the board shows (S9.26)."""
        same = heading.encode() == self.heading(heading.digest)
        if not same or not self._pages(heading.digest).is_same(source):
            raise Refused(_ANOTHER)

    def show(self, heading: Heading, round_: Round) -> int:
        """Show a staged outcome and return its place in the log.

        The first one stays (S9.12): the server's bulletin, or an outcome that a shuffler signed.
        """
        record = self._logged(round_.digest)
        if record.outcome is not None:
            if heading.encode() != self.heading(round_.digest):
                raise Refused(_ANOTHER)
            return record.outcome
        place = self._append(ROUND_LEAF + heading.encode())
        self._store_record(
            round_.digest,
            replace(record, outcome=place, widths=_widths(round_)),
            new=_OUTCOME_COUNT,
        )
        return place

    def post(self, raw: bytes, round_: Round) -> int:
        """Show a sealed letter and return its place in the log; again, the same place."""
        digest = round_.digest
        record, pages = self._shown(digest)[0], self._pages(digest)
        posted = _POSTED + digest + hashlib.sha256(raw).digest()[:16]
        place = self._store.get(posted)
        if place is not None:
            return _unpack_number(place)
        posting = Posting.decode(raw, round_)
        groups = range(len(round_.terms.groups))
        if all(pages.find(posting.recipient, group) is None for group in groups):
            raise Refused(
                "the bulletin of this round has no such address: write to a partner of your answer"
            )
        to = _RECIPIENT + digest + posting.recipient
        last = self._store.floor(to + b"\xff" * 8)
        received = _unpack_number(last[0][-8:]) + 1 if last and last[0].startswith(to) else 0
        if self.letters_each is not None and received >= self.letters_each:
            raise LetterLimitReached(
                "this address has reached the round's limit of letters; no more are accepted for it"
            )
        number = _pack_number(record.letters)
        self._store.put(_LETTER + digest + number, raw)
        self._store.put(to + _pack_number(received), number)
        at = self._append(LETTER_LEAF + raw, stored=LETTER_LEAF + digest + number)
        self._store.put(posted, _pack_number(at))
        self._store_record(digest, replace(record, letters=record.letters + 1))
        return at

    def log_keys(self, raw: bytes) -> int:
        """Log the key list of a gateway and return its place; again, the same place.

        There is one list of a role and a period (S17.32): another one is refused.
        """
        keys = KeyList.decode(raw)
        self._check(keys.verifying, keys.signature, KeyList.signed_part(keys.keys, keys.until))
        name = _KEYS + keys.period
        stored = self._store.get(name)
        if stored is None:
            place = self._append(KEYS_LEAF + raw)
            self._store.put(name, _pack_number(place))
            return place
        if self._store.get(_LEAF + stored) != KEYS_LEAF + raw:
            raise Refused(
                "the log has another key list of this role and day: two could tell people apart;"
                " keep this one as proof, and do not use the role"
            )
        return _unpack_number(stored)

    def _append(self, leaf: bytes, *, stored: bytes | None = None) -> int:
        place = self._log.append(leaf)
        self._store.put(_LEAF + _pack_number(place), stored or leaf)
        return place

    def save(self) -> None:
        """Store the log's size and its last hashes."""
        self._log.save()
        self._store.put(_SIZE, _pack_number(len(self._log)))

    # -- reading

    def record(self, digest: bytes) -> Record | None:
        """Return the log's record of a round; None if its terms are not logged."""
        raw = self._store.get(_ROUND + digest)
        return None if raw is None else Record.decode(raw)

    def tally(self) -> tuple[int, int]:
        """Count the rounds with terms in the log, and the rounds with an outcome."""
        logged, ended = map(self._store.get, (_TERMS_COUNT, _OUTCOME_COUNT))
        return _unpack_number(logged), _unpack_number(ended)

    def bulletin(self, digest: bytes) -> bytes:
        """Return the whole bulletin of a round, as published."""
        return self.part(digest, 0, self.length(digest))

    def length(self, digest: bytes) -> int:
        """Return the length of a round's bulletin in bytes."""
        return len(self.heading(digest)) + self._pages(digest).length

    def part(self, digest: bytes, start: int, end: int) -> bytes:
        """Return some bytes of a round's bulletin."""
        head = self.heading(digest)
        rest = self._pages(digest).read(max(0, start - len(head)), max(0, end - len(head)))
        return head[start:end] + rest

    def entry(self, digest: bytes, *, group: int, address: bytes) -> tuple[bytes, int, list[bytes]]:
        """Return one entry, its place in the bulletin's tree, and the path to the root."""
        pages = self._pages(digest)
        entry: PagedEntry | None = pages.find(address, group)
        if entry is None:
            raise Refused("the bulletin has no such address in this group")
        return entry.entry, entry.place, pages.path(entry.place)

    def letters(self, digest: bytes, *, since: int = 0, most: int = 2**31) -> list[bytes]:
        """Return the letters of a round in the order of posting, the first `since` left out.

        A direct request for the letters to one address would show that it is the sender's own, so
        `letters_to` is for requests through a relay.
        """
        self._shown(digest)
        start = _LETTER + digest
        return self._store.span(start + _pack_number(since), start + b"\xff" * 8, most)

    def letters_to(
        self,
        address: bytes,
        digest: bytes,
        *,
        since: int = 0,
        until: int = _NONE,
        most: int = 2**31,
    ) -> list[tuple[int, bytes]]:
        """Return the letters to one address, each after its number among those of the round.

        The first `since` of them are left out, and all from the number `until` on.
        """
        self._shown(digest)
        start = _RECIPIENT + digest + address
        names = self._store.span(start + _pack_number(since), start + b"\xff" * 8, most)
        return [
            (_unpack_number(name), self._store.get(_LETTER + digest + name) or b"")
            for name in names
            if _unpack_number(name) < until
        ]

    def heading(self, digest: bytes) -> bytes:
        """Return the signed head of a round's bulletin."""
        return (self._store.get(_LEAF + _pack_number(self.place(digest))) or b"")[1:]

    # -- the log and its proofs

    def checkpoint(self) -> bytes:
        """Return a signed checkpoint: the number of leaves so far, and the root over them."""
        return Checkpoint(len(self._log), self._log.root()).sign(self._sign)

    def place(self, digest: bytes) -> int:
        """Return the place of a round's heading in the log."""
        return self._shown(digest)[1]

    def root(self, size: int) -> bytes:
        """Return the root over the first leaves of the log."""
        return self._log.root(size)

    def inclusion(self, place: int, *, size: int | None = None) -> list[bytes]:
        """Prove that a leaf of the log is under the root over `size` leaves."""
        return self._log.inclusion(place, size)

    def consistency(self, old: int, *, new: int | None = None) -> list[bytes]:
        """Prove that the log only grew between two sizes."""
        return self._log.consistency(old, new)

    def hashes(self, name: TileName) -> bytes:
        """Return the hashes of a tile of the log."""
        return self._log.tile(name.level or 0, name.number)[: name.width * 32]

    def leaves(self, start: int, end: int) -> list[bytes]:
        """Return the leaves at some places of the log."""
        stored = self._store.span(
            _LEAF + _pack_number(start), _LEAF + _pack_number(end), end - start
        )
        return [self._leaf(raw) for raw in stored]

    def _leaf(self, raw: bytes) -> bytes:
        if raw[:1] != LETTER_LEAF:
            return raw
        return LETTER_LEAF + (self._store.get(_LETTER + raw[1:]) or b"")

    # -- the store

    def _store_record(self, digest: bytes, record: Record, *, new: bytes = b"") -> None:
        self._store.put(_ROUND + digest, record.encode())
        if new:
            self._store.put(new, _pack_number(_unpack_number(self._store.get(new)) + 1))

    def _logged(self, digest: bytes) -> Record:
        record = self.record(digest)
        if record is None:
            raise Refused(
                "the terms of this round are not in the log: the server logs them first (S9.21)"
            )
        return record

    def _shown(self, digest: bytes) -> tuple[Record, int]:
        """Return the record of a round that has ended, and the place of its outcome."""
        record = self.record(digest)
        if record is None or record.outcome is None:
            raise NotShown("the board has no outcome of this round yet: retry after it ended")
        return record, record.outcome

    def _pages(self, digest: bytes) -> "Pages":
        widths = self._shown(digest)[0].widths
        return self._pages_of(Heading.decode(self.heading(digest)), widths)

    def _pages_of(self, heading: Heading, widths: tuple[int, ...]) -> "Pages":
        sizes = heading.sizes
        return Pages(self._store, heading.digest, sizes=sizes, widths=widths, cache=self._cache)


def _widths(round_: Round) -> tuple[int, ...]:
    return tuple(map(round_.entry_size, range(len(round_.terms.groups))))


def _pack_number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unpack_number(raw: bytes | None) -> int:
    return int.from_bytes(raw or b"", "big")


def read_heading(source: PageSource, round_: Round) -> Heading:
    """Read the heading of a bulletin of this round."""
    size = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
    heading = Heading.decode(source.read(size))
    if not heading.is_of(round_):
        raise Malformed("this bulletin is for other terms than this round's")
    return heading


# -- the entries of a bulletin, in pages by address


@dataclass(frozen=True)
class PagedEntry:
    """An entry, with its group and its place in the bulletin's tree."""

    entry: bytes
    group: int
    place: int


class Pages:
    """The entries of a round's bulletin, in pages by address, and their tree in tiles.

    Attributes:
        sizes: the number of entries of each group.
        widths: the bytes of an entry of each group.
    """

    def __init__(
        self,
        store: KeyValueStore,
        digest: bytes,
        *,
        sizes: tuple[int, ...],
        widths: tuple[int, ...],
        cache: TileCache | None = None,
    ) -> None:
        self.sizes, self.widths = sizes, widths
        self._store, self._digest, self._cache = store, digest, cache
        self._each = [max(1, min(_ENTRIES, _BYTES // width)) for width in widths]

    @property
    def length(self) -> int:
        """The bytes of all entries together."""
        return sum(size * width for size, width in zip(self.sizes, self.widths, strict=True))

    def write(self, source: PageSource) -> bytes:
        """Store the entries, which must come sorted by address; return their root."""
        self.drop()
        tree, last = TiledTree(self._store, self._tree), b""
        for group, number, count in self._page_ranges():
            width = self.widths[group]
            page = source.read(count * width)
            if len(page) != count * width:
                raise Malformed("this bulletin is shorter than its counts say")
            names = [page[at : at + ADDRESS_SIZE] for at in range(0, len(page), width)]
            if any(a >= b for a, b in pairwise([last, *names] if number else names)):
                raise Malformed("the entries of this bulletin are not sorted by address")
            last, mark = names[-1], bytes((group,))
            for at in range(0, len(page), width):
                tree.append(mark + page[at : at + width])
            self._store.put(self._page(group, number), page)
            self._store.put(self._first(group, names[0]), number.to_bytes(4, "big"))
        if source.read(1):
            raise Malformed("this bulletin is longer than its counts say")
        tree.save()
        return tree.root()

    def is_same(self, source: PageSource) -> bool:
        """Return whether the source has these entries, and nothing after them."""
        for group, number, _ in self._page_ranges():
            page = self._store.get(self._page(group, number)) or b""
            if source.read(len(page)) != page:
                return False
        return not source.read(1)

    def drop(self) -> None:
        """Delete everything that is stored of the bulletin."""
        for start in (_PAGE + self._digest, _FIRST + self._digest, self._tree):
            self._store.drop(start, start + b"\xff" * 24)

    def find(self, address: bytes, group: int) -> PagedEntry | None:
        """Find the entry of an address in a group."""
        if group >= len(self.sizes) or not self.sizes[group]:
            return None
        first = self._store.floor(self._first(group, address))
        if first is None or not first[0].startswith(self._first(group, b"")):
            return None
        number, width = int.from_bytes(first[1], "big"), self.widths[group]
        page = self._store.get(self._page(group, number)) or b""
        names = [page[at : at + ADDRESS_SIZE] for at in range(0, len(page), width)]
        at = bisect_left(names, address)
        if at == len(names) or names[at] != address:
            return None
        place = sum(self.sizes[:group]) + number * self._each[group] + at
        return PagedEntry(page[at * width : (at + 1) * width], group, place)

    def path(self, place: int) -> list[bytes]:
        """Return the path from an entry to the root of the bulletin."""
        tree = TiledTree(self._store, self._tree, sum(self.sizes), cache=self._cache)
        return tree.inclusion(place)

    def read(self, start: int, end: int) -> bytes:
        """Return some bytes of all entries, one after the other."""
        pieces, offset = [], 0
        for group, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True)):
            whole, each = size * width, self._each[group] * width
            first, last = max(start - offset, 0), min(end - offset, whole)
            if first < last:
                page, end_page = first // each, (last - 1) // each + 1
                keys = self._page(group, page), self._page(group, end_page)
                joined = b"".join(self._store.span(*keys, end_page - page))
                pieces.append(joined[first - page * each : last - page * each])
            offset += whole
        return b"".join(pieces)

    def _page_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield group, number and count of entries of every page, in order."""
        for group, size in enumerate(self.sizes):
            each = self._each[group]
            for number, at in enumerate(range(0, size, each)):
                yield group, number, min(each, size - at)

    @property
    def _tree(self) -> bytes:
        return _TREE + self._digest

    def _page(self, group: int, number: int) -> bytes:
        return _PAGE + self._digest + bytes((group,)) + number.to_bytes(4, "big")

    def _first(self, group: int, address: bytes) -> bytes:
        return _FIRST + self._digest + bytes((group,)) + address
