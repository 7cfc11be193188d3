"""The server: what it drops and why, when it refuses, and answers of one equal size."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from coatcheck.domains import Ball, Box, Categories
from coatcheck.entropy import seeded
from coatcheck.errors import BadSignature, Malformed, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.drafting import GroupPlan, draft_groups
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.server import Server, is_possible, numbers, refusal
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase, ServerState
from coatcheck.protocol.terms import CLASSICAL, Round
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import ANSWERED, REFUSED, Bulletin
from coatcheck.protocol.wire.messages import PayloadFormat, encode_report
from coatcheck.protocol.wire.uploads import REASONS, Upload
from coatcheck.randomizers import GridResponse, MinkowskiResponse
from coatcheck.tasks import Answers, Floats
from support.rounds import SQUARE, Echo, SmallRound, released, upload_of

SMALL = SmallRound(minimum=3)
HONEST = SMALL.crowd(4)
PAYLOAD = PayloadFormat.between(SQUARE.low, SQUARE.high).encode((0, 0))
KEYS = KeyPairs(CLASSICAL, b"k" * 32)
LOW_ORDER = bytes(32) + KEYS.contact_raw[32:]
SMALL_ORDER = KEYS.contact_raw[:32] + (1).to_bytes(32, "little")


def upload(text: bytes, name: int) -> bytes:
    """Wrap a report as a client would, whatever its bytes."""
    return upload_of(text, SMALL.round, group=0, name=bytes([name]) * 16)


def report(contact: bytes = KEYS.contact_raw, payload: bytes = PAYLOAD) -> bytes:
    """Return a rider's report."""
    return encode_report(SMALL.round, group=0, contact=contact, payload=payload, note=b"")


def ticket(raw: bytes) -> Ticket:
    """Wrap any upload as a ticket."""
    first = HONEST[0]
    return Ticket(
        round=first.round,
        digest=first.digest,
        suite=first.suite,
        group=0,
        seed=first.seed,
        upload=raw,
    )


@pytest.mark.parametrize(
    ("reason", "texts"),
    [
        ("malformed", [b"\2" + report()[1:]]),
        ("malformed", [report()[:1] + b"\1" + report()[2:]]),
        ("bad-key", [report(LOW_ORDER)]),
        ("bad-key", [report(SMALL_ORDER)]),
        ("bad-key", [report(b"\xff" * 64)]),
        ("out-of-domain", [report(payload=b"\xff" * len(PAYLOAD))]),
        ("duplicate-address", [report(), report()]),
        ("unpeeled", []),
        ("unopened", []),
    ],
)
def test_one_bad_report_costs_itself_only(reason: str, texts: list[bytes]) -> None:
    """The other reports are answered, and the drop is counted under its reason."""
    bad = [ticket(upload(text, n)) for n, text in enumerate(texts)]
    if reason == "unpeeled":
        raw = bytearray(upload(report(), 1))
        raw[-1] ^= 1
        bad = [ticket(bytes(raw))]
    if reason == "unopened":
        elsewhere = SmallRound(seed=5, name="elsewhere")
        bad = [ticket(_foreign_inner(elsewhere))]
    batch = SMALL.batch([*HONEST, *bad])
    server = SMALL.server()
    bulletin = verify_bulletin(server.answer(batch), SMALL.round)
    tally = bulletin.heading.tallies[0]
    assert server.phase is ServerPhase.ANSWERED
    assert tally.received == 4 + len(bad)
    assert tally.dropped == tuple(int(name == reason) for name in REASONS)
    for mine in HONEST:
        client.collect(mine, bulletin)


def _foreign_inner(elsewhere: SmallRound) -> bytes:
    """Put a report sealed for another round's server under this round's outer layer."""
    terms = replace(SMALL.round.terms, server=elsewhere.round.terms.server)
    mixed = Round(terms, SMALL.round.document)
    return upload_of(report(), mixed, group=0, name=b"u" * 16)


