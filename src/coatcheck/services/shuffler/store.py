"""The shuffler's store: uploads are durable before they are acknowledged.

An upload has a name, which is a keyed hash of its id. The bodies of one group of one commit are
sealed together in an upload row, ordered by name and under a place that looks random: which upload
came first shows neither in the row nor in the table. SPEC section 10.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final

from coatcheck.entropy import system
from coatcheck.errors import Forgotten, Unsealable
from coatcheck.protocol.state_machine import HOLDING, SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.wire.uploads import ID_SIZE, Upload
from coatcheck.stores import Place
from coatcheck.stores.database import COUNT, Put, Row, Transaction, gate_of
from coatcheck.stores.round_keys import RoundKey
from coatcheck.stores.round_store import RoundStore, StoredRound

Named = tuple[bytes, bytes, bytes | None]
"""An upload's name, the hash that distinguishes its bytes, and the name of its token."""
NamedUpload = tuple[Named, Upload]
UploadRow = tuple[int, int, int, bytes]
"""Its place in the table, the group, the number of uploads, and their bytes, sealed."""
_PLACES: Final = 2**63


def named(key: RoundKey, upload: Upload) -> Named:
    """Return the names of an upload under its round's key."""
    content = key.name(bytes((upload.group,)) + upload.body, kind="body")
    token = upload.token and key.name(upload.token, kind="token")
    return key.name(upload.id, kind="upload"), content, token


def pack_uploads(key: RoundKey, uploads: Sequence[NamedUpload]) -> list[UploadRow]:
    """Seal new uploads of a round group by group."""
    groups: dict[int, list[NamedUpload]] = {}
    for upload in uploads:
        groups.setdefault(upload[1].group, []).append(upload)
    return [
        _sealed(key, group, sorted(in_group, key=name_of))
        for group, in_group in sorted(groups.items())
    ]


def name_of(upload: NamedUpload) -> bytes:
    """Return the name of an upload, by which uploads are ordered."""
    return upload[0][0]


def _sealed(key: RoundKey, group: int, uploads: Sequence[NamedUpload]) -> UploadRow:
    text = b"".join([upload.id + upload.body for _, upload in uploads])
    mark = key.name(b"".join(map(name_of, uploads)), kind="bundle")
    place = int.from_bytes(mark[:8], "big") % _PLACES
    size = len(uploads)
    return place, group, size, key.seal(text, *_bound(uploads[0][1].digest, place, group, size))


def unpack_uploads(key: RoundKey, digest: bytes, row: UploadRow) -> Iterator[tuple[bytes, bytes]]:
    """Give id and body of each upload in a row.

    A row that was changed has as many uploads without a body: layers that do not open.
    """
    place, group, size, sealed = row
    try:
        text = key.open(sealed, *_bound(digest, place, group, size))
    except Unsealable:
        text = b"".join(
            place.to_bytes(8, "big") + number.to_bytes(8, "big") for number in range(size)
        )
    # `struct` takes a third of the time of slices, and a crowd has millions of uploads.
    return struct.iter_unpack(f"{ID_SIZE}s{len(text) // size - ID_SIZE}s", text)


def _bound(digest: bytes, place: int, group: int, size: int) -> tuple[bytes, ...]:
    return digest, b"bundle", place.to_bytes(8, "big"), bytes((group,)), size.to_bytes(4, "big")


# ruff: noqa: S608 - SQL here is built from queries of this file, never from a value

_NUMBER: Final = "(SELECT number FROM shuffler_rounds WHERE digest = ?)"
# The one phase that takes uploads, for statements that check it while they insert.
(_PHASE,) = (phase.value for phase, move, _ in SHUFFLER_TRANSITIONS if move == "receive")
_TAKING: Final = " FROM shuffler_rounds WHERE digest = ? AND phase = ?"
_ENDLESS: Final = 2**62
_CROSSING: Final = 65_536
"""Uploads that other processes may be inserting: this near the limit, processes take turns."""
_PAGE: Final = 16_384
"""The most registrations in memory at once, besides their ids."""
_AT_ONCE: Final = 16_384
"""The most uploads that are deleted in one transaction."""
_NO_NAMES: Final[Named] = (b"", b"", None)
_NO_UPLOAD: Final = Upload(0, b"", b"", b"")
Keys = dict[bytes, RoundKey]


