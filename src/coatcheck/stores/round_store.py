"""What the stores of shufflers and servers share: the rounds with their phases, keys and files."""

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

# HOUSE-DOC stores.store: 'What the stores of all roles share: one leader per database, who alone writes.'
# ruff: noqa: S608 - what is put into SQL here is the name of a role or of a clock, never a value


_LEASE: Final = "SELECT fence FROM coatcheck_leases WHERE role = ?"


class Store:
    """The store of one role: whoever holds its lease writes, with the lease's token.

    It is opened at `memory:`, `sqlite:FILE` or `postgresql://...`, with the folder in which the
    keys of rounds are, and perhaps with a place for the depot; in memory they are in memory
    too.
    """

    role: ClassVar[str]

    def __init__(self, url: str, keys: Path | None = None, depot: Place | None = None) -> None:
        self.database = open_database(url, role=self.role)
        self.vault = RoundKeys(None if url == "memory:" else keys)
        self.depot = open_blobs(depot, url=url, keys=keys)

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else has it.

        The expiry is measured by the database's clock, so two hosts need not agree on the time.
        A new holder gets a larger token, whatever the clock did meanwhile. `Misuse` while somebody
        leads whose keys of rounds are in another folder: they could not be taken over.
        """
        now, folder = self.database.now, self.vault.mark
        sql = (
            "INSERT INTO coatcheck_leases AS mine (role, holder, fence, expires, folder)"
            f" VALUES (?, ?, 1, {now} + ?, ?) ON CONFLICT (role) DO UPDATE SET"
            " fence = mine.fence + CASE mine.holder WHEN excluded.holder THEN 0 ELSE 1 END,"
            " holder = excluded.holder, expires = excluded.expires, folder = excluded.folder"
            f" WHERE mine.holder = excluded.holder OR mine.expires <= {now} RETURNING fence"
        )
        held = self.run(sql, self.role, holder, seconds, folder)
        if held:
            return int(held[0][0])
        leading = self.run("SELECT folder FROM coatcheck_leases WHERE role = ?", self.role)
        if leading and leading[0][0] != folder:
            raise Misuse(
                "another process leads this database with another folder of round keys: give both"
                " the same `round_keys`, or this one cannot go on with the rounds of that one"
            )
        return None

    def resign(self, holder: str) -> None:
        """Give the lease back, so that the next one takes over at once; the token stays used."""
        sql = "UPDATE coatcheck_leases SET holder = '', expires = 0 WHERE role = ? AND holder = ?"
        self.run(sql, self.role, holder)

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()

    def run(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, whoever leads, and give its rows."""
        with self.database.transaction() as session:
            return session.rows(sql, values)

    def read(self, sql: str, *values: Any) -> list[Row]:
        """Run one query, whoever leads; nobody who writes waits for it."""
        with self.database.reading() as session:
            return session.rows(sql, values)

    @contextmanager
    def writing(self, fence: int, *, alone: bool = False) -> Iterator[Transaction]:
        """Begin a transaction of the leader, and hold the lease till its end; `alone`: no other."""
        lock = self.database.alone if alone else self.database.share
        with self.database.transaction() as session:
            held = session.rows(_LEASE + lock, (self.role,))
            if not held or held[0][0] != fence:
                raise Fenced("another process leads this database now; this one stands by")
            yield session


# ruff: noqa: S608 - what is put into SQL here is the name of a role, never a value


_NOTE: Final = "note "
_PLAN: Final = "plan"


