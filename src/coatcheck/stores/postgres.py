"""PostgreSQL through psycopg 3: the store for several hosts and for many rounds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, Final

import psycopg
from psycopg import sql as written
from psycopg.errors import (
    DataCorrupted,
    DiskFull,
    DivisionByZero,
    IdleInTransactionSessionTimeout,
    IndexCorrupted,
    InvalidSqlStatementName,
    error_from_result,
)
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from coatcheck.errors import Damaged, Full, Unavailable
from coatcheck.stores.database import Database, Put, Row, Transaction, migrate

_WORDS: Final = {
    "bytes": "BYTEA",
    "number": "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "wide": "BIGINT",
    "clustered": "",
}
_PAUSE: Final = 0.3
_STOPPED: Final = 60
"""Seconds after which a transaction is undone whose process is silent: it holds the lease."""
_BROKEN: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    IdleInTransactionSessionTimeout,
)
_MIGRATION_LOCK: Final = 0x636F6174  # any number, the same for all that start at once


# The division fails, and with it the whole statement, unless every row went in and there is room.
# The row's lock makes sure that the round takes uploads until the commit. The gate is a lock with a
# queue: whoever closes the round would else wait for ever, while others come and go.
_QUICK: Final = b"""
WITH gate AS MATERIALIZED (
  SELECT pg_advisory_xact_lock_shared($1::int8)
), round AS (
  SELECT number FROM shuffler_rounds
  WHERE digest = $2 AND phase = $3 AND EXISTS (SELECT 1 FROM gate) FOR SHARE
), kept AS (
  INSERT INTO shuffler_parcels (round, id, content, token)
  SELECT round.number, substring(u.names FROM 32 * i + 1 FOR 16),
    substring(u.names FROM 32 * i + 17 FOR 16), substring(u.tokens FROM 16 * i + 1 FOR 16)
  FROM round, (SELECT $4::bytea AS names, $5::bytea AS tokens) AS u,
    generate_series(0, $6::int4 - 1) AS i
  ON CONFLICT DO NOTHING RETURNING 1
), bundled AS (
  INSERT INTO shuffler_bundles (place, round, kind, size, body)
  SELECT b.place, round.number, b.kind, b.size, substring(u.bodies FROM b.start FOR b.length)
  FROM round, (SELECT $7::bytea AS bodies) AS u,
    unnest($8::int8[], $9::int4[], $10::int4[], $11::int4[], $12::int4[])
      AS b (place, kind, size, start, length)
), counted AS (
  INSERT INTO shuffler_counts (round, holder, kind, uploads)
  SELECT round.number, $13, c.kind, c.uploads
  FROM round, unnest($14::int4[], $15::int8[]) AS c (kind, uploads)
  ON CONFLICT (round, holder, kind)
  DO UPDATE SET uploads = shuffler_counts.uploads + excluded.uploads
)
SELECT 1 / (CASE WHEN (SELECT COUNT(*) FROM kept) = $6 AND (
  SELECT COALESCE(SUM(c.uploads), 0) FROM shuffler_counts c, round WHERE c.round = round.number
) <= $16::int8 THEN 1 ELSE 0 END)
"""
_PREPARED: Final = b"coatcheck_put"
# Bytes as they are, everything else as text.
_FORMATS: Final = tuple(Format.BINARY if at in {2, 4, 5, 7} else Format.TEXT for at in range(1, 17))


class _Statements:
    """Statements on one PostgreSQL connection."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(_spelled(sql), values)
        return cursor.fetchall() if cursor.description else []

    def each(self, sql: str, values: Sequence[Row]) -> list[list[Row]]:
        cursor = self._connection.cursor()
        # All of them go there and back at once: psycopg sends them as a pipeline.
        cursor.executemany(_spelled(sql), values, returning=True)
        found: list[list[Row]] = []
        while len(found) < len(values):
            found.append(cursor.fetchall() if cursor.description else [])
            cursor.nextset()
        return found


def _spelled(sql: str) -> written.SQL:
    """Write the places of values as psycopg does; all of them go in binary."""
    return written.SQL(sql.replace("?", "%b"))


def _listed(numbers: Iterable[int]) -> bytes:
    """Write numbers as PostgreSQL reads a list."""
    return b"{%b}" % ",".join(map(str, numbers)).encode()


