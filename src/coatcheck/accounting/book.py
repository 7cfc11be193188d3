"""The book behind a ledger: its entries, what they count, and the file that holds them.

An entry says what a round's report tells and how many people hid it, not what was reported. It
also holds the time from which on it counts in full, unless the round's end is known.
"""

import contextlib
import fcntl
import math
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from coatcheck.accounting.budget import Budget, Hidden
from coatcheck.accounting.guarantee import Guarantee
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, TwoLevel
from coatcheck.accounting.pairs import pair
from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.files import replace_file


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
