"""The board's store: a log that only grows."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from coatcheck.errors import Fenced
from coatcheck.stores.database import Database
from coatcheck.stores.store import Store, open_database


@dataclass(frozen=True)
class LogEntry:
    """Something on the board: a bulletin (the first of its round) or a letter."""

    digest: bytes
    raw: bytes = field(repr=False)


class BoardStore(Store):
    """What a board must not lose: everything, in order."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, role="board")

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round; again, nothing changes."""
        with self.writing(fence) as session:
            sql = "INSERT INTO board_rounds (digest, signed) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.run(sql, (digest, signed))

    def rounds(self) -> dict[bytes, bytes]:
        """Give the signed terms by digest."""
        with self.database.transaction() as session:
            return dict(session.rows("SELECT digest, signed FROM board_rounds"))

    def append(self, entries: Iterable[LogEntry], *, at: int, fence: int) -> None:
        """Add entries from this place of the log on, all or none."""
        with self.writing(fence) as session:
            count = session.rows("SELECT COUNT(*) FROM board_log")[0][0]
            if count != at:
                raise Fenced(f"the log has {count} places, not {at}: another process wrote to it")
            rows = [(place, one.digest, one.raw) for place, one in enumerate(entries, start=at)]
            session.insert("board_log", ("place", "digest", "raw"), rows)

    def history(self) -> list[LogEntry]:
        """Give everything on the board, in order."""
        with self.database.transaction() as session:
            found = session.rows("SELECT digest, raw FROM board_log ORDER BY place")
        return [LogEntry(digest, raw) for digest, raw in found]


def board_store(url: str) -> BoardStore:
    """Open the store of a board: `memory:`, `sqlite:FILE` or `postgresql://...`."""
    return BoardStore(open_database(url, role="board"))
