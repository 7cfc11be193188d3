"""Merkle trees (RFC 9162, section 2.1): roots, inclusion and consistency, and their checks.

Whoever publishes builds a `Tree`; whoever reads needs only the two `check_` functions and
trusts nobody. Knows hashes, nothing of what is hashed. SPEC section 9.
"""

import hashlib
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


class Tree:
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

    def root(self, size: int | None = None) -> bytes:
        """Return the root over the first `size` leaves (all of them by default)."""
        size = len(self) if size is None else size
        if not 0 <= size <= len(self):
            raise Misuse(f"the tree has {len(self)} leaves, a root over {size} was asked for")
        return self._range(0, size) if size else EMPTY

    def _range(self, start: int, end: int) -> bytes:
        size = end - start
        if size & (size - 1) == 0 and start % size == 0:
            return self._levels[size.bit_length() - 1][start // size]
        middle = start + _split(size)
        return node_hash(self._range(start, middle), self._range(middle, end))

    def inclusion(self, place: int, size: int | None = None) -> list[bytes]:
        """Prove that the leaf at `place` is under the root over `size` leaves."""
        end = len(self) if size is None else size
        if not 0 <= place < end <= len(self):
            raise Misuse(f"there is no leaf {place} in a tree of {end}")
        path: list[bytes] = []
        start = 0
        while end - start > 1:
            middle = start + _split(end - start)
            if place < middle:
                path.append(self._range(middle, end))
                end = middle
            else:
                path.append(self._range(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Prove that the tree over `new` leaves begins with the tree over `old` leaves."""
        end = len(self) if new is None else new
        if not 0 <= old <= end <= len(self):
            raise Misuse(f"sizes {old} and {end} are not in order in a tree of {len(self)}")
        if old in {0, end}:
            return []
        path: list[bytes] = []
        start, whole = 0, True
        while True:
            if old == end:
                break
            middle = start + _split(end - start)
            if old <= middle:
                path.append(self._range(middle, end))
                end = middle
            else:
                path.append(self._range(start, middle))
                start, whole = middle, False
        if not whole:
            path.append(self._range(start, end))
        return path[::-1]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def check_inclusion(
    leaf: bytes, *, place: int, size: int, root: bytes, path: Sequence[bytes]
) -> None:
    """Raise unless the path leads from the leaf to the root (RFC 9162, 2.1.3.2)."""
    fn, sn, node = place, size - 1, leaf_hash(leaf)
    good = 0 <= place < size
    for step in path:
        good = good and sn > 0
        if fn & 1 or fn == sn:
            node = node_hash(step, node)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            node = node_hash(node, step)
        fn, sn = fn >> 1, sn >> 1
    if not good or sn or node != root:
        raise TwoFaces("the entry is not under the root that was signed: do not rely on it")


def check_consistency(
    *, old: int, old_root: bytes, new: int, new_root: bytes, path: Sequence[bytes]
) -> None:
    """Raise unless the new tree begins with the old one (RFC 9162, 2.1.4.2)."""
    if not _consistent(old=old, old_root=old_root, new=new, new_root=new_root, path=path):
        raise TwoFaces(
            "the board does not continue what it showed before: keep both checkpoints, together"
            " they are the proof"
        )


def _consistent(
    *, old: int, old_root: bytes, new: int, new_root: bytes, path: Sequence[bytes]
) -> bool:
    if old > new:
        return False
    if old in {0, new}:
        same = old_root == (EMPTY if old == 0 else new_root)
        return same and not path
    nodes = list(path) if old & (old - 1) else [old_root, *path]
    if not nodes:
        return False
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = nodes[0]
    for step in nodes[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            first, second = node_hash(step, first), node_hash(step, second)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = node_hash(second, step)
        fn, sn = fn >> 1, sn >> 1
    return first == old_root and second == new_root and sn == 0
