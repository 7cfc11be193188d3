"""What the roles' stores share: the leader's fencing token, and rounds with phases, keys and files.

`Store` is the part that every role has, `RoundStore` what shufflers and servers add. One process at
a time leads a database; the database takes writes under its fencing token only.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from coatcheck.errors import Fenced, Forgotten, Misuse, Refused, Unavailable, Unsealable
from coatcheck.protocol.state_machine import P, Transitions
from coatcheck.stores import Place, open_blobs, open_database
from coatcheck.stores.blobs import SealedFiles
from coatcheck.stores.database import Row, Transaction
from coatcheck.stores.round_keys import RoundKeys

# ruff: noqa: S608 - SQL here is built from names of roles and of the database's clock only

_LEASE: Final = "SELECT fence FROM coatcheck_leases WHERE role = ?"


class Store:
    """The store of one role; the process that holds its lease writes, with the fencing token.

    Its database is at `memory:`, `sqlite:FILE` or `postgresql://...`. It also has a folder of round
    keys, and a blob store; with a database in memory these are in memory too.
    """

    role: ClassVar[str]

    def __init__(self, url: str, keys: Path | None = None, blobs: Place | None = None) -> None:
        self.database = open_database(url, role=self.role)
        self.round_keys = RoundKeys(None if url == "memory:" else keys)
        self.blobs = open_blobs(blobs, url=url, keys=keys)

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease; return the fencing token, or None while another process has it.

        The database's clock measures the expiry, so two hosts need not agree on the time. A new
        holder gets a larger token, whatever the clock did meanwhile. `Misuse` if the process that
        leads has its round keys in another folder: this one could not take them over.
        """
        now, folder = self.database.now, self.round_keys.mark
        sql = (
            "INSERT INTO coatcheck_leases AS lease (role, holder, fence, expires, folder)"
            f" VALUES (?, ?, 1, {now} + ?, ?) ON CONFLICT (role) DO UPDATE SET"
            " fence = lease.fence + CASE lease.holder WHEN excluded.holder THEN 0 ELSE 1 END,"
            " holder = excluded.holder, expires = excluded.expires, folder = excluded.folder"
            f" WHERE lease.holder = excluded.holder OR lease.expires <= {now} RETURNING fence"
        )
        held = self.run(sql, self.role, holder, seconds, folder)
        if held:
            return int(held[0][0])
        leading = self.run("SELECT folder FROM coatcheck_leases WHERE role = ?", self.role)
        if leading and leading[0][0] != folder:
            raise Misuse(
                "another process leads this database with another folder of round keys; both need"
                " the same `round_keys`, or this one cannot take over the rounds of that one"
            )
        return None

    def resign(self, holder: str) -> None:
        """Give the lease back, so that another process takes over at once; its token is larger."""
        sql = "UPDATE coatcheck_leases SET holder = '', expires = 0 WHERE role = ? AND holder = ?"
        self.run(sql, self.role, holder)

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def run(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, whichever process leads, and return its rows."""
        with self.database.transaction() as session:
            return session.rows(sql, values)

    def read(self, sql: str, *values: Any) -> list[Row]:
        """Run one query, whichever process leads; no writer waits for it."""
        with self.database.reading() as session:
            return session.rows(sql, values)

    @contextmanager
    def writing(self, fence: int, *, alone: bool = False) -> Iterator[Transaction]:
        """Begin a transaction of the leader, which keeps the lease until its end.

        With `alone` no other transaction of the leader runs meanwhile.
        """
        lock = self.database.alone if alone else self.database.share
        with self.database.transaction() as session:
            held = session.rows(_LEASE + lock, (self.role,))
            if not held or held[0][0] != fence:
                raise Fenced("another process leads this database now; this one is a standby")
            yield session


_RESULT: Final = "result "
_PLAN: Final = "plan"


@dataclass(frozen=True)
class StoredRound(Generic[P]):
    """A round as it is stored.

    Attributes:
        signed: the terms with the signatures so far.
        accepted: the hash of the batch from the shuffler before, once it is accepted.
    """

    digest: bytes
    name: str
    signed: bytes = field(repr=False)
    phase: P
    accepted: bytes = b""


R = TypeVar("R", bound=StoredRound[Any])


class RoundStore(Store, Generic[P, R]):
    """A store of rounds that go from phase to phase, as the role's table allows.

    Attributes:
        moves: the role's table of transitions.
        record: the class of a round; its fields are the columns.
        needs: the key that a round needs in each phase; every other key is destroyed,
        may: except this one, which a round in this phase may have already.
        working: the phases in which a job may save the results of its parts.
        sealed: the key under which each kind of blob is stored; bulletins are public and have none.
    """

    moves: ClassVar[Transitions[Any]]
    record: ClassVar[type[Any]]
    needs: ClassVar[Mapping[Any, str]]
    may: ClassVar[Mapping[Any, str]]
    working: ClassVar[frozenset[Any]]
    sealed: ClassVar[Mapping[str, str]] = {"incoming": "round", "batch": "batch"}

    def __init__(self, url: str, keys: Path | None = None, blobs: Place | None = None) -> None:
        super().__init__(url, keys, blobs)
        if keys is None and url != "memory:":
            raise Misuse("a store outside memory needs a folder for round keys; give `keys`")
        self.round_keys.prepare()

    def begin(self, round_: R, *, fence: int) -> None:
        """Store a new round; if there is one of this name, nothing changes."""
        plain = msgspec.to_builtins(round_, builtin_types=(bytes,))
        names, marks = ", ".join(plain), ", ".join("?" * len(plain))
        table = f"{self.role}_rounds ({names})"
        with self.writing(fence) as session:
            sql = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING RETURNING digest"
            if session.rows(sql, tuple(plain.values())) and round_.phase in self.needs:
                self.round_keys.make(round_.digest, self.needs[round_.phase])

    def rounds(self, where: str = "ORDER BY name", *values: Any) -> list[R]:
        """List all rounds, or those that match a condition."""
        names = [column.name for column in fields(self.record)]
        rows = self.read(f"SELECT {', '.join(names)} FROM {self.role}_rounds {where}", *values)
        plain = [dict(zip(names, row, strict=True)) for row in rows]
        return msgspec.convert(plain, list[self.record])  # type: ignore[name-defined]

    def unfinished(self, known: Collection[bytes] = ()) -> list[R]:
        """List the unfinished rounds, and those known ones that have finished meanwhile.

        *Guarantee:* what is read does not grow with the number of finished rounds.
        """
        phases = [phase.value for phase in self.moves.phases if not self.moves.is_last(phase)]
        rounds = self.rounds(f"WHERE phase IN ({_marks(phases)}) ORDER BY name", *phases)
        finished = set(known) - {round_.digest for round_ in rounds}
        return rounds + [
            round_ for digest in finished for round_ in self.rounds("WHERE digest = ?", digest)
        ]

    def round(self, digest: bytes) -> R:
        """Return one round."""
        return self.rounds("WHERE digest = ?", digest)[0]

    def accept(self, digest: bytes, raw: bytes, *, fence: int, whole: bool = True) -> bool:
        """Store the manifest of the shuffler before; False if another one came first.

        The round has its batch once that is `whole`: all partitions are in the blob store.
        `Unavailable` if they were, but under a key that is lost: the sender sends them again.
        """
        content = hashlib.sha256(raw).digest()
        with self.writing(fence) as session:
            sql = f"SELECT accepted FROM {self.role}_rounds WHERE digest = ?"
            rows = session.rows(sql, (digest,))
            if rows and rows[0][0]:
                return bool(rows[0][0] == content)
            self.moves.after(self.phase_of(session, digest), "accept")  # raises if it is too late
            pending = self._pending(session, digest, whole=whole)
            if pending is None:
                self.put_blob(session, digest, "incoming", raw)
            elif pending != raw:
                return False
            if whole:
                self.make_move(session, digest, "accept")
                sql = f"UPDATE {self.role}_rounds SET accepted = ? WHERE digest = ?"
                session.rows(sql, (content, digest))
        return True

    def _pending(self, session: Transaction, digest: bytes, *, whole: bool) -> bytes | None:
        """Return the manifest whose partitions are awaited; drop it if its key is gone."""
        try:
            return self._blob(session, digest, "incoming")
        except (Forgotten, Unsealable):  # or a crash came after the next key was made
            if whole:
                raise Unavailable(
                    "the key of the batch was lost while it came; send the batch again"
                ) from None
            self.delete_blobs(session, digest)
            # A partition under the lost key would count as received.
            self.blobs.drop((digest, "round"))
            return None

    def files(self, digest: bytes) -> SealedFiles:
        """Return the sealed files of a round."""
        return SealedFiles(self.round_keys, self.blobs, digest)

    def prepare(self, digest: bytes, move: str, *, fence: int) -> None:
        """Make the key of the batch or bulletin before its first file; raise if it is not due.

        Within a transaction of the leader, so that `sweep` does not take the key for a leftover.
        Files that are there without the key are of a lost key, and would count as made.
        """
        existing = self.blobs.names(
            (digest, "batch")
        )  # first: a slow blob store must not hold the lease
        with self.writing(fence) as session:
            self.moves.after(self.phase_of(session, digest), move)
            if existing and not self.round_keys.has(digest, "batch"):
                self.blobs.drop((digest, "batch"))
            self.round_keys.make(digest, "batch")

    def save_result(self, digest: bytes, name: str, raw: bytes, *, fence: int) -> None:
        """Store the result of a part between two moves, in place of an older one."""
        sealed = self.round_keys.key(digest).seal(raw, digest, name.encode())
        sql = (
            f"INSERT INTO {self.role}_blobs (digest, kind, raw) VALUES (?, ?, ?)"
            " ON CONFLICT (digest, kind) DO UPDATE SET raw = excluded.raw"
        )
        with self.writing(fence) as session:
            if self.phase_of(session, digest) not in self.working:
                raise Refused("the round has moved on; the result of this part is not stored")
            session.rows(sql, (digest, _RESULT + name, sealed))

    def results(self, digest: bytes) -> dict[str, bytes]:
        """Return the results of all parts of a round by name."""
        sql = f"SELECT kind, raw FROM {self.role}_blobs WHERE digest = ?"
        rows = [(kind, raw) for kind, raw in self.run(sql, digest) if kind.startswith(_RESULT)]
        key = self.round_keys.key(digest)
        sealed = ((kind.removeprefix(_RESULT), raw) for kind, raw in rows)
        return {name: key.open(raw, digest, name.encode()) for name, raw in sealed}

    def progress(self, digest: bytes) -> dict[str, tuple[int, int]]:
        """Count the parts of each stage of a round that are done, and all its parts."""
        sql = f"SELECT kind, CASE kind WHEN ? THEN raw END FROM {self.role}_blobs WHERE digest = ?"
        rows: dict[str, bytes | None] = dict(self.run(sql, _RESULT + _PLAN, digest))
        sealed = rows.get(_RESULT + _PLAN)
        if sealed is None:
            return {}
        raw = self.round_keys.key(digest).open(sealed, digest, _PLAN.encode())
        plan = msgspec.json.decode(raw, type=dict[str, int])
        done = Counter(kind.removeprefix(_RESULT).partition(" ")[0] for kind in rows)
        return {stage: (done[stage], count) for stage, count in plan.items()}

    def plan(self, digest: bytes, parts: Mapping[str, int], *, fence: int) -> None:
        """Store how many parts each stage has; the name of a result begins with its stage."""
        self.save_result(digest, _PLAN, msgspec.json.encode(parts), fence=fence)

    def make_move(self, session: Transaction, digest: bytes, move: str) -> P:
        """Make a move of a round, if its phase allows it, and store the phase it leads to."""
        table = f"{self.role}_rounds"
        before = self.phase_of(session, digest)
        after: P = self.moves.after(before, move)
        sql = f"UPDATE {table} SET phase = ? WHERE digest = ? AND phase = ? RETURNING phase"
        if not session.rows(sql, (after.value, digest, before.value)):
            raise Unavailable("another transaction moved the round at this moment; retry")
        return after

    def phase_of(self, session: Transaction, digest: bytes) -> P:
        """Return the phase of a round."""
        rows = session.rows(f"SELECT phase FROM {self.role}_rounds WHERE digest = ?", (digest,))
        if not rows:
            raise Misuse(f"this {self.role} has no such round")
        phase: P = self.moves.phases(rows[0][0])
        return phase

    def put_blob(self, session: Transaction, digest: bytes, kind: str, raw: bytes) -> None:
        """Store a manifest or a bulletin of a round, under its key."""
        if kind in self.sealed:
            key = self.round_keys.make(digest, self.sealed[kind])
            raw = key.seal(raw, digest, kind.encode())
        sql = f"INSERT INTO {self.role}_blobs (digest, kind, raw) VALUES (?, ?, ?)"
        session.rows(sql, (digest, kind, raw))

    def blob(self, digest: bytes, kind: str) -> bytes:
        """Return the `incoming` manifest of a round, or the `batch` or `bulletin` made of it."""
        with self.database.transaction() as session:
            raw = self._blob(session, digest, kind)
        if raw is None:
            raise Misuse(f"there is no {kind} of this round: it was deleted, or never came")
        return raw

    def _blob(self, session: Transaction, digest: bytes, kind: str) -> bytes | None:
        sql = f"SELECT raw FROM {self.role}_blobs WHERE digest = ? AND kind = ?"
        rows = session.rows(sql, (digest, kind))
        if not rows:
            return None
        raw: bytes = rows[0][0]
        if kind in self.sealed:
            return self.round_keys.key(digest, self.sealed[kind]).open(raw, digest, kind.encode())
        return raw

    def sweep(self, *, fence: int) -> set[bytes]:
        """Destroy the keys that no round needs; return the rounds that need a key which is gone.

        In a transaction alone, so that no other one makes a key for a move that is not stored yet.
        """
        with self.writing(fence, alone=True) as session:
            having = [phase.value for phase in {*self.needs, *self.may}]
            sql = f"SELECT digest, phase FROM {self.role}_rounds WHERE phase IN ({_marks(having)})"
            rows = session.rows(sql, tuple(having))
            phases = [(digest, self.moves.phases(phase)) for digest, phase in rows]
            needed = {(digest, self.needs[at]) for digest, at in phases if at in self.needs}
            allowed = needed | {(digest, self.may[at]) for digest, at in phases if at in self.may}
            return {digest for digest, _ in self.round_keys.keep_only(allowed) & needed}

    def clear(self) -> None:
        """Remove the files that no key opens, now or later.

        Files are listed before keys: a key is made before the first file under it, so a listed file
        has its key, or has lost it. While some process may make a lost key again, its files are
        left to that process. No round returns to such a phase, so this may be slow, and does not
        need the lease.
        """
        files = self.blobs.rounds()
        for digest, use in files - self.round_keys.listed():
            if use not in self._ahead(digest):
                self.blobs.drop((digest, use))

    def _ahead(self, digest: bytes) -> set[str]:
        """Return which keys a round needs, or may have, now or later."""
        rows = self.read(f"SELECT phase FROM {self.role}_rounds WHERE digest = ?", digest)
        phases = self.moves.ahead(self.moves.phases(rows[0][0])) if rows else set()
        return {of[phase] for of in (self.needs, self.may) for phase in phases & of.keys()}

    def destroy_keys(self, digest: bytes, phase: P) -> None:
        """Destroy the keys that a round in this phase never needs, once the move is durable."""
        unneeded = {"round", "batch"} - {self.needs.get(phase)}
        for use in unneeded:
            self.round_keys.destroy(digest, use)
        for use in unneeded:
            self.blobs.drop((digest, use))

    def delete_blobs(self, session: Transaction, digest: bytes) -> None:
        """Delete the manifests, bulletins and results of a round."""
        session.rows(f"DELETE FROM {self.role}_blobs WHERE digest = ?", (digest,))


def _marks(values: Collection[str]) -> str:
    """Return as many placeholders as there are values."""
    return ", ".join("?" * len(values))
