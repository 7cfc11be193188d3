"""The server's work on a batch row by row, as in SPEC section 11: slow, and easy to check."""

import struct
from collections.abc import Sequence

import numpy as np

from coatcheck import tasks
from coatcheck.errors import BadKey, Misuse
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.encoding import VERSION
from coatcheck.protocol.wire.messages import (
    LOCATED,
    PARTNERS,
    VALUES,
    Answer,
    Partner,
    PayloadFormat,
)
from coatcheck.randomizers import Randomizer

Row = tuple[Contact, bytes, tuple[int, ...], bytes]
"""A report that stayed: its keys, its payload, the payload as numbers, its note."""
Dropped = dict[str, int]


def encode_answer(answer: Answer, *, size: int) -> bytes:
    """Encode an answer, padded to the group's size to hide its length."""
    numbers, named = answer.values + answer.shared, answer.partners + answer.second
    if numbers and named:
        raise Misuse("an answer holds numbers or partners, not both")
    if named:
        kind = LOCATED if any(partner.payload for partner in named) else PARTNERS
        counts = len(named), len(answer.second)
        body = b"".join(bytes((p.group,)) + p.contact + p.payload for p in named)
    else:
        kind, counts = VALUES, (len(answer.values), len(answer.shared))
        body = struct.pack(f">{len(numbers)}d", *numbers)
    raw = struct.pack(">BBHHxx", VERSION, kind, *counts) + body
    if len(raw) > size:
        raise Misuse(f"an answer takes {len(raw)} bytes, the terms give it {size}")
    return raw.ljust(size, b"\0")


def read_groups(
    plain: Sequence[Sequence[bytes | None]], round_: Round, randomizers: Sequence[Randomizer]
) -> list[tuple[list[Row], Dropped]]:
    """Decode the opened items of all groups, one after the other."""
    taken: set[bytes] = set()
    found: list[tuple[list[Row], Dropped]] = []
    for group, texts in enumerate(plain):
        rows: list[Row] = []
        dropped: Dropped = {}
        for text in texts:
            row = _read(text, round_, group, randomizers[group])
            if not isinstance(row, str) and row[0].address in taken:
                row = "duplicate-address"
            if isinstance(row, str):
                dropped[row] = dropped.get(row, 0) + 1
            else:
                taken.add(row[0].address)
                rows.append(row)
        found.append((rows, dropped))
    return found


def _read(text: bytes | None, round_: Round, group: int, randomizer: Randomizer) -> Row | str:
    """Decode one report, or return why it is dropped."""
    if text is None:
        return "unopened"
    if text[0] != VERSION or text[1] != group:
        return "malformed"
    keys = 2 + round_.suite.contact_size
    note = len(text) - round_.terms.groups[group].note_size
    form = PayloadFormat.between(randomizer.low, randomizer.high)
    at, report = keys, []
    for low, high, width in zip(form.low, form.high, form.widths, strict=True):
        report.append(low + int.from_bytes(text[at : at + width], "big"))
        at += width
        if report[-1] > high:
            return "out-of-domain"
    origin = np.zeros((1, randomizer.domain.dimension), dtype=np.int64)
    if not randomizer.density(np.array([report], dtype=np.int64), origin)[0] > 0:
        return "out-of-domain"
    try:
        contact = Contact.decode(round_.suite, text[2:keys])
    except BadKey:
        return "bad-key"
    return contact, text[keys:note], tuple(report), text[note:]


def write_answer(
    answers: tasks.Answers, row: int, groups: Sequence[Sequence[Row]], *, size: int
) -> bytes:
    """Encode a task's answer to one report."""
    if isinstance(answers, tasks.Values):
        own = tuple(float(number) for number in answers.data[row])
        shared = tuple(float(number) for number in answers.shared)
        return encode_answer(Answer(own, shared), size=size)
    other = [groups[answers.group][place] for place in answers.of(row)]
    named = tuple(
        Partner(answers.group, contact.raw, payload if answers.located else b"")
        for contact, payload, _, _ in other
    )
    first = len(named) - (0 if answers.second is None else int(answers.second[row]))
    return encode_answer(Answer(partners=named[:first], second=named[first:]), size=size)
