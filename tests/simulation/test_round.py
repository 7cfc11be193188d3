"""Whole rounds through the real objects: all get their own answers, and letters arrive."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from coatcheck.domains import Box, Categories, Product
from coatcheck.entropy import seeded
from coatcheck.errors import Malformed, Misuse, Unsealable
from coatcheck.planning import Group, plan
from coatcheck.protocol import client
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.envelope import Purpose, binding, unseal
from coatcheck.protocol.log.verification import VerifiedEntry
from coatcheck.protocol.terms import SettleTerms
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.bulletins import Bulletin
from coatcheck.randomizers import FieldwiseResponse, GridResponse
from coatcheck.simulation.round import Outcome, simulate, view
from coatcheck.simulation.settling import find_near
from coatcheck.tasks import Task, from_params
from coatcheck.tasks.neighbours import Neighbours
from support.rounds import SQUARE, Echo, draft

MATCHING = from_params({"name": "least-cost-matching"})


def run(*sizes: int, task: Task, **more: Any) -> Outcome:
    """Run a round of people scattered over the unit square."""
    names = ("riders", "drivers")[: len(sizes)]
    spare = 0 if more.get("shufflers", 1) == 1 else 19  # s(0) at 1e-6, a thousandth of δ
    plans = [draft(name, minimum=size - spare) for name, size in zip(names, sizes, strict=True)]
    return simulate(plans, places(*sizes), task=task, **more)


def places(*sizes: int) -> list[NDArray[np.float64]]:
    """Scatter people over the unit square."""
    rng = np.random.default_rng(1)
    return [rng.uniform(size=(size, 2)) for size in sizes]


@pytest.fixture(scope="module")
def matched() -> Outcome:
    """Run 600 people in two groups through the matching."""
    return run(300, 300, task=MATCHING, entropy=3)


def test_every_match_is_mutual(matched: Outcome) -> None:
    """Six hundred answers agree with each other: they are their owners' own."""
    assert [tally.kept for tally in matched.tallies] == [300, 300]
    riders, drivers = matched.partners(0), matched.partners(1)
    for row, partners in enumerate(riders):
        ((group, other),) = partners
        assert group == 1
        assert drivers[other] == ((0, row),)


def test_a_ticket_opens_no_other_entry(matched: Outcome) -> None:
    """Each ticket tries the next three entries of its group: none opens."""
    for group, tickets in enumerate(matched.tickets):
        entries = matched.bulletin.entries[group]
        bound = binding(Purpose.ANSWER, digest=matched.round.digest, group=group)
        for ticket in tickets[:100]:
            keys = ticket.keys
            place = matched.bulletin.find(keys.address, group)
            assert place is not None
            for step in (1, 2, 3):
                other = entries[(place + step) % len(entries)]
                with pytest.raises(Unsealable):
                    unseal(other[16:], key=keys.opening, bound=bound)
                with pytest.raises(Malformed):
                    client.open_entry(ticket, VerifiedEntry(matched.round, group, other))


def test_every_matched_pair_exchanges_letters(matched: Outcome) -> None:
    """Three hundred riders write, as many drivers read and write back, each to the right one."""
    round_, board = matched.round, matched.board
    for row, (ticket, answer) in enumerate(
        zip(matched.tickets[0], matched.answers[0], strict=True)
    ):
        raw, _ = client.write(
            ticket, f"rider {row}".encode(), to=answer.partners[0].contact, round_=round_
        )
        board.post(raw, round_)
    letters = board.letters(round_.digest)
    by_address: dict[bytes, list[bytes]] = {}
    for raw in letters:
        by_address.setdefault(raw[36:52], []).append(raw)
    matches, replies = matched.partners(1), {}
    for row, ticket in enumerate(matched.tickets[1]):
        inbox = client.read(ticket, by_address[ticket.keys.address], round_)
        (letter,) = inbox.letters
        ((_, rider),) = matches[row]
        assert letter.body == f"rider {rider}".encode()
        raw, _ = client.write(ticket, b"coming", to=letter.sender.raw, round_=round_)
        replies[rider] = raw
    for row, ticket in enumerate(matched.tickets[0]):
        inbox = client.read(ticket, [replies[row]], round_)
        assert [letter.body for letter in inbox.letters] == [b"coming"]
    assert client.read(matched.tickets[0][0], letters[:200], round_).letters == ()