class Verdict(Enum):
    """What the store did with an upload."""

    NEW = "new"
    KNOWN = "known"  # the same bytes once more
    CONFLICT = "conflict"  # other bytes under this id
    SPENT = "spent"  # the token was used for another upload
    CLOSED = "closed"  # the round takes no uploads
    FULL = "full"  # the round has as many uploads as its capacity


@dataclass(frozen=True)
class ShufflerRound(StoredRound[ShufflerPhase]):
    """A shuffler's round as it is stored."""

    phase: ShufflerPhase = ShufflerPhase.OPEN


class ShufflerStore(RoundStore[ShufflerPhase, ShufflerRound]):
    """Rounds, uploads and batches of a shuffler."""

    role = "shuffler"
    moves = SHUFFLER_TRANSITIONS
    record = ShufflerRound
    needs: ClassVar = {**dict.fromkeys(HOLDING, "round"), ShufflerPhase.RELEASED: "batch"}
    working = frozenset({ShufflerPhase.CLOSED})
    may: ClassVar = {ShufflerPhase.CLOSED: "batch"}  # some of its partitions are made

    def __init__(self, url: str, keys: Path | None = None, blobs: Place | None = None) -> None:
        super().__init__(url, keys, blobs)
        self.holder = system().token(8).hex()

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Record which digest is signed under a name; return the first one recorded."""
        with self.writing(fence) as session:
            sql = "INSERT INTO shuffler_pledges (name, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (name, digest))
            rows = session.rows("SELECT digest FROM shuffler_pledges WHERE name = ?", (name,))
            first: bytes = rows[0][0]
            return first

    def put(
        self, uploads: Sequence[Upload], *, capacities: Mapping[bytes, int] | None = None
    ) -> list[Verdict]:
        """Store uploads in one transaction, whichever process leads; return a verdict for each.

        `capacities` says how many uploads a round may have.
        """
        digests = {upload.digest for upload in uploads}
        keys = self._keys(digests)
        items = [
            (named(keys[upload.digest], upload), upload)
            if upload.digest in keys
            else (_NO_NAMES, _NO_UPLOAD)
            for upload in uploads
        ]
        if len(digests) == len(keys) == 1 and self._put_quickly(items, keys, capacities or {}):
            return [Verdict.NEW] * len(uploads)
        with self.database.transaction() as session:
            return _SlowPut(session, self, capacities or {}).put(items, keys)

    def _put_quickly(
        self, items: Sequence[NamedUpload], keys: Keys, capacities: Mapping[bytes, int]
    ) -> bool:
        """Try the usual case in one step: all uploads are new and of one round."""
        ((digest, key),) = keys.items()
        # In order of name, so that two processes never wait for each other's rows in a circle.
        items = sorted(items, key=name_of)
        return self.database.quick_put(
            Put(
                digest=digest,
                phase=_PHASE,
                names=[names for names, _ in items],
                rows=pack_uploads(key, items),
                counts=Counter([upload.group for _, upload in items]),
                capacity=capacities.get(digest, _ENDLESS) - _CROSSING,
                holder=self.holder,
            )
        )

    def _keys(self, digests: Iterable[bytes]) -> Keys:
        """Read the keys of rounds that have one."""
        keys: Keys = {}
        for digest in digests:
            # Without its key a round takes no uploads: theirs then name no round.
            with suppress(Forgotten):
                keys[digest] = self.round_keys.key(digest)
        return keys

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        return self.crowds().get(digest, {})

    def crowds(self) -> dict[bytes, dict[int, int]]:
        """Count the uploads of each group of every round, whichever process took them."""
        sql = (
            "SELECT digest, kind, CAST(SUM(uploads) AS BIGINT) FROM shuffler_counts"
            " JOIN shuffler_rounds ON number = round GROUP BY digest, kind"
        )
        crowds: dict[bytes, dict[int, int]] = {}
        for digest, group, uploads in self.read(sql):
            crowds.setdefault(digest, {})[group] = uploads
        return crowds

    def held(self, digest: bytes) -> dict[bytes, tuple[int, bytes]]:
        """Return group and body of all uploads of a round by their random ids."""
        key = self.round_keys.key(digest)
        sql = f"SELECT place, kind, size, body FROM shuffler_upload_rows WHERE round = {_NUMBER}"
        held: dict[bytes, tuple[int, bytes]] = {}
        for place, group, size, body in self.read(sql, digest):
            uploads = unpack_uploads(key, digest, (place, group, size, body))
            held.update((upload_id, (group, raw)) for upload_id, raw in uploads)
        return held

    def secret(self, digest: bytes) -> bytes:
        """Return the secret of a round's order."""
        return self.round_keys.key(digest).secret

    def pages(self, digest: bytes, group: int, size: int) -> list[list[int]]:
        """Cut the rows of a group into pages of about so many uploads; return the places of each.

        They are in the order of their places, which look random, so a page never changes.
        """
        sql = (
            f"SELECT place, size FROM shuffler_upload_rows WHERE round = {_NUMBER} AND kind = ?"
            " ORDER BY place"
        )
        pages: list[list[int]] = []
        left = 0
        for place, count in self.read(sql, digest, group):
            if left <= 0:
                pages.append([])
                left = size
            pages[-1].append(place)
            left -= count
        return pages

    def page(self, digest: bytes, group: int, places: Sequence[int]) -> list[UploadRow]:
        """Return the rows of a page as they are stored."""
        sql = (
            f"SELECT place, kind, size, body FROM shuffler_upload_rows WHERE round = {_NUMBER}"
            " AND kind = ? AND place >= ? AND place <= ? ORDER BY place"
        )
        rows = self.read(sql, digest, group, places[0], places[-1])
        return [(place, kind, size, body) for place, kind, size, body in rows]

    def registered(self, digest: bytes, group: int) -> bytes:
        """Return the ids of all registrations of a group, joined; read page by page."""
        key = self.round_keys.key(digest)
        return b"".join(
            registration
            for places in self.pages(digest, group, _PAGE)
            for row in self.page(digest, group, places)
            for registration, _ in unpack_uploads(key, digest, row)
        )

    def move(
        self, digest: bytes, move: str, *, fence: int, batch: bytes = b"", end: bytes = b""
    ) -> None:
        """Make a move of a round; a release comes with its batch, abandoning with the outcome.

        What the new phase must not hold is unreadable once its key is destroyed, and is then
        deleted.
        """
        with self.writing(fence) as session:
            if self.database.shut:
                session.rows(self.database.shut, (gate_of(digest),))
            phase = self.make_move(session, digest, move)
            if phase in HOLDING and move != "reopen":
                return
            self.delete_blobs(session, digest)
            if batch:
                self.put_blob(session, digest, "batch", batch)
            if end:
                self.put_blob(session, digest, "end", end)
            if phase in HOLDING:
                # Not after it: by then another process may lead, and have made the next key.
                self.round_keys.destroy(digest, "batch")
        if phase in HOLDING:  # the release starts again, with the uploads that come
            self.blobs.drop((digest, "round"))
        else:
            self.destroy_keys(digest, phase)
            self._delete(digest)

    def clear(self) -> None:
        """Remove the files that no key opens, and uploads that a crash left."""
        super().clear()
        for digest in self.crowds():
            self._delete(digest)

    def _delete(self, digest: bytes) -> None:
        """Delete the uploads of a round unless it holds them, and last of all their counts.

        A range of them at a time, so that no writer waits for millions of rows. No move leads back
        to a phase that holds uploads, so the phase is read only once.
        """
        sql = "SELECT number, phase FROM shuffler_rounds WHERE digest = ?"
        ((number, phase),) = self.read(sql, digest)
        if ShufflerPhase(phase) in HOLDING:
            return
        steps = 1 + sum(self.crowd(digest).values()) // _AT_ONCE
        for step in range(steps):
            first, last = 2**63 * step // steps, 2**63 * (step + 1) // steps - 1
            least, most = (2 * first).to_bytes(8, "big"), (2 * last + 1).to_bytes(8, "big")
            with self.database.transaction() as session:
                sql = "DELETE FROM shuffler_upload_rows WHERE round = ? AND place BETWEEN ? AND ?"
                session.rows(sql, (number, first, last))
                sql = "DELETE FROM shuffler_uploads WHERE round = ? AND id BETWEEN ? AND ?"
                session.rows(sql, (number, least, most + b"\xff" * 8))
        with self.database.transaction() as session:
            session.rows("DELETE FROM shuffler_counts WHERE round = ?", (number,))


