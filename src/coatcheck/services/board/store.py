"""The board's store: terms by round, and a shelf with everything that the board shows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from coatcheck.protocol.log.merkle import MemoryKeyValueStore
from coatcheck.stores.database import Transaction
from coatcheck.stores.round_store import Store

_FRESH = 1 << 20
"""So many bytes are held before they are written."""


class StoredKeyValues:
    """A shelf in a database (`protocol/log/merkle.py`). What is put is written at `flush`, or before."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin
        self._fresh = MemoryKeyValueStore()
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """Give a value."""
        found = self._fresh.get(key)
        if found is not None:
            return found
        with self._begin() as session:
            rows = session.rows("SELECT value FROM board_shelf WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Give the last key up to this one, with its value."""
        sql = "SELECT key, value FROM board_shelf WHERE key <= ? ORDER BY key DESC LIMIT 1"
        with self._begin() as session:
            rows = session.rows(sql, (key,))
        stored = [(bytes(name), bytes(value)) for name, value in rows]
        fresh = self._fresh.floor(key)
        # Of equal keys the fresh one counts.
        return max([*stored, *([fresh] if fresh else [])], key=lambda one: one[0], default=None)

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Give at most so many values of the keys from `first` to before `end`, in order."""
        self.flush()
        sql = "SELECT value FROM board_shelf WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        with self._begin() as session:
            return [bytes(value) for (value,) in session.rows(sql, (first, end, most))]

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value, in the place of the one before."""
        self._fresh.put(key, value)
        self._bytes += len(value)
        if self._bytes > _FRESH:
            self.flush()

    def drop(self, first: bytes, end: bytes) -> None:
        """Forget what is from `first` to before `end`."""
        self.flush()
        with self._begin() as session:
            session.rows("DELETE FROM board_shelf WHERE key >= ? AND key < ?", (first, end))

    def flush(self) -> None:
        """Write what was put."""
        fresh = self._fresh.items()
        self._fresh, self._bytes = MemoryKeyValueStore(), 0
        if fresh:
            sql = (
                "INSERT INTO board_shelf (key, value) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            )
            with self._begin() as session:
                session.each(sql, fresh)


class BoardStore(Store):
    """What a board must not lose: everything."""

    role = "board"

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round; again, nothing changes."""
        with self.writing(fence) as session:
            sql = "INSERT INTO board_rounds (digest, signed) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (digest, signed))

    def signed(self, digest: bytes) -> bytes | None:
        """Give the signed terms of a round."""
        found = self.run("SELECT signed FROM board_rounds WHERE digest = ?", digest)
        return bytes(found[0][0]) if found else None

    def newest(self, most: int) -> list[bytes]:
        """List the rounds that were admitted last, the newest first."""
        found = self.run("SELECT digest FROM board_rounds ORDER BY number DESC LIMIT ?", most)
        return [bytes(digest) for (digest,) in found]

    @contextmanager
    def reading(self) -> Iterator[StoredKeyValues]:
        """Give the shelf as it is at one moment."""
        with self.database.transaction() as session:
            yield StoredKeyValues(lambda: nullcontext(session))

    @contextmanager
    def shelving(self, fence: int) -> Iterator[StoredKeyValues]:
        """Give the shelf to the leader: everything that is put is there at the end, or nothing."""
        with self.writing(fence) as session:
            shelf = StoredKeyValues(lambda: nullcontext(session))
            yield shelf
            shelf.flush()

    @contextmanager
    def staging(self, fence: int) -> Iterator[StoredKeyValues]:
        """Give the shelf to the leader for what nobody sees yet, in many small transactions."""
        shelf = StoredKeyValues(lambda: self.writing(fence))
        yield shelf
        shelf.flush()
