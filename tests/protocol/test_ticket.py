"""A person's work with a ticket: receipts, the entry, letters."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from coatcheck.errors import BadSignature, Malformed, Missing, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.client import Limit
from coatcheck.protocol.log.verification import VerifiedEntry, verify_bulletin
from coatcheck.protocol.settling.rules import Progress
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from support.rounds import OPENS, SmallRound, posting_counted

SMALL = SmallRound()
CROWD = SMALL.crowd(3)
LIMIT = Limit(epsilon=2.5, delta=1e-3)


def test_a_ticket_survives_its_file_and_does_not_print() -> None:
    """The bytes hold everything; the text form shows the address and no secret."""
    ticket = CROWD[0]
    assert read_ticket(write_ticket(ticket)) == ticket
    rich = io.StringIO()
    Console(file=rich, width=500).print(ticket)
    for text in (repr(ticket), str(ticket), f"{ticket}", rich.getvalue()):
        assert ticket.seed.hex()[:8] not in text
        assert repr(ticket.seed[:4])[2:-1] not in text
        assert ticket.keys.address.hex() in text
    for raw in (b"", b"{}", b"\xff", write_ticket(ticket).replace(b"ticket/1", b"ticket/2")):
        with pytest.raises(Malformed):
            read_ticket(raw)


@pytest.mark.parametrize(
    "wrong",
    [
        Progress(cell=(1 << 40, 0)),
        Progress(cell=(0, 0), read=1 << 40),
        Progress(cell=(0, 0), placed=[(1 << 60, b"")]),
    ],
)
def test_an_unreadable_ticket_is_never_written(wrong: Progress) -> None:
    """Data invented by others must not replace a valid ticket."""
    with pytest.raises(Refused, match="was not stored"):
        write_ticket(replace(CROWD[0], settling=wrong))


def test_only_valid_receipts_for_the_own_upload_are_stored() -> None:
    """A receipt for another upload, or a forged one, is refused."""
    shuffler = SMALL.shuffler()
    mine, theirs = (shuffler.receive(t.upload, now=OPENS) for t in CROWD[:2])
    assert client.keep_receipt(CROWD[0], mine, SMALL.round).receipt == mine
    with pytest.raises(Malformed):
        client.keep_receipt(CROWD[0], theirs, SMALL.round)
    with pytest.raises(Malformed):
        client.keep_receipt(CROWD[0], mine[:-1], SMALL.round)
    with pytest.raises(BadSignature):
        client.keep_receipt(CROWD[0], mine[:-1] + bytes([mine[-1] ^ 1]), SMALL.round)


def test_a_missing_entry_is_reported_with_the_evidence() -> None:
    """The error says that the entry is missing, and whether there is a receipt as evidence."""
    left_out = SMALL.join(0)
    bulletin = verify_bulletin(SMALL.server().answer(SMALL.batch(CROWD)), SMALL.round)
    with pytest.raises(Missing, match="no receipt"):
        client.collect(left_out, bulletin)
    receipt = SMALL.shuffler().receive(left_out.upload, now=OPENS)
    holder = client.keep_receipt(left_out, receipt, SMALL.round)
    with pytest.raises(Missing, match="receipt proves"):
        client.collect(holder, bulletin)


def test_a_ticket_works_in_its_own_round_only() -> None:
    """Terms of another round are an error."""
    bulletin = verify_bulletin(SMALL.server().answer(SMALL.batch(CROWD)), SMALL.round)
    entry = VerifiedEntry(SMALL.round, 0, bulletin.entries[0][0])
    receipt = SMALL.shuffler().receive(CROWD[0].upload, now=OPENS)
    stray = SmallRound(name="morning").join(0)
    calls = (
        lambda: client.collect(stray, bulletin),
        lambda: client.open_entry(stray, entry),
        lambda: client.keep_receipt(stray, receipt, SMALL.round),
        lambda: client.write(stray, b"", to=CROWD[1].keys.contact_raw, round_=SMALL.round),
        lambda: client.read(stray, [], SMALL.round),
    )
    for call in calls:
        with pytest.raises(Misuse, match="another round"):
            call()


def posted(sender: Ticket, body: bytes, recipient: Ticket) -> tuple[bytes, Ticket]:
    """Return a letter from one person to another."""
    return client.write(sender, body, to=recipient.keys.contact_raw, round_=SMALL.round)


def test_letters_are_read_once_and_in_any_order() -> None:
    """Replays, within a reading or later, and in any order, are refused and counted."""
    alice, bob = CROWD[0], CROWD[1]
    first, alice = posted(alice, b"one", bob)
    second, alice = posted(alice, b"two", bob)
    inbox = client.read(bob, [second, first, second], SMALL.round)
    assert [(letter.body, letter.counter) for letter in inbox.letters] == [(b"two", 1), (b"one", 0)]
    assert inbox.refused == {"Replayed": 1}
    again = client.read(read_ticket(write_ticket(inbox.ticket)), [first, second], SMALL.round)
    assert again.letters == ()
    assert again.refused == {"Replayed": 2}


def test_other_peoples_letters_are_passed_over() -> None:
    """Reading the whole board returns the person's own letters and counts nothing else."""
    raw, _ = posted(CROWD[0], b"for Bob", CROWD[1])
    inbox = client.read(CROWD[2], [raw], SMALL.round)
    assert (inbox.letters, inbox.refused) == ((), {})


def test_damaged_letters_cost_themselves_only() -> None:
    """A letter that does not open is counted, and the next one is read."""
    raw, alice = posted(CROWD[0], b"one", CROWD[1])
    good, _ = posted(alice, b"two", CROWD[1])
    altered = raw[:-1] + bytes([raw[-1] ^ 1])
    inbox = client.read(CROWD[1], [altered, b"rubbish", good], SMALL.round)
    assert [letter.body for letter in inbox.letters] == [b"two"]
    assert inbox.refused == {"Unsealable": 1, "Malformed": 1}


@pytest.mark.parametrize("counter", [2**53, 2**53 + 1, 2**64 - 1])
def test_no_letter_makes_a_ticket_unreadable(counter: int) -> None:
    """A counter that the ticket cannot hold is refused, and the ticket still decodes."""
    alice, bob = SMALL.join(0), SMALL.join(1)
    raw = posting_counted(SMALL.round, writer=alice.keys, reader=bob.keys, counter=counter)
    inbox = client.read(bob, [raw], SMALL.round)
    assert (inbox.letters, inbox.refused) == ((), {"Malformed": 1})
    assert read_ticket(write_ticket(inbox.ticket)) == bob


def test_the_highest_counter_is_read_and_kept() -> None:
    """Readers accept the largest counter; writers stop there."""
    alice, bob = SMALL.join(0), SMALL.join(1)
    raw = posting_counted(SMALL.round, writer=alice.keys, reader=bob.keys, counter=2**53 - 1)
    inbox = client.read(bob, [raw], SMALL.round)
    assert [letter.counter for letter in inbox.letters] == [2**53 - 1]
    assert read_ticket(write_ticket(inbox.ticket)) == inbox.ticket
    last = replace(alice, written=2**53)
    with pytest.raises(Misuse, match="letter's counter"):
        client.write(last, b"hi", to=bob.keys.contact_raw, round_=SMALL.round)


def test_a_letter_shows_no_sender() -> None:
    """A posting contains neither the sender's address nor keys."""
    raw, _ = posted(CROWD[0], b"one", CROWD[1])
    assert CROWD[0].keys.address not in raw
    assert CROWD[0].keys.contact_raw[:16] not in raw
    assert CROWD[1].keys.address in raw
