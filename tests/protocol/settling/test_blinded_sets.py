"""Blinded sets: an asker gets the value of one cell; nothing else shows, whatever either sends."""

import numpy as np
import pytest

from coatcheck.errors import BadKey, Misuse
from coatcheck.protocol.settling.blinded_sets import (
    VALUE_SIZE,
    BlindedSet,
    Factor,
    Question,
    hash_to_point,
    is_point,
    point_of_cell,
    read_point,
    slot_of,
    table_size,
)

DIGEST, ASKER, ANSWERER = bytes(32), b"a" * 16, b"b" * 16
DISC = [(7 + a, b - 2) for a in range(-2, 3) for b in range(-2, 3) if a * a + b * b <= 5]
WIDTH = 5
VALUES = [bytes((n,)) * VALUE_SIZE for n in range(len(DISC))]
NUMBERS = [int.from_bytes(value, "big") for value in VALUES]
FILLER = np.random.default_rng(1).bytes(table_size(WIDTH, 2))


def asked(cell: tuple[int, ...], *, secret: bytes = b"question") -> Question:
    """Ask about a cell."""
    return Question(secret, cell, digest=DIGEST)


def disc(secret: bytes = b"set") -> BlindedSet:
    """Return a set of the cells around (7, -2)."""
    return BlindedSet(secret, DISC, digest=DIGEST, width=WIDTH)


def reply_to(one: BlindedSet, point: bytes, *, filler: bytes = FILLER) -> bytes:
    """Answer the asker's question."""
    return one.reply(point, NUMBERS, asker=ASKER, answerer=ANSWERER, filler=filler)


def read(question: Question, table: bytes, one: BlindedSet, asker: bytes = ASKER) -> bytes:
    """Read a table of the answerer."""
    return question.read(table, point=one.point, asker=asker, answerer=ANSWERER, width=WIDTH)


def test_an_asker_gets_the_value_of_its_cell_and_others_get_random_bytes() -> None:
    """Cells of the set give their values; cells outside, also of the same slot, give others."""
    one = disc()
    for cell, value in zip(DISC, VALUES, strict=True):
        question = asked(cell)
        table = reply_to(one, question.point)
        assert len(table) == table_size(WIDTH, 2) == VALUE_SIZE * 25
        assert read(question, table, one) == value
    outside = [(cell[0] + WIDTH, cell[1]) for cell in DISC] + [(5, -4), (-7, 2)]
    for cell in outside:
        question = asked(cell)
        assert read(question, reply_to(one, question.point), one) not in VALUES


def test_a_table_holds_for_one_asker_and_one_question() -> None:
    """A table read by another asker, or with another question for the same cell, is random."""
    one, question, again = disc(), asked((7, -2)), asked((7, -2), secret=b"again")
    table = reply_to(one, question.point)
    assert read(question, table, one) in VALUES
    assert read(question, table, one, asker=b"c" * 16) not in VALUES
    assert read(again, table, one) not in VALUES
    assert read(question, table, disc(b"other")) not in VALUES


def test_questions_about_one_cell_are_random_points() -> None:
    """Two factors never give the same point, and the bits of x and the parity of y are even.

    400 questions: one of 65 shares of ones is off by 5 sigma with a chance below 4e-5.
    """
    points = {asked((7, -2), secret=n.to_bytes(2, "big")).point for n in range(400)}
    assert len(points) == 400
    rows = np.array([list(point[:9]) for point in points], dtype=np.uint8)
    share = np.unpackbits(rows, axis=1)[:, 7:].mean(axis=0)
    assert np.all(np.abs(share - 0.5) < 5 * 0.5 / np.sqrt(400))


def test_tables_look_random_whether_or_not_the_cell_is_in_the_set() -> None:
    """No slot repeats more than chance, and bits are even, for a cell inside and for one outside.

    2 x 300 tables with 21 slots of 24 bits: the share of ones in 151,200 bits of each kind is off
    by 5 sigma with a chance below 6e-7 each. All fillers are zeros here, so that only masks count.
    """
    one, slots = disc(), [slot_of(cell, WIDTH) for cell in DISC]
    for cell in ((7, -2), (700, 2)):
        points = [asked(cell, secret=n.to_bytes(2, "big")).point for n in range(300)]
        tables = [reply_to(one, point, filler=bytes(len(FILLER))) for point in points]
        values = [
            table[VALUE_SIZE * slot : VALUE_SIZE * (slot + 1)] for table in tables for slot in slots
        ]
        bits = np.unpackbits(np.frombuffer(b"".join(values), dtype=np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_multiples_have_the_right_y() -> None:
    """They are the points that the library gives for the generator, and commute for others."""
    a, b = Factor(b"a"), Factor(b"b")
    x = hash_to_point(b"here")
    assert a.times(b.point) == b.times(a.point)
    assert a.times(b.times(x)) == b.times(a.times(x))
    assert a.times(x) != a.times(x.negated()) == a.times(x).negated()
    assert a.x_of(x) == a.times(x).x.to_bytes(32, "big")


def test_a_question_with_the_factor_0_has_no_answer() -> None:
    """Who sends the bare point of a cell, or its negative, finds the filler in its slot."""
    one, at = disc(), VALUE_SIZE * slot_of(DISC[3], WIDTH)
    own = one._factor.times(point_of_cell(DIGEST, DISC[3]))
    assert own.negated() in one._multiples
    for bare in (point_of_cell(DIGEST, DISC[3]), point_of_cell(DIGEST, DISC[3]).negated()):
        table = reply_to(one, bare.encoded())
        assert table[at : at + VALUE_SIZE] == FILLER[at : at + VALUE_SIZE]
        assert table != FILLER


def test_bytes_that_are_no_point_are_refused() -> None:
    """Wrong sizes, forms and coordinates, and the point at infinity."""
    good = asked((0, 0)).point
    for bad in (
        b"",
        b"\0",
        good[:-1],
        good + b"\0",
        b"\4" + good[1:],
        b"\5" + good[1:],
        b"\2" + b"\xff" * 32,
        b"\2" + (1).to_bytes(32, "big"),
        b"\2" + (2**256 - 2**224 + 2**192 + 2**96 - 1).to_bytes(32, "big"),
    ):
        assert not is_point(bad)
        with pytest.raises(BadKey):
            read_point(bad)
    assert is_point(good)


@pytest.mark.parametrize("axes", [1, 3])
def test_sets_of_any_number_of_axes(axes: int) -> None:
    """A line and a cube work as the plane does."""
    cells = [(n,) * axes for n in (-1, 0, 1)]
    values = NUMBERS[:3]
    one = BlindedSet(b"set", cells, digest=DIGEST, width=3)
    question, filler = asked((1,) * axes), bytes(table_size(3, axes))
    table = one.reply(question.point, values, asker=ASKER, answerer=ANSWERER, filler=filler)
    assert len(table) == table_size(3, axes)
    read = question.read(table, point=one.point, asker=ASKER, answerer=ANSWERER, width=3)
    assert read == VALUES[2]


def test_cells_that_share_a_slot_are_refused() -> None:
    """The width must keep them apart."""
    with pytest.raises(Misuse, match="differ modulo 3"):
        BlindedSet(b"set", [(0, 0), (3, 0)], digest=DIGEST, width=3)
