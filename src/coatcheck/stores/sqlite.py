"""SQLite: the embedded database; its write-ahead log is on the disk before a commit returns.

Without a file the database is in the memory of the process, for tests and simulations.
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
    # Small, because names are random: each upload writes a separate page, twice.
    "PRAGMA page_size = 1024",
    "PRAGMA journal_mode = WAL",
    # Undo data of statements stays in memory: it was a third of all writes.
    "PRAGMA temp_store = MEMORY",
    # FULL, not NORMAL: in WAL mode NORMAL may lose the last commits when the power goes.
    "PRAGMA synchronous = FULL",
    # Fewer, larger checkpoints of the log: each one delays the requests that wait.
    "PRAGMA wal_autocheckpoint = 64000",
)
_FULL: Final = frozenset({sqlite3.SQLITE_FULL})
_RESTORE: Final = "restore a backup in its place, and keep this one for examination"
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
        return [self.rows(sql, row) for row in values]


@cache
def _quick(size: int) -> str:
    """Return the statement that inserts the names of so many uploads of a round."""
    values = ", ".join(["(?, ?, ?)"] * size)
    return (
        "INSERT INTO shuffler_uploads (round, id, content, token)"  # noqa: S608 - no value in it
        f" SELECT ?, v.column1, v.column2, v.column3 FROM (VALUES {values}) v WHERE TRUE"
        " ON CONFLICT DO NOTHING"
    )


def _insert(connection: sqlite3.Connection, put: Put) -> bool:
    """Insert uploads; False if the round takes none, or one of them is not new."""
    sql = "SELECT number FROM shuffler_rounds WHERE digest = ? AND phase = ?"
    row = connection.execute(sql, (put.digest, put.phase)).fetchone()
    if not row:
        return False
    number, done, at = row[0], 0, 0
    while at < len(put.names):
        size = next(size for size in _SIZES if size <= len(put.names) - at)
        flat = [value for row in put.names[at : at + size] for value in row]
        done += connection.execute(_quick(size), (number, *flat)).rowcount
        at += size
    if done < len(put.names):
        return False
    for place, group, count, body in put.rows:
        sql = (
            "INSERT INTO shuffler_upload_rows (place, round, kind, size, body)"
            " VALUES (?, ?, ?, ?, ?)"
        )
        connection.execute(sql, (place, number, group, count, body))
    for group, count in put.counts.items():
        connection.execute(COUNT, (put.holder, group, count, put.digest))
    sql = "SELECT SUM(uploads) FROM shuffler_counts WHERE round = ?"
    return bool(connection.execute(sql, (number,)).fetchone()[0] <= put.capacity)


class SQLite(Database):
    """A database in one file (with its log beside it) for one host, or in memory."""

    now = "(julianday('now') - 2440587.5) * 86400.0"
    share = alone = shut = ""  # a write transaction is the only one from its beginning

    def __init__(self, path: Path | None, *, role: str) -> None:
        super().__init__()
        self._path = path
        self._role = role
        with self._lock, _raised_as_ours():
            self._connect()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin as a writer at once, so that what is read is still true at the write."""
        with self._begun() as connection:
            yield _Statements(connection)
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Begin without the lock of a writer: in WAL mode no writer waits for a reader."""
        with self._begun("BEGIN") as connection:
            yield _Statements(connection)
            connection.execute("COMMIT")

    def quick_put(self, put: Put) -> bool:
        """Insert many rows per statement: each step releases the interpreter lock."""
        with self._begun() as connection:
            is_done = _insert(connection, put)
            connection.execute("COMMIT" if is_done else "ROLLBACK")
        return is_done

    @contextmanager
    def _begun(self, how: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Begin a transaction, which the block ends; undo it if the block fails."""
        with self._lock, _raised_as_ours():
            connection = self._connection or self._connect()
            connection.execute(how)
            try:
                yield connection
            except BaseException:
                # After some errors SQLite has undone it already.
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def check(self) -> None:
        """Have SQLite read every page, which takes about a second per gigabyte."""
        with self._lock, _raised_as_ours():
            connection = self._connection or self._connect()
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Damaged(f"the database is damaged ({verdict}): {_RESTORE}")

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
    """Change a setting; SQLite does not wait here for processes that start at the same time."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(setting).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_GLANCE)
        else:
            return


@contextmanager
def _raised_as_ours() -> Iterator[None]:
    """Raise SQLite's errors as ours; their text is SQLite's own and holds no value."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = Full if error.sqlite_errorcode in _FULL else Unavailable
        raise kind(f"the database cannot write now: {error}") from None
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in _DAMAGED:
            raise
        raise Damaged(f"the database is damaged ({error}): {_RESTORE}") from None
