"""The records inside the seals: sizes, strictness, and letters that cannot be redirected."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.domains import Box
from coatcheck.errors import BadKey, BadSignature, Malformed, Misuse, Refused
from coatcheck.protocol.keys import Contact, KeyPairs
from coatcheck.protocol.wire.messages import (
    Answer,
    Partner,
    PayloadFormat,
    ReportTable,
    decode_answer,
    decode_letter,
    encode_letter,
    encode_report,
    least_sizes,
)
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.tasks.standing import Standing
from support.plain_server import encode_answer
from support.rounds import SmallRound

SMALL = SmallRound(note_size=3)
ROUND = SMALL.round
ALICE, BOB, CAROL = (KeyPairs(SMALL.suite, bytes([n]) * 32) for n in (1, 2, 3))


def contact(keys: KeyPairs) -> Contact:
    """Return a person's public keys."""
    return Contact.decode(SMALL.suite, keys.contact_raw)


bounds = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 2**40)), min_size=1, max_size=5
)


@settings(max_examples=100, deadline=None)
@given(bounds=bounds, data=st.data())
def test_payloads_round_trip_in_the_fewest_bytes(
    bounds: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Every report within the bounds round-trips; no coordinate has a spare byte."""
    low = [start for start, _ in bounds]
    high = [start + span for start, span in bounds]
    format_ = PayloadFormat(tuple(low), tuple(high))
    report = [data.draw(st.integers(a, b)) for a, b in zip(low, high, strict=True)]
    raw = format_.encode(report)
    assert len(raw) == format_.size
    decoded, good = format_.decode(np.frombuffer(raw, dtype=np.uint8).reshape(1, -1))
    assert decoded.tolist() == [report]
    assert good.all()
    for width, (_, span) in zip(format_.widths, bounds, strict=True):
        assert width == 1 or span >= 256 ** (width - 1)


@settings(max_examples=100, deadline=None)
@given(bounds=bounds, data=st.data())
def test_payloads_out_of_range_are_marked(
    bounds: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Any bytes decode; they are in range exactly if each offset is at most the span."""
    spans = [span for _, span in bounds]
    format_ = PayloadFormat(
        tuple(start for start, _ in bounds), tuple(start + span for start, span in bounds)
    )
    raw = data.draw(st.binary(min_size=format_.size, max_size=format_.size))
    _, good = format_.decode(np.frombuffer(raw, dtype=np.uint8).reshape(1, -1))
    at, fits = 0, True
    for width, span in zip(format_.widths, spans, strict=True):
        fits &= int.from_bytes(raw[at : at + width], "big") <= span
        at += width
    assert good.tolist() == [fits]


def test_a_report_out_of_range_is_not_encoded() -> None:
    """The client's own mistakes are errors too."""
    format_ = PayloadFormat((0, 0), (10, 10))
    for report in ((11, 0), (0, -1), (1,), (1, 2, 3)):
        with pytest.raises(Misuse):
            format_.encode(report)


def test_reports_are_decoded_in_bulk() -> None:
    """A thousand reports become arrays at once; other versions and groups are marked."""
    payload = bytes(ROUND.terms.groups[0].payload_size)
    good = encode_report(ROUND, group=0, contact=ALICE.contact_raw, payload=payload, note=b"abc")
    rows = [good, b"\2" + good[1:], good[:1] + b"\1" + good[2:]] * 400
    table = ReportTable.read(rows, ROUND, 0)
    assert table.well_formed.tolist() == [True, False, False] * 400
    assert table.contacts[0].tobytes() == ALICE.contact_raw
    assert table.notes[0].tobytes() == b"abc"
    assert len(ReportTable.read([], ROUND, 0).well_formed) == 0


@pytest.mark.parametrize(("contact_size", "payload", "note"), [(63, 0, 0), (64, 1, 0), (64, 0, 1)])
def test_a_report_of_another_size_is_not_encoded(
    contact_size: int, payload: int, note: int
) -> None:
    """Keys, payload and note each have the size in the terms."""
    size = ROUND.terms.groups[0].payload_size
    with pytest.raises(Misuse):
        encode_report(
            ROUND,
            group=0,
            contact=bytes(contact_size),
            payload=bytes(size + payload),
            note=bytes(3 + note),
        )


PAYLOAD = bytes(range(ROUND.terms.groups[1].payload_size))
ANSWERS = [
    Answer(),
    Answer((1.5, -2.0), (3.25,)),
    Answer(shared=(0.5,)),
    Answer(partners=(Partner(1, BOB.contact_raw, PAYLOAD),)),
    Answer(partners=(Partner(1, BOB.contact_raw), Partner(0, CAROL.contact_raw))),
    Answer(partners=(Partner(1, BOB.contact_raw),), second=(Partner(1, CAROL.contact_raw),)),
    Answer(second=(Partner(1, CAROL.contact_raw),)),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_round_trip_at_one_size(answer: Answer) -> None:
    """Full or empty, an answer has the group's size and decodes to an equal one."""
    raw = encode_answer(answer, size=160)
    assert len(raw) == 160
    assert decode_answer(raw, ROUND) == answer


def test_an_answer_that_does_not_fit_is_not_cut() -> None:
    """An answer that is too long is an error, as are numbers and partners at once."""
    with pytest.raises(Misuse):
        encode_answer(Answer(tuple(map(float, range(20)))), size=128)
    with pytest.raises(Misuse):
        encode_answer(Answer((1.0,), partners=(Partner(0, BOB.contact_raw),)), size=160)


@settings(max_examples=200, deadline=None)
@given(answer=st.sampled_from(ANSWERS), at=st.integers(0, 159), change=st.integers(1, 255))
def test_an_altered_answer_is_malformed_or_another_answer(
    answer: Answer, at: int, change: int
) -> None:
    """No two byte strings decode to one answer, and `Malformed` is the only error."""
    raw = bytearray(encode_answer(answer, size=160))
    raw[at] ^= change
    with contextlib.suppress(Malformed):
        assert repr(decode_answer(bytes(raw), ROUND)) != repr(answer)


def letter(body: bytes = b"at the corner") -> bytes:
    """Return a letter from Alice to Bob."""
    return encode_letter(ROUND, sender=ALICE, recipient=BOB.address, counter=7, body=body)


def test_letters_round_trip_at_one_size() -> None:
    """Short or long, a letter has one size, and its reader learns the sender."""
    longest = b"x" * ROUND.terms.letter_size
    assert len(letter(b"")) == len(letter(longest))
    read = decode_letter(letter(), ROUND, recipient=BOB.address)
    assert (read.sender.address, read.counter, read.body) == (ALICE.address, 7, b"at the corner")
    with pytest.raises(Misuse):
        letter(longest + b"x")


def test_a_letter_cannot_be_readdressed() -> None:
    """Bob cannot pass Alice's letter on to Carol; the paper's form would allow it."""
    with pytest.raises(BadSignature):
        decode_letter(letter(), ROUND, recipient=CAROL.address)


def test_a_letter_is_invalid_in_another_round() -> None:
    """The same bytes in another round have a bad signature."""
    other = SmallRound(name="morning", note_size=3).round
    with pytest.raises(BadSignature):
        decode_letter(letter(), other, recipient=BOB.address)


def test_a_letter_cannot_be_adopted() -> None:
    """Replacing the sender's keys breaks a letter; small-order keys are refused."""
    raw = letter()
    adopted = raw[:1] + CAROL.contact_raw + raw[65:]
    with pytest.raises(BadSignature):
        decode_letter(adopted, ROUND, recipient=BOB.address)
    everyone = (1).to_bytes(32, "little")
    forged = raw[:33] + everyone + raw[65:-64] + everyone + bytes(32)
    with pytest.raises(BadKey):
        decode_letter(forged, ROUND, recipient=BOB.address)


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, len(letter()) - 1), bit=st.integers(0, 7))
def test_any_altered_letter_is_refused(at: int, bit: int) -> None:
    """One flipped bit anywhere: version, keys, counter, body, padding or signature."""
    raw = bytearray(letter())
    raw[at] ^= 1 << bit
    with pytest.raises((BadSignature, Malformed, BadKey)):
        decode_letter(bytes(raw), ROUND, recipient=BOB.address)


def test_a_task_of_other_values_is_refused_before_a_round_opens() -> None:
    """Terms of a task on single numbers with a mechanism on the plane are not drafted."""
    line, plane = (Box(lo=(0.0,) * d, hi=(1.0,) * d) for d in (1, 2))
    made = [MinkowskiResponse(domain=box, epsilon=1.0, radius=0.5) for box in (line, plane)]
    assert least_sizes(Standing(), made[:1], suite=SMALL.suite)
    with pytest.raises(Refused, match="standing takes 1 number per person, the domains have 2"):
        least_sizes(Standing(), made[1:], suite=SMALL.suite)