def _put(connection: psycopg.Connection[Row], values: Sequence[bytes | None]) -> None:
    """Run the statement; prepare it first if it is new to the connection.

    The driver drops all prepared statements when a transaction is undone.
    """
    raw = connection.pgconn
    try:
        _checked(connection, raw.exec_prepared(_PREPARED, values, _FORMATS))  # type: ignore[arg-type] # None is NULL
    except InvalidSqlStatementName:
        _checked(connection, raw.prepare(_PREPARED, _QUICK))
        _checked(connection, raw.exec_prepared(_PREPARED, values, _FORMATS))  # type: ignore[arg-type] # None is NULL


def _checked(connection: psycopg.Connection[Row], result: PGresult) -> None:
    """Raise what the driver would raise."""
    if result.status in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
        return
    if connection.broken:
        raise psycopg.OperationalError("the connection broke")
    raise error_from_result(result)


class Postgres(Database):
    """A PostgreSQL database; a connection that broke is made anew at the next call."""

    now = "extract(epoch FROM clock_timestamp())::float8"
    share = " FOR SHARE"
    alone = " FOR UPDATE"
    shut = "SELECT pg_advisory_xact_lock(?)"

    def __init__(self, url: str, *, role: str) -> None:
        super().__init__()
        self._url = url
        self._role = role
        self._again = 0.0
        with self._connected():
            pass

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin; the commit waits for the disk."""
        with self._connected() as connection, connection.transaction():
            yield _Statements(connection)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Begin nothing: each statement sees what is committed by then, also in a transaction."""
        with self._connected() as connection:
            yield _Statements(connection)

    def quick_put(self, put: Put) -> bool:
        """Insert in one statement, which is one way there and back and one commit."""
        # All names as one value, all bodies as another, and straight through libpq: what the driver
        # does to each value of a statement would cost more than the statement itself.
        names, many = b"".join([part for name in put.names for part in name[:2]]), len(put.names)
        spent = [name[2] for name in put.names if name[2]]
        if spent and len(spent) < many:
            return False  # a round takes tokens from all or from none
        places, groups, sizes, bodies = zip(*put.bundles, strict=True)
        starts, lengths = accumulate(map(len, bodies[:-1]), initial=1), map(len, bodies)
        values = (
            *(b"%d" % put.gate, put.digest, put.phase.encode()),
            *(names, b"".join(spent) or None, b"%d" % many, b"".join(bodies)),
            *map(_listed, (places, groups, sizes, starts, lengths)),
            *(put.holder.encode(), *map(_listed, (put.counts, put.counts.values()))),
            b"%d" % (put.room - many),
        )
        with self._connected() as connection:
            try:
                _put(connection, values)
            except DivisionByZero:
                return False
        return True

    def check(self) -> None:
        """Ask for an answer; PostgreSQL finds damage by itself, where it comes to it."""
        with self._connected() as connection:
            connection.execute("SELECT 1")

    def _connect(self) -> psycopg.Connection[Row]:
        # While the database is away, those who wait are refused at once instead of one by one.
        if time.monotonic() < self._again:
            raise Unavailable("the database does not answer: it is tried again shortly")
        self._again = time.monotonic() + _PAUSE
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=3,
            options="-c synchronous_commit=on -c lock_timeout=5s -c statement_timeout=60s"
            " -c tcp_user_timeout=5000 -c client_min_messages=warning"
            f" -c idle_in_transaction_session_timeout={_STOPPED}s",
        )
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
                migrate(_Statements(connection), role=self._role, words=_WORDS)
                if self._role == "shuffler":
                    _checked(connection, connection.pgconn.prepare(_PREPARED, _QUICK))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Row]]:
        """Hold the connection; tell the driver's errors as ours, and drop one that broke."""
        with self._lock:
            try:
                yield self._connection or self._connect()
            except DiskFull:
                raise Full("the store has no room left") from None
            except (DataCorrupted, IndexCorrupted) as error:
                raise Damaged(f"the database is damaged ({error}): restore a backup") from None
            except _BROKEN as error:
                if self._connection is not None and self._connection.broken:
                    with suppress(psycopg.Error):
                        self._connection.close()
                    self._connection = None
                kind = type(error).__name__
                raise Unavailable(f"the database does not answer ({kind})") from None
