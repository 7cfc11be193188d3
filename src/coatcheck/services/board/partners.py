"""Who may write: letters come after their recipient's contact, which only partners were told.

The bulletin shows addresses to everybody. Without this, a stranger could use up the letters that
an address may get. The contact is checked and forgotten; it is neither shown nor stored.
"""

from typing import Final

from coatcheck.errors import Refused
from coatcheck.protocol.keys import address_of
from coatcheck.protocol.notices import Posting, posting_size
from coatcheck.protocol.terms import Round
from coatcheck.services.http.problems import Problem

NO_LETTER: Final = "this is no letter of this round, or to nobody in it"


def stamped_size(round_: Round) -> int:
    """Bytes of a letter as it is handed in."""
    return round_.suite.contact_size + posting_size(round_)


def letters_in(raw: bytes, round_: Round) -> list[bytes]:
    """Give the letters that a request brings; all are refused if one is not of a partner."""
    size = stamped_size(round_)
    pieces = [raw[at : at + size] for at in range(0, max(1, len(raw)), size)]
    return [_of_a_partner(piece, round_) for piece in pieces]


def _of_a_partner(piece: bytes, round_: Round) -> bytes:
    at = round_.suite.contact_size
    contact, raw = piece[:at], piece[at:]
    try:
        recipient = Posting.decode(raw, round_).recipient
    except Refused:
        raise Problem("malformed", NO_LETTER) from None
    if address_of(round_.suite, contact) != recipient:
        raise Problem("forbidden", "only partners write: hand in the recipient's contact first")
    return raw
