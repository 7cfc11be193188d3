"""The charge of a round in the ledger, for every outcome and crash of the person's program.

What is spent never falls, and is exactly what happened once the end is known; while the outcome is
overdue, the local ε is set aside.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from coatcheck.accounting.ledger import Ledger
from coatcheck.errors import Refused
from coatcheck.protocol import client
from coatcheck.protocol.outcomes import outcome_due
from coatcheck.services.person.store import TicketFile
from support.endings import ENDS, SMALL, shown
from support.rounds import OPENS, SQUARE, SmallRound

DUE = outcome_due(SMALL.round)
SEEN = Counter[str]()


def paid(*, answered: bool) -> float:
    """Return what a ledger with one round shows that ended this way."""
    book = Ledger.open(Path(tempfile.mkdtemp()) / "ledger", epsilon=9.0, delta=1e-2)
    book.spend(SMALL.invitations[0].guarantee, round_id="r")
    return book.record_outcome("r", answered=answered)


PROMISE, LOCAL = paid(answered=True), paid(answered=False)


class Person(RuleBasedStateMachine):
    """A person with a ledger, a ticket file and a program that may crash at any step."""

    end: str

    @initialize()
    def begin(self) -> None:
        """Create a ledger; the round's outcome is fixed."""
        self.folder = Path(tempfile.mkdtemp())
        self.now = float(OPENS)
        Ledger.open(self.folder / "ledger", epsilon=9.0, delta=1e-2)
        self.file = TicketFile(self.folder / "ticket")
        self.stored = self.entered = self.told = False
        self.before = 0.0

    def ledger(self) -> Ledger:
        """Open the file again, as a restarted program does."""
        return Ledger.open(self.folder / "ledger", clock=lambda: self.now)

    @rule(seconds=st.sampled_from([1, 1_000, 10_000]))
    def wait(self, seconds: int) -> None:
        """Move time forward."""
        self.now += seconds

    @precondition(lambda self: self.now < SMALL.round.terms.expires)
    @rule(crash=st.sampled_from(["", "before the ledger", "after the ledger"]))
    def join(self, crash: str) -> None:
        """Join, or join again; the program may die before or after the ledger has the round."""
        before = self.file.load()
        book: client.Budget = Dying() if crash == "before the ledger" else self.ledger()
        invitation = SMALL.invitations[0]
        try:
            ticket = invitation.join(
                (0.5, 0.5), ledger=book, store=self.file, entropy=SMALL.entropy
            )
        except KeyboardInterrupt:
            ticket = self.file.read()
        else:
            self.entered = True
        assert before is None or before == ticket  # a second draw of noise never is
        self.stored = True

    @precondition(lambda self: self.entered)
    @rule(crash=st.booleans())
    def look(self, crash: bool) -> None:  # noqa: FBT001 - drawn
        """Read the outcome on the board; the program may die before it updates the ledger."""
        if crash:
            return
        mine = self.file.read()
        with pytest.raises(Refused):  # nobody has an answer here; the charge is what counts
            client.collect(mine, shown(self.end), ledger=self.ledger())
        self.told = True

    @invariant()
    def the_charge_is_what_happened(self) -> None:
        """Check the charge: zero before the entry, then the promise, then that of the outcome."""
        spent, worst = self.ledger().spent, self.ledger().worst
        assert spent >= self.before
        self.before = spent
        if not self.entered:
            assert worst == spent == 0
        elif self.told:
            SEEN["known"] += 1
            assert worst == spent == pytest.approx(PROMISE if self.end == "answered" else LOCAL)
        elif self.now >= DUE:
            SEEN["unknown"] += 1
            assert spent == pytest.approx(PROMISE)
            assert worst == pytest.approx(LOCAL)
        else:
            assert worst == spent == pytest.approx(PROMISE)


class Dying:
    """A ledger that ends the program before it acts."""

    def spend(self, *_: object, **__: object) -> object:
        """End the program."""
        raise KeyboardInterrupt

    def record_outcome(self, *_: object, **__: object) -> object:
        """End the program."""
        raise KeyboardInterrupt


@pytest.mark.parametrize("end", sorted(ENDS))
def test_the_ledger_charges_what_happened_for_every_outcome(end: str) -> None:
    """Over every outcome, order, time and crash; each outcome was met."""
    assert PROMISE < 0.8 * LOCAL
    assert pytest.approx(SQUARE.law.epsilon) == LOCAL
    SEEN.clear()
    person = type("Person", (Person,), {"end": end})
    run(person, settings=settings(max_examples=12, stateful_step_count=12, derandomize=True))
    assert set(SEEN) == {"known", "unknown"}


def test_an_answer_that_comes_late_frees_what_was_set_aside_but_a_refusal_stays() -> None:
    """Missing knowledge only sets ε aside; the charge of a signed outcome is final."""
    folder, now = Path(tempfile.mkdtemp()), float(DUE)
    for kind, after in (("answered", PROMISE), ("abandoned by the server", LOCAL)):
        book = Ledger.open(folder / kind[:4], epsilon=9.0, delta=1e-2, clock=lambda: now)
        mine = SMALL.invitations[0].join((0.5, 0.5), ledger=book, entropy=SMALL.entropy)
        assert [book.spent, book.worst] == pytest.approx([PROMISE, LOCAL])
        assert book.overdue == (SMALL.round.name,)
        for _ in range(2):
            with pytest.raises(Refused):
                client.collect(mine, shown(kind), ledger=book)
            assert book.worst == book.spent == pytest.approx(after)
            assert not book.overdue
    with pytest.raises(Refused):
        client.collect(mine, shown("answered"), ledger=book)
    assert book.spent == pytest.approx(LOCAL)


def test_the_ledger_names_the_rounds_without_an_outcome() -> None:
    """A person without budget learns which round to collect."""
    folder, now = Path(tempfile.mkdtemp()), float(DUE)
    book = Ledger.open(folder / "ledger", epsilon=LOCAL * 1.1, delta=1e-2, clock=lambda: now)
    SMALL.invitations[0].join((0.5, 0.5), ledger=book, entropy=SMALL.entropy)
    other = SmallRound(minimum=40, name="another").invitations[0]
    with pytest.raises(Refused, match=f"collect {SMALL.round.name}"):
        other.join((0.5, 0.5), ledger=book, entropy=SMALL.entropy)
