"""Parcels: closed things on their way, and the few bytes outside them.

Uploads and receipts between a person and the first shuffler, batches between shufflers and to
the server. Everything here can be read without a key, and says nothing about what is inside:
the shuffler works with this file and cannot import what decodes reports. SPEC section 7.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from coatcheck.errors import Malformed
from coatcheck.protocol.suites import DIGEST_SIZE, SIGNATURE_SIZE
from coatcheck.protocol.terms import UPLOAD_HEAD, Round

VERSION: Final = 1
ID_SIZE: Final = 16
_UPLOAD: Final = struct.Struct(">BBBx32s16s")
_RECEIPT: Final = struct.Struct(">Bxxx32s16s32s")
_BATCH: Final = struct.Struct(">BBBx32s")
RECEIPT_SIZE: Final = _RECEIPT.size + SIGNATURE_SIZE
_RECEIPT_LABEL: Final = b"coatcheck/v1/receipt\0"
_BATCH_LABEL: Final = b"coatcheck/v1/batch\0"

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


def decode_tallies(raw: bytes) -> tuple[Tally, ...]:
    """Read tallies; one that drops more than came in is malformed."""
    tallies = tuple(Tally(row[0], row[1:]) for row in _TALLY.iter_unpack(raw))
    if any(tally.kept < 0 for tally in tallies):
        raise Malformed("a tally drops more reports than came in")
    return tallies


class Upload(Struct, frozen=True):
    """What a person hands to the first shuffler."""

    group: int
    digest: bytes
    id: bytes
    body: bytes

    def encode(self, round_: Round) -> bytes:
        """Write the upload."""
        return _UPLOAD.pack(VERSION, round_.suite.number, self.group, self.digest, self.id) + (
            self.body
        )

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Upload":
        """Read an upload of this round; every length is checked before anything else is done."""
        if len(raw) < UPLOAD_HEAD:
            raise Malformed(f"an upload has at least {UPLOAD_HEAD} bytes, this one has {len(raw)}")
        version, suite, group, digest, upload = _UPLOAD.unpack_from(raw)
        if version != VERSION or raw[3]:
            raise Malformed("this upload is of another version")
        if digest != round_.digest:
            raise Malformed("this upload is for other terms than this round's")
        if suite != round_.suite.number or group >= len(round_.terms.groups):
            raise Malformed("this upload names a suite or a group that the round does not have")
        if len(raw) != round_.upload_size(group):
            raise Malformed(
                f"uploads of this group have {round_.upload_size(group)} bytes,"
                f" this one has {len(raw)}"
            )
        return cls(group, digest, upload, raw[UPLOAD_HEAD:])


@dataclass(frozen=True)
class Receipt:
    """A shuffler's word that it holds exactly these bytes for this round."""

    digest: bytes
    id: bytes
    content: bytes
    signature: bytes = b""

    @classmethod
    def of(cls, raw: bytes, upload: Upload) -> "Receipt":
        """Write the receipt of an upload, still to be signed."""
        return cls(upload.digest, upload.id, hashlib.sha256(raw).digest())

    def signed_part(self) -> bytes:
        """What the shuffler signs."""
        return _RECEIPT_LABEL + _RECEIPT.pack(VERSION, self.digest, self.id, self.content)

    def encode(self) -> bytes:
        """Write the receipt."""
        return self.signed_part()[len(_RECEIPT_LABEL) :] + self.signature

    @classmethod
    def decode(cls, raw: bytes) -> "Receipt":
        """Read a receipt; its signature is not checked yet."""
        if len(raw) != RECEIPT_SIZE or raw[:4] != bytes((VERSION, 0, 0, 0)):
            raise Malformed(f"a receipt has {RECEIPT_SIZE} bytes and begins with its version")
        _, digest, upload, content = _RECEIPT.unpack_from(raw)
        return cls(digest, upload, content, raw[_RECEIPT.size :])


@dataclass(frozen=True)
class Batch:
    """What a shuffler passes on: per group the items in their new order, and the tallies.

    No ids, no times, no lengths: the order and the number are all that it says.
    """

    digest: bytes
    hop: int
    tallies: tuple[Tally, ...]
    items: tuple[tuple[bytes, ...], ...]
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """What the shuffler signs: everything."""
        head = _BATCH.pack(VERSION, self.hop, len(self.items), self.digest)
        items = b"".join(b"".join(group) for group in self.items)
        return _BATCH_LABEL + head + encode_tallies(self.tallies) + items

    def encode(self) -> bytes:
        """Write the batch."""
        return self.signed_part()[len(_BATCH_LABEL) :] + self.signature

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Batch":
        """Read a batch of this round; its signature is not checked yet."""
        groups = len(round_.terms.groups)
        start = _BATCH.size + groups * TALLY_SIZE
        if len(raw) < start + SIGNATURE_SIZE:
            raise Malformed("this batch is cut off")
        version, hop, count, digest = _BATCH.unpack_from(raw)
        if version != VERSION or raw[3] or count != groups or hop >= len(round_.terms.shufflers):
            raise Malformed("this batch is of another version or another round")
        if digest != round_.digest:
            raise Malformed("this batch is for other terms than this round's")
        tallies = decode_tallies(raw[_BATCH.size : start])
        sizes = [round_.item_size(group, hop + 1) for group in range(groups)]
        whole = sum(size * tally.kept for size, tally in zip(sizes, tallies, strict=True))
        if len(raw) != start + whole + SIGNATURE_SIZE:
            raise Malformed("this batch is not as long as its counts say")
        items = []
        for size, tally in zip(sizes, tallies, strict=True):
            end = start + size * tally.kept
            items.append(tuple(raw[at : at + size] for at in range(start, end, size)))
            start = end
        return cls(digest, hop, tallies, tuple(items), raw[start:])


def content_id(item: bytes) -> bytes:
    """Name an item by its content, where no upload id travels with it."""
    return hashlib.sha256(b"coatcheck/v1/item\0" + item).digest()[:ID_SIZE]


assert DIGEST_SIZE + ID_SIZE + 4 == UPLOAD_HEAD == _UPLOAD.size  # noqa: S101 - a layout, not an input
