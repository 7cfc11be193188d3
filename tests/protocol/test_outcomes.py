"""Outcomes of a round: the counts in a heading, who may sign it, and its deadlines."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from coatcheck.errors import BadSignature, Malformed, Refused
from coatcheck.protocol import client
from coatcheck.protocol.log.merkle import MemoryKeyValueStore
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.outcomes import (
    FEW_REPORTS,
    FEW_TRAPS,
    LATE,
    NO_REASON,
    OPERATOR,
    REASONS,
    TASK,
    abandonment,
    answer_due,
    check_not_overdue,
    due,
    inconsistency,
    outcome_due,
    outcome_text,
    pending_text,
)
from coatcheck.protocol.state_machine import ServerPhase, ShufflerPhase
from coatcheck.protocol.wire.bulletins import (
    ABANDONED,
    ANSWERED,
    REFUSED,
    SERVER,
    Bulletin,
    Heading,
)
from coatcheck.protocol.wire.uploads import Tally
from support.rounds import CLOSES, OPENS, SmallRound, released

SMALL = SmallRound(minimum=2, shufflers=2)
ENOUGH, FEW, NONE = (Tally(2), Tally(3)), (Tally(2), Tally(1)), (Tally(0), Tally(0))
HOPS = SMALL.roles.shufflers


def ending(
    outcome: int, reason: int = 0, who: int = SERVER, tallies: Sequence[Tally] = NONE
) -> Bulletin:
    """Return an outcome without entries, valid or not."""
    none: list[list[bytes]] = [[], []]
    counts = (tallies, [bytes(32)] * 2)
    return Bulletin.compose(none, outcome, SMALL.round.digest, *counts, reason=reason, signer=who)


def signed(bulletin: Bulletin, *, as_shuffler: int | None = None) -> bytes:
    """Sign an outcome as the server or as a shuffler."""
    keys = SMALL.roles.server if as_shuffler is None else HOPS[as_shuffler]
    return bulletin.signed(keys.signing.sign).encode()


GOOD = [
    (ANSWERED, NO_REASON, SERVER, ENOUGH),
    (REFUSED, FEW_REPORTS, SERVER, FEW),
    (REFUSED, FEW_REPORTS, SERVER, NONE),
    (REFUSED, TASK, SERVER, ENOUGH),
    *((ABANDONED, reason, who, NONE) for reason in (1, 2, 4, 5) for who in (0, 1, SERVER)),
]


def test_which_headings_have_valid_counts() -> None:
    """Of all outcomes, reasons, signers and counts only those of SPEC's table are valid."""
    for outcome in REASONS:
        for reason in range(7):
            for who in (0, 1, SERVER):
                for tallies in (ENOUGH, FEW, NONE):
                    heading = ending(outcome, reason, who, tallies).heading
                    good = (outcome, reason, who, tallies) in GOOD
                    assert (inconsistency(heading, SMALL.round) == "") == good, heading


@pytest.mark.parametrize("case", [case for case in GOOD if case[0] != ANSWERED])
def test_the_board_accepts_a_valid_outcome_from_its_signer(
    case: tuple[int, int, int, tuple[Tally, ...]],
) -> None:
    """It shows the outcome once, at one place, and its text names the signer and the reason."""
    bulletin = ending(*case)
    who = None if case[2] == SERVER else case[2]
    board, raw = SMALL.board(), signed(bulletin, as_shuffler=who)
    assert board.publish(raw, SMALL.round) == board.publish(raw, SMALL.round) == 1
    shown = verify_bulletin(board.bulletin(SMALL.round.digest), SMALL.round)
    name = SMALL.round.terms.server.name if who is None else SMALL.round.terms.shufflers[who].name
    assert name in outcome_text(shown.heading, SMALL.round)


def test_the_board_refuses_headings_with_invalid_counts() -> None:
    """This holds even if the right key signed them."""
    board = SMALL.board()
    for bulletin in (ending(ANSWERED, tallies=NONE), ending(REFUSED, FEW_REPORTS, tallies=ENOUGH)):
        with pytest.raises(Malformed, match="inconsistent"):
            board.publish(signed(bulletin), SMALL.round)
    assert len(board) == 1


def test_each_signs_under_its_own_name_and_label() -> None:
    """A shuffler's signature is not valid for the server, another shuffler or another label."""
    board = SMALL.board()
    first, own = ending(ABANDONED, LATE, 0), ending(ABANDONED, LATE, SERVER)
    for forged in (
        signed(first),  # the server for a shuffler
        signed(first, as_shuffler=1),
        signed(own, as_shuffler=0),  # a shuffler for the server
        _mislabelled(first),
    ):
        with pytest.raises(BadSignature):
            board.publish(forged, SMALL.round)
        with pytest.raises(BadSignature):
            verify_bulletin(forged, SMALL.round)


def _mislabelled(bulletin: Bulletin) -> bytes:
    label = b"coatcheck/v1/bulletin\0"
    signature = HOPS[0].signing.sign(label + bulletin.heading.body())
    return Bulletin(replace(bulletin.heading, signature=signature), ((), ())).encode()


def test_the_first_outcome_stays() -> None:
    """Whatever a party sends later, the board keeps the first outcome."""
    crowd = SMALL.crowd(3)
    answers = SMALL.server().answer(SMALL.batch(crowd))
    word = signed(ending(ABANDONED, LATE, 1), as_shuffler=1)
    for first, second in ((answers, word), (word, answers)):
        key_values = MemoryKeyValueStore()
        board = SMALL.board(key_values)
        board.publish(first, SMALL.round)
        with pytest.raises(Refused, match="another outcome"):
            board.publish(second, SMALL.round)
        assert board.bulletin(SMALL.round.digest) == first
        board.save()
        again = SMALL.board(key_values)
        assert again.checkpoint() == board.checkpoint()


