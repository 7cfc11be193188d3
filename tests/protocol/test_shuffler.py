"""The shuffler: receipts, crowds, layers, the order, and deletion."""

import hashlib
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coatcheck.entropy import seeded, system
from coatcheck.errors import BadSignature, Malformed, Misuse, Refused
from coatcheck.protocol.outcomes import LATE, NO_REASON, due
from coatcheck.protocol.shuffler import Shuffler, ShufflerState, fresh_state
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.ticket import Receipt
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.uploads import Upload
from support.rounds import CLOSES, OPENS, SmallRound, released

SMALL = SmallRound(minimum=2)
CROWD = SMALL.crowd(3)


def restarted(shuffler: Shuffler) -> Shuffler:
    """Encode the state and restart from it."""
    raw = msgspec.msgpack.encode(shuffler.state)
    state = msgspec.msgpack.decode(raw, type=ShufflerState)
    return Shuffler(shuffler.round, keys=SMALL.roles.shufflers[shuffler.hop], state=state)


def test_the_same_bytes_get_a_receipt_again() -> None:
    """A retry changes nothing and gets a receipt again, even after a restart."""
    shuffler = SMALL.shuffler()
    first = shuffler.receive(CROWD[0].upload, now=OPENS)
    again = restarted(shuffler).receive(CROWD[0].upload, now=OPENS + 1)
    assert shuffler.crowd == (1, 0)
    for raw in (first, again, shuffler.receive(CROWD[0].upload, now=OPENS)):
        receipt = Receipt.decode(raw)
        receipt.check(SMALL.roles.shufflers[0].signing.public)
        assert receipt.body() == Receipt.decode(first).body()


def test_other_bytes_under_the_same_id_are_refused() -> None:
    """A new report under a used id would count twice: it changes nothing."""
    shuffler = SMALL.shuffler()
    shuffler.receive(CROWD[0].upload, now=OPENS)
    first, other, driver = (Upload.decode(CROWD[n].upload, SMALL.round) for n in (0, 2, 1))
    for body, group in ((other.body, 0), (driver.body, 1)):
        clash = Upload(group, first.digest, first.id, body).encode(SMALL.round)
        with pytest.raises(Refused, match="under this id"):
            shuffler.receive(clash, now=OPENS)
    assert shuffler.crowd == (1, 0)


