"""The shuffler's store: uploads are durable before they are acknowledged."""

# ruff: noqa: S608 - what is put into SQL here is a query of this file, never a value

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from msgspec import Struct

from coatcheck.protocol.shuffler import HOLDING, MOVES, SECRET_SIZE, Phase
from coatcheck.stores.database import Row, Session
from coatcheck.stores.store import RoundStore, StoredRound

_NUMBER: Final = "(SELECT number FROM shuffler_rounds WHERE digest = ?)"
_COLUMNS: Final = ("round", "id", "kind", "body", "token")
# The one phase that takes uploads, for the statement that inserts them without a look before.
(_TAKING,) = (phase.value for phase, move, _ in MOVES if move == "receive")


class Verdict(Enum):
    """What became of an upload."""

    NEW = "new"
    KNOWN = "known"  # the same bytes once more
    CONFLICT = "conflict"  # other bytes under this id
    SPENT = "spent"  # the enrolment token was used for another upload
    CLOSED = "closed"  # the round takes no uploads


class Parcel(Struct, frozen=True):
    """An upload as the store keeps it; `token` is the hash of an enrolment token, if one is asked.

    Nothing here says when it came, or in which order.
    """

    digest: bytes
    group: int
    id: bytes
    body: bytes
    token: bytes | None = None

    def __repr__(self) -> str:
        return f"Parcel(group={self.group})"


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
    column = "secret"

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name; the digest that came first."""
        with self.writing(fence) as session:
            sql = "INSERT INTO shuffler_pledges (name, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (name, digest))
            found = session.rows("SELECT digest FROM shuffler_pledges WHERE name = ?", (name,))
            first: bytes = found[0][0]
            return first

    def begin(self, round_: ShufflerRound, *, fence: int) -> None:
        """Keep a new round; again, nothing changes."""
        with self.writing(fence) as session:
            number = session.rows("SELECT COALESCE(MAX(number), 0) + 1 FROM shuffler_rounds")[0][0]
            session.rows(
                "INSERT INTO shuffler_rounds"
                " (digest, number, name, signed, secret, phase, accepted)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    round_.digest, number, round_.name, round_.signed, round_.secret,
                    round_.phase.value, round_.accepted,
                ),
            )  # fmt: skip

    def put(self, parcels: Sequence[Parcel], *, fence: int) -> list[Verdict]:
        """Keep uploads in one transaction; one verdict each, in the order given."""
        if self._put_quickly(parcels, fence):
            return [Verdict.NEW] * len(parcels)
        verdicts: dict[int, Verdict] = {}
        with self.writing(fence) as session:
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
        return self.database.quick_put(parcels[0].digest, rows, phase=_TAKING, fence=fence)

    def _put_round(
        self, session: Session, digest: bytes, parcels: Sequence[Parcel]
    ) -> list[Verdict]:
        sql = "SELECT number, phase FROM shuffler_rounds WHERE digest = ?" + self.database.share
        found = session.rows(sql, (digest,))
        if not found:
            return [Verdict.CLOSED] * len(parcels)
        number, phase = found[0]
        takes = MOVES.allows(Phase(phase), "receive")
        known = _known(session, number, parcels)
        spent = _spent(session, number, parcels)
        verdicts, fresh = [], []
        for parcel in parcels:
            before = known.get(parcel.id)
            if before is not None:
                same = before == (parcel.group, parcel.body)
                verdict = Verdict.KNOWN if same else Verdict.CONFLICT
            elif not takes:
                verdict = Verdict.CLOSED
            elif parcel.token in spent:
                verdict = Verdict.SPENT
            else:
                verdict = Verdict.NEW
                known[parcel.id] = (parcel.group, parcel.body)
                if parcel.token is not None:
                    spent.add(parcel.token)
                fresh.append((number, parcel.id, parcel.group, parcel.body, parcel.token))
            verdicts.append(verdict)
        session.insert("shuffler_parcels", _COLUMNS, fresh)
        return verdicts

    def knows(self, parcel: Parcel) -> bool:
        """Tell whether this very upload is kept."""
        sql = f"SELECT kind, body FROM shuffler_parcels WHERE round = {_NUMBER} AND id = ?"
        return self.read(sql, parcel.digest, parcel.id) == [(parcel.group, parcel.body)]

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        sql = f"SELECT kind, COUNT(*) FROM shuffler_parcels WHERE round = {_NUMBER} GROUP BY kind"
        return dict(self.read(sql, digest))

    def held(self, digest: bytes) -> dict[bytes, tuple[int, bytes]]:
        """Give group and body of all uploads of a round by their random ids."""
        sql = f"SELECT id, kind, body FROM shuffler_parcels WHERE round = {_NUMBER} ORDER BY id"
        return _by_id(self.read(sql, digest))

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


def _by_id(rows: Sequence[Row]) -> dict[bytes, tuple[int, bytes]]:
    return {name: (group, body) for name, group, body in rows}


def _known(
    session: Session, number: int, parcels: Sequence[Parcel]
) -> dict[bytes, tuple[int, bytes]]:
    sql = "SELECT id, kind, body FROM shuffler_parcels WHERE round = ? AND id IN"
    return _by_id(session.among(sql, (number,), [parcel.id for parcel in parcels]))


def _spent(session: Session, number: int, parcels: Sequence[Parcel]) -> set[bytes]:
    tokens = [parcel.token for parcel in parcels if parcel.token is not None]
    if not tokens:
        return set()
    sql = "SELECT token FROM shuffler_parcels WHERE round = ? AND token IN"
    return {row[0] for row in session.among(sql, (number,), tokens)}
