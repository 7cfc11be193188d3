"""The ticket: all that a person keeps of a round, and the only way to their answer.

Holds the seed of the one-time keys, so it is a secret: it prints as its address, and drivers
keep it in files that only the owner can read. SPEC section 12.
"""

from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.keys import KeyPairs, VerifyingKey
from coatcheck.protocol.parcels import Registration, Upload
from coatcheck.protocol.receipts import Receipt
from coatcheck.protocol.records import read_document
from coatcheck.protocol.steps import Progress
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import Round

Seed = Annotated[bytes, Meta(min_length=32, max_length=32)]
Counter = Annotated[int, Meta(ge=0, le=2**53)]


class Ticket(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What joining gives and collecting needs.

    Attributes:
        upload: the sealed bytes; a retry sends these and no others, for fresh noise would be a
            second report.
        registrations: for each later shuffler of a cascade, in order, what it is told of a trap.
            They are handed in before the upload.
        registered: the receipts of those that have been.
        receipt: the shuffler's signature that it has them, the proof if the answer is missing.
        written: how many letters were written; their counters go up from here.
        seen: sender and counter of every letter that was read; none is read twice.
        settling: how far settling is, if it has begun.
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

    @property
    def keys(self) -> KeyPairs:
        """The one-time keys."""
        return KeyPairs(suite_named(self.suite), self.seed)

    def __repr__(self) -> str:
        return f"Ticket(round={self.round!r}, address={self.keys.address.hex()})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Print as the address in rich terminals too: theirs would list every field."""
        return [("address", self.keys.address.hex())]


class TicketStore(Protocol):
    """Where a person keeps the ticket of one round."""

    def load(self) -> Ticket | None:
        """Return the ticket, or None if there is none yet."""

    def keep(self, ticket: Ticket) -> None:
        """Store a new ticket so that it survives a crash."""

    def discard(self) -> None:
        """Remove the ticket that was just kept: nothing of it has left."""


def write_ticket(ticket: Ticket) -> bytes:
    """Write a ticket as JSON; the bytes are secret.

    *Guarantee:* what is written can be read: a number that a peer made up costs nobody a ticket.
    """
    raw = msgspec.json.format(msgspec.json.encode(ticket), indent=1)
    read_document(raw, Ticket, "this would be no ticket any more, and is not kept", error=Refused)
    return raw


def read_ticket(raw: bytes) -> Ticket:
    """Read a ticket strictly."""
    return read_document(raw, Ticket, "this is no ticket")


def same_round(ticket: Ticket, round_: Round) -> None:
    """Refuse a ticket of other terms."""
    if ticket.digest != round_.digest:
        raise Misuse("this ticket is of another round: use the terms you joined with")


def keep_receipt(ticket: Ticket, raw: bytes, round_: Round) -> Ticket:
    """Check the first shuffler's receipt for your upload and put it into the ticket."""
    same_round(ticket, round_)
    upload = Upload.decode(ticket.upload, round_)
    _check_receipt(raw, Receipt.of(ticket.upload, upload), round_.terms.shufflers[0].verifying)
    return replace(ticket, receipt=raw)


def keep_registered(ticket: Ticket, raw: bytes, round_: Round) -> Ticket:
    """Check a later shuffler's receipt, the next that the ticket lacks, and put it in."""
    same_round(ticket, round_)
    hop = len(ticket.registered) + 1
    sent = ticket.registrations[hop - 1]
    held = Registration.decode(sent, round_, hop=hop).held
    _check_receipt(raw, Receipt.of(sent, held), round_.terms.shufflers[hop].verifying)
    return replace(ticket, registered=(*ticket.registered, raw))


def _check_receipt(raw: bytes, expected: Receipt, verifying: str) -> None:
    receipt = Receipt.decode(raw)
    if receipt.body() != expected.body():
        raise Malformed("this receipt is for other bytes than you handed in")
    receipt.check(VerifyingKey(bytes.fromhex(verifying)))
