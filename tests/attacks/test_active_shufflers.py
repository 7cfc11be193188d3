"""Hostile shufflers that collude with the server against an honest one later in the cascade.

Every attack runs with real seals. The honest shuffler gives the round up, or what it mixes has the
honest crowd that was promised.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.ledger import Ledger
from coatcheck.entropy import system
from coatcheck.errors import BadSignature, Malformed, Refused
from coatcheck.protocol.agreement import SignedTerms, countersign, propose
from coatcheck.protocol.client import Limit, examine, keep_receipt, keep_registered, seal_layers
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs, SealingKey
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.terms import Anybody, read_terms, write_terms
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.messages import PayloadFormat, encode_report
from coatcheck.protocol.wire.uploads import Tally, Upload, commitment, slack
from support.rounds import CLOSES, OPENS, SQUARE, SmallRound, released, signed_blindly

PEOPLE = 8
TWO, THREE = SmallRound(minimum=3, shufflers=2), SmallRound(minimum=3, shufflers=3)
CROWDS = {2: TWO.crowd(PEOPLE), 3: THREE.crowd(PEOPLE)}
ROUNDS = {2: TWO, 3: THREE}


def peeled(small: SmallRound, tickets: Sequence[Ticket], *, upto: int) -> list[list[list[bytes]]]:
    """Peel the layers of the earlier shufflers; return the items per group and person."""
    groups: list[list[list[bytes]]] = [[], []]
    for ticket in tickets:
        upload = Upload.decode(ticket.upload, small.round)
        items = list(upload.items(small.round).values())
        for hop in range(upto):
            named = bytes(16) if hop else upload.id
            bound = binding(
                Purpose.LAYER, digest=upload.digest, group=upload.group, hop=hop, upload=named
            )
            key = small.roles.shufflers[hop].opening
            items = [unseal(one, key=key, bound=bound) for one in items]
            # A corrupted shuffler knows its own trap and leaves it out, as an honest one would.
            items = [one for one in items if not _is_trap(one, ticket, hop, small)]
        groups[upload.group].append(items)
    return groups


def _is_trap(item: bytes, ticket: Ticket, hop: int, small: SmallRound) -> bool:
    if not hop:
        return False
    told = ticket.registrations[hop - 1][36:]
    return commitment(item, digest=small.round.digest, group=ticket.group, hop=hop) == told


def forged(small: SmallRound, group: int, hop: int) -> bytes:
    """Return an item for a hop as anyone can make it: a valid report of no person."""
    round_, keys = small.round, KeyPairs(small.suite, system().token(32))
    payload = PayloadFormat.between(SQUARE.low, SQUARE.high).encode((0, 0))
    text = encode_report(round_, group=group, contact=keys.contact_raw, payload=payload, note=b"")
    to = SealingKey(small.suite, bytes.fromhex(round_.terms.server.sealing))
    sealed = seal(text, to=to, bound=binding(Purpose.REPORT, digest=round_.digest, group=group))
    for place in reversed(range(hop, len(round_.terms.shufflers))):
        bound = binding(Purpose.LAYER, digest=round_.digest, group=group, hop=place)
        key = SealingKey(small.suite, bytes.fromhex(round_.terms.shufflers[place].sealing))
        sealed = seal(sealed, to=key, bound=bound)
    return sealed


def handed(small: SmallRound, items: Sequence[Sequence[bytes]], *, hop: int) -> bytes:
    """Sign a batch of any items as the shuffler before a hop."""
    earlier = [system().token(32) for _ in range(hop - 1)]
    batch = Batch.compose(
        [[group] for group in items],
        [Tally(len(group)) for group in items],
        digest=small.round.digest,
        earlier=earlier,
    )
    return batch.sign(small.roles.shufflers[hop - 1].signing.sign)


def honest(small: SmallRound, tickets: Sequence[Ticket], *, hop: int) -> Shuffler:
    """Start the honest shuffler, with the traps of all people registered."""
    shuffler = small.shuffler(hop)
    small.upload(tickets, shuffler)
    return shuffler


def given_up(shuffler: Shuffler, raw: bytes) -> bool:
    """Send a batch; return whether the round is abandoned and its data deleted."""
    shuffler.accept(raw)
    try:
        shuffler.release()
    except Refused:
        shuffler.expire(now=OPENS)
        return shuffler.phase is ShufflerPhase.ABANDONED and not shuffler.state.batch
    return False


PLACES = [(2, 1), (3, 1), (3, 2)]


@pytest.mark.parametrize(("hops", "hop"), PLACES)
def test_a_victim_among_forgeries_is_abandoned(hops: int, hop: int) -> None:
    """The n - 1 attack: one person's items among as many forged ones as there were people."""
    small, tickets = ROUNDS[hops], CROWDS[hops]
    real = peeled(small, tickets, upto=hop)
    items = [
        [*people[0], *(forged(small, group, hop) for _ in range((PEOPLE - 1) * len(people[0])))]
        for group, people in enumerate(real)
    ]
    assert [len(group) for group in items] == [PEOPLE * (hops - hop + 1)] * 2
    assert given_up(honest(small, tickets, hop=hop), handed(small, items, hop=hop))


