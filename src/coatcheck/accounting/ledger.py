"""A person's ledger: the rounds they took part in, with a limit on all of them together.

An entry holds the privacy law of a round's report and how many people hid it, not the value. The
sum allows for terms that depend on the results of earlier rounds (`privacy_filter`). `spend` must
return before a report is sent: it writes the entry to disk, safe against crashes and against other
programs, or refuses. `record_outcome` charges what a round really cost, once its outcome is known.
A round without a known outcome costs its local ε from its deadline on, even if no program runs.
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
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, TwoLevel, WithDecoys, pair
from coatcheck.accounting.numerics import check_count, check_delta
from coatcheck.accounting.privacy_filter import Budget, HiddenReport
from coatcheck.durable_files import replace_file
from coatcheck.errors import Misuse, Refused, Unavailable


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round: the law of its report, the people to hide among, and the digest of the report."""

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
    decoys: int = 0

    def at(self, now: float) -> "Entry":
        """Return the entry as it counts at a time: in full, if its outcome is overdue."""
        if self.settled or not 0 < self.until <= now:
            return self
        return msgspec.structs.replace(self, missing=max(self.missing, self.crowd))

    @property
    def hidden(self) -> int:
        """The number of people that the report really hid among, yourself included."""
        return max(1, self.crowd - self.missing)

    @property
    def linked(self) -> int:
        """Of these, the number who reuse their keys as well."""
        return max(1, min(self.crowd, self.together) - self.missing)

    @property
    def law(self) -> Law:
        """The law of the report, for the accountant."""
        law: Law = AnyLdp(epsilon=self.epsilon)
        if self.kind == "two-level":
            two = TwoLevel(
                epsilon=self.epsilon,
                cap=self.cap,
                apart=self.apart,
                kernel=self.kernel,
                reached=self.decoys > 0,
            )
            law = WithDecoys(law=two, each=self.decoys) if self.decoys else two
        if self.kind == "fieldwise":
            law = Fieldwise(laws=self.fields)
        return law if self.rate == 1 else OwnCoin(law=law, rate=self.rate)


class LedgerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file: a version, the limit and the entries in order."""

    version: Literal[1]
    epsilon: float
    delta: float
    entries: tuple[Entry, ...] = ()

    def reports(self, now: float) -> list[HiddenReport]:
        """Return law and crowd of all reports; rounds under one key make one report."""
        groups: dict[str, list[Entry]] = {}
        for entry in (entry.at(now) for entry in self.entries):
            groups.setdefault(entry.key or f"round {entry.round}", []).append(entry)
        reports: list[HiddenReport] = []
        for group in groups.values():
            failing = sum(entry.traps for entry in group)
            if len(group) == 1:
                reports.append(HiddenReport(group[0].law, group[0].hidden, failing))
            else:
                joint = AnyLdp(epsilon=sum(entry.epsilon for entry in group))
                reports.append(HiddenReport(joint, min(entry.linked for entry in group), failing))
        return reports

    def spent(self, now: float) -> float:
        """Return the ε of all entries as they count at a time."""
        return _budget(self.epsilon, self.delta).spent(self.reports(now))

    def left(self, now: float) -> float:
        """Return the ε that one more round may cost."""
        return _budget(self.epsilon, self.delta).left(self.reports(now))


@lru_cache(maxsize=16)
def _budget(epsilon: float, delta: float) -> Budget:
    return Budget(epsilon=epsilon, delta=delta)


def entry_of(
    guarantee: Guarantee, round_id: str, digest: bytes, key: bytes, *, together: int, until: int
) -> Entry:
    """Build the entry of a round from its guarantee."""
    if not round_id:
        raise Misuse("`round_id` must not be empty: the round is entered under it")
    if together < 1:
        raise Misuse(f"`together` must be at least 1, which is yourself, not {together}")
    law, rate = guarantee.law, 1.0
    if isinstance(law, OwnCoin):
        rate, law = law.rate, law.law
    if isinstance(law, WithDecoys):
        law = law.law
    pair(guarantee.law)  # rejects what is not a law
    # The file cannot hold a table of probabilities: enter the law of any mechanism of that ε.
    exact = law if guarantee.method == "mechanism" else None
    plain = exact if isinstance(exact, TwoLevel) else None
    fields = exact.laws if isinstance(exact, Fieldwise) else ()
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
        decoys=guarantee.decoys if plain else 0,
    )


def read_file(path: Path) -> LedgerFile:
    """Read the file; reject an unknown or missing field and a mode that lets others read it."""
    if path.stat().st_mode & 0o077:
        raise Refused(
            f"other users can read {path}, which lists your rounds: run `chmod 600 {path}`"
        )
    try:
        content = msgspec.json.decode(path.read_bytes(), type=LedgerFile, strict=True)
        for entry in content.entries:
            pair(entry.law)
    except (msgspec.DecodeError, Misuse) as error:
        raise Refused(
            f"{path} is not a ledger of version 1 ({error}); restore it from a backup"
        ) from error
    if not (0 < content.epsilon < math.inf and 0 < content.delta < 1):
        raise Refused(f"{path} has no valid limit (ε, δ); restore it from a backup")
    if any(min(entry.crowd, entry.together, 1 + entry.missing) < 1 for entry in content.entries):
        raise Refused(f"{path} has a round without people; restore it from a backup")
    return content


def write_file(path: Path, content: LedgerFile, *, new: bool = False) -> None:
    """Replace the whole file durably, readable only by its owner."""
    if new and path.exists():
        raise Refused(f"another program has just created {path}; open it again")
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n", mode=0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}; a report must be entered before it"
            " is sent: free some space, then try again with the same ticket"
        ) from error


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock against other programs of this person while the file is read and replaced."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class Ledger:
    """A person's file of rounds, with a limit (ε, δ) on all of them together.

    *Guarantee:* all rounds together keep the limit, even if a server chooses the terms of the next
    round from the results of earlier ones. *Assumes:* all programs that send this person's reports
    use this one file, and each round's own promise holds (`Guarantee.assumptions`).
    """

    def __init__(
        self, path: Path, content: LedgerFile, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._file = content
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
        """Open a ledger, or create one with a limit of `epsilon` and `delta`.

        An existing ledger cannot be opened with another limit. `clock` returns the seconds since
        1970.
        """
        path = Path(path)
        if path.exists():
            content = read_file(path)
            if epsilon is not None and (epsilon, delta) != (content.epsilon, content.delta):
                raise Refused(
                    f"{path} has a limit of ε = {content.epsilon:g} at δ = {content.delta:g}, "
                    f"not ε = {epsilon:g} at δ = {delta:g}; open it without a limit, "
                    "or create another file and remember that the two limits add up"
                )
            return cls(path, content, clock)
        if epsilon is None:
            raise Misuse(f"there is no ledger at {path}; pass a limit `epsilon` to create one")
        check_delta(delta)
        if not (isinstance(epsilon, Real) and 0 < epsilon < math.inf):
            raise Misuse(f"`epsilon` of a limit must be a positive number, not {epsilon!r}")
        content = LedgerFile(version=1, epsilon=float(epsilon), delta=float(delta))
        with exclusive(path):
            write_file(path, content, new=True)
        return cls(path, content, clock)

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
        return self._file.epsilon, self._file.delta

    @property
    def rounds(self) -> tuple[str, ...]:
        """The names of the entered rounds, in order."""
        return tuple(entry.round for entry in self._file.entries)

    @property
    def spent(self) -> float:
        """An upper bound on the ε of all rounds so far at the limit's δ.

        *Guarantee:* it holds at every moment, even if a server chooses the rounds and the moment
        from the results of earlier rounds. It is at most the limit, unless a round was not
        answered or its outcome was not seen in time.
        """
        return self._file.spent(self._clock())

    @property
    def left(self) -> float:
        """The ε that one more round may cost, roughly, since rounds do not add up linearly.

        It is more than the limit minus `spent`, because small costs add up like squares.
        """
        return self._file.left(self._clock())

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
        """Enter a round before its report is sent, or refuse; return the total ε including it.

        *Guarantee:* when this returns, the entry is on disk. If it raises, send nothing; the same
        report can be entered later.

        Args:
            guarantee: the promise of the round; its law and number of anonymous people are entered.
            round_id: the name of the round.
            digest: the digest of the sealed report. Sending the same report again costs nothing;
                another report for the same round is rejected, as a second draw of noise.
            key: the one-time address, if it may have been used before. Rounds under one key are
                linked, so they count as a single report with the sum of their budgets.
                *Assumes:* the results of earlier rounds do not decide which rounds share a key.
            together: the honest, anonymous people who reuse their keys over the same rounds,
                yourself included; nobody corrupted or exposed. *Assumes*, if above 1, that the
                terms of those rounds are fixed in advance.
            until: the time at which the round must have ended. From then on it costs the local ε,
                until `record_outcome` records how it ended. 0 means never.
        """
        entry = entry_of(guarantee, round_id, digest, key, together=together, until=until)
        with exclusive(self._path):
            self._file = read_file(self._path)
            earlier = [old for old in self._file.entries if old.round == round_id]
            if earlier and digest and earlier[0].digest == entry.digest:
                return self.spent
            if earlier:
                raise Refused(
                    f"round {round_id} was entered with another report, and a second draw for one "
                    "round would be a second spend; send the stored report again"
                )
            after = msgspec.structs.replace(self._file, entries=(*self._file.entries, entry))
            total = after.spent(self._clock())
            if total > after.epsilon:
                raise Refused(
                    f"round {round_id} would bring the total to ε = {total:.4g} at "
                    f"δ = {after.delta:g}, above the limit of {after.epsilon:g} "
                    f"({self.spent:.4g} spent); nothing was sent: wait for a larger crowd, "
                    "or for terms with a smaller local epsilon"
                    f"{self._overdue()}"
                )
            write_file(self._path, after)
            self._file = after
        return total

    def record_outcome(self, round_id: str, *, missing: int | None = None) -> float:
        """Charge a round what it really cost, once its outcome is known; return the total ε.

        A charge is never reduced, and recording the same outcome again changes nothing. The total
        may exceed the limit; `spend` then refuses further rounds.

        Args:
            round_id: the name under which the round was entered.
            missing: how many fewer people than promised the report hid among: 0 if the round was
                answered with its crowd, None if the report counts as seen alone, which costs its
                local ε.
        """
        if missing is not None:
            check_count(missing, "missing people")
        with exclusive(self._path):
            self._file = read_file(self._path)
            if round_id not in self.rounds:
                if missing == 0:
                    return self.spent
                raise Misuse(f"round {round_id} is not in {self._path}; `spend` enters it")
            entries = tuple(
                msgspec.structs.replace(
                    entry,
                    missing=max(entry.missing, entry.crowd if missing is None else missing),
                    settled=True,
                )
                if entry.round == round_id
                else entry
                for entry in self._file.entries
            )
            if entries != self._file.entries:
                after = msgspec.structs.replace(self._file, entries=entries)
                write_file(self._path, after)
                self._file = after
        return self.spent

    def _overdue(self) -> str:
        """Name the rounds that count in full because their outcomes are overdue."""
        now = self._clock()
        names = [entry.round for entry in self._file.entries if entry.at(now) is not entry]
        if not names:
            return ""
        return f"; collect {', '.join(names)}: it costs its local epsilon until its outcome is seen"
