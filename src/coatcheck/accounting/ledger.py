"""A person's ledger: the rounds they took part in, with a limit on all of them together.

An entry holds the privacy law of a round's report and how many people hid it, not the value. The
sum allows for terms that depend on the results of earlier rounds (`privacy_filter`), and nothing
that happens later lowers it. `spend` must return before a report is sent: it writes the entry to
disk, safe against crashes and against other programs, or refuses. `record_outcome` charges a round
that did not end as promised with its local ε. While the outcome of a round is overdue, that
charge is set aside: `worst` shows it, and `spend` leaves room for it.
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
from coatcheck.accounting.numerics import check_delta
from coatcheck.accounting.privacy_filter import Budget, Charge, HiddenReport
from coatcheck.durable_files import replace_file
from coatcheck.errors import Misuse, Refused, Unavailable


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round: the law of its report, the people to hide among, and the digest of the report.

    `disclosures` counts the candidates who may learn an answer by letter. `by_itself` is fixed
    when the round is entered; `end` is empty until the outcome is recorded.
    """

    round: str
    digest: str
    kind: Literal["any-ldp", "two-level", "fieldwise"]
    epsilon: float
    crowd: int
    cap: float = 0.0
    apart: float = 0.0
    kernel: float = 0.0
    rate: float = 1.0
    fields: tuple[TwoLevel, ...] = ()
    traps: float = 0.0
    decoys: int = 0
    disclosures: int = 0
    by_itself: bool = True
    until: int = 0
    end: Literal["", "answered", "broken"] = ""

    def is_overdue(self, now: float) -> bool:
        """Return whether the outcome is not known, though the round must have ended."""
        return not self.end and 0 < self.until <= now

    def charge(self, *, broken: bool) -> Charge:
        """Return what the round adds to the sum, if it keeps or breaks its promise."""
        return Charge(HiddenReport(self.law, self.crowd, self.traps), self.by_itself, broken)

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

    @property
    def budget(self) -> Budget:
        """The limit, as the arithmetic of rounds."""
        return _budget(self.epsilon, self.delta)

    def charges(self, now: float | None = None) -> list[Charge]:
        """Return what the rounds cost; at a time, overdue ones as if they broke their promise."""
        return [
            entry.charge(
                broken=entry.end == "broken" or (now is not None and entry.is_overdue(now))
            )
            for entry in self.entries
        ]

    @property
    def spent(self) -> float:
        """The ε of all entries, by the outcomes that were recorded."""
        return self.budget.spent(self.charges())

    def worst(self, now: float) -> float:
        """Return the ε of all entries, if those that are overdue at a time ended badly."""
        return self.budget.spent(self.charges(now))

    def left(self, now: float) -> float:
        """Return the ε that one more round may cost."""
        return self.budget.left(self.charges(now))

    def entered(self, entry: Entry) -> Self:
        """Return the file with one more round, which counts from now on as it does here."""
        charge = self.budget.charge(entry.charge(broken=False).report, after=self.charges())
        fixed = msgspec.structs.replace(entry, by_itself=charge.by_itself)
        return msgspec.structs.replace(self, entries=(*self.entries, fixed))

    def ended(self, round_id: str, *, answered: bool) -> Self:
        """Return the file with a round's outcome; a broken promise stays broken."""

        def closed(entry: Entry) -> Entry:
            broken = entry.end == "broken" or not answered
            return msgspec.structs.replace(entry, end="broken" if broken else "answered")

        entries = (closed(entry) if entry.round == round_id else entry for entry in self.entries)
        return msgspec.structs.replace(self, entries=tuple(entries))


@lru_cache(maxsize=16)
def _budget(epsilon: float, delta: float) -> Budget:
    return Budget(epsilon=epsilon, delta=delta)