@dataclass(frozen=True)
class StoredRound(Generic[P]):
    """A round as it is stored.

    Attributes:
        signed: the terms with the signatures there are.
        accepted: the hash of the batch that came from the shuffler before, if one did.
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
        moves: the role's table.
        record: a round; its fields are the columns.
        needs: which key a round needs in which phase; every other key is destroyed,
        may: but for this one, which a round in this phase may have already.
        noting: the phases in which notes are taken.
        sealed: which key each kind of blob is kept under; a bulletin is public, and under none.
    """

    moves: ClassVar[Transitions[Any]]
    record: ClassVar[type[Any]]
    needs: ClassVar[Mapping[Any, str]]
    may: ClassVar[Mapping[Any, str]]
    noting: ClassVar[frozenset[Any]]
    sealed: ClassVar[Mapping[str, str]] = {"incoming": "round", "batch": "batch"}

    def __init__(self, url: str, keys: Path | None = None, depot: Place | None = None) -> None:
        super().__init__(url, keys, depot)
        if keys is None and url != "memory:":
            raise Misuse("say in which folder the keys of rounds are kept")
        self.vault.prepare()

    def begin(self, round_: R, *, fence: int) -> None:
        """Keep a new round; if one of this name is there, nothing changes."""
        plain = msgspec.to_builtins(round_, builtin_types=(bytes,))
        names, marks = ", ".join(plain), ", ".join("?" * len(plain))
        table = f"{self.role}_rounds ({names})"
        with self.writing(fence) as session:
            sql = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING RETURNING digest"
            if session.rows(sql, tuple(plain.values())) and round_.phase in self.needs:
                self.vault.make(round_.digest, self.needs[round_.phase])

    def rounds(self, where: str = "ORDER BY name", *values: Any) -> list[R]:
        """List all rounds, or those that are asked for."""
        names = [one.name for one in fields(self.record)]
        rows = self.read(f"SELECT {', '.join(names)} FROM {self.role}_rounds {where}", *values)
        plain = [dict(zip(names, row, strict=True)) for row in rows]
        return msgspec.convert(plain, list[self.record])  # type: ignore[name-defined]

    def under_way(self, known: Collection[bytes] = ()) -> list[R]:
        """List the rounds that are not over, and those of the known ones that are by now.

        *Guarantee:* what is read does not grow with the number of rounds that are over.
        """
        phases = [phase.value for phase in self.moves.phases if not self.moves.is_last(phase)]
        found = self.rounds(f"WHERE phase IN ({_marks(phases)}) ORDER BY name", *phases)
        over = set(known) - {one.digest for one in found}
        return found + [one for gone in over for one in self.rounds("WHERE digest = ?", gone)]

    def round(self, digest: bytes) -> R:
        """Give one round."""
        return self.rounds("WHERE digest = ?", digest)[0]

    def accept(self, digest: bytes, raw: bytes, *, fence: int, whole: bool = True) -> bool:
        """Keep the manifest of the shuffler before; False if another one came first.

        The round has its batch once it is `whole`: all partitions are in the depot.
        """
        content = hashlib.sha256(raw).digest()
        with self.writing(fence) as session:
            sql = f"SELECT accepted FROM {self.role}_rounds WHERE digest = ?"
            found = session.rows(sql, (digest,))
            if found and found[0][0]:
                return bool(found[0][0] == content)
            self.moves.after(self.at(session, digest), "accept")  # refused, if it is too late
            known = self._pending(session, digest)
            if known is None:
                self.keep(session, digest, "incoming", raw)
            elif known != raw:
                return False
            if whole:
                self.moved(session, digest, "accept")
                sql = f"UPDATE {self.role}_rounds SET accepted = ? WHERE digest = ?"
                session.rows(sql, (content, digest))
        return True

    def _pending(self, session: Transaction, digest: bytes) -> bytes | None:
        """Give the manifest whose partitions are awaited; one whose key is gone is no longer."""
        try:
            return self._blob(session, digest, "incoming")
        except (Forgotten, Unsealable):  # a crash may have come after the next key was made
            self.drop(session, digest)
            # A partition under the lost key would count as one that has come.
            self.depot.drop((digest, "round"))
            return None

    def crate(self, digest: bytes) -> SealedFiles:
        """Give the files of a round in the depot."""
        return SealedFiles(self.vault, self.depot, digest)

    def prepare(self, digest: bytes, move: str, *, fence: int) -> None:
        """Make the key of what leaves with a move, before its first file; refused if it is not due.

        Within a transaction of the leader, so that the key is not taken for one that is left over.
        Files that are there without it are of a key that is gone, and would count as made.
        """
        left = self.depot.names((digest, "batch"))  # before: nobody waits for a slow depot
        with self.writing(fence) as session:
            self.moves.after(self.at(session, digest), move)
            if left and not self.vault.has(digest, "batch"):
                self.depot.drop((digest, "batch"))
            self.vault.make(digest, "batch")

    def note(self, digest: bytes, name: str, raw: bytes, *, fence: int) -> None:
        """Write down what came of a step between two moves, in place of an older note."""
        sealed = self.vault.key(digest).seal(raw, digest, name.encode())
        sql = (
            f"INSERT INTO {self.role}_blobs (digest, kind, raw) VALUES (?, ?, ?)"
            " ON CONFLICT (digest, kind) DO UPDATE SET raw = excluded.raw"
        )
        with self.writing(fence) as session:
            if self.at(session, digest) not in self.noting:
                raise Refused("the round has moved on: what came of this step is not kept")
            session.rows(sql, (digest, _NOTE + name, sealed))

    def noted(self, digest: bytes) -> dict[str, bytes]:
        """Give all notes of a round."""
        sql = f"SELECT kind, raw FROM {self.role}_blobs WHERE digest = ?"
        found = [(kind, raw) for kind, raw in self.run(sql, digest) if kind.startswith(_NOTE)]
        key = self.vault.key(digest)
        named = ((kind.removeprefix(_NOTE), raw) for kind, raw in found)
        return {name: key.open(raw, digest, name.encode()) for name, raw in named}

    def progress(self, digest: bytes) -> dict[str, tuple[int, int]]:
        """Count the parts of each stage of a round that are done, and all of them."""
        sql = f"SELECT kind, CASE kind WHEN ? THEN raw END FROM {self.role}_blobs WHERE digest = ?"
        found: dict[str, bytes | None] = dict(self.run(sql, _NOTE + _PLAN, digest))
        sealed = found.get(_NOTE + _PLAN)
        if sealed is None:
            return {}
        raw = self.vault.key(digest).open(sealed, digest, _PLAN.encode())
        plan = msgspec.json.decode(raw, type=dict[str, int])
        done = Counter(kind.removeprefix(_NOTE).partition(" ")[0] for kind in found)
        return {stage: (done[stage], count) for stage, count in plan.items()}

    def plan(self, digest: bytes, parts: Mapping[str, int], *, fence: int) -> None:
        """Write down how many parts each stage of a round has; a part's note begins with it."""
        self.note(digest, _PLAN, msgspec.json.encode(parts), fence=fence)

    def moved(self, session: Transaction, digest: bytes, move: str) -> P:
        """Ask the role for a move of a round and write down the phase that it leads to."""
        table = f"{self.role}_rounds"
        before = self.at(session, digest)
        after: P = self.moves.after(before, move)
        sql = f"UPDATE {table} SET phase = ? WHERE digest = ? AND phase = ? RETURNING phase"
        if not session.rows(sql, (after.value, digest, before.value)):
            raise Unavailable("the round moved at this moment: it is looked at again")
        return after

    def at(self, session: Transaction, digest: bytes) -> P:
        """Give the phase of a round."""
        found = session.rows(f"SELECT phase FROM {self.role}_rounds WHERE digest = ?", (digest,))
        if not found:
            raise Misuse(f"this {self.role} has no such round")
        phase: P = self.moves.phases(found[0][0])
        return phase

    def keep(self, session: Transaction, digest: bytes, kind: str, raw: bytes) -> None:
        """Keep a batch or a bulletin of a round, under its key."""
        if kind in self.sealed:
            key = self.vault.make(digest, self.sealed[kind])
            raw = key.seal(raw, digest, kind.encode())
        sql = f"INSERT INTO {self.role}_blobs (digest, kind, raw) VALUES (?, ?, ?)"
        session.rows(sql, (digest, kind, raw))

    def kept(self, digest: bytes, kind: str) -> bytes:
        """Give the `incoming` batch of a round, or the `batch` or `bulletin` made of it."""
        with self.database.transaction() as session:
            raw = self._blob(session, digest, kind)
        if raw is None:
            raise Misuse(f"there is no {kind} of this round: it was forgotten, or never came")
        return raw

    def _blob(self, session: Transaction, digest: bytes, kind: str) -> bytes | None:
        sql = f"SELECT raw FROM {self.role}_blobs WHERE digest = ? AND kind = ?"
        found = session.rows(sql, (digest, kind))
        if not found:
            return None
        raw: bytes = found[0][0]
        if kind in self.sealed:
            return self.vault.key(digest, self.sealed[kind]).open(raw, digest, kind.encode())
        return raw

    def sweep(self, *, fence: int) -> set[bytes]:
        """Destroy the keys that no round needs any more; the rounds whose key is gone.

        Alone, so that nobody makes a key for a move that is not in the store yet.
        """
        with self.writing(fence, alone=True) as session:
            having = [phase.value for phase in {*self.needs, *self.may}]
            sql = f"SELECT digest, phase FROM {self.role}_rounds WHERE phase IN ({_marks(having)})"
            found = session.rows(sql, tuple(having))
            phases = [(digest, self.moves.phases(phase)) for digest, phase in found]
            needed = {(digest, self.needs[at]) for digest, at in phases if at in self.needs}
            allowed = needed | {(digest, self.may[at]) for digest, at in phases if at in self.may}
            return {digest for digest, _ in self.vault.keep_only(allowed) & needed}

    def clear(self) -> None:
        """Remove from the depot what no key opens any more, nor ever will.

        Files are listed before keys: a key is made before the first file under it, so whatever is
        listed has its key, or has lost it. While some process may make a lost key anew, its files
        are left to that one. No round comes back to there, so this may be slow, whoever leads then.
        """
        there = self.depot.rounds()
        for digest, use in there - self.vault.listed():
            if use not in self._ahead(digest):
                self.depot.drop((digest, use))

    def _ahead(self, digest: bytes) -> set[str]:
        """Tell which keys a round needs, or may have, now or later."""
        found = self.read(f"SELECT phase FROM {self.role}_rounds WHERE digest = ?", digest)
        phases = self.moves.ahead(self.moves.phases(found[0][0])) if found else set()
        return {of[phase] for of in (self.needs, self.may) for phase in phases & of.keys()}

    def destroy_keys(self, digest: bytes, phase: P) -> None:
        """Destroy what a round in this phase never needs again, after the move to it is durable."""
        gone = {"round", "batch"} - {self.needs.get(phase)}
        for use in gone:
            self.vault.destroy(digest, use)
        for use in gone:
            self.depot.drop((digest, use))

    def drop(self, session: Transaction, digest: bytes) -> None:
        """Forget the batches and bulletins of a round."""
        session.rows(f"DELETE FROM {self.role}_blobs WHERE digest = ?", (digest,))


def _marks(values: Collection[str]) -> str:
    """As many marks as there are values."""
    return ", ".join("?" * len(values))
