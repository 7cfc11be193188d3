"""What the stores need of a database: transactions, and the few words in which two differ.

SQL is written once, with `?` for values. A transaction is durable when its block ends.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Session(Protocol):
    """Statements within one transaction."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give its rows, if it has any."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert many rows at once; those whose key is there already are left out."""

    def among(self, sql: str, values: Sequence[Any], listed: Sequence[Any]) -> list[Row]:
        """Run a query that ends in `IN` for a list of byte strings."""


class Database(Protocol):
    """A connection that comes back by itself when the database does."""

    now: str
    """SQL for the database's own clock, in seconds."""
    share: str
    """SQL that keeps a row from being changed until the transaction ends."""

    def transaction(self) -> AbstractContextManager[Session]:
        """Begin; commit at the end of the block, or undo all of it."""

    def quick_put(self, digest: bytes, rows: Sequence[Row], *, phase: str, fence: int) -> bool:
        """Insert uploads (id, group, body, token) of a round in this phase, in few steps.

        False, with nothing done, unless all of them are new and the writer leads: then the long
        way finds out why.
        """

    def scrub(self) -> bool:
        """Take what was deleted off the disk, as far as the database can; False: try again."""

    def close(self) -> None:
        """Let go of the connection."""
