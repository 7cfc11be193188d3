"""Byte layouts between a person and a shuffler, the tallies of a batch, and traps.

An `Upload` is a head (suite, group, digest of the terms, random id) and a body: the sealed report,
its decoys and traps, each of one size, in random order. `protocol.client.wrap` makes it, `items_of`
cuts the body. A `Registration` announces a trap to a later shuffler.

A decoy is a report like any other, but drawn from nobody's value. A trap is random bytes under the
layers of the shufflers up to one of them. The person sends its commitment directly to that
shuffler. A shuffler that drops or replaces reports loses traps as often, and the count shows it;
the theorem and its proof are in docs/explanation/a-crowd-that-is-counted.md.

Everything here can be read without a key and says nothing about what is sealed inside: the
shuffler works with this file and cannot import what decodes reports. SPEC sections 7 and 10.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, comb, log, sqrt
from typing import Final

from msgspec import Struct

from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.terms import DIGEST_SIZE, UPLOAD_HEAD, Round
from coatcheck.protocol.wire.encoding import Layout

_LABEL: Final = b"coatcheck/v1/trap\0"
_EXACT: Final = 1 << 16
"""The most lost traps for which the slack is exact: for millions the exact sum takes minutes."""


def commitment(trap: bytes, *, digest: bytes, group: int, hop: int) -> bytes:
    """Return the commitment that a person registers: it says nothing about the trap's bytes."""
    return committing(digest=digest, group=group, hop=hop)(trap)


def committing(*, digest: bytes, group: int, hop: int) -> Callable[[bytes], bytes]:
    """Return a function that makes commitments of a group and hop; it hashes their head once."""
    head = hashlib.sha256(_LABEL + bytes((hop, group)) + digest)

    def commit(trap: bytes) -> bytes:
        trap_hash = head.copy()
        trap_hash.update(trap)
        return trap_hash.digest()

    return commit


@lru_cache(maxsize=64)
def slack(lost: int, delta: float, *, reports: int = 1) -> int:
    """Bound how many fewer reports than traps can have arrived if `lost` traps are missing.

    U(lost) - 2 lost, where U(j) is the largest m with P(Bin(m, 1/2) <= j) > delta / reports, in
    integers; `reports` is how many each person hands in, and the bound holds for all of them. For
    very many lost traps it is Hoeffding's bound on the same number, which is larger.
    """
    if not 0 < delta < 0.5:
        raise Misuse(f"`trap_delta` must be between 0 and 1/2, got {delta!r}")
    if lost > _EXACT:
        nats = log(reports / delta)
        return ceil((nats + sqrt(nats * nats + 4 * lost * nats)) * (1 + 1e-12))
    top, bottom = delta.as_integer_ratio()
    bottom *= reports
    # P(Bin(m, 1/2) <= lost) = below / 2^m. At m = 2 lost + 1 it is 1/2, and it falls from there.
    m = 2 * lost + 1
    below, at = 1 << (m - 1), comb(m, lost)
    while below * bottom > top << m:
        below, at = 2 * below - at, at * (m + 1) // (m + 1 - lost)
        m += 1
    return m - 1 - 2 * lost


def people(*, counted: int, registered: int, delta: float, reports: int = 1) -> int:
    """Return how many people's reports a batch holds at least, by the traps counted in it (S10.55).

    *Guarantee:* let each person number the `reports` that they hand in. With a chance of at most
    `delta`, fewer reports of some number arrived from registered, honest people than this, less
    those traps of corrupted people that were counted.
    """
    return counted - slack(registered - counted, delta, reports=reports)


ID_SIZE: Final = 16
_UPLOAD: Final = Layout("upload", ">BBBx32s16s")
_REGISTRATION: Final = Layout("registration", ">BBBx32s32s")

REASONS: Final = (
    "unpeeled",  # a shuffler could not open its layer
    "repeated",  # a shuffler had the same bytes before
    "trap",  # a trap that was registered with the shuffler
    "unopened",  # the server could not open the report
    "malformed",  # the report's version, group or padding is wrong
    "bad-key",  # the one-time keys are of small order or not canonical
    "duplicate-address",  # two reports carry the same keys
    "out-of-domain",  # the payload is no report of the randomizer
)


@dataclass(frozen=True)
class Tally:
    """The number of reports of a group that arrived, and of those dropped, by reason."""

    received: int
    dropped: tuple[int, ...] = field(default=(0,) * len(REASONS))

    @property
    def kept(self) -> int:
        """The number of reports that are left."""
        return self.received - sum(self.dropped)

    @property
    def traps(self) -> int:
        """The number of dropped traps."""
        return self.dropped[REASONS.index("trap")]

    def drop(self, reason: str, count: int = 1) -> "Tally":
        """Count reports dropped for a reason."""
        place = REASONS.index(reason)
        dropped = list(self.dropped)
        dropped[place] += count
        return Tally(self.received, tuple(dropped))


