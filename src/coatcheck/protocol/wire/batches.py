"""Signed manifests, partitions, and how large a round can be.

A batch is a manifest and its partitions, each a file of items. A partition holds the items whose
rank begins with its number, so partitions in order are the items in their new order. A round that
no store, file or count can hold is refused when its terms are drafted, not when the crowd is
there. Everything here can be read without a key. SPEC sections 6 and 7.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.log.merkle import HASH_SIZE, Tree
from coatcheck.protocol.terms import SIGNATURE_SIZE, Round
from coatcheck.protocol.wire.bulletins import heading_size
from coatcheck.protocol.wire.encoding import Layout, Signed
from coatcheck.protocol.wire.uploads import TALLY_SIZE, Tally, decode_tallies, encode_tallies

_HEAD: Final = Layout("batch", ">BBBx32s")
_PART: Final = struct.Struct(">I32s")
_BITS: Final = 14
PART: Final = 1 << _BITS
"""The most items that a partition holds on average, in all but very large groups."""
_MOST: Final = 2 * PART
"""The most items of one partition; by chance none ever has as many."""
_MANY: Final = 20
"""The exponent of the number of items above which partitions grow (S7.16)."""
_BYTES: Final = 26
"""The exponent of the most bytes to which they grow."""


class Part(NamedTuple):
    """A manifest's entry for a partition: the number of items, and the SHA-256 of all of them."""

    items: int
    content: bytes

    @classmethod
    def of(cls, raw: bytes, *, size: int) -> "Part":
        """Describe a partition of items of one size."""
        return cls(len(raw) // size, hashlib.sha256(raw).digest())

    def check(self, raw: bytes) -> None:
        """Refuse bytes that are not the partition's."""
        if hashlib.sha256(raw).digest() != self.content:
            raise Malformed("a partition of this batch does not match its hash")


class Place(NamedTuple):
    """Where a partition is: its number in the batch and in its group, and its bytes."""

    number: int
    group: int
    within: int
    size: int
    part: Part


def capacity_of_part(count: int, size: int) -> int:
    """Return the most items that a part holds on average, for `count` items of a size (S7.16).

    Beyond 2^20 items it grows with the root of their number, so that the pieces that incoming parts
    give to outgoing ones grow with the crowd; but not beyond 2^26 bytes.
    """
    return (1 << _BITS) << _growth(count, size)


def bits_of(received: int, size: int) -> int:
    """Return how many leading bits of the rank are a partition's number (S7.17).

    It depends only on the number of items and their size. Both are public: nobody can choose it.
    """
    return max(0, _bits(received) - _bits(capacity_of_part(received, size)))


def _growth(count: int, size: int) -> int:
    """Return the bits by which parts are larger because there are many items."""
    bits = -((_MANY - _bits(count)) // 2)
    return max(0, min(bits, _BYTES - _BITS - _bits(size)))


def _bits(count: int) -> int:
    """Return the exponent of the smallest power of two that is no less than a count."""
    return max(0, count - 1).bit_length()


@dataclass(frozen=True)
class Manifest(Signed):
    """The signed part of a batch: each group's tally and partitions, and the earlier roots.

    It has no ids, times or lengths (S7.23).

    Attributes:
        earlier: the root of each batch of the cascade before this one.
    """

    label = b"coatcheck/v1/batch\0"
    digest: bytes
    hop: int
    tallies: tuple[Tally, ...]
    earlier: tuple[bytes, ...]
    parts: tuple[tuple[Part, ...], ...]

    @classmethod
    def compose(
        cls,
        parts: Sequence[Sequence[Part]],
        tallies: Sequence[Tally],
        *,
        digest: bytes,
        earlier: Sequence[bytes] = (),
    ) -> "Manifest":
        """Make the next manifest after those with the earlier roots; its caller signs it."""
        listed = tuple(tuple(group) for group in parts)
        return cls(digest, len(earlier), tuple(tallies), tuple(earlier), listed)

    @cached_property
    def root(self) -> bytes:
        """The root of the tree whose leaves are a group's number and one of its partitions."""
        numbered = [(n, part) for n, group in enumerate(self.parts) for part in group]
        return Tree(bytes((group,)) + _PART.pack(*part) for group, part in numbered).root()

    @property
    def roots(self) -> tuple[bytes, ...]:
        """The roots of all batches of the cascade so far, this one's last."""
        return (*self.earlier, self.root)

    def body(self) -> bytes:
        """Write what is signed."""
        head = _HEAD.pack(self.hop, len(self.parts), self.digest) + encode_tallies(self.tallies)
        listed = b"".join(_PART.pack(*part) for group in self.parts for part in group)
        return head + b"".join(self.earlier) + listed

    @cached_property
    def content(self) -> bytes:
        """The hash of the whole manifest, which identifies the batch."""
        return hashlib.sha256(self.encode()).digest()

    def places(self, round_: Round) -> Iterator[Place]:
        """Yield the places of the partitions in order."""
        number = 0
        for group, parts in enumerate(self.parts):
            size = round_.item_size(group, self.hop + 1)
            for within, part in enumerate(parts):
                yield Place(number, group, within, part.items * size, part)
                number += 1

    @classmethod
    def begin(cls, raw: bytes, round_: Round) -> tuple["Manifest", int]:
        """Read the manifest at the beginning of bytes; return it and its length (see `decode`)."""
        hop, count, digest = _HEAD.unpack(raw)
        groups = len(round_.terms.groups)
        if digest != round_.digest:
            raise Malformed("this batch is for other terms than this round's")
        if count != groups or hop >= len(round_.terms.shufflers):
            raise Malformed("this batch has groups or a shuffler that the round does not have")
        earlier = _HEAD.size + groups * TALLY_SIZE
        tallies = decode_tallies(raw[_HEAD.size : earlier], groups)
        at = earlier + hop * HASH_SIZE
        roots = tuple(raw[n : n + HASH_SIZE] for n in range(earlier, at, HASH_SIZE))
        parts = []
        for group, tally in enumerate(tallies):
            size = round_.item_size(group, hop + 1)
            end = at + _PART.size * (1 << bits_of(tally.received, size))
            if len(raw) < end + SIGNATURE_SIZE:
                raise Malformed("this batch is truncated: its manifest is shorter than it says")
            partitions = tuple(Part(*row) for row in _PART.iter_unpack(raw[at:end]))
            if sum(part.items for part in partitions) != tally.kept:
                raise Malformed("the partitions of this batch do not have as many items as it says")
            most = _MOST << _growth(tally.received, size)
            if any(part.items > most for part in partitions):
                raise Malformed(f"a partition of this batch has more than {most} items")
            parts.append(partitions)
            at = end
        end = at + SIGNATURE_SIZE
        return cls(digest, hop, tallies, roots, tuple(parts), signature=raw[at:end]), end

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Manifest":
        """Read a manifest of this round; its signature is not checked yet."""
        manifest, end = cls.begin(raw, round_)
        if len(raw) != end:
            raise Malformed("this manifest is longer than it says")
        return manifest


@dataclass(frozen=True)
class Batch:
    """A manifest with all its partitions, as in files and in small rounds."""

    manifest: Manifest
    parts: tuple[bytes, ...]

    @classmethod
    def compose(
        cls,
        parts: Sequence[Sequence[Sequence[bytes]]],
        tallies: Sequence[Tally],
        *,
        digest: bytes,
        earlier: Sequence[bytes] = (),
    ) -> "Batch":
        """Make the batch from the items of each partition of each group; its caller signs it."""
        joined = [[b"".join(items) for items in group] for group in parts]
        listed = [
            [
                Part(len(items), hashlib.sha256(raw).digest())
                for items, raw in zip(group, raws, strict=True)
            ]
            for group, raws in zip(parts, joined, strict=True)
        ]
        manifest = Manifest.compose(listed, tallies, digest=digest, earlier=earlier)
        return cls(manifest, tuple(raw for group in joined for raw in group))

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tally of each group."""
        return self.manifest.tallies

    @property
    def roots(self) -> tuple[bytes, ...]:
        """The roots of all batches of the cascade so far."""
        return self.manifest.roots

    def items_by_partition(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the items of each partition, with its group."""
        numbered = [(n, part) for n, group in enumerate(self.manifest.parts) for part in group]
        for (group, part), raw in zip(numbered, self.parts, strict=True):
            size = len(raw) // max(1, part.items)
            yield group, [raw[n * size : (n + 1) * size] for n in range(part.items)]

    @cached_property
    def items(self) -> tuple[tuple[bytes, ...], ...]:
        """The items of each group in their order."""
        groups: list[list[bytes]] = [[] for _ in self.manifest.parts]
        for group, items in self.items_by_partition():
            groups[group] += items
        return tuple(tuple(group) for group in groups)

    def encode(self) -> bytes:
        """Write the manifest, and the partitions after it."""
        return self.manifest.encode() + b"".join(self.parts)

    def sign(self, sign: Callable[[bytes], bytes]) -> bytes:
        """Sign the manifest and write the batch."""
        signature = sign(self.manifest.signed_part())
        return replace(self, manifest=replace(self.manifest, signature=signature)).encode()

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Batch":
        """Read a batch of this round, with its partitions; its signature is not checked yet."""
        manifest, at = Manifest.begin(raw, round_)
        places = list(manifest.places(round_))
        if len(raw) != at + sum(place.size for place in places):
            raise Malformed("the length of this batch does not match its counts")
        parts = []
        for place in places:
            parts.append(raw[at : at + place.size])
            place.part.check(parts[-1])
            at += place.size
        return cls(manifest, tuple(parts))


_COUNTED: Final = 2**32 - 1  # the largest count of a batch
_SEALED: Final = 2**31 - 1  # the most bytes that a file is sealed with


def sizes_of(round_: Round) -> list[int]:
    """Return the bytes per person in each group: in the first batch or the bulletin, if more."""
    return [
        max(
            round_.items_each(group) * round_.item_size(group, 1),
            round_.reports_each(group) * round_.entry_size(group),
        )
        for group in range(len(round_.terms.groups))
    ]


def capacity_of(round_: Round, limit: int) -> int:
    """Return how many people a batch and a bulletin of `limit` bytes hold in any case."""
    terms = round_.terms
    heading = heading_size(len(terms.groups), len(terms.shufflers))
    return max(0, limit - heading) // max(sizes_of(round_))


def check_capacity(round_: Round, *, limit: int) -> None:
    """Refuse a round whose smallest crowd or whose answers are too large (S6.46).

    `limit` is the most bytes of a batch or a bulletin.
    """
    terms, sizes = round_.terms, sizes_of(round_)
    people, hops = sum(group.minimum for group in terms.groups), len(terms.shufflers)
    for number, group in enumerate(terms.groups):
        each = round_.items_each(number)
        if each * group.minimum > _COUNTED:
            raise Misuse(
                f"a group of {group.minimum} people with {each} items each has more items than a"
                f" batch can count ({_COUNTED}): `minimum` may be at most {_COUNTED // each}"
            )
    if people > capacity_of(round_, limit):
        needed = people * max(sizes) + heading_size(len(terms.groups), hops)
        raise Misuse(
            f"the smallest crowd of this round is {people} people, and {max(sizes)} bytes each make"
            f" {needed}, but a batch or bulletin has at most {limit}: raise `batch_limit` in the"
            " settings of every role, lower `minimum`, or ask the task for smaller answers"
        )
    together = min(PART, capacity_of(round_, limit))
    if together * max(sizes) > _SEALED:
        raise Misuse(
            f"{together} people with {max(sizes)} bytes each are more than one sealed file holds"
            f" ({_SEALED}): ask the task for smaller answers"
        )
