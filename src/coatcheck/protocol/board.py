"""The board: append-only and public. It logs terms, shows bulletins and letters, and opens nothing.

It is given a way to sign and a way to check signatures, holds no key that opens, and cannot
import one. Everything it ever showed is a leaf of one log; its checkpoints and proofs let
anybody find out if it shows different things to different people. All of it is on a shelf, and
nothing in memory. SPEC section 9.
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
from coatcheck.protocol.outcomes import check_flawless, speaker
from coatcheck.protocol.terms import ADDRESS_SIZE, Round
from coatcheck.protocol.wire.bulletins import (
    LETTER_LEAF,
    ROUND_LEAF,
    TERMS_LEAF,
    Checkpoint,
    Heading,
    Posting,
    heading_size,
)

# HOUSE-DOC protocol.pages: "A bulletin on a shelf: its entries in pages by address, and its tree in tiles.\n\nKnows the bytes of one round's bulletin and reads a page at a time, whatever the number of entries.\nSPEC section 9.\n"
_ENTRIES: Final = 64
_BYTES: Final = 1 << 15
"""A page has so many entries, or fewer if they have more bytes than this together."""
_PAGE: Final = b"p"
_FIRST: Final = b"f"
_TREE: Final = b"t"


class Source(Protocol):
    """Bytes that are read in order: an open file, for example."""

    def read(self, size: int, /) -> bytes:
        """Give the next bytes, fewer only at the end."""


@dataclass(frozen=True)
class Place:
    """An entry, with its group and its place in the bulletin's tree."""

    entry: bytes
    group: int
    place: int


class Pages:
    """The entries of a round's bulletin.

    Attributes:
        sizes: how many entries each group has.
        widths: how many bytes an entry of each group has.
    """

    def __init__(
        self,
        shelf: KeyValueStore,
        digest: bytes,
        *,
        sizes: tuple[int, ...],
        widths: tuple[int, ...],
        cache: TileCache | None = None,
    ) -> None:
        self.sizes, self.widths = sizes, widths
        self._shelf, self._digest, self._cache = shelf, digest, cache
        self._each = [max(1, min(_ENTRIES, _BYTES // width)) for width in widths]

    @property
    def length(self) -> int:
        """Bytes of all entries."""
        return sum(size * width for size, width in zip(self.sizes, self.widths, strict=True))

    def write(self, source: Source) -> bytes:
        """Put the entries on the shelf as they come, sorted by address, and return their root."""
        self.drop()
        tree, last = TiledTree(self._shelf, self._tree), b""
        for group, number, count in self._all():
            width = self.widths[group]
            page = source.read(count * width)
            if len(page) != count * width:
                raise Malformed("this bulletin is not as long as its counts say")
            names = [page[at : at + ADDRESS_SIZE] for at in range(0, len(page), width)]
            if any(a >= b for a, b in pairwise([last, *names] if number else names)):
                raise Malformed("the entries of this bulletin are not sorted by address")
            last, mark = names[-1], bytes((group,))
            for at in range(0, len(page), width):
                tree.append(mark + page[at : at + width])
            self._shelf.put(self._page(group, number), page)
            self._shelf.put(self._first(group, names[0]), number.to_bytes(4, "big"))
        if source.read(1):
            raise Malformed("this bulletin is longer than its counts say")
        tree.save()
        return tree.root()

    def is_same(self, source: Source) -> bool:
        """Tell whether these are the entries, and no more."""
        for group, number, _ in self._all():
            page = self._shelf.get(self._page(group, number)) or b""
            if source.read(len(page)) != page:
                return False
        return not source.read(1)

    def drop(self) -> None:
        """Take everything from the shelf."""
        for start in (_PAGE + self._digest, _FIRST + self._digest, self._tree):
            self._shelf.drop(start, start + b"\xff" * 24)

    def find(self, address: bytes, group: int) -> Place | None:
        """Find the entry of an address in a group."""
        if group >= len(self.sizes) or not self.sizes[group]:
            return None
        found = self._shelf.floor(self._first(group, address))
        if found is None or not found[0].startswith(self._first(group, b"")):
            return None
        number, width = int.from_bytes(found[1], "big"), self.widths[group]
        page = self._shelf.get(self._page(group, number)) or b""
        names = [page[at : at + ADDRESS_SIZE] for at in range(0, len(page), width)]
        at = bisect_left(names, address)
        if at == len(names) or names[at] != address:
            return None
        place = sum(self.sizes[:group]) + number * self._each[group] + at
        return Place(page[at * width : (at + 1) * width], group, place)

    def path(self, place: int) -> list[bytes]:
        """Return the path from an entry to the root of the bulletin."""
        tree = TiledTree(self._shelf, self._tree, sum(self.sizes), cache=self._cache)
        return tree.inclusion(place)

    def read(self, start: int, end: int) -> bytes:
        """Return some bytes of all entries, one after the other."""
        found, offset = [], 0
        for group, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True)):
            whole, each = size * width, self._each[group] * width
            first, last = max(start - offset, 0), min(end - offset, whole)
            if first < last:
                one, other = first // each, (last - 1) // each + 1
                keys = self._page(group, one), self._page(group, other)
                joined = b"".join(self._shelf.span(*keys, other - one))
                found.append(joined[first - one * each : last - one * each])
            offset += whole
        return b"".join(found)

    def _all(self) -> Iterator[tuple[int, int, int]]:
        """Give group, number and count of entries of every page, in order."""
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


def read_heading(source: Source, round_: Round) -> Heading:
    """Read the head of a bulletin of this round."""
    size = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
    heading = Heading.decode(source.read(size))
    if not heading.is_of(round_):
        raise Malformed("this bulletin is for other terms than this round's")
    return heading


Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes, bytes], None]
"""Called with key, signature and message; raises if the signature does not hold."""

