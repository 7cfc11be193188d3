"""Notices: what hangs on the board for everybody to see, and its byte layouts.

Bulletins (one sealed answer per address), postings (sealed letters) and checkpoints (the board's
signed word on all it ever showed). Everything here can be read without a key and none of it can
be opened with this file. SPEC sections 8 and 9.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from coatcheck.errors import Malformed
from coatcheck.protocol.merkle import EMPTY, HASH_SIZE, Tree
from coatcheck.protocol.parcels import TALLY_SIZE, VERSION, Tally, decode_tallies, encode_tallies
from coatcheck.protocol.suites import ADDRESS_SIZE, DIGEST_SIZE, SIGNATURE_SIZE
from coatcheck.protocol.terms import Round

ANSWERED: Final = 1
REFUSED: Final = 2
_HEAD: Final = struct.Struct(">BBBx32s")
_POSTING: Final = struct.Struct(">Bxxx32s16s")
_CHECKPOINT: Final = struct.Struct(">BxxxQ32s")
CHECKPOINT_SIZE: Final = _CHECKPOINT.size + SIGNATURE_SIZE
_BULLETIN_LABEL: Final = b"coatcheck/v1/bulletin\0"
_CHECKPOINT_LABEL: Final = b"coatcheck/v1/checkpoint\0"


@dataclass(frozen=True)
class Heading:
    """The head of a bulletin: the outcome of a round in numbers, signed by the server."""

    outcome: int
    digest: bytes
    tallies: tuple[Tally, ...]
    root: bytes
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """What the server signs."""
        return _BULLETIN_LABEL + self.encode()[:-SIGNATURE_SIZE]

    def encode(self) -> bytes:
        """Write the heading; this is also the round's leaf in the board's log."""
        head = _HEAD.pack(VERSION, self.outcome, len(self.tallies), self.digest)
        signature = self.signature or bytes(SIGNATURE_SIZE)
        return head + encode_tallies(self.tallies) + self.root + signature

    @classmethod
    def decode(cls, raw: bytes) -> "Heading":
        """Read a heading that ends where `raw` ends; its signature is not checked yet."""
        if len(raw) < _HEAD.size:
            raise Malformed("this bulletin is cut off")
        version, outcome, groups, digest = _HEAD.unpack_from(raw)
        if version != VERSION or raw[3] or outcome not in {ANSWERED, REFUSED}:
            raise Malformed("this bulletin is of another version")
        if len(raw) != heading_size(groups):
            raise Malformed("this bulletin is not as long as its counts say")
        end = _HEAD.size + groups * TALLY_SIZE
        tallies = decode_tallies(raw[_HEAD.size : end])
        return cls(outcome, digest, tallies, raw[end : end + HASH_SIZE], raw[-SIGNATURE_SIZE:])

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many entries each group has."""
        return tuple(tally.kept if self.outcome == ANSWERED else 0 for tally in self.tallies)


def heading_size(groups: int) -> int:
    """Bytes of a heading for so many groups."""
    return _HEAD.size + groups * TALLY_SIZE + HASH_SIZE + SIGNATURE_SIZE