@pytest.mark.parametrize(("hops", "hop"), PLACES)
def test_an_honest_batch_goes_through(hops: int, hop: int) -> None:
    """The same batch with nothing replaced is mixed, so the tests above can fail."""
    small, tickets = ROUNDS[hops], CROWDS[hops]
    real = peeled(small, tickets, upto=hop)
    items = [[one for person in people for one in person] for people in real]
    shuffler = honest(small, tickets, hop=hop)
    shuffler.accept(handed(small, items, hop=hop))
    tallies = Batch.decode(shuffler.release(), small.round).tallies
    assert [tally.traps for tally in tallies] == [PEOPLE] * 2
    assert [tally.kept for tally in tallies] == [PEOPLE * (hops - hop)] * 2


@pytest.mark.parametrize("kept", ["first", "second", "random"])
def test_half_of_all_items_are_too_few(kept: str) -> None:
    """Passing on one of two places of each person loses half of the traps."""
    small = SmallRound(minimum=PEOPLE - slack(0, TWO.round.terms.trap_delta), shufflers=2)
    tickets = small.crowd(PEOPLE)
    real = peeled(small, tickets, upto=1)
    places = {"first": (0,), "second": (1,), "random": (0, 1)}[kept]
    items = [
        [
            *(person[places[system().integer(len(places))]] for person in people),
            *(forged(small, g, 1) for _ in people),
        ]
        for g, people in enumerate(real)
    ]
    shuffler = honest(small, tickets, hop=1)
    # With so large a minimum no trap may be missing: all eight of both groups would have to be
    # where the cheat took them from. False alarms: 2^-16.
    assert given_up(shuffler, handed(small, items, hop=1))


def test_people_of_another_group_are_no_crowd() -> None:
    """A victim alone in a group stays alone, whatever crowd the other group has."""
    small, tickets = TWO, CROWDS[2]
    real = peeled(small, tickets, upto=1)
    others = [one for person in real[1] for one in person]
    items = [[*real[0][0], *others], others]
    assert given_up(honest(small, tickets, hop=1), handed(small, items, hop=1))


@pytest.mark.parametrize("at", [0, 31, 32, -1], ids=["share", "its top bit", "text", "tag"])
def test_altered_items_do_not_open(at: int) -> None:
    """Changed outer bytes make no second item: the seal binds all of them."""
    small, tickets = TWO, CROWDS[2]
    real = peeled(small, tickets, upto=1)

    def altered(item: bytes) -> bytes:
        changed = bytearray(item)
        changed[at] ^= 0x80
        return bytes(changed)

    items = [
        [*(one for person in people for one in person), *(altered(one) for one in people[0])]
        for people in real
    ]
    shuffler = honest(small, tickets, hop=1)
    shuffler.accept(handed(small, items, hop=1))
    tallies = Batch.decode(shuffler.release(), small.round).tallies
    assert [(tally.dropped[0], tally.traps) for tally in tallies] == [(2, PEOPLE)] * 2


def test_a_repeated_trap_counts_once() -> None:
    """Copies of a person's items make no crowd."""
    small, tickets = TWO, CROWDS[2]
    real = peeled(small, tickets, upto=1)
    items = [list(people[0]) * PEOPLE for people in real]
    assert given_up(honest(small, tickets, hop=1), handed(small, items, hop=1))


def test_items_of_another_round_do_not_open() -> None:
    """A crowd of an earlier round with the same keys does not count in this one."""
    small, tickets = TWO, CROWDS[2]
    before = SmallRound(minimum=3, shufflers=2, name="before")
    assert before.roles.shufflers[1].contact_raw == small.roles.shufflers[1].contact_raw
    crowd = before.crowd(PEOPLE)
    real, old = peeled(small, tickets, upto=1), peeled(before, crowd, upto=1)
    items = [
        [*real[group][0], *(one for person in old[group] for one in person)] for group in (0, 1)
    ]
    shuffler = honest(small, tickets, hop=1)
    for ticket in crowd:
        with pytest.raises(Malformed, match="other terms"):
            shuffler.receive(ticket.registrations[0], now=OPENS)
    assert given_up(shuffler, handed(small, items, hop=1))


