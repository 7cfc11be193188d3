"""Peeling: how a shuffler opens its layer and puts the items into their new order, part by part.

A part of what came in is peeled by itself: each item gets its rank, and a name by which equal ones
and traps are found. All names of a group are sifted together. Then each partition of the batch is
gathered from the items whose rank begins with its number. So any number of processes can do it, in
any order, and the bytes are the same. Sees no report. SPEC section 10.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import OpeningKey
from coatcheck.protocol.ordering import first_of_each, in_order
from coatcheck.protocol.parcels import ID_SIZE, Tally
from coatcheck.protocol.terms import Round
from coatcheck.protocol.traps import committing

RANK: Final = 16
_TOLD: Final = RANK + ID_SIZE
_NONE: Final = bytes(ID_SIZE)
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Peeled:
    """What became of a part of a group, one row for each item.

    Attributes:
        told: rank and name of everything that came in; the name is zero if it did not open.
        items: rank and item of what opened, by rank.
    """

    told: Bytes
    items: Bytes

    def dealt(self, bits: int) -> list[Bytes]:
        """Deal the items to the partitions by the leading bits of their ranks."""
        return _dealt(self.items, bits)


@dataclass(frozen=True)
class Sifted:
    """What stays of a group: the count, and the ranks of opened items that are left out."""

    tally: Tally
    out: Bytes

    def dealt(self, bits: int) -> list[Bytes]:
        """Deal the ranks to the partitions."""
        return _dealt(self.out, bits)


class Peeler:
    """What a shuffler at one place of the cascade does with a part of a group.

    *Guarantee:* it gives the same bytes for the same part and secret, wherever it runs.
    """

    def __init__(
        self, round_: Round, *, hop: int, key: OpeningKey, secret: bytes, bulk: Bulk | None = None
    ) -> None:
        self._round = round_
        self._hop = hop
        self._key = key
        self._bulk = bulk or Bulk()
        self._ranked = hashlib.blake2b(key=secret, digest_size=RANK, person=b"coatcheck order")

    def peel(self, group: int, sealed: Mapping[bytes, bytes]) -> Peeled:
        """Open this shuffler's layer of items, given by their ids."""
        bounds = self._bounds(group, sealed)
        opened = self._bulk.unseal_each(list(sealed.values()), key=self._key, bounds=bounds)
        ranks = [self.rank(group, name) for name in sealed]
        # Every item is hashed, so that a trap takes no other time than a report.
        named = committing(digest=self._round.digest, group=group, hop=self._hop)
        names = [named(item)[:ID_SIZE] if item else _NONE for item in opened]
        told = np.concatenate([rows(b"".join(ranks), RANK), rows(b"".join(names), ID_SIZE)], axis=1)
        kept = rows(b"".join(rank for rank, item in zip(ranks, opened, strict=True) if item), RANK)
        items = rows(b"".join(filter(None, opened)), self._round.item_size(group, self._hop + 1))
        order, _ = in_order(kept)
        return Peeled(told, np.concatenate([kept[order], items[order]], axis=1))

    def rank(self, group: int, name: bytes) -> bytes:
        """Give an item's place in the new order."""
        # A keyed hash, not a drawn permutation: a retry after a crash gives the same order, and
        # without the secret the order says nothing. Ids are unique, so ties do not occur.
        keyed = self._ranked.copy()
        keyed.update(bytes((group,)) + self._round.digest + name)
        return keyed.digest()

    def _bounds(self, group: int, names: Collection[bytes]) -> list[bytes]:
        """Spell out what this shuffler's layer of each item is bound to."""
        digest, hop = self._round.digest, self._hop
        if hop:
            return [binding(Purpose.LAYER, digest=digest, group=group, hop=hop)] * len(names)
        head = binding(Purpose.LAYER, digest=digest, group=group, upload=b"")
        return [head + name[:ID_SIZE] for name in names]


def sift(tally: Tally, told: Iterable[Bytes], *, traps: Bytes) -> Sifted:
    """Count what of a group did not open, is repeated, or is one of the traps, and leave it out.

    Of equal items the first one in the new order stays. A trap counts once: the same bytes a second
    time are a repetition.
    """
    every = np.concatenate([np.zeros((0, _TOLD), np.uint8), *told])
    every = every[first_of_each(every[:, :RANK])]
    opened = every[every[:, RANK:].any(axis=1)]
    ranks, names = np.ascontiguousarray(opened[:, :RANK]), opened[:, RANK:]
    stays = np.zeros(len(opened), np.bool_)
    stays[first_of_each(names)] = True
    caught = stays & np.isin(_keys(names), _keys(traps))
    tally = tally.drop("repeated", tally.kept - len(every) + int((~stays).sum()))
    tally = tally.drop("unpeeled", len(every) - len(opened)).drop("trap", int(caught.sum()))
    return Sifted(tally, ranks[~stays | caught])


def gather(pieces: Iterable[Bytes], out: Bytes) -> bytes:
    """Make a partition of its pieces of all parts: in the order of rank, without those left out."""
    found = np.concatenate(list(pieces))
    found = found[first_of_each(found[:, :RANK])]
    stays = ~np.isin(_keys(found[:, :RANK]), _keys(out))
    return found[stays, RANK:].tobytes()


def rows(raw: bytes, width: int) -> Bytes:
    """Read rows of one width."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def _keys(columns: Bytes) -> NDArray[Any]:
    """Give rows as values that are compared byte by byte."""
    flat = np.ascontiguousarray(columns)
    return flat.view(np.dtype((np.void, columns.shape[1]))).ravel()


def _dealt(ranked: Bytes, bits: int) -> list[Bytes]:
    """Cut rows that begin with their rank, in order of rank, where the leading bits change."""
    if not bits:
        return [ranked]
    leading = np.ascontiguousarray(ranked[:, :8]).view(">u8").ravel() >> np.uint64(64 - bits)
    ends = np.searchsorted(leading, np.arange(1, 1 << bits, dtype=np.uint64))
    return np.split(ranked, ends)
