"""Decoys: uniform reports beside a person's own, which only the ticket can tell apart."""

import dataclasses
from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from scipy.stats import chi2, chisquare

from coatcheck import tasks, testing
from coatcheck.accounting.amplification import amplify
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.entropy import Entropy, system
from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import countersign, propose
from coatcheck.protocol.drafting import GroupPlan, draft_groups
from coatcheck.protocol.envelope import Purpose, binding, unseal
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.server import Server
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.terms import CLASSICAL, Round, SettleTerms, read_terms, write_terms
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from coatcheck.protocol.wire.batches import Batch, check_capacity, sizes_of
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    CoinResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    SphereResponse,
)
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from coatcheck.tasks.standing import Standing
from support.rounds import CLOSES, OPENS, SQUARE, SmallRound, draft, released

MATCHING = LeastCostMatching(groups=("riders", "drivers"))
TWO_DECOYS = SmallRound(minimum=3, decoys=2, task=MATCHING)
COARSE = Box(lo=(0.0, 0.0), hi=(1.0, 1.0), steps=4)
DISC = Ball(radius=1.0, p=2.0, dimension=2, steps=6)
SMALL: dict[str, Randomizer] = {
    "grid": GridResponse(domain=COARSE, epsilon=2.0, cells=(3, 2)),
    "labels": GridResponse(domain=Categories(("a", "b", "c")), epsilon=2.0),
    "codebook": CodebookResponse(
        domain=COARSE, epsilon=2.0, points=((0, 0), (1, 1), (-2, 0)), weights=(1, 1), closest=1
    ),
    "minkowski": MinkowskiResponse(domain=COARSE, epsilon=2.0, radius=0.5),
    "bounded": BoundedResponse(domain=DISC, epsilon=2.0, radius=0.4),
    "sphere": SphereResponse(domain=DISC, epsilon=2.0, size=4, closest=1, turns=3),
}


def reports_of(small: SmallRound, ticket: Ticket) -> list[bytes]:
    """Open all layers of an upload with everybody's keys; return its items in their order."""
    upload, round_ = Upload.decode(ticket.upload, small.round), small.round
    inner = binding(Purpose.REPORT, digest=round_.digest, group=upload.group)
    outer = binding(Purpose.LAYER, digest=round_.digest, group=upload.group, upload=upload.id)
    sealed = [
        unseal(item, key=small.roles.shufflers[0].opening, bound=outer)
        for item in upload.items(round_).values()
    ]
    return [unseal(item, key=small.roles.server.opening, bound=inner) for item in sealed]


def contact_of(report: bytes) -> bytes:
    """Return the one-time keys in a report."""
    return report[2 : 2 + CLASSICAL.contact_size]


# -- drawing


@pytest.mark.parametrize("name", SMALL)
def test_decoys_are_uniform_over_all_possible_reports(name: str) -> None:
    """Every report that some value can give comes equally often, and no other ever does."""
    assert SMALL[name].takes_decoys
    assert testing.wrong(testing.decoys, SMALL[name]) == ""


def test_decoys_that_are_not_uniform_are_noticed() -> None:
    """The test above fails for a mechanism that draws one cell less often, or one too many."""

    class Uneven(GridResponse):
        def decoy(self, entropy: Entropy) -> tuple[int, ...]:
            return min(super().decoy(entropy), (2, 0) if entropy.coin(1 << 61) else (2, 1))

    class Beyond(GridResponse):
        def decoy(self, entropy: Entropy) -> tuple[int, ...]:
            first, second = super().decoy(entropy)
            return (max(first, 1), second)

    for kind in (Uneven, Beyond):
        uneven = kind(domain=COARSE, epsilon=2.0, cells=(3, 2))
        assert "as decoys do not follow" in testing.wrong(testing.decoys, uneven)