_SIZE: Final = b"s"
_LEAF: Final = b"l"
_ROUND: Final = b"r"
_KNOWN: Final = b"k"
_LETTER: Final = b"n"
_TO: Final = b"a"
_LOGGED, _ENDED = b"cl", b"ce"  # counts
_LOG: Final = b"t" + b"\0" * 32  # no digest is zero
_RECORD: Final = struct.Struct(">QQQB")
_NONE: Final = 2**64 - 1
_ANOTHER: Final = "another end of this round is on the board and stays there"


class NotShown(Misuse):
    """A round has not ended yet."""


class Crowded(Refused):
    """An address has all the letters that it may get in a round."""


@dataclass(frozen=True)
class Record:
    """What the log has of one round.

    Attributes:
        terms: the place of the terms.
        end: the place of the heading, if the round has ended.
        letters: how many letters it has.
        widths: how many bytes an entry of each group has.
    """

    terms: int
    end: int | None = None
    letters: int = 0
    widths: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Write the record."""
        end = _NONE if self.end is None else self.end
        head = _RECORD.pack(self.terms, end, self.letters, len(self.widths))
        return head + struct.pack(f">{len(self.widths)}I", *self.widths)

    @classmethod
    def decode(cls, raw: bytes) -> "Record":
        """Read a record."""
        terms, end, letters, groups = _RECORD.unpack_from(raw)
        widths = struct.unpack_from(f">{groups}I", raw, _RECORD.size)
        return cls(terms, None if end == _NONE else end, letters, widths)


class Board:
    """An append-only public board for many rounds.

    *Guarantee:* the terms of a round before anything else of it, one end per round, letters only
    to addresses on it, nothing ever taken back.

    Attributes:
        letters_each: how many letters an address may get in a round. Anybody may write, and who
            writes is sealed inside, so only what an address gets can be bounded.
    """

    def __init__(
        self,
        *,
        sign: Sign,
        check: Check,
        letters_each: int | None = None,
        shelf: KeyValueStore | None = None,
        cache: TileCache | None = None,
    ) -> None:
        self.letters_each = letters_each
        self._sign = sign
        self._check = check
        self._shelf: KeyValueStore = shelf or MemoryKeyValueStore()
        self._cache = cache
        self._log = TiledTree(self._shelf, _LOG, _number(self._shelf.get(_SIZE)), cache=cache)

    def __len__(self) -> int:
        return len(self._log)

    # -- what is added

    def log_terms(self, round_: Round) -> int:
        """Log the terms of a round, before it opens, and return their place; again, the same."""
        known = self.record(round_.digest)
        if known is not None:
            return known.terms
        place = self._append(TERMS_LEAF + round_.digest)
        self._keep(round_.digest, Record(place), new=_LOGGED)
        return place

    def publish(self, raw: bytes, round_: Round) -> int:
        """Show the end of a round and return its place in the log; again, the same place."""
        self.stage(io.BytesIO(raw), round_)
        return self.show(read_heading(io.BytesIO(raw), round_), round_)

    def stage(self, source: Source, round_: Round) -> Heading:
        """Check an end and put its entries on the shelf, where nobody sees them before `show`.

        If another end is there already, it is refused. What fails leaves nothing.
        """
        record = self._logged(round_.digest)
        heading = read_heading(source, round_)
        if record.end is not None:
            self._check_same(heading, source)
            return heading
        check_flawless(heading, round_)
        key = bytes.fromhex(speaker(heading, round_).verifying)
        self._check(key, heading.signature, heading.signed_part())
        pages = self._pages_of(heading, _widths(round_))
        try:
            if pages.write(source) != heading.root:
                raise Malformed("the entries of this bulletin are not the ones its root stands for")
        except Refused:
            pages.drop()
            raise
        return heading

    def _check_same(self, heading: Heading, source: Source) -> None:
        """Refuse another end than the one that is shown."""
        same = heading.encode() == self.heading(heading.digest)
        if not same or not self._pages(heading.digest).is_same(source):
            raise Refused(_ANOTHER)

    def show(self, heading: Heading, round_: Round) -> int:
        """Show an end that was staged.

        The first end stays, whoever signed it: the server's bulletin, or a shuffler's word that it
        gave the round up.
        """
        record = self._logged(round_.digest)
        if record.end is not None:
            if heading.encode() != self.heading(round_.digest):
                raise Refused(_ANOTHER)
            return record.end
        place = self._append(ROUND_LEAF + heading.encode())
        self._keep(round_.digest, replace(record, end=place, widths=_widths(round_)), new=_ENDED)
        return place

    def post(self, raw: bytes, round_: Round) -> int:
        """Show a sealed letter and return its place in the log; again, the same place."""
        digest = round_.digest
        record, pages = self._shown(digest)[0], self._pages(digest)
        known = _KNOWN + digest + hashlib.sha256(raw).digest()[:16]
        place = self._shelf.get(known)
        if place is not None:
            return _number(place)
        posting = Posting.decode(raw, round_)
        groups = range(len(round_.terms.groups))
        if all(pages.find(posting.recipient, group) is None for group in groups):
            raise Refused("nobody has this address in this round: letters go to partners")
        to = _TO + digest + posting.recipient
        last = self._shelf.floor(to + b"\xff" * 8)
        got = _number(last[0][-8:]) + 1 if last and last[0].startswith(to) else 0
        if self.letters_each is not None and got >= self.letters_each:
            raise Crowded("this address has all the letters that a round allows it")
        number = _name(record.letters)
        self._shelf.put(_LETTER + digest + number, raw)
        self._shelf.put(to + _name(got), number)
        at = self._append(LETTER_LEAF + raw, stored=LETTER_LEAF + digest + number)
        self._shelf.put(known, _name(at))
        self._keep(digest, replace(record, letters=record.letters + 1))
        return at

    def _append(self, leaf: bytes, *, stored: bytes | None = None) -> int:
        place = self._log.append(leaf)
        self._shelf.put(_LEAF + _name(place), stored or leaf)
        return place

    def save(self) -> None:
        """Put the log's size and its last hashes on the shelf."""
        self._log.save()
        self._shelf.put(_SIZE, _name(len(self._log)))

    # -- what is shown

    def record(self, digest: bytes) -> Record | None:
        """Return what the log has of a round."""
        raw = self._shelf.get(_ROUND + digest)
        return None if raw is None else Record.decode(raw)

    def tally(self) -> tuple[int, int]:
        """Count the rounds whose terms are logged, and those that have ended."""
        return _number(self._shelf.get(_LOGGED)), _number(self._shelf.get(_ENDED))

    def bulletin(self, digest: bytes) -> bytes:
        """Return the whole bulletin of a round, as published."""
        return self.part(digest, 0, self.length(digest))

    def length(self, digest: bytes) -> int:
        """Return how many bytes the bulletin of a round has."""
        return len(self.heading(digest)) + self._pages(digest).length

    def part(self, digest: bytes, start: int, end: int) -> bytes:
        """Return some bytes of a round's bulletin."""
        head = self.heading(digest)
        rest = self._pages(digest).read(max(0, start - len(head)), max(0, end - len(head)))
        return head[start:end] + rest

    def entry(self, digest: bytes, *, group: int, address: bytes) -> tuple[bytes, int, list[bytes]]:
        """Return one entry, its place in the bulletin's tree, and the path to the root."""
        pages = self._pages(digest)
        found: Place | None = pages.find(address, group)
        if found is None:
            raise Refused("nobody has this address in this group of the round")
        return found.entry, found.place, pages.path(found.place)

    def letters(self, digest: bytes, *, since: int = 0, most: int = 2**31) -> list[bytes]:
        """Return the letters of a round in the order of posting, the first `since` left out.

        Who asks for those to one address directly shows whose it is; `letters_to` is for relays.
        """
        self._shown(digest)
        start = _LETTER + digest
        return self._shelf.span(start + _name(since), start + b"\xff" * 8, most)

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

        The first `since` of them are left out, and those whose number is not below `until`.
        """
        self._shown(digest)
        start = _TO + digest + address
        names = self._shelf.span(start + _name(since), start + b"\xff" * 8, most)
        found = [(_number(name), name) for name in names if _number(name) < until]
        return [(number, self._shelf.get(_LETTER + digest + name) or b"") for number, name in found]

    def heading(self, digest: bytes) -> bytes:
        """Return the signed head of a round's bulletin."""
        return (self._shelf.get(_LEAF + _name(self.place(digest))) or b"")[1:]

    # -- the log

    def checkpoint(self) -> bytes:
        """Sign what was shown so far: how many leaves, and the root over them."""
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
        found = self._shelf.span(_LEAF + _name(start), _LEAF + _name(end), end - start)
        return [self._leaf(raw) for raw in found]

    def _leaf(self, raw: bytes) -> bytes:
        if raw[:1] != LETTER_LEAF:
            return raw
        return LETTER_LEAF + (self._shelf.get(_LETTER + raw[1:]) or b"")

    # -- the shelf

    def _keep(self, digest: bytes, record: Record, *, new: bytes = b"") -> None:
        self._shelf.put(_ROUND + digest, record.encode())
        if new:
            self._shelf.put(new, _name(_number(self._shelf.get(new)) + 1))

    def _logged(self, digest: bytes) -> Record:
        record = self.record(digest)
        if record is None:
            raise Refused("the terms of this round are not in the log: nothing of it is shown")
        return record

    def _shown(self, digest: bytes) -> tuple[Record, int]:
        """Return the record of a round that has ended, and the place of its end."""
        record = self.record(digest)
        if record is None or record.end is None:
            raise NotShown("this round is not on the board yet: ask again when it is answered")
        return record, record.end

    def _pages(self, digest: bytes) -> Pages:
        widths = self._shown(digest)[0].widths
        return self._pages_of(Heading.decode(self.heading(digest)), widths)

    def _pages_of(self, heading: Heading, widths: tuple[int, ...]) -> Pages:
        sizes = heading.sizes
        return Pages(self._shelf, heading.digest, sizes=sizes, widths=widths, cache=self._cache)


def _widths(round_: Round) -> tuple[int, ...]:
    return tuple(map(round_.entry_size, range(len(round_.terms.groups))))


def _name(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _number(raw: bytes | None) -> int:
    return int.from_bytes(raw or b"", "big")
