"""Byte layouts of the board: bulletins with their headings, postings, and checkpoints.

A bulletin has one sealed answer per address, a posting one sealed letter; a checkpoint is the
board's signature over everything that it ever showed. Everything here can be read without a key,
and this file opens no seal. SPEC sections 8 and 9.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Final

from coatcheck.errors import Malformed
from coatcheck.protocol.log.merkle import HASH_SIZE, Tree
from coatcheck.protocol.terms import ADDRESS_SIZE, DIGEST_SIZE, SIGNATURE_SIZE, Round
from coatcheck.protocol.wire.encoding import Layout, Signed, cut
from coatcheck.protocol.wire.uploads import (
    TALLY_SIZE,
    Tally,
    decode_tallies,
    encode_tallies,
    tree_of,
)

ANSWERED: Final = 1
REFUSED: Final = 2
ABANDONED: Final = 3
SERVER: Final = 255
"""The signer of an outcome is the hop of a shuffler, or this."""
_HEAD: Final = Layout("bulletin", ">BBBBBBxx32s")
_SHUFFLER_LABEL: Final = b"coatcheck/v1/end\0"
_POSTING: Final = Layout("posting", ">Bxxx32s16s")
_CHECKPOINT: Final = Layout("checkpoint", ">BxxxQ32s")
RECIPIENT: Final = slice(_POSTING.size - ADDRESS_SIZE, _POSTING.size)
"""The bytes of a posting with the recipient's address."""
CHECKPOINT_SIZE: Final = _CHECKPOINT.size + SIGNATURE_SIZE


@dataclass(frozen=True)
class Heading(Signed):
    """The head of a bulletin: how a round ended, in numbers, and signed.

    It is also the round's leaf in the board's log.

    Attributes:
        roots: the root of the items of each batch, from the first shuffler's on.
        root: the root of the entries.
        outcome: answered, refused or abandoned.
        reason: one of those in `outcomes`.
        signer: the role that signs it: `SERVER`, or the hop of a shuffler.
    """

    label = b"coatcheck/v1/bulletin\0"
    outcome: int
    digest: bytes
    tallies: tuple[Tally, ...]
    roots: tuple[bytes, ...]
    root: bytes
    reason: int = 0
    signer: int = SERVER

    @property
    def context(self) -> bytes:
        """A shuffler signs under another label than the server."""
        return self.label if self.signer == SERVER else _SHUFFLER_LABEL

    def body(self) -> bytes:
        """Write everything but the signature."""
        counts = (len(self.tallies), len(self.roots))
        head = _HEAD.pack(self.outcome, self.reason, self.signer, *counts, self.digest)
        return head + encode_tallies(self.tallies) + b"".join(self.roots) + self.root

    @classmethod
    def decode(cls, raw: bytes) -> "Heading":
        """Read a heading that ends where `raw` ends; its signature is not checked yet."""
        outcome, reason, signer, groups, hops, digest = _HEAD.unpack(raw)
        if outcome not in {ANSWERED, REFUSED, ABANDONED}:
            raise Malformed(f"the outcome of a bulletin must be 1, 2 or 3, got {outcome}")
        if len(raw) != heading_size(groups, hops):
            raise Malformed("the length of this bulletin does not match its counts")
        end = _HEAD.size + groups * TALLY_SIZE
        tallies = decode_tallies(raw[_HEAD.size : end], groups)
        *roots, root = (
            raw[at : at + HASH_SIZE] for at in range(end, len(raw) - SIGNATURE_SIZE, HASH_SIZE)
        )
        parts = (outcome, digest, tallies, tuple(roots), root, reason, signer)
        return cls(*parts, signature=raw[-SIGNATURE_SIZE:])

    def is_of(self, round_: Round) -> bool:
        """Return whether the heading has the digest, the groups and the shufflers of a round."""
        counts = (len(self.tallies), len(self.roots))
        terms = round_.terms
        return self.digest == round_.digest and counts == (len(terms.groups), len(terms.shufflers))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of each group."""
        return tuple(tally.kept if self.outcome == ANSWERED else 0 for tally in self.tallies)


def heading_size(groups: int, hops: int) -> int:
    """Return the bytes of a heading for these numbers of groups and shufflers."""
    return _HEAD.size + groups * TALLY_SIZE + (hops + 1) * HASH_SIZE + SIGNATURE_SIZE


@dataclass(frozen=True)
class Bulletin:
    """A round's answers: for each group its entries (address, sealed answer) by address."""

    heading: Heading
    entries: tuple[tuple[bytes, ...], ...]

    @classmethod
    def compose(
        cls,
        entries: list[list[bytes]],
        outcome: int,
        digest: bytes,
        tallies: Sequence[Tally],
        roots: Sequence[bytes],
        *,
        reason: int = 0,
        signer: int = SERVER,
    ) -> "Bulletin":
        """Sort the entries and compute their root; the heading is still to be signed."""
        ordered = tuple(tuple(sorted(group)) for group in entries)
        root = tree_of(ordered).root()
        parts = (outcome, digest, tuple(tallies), tuple(roots), root, reason, signer)
        return cls(Heading(*parts), ordered)

    @cached_property
    def tree(self) -> Tree:
        """The Merkle tree over all entries."""
        return tree_of(self.entries)

    def find(self, address: bytes, group: int) -> int | None:
        """Find the place of an address within its group."""
        entries = self.entries[group]
        place = bisect_left(entries, address)
        matches = place < len(entries) and entries[place][:ADDRESS_SIZE] == address
        return place if matches else None

    def signed(self, sign: Callable[[bytes], bytes]) -> "Bulletin":
        """Return the bulletin with a signed heading."""
        signature = sign(self.heading.signed_part())
        return Bulletin(replace(self.heading, signature=signature), self.entries)

    def encode(self) -> bytes:
        """Write the bulletin."""
        return self.heading.encode() + b"".join(chain.from_iterable(self.entries))

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Bulletin":
        """Read a bulletin strictly: lengths, order, no address twice, and the root."""
        start = heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
        heading = Heading.decode(raw[:start])
        if not heading.is_of(round_):
            raise Malformed("this bulletin is for other terms than this round's")
        counts = [(count, round_.entry_size(n)) for n, count in enumerate(heading.sizes)]
        bulletin = cls(heading, cut(raw, start, counts))
        end = start + sum(count * size for count, size in counts)
        if len(raw) != end or bulletin.tree.root() != heading.root:
            raise Malformed("the entries of this bulletin do not match its root")
        for group in bulletin.entries:  # clients find an entry by its address
            addresses = [entry[:ADDRESS_SIZE] for entry in group]
            if any(a >= b for a, b in pairwise(addresses)):
                raise Malformed("the entries of this bulletin are not sorted by address")
        return bulletin