def test_there_is_one_batch_and_nothing_is_registered_after_it() -> None:
    """A second batch is refused, and so are registrations after the batch is known."""
    small, tickets = TWO, CROWDS[2]
    real = peeled(small, tickets, upto=1)
    whole = [[one for person in people for one in person] for people in real]
    shuffler = honest(small, tickets[:-2], hop=1)
    raw = handed(small, [group[:4] for group in whole], hop=1)
    shuffler.accept(raw)
    with pytest.raises(Refused, match="another batch"):
        shuffler.accept(handed(small, whole, hop=1))
    with pytest.raises(Refused, match="closed"):
        shuffler.receive(tickets[-1].registrations[0], now=OPENS)
    assert given_up(shuffler, raw)


def test_made_up_registrations_without_traps_raise_the_bar() -> None:
    """Registrations without traps make the count stricter and cannot hide a loss."""
    small, tickets = TWO, CROWDS[2]
    whole = [[one for p in people for one in p] for people in peeled(small, tickets, upto=1)]
    delta = small.round.terms.trap_delta
    for extra in (1, 20):
        shuffler = honest(small, [*tickets, *small.crowd(extra)], hop=1)
        fits = PEOPLE - slack(extra, delta) >= 3
        assert given_up(shuffler, handed(small, whole, hop=1)) is not fits


def test_roots_of_every_hop_stand_on_the_board() -> None:
    """Each batch carries the earlier roots, and the heading has all of them."""
    small, tickets = THREE, CROWDS[3]
    raws, raw = [], b""
    for hop in range(3):
        shuffler = small.shuffler(hop)
        small.upload(tickets, shuffler)
        if hop:
            shuffler.accept(raw)
        raw = released(shuffler)
        raws.append(Batch.decode(raw, small.round))
    roots = [batch.roots[-1] for batch in raws]
    assert [list(batch.roots) for batch in raws] == [roots[:1], roots[:2], roots]
    heading = small.server().answer(raw)[40 + 2 * 36 :][: 3 * 32]
    assert heading == b"".join(roots)
    changed = replace(raws[1], manifest=replace(raws[1].manifest, earlier=(bytes(32),)))
    third = honest(small, tickets, hop=2)
    with pytest.raises(BadSignature):
        third.accept(changed.encode())


def test_receipts_of_registrations_are_verified_and_stored() -> None:
    """Each later shuffler signs for its own trap; a crash keeps the signed receipts."""
    small, tickets = THREE, CROWDS[3]
    ticket = tickets[0]
    first, second = (
        small.shuffler(hop).receive(ticket.registrations[hop - 1], now=OPENS) for hop in (1, 2)
    )
    with pytest.raises(Malformed, match="other bytes"):
        keep_registered(ticket, second, small.round)
    kept = keep_registered(keep_registered(ticket, first, small.round), second, small.round)
    assert read_ticket(write_ticket(kept)) == kept
    receipt = small.shuffler(0).receive(ticket.upload, now=OPENS)
    assert keep_receipt(kept, receipt, small.round).registered == (first, second)
    altered = first[:-1] + bytes([first[-1] ^ 1])
    with pytest.raises(BadSignature):
        keep_registered(ticket, altered, small.round)


def test_the_chance_of_a_miscount_comes_off_the_promise() -> None:
    """ε is computed with the rest of δ, all of δ is promised, and the text says so."""
    small = SmallRound(minimum=50, shufflers=2)
    guarantee, promise = small.invitations[0].guarantee, small.round.terms.groups[0].promise
    assert (guarantee.delta, guarantee.traps) == (promise.delta, 0.3)
    assert any("one shuffler of the cascade is honest" in one for one in guarantee.assumptions)
    assert "δ includes 0.3" in str(guarantee)
    whole = amplify(SQUARE.law, crowd=50, delta=promise.delta)
    assert whole.epsilon < guarantee.epsilon == promise.epsilon
    terms = structs.replace(small.round.terms, trap_delta=0.3999)
    signed = propose(terms, keys=small.roles.server)
    for keys in small.roles.shufflers:
        signed = countersign(signed, keys=keys, pledged={})
    with pytest.raises(Refused, match="gives only"):
        examine(
            signed,
            group="riders",
            trusted=small.roles.trusted,
            limit=Limit(10.0, 0.4),
            now=OPENS,
            simulated=True,
        )


