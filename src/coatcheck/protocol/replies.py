"""Replies: a task's answers to a partition of reports, as bytes of one size, ready to be sealed.

References become one-time keys here, and nowhere before: the task saw positions. SPEC section 8.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.errors import Misuse
from coatcheck.protocol.messages import LOCATED, PARTNERS, VALUES, answer_heads
from coatcheck.protocol.opened import Opened

_Rows = NDArray[np.uint8]


def encode_answers(
    answers: tasks.Answers, rows: slice, opened: Sequence[Opened], *, size: int
) -> _Rows:
    """Write the answers to some rows of a group, (n, size): how much one holds does not show."""
    part = answers.take(np.arange(len(answers))[rows])
    found = _values(part) if isinstance(part, tasks.Values) else _partners(part, opened)
    if found.shape[1] > size:
        raise Misuse(f"an answer takes {found.shape[1]} bytes, the terms give it {size}")
    return np.pad(found, ((0, 0), (0, size - found.shape[1])))


def _values(answers: tasks.Values) -> _Rows:
    """Write numbers: each one's own, then those that everybody is told."""
    count, width = answers.data.shape
    shared = np.broadcast_to(answers.shared, (count, len(answers.shared)))
    numbers = np.concatenate([answers.data, shared], axis=1).astype(">f8")
    body = np.frombuffer(numbers.tobytes(), dtype=np.uint8).reshape(count, 8 * numbers.shape[1])
    heads = answer_heads(np.full(count, VALUES), np.full(count, width), len(answers.shared))
    return np.concatenate([heads, body], axis=1)


def _partners(answers: tasks.References, opened: Sequence[Opened]) -> _Rows:
    """Write whom each report is told of; nobody is an empty row of numbers."""
    other, counts = opened[answers.group], answers.counts()
    columns = [np.full((len(answers.indices), 1), answers.group, dtype=np.uint8)]
    columns.append(other.contacts[answers.indices])
    if answers.located:
        columns.append(other.payloads[answers.indices])
    named = np.concatenate(columns, axis=1)
    body = np.zeros((len(answers), int(counts.max(initial=0)), named.shape[1]), dtype=np.uint8)
    inside = np.arange(len(answers.indices)) - np.repeat(answers.indptr[:-1], counts)
    body[answers.owners(), inside] = named
    kinds = np.where(counts > 0, LOCATED if answers.located else PARTNERS, VALUES)
    heads = answer_heads(kinds, counts, 0 if answers.second is None else answers.second)
    people, most, size = body.shape
    return np.concatenate([heads, body.reshape(people, most * size)], axis=1)
