"""The stages of an answer: functions of files in the depot, done by any hand, as often as need be.

*Open* opens and checks a partition of the batch. The task comes next (`computing.py`). *Deal*
gives every part of the bulletin the keys that it needs of a partition. *Seal* writes and seals the
entries of a part of the bulletin, in order, and computes its subtree. A stage loads the keys that
it needs by itself. The bytes between them are in the depot only, sealed. SPEC section 11.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Unavailable
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.merkle import leaf_hash, root_over
from coatcheck.protocol.opened import NOWHERE, open_part
from coatcheck.protocol.replies import seal_entries, write_answers
from coatcheck.protocol.suites import ADDRESS_SIZE
from coatcheck.protocol.terms import Round
from coatcheck.randomizers import from_params
from coatcheck.services import faults
from coatcheck.services.batches import IN, part_name, sealed
from coatcheck.services.keyring import keyring_of
from coatcheck.services.runners.contract import terms_of
from coatcheck.services.server import columns
from coatcheck.services.server.columns import COUNT, PLACES, Source, column, opened
from coatcheck.services.server.told import Told, partners_of
from coatcheck.services.settings import ServerSettings
from coatcheck.stores.crate import Crate, Slot, Wanted

Bytes = NDArray[np.uint8]


class Piece(NamedTuple):
    """What a partition dealt to a part of the bulletin: entries' keys, then partners."""

    source: Source
    at: int
    own: int
    wanted: int


class Asked(NamedTuple):
    """What a partition is asked to deal: where its places are, and what is wanted of it.

    Attributes:
        parts: of how many parts the bulletin is.
        each: how many entries a part has.
        mark: of which try of the task.
    """

    places: Slot
    wanted: Slot
    parts: int
    each: int
    mark: str


class Share(NamedTuple):
    """A part of the bulletin: of which try of the task, where it is told, and its first place."""

    mark: str
    told: Slot
    first: int


def dealt(mark: str, number: int) -> str:
    """Name what a partition deals to the parts of the bulletin, after one try of the task."""
    return f"dealt-{mark}-{number}"


def open_reports(crate: Crate, settings: ServerSettings, source: Source) -> bytes:
    """Open a partition of the batch; how many reports stay, and how many go for each reason."""
    round_ = terms_of(crate)
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    raw, group = crate.get(part_name(IN, source.number)), source.group
    size = round_.item_size(group, len(round_.terms.shufflers))
    found = open_part(
        [raw[at : at + size] for at in range(0, len(raw), size)],
        round_,
        group=group,
        randomizer=from_params(round_.terms.groups[group].randomizer),
        key=keys.opening,
        bulk=Bulk(),
    )
    faults.reach("stage.open", alone=True)
    said = np.concatenate([found.payloads, found.notes], axis=1)
    pieces = [one.tobytes() for one in (found.addresses, said, found.contacts)]
    crate.put_pieces(opened(source.number), pieces)
    faults.reach("stage.opened", alone=True)
    return np.array([len(found), *found.tally.dropped], COUNT).tobytes()


