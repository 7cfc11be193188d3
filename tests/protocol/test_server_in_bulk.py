"""The server's bulk work against the same work row by row: equal rows, counts and bytes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import BadKey, Misuse
from coatcheck.protocol import server as opening
from coatcheck.protocol.keys import (
    LOW_ORDER_U,
    MLKEM_SIZE,
    SMALL_ORDER_Y,
    Contact,
    KeyPairs,
    P,
    addresses_of,
    first_seen,
    usable_contacts,
)
from coatcheck.protocol.server import (
    OpenedReports,
    drop_repeated_keys,
    encode_answers,
    join_partitions,
    read_part,
    split_rows,
)
from coatcheck.protocol.terms import CLASSICAL, HYBRID, Suite
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.messages import COUNT_LIMIT, PayloadFormat
from coatcheck.protocol.wire.uploads import REASONS, Tally
from coatcheck.tasks import Answers, References, Values
from support.plain_server import Row, read_groups, write_answer
from support.rounds import SQUARE, SmallRound

SMALL = SmallRound(note_size=2)
ROUND = SMALL.round
PEOPLE = [KeyPairs(CLASSICAL, bytes([n]) * 32).contact_raw for n in range(6)]
ODD = [
    *(number.to_bytes(32, "little") for number in LOW_ORDER_U | SMALL_ORDER_Y),
    *((P + more).to_bytes(32, "little") for more in (-2, -1, 0, 1, 18)),
    *((1 << 255 | number).to_bytes(32, "little") for number in (0, 1, 9, P - 1, P)),
    b"\xff" * 32,
]
CONTACTS = [*PEOPLE, *(odd + PEOPLE[0][32:] for odd in ODD), *(PEOPLE[0][:32] + odd for odd in ODD)]
FORMAT = PayloadFormat.between(SQUARE.low, SQUARE.high)
PAYLOADS = [FORMAT.encode((0, 0)), FORMAT.encode(SQUARE.low.tolist()), b"\xff" * FORMAT.size]

reports = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"\1", b"\1", b"\1", b"\2"]),
    st.sampled_from([b"\0", b"\0", b"\1"]),
    st.sampled_from(CONTACTS),
    st.sampled_from(PAYLOADS) | st.binary(min_size=FORMAT.size, max_size=FORMAT.size),
    st.binary(min_size=2, max_size=2),
)
batches = st.tuples(*[st.lists(st.none() | reports, max_size=30)] * 2)
RANDOMIZERS = SMALL.server().randomizers


def opened_by_columns(batch: tuple[list[bytes | None], ...], size: int) -> list[OpenedReports]:
    """Decode a batch in partitions of one size."""
    groups = []
    for number, texts in enumerate(batch):
        cuts = [*range(0, len(texts), size), len(texts)] if texts else [0, 0]
        parts = [
            read_part(texts[a:b], ROUND, group=number, randomizer=RANDOMIZERS[number])
            for a, b in pairwise(cuts)
        ]
        groups.append(join_partitions(parts, before=Tally(len(texts) + 3).drop("unpeeled", 3)))
    return drop_repeated_keys(groups)


@settings(max_examples=300, deadline=None)
@given(batch=batches, size=st.sampled_from([1, 3, 7, 100]))
def test_columns_keep_and_count_what_rows_do(
    batch: tuple[list[bytes | None], ...], size: int
) -> None:
    """Any cut into partitions gives the same reports and the same counts of drops."""
    plain = read_groups(batch, ROUND, RANDOMIZERS)
    for columns, (rows, dropped) in zip(opened_by_columns(batch, size), plain, strict=True):
        found = dict(zip(REASONS, columns.tally.dropped, strict=True))
        assert found == {**dict.fromkeys(REASONS, 0), **dropped, "unpeeled": 3}
        assert columns.tally.kept == len(columns) == len(rows)
        assert split_rows(columns.contacts) == [contact.raw for contact, *_ in rows]
        assert split_rows(columns.addresses) == [contact.address for contact, *_ in rows]
        assert split_rows(columns.payloads) == [payload for _, payload, _, _ in rows]
        assert [tuple(row) for row in columns.reports.tolist()] == [row[2] for row in rows]
        assert split_rows(columns.notes) == [note for *_, note in rows]


def _takes(suite: Suite, raw: bytes) -> bool:
    try:
        Contact.decode(suite, raw)
    except BadKey:
        return False
    return True


@pytest.mark.parametrize("suite", [CLASSICAL, HYBRID])
def test_keys_are_usable_side_by_side_as_one_by_one(suite: Suite) -> None:
    """Every edge of both curves, and lattice coefficients at and above q."""
    good = KeyPairs(suite, b"g" * 32).contact_raw
    cut = suite.sealing_size
    raws = [good, *(good[: cut - 32] + odd + good[cut:] for odd in ODD)]
    raws += [good[:cut] + odd for odd in ODD]
    if suite == HYBRID:
        for at in (0, 1, 3, 1150, 1151, 1152, MLKEM_SIZE - 1):
            raws.append(good[:at] + b"\xff" + good[at + 1 :])
        for first in (3328, 3329):
            raws.append(first.to_bytes(2, "little") + b"\0" + good[3:])
            raws.append(b"\0" + (first << 4).to_bytes(2, "little") + good[3:])
    rows = np.frombuffer(b"".join(raws), dtype=np.uint8).reshape(-1, suite.contact_size)
    expected = [_takes(suite, raw) for raw in raws]
    assert usable_contacts(suite, rows).tolist() == expected
    assert {True, False} == set(expected)
    named = [Contact.decode(suite, raw).address for raw in raws if _takes(suite, raw)]
    assert split_rows(addresses_of(suite, rows[np.array(expected)])) == named


@given(st.lists(st.integers(0, 4), max_size=40))
def test_the_first_of_equal_addresses_stays(numbers: list[int]) -> None:
    """Addresses may differ in one half only."""
    names = [bytes([n // 2]) + bytes(14) + bytes([n % 2]) for n in numbers]
    rows = np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, 16)
    assert first_seen(rows).tolist() == [n not in names[:at] for at, n in enumerate(names)]


def _people() -> tuple[list[OpenedReports], list[list[Row]]]:
    payloads = [FORMAT.encode((n, -n)) for n in range(6)]
    texts: list[list[bytes | None]] = [
        [bytes((1, group)) + PEOPLE[n] + payloads[n] + b"ab" for n in own]
        for group, own in enumerate(((0, 1, 2), (3, 4, 5)))
    ]
    plain = read_groups(texts, ROUND, RANDOMIZERS)
    return opened_by_columns((texts[0], texts[1]), 2), [rows for rows, _ in plain]


COLUMNS, ROWS = _people()
lists = st.lists(st.integers(0, 2), max_size=3)


@st.composite
def references(draw: st.DrawFn) -> References:
    """Return references with three reports."""
    told = [draw(lists) for _ in range(3)]
    second = draw(st.none() | st.just([draw(st.integers(0, len(one))) for one in told]))
    return References(
        draw(st.integers(0, 1)),
        np.cumsum([0, *(len(one) for one in told)]),
        np.array([place for one in told for place in one], dtype=np.int64),
        located=draw(st.booleans()),
        second=None if second is None else np.array(second, dtype=np.int64),
    )


numbers = st.integers(0, 3).flatmap(
    lambda width: st.builds(
        lambda data, shared: Values(np.array(data).reshape(3, width), np.array(shared, float)),
        st.lists(st.floats(), min_size=3 * width, max_size=3 * width),
        st.lists(st.floats(allow_nan=False), max_size=2),
    )
)


@settings(max_examples=300, deadline=None)
@given(answers=references() | numbers, start=st.integers(0, 3))
def test_answers_are_written_side_by_side_as_one_by_one(answers: Answers, start: int) -> None:
    """Numbers, partners, places, second lists and empty answers give the same bytes."""
    texts = [write_answer(answers, row, ROWS, size=300) for row in range(start, 3)]
    part = slice(start, 3)
    assert split_rows(encode_answers(answers, part, COLUMNS, size=300)) == texts


def test_an_answer_that_does_not_fit_is_not_cut() -> None:
    """More entries than the terms allow, or than a header can count, is an error."""
    with pytest.raises(Misuse, match="take"):
        encode_answers(Values(np.zeros((1, 20))), slice(0, 1), COLUMNS, size=128)
    wide = Values(np.zeros((1, COUNT_LIMIT + 1)))
    with pytest.raises(Misuse, match="at most"):
        encode_answers(wide, slice(0, 1), COLUMNS, size=10**6)


def test_a_round_of_many_partitions_is_answered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each person gets their own estimate, however small the partitions are."""
    crowd = SMALL.crowd(5)
    batch = SMALL.batch(crowd)
    whole = [split_rows(group.contacts) for group in _opened(batch)]
    monkeypatch.setattr(opening, "PART", 2)
    assert [split_rows(group.contacts) for group in _opened(batch)] == whole
    assert SMALL.server().answer(batch)


def _opened(batch: bytes) -> list[OpenedReports]:
    return SMALL.server().open(Batch.decode(batch, ROUND))
