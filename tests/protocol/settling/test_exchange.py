"""The exchange of rings: both learn the same, and the letters of somebody far away say nothing."""

from itertools import pairwise

import numpy as np
import pytest

from coatcheck.protocol import letters
from coatcheck.protocol.settling.candidates import Candidates, begin
from coatcheck.protocol.settling.exchange import Exchange, is_share
from coatcheck.protocol.settling.rings import Cell, Rings, cell_of_nobody
from coatcheck.protocol.settling.rules import Kind, Settling, schedule
from coatcheck.protocol.terms import Round, SettleTerms
from coatcheck.protocol.wire.messages import Answer, Partner
from support.rounds import SmallRound
from support.settling import DIGEST, NEAR, RINGS, make_person, run_together, with_candidates

SMALL = SmallRound()


def named(number: int) -> bytes:
    """Return an address."""
    return bytes(15) + bytes((number,))


def person(number: int, cell: Cell, candidates: list[int], *, seed: int = 0) -> Settling:
    """Return a person in a cell who learns which of numbered candidates are near."""
    secret = bytes((number,)) * 16 + seed.to_bytes(16, "big")
    return make_person(secret, cell, [[named(one) for one in candidates]], address=named(number))


def test_both_learn_whether_they_are_near() -> None:
    """In a row of people each finds those at most four cells away, and both sides agree."""
    cells = [(2 * n, n % 2) for n in range(6)]
    people = [person(n, cell, [m for m in range(6) if m != n]) for n, cell in enumerate(cells)]
    run_together(people)
    for n, one in enumerate(people):
        near = {m for m in range(6) if m != n and NEAR.ring(cells[n], cells[m])}
        assert 0 < len(near) < 5
        assert {who[-1] for who in one.partners} == near
        assert one.progress.dropped == {}
        assert one.complete


def test_both_learn_the_same_ring() -> None:
    """For each offset from the middle to beyond the last ring, whatever the two secrets are."""
    for x, y in [
        (0, 0),
        (1, 0),
        (-1, 1),
        (2, -1),
        (0, 3),
        (-3, -2),
        (4, 2),
        (4, 3),
        (0, -5),
        (90, 9),
    ]:
        one, other = exchanges((7, -2), (7 + x, y - 2), seed=x)
        rings = [ring_seen(*pair) for pair in ((one, other), (other, one))]
        assert rings == [RINGS.ring((0, 0), (x, y))] * 2


def exchanges(one: Cell, other: Cell, *, seed: int) -> tuple[Exchange, Exchange]:
    """Return both parts of an exchange of the people 0 and 1."""
    first, second = (
        Exchange(
            (9 * seed + n).to_bytes(32, "big", signed=True),
            cell,
            address=named(n),
            digest=DIGEST,
            rings=RINGS,
        )
        for n, cell in enumerate((one, other))
    )
    return first, second


def ring_seen(one: Exchange, other: Exchange) -> int:
    """Run the exchange; return the ring that the first person learns."""
    me, they = one._address, other._address
    value = one.read(they, other.points, other.table(me, one.points))
    theirs = other.read(me, one.points, one.table(they, other.points))
    shares = one.share(they, value), other.share(me, theirs)
    assert all(is_share(share) for share in shares)
    box = other.box(other.key(me, theirs, shares[0]), 5, me, b"text")
    key = one.key(they, value, shares[1])
    ring, text = one.open(key, value, 5, they, box)
    assert text == (b"text" if ring else b"")
    assert not ring or not any(
        (
            one.open(key, value, 4, they, box).ring,  # another step
            one.open(key, value, 5, me, box).ring,  # another sender
            one.open(one.no_key(they), value, 5, they, box).ring,
        )
    )
    return ring


def test_without_a_table_there_is_no_key() -> None:
    """A person who got no value still writes a share and a box like everybody's."""
    one, _ = exchanges((0, 0), (0, 1), seed=1)
    assert is_share(one.share(named(1), None))
    assert one.share(named(1), None) != one.share(named(1), bytes(3))
    table = one.table(named(1), None)
    assert len(table) == RINGS.table_size
    assert len(set(table)) > 100