def deal(crate: Crate, settings: ServerSettings, source: Source, asked: Asked) -> bytes:
    """Deal a partition's keys to the parts of the bulletin; how many rows each gets, twice.

    First those whose entries it has, by place: place, address and key. Then those whom its
    entries name: contact and payload.
    """
    del settings
    places, wanted, parts, each, mark = asked
    round_, number = terms_of(crate), source.number
    names, said, contacts = (column(crate, round_, source, n) for n in range(3))
    raw = crate.piece(PLACES, number, start=places.at, size=places.length)
    place = np.frombuffer(raw, COUNT)
    order = np.argsort(place)[: int((place != NOWHERE).sum())]
    keys = contacts[order, : round_.suite.sealing_size]
    numbers = place[order].view(np.uint8).reshape(-1, COUNT.itemsize)
    own = np.concatenate([numbers, names[order], keys], axis=1)
    counts = np.bincount(place[order] // each, minlength=parts)
    raw = crate.piece(columns.wanted(mark), number, start=wanted.at, size=wanted.length)
    listed = np.frombuffer(raw, COUNT)
    others, rows = listed[:parts], listed[parts:]
    payload = round_.terms.groups[source.group].payload_size
    partners = np.concatenate([contacts[rows], said[rows, :payload]], axis=1)
    pairs = zip(_cut(own, counts), _cut(partners, others), strict=True)
    faults.reach("stage.deal", alone=True)
    crate.put_pieces(dealt(mark, number), [a.tobytes() + b.tobytes() for a, b in pairs])
    faults.reach("stage.dealt", alone=True)
    return np.array([counts, others], COUNT).tobytes()


def _cut(rows: Bytes, counts: NDArray[np.integer]) -> list[Bytes]:
    return np.split(rows, np.cumsum(counts)[:-1])


def dealt_width(round_: Round, group: int) -> tuple[int, int]:
    """Give the bytes of what is dealt of an entry, and of a partner of a group."""
    own = COUNT.itemsize + ADDRESS_SIZE + round_.suite.sealing_size
    return own, round_.suite.contact_size + round_.terms.groups[group].payload_size


def seal(
    crate: Crate,
    settings: ServerSettings,
    number: int,
    share: Share,
    pieces: Sequence[Piece],
) -> bytes:
    """Make a part of the bulletin from what was dealt to it; its subtree's root, and its hash."""
    del settings
    round_, (mark, slot, first) = terms_of(crate), share
    own, partners = _gathered(crate, round_, number, pieces, mark)
    place = np.ascontiguousarray(own[:, : COUNT.itemsize]).view(COUNT).ravel()
    if not np.array_equal(place, np.arange(len(place)) + first):
        raise Unavailable(f"what was dealt to part {number} of the bulletin is not all of it")
    raw = crate.piece(columns.told(mark), number, start=slot.at, size=slot.length)
    answers = msgspec.msgpack.decode(raw, type=list[Told])
    at, leaves, entries = COUNT.itemsize, [], []
    start, contact = 0, round_.suite.contact_size
    for one, named in zip(answers, partners_of(answers, partners), strict=True):
        group, rows = one.group, own[start : start + one.people]
        size, start = round_.terms.groups[group].answer_size, start + one.people
        texts = write_answers(one.answers, named, contact=contact, size=size)
        names, keys = rows[:, at : at + ADDRESS_SIZE], rows[:, at + ADDRESS_SIZE :]
        made = seal_entries(texts, keys, names, round_, group=group, bulk=Bulk())
        leaves += [leaf_hash(bytes((group,)) + entry) for entry in made]
        entries += made
    raw = b"".join(entries)
    content = hashlib.sha256(raw).digest()
    faults.reach("stage.seal", alone=True)
    crate.put(sealed(number, content), raw, use="batch")
    faults.reach("stage.sealed", alone=True)
    return root_over(leaves) + content


def _gathered(
    crate: Crate, round_: Round, number: int, pieces: Sequence[Piece], mark: str
) -> tuple[Bytes, dict[int, Bytes]]:
    """Read what was dealt to a part: its entries by place, and the partners of each group."""
    mine: list[Bytes] = []
    others: dict[int, list[Bytes]] = {}
    wide = [dealt_width(round_, one.source.group) for one in pieces]
    read = crate.pieces(
        Wanted(
            dealt(mark, one.source.number), number, one.at, one.own * first + one.wanted * second
        )
        for one, (first, second) in zip(pieces, wide, strict=True)
    )
    for one, (first, second), found in zip(pieces, wide, read, strict=True):
        raw, cut = np.frombuffer(found, np.uint8), one.own * first
        mine.append(raw[:cut].reshape(one.own, first))
        others.setdefault(one.source.group, []).append(raw[cut:].reshape(one.wanted, second))
    rows = np.concatenate(mine)
    place = np.ascontiguousarray(rows[:, : COUNT.itemsize]).view(COUNT).ravel()
    return rows[np.argsort(place)], {g: np.concatenate(of) for g, of in others.items()}
