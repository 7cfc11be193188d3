"""A person's ticket of a round, and the shufflers' receipts that it stores.

The ticket has the seed of the one-time keys, so it is secret: it prints as its address, and
drivers store it in files that only the owner can read.

A receipt is a shuffler's signature that it holds exactly these bytes. One signature serves many
receipts: those of one commit are the leaves of a tree, the shuffler signs its root, and each person
gets the path from their leaf. All paths have one length, with fillers that look like hashes, so
that a receipt does not show how many uploads came at the same time. SPEC sections 7 and 12.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from coatcheck.entropy import Entropy
from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.keys import KeyPairs, VerifyingKey, decoy_seed
from coatcheck.protocol.log.merkle import HASH_SIZE, leaf_hash, node_hash
from coatcheck.protocol.settling.rules import Progress
from coatcheck.protocol.terms import SIGNATURE_SIZE, Round, suite_named
from coatcheck.protocol.wire.encoding import Layout, read_document
from coatcheck.protocol.wire.uploads import Registration, Upload

LEVELS: Final = 10
MOST: Final = 2**LEVELS
"""The most receipts under one signature."""
_BODY: Final = Layout("receipt", ">Bxxx32s16s32s")
_PATH: Final = LEVELS * HASH_SIZE
_LABEL: Final = b"coatcheck/v1/receipt\0"
RECEIPT_SIZE: Final = _BODY.size + 2 + _PATH + SIGNATURE_SIZE


@dataclass(frozen=True)
class Receipt:
    """A shuffler's receipt: what it holds, and the path from there to the signed root.

    Attributes:
        content: the hash of the upload or registration.
        place: bit k says on which side the path's hash k is: 1 for the left.
        path: the hashes beside the path to the root, from the leaf up.
    """

    digest: bytes
    id: bytes
    content: bytes
    place: int = 0
    path: bytes = b""
    signature: bytes = b""

    @classmethod
    def of(cls, raw: bytes, upload: Upload) -> "Receipt":
        """Return the receipt of an upload or a registration, still to be signed."""
        return cls(upload.digest, upload.id, hashlib.sha256(raw).digest())

    @staticmethod
    def body_of(raw: bytes, upload: Upload) -> bytes:
        """Write the leaf of an upload's receipt."""
        return _BODY.pack(upload.digest, upload.id, hashlib.sha256(raw).digest())

    def body(self) -> bytes:
        """Write the leaf."""
        return _BODY.pack(self.digest, self.id, self.content)

    def check(self, verifying: VerifyingKey) -> None:
        """Raise `BadSignature` unless the key's owner signed the root that the path leads to."""
        node = leaf_hash(self.body())
        for level in range(LEVELS):
            other = self.path[level * HASH_SIZE : (level + 1) * HASH_SIZE]
            is_right = self.place >> level & 1
            node = node_hash(other, node) if is_right else node_hash(node, other)
        verifying.check(self.signature, _LABEL + node)

    @classmethod
    def decode(cls, raw: bytes) -> "Receipt":
        """Read a receipt; its signature is not checked yet."""
        if len(raw) != RECEIPT_SIZE:
            raise Malformed(f"a receipt has {RECEIPT_SIZE} bytes, this one has {len(raw)}")
        digest, name, content = _BODY.unpack(raw)
        start = _BODY.size + 2
        place = int.from_bytes(raw[_BODY.size : start], "big")
        if place >= MOST:
            raise Malformed("the place of this receipt is outside its tree")
        return cls(digest, name, content, place, raw[start : start + _PATH], raw[start + _PATH :])


