"""What the stores need of a database: transactions, and the few words in which two differ.

SQL is written once, with `?` for values. A transaction is durable when its block ends.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, NamedTuple, Protocol

Row = tuple[Any, ...]
COUNT: Final = (
    "INSERT INTO shuffler_counts (round, holder, kind, uploads)"
    " SELECT number, ?, ?, ? FROM shuffler_rounds WHERE digest = ?"
    " ON CONFLICT (round, holder, kind)"
    " DO UPDATE SET uploads = shuffler_counts.uploads + excluded.uploads"
)
"""Count uploads of a group of a round, under the name of who counts."""


class Session(Protocol):
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
    def transaction(self) -> AbstractContextManager[Session]:
        """Begin; commit at the end of the block, or undo all of it."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
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
