"""What the tables need of a database: transactions, and the few words in which two differ.

SQL is written once, with `?` for values. A transaction is durable when its block ends.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from coatcheck.errors import Fenced

Row = tuple[Any, ...]


class Session(Protocol):
    """Statements within one transaction."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give its rows."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run a statement for its effect."""

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

    def quick_put(self, digest: bytes, rows: Sequence[Row], *, fence: int) -> bool:
        """Insert uploads (id, group, body, token) of an open round in as few steps as can be.

        False, with nothing done, unless all of them are new and the writer leads: then the long
        way finds out why.
        """

    def scrub(self) -> bool:
        """Take what was deleted off the disk, as far as the database can; False: try again."""

    def close(self) -> None:
        """Let go of the connection."""


_LEASE: Final = "SELECT fence FROM coatcheck_leases WHERE role = ?"


class LeaseTable:
    """The lease of one role, in a table of one row a role."""

    def __init__(self, database: Database, *, role: str) -> None:
        self.database = database
        self.role = role

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease.

        The expiry is reckoned with the database's clock, so that two hosts need not agree on the
        time. A new holder gets a larger token, whatever the clock did meanwhile.
        """
        now = self.database.now
        with self.database.transaction() as session:
            known = session.rows(
                f"SELECT holder, fence, expires > {now} FROM coatcheck_leases WHERE role = ?",  # noqa: S608 - no value in it
                (self.role,),
            )
            if not known:
                sql = "INSERT INTO coatcheck_leases (role, holder, fence, expires) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING"  # noqa: E501 - one statement
                session.run(sql, (self.role, ""))
                known = [("", 0, False)]
            last, fence, alive = known[0]
            if alive and last != holder:
                return None
            after = fence if last == holder else fence + 1
            changed = session.rows(
                f"UPDATE coatcheck_leases SET holder = ?, fence = ?, expires = {now} + ?"  # noqa: S608 - no value in it
                " WHERE role = ? AND fence = ? AND holder = ? RETURNING fence",
                (holder, after, seconds, self.role, fence, last),
            )
            return int(changed[0][0]) if changed else None

    def resign(self, holder: str) -> None:
        """Let the next one take over at once; the token stays used."""
        with self.database.transaction() as session:
            sql = (
                "UPDATE coatcheck_leases SET holder = '', expires = 0 WHERE role = ? AND holder = ?"
            )
            session.run(sql, (self.role, holder))

    def probe(self) -> None:
        """Ask the database for anything."""
        with self.database.transaction() as session:
            session.rows(_LEASE, (self.role,))

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()

    def guard(self, session: Session, fence: int) -> None:
        """Refuse a write of somebody who does not lead any more; hold the lease till its end."""
        held = session.rows(_LEASE + self.database.share, (self.role,))
        if not held or held[0][0] != fence:
            raise Fenced("another process leads this database now; this one stands by")