_TALLY: Final = struct.Struct(f">{1 + len(REASONS)}I")
TALLY_SIZE: Final = _TALLY.size


def encode_tallies(tallies: Sequence[Tally]) -> bytes:
    """Write one tally per group."""
    return b"".join(_TALLY.pack(tally.received, *tally.dropped) for tally in tallies)


def decode_tallies(raw: bytes, groups: int) -> tuple[Tally, ...]:
    """Read one tally per group, strictly (S7.12)."""
    if len(raw) != groups * TALLY_SIZE:
        raise Malformed("the tallies of the groups are truncated")
    tallies = tuple(Tally(row[0], row[1:]) for row in _TALLY.iter_unpack(raw))
    if any(tally.kept < 0 for tally in tallies):
        raise Malformed("a tally drops more reports than it received")
    return tallies


class Upload(Struct, frozen=True):
    """The message of a client to the first shuffler.

    Attributes:
        token: the hash of the token that came with it, if admission needs one.
    """

    group: int
    digest: bytes
    id: bytes
    body: bytes
    token: bytes | None = None

    def __repr__(self) -> str:
        return f"Upload(group={self.group})"

    def encode(self, round_: Round) -> bytes:
        """Write the upload."""
        return _UPLOAD.pack(round_.suite.number, self.group, self.digest, self.id) + self.body

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Upload":
        """Read an upload of this round; every length is checked before anything else is done."""
        suite, group, digest, upload = _UPLOAD.unpack(raw)
        if digest != round_.digest:
            raise Malformed("this upload is for other terms than this round's")
        if suite != round_.suite.number:
            raise Malformed("this upload has another suite than the round")
        if group >= len(round_.terms.groups):
            raise Malformed("this upload is for a group that the round does not have")
        if len(raw) != round_.upload_sizes[group]:
            raise Malformed(
                f"uploads of this group have {round_.upload_sizes[group]} bytes,"
                f" this one has {len(raw)}"
            )
        # The round's own bytes object instead of a copy per upload makes comparisons fast.
        return cls(group, round_.digest, upload, raw[UPLOAD_HEAD:])

    def items(self, round_: Round) -> dict[bytes, bytes]:
        """Return the reports and the traps by their ids, in the order of the upload."""
        return items_of(self.id, self.body, count=round_.items_each(self.group))


def items_of(upload: bytes, body: bytes, *, count: int) -> dict[bytes, bytes]:
    """Cut the body of an upload into items; with several, an id ends with the item's place."""
    size = len(body) // count
    names = [upload] if count == 1 else [upload + bytes((place,)) for place in range(count)]
    return {name: body[n * size : (n + 1) * size] for n, name in enumerate(names)}


class Registration(Struct, frozen=True):
    """The message of a client to a later shuffler, before the upload.

    Attributes:
        commitment: the hash by which the shuffler recognizes the trap.
    """

    hop: int
    group: int
    digest: bytes
    commitment: bytes

    def encode(self) -> bytes:
        """Write the registration."""
        return _REGISTRATION.pack(self.hop, self.group, self.digest, self.commitment)

    @property
    def held(self) -> Upload:
        """The registration in the form of an upload, as the shuffler holds it."""
        return Upload(self.group, self.digest, self.commitment[:ID_SIZE], self.commitment)

    @classmethod
    def decode(cls, raw: bytes, round_: Round, *, hop: int) -> "Registration":
        """Read a registration of this round with the shuffler at a place of the cascade."""
        if len(raw) != _REGISTRATION.size:
            raise Malformed(
                f"a registration has {_REGISTRATION.size} bytes, this one has {len(raw)}"
            )
        registration = cls(*_REGISTRATION.unpack(raw))
        if registration.digest != round_.digest:
            raise Malformed("this registration is for other terms than this round's")
        if registration.hop != hop:
            raise Malformed(f"this registration is for hop {registration.hop}, not for hop {hop}")
        if registration.group >= len(round_.terms.groups):
            raise Malformed("this registration is for a group that the round does not have")
        return registration


def tree_of(groups: Iterable[Iterable[bytes]]) -> Tree:
    """Return the tree over items or entries of groups: a leaf is a group's number and an item."""
    numbered = ((bytes((number,)), group) for number, group in enumerate(groups))
    return Tree(prefix + item for prefix, group in numbered for item in group)


def content_id(item: bytes) -> bytes:
    """Return the id of an item by its content, for batches, which have no upload ids (S10.28)."""
    return hashlib.sha256(b"coatcheck/v1/item\0" + item).digest()[:ID_SIZE]


assert DIGEST_SIZE + ID_SIZE + 4 == UPLOAD_HEAD == _UPLOAD.size  # noqa: S101 - a layout, not an input