def talk(cells: tuple[Cell, Cell], seed: int) -> list[bytes]:
    """Return everything that two candidates write until they have tried to learn who is near."""
    one, other = person(0, cells[0], [1], seed=seed), person(1, cells[1], [0], seed=seed)
    written = []
    while not one.done:
        spoken = [(one, other, one.speak(b"hello")), (other, one, other.speak())]
        for sender, reader, bodies in spoken:
            for to, body in bodies:
                if to == sender.address:
                    reader.notice(to, body)
                else:
                    reader.receive(sender.address, body)
                written.append(body)
    assert one.partners == other.partners == ()
    return written


def test_letters_of_two_far_candidates_do_not_depend_on_their_places() -> None:
    """For two pairs of far places the letters have the same numbers, sizes and distribution.

    No part occurs twice, in one exchange or over places and keys, and all bits are even. 2 x 60
    exchanges: one of the 512 bits of each kind deviates by more than 5 sigma with a chance below
    1024 * 6e-7.
    """
    here, there = ((0, 0), (50, 50)), ((-7, 900), (31, -4))
    runs = {cells: [talk(cells, seed) for seed in range(60)] for cells in (here, there)}
    shapes = {tuple(len(body) for body in run) for one in runs.values() for run in one}
    assert len(shapes) == 1
    for one in runs.values():
        texts = [body[2:][at : at + 8] for run in one for body in run for at in (1, 9)]
        assert len(set(texts)) == len(texts)
        rows = [b"".join(body[3:11] for body in run) for run in one]
        bits = np.unpackbits(np.frombuffer(b"".join(rows), dtype=np.uint8)).reshape(60, -1)
        assert bits.shape[1] == 512
        assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(60))


@pytest.mark.parametrize("asks", [(), (1, 1)])
def test_an_address_of_nobody_writes_as_a_person_does(asks: tuple[int, ...]) -> None:
    """The numbers, recipients and sizes of all its postings are a person's; it is never chosen."""
    settling = SettleTerms(cell=1.0, rings=(2.0, 4.5), asks=asks)
    round_ = with_candidates(SMALL, settling, most=2, letter_size=256)
    crowd = SMALL.crowd(2)
    somebody, nobody = [ticket for ticket in crowd if ticket.group == 0]
    other = next(ticket for ticket in crowd if ticket.group == 1)
    answer = answer_with(other.keys.contact_raw)
    sides = []
    for place, ticket in (((3.0, 4.0), somebody), (None, nobody)):
        begun = begin(ticket, place, round_=round_, now=0.0, axes=2)
        sides.append(Candidates(begun, answer, round_=round_, sizes=(1, 2)))
    person_, empty = sides
    assert empty.machine.progress.cell == cell_of_nobody(empty.machine._secret, 2)
    for _ in person_.machine.steps:
        written, alike = person_.speak(b"words"), empty.speak()
        assert [recipients(raw, round_) for raw in written] == [
            recipients(raw, round_) for raw in alike
        ]
        assert {len(raw) for raw in written} == {len(raw) for raw in alike}
    assert empty.machine.done
    assert empty.partners == ()


def answer_with(contact: bytes) -> Answer:
    """Return an answer that names one candidate on the first list."""
    return Answer(partners=(Partner(1, contact),))


def recipients(raw: bytes, round_: Round) -> tuple[bool, int]:
    """Return whether a posting is a notice, and its size."""
    return letters.read_notice(raw, round_) is not None, len(raw)


def test_nobody_is_near_nobody() -> None:
    """Cells of nobody are far from all people and from each other, on one axis too."""
    cells = sorted(cell_of_nobody(bytes((n,)) * 32, 1)[0] for n in range(200))
    assert min(b - a for a, b in pairwise(cells)) > 1000
    assert all(abs(cell) <= 2**30 for cell in cells)
    assert len(schedule(())) == 4
    assert [step.kind for step in schedule(())][-1] is Kind.WORDS
    assert Rings((4.5,), side=1.0, axes=1).width == 9
