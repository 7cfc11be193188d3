"""Letters on the board: posting by partners only, and pages for readers.

A person posts a letter with its recipient's contact before it, which only partners know. The
bulletin shows addresses to everybody, so without this check a stranger could use up an address's
limit of letters. The board neither shows nor stores the contact.
"""

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

NO_LETTER: Final = "this is not a letter of this round to an address on its bulletin"


def stamped_size(round_: Round) -> int:
    """Return the bytes of a letter with its recipient's contact before it."""
    return round_.suite.contact_size + posting_size(round_)


def letters_in(raw: bytes, round_: Round) -> list[bytes]:
    """Return the letters of a request; reject all of them if one lacks its recipient's contact."""
    size = stamped_size(round_)
    pieces = [raw[at : at + size] for at in range(0, max(1, len(raw)), size)]
    return [_checked(piece, round_) for piece in pieces]


def _checked(piece: bytes, round_: Round) -> bytes:
    """Return a letter whose recipient's contact stands before it."""
    at = round_.suite.contact_size
    contact, raw = piece[:at], piece[at:]
    try:
        recipient = Posting.decode(raw, round_).recipient
    except Refused:
        raise Problem("malformed", NO_LETTER) from None
    if address_of(round_.suite, contact) != recipient:
        raise Problem(
            "forbidden",
            "a letter must follow its recipient's contact, which only partners know",
        )
    return raw


Kind = Literal["terms", "bulletin", "letter", "keys"]
_NEXT: Final = Header("coatcheck-next", "The place from which the next page begins.", "^[0-9]+$")
R = TypeVar("R")


class LetterService(Protocol):
    """The part of the board's service that the routes of letters use."""

    clock: Clock
    settings: BoardSettings

    async def find_round(self, digest: str) -> Round:
        """Return a round by its digest in hex."""

    async def read(self, call: Callable[[Board], R]) -> R:
        """Call a function with the board."""

    async def show(self, round_: Round, kind: Kind, raw: bytes = b"") -> int:
        """Append something to the log."""


async def post(service: LetterService, digest: Digest, wire: Wire) -> Posted:
    """Post one sealed letter or several in a row; the same bytes again change nothing."""
    round_ = await service.find_round(digest)
    scope, receive, _ = wire
    raw = await read_body(scope, receive, limit=AT_ONCE * stamped_size(round_))
    if service.clock.now() >= round_.terms.expires + service.settings.letters_for:
        raise Problem("closed", "this round no longer takes letters")
    letters = letters_in(raw, round_)
    places = await asyncio.gather(*(service.show(round_, "letter", raw) for raw in letters))
    return Posted(places[0])


async def letters(service: LetterService, digest: Digest, since: Number = 0) -> Reply:
    """Return a page of the letters from a number on, in a row; all have one size.

    An empty page is the last.
    """
    round_ = await service.find_round(digest)
    most = max(1, PAGE // posting_size(round_))
    page = await service.read(lambda log: log.letters(round_.digest, since=since, most=most))
    return Reply(b"".join(page), {"coatcheck-next": str(since + len(page))})


async def own_letters(
    service: LetterService,
    digest: Digest,
    address: Address,
    since: Number = 0,
    until: Number = 2**40,
) -> Reply:
    """Return a page of the letters to one address; request it through a relay.

    Only letters among the first `until` of the round are in it. An empty page is the last.
    """
    round_, to = await service.find_round(digest), bytes.fromhex(address)
    most = max(1, OWN_PAGE // posting_size(round_))

    def page(log: Board) -> list[tuple[int, bytes]]:
        return log.letters_to(to, round_.digest, since=since, until=until, most=most + 1)

    letters = await service.read(page)
    headers = {
        NUMBERS: ",".join(str(number) for number, _ in letters[:most]),
        MORE: "yes" if len(letters) > most else "no",
    }
    return Reply(b"".join(raw for _, raw in letters[:most]), headers)


LETTER_ROUTES: Final = (
    Route(
        *("GET", f"{ROUND}/letters/{{address}}", own_letters),
        sends=(
            Header(
                NUMBERS, "The number of each letter among all letters of the round.", "^[0-9,]*$"
            ),
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
"""The routes of letters."""