def test_the_batch_forgets_arrival(matched: Outcome) -> None:
    """The place in the batch has no rank correlation with the place of arrival.

    Spearman over 300 riders with a fixed seed; a uniform order fails with probability 1e-4.
    """
    seen = view(matched, "server")
    arrival = [matched.whose[address][1] for address in seen.addresses[0]]
    assert stats.spearmanr(range(300), arrival).pvalue > 1e-4


def test_estimates_are_those_of_the_own_value() -> None:
    """With hardly any noise the echo is the person's own value: no answers are swapped."""
    calm = type(SQUARE)(domain=SQUARE.domain, epsilon=30.0, radius=0.001)
    plans = [
        GroupPlan(name=name, randomizer=calm, minimum=30, delta=1e-3, decode="raw")
        for name in Echo().groups
    ]
    values = places(60, 40)
    outcome = simulate(plans, values, task=Echo(), entropy=1)
    for group, rows in enumerate(values):
        assert np.abs(outcome.values(group) - rows).max() < 0.01


def test_fields_and_labels_reach_the_task_as_numbers() -> None:
    """A place and a preference travel together; a label is its place in the list."""
    drinks = Categories(("tea", "coffee", "milk"))
    domain = Product({"place": SQUARE.domain, "likes": drinks})
    calm = FieldwiseResponse(
        domain=domain,
        parts={
            "place": type(SQUARE)(domain=SQUARE.domain, epsilon=30.0, radius=0.001, decode="raw"),
            "likes": GridResponse(domain=drinks, epsilon=30.0),
        },
    )
    values = [{"place": (row / 20, 0.5), "likes": drinks.labels[row % 3]} for row in range(20)]
    people = GroupPlan(name="riders", randomizer=calm, minimum=20, delta=1e-3)
    outcome = simulate([people], [values], task=Echo(("riders",)), entropy=1)
    expected = [[row / 20, 0.5, row % 3] for row in range(20)]
    assert np.abs(outcome.values(0) - expected).max() < 0.01


def test_a_plan_becomes_a_round_that_keeps_its_promise() -> None:
    """Each person's own computation finds the planned promise, or a better one."""
    square = SQUARE.domain
    asked = {name: Group(square, crowd=400, corrupted=5) for name in MATCHING.groups}
    planned = plan(asked, epsilon=1.0, delta=1e-5, task=MATCHING)
    rng = np.random.default_rng(2)
    values = {name: rng.uniform(size=(400, 2)) for name in reversed(MATCHING.groups)}
    outcome = simulate(planned, values, entropy=2)
    assert outcome.task is MATCHING
    assert repr(outcome) == "Outcome(400 users, 400 workers; least-cost-matching)"
    for guarantee in outcome.guarantees:
        assert guarantee.epsilon <= 1.0
        assert (guarantee.corrupted, guarantee.exposed) == (5, 5)
    assert all(len(partners) == 1 for partners in outcome.partners(0))


def test_a_seed_repeats_a_round_up_to_its_seals() -> None:
    """The same seed gives the same addresses and answers; ciphertexts differ."""
    first, again = (run(20, 20, task=Echo(), entropy=seeded(5)) for _ in range(2))
    assert np.array_equal(first.values(0), again.values(0))
    assert first.whose == again.whose
    assert first.uploads != again.uploads


@pytest.mark.parametrize(
    ("suite", "shufflers"), [("x25519", 3), ("mlkem768-x25519", 1), ("mlkem768-x25519", 2)]
)
def test_cascades_and_the_hybrid_suite_answer_all(suite: str, shufflers: int) -> None:
    """More shufflers and larger keys change sizes, not answers."""
    outcome = run(24, 21, task=MATCHING, suite=suite, shufflers=shufflers, entropy=2)
    assert sum(len(partners) for partners in outcome.partners(0)) == 21
    assert {len(raw) for raw in outcome.uploads} == {outcome.round.upload_sizes[0]}
    batch = Batch.decode(outcome.batch, outcome.round)
    assert batch.manifest.hop == shufflers - 1


