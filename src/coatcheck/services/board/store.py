"""Store of the board: the terms of rounds, and a key-value table with everything it shows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from coatcheck.protocol.log.merkle import MemoryKeyValueStore
from coatcheck.stores.database import Transaction
from coatcheck.stores.round_store import Store

_FRESH = 1 << 20
"""Bytes that are held in memory before they are written."""


class StoredKeyValues:
    """The log's key-value store in a database; values are written at `flush`, or before."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin
        self._fresh = MemoryKeyValueStore()
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""
        value = self._fresh.get(key)
        if value is not None:
            return value
        with self._begin() as session:
            rows = session.rows("SELECT value FROM board_shelf WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last key up to this one, with its value."""
        sql = "SELECT key, value FROM board_shelf WHERE key <= ? ORDER BY key DESC LIMIT 1"
        with self._begin() as session:
            rows = session.rows(sql, (key,))
        stored = [(bytes(name), bytes(value)) for name, value in rows]
        fresh = self._fresh.floor(key)
        # Of equal keys the fresh one counts.
        return max([*stored, *([fresh] if fresh else [])], key=lambda pair: pair[0], default=None)

    def span(self, first: bytes, end: bytes, most: int) -> list[bytes]:
        """Return at most `most` values of the keys from `first` to before `end`, in order."""
        self.flush()
        sql = "SELECT value FROM board_shelf WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        with self._begin() as session:
            return [bytes(value) for (value,) in session.rows(sql, (first, end, most))]

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value, and replace the one before."""
        self._fresh.put(key, value)
        self._bytes += len(value)
        if self._bytes > _FRESH:
            self.flush()

    def drop(self, first: bytes, end: bytes) -> None:
        """Delete the keys from `first` to before `end`."""
        self.flush()
        with self._begin() as session:
            session.rows("DELETE FROM board_shelf WHERE key >= ? AND key < ?", (first, end))

    def flush(self) -> None:
        """Write the values that are in memory."""
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
    """The store of a board; nothing in it may be lost."""

    role = "board"

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Store the terms of a round; a second time changes nothing."""
        with self.writing(fence) as session:
            sql = "INSERT INTO board_rounds (digest, signed) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (digest, signed))

    def signed(self, digest: bytes) -> bytes | None:
        """Return the signed terms of a round."""
        rows = self.run("SELECT signed FROM board_rounds WHERE digest = ?", digest)
        return bytes(rows[0][0]) if rows else None

    def newest(self, most: int) -> list[bytes]:
        """Return the digests of the rounds that were admitted last, the newest first."""
        rows = self.run("SELECT digest FROM board_rounds ORDER BY number DESC LIMIT ?", most)
        return [bytes(digest) for (digest,) in rows]

    @contextmanager
    def reading(self) -> Iterator[StoredKeyValues]:
        """Yield a snapshot of the key-value store."""
        with self.database.transaction() as session:
            yield StoredKeyValues(lambda: nullcontext(session))

    @contextmanager
    def appending(self, fence: int) -> Iterator[StoredKeyValues]:
        """Yield the key-value store to the leader, in one transaction."""
        with self.writing(fence) as session:
            values = StoredKeyValues(lambda: nullcontext(session))
            yield values
            values.flush()

    @contextmanager
    def staging(self, fence: int) -> Iterator[StoredKeyValues]:
        """Yield the key-value store to the leader for hidden values, in many small transactions."""
        values = StoredKeyValues(lambda: self.writing(fence))
        yield values
        values.flush()
