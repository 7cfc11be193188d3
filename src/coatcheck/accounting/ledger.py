"""The ledger: a person's own file of the rounds they took part in, with a limit on all of them.

An entry says what a round's report tells and how many people hid it, not what was reported. The
sum allows for terms that depend on what earlier rounds gave (`budget`). `spend` must return before
a report is sent: it writes the entry to disk, safely against crashes and against other programs,
or refuses. `record_outcome` charges what a round really cost, once its outcome is known; without
one the round costs its local ε from its deadline on, even if nobody runs anything for it any more.
"""

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Literal, Self

import msgspec

from coatcheck.accounting.guarantee import Guarantee, html_table, rounded_up
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, TwoLevel, pair
from coatcheck.accounting.numerics import check_count, check_delta
from coatcheck.accounting.privacy_filter import Budget, Hidden
from coatcheck.durable_files import replace_file
from coatcheck.errors import Misuse, Refused, Unavailable


# HOUSE-DOC accounting.book: "The book behind a ledger: its entries, what they count, and the file that holds them.\n\nAn entry says what a round's report tells and how many people hid it, not what was reported. It\nalso holds the time from which on it counts in full, unless the round's end is known.\n"
class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round: the law of its report, the people to hide among, and what was sent."""

    round: str
    digest: str
    kind: Literal["any-ldp", "two-level", "fieldwise"]
    epsilon: float
    crowd: int
    cap: float = 0.0
    apart: float = 0.0
    kernel: float = 0.0
    rate: float = 1.0
    key: str = ""
    together: int = 1
    fields: tuple[TwoLevel, ...] = ()
    missing: int = 0
    until: int = 0
    settled: bool = False
    traps: float = 0.0

    def at(self, now: float) -> "Entry":
        """Give the entry as it counts at a time: alone, if its end should be known and is not."""
        if self.settled or not 0 < self.until <= now:
            return self
        return msgspec.structs.replace(self, missing=max(self.missing, self.crowd))

    @property
    def hidden(self) -> int:
        """The people that the report really hid among, yourself included."""
        return max(1, self.crowd - self.missing)

    @property
    def linked(self) -> int:
        """Of these, the people who reuse their keys as well."""
        return max(1, min(self.crowd, self.together) - self.missing)

    @property
    def law(self) -> Law:
        """The law of the report, as the accountant reads it."""
        law: AnyLdp | TwoLevel | Fieldwise = AnyLdp(epsilon=self.epsilon)
        if self.kind == "two-level":
            law = TwoLevel(epsilon=self.epsilon, cap=self.cap, apart=self.apart, kernel=self.kernel)
        if self.kind == "fieldwise":
            law = Fieldwise(laws=self.fields)
        return law if self.rate == 1 else OwnCoin(law=law, rate=self.rate)


class Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: a version, the limit and the entries in order."""

    version: Literal[1]
    epsilon: float
    delta: float
    entries: tuple[Entry, ...] = ()

    def reports(self, now: float) -> list[Hidden]:
        """Law and crowd of all reports; rounds under one key are one report with their sum."""
        groups: dict[str, list[Entry]] = {}
        for entry in (entry.at(now) for entry in self.entries):
            groups.setdefault(entry.key or f"round {entry.round}", []).append(entry)
        found: list[Hidden] = []
        for group in groups.values():
            failing = sum(entry.traps for entry in group)
            if len(group) == 1:
                found.append(Hidden(group[0].law, group[0].hidden, failing))
            else:
                whole = AnyLdp(epsilon=sum(entry.epsilon for entry in group))
                found.append(Hidden(whole, min(entry.linked for entry in group), failing))
        return found

    def spent(self, now: float) -> float:
        """The ε of all entries as they count at a time."""
        return _budget(self.epsilon, self.delta).spent(self.reports(now))

    def left(self, now: float) -> float:
        """The ε that one more round may cost."""
        return _budget(self.epsilon, self.delta).left(self.reports(now))


@lru_cache(maxsize=16)
def _budget(epsilon: float, delta: float) -> Budget:
    return Budget(epsilon=epsilon, delta=delta)


