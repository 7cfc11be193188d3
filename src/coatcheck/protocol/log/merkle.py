"""Merkle trees (RFC 9162, section 2.1): roots, proofs and their checks, and tiled trees.

A publisher builds a `Tree`, or a `TiledTree` in an ordered key-value store; a reader needs only
`check_inclusion` and `check_consistency` and trusts nobody. Tiles (C2SP tlog-tiles) hold 256
hashes or entries and never change once full, so that caches and static files can serve them, and
readers can make proofs from them. This file knows nothing about the content of leaves. SPEC
sections 9 and 18.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from coatcheck.errors import Equivocation, Malformed, Misuse

HASH_SIZE: Final = 32
EMPTY: Final = hashlib.sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    """Hash a leaf; the prefix keeps leaves and inner nodes apart."""
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees into one."""
    return hashlib.sha256(b"\1" + left + right).digest()


def folded(hashes: Sequence[bytes]) -> list[list[bytes]]:
    """Return the levels of the tree over 2^n hashes, up to its root."""
    levels = [list(hashes)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([node_hash(*below[at : at + 2]) for at in range(0, len(below), 2)])
    return levels


def root_over(hashes: Sequence[bytes]) -> bytes:
    """Return the root over leaves, or over subtrees of one size, a power of two, by their hashes.

    The last subtree may be smaller: the root is that of one tree over all their leaves.
    """
    level = list(hashes)
    while len(level) > 1:
        whole = len(level) - len(level) % 2
        pairs = [node_hash(*level[at : at + 2]) for at in range(0, whole, 2)]
        level = [*pairs, *level[whole:]]
    return level[0] if level else EMPTY


class Prover(ABC):
    """A tree with the roots of its complete subtrees, and the proofs that they allow."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def node(self, height: int, number: int) -> bytes:
        """Return the root of the complete subtree with this number among those of 2^height."""

    def root(self, size: int | None = None) -> bytes:
        """Return the root over the first `size` leaves (all of them by default)."""
        size = len(self) if size is None else size
        if not 0 <= size <= len(self):
            raise Misuse(f"a root is over 0 to {len(self)} leaves of this tree, got {size}")
        return self._range(0, size) if size else EMPTY

    def _range(self, start: int, end: int) -> bytes:
        size = end - start
        if size & (size - 1) == 0 and start % size == 0:
            return self.node(size.bit_length() - 1, start // size)
        middle = start + _split(size)
        return node_hash(self._range(start, middle), self._range(middle, end))

    def inclusion(self, place: int, size: int | None = None) -> list[bytes]:
        """Prove that the leaf at `place` is under the root over `size` leaves."""
        end = len(self) if size is None else size
        if not 0 <= place < end <= len(self):
            raise Misuse(f"there is no leaf {place} in a tree of {end} leaves")
        return self._path(place, 0, end)

    def _path(self, place: int, start: int, end: int) -> list[bytes]:
        if end - start == 1:
            return []
        middle = start + _split(end - start)
        if place < middle:
            return [*self._path(place, start, middle), self._range(middle, end)]
        return [*self._path(place, middle, end), self._range(start, middle)]

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Prove that the tree over `new` leaves begins with the tree over `old` leaves."""
        end = len(self) if new is None else new
        if not 0 <= old <= end <= len(self):
            raise Misuse(f"sizes must be in order and at most {len(self)}, got {old} and {end}")
        return self._growth(old, 0, end) if old else []

    def _growth(self, old: int, start: int, end: int) -> list[bytes]:
        if old == end:
            # The reader has the old root itself, but not that of a part of the old tree.
            return [self._range(start, end)] if start else []
        middle = start + _split(end - start)
        if old <= middle:
            return [*self._growth(old, start, middle), self._range(middle, end)]
        return [*self._growth(old, middle, end), self._range(start, middle)]


class Tree(Prover):
    """An append-only tree that keeps the hashes of its complete subtrees, level by level."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, leaf: bytes) -> int:
        """Add a leaf and return its place."""
        self._levels[0].append(leaf_hash(leaf))
        level = 0
        while len(self._levels[level]) % 2 == 0:
            if level + 1 == len(self._levels):
                self._levels.append([])
            left, right = self._levels[level][-2:]
            level += 1
            self._levels[level].append(node_hash(left, right))
        return len(self) - 1

    def node(self, height: int, number: int) -> bytes:
        """Return the root of a complete subtree."""
        return self._levels[height][number]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def check_inclusion(
    leaf: bytes, *, place: int, size: int, root: bytes, path: Sequence[bytes]
) -> None:
    """Raise unless the path leads from the leaf to the root (RFC 9162, 2.1.3)."""
    steps = list(path)
    try:
        is_valid = 0 <= place < size and _climb(leaf_hash(leaf), place, size, steps) == root
    except IndexError:  # the path is too short
        is_valid = False
    if not is_valid or steps:
        raise Equivocation("the entry is not under the signed root: do not rely on it")


def _climb(node: bytes, place: int, size: int, path: list[bytes]) -> bytes:
    """Compute the root over a leaf; the hashes that are used leave the path."""
    if size == 1:
        return node
    other, middle = path.pop(), _split(size)
    if place < middle:
        return node_hash(_climb(node, place, middle, path), other)
    return node_hash(other, _climb(node, place - middle, size - middle, path))


def check_consistency(
    *, old: int, old_root: bytes, new: int, new_root: bytes, path: Sequence[bytes]
) -> None:
    """Raise unless the new tree begins with the old one (RFC 9162, 2.1.4)."""
    steps = list(path)
    try:
        roots = _roots(old, new, steps, old_root) if old else (EMPTY, new_root)
        is_valid = old <= new and roots == (old_root, new_root)
    except IndexError:  # the path is too short
        is_valid = False
    if not is_valid or steps:
        raise Equivocation(
            "the board's log does not continue the log that it showed before: keep both checkpoints"
            " as the proof"
        )


def _roots(old: int, new: int, path: list[bytes], old_root: bytes | None) -> tuple[bytes, bytes]:
    """Compute the roots over `old` and `new` leaves; the hashes that are used leave the path.

    `old_root` is the root over the old leaves, as long as these are a whole tree.
    """
    if old >= new:
        root = path.pop() if old_root is None else old_root
        return root, root
    other, middle = path.pop(), _split(new)
    if old <= middle:
        before, after = _roots(old, middle, path, old_root)
        return before, node_hash(after, other)
    before, after = _roots(old - middle, new - middle, path, None)
    return node_hash(other, before), node_hash(other, after)


WIDTH: Final = 256
"""The hashes or entries of a full tile."""
_BITS: Final = 8
_LEVEL: Final = re.compile(r"0|[1-9][0-9]?")
_PLACE: Final = re.compile(r"((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
_MOST: Final = 63
ENTRIES: Final = "entries"


@dataclass(frozen=True)
class TileName:
    """The name of a tile: its level (None for the entries themselves), its number and its width."""

    level: int | None
    number: int
    width: int = WIDTH

    @classmethod
    def read(cls, level: str, place: str) -> "TileName":
        """Read the two parts of a path; each tile has one spelling."""
        parts = _PLACE.fullmatch(place)
        if not parts or (level != ENTRIES and not _LEVEL.fullmatch(level)):
            raise Malformed("the path of a tile is LEVEL/x001/x234/067 or LEVEL/067.p/WIDTH")
        number, width = int(parts[1].replace("x", "").replace("/", "")), int(parts[2] or WIDTH)
        if width > WIDTH:
            raise Malformed(f"a tile has at most {WIDTH} hashes, this path has {width}")
        name = cls(None if level == ENTRIES else int(level), number, width)
        if (name.level or 0) > _MOST:
            raise Malformed(f"the level of a tile is at most {_MOST}, this path has {name.level}")
        if name.path != f"{level}/{place}":
            raise Malformed(f"the path of this tile is {name.path}")
        return name

    @property
    def path(self) -> str:
        """The path, after `tile/`."""
        parts, rest = [f"{self.number % 1000:03d}"], self.number // 1000
        while rest:
            parts.insert(0, f"x{rest % 1000:03d}")
            rest //= 1000
        if self.width < WIDTH:
            parts.append(str(self.width))
            parts[-2] += ".p"
        elif self.width > WIDTH:
            raise Misuse(f"a tile has at most {WIDTH} hashes")
        return "/".join([ENTRIES if self.level is None else str(self.level), *parts])

    @property
    def height(self) -> int:
        """The height of the tile: each hash is over 2^height leaves."""
        return _BITS * (self.level or 0)

    @property
    def start(self) -> int:
        """The place of its first hash among those of its height, or of its first entry."""
        return self.number * WIDTH

    @property
    def end(self) -> int:
        """The place after its last hash or entry."""
        return self.start + self.width

    def is_in(self, size: int) -> bool:
        """Return whether a log of `size` leaves has all of the tile."""
        return self.end <= size >> self.height


def write_entries(entries: Iterable[bytes]) -> bytes:
    """Write entries as a tile: each after its length in two bytes."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


class KeyValueStore(Protocol):
    """An ordered map of bytes, in which a board keeps everything that it shows.

    `MemoryKeyValueStore` is for simulations and tests; `services/board/store.py` has one in a
    database. A board holds nothing else, so its memory does not grow with its content.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return a value, or None."""

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last key up to this one, with its value."""

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Return at most `most` values of the keys from `first` to before `end`, in order."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value; it replaces an earlier one."""

    def drop(self, first: bytes, end: bytes) -> None:
        """Delete the keys from `first` to before `end`."""


class MemoryKeyValueStore:
    """A key-value store in memory."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """Return a value, or None."""
        return self._values.get(key)

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last key up to this one, with its value."""
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._values[self._keys[at - 1]]) if at else None

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Return at most `most` values of the keys from `first` to before `end`, in order."""
        start, stop = bisect_left(self._keys, first), bisect_left(self._keys, end)
        return [self._values[key] for key in self._keys[start : min(stop, start + most)]]

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value; it replaces an earlier one."""
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return all keys with their values, in order."""
        return [(key, self._values[key]) for key in self._keys]

    def drop(self, first: bytes, end: bytes) -> None:
        """Delete the keys from `first` to before `end`."""
        start, stop = bisect_left(self._keys, first), bisect_left(self._keys, end)
        for key in self._keys[start:stop]:
            del self._values[key]
        del self._keys[start:stop]


_FULL: Final = WIDTH * HASH_SIZE
_HELD: Final = 256
"""The most tiles of a cache, 17 KB each."""

Levels = list[list[bytes]]


class TileCache:
    """A cache of full tiles with the hashes above them; it drops the least recently used."""

    def __init__(self) -> None:
        self._levels_of: OrderedDict[bytes, Levels] = OrderedDict()
        self._lock = Lock()  # several threads read a board at once

    def get(self, key: bytes) -> Levels | None:
        """Return the levels above a tile, or None."""
        with self._lock:
            levels = self._levels_of.get(key)
            if levels is not None:
                self._levels_of.move_to_end(key)
            return levels

    def put(self, key: bytes, levels: Levels) -> None:
        """Store the levels above a tile."""
        with self._lock:
            self._levels_of[key] = levels
            if len(self._levels_of) > _HELD:
                self._levels_of.popitem(last=False)


class TiledTree(Prover):
    """A tree whose hashes are in a key-value store, under a name; memory holds unfinished tiles.

    A caller that adds leaves calls `save` afterwards. The tiles are served as they are stored.
    """

    def __init__(
        self, store: KeyValueStore, name: bytes, size: int = 0, *, cache: TileCache | None = None
    ) -> None:
        self._store = store
        self._name = name
        self._size = size
        self._open: dict[int, bytearray] = {}
        self._cache = cache

    def __len__(self) -> int:
        return self._size

    def append(self, leaf: bytes) -> int:
        """Add a leaf and return its place."""
        level, place, node = 0, self._size, leaf_hash(leaf)
        self._size += 1
        while True:
            tile = self._unfilled_tile(level, place)
            tile += node
            if len(tile) < _FULL:
                return self._size - 1
            self._store.put(self._key(level, place // WIDTH), bytes(tile))
            node = folded(_hashes(tile))[-1][0]
            tile.clear()
            level, place = level + 1, place // WIDTH

    def save(self) -> None:
        """Store the tiles that are not full yet."""
        for level, tile in self._open.items():
            if tile:
                number = (self._size >> (_BITS * level)) // WIDTH
                self._store.put(self._key(level, number), bytes(tile))

    def tile(self, level: int, number: int) -> bytes:
        """Return the hashes that a tile has so far."""
        if level in self._open and number == (self._size >> (_BITS * level)) // WIDTH:
            return bytes(self._open[level])
        return self._store.get(self._key(level, number)) or b""

    def node(self, height: int, number: int) -> bytes:
        """Return the root of a complete subtree."""
        level, above = divmod(height, _BITS)
        first = number << above
        key = self._key(level, first // WIDTH)
        levels = self._cache.get(key) if self._cache else None
        if levels is None:
            hashes = _hashes(self.tile(level, first // WIDTH))
            if len(hashes) < WIDTH:
                at = first % WIDTH
                return folded(hashes[at : at + (1 << above)])[-1][0]
            levels = folded(hashes)
            if self._cache:
                self._cache.put(key, levels)
        return levels[above][(first % WIDTH) >> above]

    def _unfilled_tile(self, level: int, place: int) -> bytearray:
        """Return the tile of a level that is not full yet."""
        if level not in self._open:
            stored = self._store.get(self._key(level, place // WIDTH)) if place % WIDTH else b""
            self._open[level] = bytearray((stored or b"")[: place % WIDTH * HASH_SIZE])
        return self._open[level]

    def _key(self, level: int, number: int) -> bytes:
        return self._name + bytes((level,)) + number.to_bytes(8, "big")


def _hashes(tile: bytes | bytearray) -> list[bytes]:
    return [bytes(tile[at : at + HASH_SIZE]) for at in range(0, len(tile), HASH_SIZE)]
