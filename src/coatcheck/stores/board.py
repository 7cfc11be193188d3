"""The board's store: a log that only grows."""

from collections.abc import Iterable

from coatcheck.errors import Fenced
from coatcheck.stores.store import Store

LogEntry = tuple[bytes, bytes]
"""The digest of a round, and a mark for its terms, then its bulletin, then its letters."""


class BoardStore(Store):
    """What a board must not lose: everything, in order."""

    role = "board"

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round; again, nothing changes."""
        with self.writing(fence) as session:
            sql = "INSERT INTO board_rounds (digest, signed) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (digest, signed))

    def rounds(self) -> dict[bytes, bytes]:
        """Give the signed terms by digest."""
        return dict(self.run("SELECT digest, signed FROM board_rounds"))

    def append(self, entries: Iterable[LogEntry], *, at: int, fence: int) -> None:
        """Add entries from this place of the log on, all or none."""
        with self.writing(fence) as session:
            # The places have no gaps, so the last one counts them without a look at each.
            count = session.rows("SELECT COALESCE(MAX(place) + 1, 0) FROM board_log")[0][0]
            if count != at:
                raise Fenced(f"the log has {count} places, not {at}: another process wrote to it")
            rows = [(place, *entry) for place, entry in enumerate(entries, start=at)]
            session.each("INSERT INTO board_log (place, digest, raw) VALUES (?, ?, ?)", rows)

    def between(self, start: int, end: int) -> list[tuple[int, bytes, bytes]]:
        """Give place, digest and first bytes of what is at these places; a letter comes whole."""
        sql = (
            "SELECT place, digest, substr(raw, 1, 65535) FROM board_log"
            " WHERE place >= ? AND place < ? ORDER BY place"
        )
        return [(place, digest, bytes(raw)) for place, digest, raw in self.run(sql, start, end)]

    def history(self) -> list[LogEntry]:
        """Give everything on the board, in order."""
        found = self.run("SELECT digest, raw FROM board_log ORDER BY place")
        return [(digest, raw) for digest, raw in found]
