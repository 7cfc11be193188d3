"""The board's letters: posted by partners, and given page by page, all or those to one address."""

import asyncio
from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeVar

from coatcheck.errors import Refused
from coatcheck.protocol.board import Board
from coatcheck.protocol.keys import address_of
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.bulletins import Posting, posting_size
from coatcheck.services.clock import Clock
from coatcheck.services.documents import (
    AT_ONCE,
    MORE,
    NUMBERS,
    OWN_PAGE,
    PAGE,
    Address,
    Number,
    Posted,
)
from coatcheck.services.settings import BoardSettings
from coatcheck.services.web.connections import Wire, read_body
from coatcheck.services.web.routing import ROUND, Digest, Header, Problem, Reply, Route

# HOUSE-DOC services.board.partners: "Who may write: letters come after their recipient's contact, which only partners were told.\n\nThe bulletin shows addresses to everybody. Without this, a stranger could use up the letters that\nan address may get. The contact is checked and forgotten; it is neither shown nor stored.\n"
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


Kind = Literal["terms", "bulletin", "letter"]
_NEXT: Final = Header("coatcheck-next", "The place to ask for next.", "^[0-9]+$")
R = TypeVar("R")


class Mailed(Protocol):
    """What is needed of the board."""

    clock: Clock
    settings: BoardSettings

    async def found(self, digest: str) -> Round:
        """Find a round."""

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""

    async def show(self, round_: Round, kind: Kind, raw: bytes = b"") -> int:
        """Have something shown."""


async def post(service: Mailed, digest: Digest, wire: Wire) -> Posted:
    """Show a sealed letter, or several one after the other; again, nothing changes."""
    round_ = await service.found(digest)
    scope, receive, _ = wire
    raw = await read_body(scope, receive, limit=AT_ONCE * stamped_size(round_))
    if service.clock.now() >= round_.terms.expires + service.settings.letters_for:
        raise Problem("closed", "the time for letters of this round is over")
    letters = letters_in(raw, round_)
    shown = (service.show(round_, "letter", letter) for letter in letters)
    return Posted((await asyncio.gather(*shown))[0])


async def letters(service: Mailed, digest: Digest, since: Number = 0) -> Reply:
    """Give a page of the letters from a place on, one after the other; they have one size.

    An empty page is the last.
    """
    round_ = await service.found(digest)
    most = max(1, PAGE // posting_size(round_))
    found = await service.read(lambda log: log.letters(round_.digest, since=since, most=most))
    return Reply(b"".join(found), {"coatcheck-next": str(since + len(found))})


async def own_letters(
    service: Mailed, digest: Digest, address: Address, since: Number = 0, until: Number = 2**40
) -> Reply:
    """Give a page of the letters to one address; ask through a relay.

    Only those of the first `until` letters of the round. An empty page is the last.
    """
    round_, to = await service.found(digest), bytes.fromhex(address)
    most = max(1, OWN_PAGE // posting_size(round_))

    def page(log: Board) -> list[tuple[int, bytes]]:
        asked = {"since": since, "until": until, "most": most + 1}
        return log.letters_to(to, round_.digest, **asked)

    found = await service.read(page)
    told = {
        NUMBERS: ",".join(str(number) for number, _ in found[:most]),
        MORE: "yes" if len(found) > most else "no",
    }
    return Reply(b"".join(raw for _, raw in found[:most]), told)


MAIL: Final = (
    Route(
        *("GET", f"{ROUND}/letters/{{address}}", own_letters),
        sends=(
            Header(NUMBERS, "The number of each letter among those of the round.", "^[0-9,]*$"),
            Header(MORE, "Whether there are more.", "^(yes|no)$"),
        ),
        relayed=True,
    ),
    Route("GET", f"{ROUND}/letters", letters, sends=(_NEXT,), relayed=True),
    Route(
        *("POST", f"{ROUND}/letters", post),
        status=201,
        problems=(403, 409, 429, 507),
        relayed=True,
    ),
)
"""What the board serves of it."""
