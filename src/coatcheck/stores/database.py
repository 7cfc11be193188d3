"""The tables by numbered migrations; a database from a later version is refused.

A migration never changes once it is released: the next change is the next number.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from coatcheck.errors import Misuse

# HOUSE-DOC stores.database: 'What the stores need of a database: transactions, and the few words in which two differ.\n\nSQL is written once, with `?` for values. A transaction is durable when its block ends.\n'
Row = tuple[Any, ...]
COUNT: Final = (
    "INSERT INTO shuffler_counts (round, holder, kind, uploads)"
    " SELECT number, ?, ?, ? FROM shuffler_rounds WHERE digest = ?"
    " ON CONFLICT (round, holder, kind)"
    " DO UPDATE SET uploads = shuffler_counts.uploads + excluded.uploads"
)
"""Count uploads of a group of a round, under the name of who counts."""


class Transaction(Protocol):
    """Statements within one transaction."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give its rows, if it has any."""

    def each(self, sql: str, values: Sequence[Row]) -> list[list[Row]]:
        """Run a statement once for each of several values, and give the rows of each run."""


class Put(NamedTuple):
    """Uploads of one round to insert, and on which conditions.

    Attributes:
        phase: the phase in which the round takes them.
        names: the names of each: columns of `shuffler_parcels` after the round.
        bundles: their bodies: columns of `shuffler_bundles` but the round.
        counts: how many of each group.
        room: how many uploads the round may have with them.
        holder: who counts them.
    """

    digest: bytes
    phase: str
    names: Sequence[Row]
    bundles: Sequence[Row]
    counts: Mapping[int, int]
    room: int
    holder: str

    @property
    def gate(self) -> int:
        """The number of the round's gate."""
        return gate_of(self.digest)


def gate_of(digest: bytes) -> int:
    """Number the gate of a round."""
    return int.from_bytes(digest[:8], "big", signed=True)


class Database(ABC):
    """A connection that comes back by itself when the database does, for one thread at a time."""

    now: ClassVar[str]
    """SQL for the database's own clock, in seconds."""
    share: ClassVar[str]
    """SQL that keeps a row from being changed until the transaction ends."""
    alone: ClassVar[str]
    """The same, and nobody else may keep it from that meanwhile."""
    shut: ClassVar[str]
    """SQL that waits until nobody is within a round's gate, and lets nobody in meanwhile; empty if
    a write transaction is alone anyway."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: Any = None

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end of the block, or undo all of it."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin to read; nobody who writes waits for it."""

    @abstractmethod
    def quick_put(self, put: "Put") -> bool:
        """Insert uploads of a round in few steps.

        False, with nothing done, unless all of them are new and there is plenty of room: then the
        long way finds out why.
        """

    @abstractmethod
    def check(self) -> None:
        """Look whether the database is sound, as far as that is quick; `Damaged` if it is not."""

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
        "CREATE TABLE shuffler_parcels (round INTEGER NOT NULL, id {bytes} NOT NULL,"
        " content {bytes} NOT NULL, token {bytes}, PRIMARY KEY (round, id)) {clustered}"
    ),
    (
        "CREATE UNIQUE INDEX shuffler_tokens ON shuffler_parcels (round, token)"
        " WHERE token IS NOT NULL"
    ),
    (
        "CREATE TABLE shuffler_bundles (place {wide} PRIMARY KEY, round INTEGER NOT NULL,"
        " kind INTEGER NOT NULL, size INTEGER NOT NULL, body {bytes} NOT NULL)"
    ),
    "CREATE INDEX shuffler_bundles_of ON shuffler_bundles (round)",
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
    """Bring the tables of a role to this version, from whatever earlier one they have."""
    session.rows(
        "CREATE TABLE IF NOT EXISTS coatcheck_schema"
        " (role TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    found = session.rows("SELECT version FROM coatcheck_schema WHERE role = ?", (role,))
    version = found[0][0] if found else 0
    known = len(MIGRATIONS[role])
    if version > known:
        raise Misuse(
            f"this database is of schema {version} and this coatcheck knows {role} schemas up to"
            f" {known}: start the version that wrote it, or a later one"
        )
    for statements in MIGRATIONS[role][version:]:
        for statement in statements:
            session.rows(statement.format(**words))
    session.rows(
        "INSERT INTO coatcheck_schema (role, version) VALUES (?, ?)"
        " ON CONFLICT (role) DO UPDATE SET version = excluded.version",
        (role, known),
    )