@pytest.mark.parametrize(
    "task",
    [
        from_params({"name": "maximum-matching", "radius": 0.5}),
        from_params({"name": "neighbours", "radius": 0.5, "limit": 3}),
    ],
    ids=lambda task: task.name,
)
def test_partners_can_be_written_to(task: Task) -> None:
    """Any person named in an answer can be written to, whatever the task."""
    outcome = run(*(25,) * len(task.groups), task=task, entropy=4)
    told = 0
    for ticket, answer in zip(outcome.tickets[0], outcome.answers[0], strict=True):
        for partner in answer.partners:
            raw, _ = client.write(ticket, b"hello", to=partner.contact, round_=outcome.round)
            outcome.board.post(raw, outcome.round)
            group, row = outcome.whose[client.address(partner, outcome.round)]
            reader = outcome.tickets[group][row]
            (letter,) = client.read(reader, [raw], outcome.round).letters
            assert letter.sender.address == ticket.keys.address
            told += 1
    assert told > 5


def test_views_show_what_each_role_sees() -> None:
    """An onlooker sees addresses, the server reports, and corrupted people their own rows."""
    outcome = run(15, 15, task=MATCHING, entropy=6)
    onlooker, server = view(outcome, "onlooker"), view(outcome, "server")
    assert onlooker.reports == ()
    assert [sorted(listed) for listed in server.addresses] == [
        list(listed) for listed in onlooker.addresses
    ]
    assert server.linked == {}
    helped = view(outcome, "server", corrupted=[(0, 3), (1, 7)])
    assert sorted(helped.linked.values()) == [(0, 3), (1, 7)]
    assert len(helped.exposed) == 2
    with pytest.raises(Misuse, match="must be server or onlooker"):
        view(outcome, "sofa")


def test_the_whole_bulletin_decodes_to_what_was_published(matched: Outcome) -> None:
    """A bulletin of 2,000 entries round-trips."""
    again = Bulletin.decode(matched.bulletin.encode(), matched.round)
    assert again.entries == matched.bulletin.entries


def test_input_that_does_not_fit_the_plan_is_misuse() -> None:
    """Values of other groups, too few of them, or none at all are refused before any work."""
    plans = [draft(name) for name in Echo().groups]
    with pytest.raises(Misuse, match="`task` is missing"):
        simulate(plans, places(2, 2))
    with pytest.raises(Misuse, match="must name the groups of the plan"):
        simulate(plans, {"riders": places(2)[0]}, task=Echo())
    with pytest.raises(Misuse, match="one entry for each"):
        simulate(plans, places(2), task=Echo())
    with pytest.raises(Misuse, match="one note per person"):
        simulate(plans, places(2, 2), task=Echo(), notes=[[b""]])


def test_in_a_round_with_decoys_nobody_is_behind_most_addresses() -> None:
    """Answers name reports and decoys alike; partners and near pairs are people only."""
    square = Box(lo=(0.0, 0.0), hi=(10.0, 10.0), steps=1000)
    randomizer = GridResponse(domain=square, epsilon=6.0, cells=(4, 4))
    plans = [GroupPlan(name="people", randomizer=randomizer, minimum=50, delta=1e-4, decoys=2)]
    homes = np.random.default_rng(5).uniform(0, 10, (60, 2))
    task = Neighbours(radius=2.0, limit=8, mutual=True, scale=(1.0, 1.0))
    outcome = simulate(plans, [homes], task=task, entropy=4)
    (guarantee,) = outcome.guarantees
    assert (guarantee.decoys, guarantee.epsilon < guarantee.local_epsilon) == (2, True)
    assert outcome.tallies[0].kept == len(outcome.bulletin.entries[0]) == 180
    shown = {entry[:16] for entry in outcome.bulletin.entries[0]}
    assert shown == outcome.decoys | set(outcome.whose)
    named = sum(len(answer.partners) for answer in outcome.answers[0])
    people = sum(len(partners) for partners in outcome.partners(0))
    assert 0.2 < people / named < 0.5  # a third and a bit, as noise is uniform and people are not
    terms = SettleTerms(cell=0.25, rings=(2.0,), asks=())
    pairs = find_near(outcome, homes, terms=terms)
    apart = [float(np.hypot(*(homes[row] - homes[other]))) for row, other in pairs]
    assert pairs
    assert max(apart) < 2.0 + 2 * 0.25
    seen = view(outcome, "server", corrupted=[(0, 7)])
    assert sorted(seen.linked.values()) == [(0, 7)] * 3