def test_other_mechanisms_have_no_decoys() -> None:
    """A coin's silence and a product's fields have no one uniform part."""
    part = SMALL["grid"]
    product = Product({"a": COARSE, "b": COARSE})
    fields = FieldwiseResponse(domain=product, parts={"a": part, "b": part})
    for randomizer in (CoinResponse(part=part, rate=0.5), fields):
        assert not randomizer.takes_decoys
        with pytest.raises(Misuse, match="has no decoys"):
            randomizer.decoy(system())


# -- joining


def test_an_upload_has_the_report_among_its_decoys_in_random_order() -> None:
    """Three reports of one size under three contacts; the person's own is at each place as often.

    600 uploads with a fixed seed; a fair order fails with a chance of 1e-6.
    """
    places = Counter[int]()
    for _ in range(600):
        ticket = TWO_DECOYS.join(0)
        contacts = [contact_of(report) for report in reports_of(TWO_DECOYS, ticket)]
        assert len(set(contacts)) == 3
        places[contacts.index(ticket.keys.contact_raw)] += 1
    assert len(ticket.upload) == TWO_DECOYS.round.upload_sizes[0] == 52 + 3 * (2 + 64 + 8 + 96) - 6
    statistic = chisquare([places[n] for n in range(3)]).statistic
    assert statistic < chi2.isf(1e-6, 2)


def test_the_ticket_owns_every_address_and_derives_it_from_one_seed() -> None:
    """One seed in the ticket gives all keys, and a stored ticket still has them."""
    ticket = TWO_DECOYS.join(1)
    again = read_ticket(write_ticket(ticket))
    assert again == ticket
    contacts = {contact_of(report) for report in reports_of(TWO_DECOYS, ticket)}
    assert contacts == {ticket.keys.contact_raw} | {
        decoy.keys.contact_raw for decoy in again.decoy_tickets()
    }
    assert len(set(again.addresses)) == 3
    assert again.addresses[0].hex() in repr(again)
    assert all(address.hex() not in repr(again) for address in again.addresses[1:])


def test_a_decoys_letters_are_stored_in_its_own_place() -> None:
    """Counters of one address do not move those of another."""
    ticket = TWO_DECOYS.join(0)
    first, second = ticket.decoy_tickets()
    changed = ticket.with_letters(msgspec.structs.replace(second, written=7), decoy=1)
    assert [decoy.written for decoy in changed.decoy_tickets()] == [0, 7]
    assert changed.decoy_tickets()[0] == first
    assert (changed.written, changed.addresses) == (0, ticket.addresses)
    later = changed.with_letters(msgspec.structs.replace(ticket, written=3))
    assert (later.written, [decoy.written for decoy in later.decoys]) == (3, [0, 7])


# -- the round


def test_everybody_gets_the_answer_to_their_own_report_and_one_for_each_decoy() -> None:
    """The server answers 1 + m reports of each person, in entries of one size."""
    small = TWO_DECOYS
    tickets = small.crowd(4)
    raw = small.server().answer(small.batch(tickets))
    bulletin = verify_bulletin(raw, small.round)
    assert [tally.kept for tally in bulletin.heading.tallies] == [12, 12]
    assert len({len(entry) for group in bulletin.entries for entry in group}) == 1
    everybody = {address for ticket in tickets for address in ticket.addresses}
    for ticket in tickets:
        answers = [client.collect(ticket, bulletin), *client.decoy_answers(ticket, bulletin)]
        assert all(answer is not None and len(answer.partners) == 1 for answer in answers)
        named = {client.address(answer.partners[0], small.round) for answer in answers if answer}
        assert named <= everybody - set(ticket.addresses)


def test_a_decoy_that_is_not_on_the_board_has_no_answer() -> None:
    """No matter who lost it, the person's own answer is there."""
    small = TWO_DECOYS
    tickets = small.crowd(4)
    bulletin = verify_bulletin(small.server().answer(small.batch(tickets)), small.round)
    stranger = small.join(0).decoys
    lonely = msgspec.structs.replace(tickets[0], decoys=(*tickets[0].decoys, *stranger))
    assert client.collect(lonely, bulletin).partners
    assert [answer is None for answer in client.decoy_answers(lonely, bulletin)] == [
        False,
        False,
        True,
        True,
    ]


