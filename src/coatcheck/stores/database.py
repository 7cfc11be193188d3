"""What the stores need of a database: transactions, and the few points in which two differ.

SQL is written once, with `?` for values. A transaction is durable when its block ends. The tables
are made by numbered migrations; a migration never changes once it is released.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from coatcheck.errors import Misuse

Row = tuple[Any, ...]
COUNT: Final = (
    "INSERT INTO shuffler_counts (round, holder, kind, uploads)"
    " SELECT number, ?, ?, ? FROM shuffler_rounds WHERE digest = ?"
    " ON CONFLICT (round, holder, kind)"
    " DO UPDATE SET uploads = shuffler_counts.uploads + excluded.uploads"
)
"""Count uploads of a group of a round, under the name of the process that took them."""


class Transaction(Protocol):
    """Statements within one transaction."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows, if it has any."""

    def each(self, sql: str, values: Sequence[Row]) -> list[list[Row]]:
        """Run a statement once for each row of values, and return the rows of each run."""


class Put(NamedTuple):
    """New uploads of one round, and the conditions under which they are inserted.

    Attributes:
        phase: the phase in which the round takes uploads.
        names: the names of each upload: columns of `shuffler_uploads` after the round.
        rows: the bodies: columns of `shuffler_upload_rows` but the round.
        counts: how many uploads of each group.
        capacity: how many uploads the round may have with these.
        holder: the process that counts them.
    """

    digest: bytes
    phase: str
    names: Sequence[Row]
    rows: Sequence[Row]
    counts: Mapping[int, int]
    capacity: int
    holder: str

    @property
    def gate(self) -> int:
        """The number of the round's advisory lock, its gate."""
        return gate_of(self.digest)


def gate_of(digest: bytes) -> int:
    """Return the number of a round's gate."""
    return int.from_bytes(digest[:8], "big", signed=True)


class Database(ABC):
    """A connection for one thread at a time, which reconnects when the database is back."""

    now: ClassVar[str]
    """SQL for the database's own clock, in seconds."""
    share: ClassVar[str]
    """SQL that locks a row against changes until the transaction ends."""
    alone: ClassVar[str]
    """SQL that locks a row for this transaction alone."""
    shut: ClassVar[str]
    """SQL that waits until no transaction is within a round's gate, and keeps others out; empty if
    only one transaction writes at a time anyway."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: Any = None

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction; commit at the end of the block, or undo all of it."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin to read; no writer waits for it."""

    @abstractmethod
    def quick_put(self, put: "Put") -> bool:
        """Insert new uploads of a round in few steps.

        False, with nothing inserted, unless all of them are new and there is plenty of capacity;
        the slow way then finds out why.
        """

    @abstractmethod
    def check(self) -> None:
        """Check whether the database is sound, as far as that is quick; `Damaged` if it is not."""

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


_LEASES: Final = (
    "CREATE TABLE IF NOT EXISTS coatcheck_leases"
    " (role TEXT PRIMARY KEY, holder TEXT NOT NULL, fence BIGINT NOT NULL,"
    " expires DOUBLE PRECISION NOT NULL, folder TEXT NOT NULL)"
)

_ROUNDS: Final = (
    " (number {number}, digest {bytes} UNIQUE NOT NULL, name TEXT UNIQUE NOT NULL,"
    " signed {bytes} NOT NULL, phase TEXT NOT NULL, accepted {bytes} NOT NULL"
)
_BLOBS: Final = (
    " (digest {bytes} NOT NULL, kind TEXT NOT NULL, raw {bytes} NOT NULL,"
    " PRIMARY KEY (digest, kind))"
)

_SHUFFLER: Final = (
    _LEASES,
    "CREATE TABLE shuffler_pledges (name TEXT PRIMARY KEY, digest {bytes} NOT NULL)",
    f"CREATE TABLE shuffler_rounds{_ROUNDS})",
    "CREATE INDEX shuffler_rounds_at ON shuffler_rounds (phase)",
    # Keyed by a hash of the upload's random id, under the round's key.
    (
        "CREATE TABLE shuffler_uploads (round INTEGER NOT NULL, id {bytes} NOT NULL,"
        " content {bytes} NOT NULL, token {bytes}, PRIMARY KEY (round, id)) {clustered}"
    ),
    (
        "CREATE UNIQUE INDEX shuffler_tokens ON shuffler_uploads (round, token)"
        " WHERE token IS NOT NULL"
    ),
    (
        "CREATE TABLE shuffler_upload_rows (place {wide} PRIMARY KEY, round INTEGER NOT NULL,"
        " kind INTEGER NOT NULL, size INTEGER NOT NULL, body {bytes} NOT NULL)"
    ),
    "CREATE INDEX shuffler_upload_rows_of ON shuffler_upload_rows (round)",
    # One row per process and group, so that two processes never wait for each other.
    (
        "CREATE TABLE shuffler_counts (round INTEGER NOT NULL, holder TEXT NOT NULL,"
        " kind INTEGER NOT NULL, uploads {wide} NOT NULL, PRIMARY KEY (round, holder, kind))"
    ),
    f"CREATE TABLE shuffler_blobs{_BLOBS}",
)

_SERVER: Final = (
    _LEASES,
    f"CREATE TABLE server_rounds{_ROUNDS}, outcome TEXT NOT NULL)",
    "CREATE INDEX server_rounds_at ON server_rounds (phase)",
    f"CREATE TABLE server_blobs{_BLOBS}",
)

_BOARD: Final = (
    _LEASES,
    (
        "CREATE TABLE board_rounds (number {number}, digest {bytes} UNIQUE NOT NULL,"
        " signed {bytes} NOT NULL)"
    ),
    "CREATE TABLE board_shelf (key {bytes} PRIMARY KEY, value {bytes} NOT NULL)",
)

MIGRATIONS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "shuffler": (_SHUFFLER,),
    "server": (_SERVER,),
    "board": (_BOARD,),
}


def migrate(session: Transaction, *, role: str, words: dict[str, str]) -> None:
    """Bring the tables of a role from any earlier version to this one."""
    session.rows(
        "CREATE TABLE IF NOT EXISTS coatcheck_schema"
        " (role TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    rows = session.rows("SELECT version FROM coatcheck_schema WHERE role = ?", (role,))
    version = rows[0][0] if rows else 0
    newest = len(MIGRATIONS[role])
    if version > newest:
        raise Misuse(
            f"the database has {role} schema {version}, but this version supports up to {newest};"
            " run the version that wrote it, or a later one"
        )
    for statements in MIGRATIONS[role][version:]:
        for statement in statements:
            session.rows(statement.format(**words))
    session.rows(
        "INSERT INTO coatcheck_schema (role, version) VALUES (?, ?)"
        " ON CONFLICT (role) DO UPDATE SET version = excluded.version",
        (role, newest),
    )
