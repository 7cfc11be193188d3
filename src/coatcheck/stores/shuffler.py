"""The shuffler's store: uploads are durable before they are acknowledged."""

# ruff: noqa: S608 - what is put into SQL here is a query of this file, never a value

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from coatcheck.protocol.parcels import Upload
from coatcheck.protocol.shuffler import HOLDING, MOVES, SECRET_SIZE, Phase
from coatcheck.stores.database import Session
from coatcheck.stores.store import RoundStore, StoredRound

_NUMBER: Final = "(SELECT number FROM shuffler_rounds WHERE digest = ?)"
_KNOWN: Final = f"SELECT kind, body FROM shuffler_parcels WHERE round = {_NUMBER} AND id = ?"
# The one phase that takes uploads, for the statements that insert them without a look before.
(_PHASE,) = (phase.value for phase, move, _ in MOVES if move == "receive")
_TAKING: Final = " FROM shuffler_rounds WHERE digest = ? AND phase = ?"


class Verdict(Enum):
    """What became of an upload."""

    NEW = "new"
    KNOWN = "known"  # the same bytes once more
    CONFLICT = "conflict"  # other bytes under this id
    SPENT = "spent"  # the token was used for another upload
    CLOSED = "closed"  # the round takes no uploads


@dataclass(frozen=True)
class ShufflerRound(StoredRound[Phase]):
    """A shuffler's round as it is stored; its secret is zeros once the round is over."""

    phase: Phase = Phase.OPEN
    secret: bytes = field(default=bytes(SECRET_SIZE), repr=False)


class ShufflerStore(RoundStore[Phase, ShufflerRound]):
    """What a shuffler must not lose."""

    role = "shuffler"
    moves = MOVES
    record = ShufflerRound

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name; the digest that came first."""
        with self.writing(fence) as session:
            sql = "INSERT INTO shuffler_pledges (name, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (name, digest))
            found = session.rows("SELECT digest FROM shuffler_pledges WHERE name = ?", (name,))
            first: bytes = found[0][0]
            return first

    def put(self, uploads: Sequence[Upload], *, fence: int) -> list[Verdict]:
        """Keep uploads in one transaction; one verdict each, in the order given."""
        if self._put_quickly(uploads, fence):
            return [Verdict.NEW] * len(uploads)
        sql = (
            "INSERT INTO shuffler_parcels (round, id, kind, body, token)"
            f" SELECT number, ?, ?, ?, ?{_TAKING}{self.database.share}"
            " ON CONFLICT DO NOTHING RETURNING kind"
        )
        rows = [(one.id, one.group, one.body, one.token, one.digest, _PHASE) for one in uploads]
        with self.writing(fence) as session:
            put = session.each(sql, rows)
            return [
                Verdict.NEW if new else _why_not(session, upload)
                for new, upload in zip(put, uploads, strict=True)
            ]

    def _put_quickly(self, uploads: Sequence[Upload], fence: int) -> bool:
        """Try the usual case, in which everything is new, in one statement."""
        if len({upload.digest for upload in uploads}) != 1:
            return False
        rows = [(one.id, one.group, one.body, one.token) for one in uploads]
        return self.database.quick_put(uploads[0].digest, rows, phase=_PHASE, fence=fence)

    def knows(self, upload: Upload) -> bool:
        """Tell whether this very upload is kept."""
        return self.run(_KNOWN, upload.digest, upload.id) == [(upload.group, upload.body)]

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        sql = f"SELECT kind, COUNT(*) FROM shuffler_parcels WHERE round = {_NUMBER} GROUP BY kind"
        return dict(self.run(sql, digest))

    def held(self, digest: bytes) -> dict[bytes, tuple[int, bytes]]:
        """Give group and body of all uploads of a round by their random ids."""
        sql = f"SELECT id, kind, body FROM shuffler_parcels WHERE round = {_NUMBER} ORDER BY id"
        return {name: (group, body) for name, group, body in self.run(sql, digest)}

    def move(self, digest: bytes, move: str, *, fence: int, batch: bytes = b"") -> None:
        """Make a move of a round; a release comes with its batch.

        What the new phase must not hold any more is forgotten in the same transaction.
        """
        with self.writing(fence) as session:
            if self.moved(session, digest, move) in HOLDING:
                return
            sql = "UPDATE shuffler_rounds SET secret = ? WHERE digest = ?"
            session.rows(sql, (bytes(SECRET_SIZE), digest))
            session.rows(f"DELETE FROM shuffler_parcels WHERE round = {_NUMBER}", (digest,))
            self.drop(session, digest)
            if batch:
                self.keep(session, digest, "batch", batch)
        self.scrub()

    def scrub(self) -> bool:
        """Take what was forgotten off the disk; False if that has to be tried again."""
        return self.database.scrub()


def _why_not(session: Session, upload: Upload) -> Verdict:
    """Find out why an upload was not put."""
    known = session.rows(_KNOWN, (upload.digest, upload.id))
    if known:
        return Verdict.KNOWN if known == [(upload.group, upload.body)] else Verdict.CONFLICT
    # Nothing is there under its id: another upload has its token, or the round takes none.
    takes = session.rows(f"SELECT number{_TAKING}", (upload.digest, _PHASE))
    return Verdict.SPENT if takes else Verdict.CLOSED
