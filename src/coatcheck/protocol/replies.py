"""Replies: a task's answers to a partition of reports, as bytes of one size, and sealed.

References become one-time keys here, and nowhere before: the task saw positions. SPEC section 8.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.errors import Misuse
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.messages import LOCATED, PARTNERS, VALUES, answer_heads
from coatcheck.protocol.opened import Opened, one_by_one
from coatcheck.protocol.terms import Round

_Rows = NDArray[np.uint8]


def encode_answers(
    answers: tasks.Answers, rows: slice, opened: Sequence[Opened], *, size: int
) -> _Rows:
    """Write the answers to some rows of a group, (n, size): how much one holds does not show."""
    part = answers.take(np.arange(len(answers))[rows])
    if isinstance(part, tasks.Values):
        return write_answers(part, size=size)
    of = opened[part.group]
    partners = np.concatenate([of.contacts[part.indices], of.payloads[part.indices]], axis=1)
    return write_answers(part, partners, contact=of.contacts.shape[1], size=size)


def write_answers(
    answers: tasks.Answers, partners: _Rows | None = None, *, contact: int = 0, size: int
) -> _Rows:
    """Write answers, each in so many bytes.

    `partners` are contact and payload of everybody whom references name, one row for each
    reference; a contact has so many bytes. None is nobody.
    """
    if isinstance(answers, tasks.Values):
        found = _values(answers)
    else:
        named = np.empty((0, 0), np.uint8) if partners is None else partners
        found = _partners(answers, named if answers.located else named[:, :contact])
    if found.shape[1] > size:
        raise Misuse(f"an answer takes {found.shape[1]} bytes, the terms give it {size}")
    return np.pad(found, ((0, 0), (0, size - found.shape[1])))


def seal_entries(
    texts: _Rows, keys: _Rows, addresses: _Rows, round_: Round, *, group: int, bulk: Bulk
) -> list[bytes]:
    """Seal each answer to the key of its person, and put the address in front."""
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=group)
    sealed = bulk.seal_each(one_by_one(texts), to=one_by_one(keys), suite=round_.suite, bound=bound)
    return [name + one for name, one in zip(one_by_one(addresses), sealed, strict=True)]


def _values(answers: tasks.Values) -> _Rows:
    """Write numbers: each one's own, then those that everybody is told."""
    count, width = answers.data.shape
    shared = np.broadcast_to(answers.shared, (count, len(answers.shared)))
    numbers = np.concatenate([answers.data, shared], axis=1).astype(">f8")
    body = np.frombuffer(numbers.tobytes(), dtype=np.uint8).reshape(count, 8 * numbers.shape[1])
    heads = answer_heads(np.full(count, VALUES), np.full(count, width), len(answers.shared))
    return np.concatenate([heads, body], axis=1)


def _partners(answers: tasks.References, partners: _Rows) -> _Rows:
    """Write whom each report is told of; nobody is an empty row of numbers."""
    counts = answers.counts()
    group = np.full((len(partners), 1), answers.group, dtype=np.uint8)
    named = np.concatenate([group, partners], axis=1)
    body = np.zeros((len(answers), int(counts.max(initial=0)), named.shape[1]), dtype=np.uint8)
    inside = np.arange(len(partners)) - np.repeat(answers.indptr[:-1], counts)
    body[answers.owners(), inside] = named
    kinds = np.where(counts > 0, LOCATED if answers.located else PARTNERS, VALUES)
    heads = answer_heads(kinds, counts, 0 if answers.second is None else answers.second)
    people, most, size = body.shape
    return np.concatenate([heads, body.reshape(people, most * size)], axis=1)
