"""The shuffler's store: uploads are durable before they are acknowledged."""

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

# HOUSE-DOC stores.bundles: 'Bundles: uploads as they are stored, by a name each, with the bodies of a commit sealed together.\n\nA name is a keyed hash. A bundle holds the uploads of one group of one commit, ordered by name and\nunder a key that looks random: what came first shows neither in it nor in the table. SPEC section\n10.\n'
Named = tuple[bytes, bytes, bytes | None]
"""An upload's name, the hash that tells its bytes from others, and the name of its token."""
Given = tuple[Named, Upload]
Bundle = tuple[int, int, int, bytes]
"""Its place in the table, the group, how many are in it, and their bytes under the round's key."""
_PLACES: Final = 2**63


def named(key: RoundKey, upload: Upload) -> Named:
    """Write the names of an upload under its round's key."""
    content = key.name(bytes((upload.group,)) + upload.body, kind="body")
    token = upload.token and key.name(upload.token, kind="token")
    return key.name(upload.id, kind="upload"), content, token


def pack_uploads(key: RoundKey, uploads: Sequence[Given]) -> list[Bundle]:
    """Seal new uploads of a round group by group."""
    groups: dict[int, list[Given]] = {}
    for one in uploads:
        groups.setdefault(one[1].group, []).append(one)
    return [_sealed(key, group, sorted(of, key=name_of)) for group, of in sorted(groups.items())]


def name_of(one: Given) -> bytes:
    """Give the name of an upload: uploads are ordered by it."""
    return one[0][0]


def _sealed(key: RoundKey, group: int, uploads: Sequence[Given]) -> Bundle:
    text = b"".join([upload.id + upload.body for _, upload in uploads])
    mark = key.name(b"".join(map(name_of, uploads)), kind="bundle")
    place = int.from_bytes(mark[:8], "big") % _PLACES
    size = len(uploads)
    return place, group, size, key.seal(text, *_bound(uploads[0][1].digest, place, group, size))


def unpack_uploads(key: RoundKey, digest: bytes, bundle: Bundle) -> Iterator[tuple[bytes, bytes]]:
    """Give id and body of each upload in a bundle.

    One that is not as it was put has as many uploads without a body: layers that do not open.
    """
    place, group, size, sealed = bundle
    try:
        text = key.open(sealed, *_bound(digest, place, group, size))
    except Unsealable:
        text = b"".join(
            place.to_bytes(8, "big") + number.to_bytes(8, "big") for number in range(size)
        )
    # Cut by `struct`, which takes a third of the time of slices: a crowd has millions.
    return struct.iter_unpack(f"{ID_SIZE}s{len(text) // size - ID_SIZE}s", text)


def _bound(digest: bytes, place: int, group: int, size: int) -> tuple[bytes, ...]:
    return digest, b"bundle", place.to_bytes(8, "big"), bytes((group,)), size.to_bytes(4, "big")


# ruff: noqa: S608 - what is put into SQL here is a query of this file, never a value


_NUMBER: Final = "(SELECT number FROM shuffler_rounds WHERE digest = ?)"
# The one phase that takes uploads, for the statements that insert them without a look before.
(_PHASE,) = (phase.value for phase, move, _ in SHUFFLER_TRANSITIONS if move == "receive")
_TAKING: Final = " FROM shuffler_rounds WHERE digest = ? AND phase = ?"
_ENDLESS: Final = 2**62
_CROSSING: Final = 65_536
"""How many uploads other processes may be about to keep: so near to the end they wait in line."""
_PAGE: Final = 16_384
"""How many registrations are in memory at once, besides their ids."""
_AT_ONCE: Final = 16_384
"""How many uploads are deleted in one transaction."""
_NOBODY: Final[Named] = (b"", b"", None)
_NOTHING: Final = Upload(0, b"", b"", b"")
Keys = dict[bytes, RoundKey]


