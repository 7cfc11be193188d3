"""SQLite: the embedded store, a write-ahead log that is on the disk before a commit returns.

Without a file it is in memory and forgets with the process, for tests and simulations.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from coatcheck.errors import Damaged, Full, Unavailable
from coatcheck.stores.database import COUNT, Database, Put, Row, Transaction, migrate

_WORDS: Final = {
    "bytes": "BLOB",
    "number": "INTEGER PRIMARY KEY",
    "wide": "INTEGER",
    "clustered": "WITHOUT ROWID",
}
_SETTINGS: Final = (
    # Small, because names are random: each upload writes a page of its own, twice.
    "PRAGMA page_size = 1024",
    "PRAGMA journal_mode = WAL",
    # What a statement must be able to undo stays in memory: it was a third of all writes.
    "PRAGMA temp_store = MEMORY",
    # FULL, not NORMAL: in WAL mode NORMAL may lose the last commits when the power goes.
    "PRAGMA synchronous = FULL",
    # Fewer, larger moves of the log into the file: each one makes those who wait wait longer.
    "PRAGMA wal_autocheckpoint = 64000",
)
_FULL: Final = frozenset({sqlite3.SQLITE_FULL})
_MEND: Final = "put a backup in its place, and keep this one to look into"
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PATIENCE: Final = 5.0
_GLANCE: Final = 0.01
_SIZES: Final = (256, 64, 16, 4, 1)


class _Statements:
    """Statements on one SQLite connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def each(self, sql: str, values: Sequence[Row]) -> list[list[Row]]:
        return [self.rows(sql, one) for one in values]


@cache
def _quick(size: int) -> str:
    """Write the statement that inserts so many names of uploads of a round."""
    values = ", ".join(["(?, ?, ?)"] * size)
    return (
        "INSERT INTO shuffler_parcels (round, id, content, token)"  # noqa: S608 - no value in it
        f" SELECT ?, v.column1, v.column2, v.column3 FROM (VALUES {values}) v WHERE TRUE"
        " ON CONFLICT DO NOTHING"
    )


def _insert(connection: sqlite3.Connection, put: Put) -> bool:
    """Insert uploads; False if the round takes none, or not these."""
    sql = "SELECT number FROM shuffler_rounds WHERE digest = ? AND phase = ?"
    found = connection.execute(sql, (put.digest, put.phase)).fetchone()
    if not found:
        return False
    number, done, at = found[0], 0, 0
    while at < len(put.names):
        size = next(size for size in _SIZES if size <= len(put.names) - at)
        flat = [value for row in put.names[at : at + size] for value in row]
        done += connection.execute(_quick(size), (number, *flat)).rowcount
        at += size
    if done < len(put.names):
        return False
    for place, group, count, body in put.bundles:
        sql = "INSERT INTO shuffler_bundles (place, round, kind, size, body) VALUES (?, ?, ?, ?, ?)"
        connection.execute(sql, (place, number, group, count, body))
    for group, count in put.counts.items():
        connection.execute(COUNT, (put.holder, group, count, put.digest))
    sql = "SELECT SUM(uploads) FROM shuffler_counts WHERE round = ?"
    return bool(connection.execute(sql, (number,)).fetchone()[0] <= put.room)


class SQLite(Database):
    """A database in one file (with its log beside it) for one host, or in memory."""

    now = "(julianday('now') - 2440587.5) * 86400.0"
    share = alone = shut = ""  # a write transaction is alone from its beginning

    def __init__(self, path: Path | None, *, role: str) -> None:
        super().__init__()
        self._path = path
        self._role = role
        with self._lock, _told():
            self._connect()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin as a writer at once, so that a read within cannot be out of date at the write."""
        with self._begun() as connection:
            yield _Statements(connection)
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Begin without the lock of a writer: in WAL mode nobody waits for a reader."""
        with self._begun("BEGIN") as connection:
            yield _Statements(connection)
            connection.execute("COMMIT")

    def quick_put(self, put: Put) -> bool:
        """Insert in statements of many rows: each step of a statement gives up the interpreter."""
        with self._begun() as connection:
            is_done = _insert(connection, put)
            connection.execute("COMMIT" if is_done else "ROLLBACK")
        return is_done

    @contextmanager
    def _begun(self, how: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Begin a transaction, which the block ends; undo it if the block fails."""
        with self._lock, _told():
            connection = self._connection or self._connect()
            connection.execute(how)
            try:
                yield connection
            except BaseException:
                # SQLite has undone it by itself after some errors; then there is nothing to undo.
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def check(self) -> None:
        """Have SQLite look at every page, which takes a second per gigabyte or so."""
        with self._lock, _told():
            connection = self._connection or self._connect()
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Damaged(f"the database is damaged ({verdict}): {_MEND}")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path or ":memory:",
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        if self._path is not None:
            self._path.chmod(0o600)
        for setting in _SETTINGS:
            _set(connection, setting)
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrate(_Statements(connection), role=self._role, words=_WORDS)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


def _set(connection: sqlite3.Connection, setting: str) -> None:
    """Change a setting, and wait for who starts at the same time: SQLite does not do it here."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(setting).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_GLANCE)
        else:
            return


@contextmanager
def _told() -> Iterator[None]:
    """Raise SQLite's errors as ours; their text is SQLite's own and holds no value."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = Full if error.sqlite_errorcode in _FULL else Unavailable
        raise kind(f"the store does not take it now: {error}") from None
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in _DAMAGED:
            raise
        raise Damaged(f"the database is damaged ({error}): {_MEND}") from None
