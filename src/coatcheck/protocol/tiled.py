"""A Merkle tree on a shelf: its hashes are in tiles of 256, and memory holds the unfinished ones.

The tiles are those of C2SP (`tiles.py`), so they are served as they lie there. SPEC section 18.
"""

from collections import OrderedDict
from threading import Lock
from typing import Final

from coatcheck.protocol.merkle import HASH_SIZE, Prover, folded, leaf_hash
from coatcheck.protocol.shelf import Shelf
from coatcheck.protocol.tiles import WIDTH

_BITS: Final = 8
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
        self, shelf: Shelf, name: bytes, size: int = 0, *, cache: TileCache | None = None
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
