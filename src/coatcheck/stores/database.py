"""What the stores need of a database: transactions, and the few words in which two differ.

SQL is written once, with `?` for values. A transaction is durable when its block ends.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

Row = tuple[Any, ...]


class Session(Protocol):
    """Statements within one transaction."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give its rows, if it has any."""

    def each(self, sql: str, values: Sequence[Row]) -> list[list[Row]]:
        """Run a statement once for each of several values, and give the rows of each run."""


class Database(ABC):
    """A connection that comes back by itself when the database does, for one thread at a time."""

    now: ClassVar[str]
    """SQL for the database's own clock, in seconds."""
    share: ClassVar[str]
    """SQL that keeps a row from being changed until the transaction ends."""
    alone: ClassVar[str]
    """The same, and nobody else may keep it from that meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: Any = None

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Session]:
        """Begin; commit at the end of the block, or undo all of it."""

    @abstractmethod
    def quick_put(self, digest: bytes, rows: Sequence[Row], *, phase: str, fence: int) -> bool:
        """Insert uploads (id, group, body, token) of a round in this phase, in few steps.

        False, with nothing done, unless all of them are new and the writer leads: then the long
        way finds out why.
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