def entry_of(guarantee: Guarantee, round_id: str, digest: bytes, *, until: int) -> Entry:
    """Build the entry of a round from its guarantee."""
    if not round_id:
        raise Misuse("`round_id` must not be empty: the round is entered under it")
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
        fields=fields,
        traps=guarantee.traps,
        decoys=guarantee.decoys if plain else 0,
        disclosures=guarantee.letters.candidates if guarantee.letters else 0,
        until=until,
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
    if any(entry.crowd < 1 or entry.disclosures < 0 for entry in content.entries):
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
            ("overdue", ", ".join(self.overdue) or "nothing"),
            ("one more round may cost", f"ε = {self.left:.3g}"),
            ("candidates told by letter", f"at most {self.disclosures:,}"),
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
    def overdue(self) -> tuple[str, ...]:
        """The rounds that must have ended, but whose outcome was not recorded."""
        now = self._clock()
        return tuple(entry.round for entry in self._file.entries if entry.is_overdue(now))

    @property
    def spent(self) -> float:
        """An upper bound on the ε of all rounds so far at the limit's δ; it only rises.

        *Guarantee:* it holds at every moment, even if a server chooses the rounds and the moment
        from the results of earlier rounds. It is at most the limit, unless a round was not
        answered. *Assumes:* each round keeps its own promise, or its outcome was recorded.
        """
        return self._file.spent

    @property
    def worst(self) -> float:
        """What `spent` becomes if every round in `overdue` turns out to have broken its promise.

        The outcomes decide: it falls back to `spent` once all of them are known and good.
        """
        return self._file.worst(self._clock())

    @property
    def disclosures(self) -> int:
        """How many candidates may have learned an answer by letter, over all rounds.

        ε does not cover these answers; `Guarantee.letters` says what one of them tells.
        """
        return sum(entry.disclosures for entry in self._file.entries)

    @property
    def left(self) -> float:
        """The ε that one more round may cost, roughly, since rounds do not add up linearly.

        It is more than the limit minus `worst`, because small costs add up like squares.
        """
        return self._file.left(self._clock())

    def spend(
        self, guarantee: Guarantee, *, round_id: str, digest: bytes = b"", until: int = 0
    ) -> float:
        """Enter a round before its report is sent, or refuse; return the ε spent including it.

        *Guarantee:* when this returns, the entry is on disk. If it raises, send nothing; the same
        report can be entered later. The limit admits the round even if every overdue round ended
        badly. *Assumes:* the report has a one-time key of its own, which no other round sees.

        Args:
            guarantee: the promise of the round; its law and number of anonymous people are entered.
            round_id: the name of the round.
            digest: the digest of the sealed report. Sending the same report again costs nothing;
                another report for the same round is rejected, as a second draw of noise.
            until: the time at which the round must have ended. From then on the round is `overdue`
                until `record_outcome` records how it ended. 0 means never.
        """
        entry = entry_of(guarantee, round_id, digest, until=until)
        with exclusive(self._path):
            self._read_again()
            earlier = [old for old in self._file.entries if old.round == round_id]
            if earlier and digest and earlier[0].digest == entry.digest:
                return self.spent
            if earlier:
                raise Refused(
                    f"round {round_id} was entered with another report, and a second draw for one "
                    "round would be a second spend; send the stored report again"
                )
            after = self._file.entered(entry)
            total = after.worst(self._clock())
            if total > after.epsilon:
                raise Refused(
                    f"round {round_id} would bring the total to ε = {total:.4g} at "
                    f"δ = {after.delta:g}, above the limit of {after.epsilon:g} "
                    f"({self.spent:.4g} spent); nothing was sent: wait for a larger crowd, "
                    f"or for terms with a smaller local epsilon{self._remedy()}"
                )
            write_file(self._path, after)
            self._file = after
        return self.spent

    def record_outcome(self, round_id: str, *, answered: bool = False) -> float:
        """Record how a round ended; return the ε spent.

        A round that was not answered with its whole crowd costs its local ε besides: the report
        counts as seen alone. The charge is never taken back, and recording the same outcome again
        changes nothing. The total may exceed the limit; `spend` then refuses further rounds.

        Args:
            round_id: the name under which the round was entered.
            answered: whether the signed outcome is an answer with the promised crowd.
        """
        with exclusive(self._path):
            self._read_again()
            if round_id not in self.rounds:
                if answered:
                    return self.spent
                raise Misuse(f"round {round_id} is not in {self._path}; `spend` enters it")
            after = self._file.ended(round_id, answered=answered)
            if after != self._file:
                write_file(self._path, after)
                self._file = after
        return self.spent

    def _read_again(self) -> None:
        """Read what other programs wrote; refuse a file that has lost a round seen before."""
        content = read_file(self._path)
        lost = set(self.rounds) - {entry.round for entry in content.entries}
        if lost:
            raise Refused(
                f"{self._path} no longer has round {min(lost)}, which was sent: another program"
                " has put back an old copy; restore the newest one"
            )
        self._file = content

    def _remedy(self) -> str:
        """Say which outcomes to collect, because they are overdue and count as broken promises."""
        names = ", ".join(self.overdue)
        if not names:
            return ""
        return f"; or collect {names}: until its outcome is seen, its local epsilon is set aside"
