"""Parcels: what travels sealed, and the few bytes outside the seals.

Uploads and receipts between a person and the first shuffler, batches between shufflers and to
the server. Everything here can be read without a key, and says nothing about what is inside:
the shuffler works with this file and cannot import what decodes reports. SPEC section 7.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from msgspec import Struct

from coatcheck.errors import Malformed
from coatcheck.protocol.records import Layout, Signed, cut
from coatcheck.protocol.suites import DIGEST_SIZE, SIGNATURE_SIZE
from coatcheck.protocol.terms import UPLOAD_HEAD, Round

ID_SIZE: Final = 16
_UPLOAD: Final = Layout("upload", ">BBBx32s16s")
_RECEIPT: Final = Layout("receipt", ">Bxxx32s16s32s")
_BATCH: Final = Layout("batch", ">BBBx32s")
RECEIPT_SIZE: Final = _RECEIPT.size + SIGNATURE_SIZE

REASONS: Final = (
    "unpeeled",  # a shuffler could not open its layer
    "repeated",  # a shuffler met the same bytes twice
    "unopened",  # the server could not open the report
    "malformed",  # the report's version, group or padding is wrong
    "bad-key",  # the one-time keys are of small order or not canonical
    "duplicate-address",  # two reports carry the same keys
    "out-of-domain",  # the payload is no report of the randomizer
)


@dataclass(frozen=True)
class Tally:
    """How many reports of a group came in, and how many were dropped for each reason."""

    received: int
    dropped: tuple[int, ...] = field(default=(0,) * len(REASONS))

    @property
    def kept(self) -> int:
        """How many are left."""
        return self.received - sum(self.dropped)

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
    """Read one tally per group; one that drops more than came in is malformed."""
    if len(raw) != groups * TALLY_SIZE:
        raise Malformed("the tallies of the groups are cut off")
    tallies = tuple(Tally(row[0], row[1:]) for row in _TALLY.iter_unpack(raw))
    if any(tally.kept < 0 for tally in tallies):
        raise Malformed("a tally drops more reports than came in")
    return tallies


class Upload(Struct, frozen=True):
    """What a person hands to the first shuffler.

    Attributes:
        token: the hash of the token that came with it, if one is asked for.
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
        if suite != round_.suite.number or group >= len(round_.terms.groups):
            raise Malformed("this upload names a suite or a group that the round does not have")
        if len(raw) != round_.upload_sizes[group]:
            raise Malformed(
                f"uploads of this group have {round_.upload_sizes[group]} bytes,"
                f" this one has {len(raw)}"
            )
        return cls(group, digest, upload, raw[UPLOAD_HEAD:])


@dataclass(frozen=True)
class Receipt(Signed):
    """A shuffler's signature that it holds exactly these bytes for this round."""

    label = b"coatcheck/v1/receipt\0"
    digest: bytes
    id: bytes
    content: bytes

    @classmethod
    def of(cls, raw: bytes, upload: Upload) -> "Receipt":
        """Write the receipt of an upload, still to be signed."""
        return cls(upload.digest, upload.id, hashlib.sha256(raw).digest())

    def body(self) -> bytes:
        """Write everything but the signature."""
        return _RECEIPT.pack(self.digest, self.id, self.content)

    @classmethod
    def decode(cls, raw: bytes) -> "Receipt":
        """Read a receipt; its signature is not checked yet."""
        if len(raw) != RECEIPT_SIZE:
            raise Malformed(f"a receipt has {RECEIPT_SIZE} bytes, this one has {len(raw)}")
        return cls(*_RECEIPT.unpack(raw), signature=raw[_RECEIPT.size :])


@dataclass(frozen=True)
class Batch(Signed):
    """What a shuffler passes on: per group the items in their new order, and the tallies.

    No ids, no times, no lengths: the order and the number are all that it says.
    """

    label = b"coatcheck/v1/batch\0"
    digest: bytes
    hop: int
    tallies: tuple[Tally, ...]
    items: tuple[tuple[bytes, ...], ...]

    def body(self) -> bytes:
        """Write everything but the signature."""
        head = _BATCH.pack(self.hop, len(self.items), self.digest)
        return head + encode_tallies(self.tallies) + b"".join(chain.from_iterable(self.items))

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Batch":
        """Read a batch of this round; its signature is not checked yet."""
        hop, count, digest = _BATCH.unpack(raw)
        groups = len(round_.terms.groups)
        if digest != round_.digest:
            raise Malformed("this batch is for other terms than this round's")
        if count != groups or hop >= len(round_.terms.shufflers):
            raise Malformed("this batch names groups or a shuffler that the round does not have")
        start = _BATCH.size + groups * TALLY_SIZE
        tallies = decode_tallies(raw[_BATCH.size : start], groups)
        counts = [(tally.kept, round_.item_size(n, hop + 1)) for n, tally in enumerate(tallies)]
        end = start + sum(count * size for count, size in counts)
        if len(raw) != end + SIGNATURE_SIZE:
            raise Malformed("this batch is not as long as its counts say")
        return cls(digest, hop, tallies, cut(raw, start, counts), signature=raw[end:])


def content_id(item: bytes) -> bytes:
    """Name an item by its content, where no upload id travels with it."""
    return hashlib.sha256(b"coatcheck/v1/item\0" + item).digest()[:ID_SIZE]


assert DIGEST_SIZE + ID_SIZE + 4 == UPLOAD_HEAD == _UPLOAD.size  # noqa: S101 - a layout, not an input
