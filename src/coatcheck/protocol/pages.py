"""A bulletin on a shelf: its entries in pages by address, and its tree in tiles.

Knows the bytes of one round's bulletin and reads a page at a time, whatever the number of entries.
SPEC section 9.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from coatcheck.errors import Malformed
from coatcheck.protocol.notices import Heading, heading_size
from coatcheck.protocol.shelf import Shelf
from coatcheck.protocol.suites import ADDRESS_SIZE
from coatcheck.protocol.terms import Round
from coatcheck.protocol.tiled import TileCache, TiledTree

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
        shelf: Shelf,
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