class Verdict(Enum):
    """What became of an upload."""

    NEW = "new"
    KNOWN = "known"  # the same bytes once more
    CONFLICT = "conflict"  # other bytes under this id
    SPENT = "spent"  # the token was used for another upload
    CLOSED = "closed"  # the round takes no uploads
    FULL = "full"  # the round has all the uploads that it has room for


@dataclass(frozen=True)
class ShufflerRound(StoredRound[ShufflerPhase]):
    """A shuffler's round as it is stored."""

    phase: ShufflerPhase = ShufflerPhase.OPEN


class ShufflerStore(RoundStore[ShufflerPhase, ShufflerRound]):
    """What a shuffler must not lose."""

    role = "shuffler"
    moves = SHUFFLER_TRANSITIONS
    record = ShufflerRound
    needs: ClassVar = {**dict.fromkeys(HOLDING, "round"), ShufflerPhase.RELEASED: "batch"}
    noting = frozenset({ShufflerPhase.CLOSED})
    may: ClassVar = {ShufflerPhase.CLOSED: "batch"}  # some of its partitions are made

    def __init__(self, url: str, keys: Path | None = None, depot: Place | None = None) -> None:
        super().__init__(url, keys, depot)
        self.holder = system().token(8).hex()

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name; the digest that came first."""
        with self.writing(fence) as session:
            sql = "INSERT INTO shuffler_pledges (name, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
            session.rows(sql, (name, digest))
            found = session.rows("SELECT digest FROM shuffler_pledges WHERE name = ?", (name,))
            first: bytes = found[0][0]
            return first

    def put(
        self, uploads: Sequence[Upload], *, rooms: Mapping[bytes, int] | None = None
    ) -> list[Verdict]:
        """Keep uploads in one transaction, whoever leads; one verdict each, in the order given.

        `rooms` says how many uploads a round may have.
        """
        digests = {one.digest for one in uploads}
        keys = self._keys(digests)
        given = [
            (named(keys[one.digest], one), one) if one.digest in keys else (_NOBODY, _NOTHING)
            for one in uploads
        ]
        if len(digests) == len(keys) == 1 and self._put_quickly(given, keys, rooms or {}):
            return [Verdict.NEW] * len(uploads)
        with self.database.transaction() as session:
            return _Slowly(session, self, rooms or {}).put(given, keys)

    def _put_quickly(self, given: Sequence[Given], keys: Keys, rooms: Mapping[bytes, int]) -> bool:
        """Try the usual case, in which all are new and of one round, in one step."""
        ((digest, key),) = keys.items()
        # In order of name, so that two processes never wait for each other's rows in a circle.
        given = sorted(given, key=name_of)
        return self.database.quick_put(
            Put(
                digest=digest,
                phase=_PHASE,
                names=[names for names, _ in given],
                bundles=pack_uploads(key, given),
                counts=Counter([one.group for _, one in given]),
                room=rooms.get(digest, _ENDLESS) - _CROSSING,
                holder=self.holder,
            )
        )

    def _keys(self, digests: Iterable[bytes]) -> Keys:
        """Read the keys of rounds."""
        keys: Keys = {}
        for digest in digests:
            # Without its key a round takes nothing: its uploads name no round then.
            with suppress(Forgotten):
                keys[digest] = self.vault.key(digest)
        return keys

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        return self.crowds().get(digest, {})

    def crowds(self) -> dict[bytes, dict[int, int]]:
        """Count the uploads of each group of every round, as all processes took them."""
        sql = (
            "SELECT digest, kind, CAST(SUM(uploads) AS BIGINT) FROM shuffler_counts"
            " JOIN shuffler_rounds ON number = round GROUP BY digest, kind"
        )
        found: dict[bytes, dict[int, int]] = {}
        for digest, group, uploads in self.read(sql):
            found.setdefault(digest, {})[group] = uploads
        return found

    def held(self, digest: bytes) -> dict[bytes, tuple[int, bytes]]:
        """Give group and body of all uploads of a round by their random ids."""
        key = self.vault.key(digest)
        sql = f"SELECT place, kind, size, body FROM shuffler_bundles WHERE round = {_NUMBER}"
        held: dict[bytes, tuple[int, bytes]] = {}
        for place, group, size, body in self.read(sql, digest):
            found = unpack_uploads(key, digest, (place, group, size, body))
            held.update((name, (group, one)) for name, one in found)
        return held

    def secret(self, digest: bytes) -> bytes:
        """Give the secret of a round's order."""
        return self.vault.key(digest).secret

    def pages(self, digest: bytes, group: int, size: int) -> list[list[int]]:
        """Cut the bundles of a group into pages of about so many uploads; the places of each.

        In the order of their places, which look random, so that a page is the same whenever asked.
        """
        sql = (
            f"SELECT place, size FROM shuffler_bundles WHERE round = {_NUMBER} AND kind = ?"
            " ORDER BY place"
        )
        pages: list[list[int]] = []
        room = 0
        for place, count in self.read(sql, digest, group):
            if room <= 0:
                pages.append([])
                room = size
            pages[-1].append(place)
            room -= count
        return pages

    def page(self, digest: bytes, group: int, places: Sequence[int]) -> list[Bundle]:
        """Give the bundles of a page as they are stored."""
        sql = (
            f"SELECT place, kind, size, body FROM shuffler_bundles WHERE round = {_NUMBER}"
            " AND kind = ? AND place >= ? AND place <= ? ORDER BY place"
        )
        found = self.read(sql, digest, group, places[0], places[-1])
        return [(place, kind, size, body) for place, kind, size, body in found]

    def registered(self, digest: bytes, group: int) -> bytes:
        """Give the ids of all registrations of a group, one after the other; read page by page."""
        key = self.vault.key(digest)
        return b"".join(
            name
            for places in self.pages(digest, group, _PAGE)
            for bundle in self.page(digest, group, places)
            for name, _ in unpack_uploads(key, digest, bundle)
        )

    def move(
        self, digest: bytes, move: str, *, fence: int, batch: bytes = b"", end: bytes = b""
    ) -> None:
        """Make a move of a round; a release comes with its batch, giving up with the signed end.

        What the new phase must not hold any more cannot be read by anybody once its key is
        destroyed, and is then deleted.
        """
        with self.writing(fence) as session:
            if self.database.shut:
                session.rows(self.database.shut, (gate_of(digest),))
            phase = self.moved(session, digest, move)
            if phase in HOLDING and move != "reopen":
                return
            self.drop(session, digest)
            if batch:
                self.keep(session, digest, "batch", batch)
            if end:
                self.keep(session, digest, "end", end)
            if phase in HOLDING:
                # Not after it: by then another process may lead, and have made the next one.
                self.vault.destroy(digest, "batch")
        if phase in HOLDING:  # the release begins anew, with the uploads that come
            self.depot.drop((digest, "round"))
        else:
            self.destroy_keys(digest, phase)
            self._delete(digest)

    def clear(self) -> None:
        """Remove what no key opens any more: from the depot, and uploads that a crash left."""
        super().clear()
        for digest in self.crowds():
            self._delete(digest)

    def _delete(self, digest: bytes) -> None:
        """Delete the uploads of a round unless it holds them, and their counts last of all.

        Some at a time, so that nobody who writes waits for millions of rows. No move leads back to
        a phase that holds uploads, so the phase need not be looked at again.
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
                sql = "DELETE FROM shuffler_bundles WHERE round = ? AND place BETWEEN ? AND ?"
                session.rows(sql, (number, first, last))
                sql = "DELETE FROM shuffler_parcels WHERE round = ? AND id BETWEEN ? AND ?"
                session.rows(sql, (number, least, most + b"\xff" * 8))
        with self.database.transaction() as session:
            session.rows("DELETE FROM shuffler_counts WHERE round = ?", (number,))


class _Slowly:
    """Keeps uploads one by one, within a transaction, and finds out what is wrong with each."""

    def __init__(
        self, session: Transaction, store: ShufflerStore, rooms: Mapping[bytes, int]
    ) -> None:
        self._session = session
        self._store = store
        self._rooms = rooms
        self._insert = (
            "INSERT INTO shuffler_parcels (round, id, content, token)"
            f" SELECT number, ?, ?, ?{_TAKING}{store.database.share}"
            " ON CONFLICT DO NOTHING RETURNING id"
        )

    def put(self, given: Sequence[Given], keys: Keys) -> list[Verdict]:
        """Keep what is new and has room; one verdict each."""
        left = {digest: self._left(digest, len(given)) for digest in sorted(keys)}
        order = sorted(range(len(given)), key=lambda at: given[at][0][0])
        rows = [(*given[at][0], given[at][1].digest, _PHASE) for at in order]
        if all(room >= len(given) for room in left.values()):
            put = [bool(found) for found in self._session.each(self._insert, rows)]
        else:
            put = [self._put_one(row, left) for row in rows]
        verdicts = [Verdict.NEW] * len(given)
        for at, is_new in zip(order, put, strict=True):
            if not is_new:
                verdicts[at] = self._why_not(*given[at], left=left)
        new = [one for one, verdict in zip(given, verdicts, strict=True) if verdict is Verdict.NEW]
        self._keep(new, keys)
        return verdicts

    def _left(self, digest: bytes, many: int) -> int:
        """Count how many a round has room for; near the end alone, so that the count is exact."""
        room = self._rooms.get(digest, _ENDLESS)
        left = room - self._crowd(digest)
        if left >= many + _CROSSING:
            return left
        sql = f"SELECT number FROM shuffler_rounds WHERE digest = ?{self._store.database.alone}"
        self._session.rows(sql, (digest,))
        return room - self._crowd(digest)

    def _crowd(self, digest: bytes) -> int:
        sql = f"SELECT SUM(uploads) FROM shuffler_counts WHERE round = {_NUMBER}"
        return int(self._session.rows(sql, (digest,))[0][0] or 0)

    def _put_one(self, row: Row, left: dict[bytes, int]) -> bool:
        """Put one name if there is room, and count the room down."""
        digest = row[3]
        if left.get(digest, 0) <= 0 or not self._session.rows(self._insert, row):
            return False
        left[digest] -= 1
        return True

    def _keep(self, new: Sequence[Given], keys: Keys) -> None:
        """Keep the bodies of what is new, and count it."""
        for digest in {one.digest for _, one in new}:
            own = [one for one in new if one[1].digest == digest]
            sql = (
                "INSERT INTO shuffler_bundles (place, round, kind, size, body)"
                f" SELECT ?, {_NUMBER}, ?, ?, ?"
            )
            for place, group, size, body in pack_uploads(keys[digest], own):
                self._session.rows(sql, (place, digest, group, size, body))
            for group, many in Counter(one.group for _, one in own).items():
                self._session.rows(COUNT, (self._store.holder, group, many, digest))

    def _why_not(self, names: Named, upload: Upload, *, left: Mapping[bytes, int]) -> Verdict:
        """Find out why an upload was not put."""
        name, content, _ = names
        sql = f"SELECT content FROM shuffler_parcels WHERE round = {_NUMBER} AND id = ?"
        known = self._session.rows(sql, (upload.digest, name))
        if known:
            return Verdict.KNOWN if known == [(content,)] else Verdict.CONFLICT
        # Nothing is there under its id: another upload has its token, or the round takes none.
        if not self._session.rows(f"SELECT number{_TAKING}", (upload.digest, _PHASE)):
            return Verdict.CLOSED
        return Verdict.FULL if left.get(upload.digest, 0) <= 0 else Verdict.SPENT
