"""Merkle trees (RFC 9162, section 2.1): roots, inclusion and consistency, and their checks.

Whoever publishes builds a `Tree`; whoever reads needs only the two `check_` functions and
trusts nobody. Knows hashes, nothing of what is hashed. SPEC section 9.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

from coatcheck.errors import Misuse, TwoFaces

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
        raise TwoFaces("the entry is not under the root that was signed: do not rely on it")


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
        raise TwoFaces(
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
