"""The shelf: an ordered map of bytes on which a board keeps everything that it shows.

In memory here, for simulations and tests; `stores/board.py` has the one in a database. A board
holds nothing besides, so its memory does not grow with what it shows.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Protocol


class Shelf(Protocol):
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


class MemoryShelf:
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
