"""Opened reports: what a server keeps of a partition of a batch, side by side, and what it drops.

Pure functions over the columns of a partition. The checks of one report need that report only;
whether two carry the same keys is seen over all partitions of all groups. SPEC section 11.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.protocol.contacts import addresses, first_seen, usable
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import OpeningKey
from coatcheck.protocol.manifest import PART
from coatcheck.protocol.messages import PayloadFormat, ReportTable
from coatcheck.protocol.ordering import first_of_each
from coatcheck.protocol.parcels import Tally
from coatcheck.protocol.terms import Round
from coatcheck.randomizers.contract import Randomizer

_Mask = NDArray[np.bool_]
NOWHERE: Final = 2**32 - 1
"""The place of a report that is not answered."""


@dataclass(frozen=True)
class Opened:
    """Reports that stayed, as columns; row i of each is of one report.

    Attributes:
        tally: how many came in and were dropped.
        contacts: the one-time keys.
        addresses: their addresses.
        payloads: the reports as they were sent.
        reports: the reports as numbers.
    """

    tally: Tally
    contacts: NDArray[np.uint8]
    addresses: NDArray[np.uint8]
    payloads: NDArray[np.uint8]
    reports: NDArray[np.int64]
    notes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.contacts)

    def keep(self, rows: _Mask, reason: str) -> "Opened":
        """Keep these rows, and count the others as dropped for a reason."""
        lost = len(self) - int(rows.sum())
        if not lost:
            return self
        columns = (self.contacts, self.addresses, self.payloads, self.reports, self.notes)
        return Opened(self.tally.drop(reason, lost), *(column[rows] for column in columns))  # type: ignore[arg-type] # one column has other numbers


def parts_of(count: int) -> list[slice]:
    """Cut so many rows into partitions; no rows are one empty partition."""
    return [slice(at, min(at + PART, count)) for at in range(0, max(1, count), PART)]


def one_by_one(rows: NDArray[np.uint8]) -> list[bytes]:
    """Give the rows of a column as bytes."""
    raw, size = rows.tobytes(), rows.shape[1]
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def open_part(
    items: Sequence[bytes],
    round_: Round,
    *,
    group: int,
    randomizer: Randomizer,
    key: OpeningKey,
    bulk: Bulk,
) -> Opened:
    """Open and check the items of a partition of a group."""
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    plain = bulk.unseal_each(items, key=key, bounds=[bound] * len(items))
    return read_part(plain, round_, group=group, randomizer=randomizer)


def read_part(
    plain: Sequence[bytes | None], round_: Round, *, group: int, randomizer: Randomizer
) -> Opened:
    """Read the opened items of a partition; None is one that did not open.

    A report that is wrong in several ways is counted under the first of: malformed,
    out-of-domain, bad-key.
    """
    texts = [text for text in plain if text is not None]
    table = ReportTable.read(texts, round_, group)
    reports, in_range = PayloadFormat.between(randomizer.low, randomizer.high).decode(
        table.payloads
    )
    inside = possible(randomizer, reports, in_range)
    known = usable(round_.suite, table.contacts)
    stays = table.well_formed & inside & known
    tally = Tally(len(plain)).drop("unopened", len(plain) - len(texts))
    tally = tally.drop("malformed", int((~table.well_formed).sum()))
    tally = tally.drop("out-of-domain", int((table.well_formed & ~inside).sum()))
    tally = tally.drop("bad-key", int((table.well_formed & inside & ~known).sum()))
    contacts = table.contacts[stays]
    names = addresses(round_.suite, contacts)
    return Opened(tally, contacts, names, table.payloads[stays], reports[stays], table.notes[stays])


def joined(parts: Sequence[Opened], *, before: Tally) -> Opened:
    """Put the partitions of a group together, in order; `before` is what the batch says of it."""
    losses = zip(before.dropped, *(part.tally.dropped for part in parts), strict=True)
    tally = replace(before, dropped=tuple(sum(loss) for loss in losses))
    return Opened(
        tally,
        np.concatenate([part.contacts for part in parts]),
        np.concatenate([part.addresses for part in parts]),
        np.concatenate([part.payloads for part in parts]),
        np.concatenate([part.reports for part in parts]),
        np.concatenate([part.notes for part in parts]),
    )


def without_repetitions(groups: Sequence[Opened]) -> list[Opened]:
    """Keep of all reports with the same keys the first, in the order of groups and rows."""
    first = first_seen(np.concatenate([group.addresses for group in groups]))
    ends = np.cumsum([len(group) for group in groups])
    parts = np.split(first, ends[:-1])
    return [
        group.keep(rows, "duplicate-address") for group, rows in zip(groups, parts, strict=True)
    ]


def places(groups: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint32]]:
    """Give each report the place of its entry in the bulletin, by the addresses of each group.

    Groups come in order, and entries of a group by address. `NOWHERE` is who has the keys of a
    report before.
    """
    ends = np.cumsum([len(group) for group in groups])
    order = first_of_each(np.concatenate(groups))
    found = np.full(ends[-1], NOWHERE, dtype=np.uint32)
    by_group = order[np.argsort(np.searchsorted(ends, order, side="right"), kind="stable")]
    found[by_group] = np.arange(len(by_group), dtype=np.uint32)
    return np.split(found, ends[:-1])


def possible(randomizer: Randomizer, reports: NDArray[np.int64], in_range: _Mask) -> _Mask:
    """Tell which reports the randomizer can give at all: all values share one set of them."""
    found = np.zeros(len(reports), dtype=np.bool_)
    if in_range.any():
        origin = np.zeros((int(in_range.sum()), randomizer.domain.dimension), dtype=np.int64)
        found[in_range] = randomizer.density(reports[in_range], origin) > 0
    return found
