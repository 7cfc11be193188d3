"""What each part of a bulletin is told: the answers to its entries, and which keys they name.

A task refers to people by position. Their keys are in the partitions, so each partition gets a list
of its rows that a part of the bulletin wants, and each part knows from which partition every
reference comes. Sees positions and numbers only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coatcheck.protocol.opened import NOWHERE
from coatcheck.tasks import Answers, References, Values

_Ints = NDArray[np.int64]
_Rows = NDArray[np.uint8]


class Told(Struct, frozen=True):
    """The answers to entries of one group, in the order of the bulletin.

    Attributes:
        people: how many.
        counts: of how many others each is told; empty if the answers are numbers.
        sources: from which partition each of these comes.
        second: how many of these are for a second pass, if there is one.
        about: the group of the others.
    """

    group: int
    people: int
    data: bytes = b""
    shared: bytes = b""
    counts: bytes = b""
    sources: bytes = b""
    second: bytes | None = None
    about: int = 0
    located: bool = False

    @classmethod
    def of(cls, group: int, answers: Answers, sources: _Ints) -> "Told":
        """Write answers; those with references with the partition of each."""
        if isinstance(answers, Values):
            data, shared = (np.asarray(one, np.float64) for one in (answers.data, answers.shared))
            return cls(group, len(answers), data.tobytes(), shared.tobytes())
        return cls(
            group,
            len(answers),
            counts=answers.counts().astype(np.int64).tobytes(),
            sources=sources.tobytes(),
            second=None if answers.second is None else answers.second.astype(np.int64).tobytes(),
            about=answers.group,
            located=answers.located,
        )

    @property
    def answers(self) -> Answers:
        """The answers; positions of references are of no use here, and are zero."""
        if not self.counts:
            data = np.frombuffer(self.data).reshape(self.people, -1)
            return Values(data, np.frombuffer(self.shared))
        indptr = np.concatenate([[0], np.cumsum(_ints(self.counts))])
        nobody = np.zeros(indptr[-1], np.int64)
        second = None if self.second is None else _ints(self.second)
        return References(self.about, indptr, nobody, located=self.located, second=second)


def partners_of(told: Sequence[Told], given: Mapping[int, _Rows]) -> list[_Rows | None]:
    """Give the row of each reference, in order; None where answers are numbers or name nobody.

    `given` has the rows that the partitions of each group gave to this part, in their order.
    """
    found: list[_Rows | None] = [None] * len(told)
    for about, rows in given.items():
        mine = [at for at, one in enumerate(told) if one.counts and one.about == about]
        listed = [_ints(told[at].sources) for at in mine]
        if not listed:
            continue
        named = np.empty_like(rows)
        named[np.argsort(np.concatenate(listed), kind="stable")] = rows
        cuts = np.cumsum([len(one) for one in listed])[:-1]
        for at, part in zip(mine, np.split(named, cuts), strict=True):
            found[at] = part
    return found


def _ints(raw: bytes) -> _Ints:
    return np.frombuffer(raw, np.int64)


@dataclass(frozen=True)
class Naming:
    """Where the reports of a group are: by position, their partition, row there and place.

    Attributes:
        ordered: the positions in the order of the bulletin.
        first: the place of the first of them.
    """

    partitions: _Ints
    rows: _Ints
    ordered: _Ints
    first: int


def naming(groups: Sequence[Sequence[tuple[int, NDArray[np.uint32]]]]) -> list[Naming]:
    """Find the reports of each group by the places that each of its partitions has."""
    found, first = [], 0
    for parts in groups:
        kept = [(number, np.flatnonzero(places != NOWHERE), places) for number, places in parts]
        where = np.concatenate([places[rows] for _, rows, places in kept])
        numbers = np.concatenate([np.full(len(rows), number) for number, rows, _ in kept])
        rows = np.concatenate([rows for _, rows, _ in kept])
        found.append(Naming(numbers, rows, np.argsort(where), first))
        first += len(where)
    return found


def write_told(
    answers: Sequence[Answers], named: Sequence[Naming], *, parts: int, size: int
) -> tuple[list[bytes], list[bytes]]:
    """Write what each part of the bulletin is told, and what is wanted of each partition.

    There are so many partitions; a part has so many entries. What is wanted of a partition is how
    many rows each part wants, and then the rows.
    """
    total = sum(len(one.ordered) for one in named)
    starts = range(0, total, size)
    told: list[bytes] = []
    wanted: list[tuple[_Ints, _Ints, _Ints]] = []
    for number, start in enumerate(starts):
        listed = []
        for group, (of, mine) in enumerate(zip(answers, named, strict=True)):
            lo, hi = (min(max(0, at - mine.first), len(of)) for at in (start, start + size))
            if lo == hi:
                continue
            part, sources = of.take(mine.ordered[lo:hi]), np.empty(0, np.int64)
            if isinstance(part, References):
                other = named[part.group]
                sources = other.partitions[part.indices]
                into = np.full(len(sources), number)
                wanted.append((sources, into, other.rows[part.indices]))
            listed.append(Told.of(group, part, sources))
        told.append(msgspec.msgpack.encode(listed))
    return told, _by_partition(wanted, parts=parts, into=len(starts))


def _by_partition(
    wanted: Sequence[tuple[_Ints, _Ints, _Ints]], *, parts: int, into: int
) -> list[bytes]:
    none = (np.empty(0, np.int64),) * 3
    sources, numbers, rows = (np.concatenate(one) for one in zip(none, *wanted, strict=True))
    order = np.argsort(sources, kind="stable")  # so that parts stay in order
    numbers, rows = numbers[order], rows[order]
    ends = np.searchsorted(sources[order], np.arange(parts + 1))
    cuts: list[tuple[Any, Any]] = list(pairwise(ends))
    return [
        np.concatenate([np.bincount(numbers[a:b], minlength=into), rows[a:b]])
        .astype("<u4")
        .tobytes()
        for a, b in cuts
    ]
