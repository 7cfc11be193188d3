"""Blinded sets: an asker gets the value of one cell; nothing else shows, whatever either sends."""

import numpy as np
import pytest

from coatcheck.errors import BadKey, Misuse
from coatcheck.protocol.settling.blinded_sets import (
    POINT_SIZE,
    VALUE_SIZE,
    BlindedSet,
    Factor,
    Question,
    hash_to_point,
    hide,
    is_point,
    meet,
    point_of_cell,
    read_point,
    reply_size,
    slot_of,
)

DIGEST, ASKER, ANSWERER = bytes(32), b"a" * 16, b"b" * 16
DISC = [(7 + a, b - 2) for a in range(-2, 3) for b in range(-2, 3) if a * a + b * b <= 5]
WIDTH = 5
VALUES = [bytes((n,)) * VALUE_SIZE for n in range(len(DISC))]


def asked(cell: tuple[int, ...], *, secret: bytes = b"question") -> Question:
    """Ask about a cell."""
    return Question(secret, cell, digest=DIGEST)


def disc(secret: bytes = b"set") -> BlindedSet:
    """Return a set of the cells around (7, -2)."""
    return BlindedSet(secret, DISC, digest=DIGEST, width=WIDTH)


def read(question: Question, reply: bytes, asker: bytes = ASKER) -> bytes:
    """Read a reply of the answerer."""
    return question.read(reply, asker=asker, answerer=ANSWERER, width=WIDTH)


def test_an_asker_gets_the_value_of_its_cell_and_others_get_random_bytes() -> None:
    """Cells of the set give their values; cells outside, also of the same slot, give others."""
    one = disc()
    for cell, value in zip(DISC, VALUES, strict=True):
        question = asked(cell)
        reply = one.reply(question.point, VALUES, asker=ASKER, answerer=ANSWERER)
        assert len(reply) == reply_size(WIDTH, 2) == POINT_SIZE + VALUE_SIZE * 25
        assert read(question, reply) == value
    outside = [(cell[0] + WIDTH, cell[1]) for cell in DISC] + [(5, -4), (-7, 2)]
    for cell in outside:
        question = asked(cell)
        reply = one.reply(question.point, VALUES, asker=ASKER, answerer=ANSWERER)
        assert read(question, reply) not in VALUES


def test_an_answer_holds_for_one_asker_and_one_question() -> None:
    """A reply read by another asker, or with another question for the same cell, is random."""
    question, again = asked((7, -2)), asked((7, -2), secret=b"again")
    reply = disc().reply(question.point, VALUES, asker=ASKER, answerer=ANSWERER)
    assert read(question, reply) in VALUES
    assert read(question, reply, asker=b"c" * 16) not in VALUES
    assert read(again, reply) not in VALUES
    other = disc(b"other").reply(question.point, VALUES, asker=ASKER, answerer=ANSWERER)
    assert read(question, other[:POINT_SIZE] + reply[POINT_SIZE:]) not in VALUES


def test_every_cell_explains_every_question() -> None:
    """Some factor hides any other cell in the same point: a question hides its cell perfectly.

    Here the factors are known: who hides x + k G with factor m sends what hides x with k + m.
    """
    x, k, m = hash_to_point(b"here"), Factor(b"k"), Factor(b"m")
    other = read_point(hide(x, k))
    assert hide(other, m) == hide(read_point(hide(x, m)), k)


def test_replies_look_random_whether_or_not_the_cell_is_in_the_set() -> None:
    """No slot repeats, and bits are even, for a cell inside and for one outside.

    2 x 100 replies of 25 slots: the share of ones in 160,000 bits of each kind is off by 5 sigma
    with a chance below 6e-7 each.
    """
    one = disc()
    for cell in ((7, -2), (700, 2)):
        replies = [
            one.reply(
                asked(cell, secret=bytes((n,))).point, VALUES, asker=ASKER, answerer=ANSWERER
            )[POINT_SIZE:]
            for n in range(100)
        ]
        slots = {
            reply[at : at + 8]
            for reply in replies
            for slot, at in enumerate(range(0, len(reply), 8))
            if slot in {slot_of(cell, WIDTH) for cell in DISC}
        }
        assert len(slots) == 100 * len(DISC)
        bits = np.unpackbits(np.frombuffer(b"".join(slots), dtype=np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_multiples_have_the_right_y() -> None:
    """They are the points that the library gives for the generator, and commute for others."""
    a, b = Factor(b"a"), Factor(b"b")
    x = hash_to_point(b"here")
    assert a.times(b.point) == b.times(a.point)
    assert a.times(b.times(x)) == b.times(a.times(x))
    assert a.times(x) != a.times(x.negated()) == a.times(x).negated()
    assert a.x_of(x) == a.times(x).x.to_bytes(32, "big")


def test_two_who_hide_the_same_text_meet() -> None:
    """Both have the same bytes; somebody with another text has others."""
    a, b, text = Factor(b"a"), Factor(b"b"), hash_to_point(b"text")
    other = hash_to_point(b"other")
    shared = meet(hide(text, a), text, b)
    assert shared == meet(hide(text, b), text, a) == a.x_of(b.point)
    assert shared != meet(hide(other, a), text, b)
    assert shared != meet(hide(text, a), other, b)


def test_a_question_with_the_factor_0_has_no_answer() -> None:
    """Who sends the bare point of a cell, or its negative, finds random bytes in its slot."""
    one = disc()
    plain = asked(DISC[3])
    for bare in (point_of_cell(DIGEST, DISC[3]), point_of_cell(DIGEST, DISC[3]).negated()):
        reply = one.reply(bare.encoded(), VALUES, asker=ASKER, answerer=ANSWERER)
        assert len(reply) == reply_size(WIDTH, 2)
        assert read(plain, reply) not in VALUES
        assert meet(bare.encoded(), bare, Factor(b"a")) is None


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
    values = VALUES[:3]
    one = BlindedSet(b"set", cells, digest=DIGEST, width=3)
    question = asked((1,) * axes)
    reply = one.reply(question.point, values, asker=ASKER, answerer=ANSWERER)
    assert len(reply) == reply_size(3, axes)
    assert question.read(reply, asker=ASKER, answerer=ANSWERER, width=3) == values[2]


def test_cells_that_share_a_slot_are_refused() -> None:
    """The width must keep them apart."""
    with pytest.raises(Misuse, match="differ modulo 3"):
        BlindedSet(b"set", [(0, 0), (3, 0)], digest=DIGEST, width=3)