def test_the_shares_of_the_grace() -> None:
    """SPEC section 9, computed by hand: k + 2 equal shares, and a deadline for each role."""
    terms = SMALL.round.terms
    assert terms.grace == 3600
    assert [due(SMALL.round, n) - terms.expires for n in range(5)] == [0, 900, 1800, 2700, 3600]
    assert answer_due(SMALL.round) == terms.expires + 2700
    assert outcome_due(SMALL.round) == terms.expires + 3600


def test_a_shuffler_abandons_at_its_deadlines() -> None:
    """The first at `expires` or at the next one's deadline, a later one at its own."""
    first, second = SMALL.shuffler(0), SMALL.shuffler(1)
    expires = SMALL.round.terms.expires
    assert first.overdue(now=expires - 1) == NO_REASON
    assert first.overdue(now=expires) == FEW_REPORTS
    assert second.overdue(now=expires + 899) == NO_REASON
    assert second.overdue(now=expires + 900) == LATE
    for ticket in SMALL.crowd(3):
        first.receive(ticket.upload, now=OPENS)
    batch = released(first)
    assert first.overdue(now=expires + 899) == NO_REASON
    with pytest.raises(Refused, match=r"can still be released|not overdue"):
        first.expire(now=expires + 899)
    second.accept(batch)
    assert second.overdue(now=OPENS) == FEW_TRAPS  # its one batch came: only if it falls short
    end = first.expire(now=expires + 900)
    assert (first.phase, first.state.batch) == (ShufflerPhase.ABANDONED, b"")
    assert verify_bulletin(end, SMALL.round).heading.reason == LATE
    first.tell()
    assert first.phase is ShufflerPhase.ENDED


def test_a_role_accepts_outcomes_of_earlier_shufflers_only() -> None:
    """Its own, a later shuffler's and the server's outcome end nothing; with a batch, none does."""
    word = [signed(ending(ABANDONED, OPERATOR, hop), as_shuffler=hop) for hop in (0, 1)]
    own = signed(ending(ABANDONED, LATE))
    second, server = SMALL.shuffler(1), SMALL.server()
    refused: list[tuple[Callable[[bytes], bytes], bytes]] = [
        (SMALL.shuffler(0).hear, word[0]),
        (second.hear, word[1]),
        (second.hear, own),
        (server.hear, own),
        (server.hear, signed(ending(REFUSED, FEW_REPORTS))),
        (server.hear, SMALL.server().answer(SMALL.batch(SMALL.crowd(3)))),
    ]
    for hear, raw in refused:
        with pytest.raises(Malformed):
            hear(raw)
    assert second.hear(word[0]) == second.state.outcome == word[0]
    assert server.hear(word[1]) == word[1]
    assert (second.phase, server.phase) == (ShufflerPhase.ABANDONED, ServerPhase.ABANDONED)
    busy = SMALL.server()
    busy.accept(SMALL.batch(SMALL.crowd(3)))
    with pytest.raises(Refused, match="has the batch"):
        busy.hear(word[0])


def test_a_server_ends_a_round_whose_batch_never_came() -> None:
    """At its deadline and not before; afterwards it accepts no batch."""
    server, last = SMALL.server(), due(SMALL.round, 2)
    with pytest.raises(Refused, match=r"can still be released|not overdue"):
        server.abandon(now=last - 1)
    heading = verify_bulletin(server.abandon(now=last), SMALL.round).heading
    assert (heading.outcome, heading.reason, heading.signer) == (ABANDONED, LATE, SERVER)
    with pytest.raises(Refused, match="that is abandoned"):
        server.accept(SMALL.batch(SMALL.crowd(3)))


def test_a_missing_outcome_is_owed() -> None:
    """Before the deadline a person waits; afterwards the error names the party that owes it."""
    last, server = outcome_due(SMALL.round), SMALL.round.terms.server.name
    check_not_overdue(SMALL.round, now=last - 1)
    assert "is due by" in pending_text(SMALL.round, now=last - 1)
    with pytest.raises(Refused, match=f"the server '{server}' has owed since"):
        check_not_overdue(SMALL.round, now=last)
    board = SMALL.round.terms.board.name
    assert f"the board '{board}' owes it" in pending_text(SMALL.round, now=last)


def test_a_receipt_stands_against_a_heading_that_counts_nobody() -> None:
    """A refused round that counts nobody in the person's group contradicts the receipt."""
    shuffler, mine = SMALL.shuffler(), SMALL.join(1)
    receipt = shuffler.receive(mine.upload, now=CLOSES)
    kept = client.keep_receipt(mine, receipt, SMALL.round)
    denied = verify_bulletin(
        signed(ending(REFUSED, FEW_REPORTS, tallies=(Tally(2), Tally(0)))), SMALL.round
    )
    with pytest.raises(Refused, match="inconsistent"):
        client.collect(kept, denied)
    with pytest.raises(Refused, match="refused the round"):
        client.collect(mine, denied)


def test_an_outcome_decodes_to_what_was_encoded() -> None:
    """Reason and signer survive the wire, and every reason has its text."""
    for reason in (FEW_REPORTS, FEW_TRAPS, LATE, OPERATOR):
        word = abandonment(SMALL.round, reason=reason, signer=1).signed(HOPS[1].signing.sign)
        heading = Heading.decode(word.encode())
        assert (heading.reason, heading.signer) == (reason, 1)
        assert outcome_text(heading, SMALL.round)