def test_a_group_is_short_below_its_minimum_times_the_reports_of_each() -> None:
    """Nine reports of three people are enough; eight make the server refuse."""
    small = TWO_DECOYS
    tickets = small.crowd(3)
    batch = Batch.decode(small.batch(tickets), small.round)
    groups = [list(items) for items in batch.items]
    assert list(map(len, groups)) == [9, 9]
    groups[0][0] = groups[0][0][:-1] + bytes([groups[0][0][-1] ^ 1])
    spoiled = Batch.compose(
        [[group] for group in groups], batch.tallies, digest=small.round.digest
    ).sign(small.roles.shufflers[0].signing.sign)
    server = small.server()
    heading = verify_bulletin(server.answer(spoiled), small.round).heading
    assert server.phase.value == "refused"
    assert [tally.kept for tally in heading.tallies] == [8, 9]


def test_a_client_that_leaves_out_a_decoy_is_refused_or_not_counted() -> None:
    """By its size if it is short; a copy or rubbish in its place does not make a crowd."""
    small = TWO_DECOYS
    lazy, honest = small.join(0), [*small.crowd(2), small.join(1)]
    upload = Upload.decode(lazy.upload, small.round)
    size = small.round.item_size(0, 0)
    first = upload.body[:size]
    shuffler = small.filled(honest)
    with pytest.raises(Malformed, match="bytes"):
        shuffler.receive(lazy.upload[:-size], now=OPENS)
    for body in (first * 3, upload.body[: 2 * size] + system().token(size)):
        shuffler = small.filled(honest)
        cheat = Upload(0, small.round.digest, upload.id, body).encode(small.round)
        shuffler.receive(cheat, now=OPENS)
        with pytest.raises(Refused, match="has 2 of the 3 people"):
            released(shuffler)
        shuffler.reopen(now=CLOSES)
        assert shuffler.phase is ShufflerPhase.OPEN


# -- terms and drafts


def terms_with(**changes: object) -> bytes:
    """Return the terms of the small round, with its first group changed."""
    terms = TWO_DECOYS.round.terms
    group = msgspec.structs.replace(terms.groups[0], **changes)
    return write_terms(msgspec.structs.replace(terms, groups=(group, terms.groups[1])))


@pytest.mark.parametrize("decoys", [-1, 9, 1.5, "2"])
def test_terms_have_a_whole_number_of_decoys_up_to_eight(decoys: object) -> None:
    """Anything else does not decode."""
    with pytest.raises(Malformed):
        read_terms(terms_with(decoys=decoys))


def test_terms_with_decoys_have_no_notes() -> None:
    """A note would show which reports are decoys (S6.47)."""
    assert read_terms(terms_with(decoys=8))
    with pytest.raises(Malformed, match="note"):
        read_terms(terms_with(note_size=1))


@pytest.mark.parametrize(("pause", "spread", "good"), [(20, 20.0, True), (20, 20.5, False)])
def test_letters_are_posted_within_a_pause(pause: int, spread: float, good: bool) -> None:  # noqa: FBT001 - a case
    """A spread beyond the pause would make letters late."""
    settling = SettleTerms(cell=0.25, rings=(1.0,), pause=pause, spread=spread)
    document = write_terms(msgspec.structs.replace(TWO_DECOYS.round.terms, settle=settling))
    if good:
        assert read_terms(document).terms.settle == settling
    else:
        with pytest.raises(Malformed, match="spread"):
            read_terms(document)
    assert SettleTerms(cell=0.25, rings=(1.0,), pause=60).posting_seconds == 15.0


def test_as_many_exposed_reports_as_decoys_cost_one_member() -> None:
    """With a minimum of 3, one corrupted and two decoys at most two reports may be exposed."""
    promise = TWO_DECOYS.round.terms.groups[0].promise
    for exposed, good in ((2, True), (3, False)):
        changed = msgspec.structs.replace(promise, corrupted=1, exposed=exposed)
        document = terms_with(promise=changed)
        if good:
            assert read_terms(document)
        else:
            with pytest.raises(Malformed, match="hide among"):
                read_terms(document)