@dataclass(frozen=True)
class Posting:
    """A sealed letter with its recipient's address; it does not show the sender."""

    digest: bytes
    recipient: bytes
    sealed: bytes

    def encode(self) -> bytes:
        """Write the posting."""
        return _POSTING.pack(self.digest, self.recipient) + self.sealed

    @classmethod
    def decode(cls, raw: bytes, round_: Round) -> "Posting":
        """Read a posting of this round."""
        if len(raw) != posting_size(round_):
            raise Malformed(
                f"postings of this round have {posting_size(round_)} bytes, this one has {len(raw)}"
            )
        digest, recipient = _POSTING.unpack(raw)
        if digest != round_.digest:
            raise Malformed("this posting is for other terms than this round's")
        return cls(digest, recipient, raw[_POSTING.size :])


def posting_size(round_: Round) -> int:
    """Return the bytes of every posting of a round."""
    return _POSTING.size + round_.letter_size()


@dataclass(frozen=True)
class Checkpoint(Signed):
    """The board's signature over its log: the number of leaves, and the root over them."""

    label = b"coatcheck/v1/checkpoint\0"
    size: int
    root: bytes

    def body(self) -> bytes:
        """Write everything but the signature."""
        return _CHECKPOINT.pack(self.size, self.root)

    @classmethod
    def decode(cls, raw: bytes) -> "Checkpoint":
        """Read a checkpoint; its signature is not checked yet."""
        if len(raw) != CHECKPOINT_SIZE:
            raise Malformed(f"a checkpoint has {CHECKPOINT_SIZE} bytes, this one has {len(raw)}")
        return cls(*_CHECKPOINT.unpack(raw), signature=raw[_CHECKPOINT.size :])


PERIOD: Final = 86_400
"""Seconds for which a gateway has one list of keys: a day of UTC (S17.3)."""
_KEY_LIST: Final = Layout("key list", ">Bxxx32sQ64s")
_GATEWAY: Final = b"coatcheck/v1/gateway\0"
KEY_LIST_LIMIT: Final = 1 << 10
"""The most bytes of a key list as the board logs it."""


@dataclass(frozen=True)
class KeyList:
    """The key list of a gateway for one period, as the board logs it.

    Attributes:
        verifying: the key of the role that signed it.
        until: the end of the period.
    """

    verifying: bytes
    until: int
    signature: bytes
    keys: bytes

    @staticmethod
    def signed_part(keys: bytes, until: int) -> bytes:
        """Return the bytes that a role signs: its gateway's keys and the end of their period."""
        return _GATEWAY + until.to_bytes(8, "big") + keys

    @property
    def period(self) -> bytes:
        """The role and the period, of which there is one list."""
        return self.verifying + self.until.to_bytes(8, "big")

    def encode(self) -> bytes:
        """Write the record."""
        return _KEY_LIST.pack(self.verifying, self.until, self.signature) + self.keys

    @classmethod
    def decode(cls, raw: bytes) -> "KeyList":
        """Read a record; its signature is not checked yet."""
        if not _KEY_LIST.size < len(raw) <= KEY_LIST_LIMIT:
            raise Malformed(
                f"a key list has {_KEY_LIST.size + 1} to {KEY_LIST_LIMIT} bytes, this one has"
                f" {len(raw)}"
            )
        verifying, until, signature = _KEY_LIST.unpack(raw)
        if until % PERIOD:
            raise Malformed("a key list is for a day of UTC")
        return cls(verifying, until, signature, raw[_KEY_LIST.size :])


ROUND_LEAF: Final = b"\1"
LETTER_LEAF: Final = b"\2"
TERMS_LEAF: Final = b"\3"
KEYS_LEAF: Final = b"\4"

assert HASH_SIZE == DIGEST_SIZE  # noqa: S101 - a layout, not an input
