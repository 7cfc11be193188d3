"""Crates: the files of one round in the depot, sealed under the round's keys.

All that a stage needs of a role's store: no database. A file is bound to its name, so one that was
moved or changed does not open. SPEC section 10.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from coatcheck.errors import Unavailable, Unsealable
from coatcheck.stores.depot import Depot
from coatcheck.stores.vault import OVERHEAD, RoundKey, Vault


class Slot(NamedTuple):
    """Where in a file of pieces one is: at which byte it begins, and how many rows it has."""

    at: int
    length: int


class Wanted(NamedTuple):
    """A piece: its file and number there, at which byte it begins, and how many bytes it has."""

    name: str
    number: int
    start: int
    size: int


class Crate:
    """The files of a round; each is sealed under the round's key, or under that of its batch."""

    def __init__(self, vault: Vault, depot: Depot, digest: bytes) -> None:
        self._vault = vault
        self._depot = depot
        self.digest = digest

    def key(self, use: str = "round") -> RoundKey:
        """Give a key of the round, which must be there."""
        return self._vault.key(self.digest, use)

    def names(self, use: str = "round") -> set[str]:
        """List the files."""
        return self._depot.names((self.digest, use))

    def put(self, name: str, raw: bytes, *, use: str = "round") -> None:
        """Keep a file."""
        sealed = self.key(use).seal(raw, self.digest, name.encode())
        self._depot.put((self.digest, use), name, sealed)

    def get(self, name: str, *, use: str = "round") -> bytes:
        """Give a file."""
        return self._opened(self.key(use), self._depot.get((self.digest, use), name), name)

    def put_pieces(self, name: str, pieces: Sequence[bytes]) -> None:
        """Keep a file of pieces that are read one by one; empty ones take no room."""
        key = self.key()
        sealed = [
            key.seal(piece, self.digest, _piece(name, number)) if piece else b""
            for number, piece in enumerate(pieces)
        ]
        self._depot.put((self.digest, "round"), name, b"".join(sealed))

    def piece(self, name: str, number: int, *, start: int, size: int) -> bytes:
        """Give a piece of so many bytes, which begins at this place of its file."""
        return next(self.pieces([Wanted(name, number, start, size)]))

    def pieces(self, wanted: Iterable[Wanted]) -> Iterator[bytes]:
        """Give pieces one after the other, with the key read once: a stage may want thousands."""
        key = self.key()
        for name, number, start, size in wanted:
            if not size:
                yield b""
                continue
            sealed = self._depot.get((self.digest, "round"), name, start, sealed_size(size))
            yield self._opened(key, sealed, _piece(name, number).decode())

    def _opened(self, key: RoundKey, sealed: bytes, name: str) -> bytes:
        try:
            return key.open(sealed, self.digest, name.encode())
        except Unsealable:
            raise Unavailable(
                f"{name} in the depot is not what was put there: put it back; what a release"
                " or an answer is made of may also be removed, and is made again"
            ) from None


def sealed_size(size: int) -> int:
    """Give how many bytes a piece takes in its file."""
    return size + OVERHEAD if size else 0


def slots(counts: Sequence[int], width: int = 1) -> list[Slot]:
    """Find each piece of a file, of so many rows of a width."""
    starts = accumulate((sealed_size(count * width) for count in counts), initial=0)
    return [Slot(start, count) for start, count in zip(starts, counts, strict=False)]


def _piece(name: str, number: int) -> bytes:
    return f"{name}/{number}".encode()