def entry_of(
    guarantee: Guarantee, round_id: str, digest: bytes, key: bytes, *, together: int, until: int
) -> Entry:
    """Make the entry of a round from what it promises."""
    if not round_id:
        raise Misuse("a round needs a name to be entered under")
    if together < 1:
        raise Misuse(f"at least 1 person, yourself, reuses a key, not {together}")
    law, rate = guarantee.law, 1.0
    if isinstance(law, OwnCoin):
        rate, law = law.rate, law.law
    pair(guarantee.law)  # refuses a law that is none
    # A table of chances has no place in the file: it is entered as any law of its ε.
    own = law if guarantee.method == "mechanism" else None
    plain = own if isinstance(own, TwoLevel) else None
    fields = own.laws if isinstance(own, Fieldwise) else ()
    return Entry(
        round=round_id,
        digest=digest.hex(),
        kind="two-level" if plain else "fieldwise" if fields else "any-ldp",
        epsilon=law.epsilon,
        crowd=guarantee.anonymous,
        cap=plain.cap if plain else 0.0,
        apart=plain.apart if plain else 0.0,
        kernel=plain.kernel if plain else 0.0,
        rate=rate,
        key=key.hex(),
        together=together,
        fields=fields,
        until=until,
        traps=guarantee.traps,
    )


def read_book(path: Path) -> Book:
    """Read the file strictly: an unknown or missing field or a wrong mode is refused."""
    if path.stat().st_mode & 0o077:
        raise Refused(f"other users may read {path}, which tells where you took part; chmod 600 it")
    try:
        book = msgspec.json.decode(path.read_bytes(), type=Book, strict=True)
        for entry in book.entries:
            pair(entry.law)
    except (msgspec.DecodeError, Misuse) as error:
        raise Refused(f"{path} is not a ledger of version 1 ({error}); restore a copy") from error
    if not (0 < book.epsilon < math.inf and 0 < book.delta < 1):
        raise Refused(f"{path} holds no valid limit; restore a copy")
    if any(min(entry.crowd, entry.together, 1 + entry.missing) < 1 for entry in book.entries):
        raise Refused(f"{path} holds a round without people; restore a copy")
    return book


