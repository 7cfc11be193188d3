"""The shuffler's store: uploads are durable before they are acknowledged."""

# ruff: noqa: S608 - what is put into SQL here is a query of this file, never a value

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from coatcheck.errors import Forgotten, Unsealable
from coatcheck.protocol.parcels import ID_SIZE, Upload
from coatcheck.protocol.shuffler_moves import HOLDING, MOVES, Phase
from coatcheck.stores.database import Session
from coatcheck.stores.store import RoundStore, StoredRound
from coatcheck.stores.vault import RoundKey

_NUMBER: Final = "(SELECT number FROM shuffler_rounds WHERE digest = ?)"
_KNOWN: Final = f"SELECT kind, body FROM shuffler_parcels WHERE round = {_NUMBER} AND id = ?"
# The one phase that takes uploads, for the statements that insert them without a look before.
(_PHASE,) = (phase.value for phase, move, _ in MOVES if move == "receive")
_PAGE: Final = 16_384
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
    """A shuffler's round as it is stored."""

    phase: Phase = Phase.OPEN


class ShufflerStore(RoundStore[Phase, ShufflerRound]):
    """What a shuffler must not lose."""

    role = "shuffler"
    moves = MOVES
    record = ShufflerRound
    needs: ClassVar = {**dict.fromkeys(HOLDING, "round"), Phase.RELEASED: "batch"}
    noting = frozenset({Phase.CLOSED})
    may: ClassVar = {Phase.CLOSED: "batch"}  # some of its partitions are made

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
        uploads = self._sealed(uploads)
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

    def _sealed(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Write uploads as they are stored: hashed ids and tokens, sealed bodies."""
        keys: dict[bytes, RoundKey] = {}
        for digest in {upload.digest for upload in uploads}:
            # Without its key a round takes nothing: its uploads name no round then.
            with suppress(Forgotten):
                keys[digest] = self.vault.key(digest)
        none = Upload(0, b"", b"", b"")
        return [_under(keys[one.digest], one) if one.digest in keys else none for one in uploads]

    def knows(self, upload: Upload) -> bool:
        """Tell whether this very upload is kept."""
        (same,) = self._sealed([upload])
        return self.run(_KNOWN, same.digest, same.id) == [(same.group, same.body)]

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        sql = f"SELECT kind, COUNT(*) FROM shuffler_parcels WHERE round = {_NUMBER} GROUP BY kind"
        return dict(self.run(sql, digest))

    def pages(self, digest: bytes, group: int, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Give the uploads of a group as they are stored, so many at a time: hashed id and body.

        In the order of the hashed ids, so that a page is the same whenever it is read.
        """
        sql = (
            f"SELECT id, body FROM shuffler_parcels WHERE round = {_NUMBER} AND kind = ?"
            f" AND id > ? ORDER BY id LIMIT {int(size)}"
        )
        last = b""
        while page := self.run(sql, digest, group, last):
            last = page[-1][0]
            yield [(name, body) for name, body in page]

    def registered(self, digest: bytes, group: int) -> bytes:
        """Give the ids of all registrations of a group, one after the other."""
        key, found = self.vault.key(digest), bytearray()
        for page in self.pages(digest, group, _PAGE):
            for name, body in page:
                found += opened(key, digest, group, name, body)[:ID_SIZE]
        return bytes(found)

    def prepare(self, digest: bytes, *, fence: int) -> None:
        """Make the key of the batch, before its first partition; a round that is not closed none.

        Within a transaction of the leader, so that the key is not taken for one that is left over.
        """
        with self.writing(fence) as session:
            self.moves.after(self.at(session, digest), "release")
            self.vault.make(digest, "batch")

    def move(
        self, digest: bytes, move: str, *, fence: int, batch: bytes = b"", end: bytes = b""
    ) -> None:
        """Make a move of a round; a release comes with its batch, giving up with the signed end.

        What the new phase must not hold any more is deleted in the same transaction, and cannot be
        read by anybody once its key is destroyed.
        """
        with self.writing(fence) as session:
            phase = self.moved(session, digest, move)
            if phase in HOLDING and move != "reopen":
                return
            self.drop(session, digest)
            if phase not in HOLDING:
                session.rows(f"DELETE FROM shuffler_parcels WHERE round = {_NUMBER}", (digest,))
            if batch:
                self.keep(session, digest, "batch", batch)
            if end:
                self.keep(session, digest, "end", end)
        self.destroy_keys(digest, phase)
        if phase in HOLDING:  # the release begins anew, with the uploads that come
            self.depot.drop((digest, "round"))


def opened(key: RoundKey, digest: bytes, group: int, name: bytes, body: bytes) -> bytes:
    """Give id and body of an upload as it is stored.

    One that is not as it was put has its name for an id and no body: a layer that does not open.
    """
    try:
        return key.open(body, digest, name, bytes((group,)))
    except Unsealable:
        return name


def _under(key: RoundKey, upload: Upload) -> Upload:
    """Write an upload as it is stored under its round's key."""
    name = key.name(upload.id, kind="upload")
    body = key.seal(upload.id + upload.body, upload.digest, name, bytes((upload.group,)))
    token = upload.token and key.name(upload.token, kind="token")
    return Upload(upload.group, upload.digest, name, body, token)


def _why_not(session: Session, upload: Upload) -> Verdict:
    """Find out why an upload was not put."""
    known = session.rows(_KNOWN, (upload.digest, upload.id))
    if known:
        return Verdict.KNOWN if known == [(upload.group, upload.body)] else Verdict.CONFLICT
    # Nothing is there under its id: another upload has its token, or the round takes none.
    takes = session.rows(f"SELECT number{_TAKING}", (upload.digest, _PHASE))
    return Verdict.SPENT if takes else Verdict.CLOSED
