"""The ledger: a person's own file of the rounds they took part in, with a limit on all of them.

An entry says what a round's report tells and how many people hid it, not what was reported. The
sum allows for terms that depend on what earlier rounds gave (`budget`). `spend` must return before
a report is sent: it writes the entry to disk, safely against crashes and against other programs,
or refuses. `settle` charges what a round really cost, once its end is known; without a known end it
costs its local ε from its deadline on, also if nobody runs anything for it any more.
"""

import math
import time
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Self

import msgspec

from coatcheck.accounting.book import Book, alone, entry_of, read_book, write_book
from coatcheck.accounting.guarantee import Guarantee, rounded_up
from coatcheck.accounting.limits import check_count, check_delta
from coatcheck.accounting.notebook import html_table
from coatcheck.errors import Misuse, Refused


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
                `settle` is told how it ended. 0 means never.
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

    def settle(self, round_id: str, *, missing: int | None = None) -> float:
        """Charge a round what it really cost, once its outcome is known; give the total ε.

        What a round was charged by a `settle` before is never taken back, and to tell the same
        again changes nothing. The total may pass the limit, and no further round is taken then.

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
