"""Letters between two people, and public notices: a person writes and reads them with the ticket.

Each letter is sealed to its recipient and read once. A letter whose body begins with a zero byte
is part of settling. SPEC sections 8, 12 and 15.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from coatcheck.errors import Error
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import Contact, KeyPairs
from coatcheck.protocol.settling.rules import MARK
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Ticket, same_round
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.protocol.wire.messages import Letter, decode_letter, encode_letter

_LAST = bytes(8)  # the end of every notice


def write(
    ticket: Ticket, body: bytes, *, to: bytes, round_: Round, keys: KeyPairs | None = None
) -> tuple[bytes, Ticket]:
    """Write a letter to a partner's contact; return the posting for the board and the new ticket.

    The caller stores the ticket before posting, so that no counter is used twice. A caller that
    writes many letters passes the ticket's keys, so that they are derived once.
    """
    partner = Contact.decode(round_.suite, to)
    keys = keys or ticket.keys
    text = _text(ticket, body, keys=keys, recipient=partner.address, round_=round_)
    bound = binding(Purpose.LETTER, digest=round_.digest, group=0)
    posting = Posting(round_.digest, partner.address, seal(text, to=partner.sealing, bound=bound))
    return posting.encode(), replace(ticket, written=ticket.written + 1)


def write_notice(
    ticket: Ticket, body: bytes, *, round_: Round, keys: KeyPairs
) -> tuple[bytes, Ticket]:
    """Write a public notice: an unsealed letter to one's own address, which everybody can read."""
    text = _text(ticket, body, keys=keys, recipient=keys.address, round_=round_)
    posting = Posting(round_.digest, keys.address, text + bytes(round_.suite.overhead))
    return posting.encode(), replace(ticket, written=ticket.written + 1)


def _text(ticket: Ticket, body: bytes, *, keys: KeyPairs, recipient: bytes, round_: Round) -> bytes:
    same_round(ticket, round_)
    counter = ticket.written
    return encode_letter(round_, sender=keys, recipient=recipient, counter=counter, body=body)


def read_notice(raw: bytes, round_: Round) -> Letter | None:
    """Read a posting as a notice; None if it is none, or is not signed by its sender."""
    if not raw.endswith(_LAST):  # nearly all letters, of which readers look at many
        return None
    overhead = round_.suite.overhead
    if raw[-overhead:] != bytes(overhead):
        return None
    try:
        posting = Posting.decode(raw, round_)
        letter = decode_letter(posting.sealed[:-overhead], round_, recipient=posting.recipient)
    except Error:
        return None
    return letter if letter.sender.address == posting.recipient else None


@dataclass(frozen=True)
class Inbox:
    """The new letters, the new ticket, and how many postings were refused, by reason."""

    letters: tuple[Letter, ...]
    ticket: Ticket
    refused: dict[str, int]


def read(
    ticket: Ticket,
    postings: Iterable[bytes],
    round_: Round,
    *,
    settling: bool = False,
    keys: KeyPairs | None = None,
) -> Inbox:
    """Read the letters to the ticket's address; forged, altered and repeated ones are refused.

    Letters of settling are skipped; with `settling` all others are.
    """
    same_round(ticket, round_)
    keys = keys or ticket.keys
    bound = binding(Purpose.LETTER, digest=round_.digest, group=0)
    letters, refused, seen = [], Counter[str](), set(ticket.seen)
    for raw in postings:
        try:
            posting = Posting.decode(raw, round_)
            if posting.recipient != keys.address or read_notice(raw, round_):
                continue
            text = unseal(posting.sealed, key=keys.opening, bound=bound)
            letter = decode_letter(text, round_, recipient=keys.address)
        except Error as error:
            refused[type(error).__name__] += 1
            continue
        if letter.body.startswith(bytes((MARK,))) != settling:
            continue
        letter_id = (letter.sender.address, letter.counter)
        if letter_id in seen:
            refused["Replayed"] += 1
            continue
        seen.add(letter_id)
        letters.append(letter)
    return Inbox(tuple(letters), replace(ticket, seen=tuple(sorted(seen))), dict(refused))
