"""Seals without cryptography and coins by name, for tests that compare views byte by byte.

An ideal seal is random bytes of the right length, which a table opens for the owner of the key and
nobody else. That is what IND-CCA2 promises of HPKE, so the views of an adversary who lacks the key
can be compared exactly. A coin is a hash of its name. Two runs that name their coins alike draw
the same coins, which couples the runs.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from cryptography.exceptions import InvalidTag

from coatcheck.entropy import Entropy
from coatcheck.protocol import client, envelope, shuffler, ticket
from coatcheck.protocol.keys import SEED_SIZE
from coatcheck.protocol.terms import CLASSICAL

_LABEL = len(b"coatcheck/v1/")
_OVERHEAD = 48


def coin(name: object, size: int) -> bytes:
    """Return the bytes that a coin of this name shows."""
    return hashlib.shake_256(repr(name).encode()).digest(size)


class Named(Entropy):
    """Randomness by name: the draws of a source are coins of its name, one after the other."""

    secure = False

    def __init__(self, *name: object) -> None:
        super().__init__()
        self._name, self._drawn = name, 0

    def _stream(self, size: int) -> bytes:
        return self.token(size)

    def token(self, size: int) -> bytes:
        """Return the next coin."""
        self._drawn += 1
        return coin((*self._name, self._drawn), size)


class Joining(Entropy):
    """The randomness of a person who joins.

    The noise and the seed of the one-time keys are coins of the report; everything that is drawn
    after the seed (upload id, traps, the order of the items) are coins of the person.
    """

    secure = False

    def __init__(self, person: str, *, noise: Entropy, seed: bytes) -> None:
        super().__init__()
        self._noise, self._seed, self._person = noise, seed, Named("person", person)
        self._joined = False

    def _stream(self, size: int) -> bytes:
        return self.token(size)

    def token(self, size: int) -> bytes:
        """Return the next coin."""
        if self._joined:
            return self._person.token(size)
        self._joined = size == SEED_SIZE
        return self._seed if self._joined else self._noise.token(size)


class Sealed(NamedTuple):
    """What the table holds of a seal."""

    key: bytes
    bound: bytes
    text: bytes


class IdealSeals:
    """The table of all seals of a run.

    Attributes:
        cut: the hop whose opener is honest; the server is behind the last shuffler. What lies under
            its layer belongs to a report, the layer itself and those around it to a person.
        last: the hop of the server.
        owner: the person who joins, and the name of their report.
        decoys: the seed of each decoy, by the seed of the report beside it and its number.
    """

    def __init__(
        self,
        *,
        cut: int,
        last: int,
        table: dict[bytes, Sealed] | None = None,
        decoys: dict[tuple[bytes, int], bytes] | None = None,
    ) -> None:
        self.cut, self.last = cut, last
        self.owner = ("", "")
        self.table = {} if table is None else table
        self.decoys = {} if decoys is None else decoys
        self._counts: Counter[object] = Counter()

    def encrypt(self, text: bytes, key: Any, bound: bytes) -> bytes:
        """Seal as HPKE does."""
        raw = key.public_bytes_raw()
        sealed = coin(self._name(raw, bound), len(text) + _OVERHEAD)
        assert sealed not in self.table, "two seals would have one name"
        self.table[sealed] = Sealed(raw, bound, text)
        return sealed

    def decrypt(self, sealed: bytes, key: Any, bound: bytes) -> bytes:
        """Open as HPKE does."""
        entry = self.table.get(sealed)
        if entry is None or (entry.key, entry.bound) != (
            key.public_key().public_bytes_raw(),
            bound,
        ):
            raise InvalidTag
        return entry.text

    def _name(self, key: bytes, bound: bytes) -> object:
        label, place = bound[_LABEL:].split(b"\0", 1)
        person, report = self.owner
        if label == b"report":
            # The person's report first, then the decoys, which stay with the person.
            number = self._counts[label, person] = self._counts[label, person] + 1
            return label, number, report if self.last > self.cut and number == 1 else person
        of = (label, person, place[2]) if label == b"layer" else (label, key)
        self._counts[of] += 1
        # `wrap` seals the report first, then the decoys and traps.
        if label == b"layer" and place[2] > self.cut and self._counts[of] == 1:
            return label, report, place[2]
        return *of, self._counts[of]

    def decoy_seed(self, seed: bytes, number: int) -> bytes:
        """Return the seed of a decoy's keys: a coin of the person, as a secret PRF's value is."""
        self.decoys.setdefault((seed, number), coin(("decoy", self.owner[0], number), 32))
        return self.decoys[seed, number]

    def opened(self, seen: Iterable[bytes], keys: Collection[bytes]) -> frozenset[object]:
        """Return what the owners of keys can open of what they see, layer by layer."""
        pool, found = b"|".join(seen), set[tuple[bytes, Sealed]]()
        closed = {(raw, seal) for raw, seal in self.table.items() if seal.key in keys}
        while new := {(raw, seal) for raw, seal in closed if raw in pool}:
            closed -= new
            found |= new
            pool = b"|".join(seal.text for _, seal in new)
        return frozenset(found)


@contextmanager
def ideal(seals: IdealSeals) -> Iterator[None]:
    """Have all seals and the seeds of decoys go through tables, and receipts draw named coins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(envelope._HPKE, CLASSICAL, seals)
        for module in (client, ticket):
            patch.setattr(module, "decoy_seed", seals.decoy_seed)
        receipts = Named("receipts")
        patch.setattr(shuffler, "system", lambda: receipts)
        yield
