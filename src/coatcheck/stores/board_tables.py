"""The board's store in tables: a log that only grows."""

from collections.abc import Iterable

from coatcheck.errors import Fenced
from coatcheck.stores.contracts import Shown
from coatcheck.stores.database import Database, LeaseTable


class BoardTables(LeaseTable):
    """A `BoardStore` in a database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, role="board")

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round; again, nothing changes."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            sql = "INSERT INTO board_rounds (digest, signed) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.run(sql, (digest, signed))

    def rounds(self) -> dict[bytes, bytes]:
        """Give the signed terms by digest."""
        with self.database.transaction() as session:
            found = session.rows("SELECT digest, signed FROM board_rounds")
        return {bytes(row[0]): bytes(row[1]) for row in found}

    def append(self, shown: Iterable[Shown], *, at: int, fence: int) -> None:
        """Show things at these places of the log, all or none."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            count = session.rows("SELECT COUNT(*) FROM board_log")[0][0]
            if count != at:
                raise Fenced(f"the log has {count} places, not {at}: another process wrote to it")
            rows = [(place, one.digest, one.raw) for place, one in enumerate(shown, start=at)]
            session.insert("board_log", ("place", "digest", "raw"), rows)

    def history(self) -> list[Shown]:
        """Give everything shown, in order."""
        with self.database.transaction() as session:
            found = session.rows("SELECT digest, raw FROM board_log ORDER BY place")
        return [Shown(bytes(row[0]), bytes(row[1])) for row in found]