@pytest.mark.parametrize(("hops", "hop"), PLACES)
def test_a_later_shuffler_never_admits_anybody(hops: int, hop: int) -> None:
    """Registered made-up people would hide that one real person is left; so no terms allow it."""
    small, (victim, *_) = ROUNDS[hops], CROWDS[hops]
    crowd = [victim, *small.crowd(PEOPLE)]
    items = [[one for p in people for one in p] for people in peeled(small, crowd, upto=hop)]
    assert not given_up(honest(small, crowd, hop=hop), handed(small, items, hop=hop))

    terms, roles = small.round.terms, small.roles
    parties = list(terms.shufflers)
    parties[hop] = structs.replace(parties[hop], admission=Anybody())
    attack = structs.replace(terms, round="open", shufflers=tuple(parties))
    with pytest.raises(Malformed, match="must not admit anybody"):
        propose(attack, keys=roles.server)
    document = write_terms(attack)
    blank = (None,) * hops
    unsigned = SignedTerms(document.decode(), "00" * 64, blank)
    with pytest.raises(Malformed, match="must not admit anybody"):
        countersign(unsigned, keys=roles.shufflers[hop], pledged={})
    signed = signed_blindly(document, server=roles.server, shufflers=roles.shufflers)
    limit = Limit(10.0, small.delta)
    with pytest.raises(Malformed, match="must not admit anybody"):
        examine(signed, group="riders", trusted=roles.trusted, limit=limit, now=OPENS)
    # At the first shuffler it is a choice that the promise names.
    parties[0], parties[hop] = (
        structs.replace(parties[0], admission=Anybody()),
        terms.shufflers[hop],
    )
    read_terms(write_terms(structs.replace(terms, shufflers=tuple(parties))))


@pytest.mark.parametrize(("hops", "chance"), [(1, 1e-9), (2, 0.0), (2, 0.4), (2, 0.5), (2, -1e-9)])
def test_trap_delta_is_a_part_of_delta_in_a_cascade_only(hops: int, chance: float) -> None:
    """Terms with any other `trap_delta` are malformed."""
    terms = SmallRound(shufflers=hops).round.terms
    with pytest.raises(Malformed, match=r"trap_delta|do not decode"):
        read_terms(write_terms(structs.replace(terms, trap_delta=chance)))


def test_a_ledger_counts_a_miscount_as_a_report_seen_alone(tmp_path: Path) -> None:
    """The chance is added where the tails are; one that is too large leaves the local ε."""
    guarantee = amplify(SQUARE.law, crowd=5000, delta=1e-6)
    spent = []
    for chance in (0.0, 1e-9, 1e-5):
        book = Ledger.open(tmp_path / f"{chance}", epsilon=6.0)
        for number in range(3):
            risky = guarantee.with_traps(chance, delta=1e-6)
            book.spend(risky, round_id=str(number), digest=bytes([number]))
        spent.append(book.spent)
    assert spent[0] < spent[1] < spent[2] == pytest.approx(6.0)


def test_a_first_shuffler_waits_for_the_spare_people() -> None:
    """With the minimum alone a later shuffler could not go on, so the first does not close."""
    small = SmallRound(minimum=3, shufflers=2)
    spare = slack(0, small.round.terms.trap_delta)
    first = small.shuffler(0)
    small.upload(small.crowd(2 + spare), first)
    with pytest.raises(Refused, match=f"has {2 + spare} of the {3 + spare}"):
        first.close(now=CLOSES)
    small.upload(small.crowd(1), first)
    first.close(now=CLOSES)
    assert first.release()


def test_a_person_can_send_reports_in_place_of_traps_and_is_counted_for_it() -> None:
    """Two reports by one person show as a lost trap and reduce no other person's crowd."""
    small, tickets = TWO, CROWDS[2]
    name = system().token(16)
    two = b"".join(
        seal_layers(forged_report(small), small.round, group=0, upload_id=name) for _ in range(2)
    )
    cheat = Upload(0, small.round.digest, name, two).encode(small.round)
    first = small.shuffler(0)
    small.upload(tickets, first)
    first.receive(cheat, now=OPENS)
    second = honest(small, [*tickets, small.join(0)], hop=1)
    second.accept(released(first))
    tally = Batch.decode(second.release(), small.round).tallies[0]
    assert (tally.traps, tally.kept) == (PEOPLE, PEOPLE + 2)


def forged_report(small: SmallRound) -> bytes:
    """Seal a valid report of no person to the server."""
    return forged(small, 0, len(small.round.terms.shufflers))