def test_one_pair_of_keys_is_answered_in_one_group() -> None:
    """Keys that took part in one group are a duplicate in the other."""
    rider = HONEST[0].keys.contact_raw
    text = encode_report(SMALL.round, group=1, contact=rider, payload=PAYLOAD, note=b"")
    raw = upload_of(text, SMALL.round, group=1, name=b"t" * 16)
    server = SMALL.server()
    bulletin = verify_bulletin(server.answer(SMALL.batch([*HONEST, ticket(raw)])), SMALL.round)
    place = REASONS.index("duplicate-address")
    assert [tally.dropped[place] for tally in bulletin.heading.tallies] == [0, 1]


def test_a_report_off_the_ball_is_out_of_domain() -> None:
    """A report inside the bounding box but outside the ball is not valid."""
    disc = MinkowskiResponse(domain=Ball(radius=1.0, p=2, dimension=2), epsilon=2.0, radius=0.5)
    corner = np.stack([disc.high, np.zeros(2, dtype=np.int64)])
    assert is_possible(disc, corner, np.array([True, True])).tolist() == [False, True]
    honest = disc.randomize(np.zeros((500, 2)), seeded(3))
    assert is_possible(disc, honest, np.ones(500, dtype=np.bool_)).all()


def test_below_the_minimum_after_dropping_the_round_is_refused() -> None:
    """Invalid reports that passed the shuffler do not count towards the minimum."""
    bad = [ticket(upload(report(LOW_ORDER), n)) for n in range(2)]
    server = SMALL.server()
    raw = server.answer(SMALL.batch([*HONEST[:4], HONEST[5], HONEST[7], *bad]))
    bulletin = verify_bulletin(raw, SMALL.round)
    assert server.phase is ServerPhase.REFUSED
    assert bulletin.heading.outcome == REFUSED
    assert bulletin.entries == ((), ())
    with pytest.raises(Refused, match="too few"):
        client.collect(HONEST[0], bulletin)


def test_the_same_batch_gives_the_same_bulletin() -> None:
    """A retry and a restart find the stored bulletin; another batch is refused."""
    server, batch = SMALL.server(), SMALL.batch(HONEST)
    first = server.answer(batch)
    assert server.answer(batch) == first
    again = Server(SMALL.round, keys=SMALL.roles.server, task=Echo(), state=server.state)
    assert again.answer(batch) == first
    with pytest.raises(Refused, match="another batch"):
        server.answer(SMALL.batch(SMALL.crowd(3)))
    assert server.answer(batch) == first


@pytest.mark.parametrize("phase", ServerPhase)
def test_a_batch_is_accepted_in_its_phase_only(phase: ServerPhase) -> None:
    """A round that awaits no batch, or is over, accepts none, and nothing changes."""
    state = ServerState(phase)
    server = Server(SMALL.round, keys=SMALL.roles.server, task=Echo(), state=state)
    batch = SMALL.batch(HONEST)
    if SERVER_TRANSITIONS.allows(phase, "accept"):
        server.accept(batch)
        assert server.phase is SERVER_TRANSITIONS.after(phase, "accept")
        return
    for move in (server.accept, server.answer):
        with pytest.raises(Refused, match=f"that is {phase.value}"):
            move(batch)
    assert server.state == ServerState(phase)


def test_a_refusal_counts_what_the_batch_says() -> None:
    """A batch that the task cannot answer gives a signed bulletin without entries."""
    batch = SMALL.batch(HONEST)
    raw = refusal(batch, round_=SMALL.round, keys=SMALL.roles.server)
    heading = Bulletin.decode(raw, SMALL.round).heading
    SMALL.roles.server.signing.public.check(heading.signature, heading.signed_part())
    assert (heading.outcome, heading.sizes) == (REFUSED, (0, 0))
    assert [tally.kept for tally in heading.tallies] == [4, 4]


def test_every_answer_of_a_group_has_one_size() -> None:
    """An entry is an address and as many bytes as in the terms; entries are sorted by address."""
    bulletin = Bulletin.decode(SMALL.server().answer(SMALL.batch(HONEST)), SMALL.round)
    for number, group in enumerate(bulletin.entries):
        assert {len(entry) for entry in group} == {SMALL.round.entry_size(number)}
        assert list(group) == sorted(group)


