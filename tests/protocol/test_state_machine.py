"""The shuffler's table of transitions, and cascades."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from coatcheck.entropy import system
from coatcheck.errors import BadSignature, Malformed, Misuse, Refused
from coatcheck.protocol.outcomes import due
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.uploads import REASONS
from support.rounds import CLOSES, OPENS, SmallRound, released

SMALL = SmallRound(minimum=2)
CROWD = SMALL.crowd(3)


CASCADE = SmallRound(shufflers=2)
FIRST = CASCADE.crowd(3)
EXPIRES = SMALL.round.terms.expires


def in_phase(phase: ShufflerPhase) -> Shuffler:
    """Return a shuffler with a full crowd, brought to a phase by its transitions."""
    shuffler = SMALL.filled(CROWD)
    if phase in {ShufflerPhase.CLOSED, ShufflerPhase.RELEASED, ShufflerPhase.DELIVERED}:
        shuffler.close(now=CLOSES)
    if phase in {ShufflerPhase.RELEASED, ShufflerPhase.DELIVERED}:
        shuffler.release()
    if phase is ShufflerPhase.DELIVERED:
        shuffler.forget()
    if phase in {ShufflerPhase.ABANDONED, ShufflerPhase.ENDED}:
        shuffler.abandon()
    if phase is ShufflerPhase.ENDED:
        shuffler.tell()
    assert shuffler.phase is phase
    return shuffler


def made(shuffler: Shuffler, move: str) -> None:
    """Make a transition with valid arguments; only the phase can be wrong."""
    calls: dict[str, Callable[[], object]] = {
        "receive": lambda: shuffler.receive(SMALL.join(0).upload, now=OPENS),
        "accept": lambda: shuffler.accept(b""),
        "close": lambda: shuffler.close(now=CLOSES),
        "reopen": lambda: shuffler.reopen(now=CLOSES),
        "release": shuffler.release,
        "forget": shuffler.forget,
        "abandon": shuffler.abandon,
        "expire": lambda: shuffler.expire(now=due(SMALL.round, 1)),
        "hear": lambda: shuffler.hear(b""),
        "tell": shuffler.tell,
    }
    calls[move]()


NAMES = sorted({move for _, move, _ in SHUFFLER_TRANSITIONS})


@pytest.mark.parametrize("move", NAMES)
@pytest.mark.parametrize("phase", ShufflerPhase)
def test_the_table_is_complete(phase: ShufflerPhase, move: str) -> None:
    """A listed pair leads to its listed phase; every other pair changes nothing."""
    shuffler = in_phase(phase)
    before = msgspec.msgpack.encode(shuffler.state)
    if (phase, move) == (ShufflerPhase.RELEASED, "release"):
        assert shuffler.release() == shuffler.state.batch  # a repeat is no move
    elif phase is ShufflerPhase.OPEN and move in {"accept", "hear"}:
        with pytest.raises(Malformed):  # allowed, but only a later shuffler has any before it
            made(shuffler, move)
    elif SHUFFLER_TRANSITIONS.allows(phase, move):
        made(shuffler, move)
        assert shuffler.phase is SHUFFLER_TRANSITIONS.after(phase, move)
        return
    else:
        with pytest.raises(Refused, match=f"that is {phase.value}"):
            made(shuffler, move)
    assert msgspec.msgpack.encode(shuffler.state) == before


def test_a_later_shuffler_closes_with_its_batch() -> None:
    """The batch closes the round, and no more can arrive, so it is never reopened."""
    second = CASCADE.shuffler(1)
    end = due(CASCADE.round, 1)
    assert not second.expired(now=end - 1)
    with pytest.raises(Refused, match="can still be released"):
        second.expire(now=end - 1)
    assert second.expired(now=end)
    second.accept(_first_batch(CASCADE, FIRST))
    assert second.phase is ShufflerPhase.CLOSED
    assert second.expired(now=OPENS)
    with pytest.raises(Refused, match="let it expire"):
        second.reopen(now=OPENS)
    second.expire(now=OPENS)
    assert second.state.phase is ShufflerPhase.ABANDONED
    assert not any(second.state.secret)
    assert second.state.incoming == b""


def test_a_first_shuffler_is_reopened_until_it_expires() -> None:
    """Up to the second before its end it reopens; from then on it can only expire."""
    shuffler = in_phase(ShufflerPhase.CLOSED)
    with pytest.raises(Refused, match="can still be released"):
        shuffler.expire(now=EXPIRES - 1)
    with pytest.raises(Refused, match="let it expire"):
        shuffler.reopen(now=EXPIRES)
    shuffler.reopen(now=EXPIRES - 1)
    assert shuffler.crowd == (3, 3)
    shuffler.expire(now=EXPIRES)
    assert shuffler.crowd == (0, 0)


def test_a_lost_receipt_is_given_again_while_the_round_is_closed() -> None:
    """An accepted upload is known until the release; a new one is refused."""
    shuffler = in_phase(ShufflerPhase.CLOSED)
    first = SMALL.filled(CROWD).receive(CROWD[0].upload, now=OPENS)
    assert shuffler.receive(CROWD[0].upload, now=OPENS)[:84] == first[:84]
    with pytest.raises(Refused, match="closed"):
        shuffler.receive(SMALL.join(0).upload, now=OPENS)


def test_the_time_for_uploads_is_exact() -> None:
    """The first and the last second count, the seconds around them do not."""
    shuffler = SMALL.shuffler()
    for now, is_open in ((OPENS - 1, False), (OPENS, True), (EXPIRES - 1, True), (EXPIRES, False)):
        upload = SMALL.join(0).upload
        if is_open:
            shuffler.receive(upload, now=now)
            continue
        with pytest.raises(Refused, match=r"not open|expired"):
            shuffler.receive(upload, now=now)


def test_the_sealing_key_must_be_that_of_the_terms() -> None:
    """The right signing key with another sealing key starts no shuffler."""
    keys = SmallRound(minimum=2).roles.shufflers[0]
    keys.opening = SMALL.roles.server.opening
    with pytest.raises(Misuse, match="sealing key"):
        Shuffler(SMALL.round, keys=keys, state=fresh_state(system()))


def test_equal_items_of_a_batch_are_one() -> None:
    """If a first shuffler passes an item on twice, the copy is counted as repeated."""
    raw = _first_batch(CASCADE, FIRST)
    batch = Batch.decode(raw, CASCADE.round)
    tallies = (replace(batch.tallies[0], received=7), batch.tallies[1])
    items = ([[*batch.items[0], batch.items[0][0]]], [batch.items[1]])
    double = Batch.compose(items, tallies, digest=CASCADE.round.digest)
    second = CASCADE.shuffler(1)
    CASCADE.upload(FIRST, second)
    signing = CASCADE.roles.shufflers[0].signing
    second.accept(double.sign(signing.sign))
    tally = Batch.decode(second.release(), CASCADE.round).tallies[0]
    assert (tally.received, tally.kept, tally.traps) == (7, 3, 3)
    assert tally.dropped[REASONS.index("repeated")] == 1


def test_a_cascade_takes_batches_of_its_neighbor_only() -> None:
    """The second shuffler refuses uploads, foreign signatures, other items and a second batch."""
    small, tickets = CASCADE, FIRST
    raw, other = _first_batch(small, tickets), _first_batch(small, small.crowd(3))
    second = small.shuffler(1)
    small.upload(tickets, second)
    with pytest.raises(Malformed):
        second.receive(tickets[0].upload, now=OPENS)
    with pytest.raises(Refused, match="has not arrived"):
        second.close(now=CLOSES)
    with pytest.raises(BadSignature):
        second.accept(flipped(raw, at=36 + 4 * 36))
    with pytest.raises(Malformed, match="hash"):
        second.accept(flipped(raw, at=len(raw) - 1))
    second.accept(raw)
    second.accept(raw)
    with pytest.raises(Refused, match="another batch"):
        second.accept(other)
    batch = Batch.decode(released(second), small.round)
    assert [tally.kept for tally in batch.tallies] == [3, 3]
    with pytest.raises(Malformed):
        small.shuffler(0).accept(raw)


def flipped(raw: bytes, *, at: int) -> bytes:
    """Flip one bit."""
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def _first_batch(small: SmallRound, tickets: Sequence[Ticket]) -> bytes:
    shuffler = small.shuffler(0)
    for ticket in tickets:
        shuffler.receive(ticket.upload, now=OPENS)
    return released(shuffler)
