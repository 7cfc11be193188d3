"""Merkle trees (RFC 9162, section 2.1): roots, inclusion and consistency, and their checks.

Whoever publishes builds a `Tree`; whoever reads needs only the two `check_` functions and
trusts nobody. Knows hashes, nothing of what is hashed. SPEC section 9.
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
    """Return the levels of the tree over so many hashes, a power of two, up to its root."""
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
    """A tree whose complete subtrees are known: what it can prove."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def node(self, height: int, number: int) -> bytes:
        """Return the root of the complete subtree with this number among those of 2^height."""

    def root(self, size: int | None = None) -> bytes:
        """Return the root over the first `size` leaves (all of them by default)."""
        size = len(self) if size is None else size
        if not 0 <= size <= len(self):
            raise Misuse(f"the tree has {len(self)} leaves, a root over {size} was asked for")
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
            raise Misuse(f"there is no leaf {place} in a tree of {end}")
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
            raise Misuse(f"sizes {old} and {end} are not in order in a tree of {len(self)}")
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
        good = 0 <= place < size and _climb(leaf_hash(leaf), place, size, steps) == root
    except IndexError:  # the path is too short
        good = False
    if not good or steps:
        raise Equivocation("the entry is not under the root that was signed: do not rely on it")


def _climb(node: bytes, place: int, size: int, path: list[bytes]) -> bytes:
    """Compute the root over a leaf, and take what was used off the path."""
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
        good = old <= new and roots == (old_root, new_root)
    except IndexError:  # the path is too short
        good = False
    if not good or steps:
        raise Equivocation(
            "the board does not continue what it showed before: keep both checkpoints, together"
            " they are the proof"
        )


def _roots(old: int, new: int, path: list[bytes], known: bytes | None) -> tuple[bytes, bytes]:
    """Compute the roots over `old` and `new` leaves, and take what was used off the path.

    `known` is the root over the old leaves, as long as these are a whole tree.
    """
    if old >= new:
        root = path.pop() if known is None else known
        return root, root
    other, middle = path.pop(), _split(new)
    if old <= middle:
        before, after = _roots(old, middle, path, known)
        return before, node_hash(after, other)
    before, after = _roots(old - middle, new - middle, path, None)
    return node_hash(other, before), node_hash(other, after)


# HOUSE-DOC protocol.tiles: 'The log as tiles (C2SP tlog-tiles): hashes and entries in pieces that never change once full.\n\nKnows paths and bytes of tiles, nothing of what is in the log. A cache or static files can serve\nthem, and whoever reads needs no proofs from the board: it makes them from tiles. SPEC section 18.\n'
WIDTH: Final = 256
"""How many hashes or entries a full tile has."""
_BITS: Final = 8
_LEVEL: Final = re.compile(r"0|[1-9][0-9]?")
_PLACE: Final = re.compile(r"((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
_MOST: Final = 63
ENTRIES: Final = "entries"


@dataclass(frozen=True)
class TileName:
    """Which tile: its level (None for the entries themselves), its number and its width."""

    level: int | None
    number: int
    width: int = WIDTH

    @classmethod
    def read(cls, level: str, place: str) -> "TileName":
        """Read the two parts of a path, in the one form that each tile has."""
        found = _PLACE.fullmatch(place)
        if not found or (level != ENTRIES and not _LEVEL.fullmatch(level)):
            raise Malformed("this is no tile: its path is LEVEL/x001/x234/067 or LEVEL/067.p/WIDTH")
        number, width = int(found[1].replace("x", "").replace("/", "")), int(found[2] or WIDTH)
        if width > WIDTH:
            raise Malformed(f"this is no tile: it has at most {WIDTH} hashes")
        made = cls(None if level == ENTRIES else int(level), number, width)
        if made.path != f"{level}/{place}" or (made.level or 0) > _MOST:
            raise Malformed("this is no tile: its path is longer than it needs to be")
        return made

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
        """Each hash of the tile is over 2^height leaves."""
        return _BITS * (self.level or 0)

    @property
    def start(self) -> int:
        """The place of its first hash among those of its height, or of its first entry."""
        return self.number * WIDTH

    @property
    def end(self) -> int:
        """The place after its last one."""
        return self.start + self.width

    def is_in(self, size: int) -> bool:
        """Tell whether a log of so many leaves has all of it."""
        return self.end <= size >> self.height


def write_entries(entries: Iterable[bytes]) -> bytes:
    """Write entries as a tile: each after its length in two bytes."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


# HOUSE-DOC protocol.shelf: 'The shelf: an ordered map of bytes on which a board keeps everything that it shows.\n\nIn memory here, for simulations and tests; `services/board/store.py` has the one in a database. A board\nholds nothing besides, so its memory does not grow with what it shows.\n'
class KeyValueStore(Protocol):
    """Values by their keys, in the order of the keys' bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Give a value."""

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Give the last key up to this one, with its value."""

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Give at most so many values of the keys from `first` to before `end`, in order."""

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value, in the place of the one before."""

    def drop(self, first: bytes, end: bytes) -> None:
        """Forget what is from `first` to before `end`."""


class MemoryKeyValueStore:
    """A shelf that forgets with the process."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """Give a value."""
        return self._values.get(key)

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Give the last key up to this one, with its value."""
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._values[self._keys[at - 1]]) if at else None

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Give at most so many values of the keys from `first` to before `end`, in order."""
        start, stop = bisect_left(self._keys, first), bisect_left(self._keys, end)
        return [self._values[key] for key in self._keys[start : min(stop, start + most)]]

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value, in the place of the one before."""
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value

    def items(self) -> list[tuple[bytes, bytes]]:
        """Give everything, in order."""
        return [(key, self._values[key]) for key in self._keys]

    def drop(self, first: bytes, end: bytes) -> None:
        """Forget what is from `first` to before `end`."""
        start, stop = bisect_left(self._keys, first), bisect_left(self._keys, end)
        for key in self._keys[start:stop]:
            del self._values[key]
        del self._keys[start:stop]


