"""What the stores of all roles share: one leader per database, who alone writes."""

# ruff: noqa: S608 - what is put into SQL here is the name of a role or of a clock, never a value

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from coatcheck.errors import Fenced, Misuse
from coatcheck.stores.database import Row, Session
from coatcheck.stores.places import Place, open_database, open_depot
from coatcheck.stores.vault import Vault

_LEASE: Final = "SELECT fence FROM coatcheck_leases WHERE role = ?"


class Store:
    """The store of one role: whoever holds its lease writes, with the lease's token.

    It is opened at `memory:`, `sqlite:FILE` or `postgresql://...`, with the folder in which the
    keys of rounds are, and perhaps with a place for the depot; in memory they are in memory
    too.
    """

    role: ClassVar[str]

    def __init__(self, url: str, keys: Path | None = None, depot: Place | None = None) -> None:
        self.database = open_database(url, role=self.role)
        self.vault = Vault(None if url == "memory:" else keys)
        self.depot = open_depot(depot, url=url, keys=keys)

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else has it.

        The expiry is measured by the database's clock, so two hosts need not agree on the time.
        A new holder gets a larger token, whatever the clock did meanwhile. `Misuse` while somebody
        leads whose keys of rounds are in another folder: they could not be taken over.
        """
        now, folder = self.database.now, self.vault.mark
        sql = (
            "INSERT INTO coatcheck_leases AS mine (role, holder, fence, expires, folder)"
            f" VALUES (?, ?, 1, {now} + ?, ?) ON CONFLICT (role) DO UPDATE SET"
            " fence = mine.fence + CASE mine.holder WHEN excluded.holder THEN 0 ELSE 1 END,"
            " holder = excluded.holder, expires = excluded.expires, folder = excluded.folder"
            f" WHERE mine.holder = excluded.holder OR mine.expires <= {now} RETURNING fence"
        )
        held = self.run(sql, self.role, holder, seconds, folder)
        if held:
            return int(held[0][0])
        leading = self.run("SELECT folder FROM coatcheck_leases WHERE role = ?", self.role)
        if leading and leading[0][0] != folder:
            raise Misuse(
                "another process leads this database with another folder of round keys: give both"
                " the same `round_keys`, or this one cannot go on with the rounds of that one"
            )
        return None

    def resign(self, holder: str) -> None:
        """Give the lease back, so that the next one takes over at once; the token stays used."""
        sql = "UPDATE coatcheck_leases SET holder = '', expires = 0 WHERE role = ? AND holder = ?"
        self.run(sql, self.role, holder)

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()

    def run(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, whoever leads, and give its rows."""
        with self.database.transaction() as session:
            return session.rows(sql, values)

    def read(self, sql: str, *values: Any) -> list[Row]:
        """Run one query, whoever leads; nobody who writes waits for it."""
        with self.database.reading() as session:
            return session.rows(sql, values)

    @contextmanager
    def writing(self, fence: int, *, alone: bool = False) -> Iterator[Session]:
        """Begin a transaction of the leader, and hold the lease till its end; `alone`: no other."""
        lock = self.database.alone if alone else self.database.share
        with self.database.transaction() as session:
            held = session.rows(_LEASE + lock, (self.role,))
            if not held or held[0][0] != fence:
                raise Fenced("another process leads this database now; this one stands by")
            yield session