def test_a_batch_that_skipped_a_shuffler_is_refused() -> None:
    """The first shuffler's batch does not replace the last one's."""
    small = SmallRound(shufflers=2)
    first = small.shuffler(0)
    for mine in small.crowd(3):
        first.receive(mine.upload, now=1_000)
    with pytest.raises((Malformed, BadSignature)):
        small.server().answer(released(first))


def test_a_failing_task_changes_nothing() -> None:
    """The server keeps its batch and can be restarted with a corrected task."""

    class Broken(Echo):
        def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
            raise Misuse(f"not today, not for {len(estimates)} groups")

    server, batch = (
        Server(SMALL.round, keys=SMALL.roles.server, task=Broken()),
        SMALL.batch(HONEST),
    )
    with pytest.raises(Misuse, match="not today"):
        server.answer(batch)
    assert (server.phase, server.state.bulletin) == (ServerPhase.BATCHED, b"")
    mended = Server(SMALL.round, keys=SMALL.roles.server, task=Echo(), state=server.state)
    assert Bulletin.decode(mended.answer(batch), SMALL.round).heading.outcome == ANSWERED


def test_terms_with_wrong_sizes_start_no_server() -> None:
    """A payload or an answer that cannot have the stated size is rejected before the round."""
    first, second = SMALL.round.terms.groups
    for changed in (replace(first, payload_size=3), replace(first, answer_size=16)):
        terms = replace(SMALL.round.terms, groups=(changed, second))
        with pytest.raises(Refused):
            Server(Round(terms, SMALL.round.document), keys=SMALL.roles.server, task=Echo())


def test_a_task_of_other_groups_starts_no_server() -> None:
    """Two groups in the terms do not fit three in the task."""
    with pytest.raises(Refused, match="has the groups"):
        Server(SMALL.round, keys=SMALL.roles.server, task=Echo(("a", "b", "c")))


def test_keys_and_task_must_be_those_of_the_terms() -> None:
    """Other keys or another task make no server of this round."""
    with pytest.raises(Misuse, match="keys"):
        Server(SMALL.round, keys=SMALL.roles.shufflers[0], task=Echo())
    with pytest.raises(Misuse, match="task"):
        Server(SMALL.round, keys=SMALL.roles.server, task=Echo(name="other"))


def test_a_draft_needs_every_group_of_its_task() -> None:
    """A single group for a task of two is an error."""
    one = GroupPlan(name="riders", randomizer=SQUARE, minimum=2, delta=1e-3)
    with pytest.raises(Misuse, match="riders, drivers"):
        draft_groups([one], task=Echo(), suite=CLASSICAL)


def test_sizes_are_those_of_the_paper_or_below() -> None:
    """An upload has at most 300 bytes, an entry at most 200; the paper has 1.3 and 1.8 KB."""
    assert len(HONEST[0].upload) == SMALL.round.upload_sizes[0] <= 300
    assert SMALL.round.entry_size(0) <= 200
    assert Upload.decode(HONEST[0].upload, SMALL.round).group == 0


def test_a_grid_is_read_as_places_and_a_label_by_its_place_in_the_list() -> None:
    """A cell of a map becomes a place and a label a number, although one mechanism serves both."""
    cells = GridResponse(domain=Box((0, 0), (6, 4)), epsilon=3.0, cells=(3, 2))
    reports = cells.randomize([(1.0, 1.0), (5.0, 3.0), (3.0, 1.0)], seeded(1))
    assert numbers(cells, reports).tolist() == np.asarray(cells.estimate(reports)).tolist()
    assert numbers(cells, reports).shape == (3, 2)
    labels = GridResponse(domain=Categories(("tea", "milk")), epsilon=30.0)
    drinks = labels.randomize(["milk", "tea", "milk"], seeded(1))
    assert numbers(labels, drinks).tolist() == [[1.0], [0.0], [1.0]]