# HOUSE-DOC protocol.tiled: 'A Merkle tree on a shelf: its hashes are in tiles of 256, and memory holds the unfinished ones.\n\nThe tiles are those of C2SP (`tiles.py`), so they are served as they lie there. SPEC section 18.\n'
_FULL: Final = WIDTH * HASH_SIZE
_HELD: Final = 256
"""How many tiles a cache holds, 17 KB each."""

Levels = list[list[bytes]]


class TileCache:
    """Full tiles with the hashes above them: they never change, and the newest uses are kept."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, Levels] = OrderedDict()
        self._lock = Lock()  # several threads read a board at once

    def get(self, key: bytes) -> Levels | None:
        """Give what is above a tile."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: bytes, levels: Levels) -> None:
        """Keep it, and forget what was not used for longest."""
        with self._lock:
            self._found[key] = levels
            if len(self._found) > _HELD:
                self._found.popitem(last=False)


class TiledTree(Prover):
    """A tree whose hashes are on a shelf, under a name.

    Whoever adds leaves calls `save` afterwards.
    """

    def __init__(
        self, shelf: KeyValueStore, name: bytes, size: int = 0, *, cache: TileCache | None = None
    ) -> None:
        self._shelf = shelf
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
            tile = self._last(level, place)
            tile += node
            if len(tile) < _FULL:
                return self._size - 1
            self._shelf.put(self._key(level, place // WIDTH), bytes(tile))
            node = folded(_hashes(tile))[-1][0]
            tile.clear()
            level, place = level + 1, place // WIDTH

    def save(self) -> None:
        """Put the tiles that are not full yet on the shelf."""
        for level, tile in self._open.items():
            if tile:
                number = (self._size >> (_BITS * level)) // WIDTH
                self._shelf.put(self._key(level, number), bytes(tile))

    def tile(self, level: int, number: int) -> bytes:
        """Give the hashes of a tile, as many as there are."""
        if level in self._open and number == (self._size >> (_BITS * level)) // WIDTH:
            return bytes(self._open[level])
        return self._shelf.get(self._key(level, number)) or b""

    def node(self, height: int, number: int) -> bytes:
        """Give the root of a complete subtree."""
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

    def _last(self, level: int, place: int) -> bytearray:
        """Give the tile at a level that is being filled."""
        if level not in self._open:
            begun = self._shelf.get(self._key(level, place // WIDTH)) if place % WIDTH else b""
            self._open[level] = bytearray((begun or b"")[: place % WIDTH * HASH_SIZE])
        return self._open[level]

    def _key(self, level: int, number: int) -> bytes:
        return self._name + bytes((level,)) + number.to_bytes(8, "big")


def _hashes(tile: bytes | bytearray) -> list[bytes]:
    return [bytes(tile[at : at + HASH_SIZE]) for at in range(0, len(tile), HASH_SIZE)]
