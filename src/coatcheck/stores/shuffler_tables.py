"""The shuffler's store in tables: uploads durable before they are acknowledged."""

import hashlib
from collections.abc import Sequence
from typing import Final

from coatcheck.errors import Misuse
from coatcheck.stores.contracts import Gathering, Parcel, Verdict
from coatcheck.stores.database import Database, LeaseTable, Row, Session

_OPEN: Final = "SELECT number, phase FROM shuffler_rounds WHERE digest = ?"
_COLUMNS: Final = ("round", "id", "kind", "body", "token")


class ShufflerTables(LeaseTable):
    """A `ShufflerStore` in a database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, role="shuffler")

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name; the digest that came first."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            sql = "INSERT INTO shuffler_pledges (name, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.run(sql, (name, digest))
            found = session.rows("SELECT digest FROM shuffler_pledges WHERE name = ?", (name,))
            return bytes(found[0][0])

    def begin(self, round_: Gathering, *, fence: int) -> None:
        """Open a round; again, nothing changes."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            number = session.rows("SELECT COALESCE(MAX(number), 0) + 1 FROM shuffler_rounds")[0][0]
            session.run(
                "INSERT INTO shuffler_rounds"
                " (digest, number, name, signed, secret, phase, waiting, accepted)"
                " VALUES (?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING",
                (round_.digest, number, round_.name, round_.signed, round_.secret, "open", b""),
            )

    def rounds(self) -> list[Gathering]:
        """List all rounds."""
        with self.database.transaction() as session:
            found = session.rows(
                "SELECT digest, name, signed, secret, phase, waiting, accepted"
                " FROM shuffler_rounds ORDER BY number"
            )
        return [
            Gathering(
                bytes(row[0]), row[1], bytes(row[2]), bytes(row[3]), row[4], bool(row[5]),
                bytes(row[6]),
            )
            for row in found
        ]  # fmt: skip

    def put(self, parcels: Sequence[Parcel], *, fence: int) -> list[Verdict]:
        """Keep uploads in one transaction; one verdict each, in the order given."""
        if self._put_quickly(parcels, fence):
            return [Verdict.NEW] * len(parcels)
        verdicts: dict[int, Verdict] = {}
        with self.database.transaction() as session:
            self.guard(session, fence)
            for digest in {parcel.digest for parcel in parcels}:
                places = [i for i, parcel in enumerate(parcels) if parcel.digest == digest]
                mine = [parcels[place] for place in places]
                verdicts |= zip(places, self._put_round(session, digest, mine), strict=True)
        return [verdicts[place] for place in range(len(parcels))]

    def _put_quickly(self, parcels: Sequence[Parcel], fence: int) -> bool:
        """Try the usual case, in which everything is new, in one statement."""
        if len({parcel.digest for parcel in parcels}) != 1:
            return False
        rows = [(one.id, one.group, one.body, one.token) for one in parcels]
        return self.database.quick_put(parcels[0].digest, rows, fence=fence)

    def _put_round(
        self, session: Session, digest: bytes, parcels: Sequence[Parcel]
    ) -> list[Verdict]:
        found = session.rows(_OPEN + self.database.share, (digest,))
        number, phase = found[0] if found else (0, "unknown")
        known = _known(session, number, parcels)
        spent = _spent(session, number, parcels)
        verdicts, fresh = [], []
        for parcel in parcels:
            verdict = judge(parcel, known=known, spent=spent, is_open=phase == "open")
            verdicts.append(verdict)
            if verdict is Verdict.NEW:
                known[parcel.id] = (parcel.group, parcel.body)
                if parcel.token is not None:
                    spent[parcel.token] = parcel.id
                fresh.append((number, parcel.id, parcel.group, parcel.body, parcel.token))
        session.insert("shuffler_parcels", _COLUMNS, fresh)
        return verdicts

    def knows(self, parcel: Parcel) -> bool:
        """Tell whether this very upload is kept."""
        with self.database.transaction() as session:
            found = session.rows(_OPEN, (parcel.digest,))
            known = _known(session, found[0][0], [parcel]) if found else {}
        return known.get(parcel.id) == (parcel.group, parcel.body)

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        with self.database.transaction() as session:
            found = session.rows(
                "SELECT kind, COUNT(*) FROM shuffler_parcels WHERE round ="
                " (SELECT number FROM shuffler_rounds WHERE digest = ?) GROUP BY kind",
                (digest,),
            )
        return {int(group): int(count) for group, count in found}

    def parcels(self, digest: bytes) -> list[Parcel]:
        """Give all uploads of a round by their random ids."""
        with self.database.transaction() as session:
            found = session.rows(
                "SELECT kind, id, body FROM shuffler_parcels WHERE round ="
                " (SELECT number FROM shuffler_rounds WHERE digest = ?) ORDER BY id",
                (digest,),
            )
        return [Parcel(digest, int(row[0]), bytes(row[1]), bytes(row[2])) for row in found]

    def close_round(self, digest: bytes, *, fence: int) -> None:
        """Take no more uploads."""
        self._move(digest, "open", "closed", fence)

    def reopen(self, digest: bytes, *, fence: int) -> None:
        """Take uploads again: the crowd was too small."""
        self._move(digest, "closed", "open", fence)

    def _move(self, digest: bytes, before: str, after: str, fence: int) -> None:
        with self.database.transaction() as session:
            self.guard(session, fence)
            sql = "UPDATE shuffler_rounds SET phase = ? WHERE digest = ? AND phase = ?"
            session.run(sql, (after, digest, before))

    def accept(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch of the shuffler before; False if another one came first."""
        content = hashlib.sha256(raw).digest()
        with self.database.transaction() as session:
            self.guard(session, fence)
            known = _round(session, digest)
            if known[1] != b"":
                return bytes(known[1]) == content
            if known[0] != "open":
                return False
            sql = "UPDATE shuffler_rounds SET accepted = ?, phase = 'closed' WHERE digest = ?"
            session.run(sql, (content, digest))
            _keep(session, digest, "incoming", raw)
        return True

    def incoming(self, digest: bytes) -> bytes:
        """Give the batch that was accepted."""
        return self._blob(digest, "incoming")

    def release(self, digest: bytes, batch: bytes, *, fence: int) -> None:
        """Keep the released batch, and forget secret, uploads and incoming batch with it."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            if _round(session, digest)[0] != "closed":
                return
            _keep(session, digest, "batch", batch)
            _wipe(session, digest, "released", waiting=1)
        self.database.scrub()

    def batch(self, digest: bytes) -> bytes:
        """Give the released batch."""
        return self._blob(digest, "batch")

    def forget(self, digest: bytes, *, fence: int) -> None:
        """Drop the batch: the next one has it."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            session.run("UPDATE shuffler_rounds SET waiting = 0 WHERE digest = ?", (digest,))
            session.run("DELETE FROM shuffler_blobs WHERE digest = ?", (digest,))
        self.database.scrub()

    def abandon(self, digest: bytes, *, fence: int) -> None:
        """Forget everything of a round that nobody will see."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            if _round(session, digest)[0] in {"open", "closed"}:
                _wipe(session, digest, "abandoned", waiting=0)
        self.database.scrub()

    def scrub(self) -> bool:
        """Take what was forgotten off the disk; False if that has to be tried again."""
        return self.database.scrub()

    def _blob(self, digest: bytes, kind: str) -> bytes:
        with self.database.transaction() as session:
            sql = "SELECT raw FROM shuffler_blobs WHERE digest = ? AND kind = ?"
            found = session.rows(sql, (digest, kind))
        if not found:
            raise Misuse("there is no such batch: it was forgotten, or never came")
        return bytes(found[0][0])


def judge(
    parcel: Parcel,
    *,
    known: dict[bytes, tuple[int, bytes]],
    spent: dict[bytes, bytes],
    is_open: bool,
) -> Verdict:
    """Tell what becomes of an upload, given what is kept of its round."""
    before = known.get(parcel.id)
    if before is not None:
        same = before == (parcel.group, parcel.body)
        return Verdict.KNOWN if same else Verdict.CONFLICT
    if not is_open:
        return Verdict.CLOSED
    if parcel.token is not None and parcel.token in spent:
        return Verdict.SPENT
    return Verdict.NEW


def _known(
    session: Session, number: int, parcels: Sequence[Parcel]
) -> dict[bytes, tuple[int, bytes]]:
    sql = "SELECT id, kind, body FROM shuffler_parcels WHERE round = ? AND id IN"
    found = session.among(sql, (number,), [parcel.id for parcel in parcels])
    return {bytes(row[0]): (int(row[1]), bytes(row[2])) for row in found}


def _spent(session: Session, number: int, parcels: Sequence[Parcel]) -> dict[bytes, bytes]:
    tokens = [parcel.token for parcel in parcels if parcel.token is not None]
    if not tokens:
        return {}
    sql = "SELECT token, id FROM shuffler_parcels WHERE round = ? AND token IN"
    return {bytes(row[0]): bytes(row[1]) for row in session.among(sql, (number,), tokens)}


def _round(session: Session, digest: bytes) -> Row:
    sql = "SELECT phase, accepted FROM shuffler_rounds WHERE digest = ?"
    found = session.rows(sql, (digest,))
    return found[0] if found else ("unknown", b"")


def _keep(session: Session, digest: bytes, kind: str, raw: bytes) -> None:
    sql = "INSERT INTO shuffler_blobs (digest, kind, raw) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    session.run(sql, (digest, kind, raw))


def _wipe(session: Session, digest: bytes, phase: str, *, waiting: int) -> None:
    sql = "UPDATE shuffler_rounds SET phase = ?, waiting = ?, secret = ? WHERE digest = ?"
    session.run(sql, (phase, waiting, bytes(32), digest))
    session.run(
        "DELETE FROM shuffler_parcels WHERE round ="
        " (SELECT number FROM shuffler_rounds WHERE digest = ?)",
        (digest,),
    )
    session.run("DELETE FROM shuffler_blobs WHERE digest = ? AND kind = 'incoming'", (digest,))