def issue_receipts(
    bodies: Sequence[bytes], sign: Callable[[bytes], bytes], *, entropy: Entropy
) -> list[bytes]:
    """Sign once for all uploads of a commit; return their receipts in the same order (S7.6)."""
    if not 0 < len(bodies) <= MOST:
        raise Misuse(f"one signature covers 1 to {MOST} receipts, got {len(bodies)}")
    leaves = [leaf_hash(body) for body in bodies]
    # By hash, so that the order of arrival within a commit does not show (S7.8).
    ordered = sorted(set(leaves))
    levels, top = [], ordered
    for _ in range(LEVELS):
        first, level = _even_level(top, entropy)
        levels.append((first, level))
        top = [node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    paths = [(0, b"")]
    for first, level in reversed(levels):
        paths = [
            (paths[at >> 1][0] << 1 | at & 1, level[at ^ 1] + paths[at >> 1][1])
            for at in range(first, len(level))
        ]
    path_of = dict(zip(ordered, paths, strict=False))
    signature = sign(_LABEL + top[0])
    return [
        body + path_of[leaf][0].to_bytes(2, "big") + path_of[leaf][1] + signature
        for body, leaf in zip(bodies, leaves, strict=True)
    ]


def _even_level(hashes: list[bytes], entropy: Entropy) -> tuple[int, list[bytes]]:
    """Add a random filler on a random side if the count is odd; return where hashes begin too."""
    if len(hashes) % 2 == 0:
        return 0, hashes
    random = entropy.token(HASH_SIZE + 1)
    first, filler = random[0] & 1, [random[1:]]
    return first, filler + hashes if first else hashes + filler


Seed = Annotated[bytes, Meta(min_length=32, max_length=32)]
Counter = Annotated[int, Meta(ge=0, le=2**53)]


class Correspondence(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a ticket stores of the letters of a decoy's address; a `Ticket` explains the fields."""

    written: Counter = 0
    seen: tuple[tuple[bytes, Counter], ...] = ()
    settling: Progress | None = None


class Ticket(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that a person stores of a round: `join` makes it, and `collect` needs it.

    A person with decoys has several addresses. Only the ticket tells which one is the report's: its
    keys are those of the seed itself, and the keys of decoy j those of a seed derived from it.

    Attributes:
        upload: the sealed bytes; a retry sends these and no others, because fresh noise would be a
            second report.
        registrations: one for each later shuffler, in order; the client sends them before the
            upload.
        registered: the receipts for them that have arrived.
        receipt: the first shuffler's receipt for the upload, the proof if the answer is missing.
        written: the number of letters written; their counters go up from here.
        seen: sender and counter of every letter that was read; none is read twice.
        settling: the state of settling, if it has begun.
        decoys: the letters of each decoy.
    """

    coatcheck: Literal["ticket/1"] = "ticket/1"
    round: str
    digest: Seed
    suite: str
    group: Counter
    seed: Seed
    upload: bytes
    registrations: tuple[bytes, ...] = ()
    registered: tuple[bytes, ...] = ()
    receipt: bytes = b""
    written: Counter = 0
    seen: tuple[tuple[bytes, Counter], ...] = ()
    settling: Progress | None = None
    decoys: tuple[Correspondence, ...] = ()

    @property
    def keys(self) -> KeyPairs:
        """The one-time keys of the report."""
        return KeyPairs(suite_named(self.suite), self.seed)

    @property
    def addresses(self) -> tuple[bytes, ...]:
        """The addresses of the report and of every decoy."""
        return (self.keys.address, *(decoy.keys.address for decoy in self.decoy_tickets()))

    def decoy_tickets(self) -> tuple["Ticket", ...]:
        """Return each decoy as a ticket of its own, to open its answer and to write its letters.

        Such a ticket has no upload. It is not stored itself: `with_letters` puts its letters back.
        """
        return tuple(
            Ticket(
                round=self.round,
                digest=self.digest,
                suite=self.suite,
                group=self.group,
                seed=decoy_seed(self.seed, number),
                upload=b"",
                written=letters.written,
                seen=letters.seen,
                settling=letters.settling,
            )
            for number, letters in enumerate(self.decoys, start=1)
        )

    def with_letters(self, changed: "Ticket", *, decoy: int | None = None) -> "Ticket":
        """Return this ticket with the letters of another version of it, or of one of its decoys.

        `decoy` is the place of the decoy in `decoy_tickets`; None stands for the report.
        """
        written, seen, settling = changed.written, changed.seen, changed.settling
        if decoy is None:
            return replace(self, written=written, seen=seen, settling=settling)
        decoys = list(self.decoys)
        decoys[decoy] = Correspondence(written=written, seen=seen, settling=settling)
        return replace(self, decoys=tuple(decoys))

    def __repr__(self) -> str:
        return f"Ticket(round={self.round!r}, address={self.keys.address.hex()})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show only the address in rich's output too, which would list all fields."""
        return [("address", self.keys.address.hex())]


class TicketStore(Protocol):
    """A store of one round's ticket."""

    def load(self) -> Ticket | None:
        """Return the ticket, or None if there is none yet."""

    def keep(self, ticket: Ticket) -> None:
        """Store a new ticket so that it survives a crash."""

    def discard(self) -> None:
        """Remove the ticket that was just stored: nothing of it was sent."""


def write_ticket(ticket: Ticket) -> bytes:
    """Write a ticket as JSON; the bytes are secret.

    *Guarantee:* `read_ticket` reads these bytes, whatever numbers other parties chose.
    """
    raw = msgspec.json.format(msgspec.json.encode(ticket), indent=1)
    read_document(
        raw, Ticket, "this ticket cannot be read back, so it was not stored", error=Refused
    )
    return raw


def read_ticket(raw: bytes) -> Ticket:
    """Read a ticket strictly."""
    return read_document(raw, Ticket, "this is not a ticket")


def same_round(ticket: Ticket, round_: Round) -> None:
    """Refuse a ticket of other terms."""
    if ticket.digest != round_.digest:
        raise Misuse("this ticket is of another round: use the terms that you joined with")


def keep_receipt(ticket: Ticket, raw: bytes, round_: Round) -> Ticket:
    """Check the first shuffler's receipt for your upload and put it into the ticket."""
    same_round(ticket, round_)
    upload = Upload.decode(ticket.upload, round_)
    _check_receipt(raw, Receipt.of(ticket.upload, upload), round_.terms.shufflers[0].verifying)
    return replace(ticket, receipt=raw)


def keep_registered(ticket: Ticket, raw: bytes, round_: Round) -> Ticket:
    """Check the receipt of the next later shuffler and put it into the ticket."""
    same_round(ticket, round_)
    hop = len(ticket.registered) + 1
    sent = ticket.registrations[hop - 1]
    held = Registration.decode(sent, round_, hop=hop).held
    _check_receipt(raw, Receipt.of(sent, held), round_.terms.shufflers[hop].verifying)
    return replace(ticket, registered=(*ticket.registered, raw))


def _check_receipt(raw: bytes, expected: Receipt, verifying: str) -> None:
    receipt = Receipt.decode(raw)
    if receipt.body() != expected.body():
        raise Malformed("this receipt is for other bytes than you sent: do not rely on it")
    receipt.check(VerifyingKey(bytes.fromhex(verifying)))