def test_every_wrong_length_is_refused_before_any_cryptography(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From nothing to twice the size only one length passes, and no key is used for others."""
    shuffler = SMALL.shuffler()
    raw = CROWD[0].upload
    monkeypatch.setattr(shuffler, "_keys", None)
    for size in itertools.chain(range(len(raw)), range(len(raw) + 1, 2 * len(raw))):
        with pytest.raises(Malformed):
            shuffler.receive((raw + raw)[:size], now=OPENS)
    assert shuffler.crowd == (0, 0)


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 35), change=st.integers(1, 255))
def test_an_upload_for_elsewhere_is_refused(at: int, change: int) -> None:
    """Another version, suite, group or digest in the header is refused."""
    raw = bytearray(CROWD[0].upload)
    raw[at] ^= change
    shuffler = SMALL.shuffler()
    if at == 2 and raw[2] == 1:
        shuffler.receive(bytes(raw), now=OPENS)  # the other group: it will not open there
        return
    with pytest.raises(Malformed):
        shuffler.receive(bytes(raw), now=OPENS)


def test_early_and_late_uploads_are_refused() -> None:
    """Uploads before the opening, after the expiry and after the release are refused."""
    shuffler = SMALL.filled(CROWD)
    late = SMALL.join(0)
    for now in (OPENS - 1, SMALL.round.terms.expires):
        with pytest.raises(Refused):
            shuffler.receive(late.upload, now=now)
    released(shuffler)
    with pytest.raises(Refused):
        shuffler.receive(late.upload, now=CLOSES)


def test_no_release_before_its_time_or_below_the_minimum() -> None:
    """One group below its minimum holds back all groups; the round stays open."""
    shuffler = SMALL.shuffler()
    for ticket in CROWD[:3]:
        shuffler.receive(ticket.upload, now=OPENS)
    with pytest.raises(Refused, match="is open"):
        shuffler.close(now=CLOSES - 1)
    with pytest.raises(Refused, match="1 of the 2"):
        shuffler.close(now=CLOSES)
    assert (shuffler.phase, shuffler.crowd) == (ShufflerPhase.OPEN, (2, 1))
    with pytest.raises(Refused, match="open"):
        shuffler.release()
    shuffler.receive(CROWD[3].upload, now=CLOSES)
    shuffler.close(now=CLOSES)
    shuffler.release()


def test_uploads_that_do_not_open_count_for_nobody() -> None:
    """Invalid bytes of the right size do not count towards the crowd and are dropped."""
    shuffler = SMALL.shuffler()
    rubbish = [
        Upload(0, SMALL.round.digest, bytes([n]) * 16, bytes(168)).encode(SMALL.round)
        for n in range(5)
    ]
    for raw in (*rubbish, CROWD[0].upload, CROWD[1].upload, CROWD[3].upload):
        shuffler.receive(raw, now=OPENS)
    shuffler.close(now=CLOSES)
    with pytest.raises(Refused, match="1 of the 2"):
        shuffler.release()
    assert shuffler.phase is ShufflerPhase.CLOSED
    shuffler.reopen(now=CLOSES)
    shuffler.receive(CROWD[2].upload, now=OPENS)
    batch = Batch.decode(released(shuffler), SMALL.round)
    assert (batch.tallies[0].received, batch.tallies[0].dropped[0]) == (7, 5)
    assert batch.tallies[0].kept == len(batch.items[0]) == 2


def test_the_first_shuffler_of_a_cascade_needs_people_for_the_slack_too() -> None:
    """Minimum and slack count at the close, and again those that opened at the release (S10.31)."""
    small = SmallRound(minimum=2, shufflers=2)
    shuffler, tickets = small.shuffler(), small.crowd(3)
    small.upload(tickets[:5], shuffler)
    with pytest.raises(Refused, match="2 of the 3"):
        shuffler.close(now=CLOSES)
    last = Upload.decode(tickets[5].upload, small.round)
    rubbish = Upload(last.group, last.digest, last.id, bytes(len(last.body)))
    shuffler.receive(rubbish.encode(small.round), now=OPENS)
    shuffler.close(now=CLOSES)
    with pytest.raises(Refused, match="2 of the 3"):
        shuffler.release()


def test_a_later_shuffler_without_a_batch_is_overdue_when_its_time_comes() -> None:
    """From the second on which the batch is due, the round must be abandoned as late."""
    small = SmallRound(minimum=2, shufflers=2)
    shuffler = small.shuffler(1)
    at = due(small.round, 1)
    assert [shuffler.overdue(now=now) for now in (at - 1, at)] == [NO_REASON, LATE]


def test_a_copied_body_under_another_id_does_not_open() -> None:
    """A copied sealed report is dropped; the owner's stays."""
    shuffler = SMALL.shuffler()
    owner = Upload.decode(CROWD[0].upload, SMALL.round)
    copy = Upload(0, owner.digest, b"another name, ok", owner.body).encode(SMALL.round)
    shuffler.receive(copy, now=OPENS)
    for ticket in CROWD:
        shuffler.receive(ticket.upload, now=OPENS)
    batch = Batch.decode(released(shuffler), SMALL.round)
    assert batch.tallies[0].kept == 3
    assert batch.tallies[0].dropped[0] == 1


def test_no_sixteen_bytes_are_common_to_upload_and_batch() -> None:
    """No output can be matched with an input by its bytes, at any hop of a cascade."""
    small = SmallRound(minimum=2, shufflers=2)
    tickets = small.crowd(4)
    seen = [[ticket.upload for ticket in tickets]]
    raw = b""
    for hop in range(2):
        shuffler = small.shuffler(hop)
        small.upload(tickets, shuffler)
        if hop:
            shuffler.accept(raw)
        raw = released(shuffler)
        batch = Batch.decode(raw, small.round)
        seen.append([item for group in batch.items for item in group])
    for before, after in itertools.combinations(seen, 2):
        windows = {item[at : at + 16] for item in before for at in range(len(item) - 15)}
        assert not any(
            item[at : at + 16] in windows for item in after for at in range(len(item) - 15)
        )


def test_a_restart_does_not_change_the_order() -> None:
    """A crash before, during or after the release gives the same items in the same order."""
    shuffler = SMALL.filled(CROWD)
    twin = restarted(shuffler)
    first = released(shuffler)
    assert released(twin) == first
    assert released(restarted(shuffler)) == first


def test_the_order_does_not_depend_on_arrival() -> None:
    """One secret gives the same order for any order of arrival."""
    secret = SMALL.shuffler().state.secret
    batches = set()
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 1, 4]):
        state = ShufflerState(bytearray(secret))
        shuffler = Shuffler(SMALL.round, keys=SMALL.roles.shufflers[0], state=state)
        for place in order:
            shuffler.receive(CROWD[place].upload, now=OPENS)
        batches.add(released(shuffler))
    assert len(batches) == 1