class _SlowPut:
    """Stores uploads one by one within a transaction, and finds out what is wrong with each."""

    def __init__(
        self, session: Transaction, store: ShufflerStore, capacities: Mapping[bytes, int]
    ) -> None:
        self._session = session
        self._store = store
        self._capacities = capacities
        self._insert = (
            "INSERT INTO shuffler_uploads (round, id, content, token)"
            f" SELECT number, ?, ?, ?{_TAKING}{store.database.share}"
            " ON CONFLICT DO NOTHING RETURNING id"
        )

    def put(self, items: Sequence[NamedUpload], keys: Keys) -> list[Verdict]:
        """Store the new uploads up to the capacity; return a verdict for each."""
        left = {digest: self._left(digest, len(items)) for digest in sorted(keys)}
        order = sorted(range(len(items)), key=lambda at: items[at][0][0])
        rows = [(*items[at][0], items[at][1].digest, _PHASE) for at in order]
        if all(count >= len(items) for count in left.values()):
            inserted = [bool(ids) for ids in self._session.each(self._insert, rows)]
        else:
            inserted = [self._put_one(row, left) for row in rows]
        verdicts = [Verdict.NEW] * len(items)
        for at, is_new in zip(order, inserted, strict=True):
            if not is_new:
                verdicts[at] = self._why_not(*items[at], left=left)
        pairs = zip(items, verdicts, strict=True)
        self._put_bodies([item for item, verdict in pairs if verdict is Verdict.NEW], keys)
        return verdicts

    def _left(self, digest: bytes, count: int) -> int:
        """Return how many uploads fit; near the limit lock the round, so that it is exact."""
        capacity = self._capacities.get(digest, _ENDLESS)
        left = capacity - self._crowd(digest)
        if left >= count + _CROSSING:
            return left
        sql = f"SELECT number FROM shuffler_rounds WHERE digest = ?{self._store.database.alone}"
        self._session.rows(sql, (digest,))
        return capacity - self._crowd(digest)

    def _crowd(self, digest: bytes) -> int:
        sql = f"SELECT SUM(uploads) FROM shuffler_counts WHERE round = {_NUMBER}"
        return int(self._session.rows(sql, (digest,))[0][0] or 0)

    def _put_one(self, row: Row, left: dict[bytes, int]) -> bool:
        """Insert one name if it fits, and count down."""
        digest = row[3]
        if left.get(digest, 0) <= 0 or not self._session.rows(self._insert, row):
            return False
        left[digest] -= 1
        return True

    def _put_bodies(self, new: Sequence[NamedUpload], keys: Keys) -> None:
        """Store the bodies of new uploads, and count them."""
        for digest in {upload.digest for _, upload in new}:
            own = [item for item in new if item[1].digest == digest]
            sql = (
                "INSERT INTO shuffler_upload_rows (place, round, kind, size, body)"
                f" SELECT ?, {_NUMBER}, ?, ?, ?"
            )
            for place, group, size, body in pack_uploads(keys[digest], own):
                self._session.rows(sql, (place, digest, group, size, body))
            for group, count in Counter(upload.group for _, upload in own).items():
                self._session.rows(COUNT, (self._store.holder, group, count, digest))

    def _why_not(self, names: Named, upload: Upload, *, left: Mapping[bytes, int]) -> Verdict:
        """Find out why an upload was not inserted."""
        name, content, _ = names
        sql = f"SELECT content FROM shuffler_uploads WHERE round = {_NUMBER} AND id = ?"
        stored = self._session.rows(sql, (upload.digest, name))
        if stored:
            return Verdict.KNOWN if stored == [(content,)] else Verdict.CONFLICT
        # Its id is unknown: another upload has its token, or the round takes none.
        if not self._session.rows(f"SELECT number{_TAKING}", (upload.digest, _PHASE)):
            return Verdict.CLOSED
        return Verdict.FULL if left.get(upload.digest, 0) <= 0 else Verdict.SPENT
