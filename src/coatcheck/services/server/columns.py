"""Columns: what the partitions of a batch say, as the stages of an answer leave it in the depot."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coatcheck.protocol.suites import ADDRESS_SIZE
from coatcheck.protocol.terms import Round
from coatcheck.stores.crate import Crate, slots

COUNT: Final = np.dtype("<u4")
PLACES: Final = "places"
Bytes = NDArray[np.uint8]


class Source(NamedTuple):
    """A partition of the batch: its group, its number, and how many of its reports opened."""

    group: int
    number: int
    rows: int = 0


def opened(number: int) -> str:
    """Name what a partition says: addresses, then payloads and notes, then contacts."""
    return f"open-{number}"


def mark_of(pieces: Iterable[bytes]) -> str:
    """Mark what one try of the task wrote, so that another try takes nothing's place.

    A machine with another processor may round otherwise, and a task may then answer otherwise.
    """
    return hashlib.sha256(b"".join(pieces)).hexdigest()[:16]


def told(mark: str) -> str:
    """Name what each part of the bulletin is told."""
    return f"told-{mark}"


def wanted(mark: str) -> str:
    """Name what is wanted of each partition."""
    return f"wanted-{mark}"


def column(crate: Crate, round_: Round, source: Source, place: int) -> Bytes:
    """Read a column of what a partition says."""
    of = round_.terms.groups[source.group]
    widths = (ADDRESS_SIZE, of.payload_size + of.note_size, round_.suite.contact_size)
    slot = slots([source.rows * width for width in widths])[place]
    raw = crate.piece(opened(source.number), place, start=slot.at, size=slot.length)
    return np.frombuffer(raw, np.uint8).reshape(source.rows, widths[place])


def places_of(crate: Crate, sources: Sequence[Source]) -> list[NDArray[np.uint32]]:
    """Read where each report of each partition is in the bulletin."""
    at = slots([COUNT.itemsize * one.rows for one in sources])
    raws = [crate.piece(PLACES, n, start=slot.at, size=slot.length) for n, slot in enumerate(at)]
    return [np.frombuffer(raw, COUNT) for raw in raws]