def test_the_rank_is_the_specs() -> None:
    """SPEC section 10, computed by hand: 16 bytes under a secret of 32, by group and digest."""
    shuffler = SMALL.shuffler()
    secret, name = bytes(shuffler.state.secret), b"n" * 16
    for group in (0, 1):
        data = bytes([group]) + SMALL.round.digest + name
        by_hand = hashlib.blake2b(data, key=secret, digest_size=16, person=b"coatcheck order\0")
        assert shuffler.peeler.rank(group, name) == by_hand.digest()
    assert len(secret) == 32


def test_the_order_is_uniform() -> None:
    """All 24 orders of four uploads are equally frequent over 4,800 rounds.

    Chi-square with 23 degrees of freedom; the seed is fixed, and for a fresh seed a uniform
    order would fail with probability 1e-4.
    """
    small = SmallRound(seed=7)
    uploads = [small.join(0).upload for _ in range(4)]
    names = [Upload.decode(raw, small.round).id for raw in uploads]
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for _ in range(4_800):
        shuffler = Shuffler(
            small.round,
            keys=small.roles.shufflers[0],
            state=fresh_state(small.entropy, simulated=True),
        )
        ranks = [shuffler.peeler.rank(0, name) for name in names]
        counts[tuple(sorted(range(4), key=ranks.__getitem__))] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_released_batches_follow_the_ranks() -> None:
    """Whole small rounds: every order of three occurs, and not by arrival.

    Chi-square over 360 rounds with 5 degrees of freedom, seed fixed; false alarm 1e-4.
    """
    small = SmallRound(seed=11)
    tickets = small.crowd(3)
    first = Batch.decode(small.batch(tickets), small.round).items[0]
    counts = dict.fromkeys(itertools.permutations(sorted(first)), 0)
    for _ in range(360):
        items = Batch.decode(small.batch(tickets), small.round).items[0]
        counts[items] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_after_release_nothing_is_kept() -> None:
    """The secret and the uploads are deleted at once, the batch on delivery."""
    shuffler = SMALL.filled(CROWD)
    secret = bytes(shuffler.state.secret)
    raw = released(shuffler)
    stored = msgspec.msgpack.encode(shuffler.state)
    assert secret not in stored
    assert not any(ticket.upload[52:68] in stored for ticket in CROWD)
    assert released(shuffler) == raw
    shuffler.forget()
    assert shuffler.state.batch == b""
    with pytest.raises(Refused, match="delivered"):
        released(shuffler)


def test_an_abandoned_round_forgets_and_stays_shut() -> None:
    """Nothing enters or leaves the round any more."""
    shuffler = SMALL.filled(CROWD)
    shuffler.abandon()
    assert shuffler.crowd == (0, 0)
    assert not any(shuffler.state.secret)
    for move in (
        lambda: released(shuffler),
        lambda: shuffler.receive(CROWD[0].upload, now=OPENS),
        shuffler.forget,
        shuffler.abandon,
    ):
        with pytest.raises(Refused):
            move()
    assert shuffler.phase is ShufflerPhase.ABANDONED


def test_the_secret_of_the_order_is_not_seeded() -> None:
    """A repeatable secret would reveal the order: only simulations may have one."""
    with pytest.raises(Refused, match="simulations"):
        fresh_state(seeded(1))
    assert any(fresh_state(system()).secret)
    assert any(fresh_state(seeded(1), simulated=True).secret)


def test_only_the_named_keys_run_a_shuffler() -> None:
    """The server's keys, or a stranger's, cannot start a shuffler."""
    for keys in (SMALL.roles.server, SmallRound(seed=5).roles.shufflers[0]):
        with pytest.raises(Misuse):
            Shuffler(
                SMALL.round,
                keys=keys,
                state=fresh_state(SMALL.entropy, simulated=True),
            )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_altered_batches_do_not_pass(data: st.DataObject) -> None:
    """A batch that is cut, grown or changed anywhere does not decode or verify."""
    raw = bytearray(BATCH)
    how = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    if how == "flip":
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        raw += b"\0"
    with pytest.raises((Malformed, BadSignature)):
        SMALL.server().answer(bytes(raw))


BATCH = SMALL.batch(CROWD)
