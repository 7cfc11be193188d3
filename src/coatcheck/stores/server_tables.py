"""The server's store in tables: one batch and one bulletin a round."""

import hashlib

from coatcheck.errors import Misuse
from coatcheck.stores.contracts import Sitting
from coatcheck.stores.database import Database, LeaseTable, Session

_ROUNDS = "SELECT digest, name, signed, phase, batch, outcome FROM server_rounds"


class ServerTables(LeaseTable):
    """A `ServerStore` in a database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, role="server")

    def propose(self, round_: Sitting, *, fence: int) -> Sitting:
        """Keep a proposal; if one of this name is there, that one is given and nothing changes."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            session.run(
                "INSERT INTO server_rounds (digest, name, signed, phase, batch, outcome)"
                " VALUES (?, ?, ?, 'proposed', ?, '') ON CONFLICT DO NOTHING",
                (round_.digest, round_.name, round_.signed, b""),
            )
            return _sittings(session, " WHERE name = ?", (round_.name,))[0]

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures: the round awaits its batch."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            session.run(
                "UPDATE server_rounds SET signed = ?, phase = 'awaiting'"
                " WHERE digest = ? AND phase = 'proposed'",
                (signed, digest),
            )

    def rounds(self) -> list[Sitting]:
        """List all rounds."""
        with self.database.transaction() as session:
            return _sittings(session, " ORDER BY name", ())

    def receive(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch; False if another one came first."""
        content = hashlib.sha256(raw).digest()
        with self.database.transaction() as session:
            self.guard(session, fence)
            known = _sittings(session, " WHERE digest = ?", (digest,))
            if not known or known[0].batch != b"":
                return bool(known) and known[0].batch == content
            session.run(
                "UPDATE server_rounds SET batch = ?, phase = 'batched' WHERE digest = ?",
                (content, digest),
            )
            _keep(session, digest, "batch", raw)
        return True

    def batch(self, digest: bytes) -> bytes:
        """Give the batch."""
        return self._blob(digest, "batch")

    def answer(self, digest: bytes, bulletin: bytes, *, outcome: str, fence: int) -> None:
        """Keep the bulletin and forget the batch; a second one changes nothing."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            known = _sittings(session, " WHERE digest = ?", (digest,))
            if not known or known[0].phase != "batched":
                return
            sql = "UPDATE server_rounds SET phase = ?, outcome = ? WHERE digest = ?"
            session.run(sql, (outcome, outcome, digest))
            _keep(session, digest, "bulletin", bulletin)
            sql = "DELETE FROM server_blobs WHERE digest = ? AND kind = 'batch'"
            session.run(sql, (digest,))

    def bulletin(self, digest: bytes) -> bytes:
        """Give the bulletin."""
        return self._blob(digest, "bulletin")

    def publish(self, digest: bytes, *, fence: int) -> None:
        """Remember that the board has the bulletin."""
        with self.database.transaction() as session:
            self.guard(session, fence)
            session.run(
                "UPDATE server_rounds SET phase = 'published'"
                " WHERE digest = ? AND phase IN ('answered', 'refused')",
                (digest,),
            )

    def _blob(self, digest: bytes, kind: str) -> bytes:
        with self.database.transaction() as session:
            sql = "SELECT raw FROM server_blobs WHERE digest = ? AND kind = ?"
            found = session.rows(sql, (digest, kind))
        if not found:
            raise Misuse(f"there is no {kind} of this round here")
        return bytes(found[0][0])


def _sittings(session: Session, where: str, values: tuple[object, ...]) -> list[Sitting]:
    return [
        Sitting(bytes(row[0]), row[1], bytes(row[2]), row[3], bytes(row[4]), row[5])
        for row in session.rows(_ROUNDS + where, values)
    ]


def _keep(session: Session, digest: bytes, kind: str, raw: bytes) -> None:
    sql = "INSERT INTO server_blobs (digest, kind, raw) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    session.run(sql, (digest, kind, raw))