def write_book(path: Path, book: Book, *, new: bool = False) -> None:
    """Replace the file as a whole, on disk before this returns, readable by its owner alone."""
    if new and path.exists():
        raise Refused(f"another program has just begun {path}; open it again")
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(book)) + b"\n", mode=0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}; a report must be entered before it"
            " is sent: make room, then try again with the same ticket"
        ) from error


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other programs of this person out while the file is read and replaced."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class Ledger:
    """A person's file of rounds, with a limit (ε, δ) on all of them together.

    *Guarantee:* all rounds together keep the limit, even if a server chooses the terms of the next
    round by what earlier ones gave. *Assumes:* all programs that send this person's reports use
    this one file, and each round's own promise holds (`Guarantee.assumptions`).
    """

    def __init__(self, path: Path, book: Book, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._book = book
        self._clock = clock

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        epsilon: float | None = None,
        delta: float = 1e-6,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open a ledger, or begin one if a limit `epsilon` (and `delta`) is given.

        A ledger that exists cannot be opened with another limit. `clock` gives the seconds since
        1970.
        """
        path = Path(path)
        if path.exists():
            book = read_book(path)
            if epsilon is not None and (epsilon, delta) != (book.epsilon, book.delta):
                raise Refused(
                    f"{path} has a limit of ε = {book.epsilon:g} at δ = {book.delta:g}, "
                    f"not ε = {epsilon:g} at δ = {delta:g}; open it without a limit, "
                    "or begin another file knowing that the two add up"
                )
            return cls(path, book, clock)
        if epsilon is None:
            raise Misuse(f"there is no ledger at {path}; give a limit epsilon to begin one")
        check_delta(delta)
        if not (isinstance(epsilon, Real) and 0 < epsilon < math.inf):
            raise Misuse(f"a limit needs a positive epsilon, not {epsilon!r}")
        book = Book(version=1, epsilon=float(epsilon), delta=float(delta))
        with alone(path):
            write_book(path, book, new=True)
        return cls(path, book, clock)

    def __repr__(self) -> str:
        epsilon, delta = self.limit
        spent = f"{rounded_up(self.spent)} of ε = {epsilon:g} at δ = {delta:g}"
        return f"Ledger({spent}, {len(self.rounds)} rounds)"

    def _repr_html_(self) -> str:
        epsilon, delta = self.limit
        rows = [
            ("limit", f"ε = {epsilon:g}, δ = {delta:g}"),
            ("spent", f"ε = {rounded_up(self.spent)}"),
            ("one more round may cost", f"ε = {self.left:.3g}"),
            ("rounds", ", ".join(self.rounds[-10:]) or "none yet"),
        ]
        return html_table("what your rounds cost together", (), rows)

    @property
    def limit(self) -> tuple[float, float]:
        """The (ε, δ) that all rounds together may reach."""
        return self._book.epsilon, self._book.delta

    @property
    def rounds(self) -> tuple[str, ...]:
        """The rounds that were entered, in order."""
        return tuple(entry.round for entry in self._book.entries)

    @property
    def spent(self) -> float:
        """An upper bound on the ε of all rounds so far at the limit's δ.

        *Guarantee:* it holds at every moment, even if a server chooses the rounds and the moment
        by what earlier rounds gave; and it is at most the limit, unless a round ended otherwise
        than answered, or no end of it was seen in time.
        """
        return self._book.spent(self._clock())

    @property
    def left(self) -> float:
        """The ε that one more round may cost: a guide, since rounds do not add up linearly.

        It is more than the limit less what is spent: a few costs are added like squares.
        """
        return self._book.left(self._clock())

    def spend(
        self,
        guarantee: Guarantee,
        *,
        round_id: str,
        digest: bytes = b"",
        key: bytes = b"",
        together: int = 1,
        until: int = 0,
    ) -> float:
        """Enter a round before its report leaves, or refuse; give the total ε after it.

        *Guarantee:* when this returns, the entry is on disk; when it raises, nothing may be
        sent, and the same report can be entered later.

        Args:
            guarantee: what the round promises; its law and its anonymous people are entered.
            round_id: the name of the round.
            digest: of the sealed report. Sending the same report again costs nothing. Another
                report for the same round is refused, because it would be a second draw of noise.
            key: the one-time address, if it may have been used before. Rounds under one key are
                linked, so they count as a single report with the sum of their budgets.
                *Assumes:* which rounds share a key does not depend on what earlier ones gave.
            together: the honest, anonymous people who reuse their keys over the same rounds,
                yourself included; nobody corrupted or exposed. *Assumes*, if above 1, that the
                terms of those rounds are fixed in advance.
            until: when the round has ended at the latest. From then on it costs the local ε, until
                `record_outcome` is called. 0 means never.
        """
        entry = entry_of(guarantee, round_id, digest, key, together=together, until=until)
        with alone(self._path):
            self._book = read_book(self._path)
            known = [old for old in self._book.entries if old.round == round_id]
            if known and digest and known[0].digest == entry.digest:
                return self.spent
            if known:
                raise Refused(
                    f"round {round_id} was entered with another report; a second draw for one "
                    "round is a second spend, so send the stored report again"
                )
            after = msgspec.structs.replace(self._book, entries=(*self._book.entries, entry))
            total = after.spent(self._clock())
            if total > after.epsilon:
                raise Refused(
                    f"round {round_id} would bring the total to ε = {total:.4g} at "
                    f"δ = {after.delta:g}, above the limit of {after.epsilon:g} "
                    f"({self.spent:.4g} spent); nothing was sent: wait for a larger crowd, "
                    "or for terms with a smaller local epsilon"
                    f"{self._unseen()}"
                )
            write_book(self._path, after)
            self._book = after
        return total

    def record_outcome(self, round_id: str, *, missing: int | None = None) -> float:
        """Charge a round what it really cost, once its outcome is known; give the total ε.

        A charge is never taken back, and the same outcome again changes nothing. The total may pass the limit, and no further round is taken then.

        Args:
            round_id: the name under which the round was entered.
            missing: how many people fewer than promised the report hid among, 0 if the round was
                answered with its crowd; None if the report counts as seen by itself, which costs
                its local ε.
        """
        if missing is not None:
            check_count(missing, "missing people")
        with alone(self._path):
            self._book = read_book(self._path)
            if round_id not in self.rounds:
                if missing == 0:
                    return self.spent
                raise Misuse(f"round {round_id} is not in {self._path}")
            entries = tuple(
                msgspec.structs.replace(
                    entry,
                    missing=max(entry.missing, entry.crowd if missing is None else missing),
                    settled=True,
                )
                if entry.round == round_id
                else entry
                for entry in self._book.entries
            )
            if entries != self._book.entries:
                after = msgspec.structs.replace(self._book, entries=entries)
                write_book(self._path, after)
                self._book = after
        return self.spent

    def _unseen(self) -> str:
        """Name the rounds that count in full because their ends were not seen."""
        now = self._clock()
        names = [entry.round for entry in self._book.entries if entry.at(now) is not entry]
        if not names:
            return ""
        return f"; collect {', '.join(names)}: until its end is seen it costs the local epsilon"
