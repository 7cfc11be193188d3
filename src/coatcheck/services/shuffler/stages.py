"""The stages of a release: functions of files in the depot, done by any hand, as often as need be.

*Peel* opens this shuffler's layer of a part of what came in, and deals the items by the leading
bits of their ranks. *Gather* makes a partition of the batch from what was dealt to it. A stage
loads the keys that it needs by itself, and its file is there in whole or not at all, so doing it
twice changes nothing. The bytes between them are in the depot only, sealed. SPEC section 10.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from coatcheck.protocol.manifest import Part
from coatcheck.protocol.parcels import content_id, items_of
from coatcheck.protocol.peeling import RANK, gather, rows
from coatcheck.protocol.shuffler import Shuffler, ShufflerState
from coatcheck.protocol.terms import Round
from coatcheck.services import faults
from coatcheck.services.batches import OUT, part_name
from coatcheck.services.keyring import keyring_of
from coatcheck.services.runners.contract import terms_of
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.rounds import role_of
from coatcheck.stores.bundles import Bundle, unbundled
from coatcheck.stores.crate import Crate, Slot, Wanted

_COUNT: Final = np.dtype(">u4")


class Received(NamedTuple):
    """What came in of a group: how many items.

    The count is in the names of files. A round may reopen and be released with more uploads: who
    began with fewer and comes late writes no file of those.
    """

    group: int
    items: int

    def exported(self, number: int) -> str:
        """Name a file of uploads."""
        return self._name("up", number)

    def told(self, number: int) -> str:
        """Name what a part tells of its items: ranks and names."""
        return self._name("told", number)

    def dealt(self, number: int) -> str:
        """Name what a part deals to the partitions."""
        return self._name("dealt", number)

    def left(self) -> str:
        """Name the ranks that are left out."""
        return self._name("left", 0)

    def _name(self, what: str, number: int) -> str:
        return f"{what}-{self.group}-{self.items}-{number}"


class Source(NamedTuple):
    """A part of what came in: uploads that were exported, or a partition of the batch before."""

    of: Received
    number: int
    name: str


class Target(NamedTuple):
    """A partition of the batch: its group and place there, its number, and an item's size."""

    of: Received
    within: int
    number: int
    size: int


def role_at(crate: Crate, settings: ShufflerSettings) -> Shuffler:
    """Make the role of a round with its secret, for a stage."""
    state = ShufflerState(bytearray(crate.key().secret))
    return role_of(terms_of(crate), keyring_of(settings.key_files), state)


def peel(crate: Crate, settings: ShufflerSettings, source: Source, bits: int) -> bytes:
    """Peel a part; how many items it has for each partition."""
    role = role_at(crate, settings)
    raw, of, number = crate.get(source.name), source.of, source.number
    if role.hop:
        size = role.round.item_size(of.group, role.hop)
        items = (raw[at : at + size] for at in range(0, len(raw), size))
        sealed = {content_id(item): item for item in items}
    else:
        sealed = _uploaded(raw, crate, role.round)
    peeled = role.peeler.peel(of.group, sealed)
    pieces = peeled.dealt(bits)
    faults.reach("stage.peel", alone=True)
    crate.put_pieces(of.dealt(number), [piece.tobytes() for piece in pieces])
    crate.put(of.told(number), peeled.told.tobytes())
    faults.reach("stage.peeled", alone=True)
    return np.array([len(piece) for piece in pieces], _COUNT).tobytes()


def _uploaded(raw: bytes, crate: Crate, round_: Round) -> dict[bytes, bytes]:
    """Open bundles of uploads as they are stored, and cut them into items by their ids."""
    key, is_alone = crate.key(), len(round_.terms.shufflers) == 1
    items: dict[bytes, bytes] = {}
    for bundle in msgspec.msgpack.decode(raw, type=list[Bundle]):
        found = unbundled(key, crate.digest, bundle)
        if is_alone:  # as `items_of` has it, and millions of calls less
            items.update(found)
            continue
        for name, body in found:
            items.update(items_of(name, body, round_))
    return items


def collect(
    crate: Crate,
    settings: ShufflerSettings,
    target: Target,
    pieces: Sequence[tuple[int, Slot]],
    out: Slot,
) -> bytes:
    """Gather a partition from the pieces that each part dealt to it; its count and hash."""
    del settings

    width = RANK + target.size
    wanted = [(target.of.dealt(source), slot, width) for source, slot in pieces]
    wanted.append((target.of.left(), out, RANK))
    read = crate.pieces(
        Wanted(name, target.within, slot.at, slot.length * width) for name, slot, width in wanted
    )
    *found, gone = (rows(raw, of[2]) for raw, of in zip(read, wanted, strict=True))
    raw = gather([rows(b"", width), *found], gone)
    faults.reach("stage.gather", alone=True)
    crate.put(part_name(OUT, target.number), raw, use="batch")
    faults.reach("stage.gathered", alone=True)
    part = Part.of(raw, size=target.size)
    return part.items.to_bytes(4) + part.content


def counts_of(raw: bytes) -> list[int]:
    """Read how many rows each piece of a file has."""
    return [int(count) for count in np.frombuffer(raw, _COUNT)]