@dataclass(frozen=True)
class Bulletin:
    """A round's answers: for each group its entries (address, sealed answer) by address."""

    heading: Heading
    entries: tuple[tuple[bytes, ...], ...]

    @classmethod
    def compose(
        cls,
        entries: Sequence[Sequence[bytes]],
        *,
        outcome: int,
        digest: bytes,
        tallies: Sequence[Tally],
    ) -> "Bulletin":
        """Sort the entries and compute their root; the heading is still to be signed."""
        ordered = tuple(tuple(sorted(group)) for group in entries)
        blank = Heading(outcome, digest, tuple(tallies), EMPTY)
        draft = cls(blank, ordered)
        return cls(replace(blank, root=draft.tree.root()), ordered)

    def signed(self, signature: bytes) -> "Bulletin":
        """Put the server's signature under the heading."""
        return Bulletin(replace(self.heading, signature=signature), self.entries)

    def leaves(self) -> Iterator[bytes]:
        """Yield the leaves of the bulletin's tree: the group's number, then the entry."""
        for number, group in enumerate(self.entries):
            prefix = bytes((number,))
            yield from (prefix + entry for entry in group)

    @cached_property
    def tree(self) -> Tree:
        """The Merkle tree over all entries."""
        return Tree(self.leaves())

    def find(self, address: bytes, group: int) -> int | None:
        """Find the place of an address within its group."""
        entries = self.entries[group]
        place = bisect_left(entries, address)
        found = place < len(entries) and entries[place][:ADDRESS_SIZE] == address
        return place if found else None

    def encode(self) -> bytes:
        """Write the bulletin."""
        return self.heading.encode() + b"".join(b"".join(group) for group in self.entries)

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Bulletin":
        """Read a bulletin strictly: lengths, order, no address twice, and the root."""
        start = heading_size(len(round_.terms.groups))
        heading = Heading.decode(raw[:start])
        if heading.digest != round_.digest:
            raise Malformed("this bulletin is for other terms than this round's")
        entries = []
        for number, count in enumerate(heading.sizes):
            size = round_.entry_size(number)
            end = start + count * size
            entries.append(tuple(raw[at : at + size] for at in range(start, end, size)))
            start = end
        bulletin = cls(heading, tuple(entries))
        if len(raw) != start or bulletin.tree.root() != heading.root:
            raise Malformed("the entries of this bulletin are not the ones its root stands for")
        bulletin.check_order()
        return bulletin

    def check_order(self) -> None:
        """Refuse entries out of order: people find theirs by its address."""
        for group in self.entries:
            addresses = [entry[:ADDRESS_SIZE] for entry in group]
            if any(a >= b for a, b in pairwise(addresses)):
                raise Malformed("the entries of this bulletin are not sorted by address")


@dataclass(frozen=True)
class Posting:
    """A sealed letter under the address it is for; who wrote it does not show."""

    digest: bytes
    recipient: bytes
    sealed: bytes

    def encode(self) -> bytes:
        """Write the posting."""
        return _POSTING.pack(VERSION, self.digest, self.recipient) + self.sealed

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Posting":
        """Read a posting of this round."""
        if len(raw) != posting_size(round_):
            raise Malformed(f"postings of this round have {posting_size(round_)} bytes")
        _, digest, recipient = _POSTING.unpack_from(raw)
        if raw[:4] != bytes((VERSION, 0, 0, 0)) or digest != round_.digest:
            raise Malformed("this posting is of another version or another round")
        return cls(digest, recipient, raw[_POSTING.size :])


def posting_size(round_: Round) -> int:
    """Bytes of every posting of a round."""
    return _POSTING.size + round_.letter_size()


@dataclass(frozen=True)
class Checkpoint:
    """The board's signed word: so many things were shown, and this is the root over them."""

    size: int
    root: bytes
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """What the board signs."""
        return _CHECKPOINT_LABEL + _CHECKPOINT.pack(VERSION, self.size, self.root)

    def encode(self) -> bytes:
        """Write the checkpoint."""
        return self.signed_part()[len(_CHECKPOINT_LABEL) :] + self.signature

    @classmethod
    def decode(cls, raw: bytes) -> "Checkpoint":
        """Read a checkpoint; its signature is not checked yet."""
        if len(raw) != CHECKPOINT_SIZE or raw[:4] != bytes((VERSION, 0, 0, 0)):
            raise Malformed(f"a checkpoint has {CHECKPOINT_SIZE} bytes and begins with its version")
        _, size, root = _CHECKPOINT.unpack_from(raw)
        return cls(size, root, raw[_CHECKPOINT.size :])


ROUND_LEAF: Final = b"\1"
LETTER_LEAF: Final = b"\2"

assert HASH_SIZE == DIGEST_SIZE  # noqa: S101 - a layout, not an input
