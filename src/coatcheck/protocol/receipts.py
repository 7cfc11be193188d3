"""Receipts: a shuffler's word that it holds exactly these bytes, one signature for many.

A commit's receipts are the leaves of a tree; the shuffler signs its root, and each person gets the
path from theirs. Every path has the same length, and what fills it up cannot be told from a hash:
a receipt does not show how many came at the same time. SPEC section 7.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coatcheck.entropy import Entropy
from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.merkle import HASH_SIZE, leaf_hash, node_hash
from coatcheck.protocol.parcels import Upload
from coatcheck.protocol.records import Layout
from coatcheck.protocol.suites import SIGNATURE_SIZE

LEVELS: Final = 10
MOST: Final = 2**LEVELS
"""How many receipts one signature can be for."""
_BODY: Final = Layout("receipt", ">Bxxx32s16s32s")
_PATH: Final = LEVELS * HASH_SIZE
_LABEL: Final = b"coatcheck/v1/receipt\0"
RECEIPT_SIZE: Final = _BODY.size + 2 + _PATH + SIGNATURE_SIZE


@dataclass(frozen=True)
class Receipt:
    """What a person keeps: what it is for, and the way from there to what was signed.

    Attributes:
        content: the hash of the upload or registration.
        place: bit k says on which side the path's hash k is: 1 for the left.
        path: the hashes beside the way to the root, from the leaf up.
    """

    digest: bytes
    id: bytes
    content: bytes
    place: int = 0
    path: bytes = b""
    signature: bytes = b""

    @classmethod
    def of(cls, raw: bytes, upload: Upload) -> "Receipt":
        """Write the receipt of what is held, still to be signed."""
        return cls(upload.digest, upload.id, hashlib.sha256(raw).digest())

    @staticmethod
    def body_of(raw: bytes, upload: Upload) -> bytes:
        """Write what the receipt of an upload is for: the leaf."""
        return _BODY.pack(upload.digest, upload.id, hashlib.sha256(raw).digest())

    def body(self) -> bytes:
        """Write what it is for: the leaf."""
        return _BODY.pack(self.digest, self.id, self.content)

    def check(self, verifying: VerifyingKey) -> None:
        """Raise `BadSignature` unless the key's owner signed the root that the path leads to."""
        found = leaf_hash(self.body())
        for level in range(LEVELS):
            other = self.path[level * HASH_SIZE : (level + 1) * HASH_SIZE]
            is_right = self.place >> level & 1
            found = node_hash(other, found) if is_right else node_hash(found, other)
        verifying.check(self.signature, _LABEL + found)

    @classmethod
    def decode(cls, raw: bytes) -> "Receipt":
        """Read a receipt; its signature is not checked yet."""
        if len(raw) != RECEIPT_SIZE:
            raise Malformed(f"a receipt has {RECEIPT_SIZE} bytes, this one has {len(raw)}")
        digest, name, content = _BODY.unpack(raw)
        start = _BODY.size + 2
        place = int.from_bytes(raw[_BODY.size : start], "big")
        if place >= MOST:
            raise Malformed("this receipt has a place that its tree has not")
        return cls(digest, name, content, place, raw[start : start + _PATH], raw[start + _PATH :])


def issue(
    bodies: Sequence[bytes], sign: Callable[[bytes], bytes], *, entropy: Entropy
) -> list[bytes]:
    """Sign for everything that one commit made durable; the receipts in the order given."""
    if not 0 < len(bodies) <= MOST:
        raise Misuse(f"one signature is for 1 to {MOST} receipts, not {len(bodies)}")
    leaves = [leaf_hash(body) for body in bodies]
    # By hash: who came first in a commit does not show.
    ordered = sorted(set(leaves))
    levels, top = [], ordered
    for _ in range(LEVELS):
        first, level = _even(top, entropy)
        levels.append((first, level))
        top = [node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    ways = [(0, b"")]
    for first, level in reversed(levels):
        ways = [
            (ways[at >> 1][0] << 1 | at & 1, level[at ^ 1] + ways[at >> 1][1])
            for at in range(first, len(level))
        ]
    found = dict(zip(ordered, ways, strict=False))
    signature = sign(_LABEL + top[0])
    return [
        body + found[leaf][0].to_bytes(2, "big") + found[leaf][1] + signature
        for body, leaf in zip(bodies, leaves, strict=True)
    ]


def _even(hashes: list[bytes], entropy: Entropy) -> tuple[int, list[bytes]]:
    """Make up an even number, with a drawn filler on a drawn side; also where they begin."""
    if len(hashes) % 2 == 0:
        return 0, hashes
    drawn = entropy.token(HASH_SIZE + 1)
    first, filler = drawn[0] & 1, [drawn[1:]]
    return first, filler + hashes if first else hashes + filler