def test_a_draft_states_what_decoys_give_and_expose() -> None:
    """The promise is the accountant's with decoys; each corrupted person gets k + m answers."""
    plans = [draft("people", minimum=400, decoys=2)]
    corrupt = [dataclasses.replace(plans[0], corrupted=3)]
    task = Neighbours(radius=0.1, limit=5)
    (alone,) = draft_groups(plans, task=task, suite=CLASSICAL)
    (group,) = draft_groups(corrupt, task=task, suite=CLASSICAL, shufflers=2, trap_delta=1e-6)
    assert alone.promise.epsilon == amplify(SQUARE.law, crowd=400, delta=1e-3, decoys=2).epsilon
    assert group.promise.exposed == 3 * (2 + 2) * 5
    assert group.decoys == 2
    single = amplify(SQUARE.law, crowd=400, delta=1e-3).epsilon
    assert alone.promise.epsilon < single


@pytest.mark.parametrize(
    ("plan", "task", "message"),
    [
        (draft("people", decoys=9), Neighbours(radius=0.1), "whole number from 0 to 8"),
        (draft("people", decoys=1, note_size=1), Neighbours(radius=0.1), "notes"),
        (draft("people", decoys=1), Standing(), "answers with numbers"),
        (
            GroupPlan(
                name="people",
                randomizer=CoinResponse(part=SQUARE, rate=0.5),
                minimum=9,
                delta=1e-3,
                decoys=1,
            ),
            Neighbours(radius=0.1),
            "coin",
        ),
    ],
)
def test_a_draft_refuses_decoys_that_would_not_hide(
    plan: GroupPlan, task: tasks.Task, message: str
) -> None:
    """Each with what to do instead."""
    with pytest.raises(Misuse, match=message):
        draft_groups([plan], task=task, suite=CLASSICAL)


def test_clients_and_servers_refuse_decoys_where_there_are_none() -> None:
    """Terms that a draft would not make: a mechanism without decoys, a task that names nobody."""
    small = TWO_DECOYS
    terms = small.round.terms
    task = msgspec.structs.replace(terms.task, name="echo", params={})
    blind = msgspec.structs.replace(terms, task=task)
    round_ = Round(blind, write_terms(blind))
    with pytest.raises(Misuse, match="answers with numbers"):
        Server(round_, keys=small.roles.server, task=SmallRound().task)
    product = Product({"a": COARSE, "b": COARSE})
    part = GridResponse(domain=COARSE, epsilon=1.0, cells=(3, 2))
    fields = FieldwiseResponse(domain=product, parts={"a": part, "b": part})
    group = msgspec.structs.replace(
        terms.groups[0], randomizer=fields.params(), decode=fields.decodes[0], payload_size=4
    )
    signed = propose(
        msgspec.structs.replace(terms, groups=(group, terms.groups[1])), keys=small.roles.server
    )
    signed = countersign(signed, keys=small.roles.shufflers[0], pledged={})
    with pytest.raises(Refused, match="has no decoys"):
        client.examine(
            signed,
            group="riders",
            trusted=small.roles.trusted,
            limit=client.Limit(10.0, 1e-3),
            now=OPENS,
        )


def test_the_largest_round_counts_reports() -> None:
    """A batch has k + m items of each person, a bulletin 1 + m entries."""
    alone, many = SmallRound(minimum=3, task=MATCHING), TWO_DECOYS
    assert sizes_of(many.round)[0] == 3 * max(many.round.item_size(0, 1), many.round.entry_size(0))
    limit = 2 * 3 * sizes_of(alone.round)[0] + 1000
    check_capacity(alone.round, limit=limit)
    with pytest.raises(Misuse, match="at most"):
        check_capacity(many.round, limit=limit)
    sizes = [small.round.upload_sizes[0] for small in (alone, many)]
    assert all(a < b for a, b in pairwise(sizes))
