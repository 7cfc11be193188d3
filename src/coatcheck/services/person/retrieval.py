"""Retrieval: the ways to fetch your answer from the board, under one contract.

The whole board tells nobody which entry is yours. One entry with its proof is small, and shows the
board which one is asked for; so it goes through a relay, which does not see it. SPEC section 9.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from coatcheck.errors import Missing, Misuse
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.verification import VerifiedBulletin, VerifiedEntry, VerifiedHeading
from coatcheck.services.http.client import Absent
from coatcheck.services.person.board import BoardView

MOST: Final = 2_000
"""Entries up to which the whole board is fetched, also when a relay is known."""


@dataclass(frozen=True)
class OwnEntry:
    """One entry, and the head of the bulletin that it belongs to."""

    heading: VerifiedHeading
    entry: VerifiedEntry


class Retrieval(Protocol):
    """A way to fetch what the board shows for a ticket, verified; the ticket opens it.

    Raises `Absent` while the round is not answered.
    """

    async def __call__(self, view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
        """Fetch and verify."""


async def whole_board(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch the whole bulletin, as everybody does."""
    del ticket
    return await view.bulletin()


async def one_entry(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch one entry with its proof, through a relay; of a refused round the empty bulletin."""
    if not view.relayed:
        raise Misuse(
            "asking the board for your entry directly shows which one is yours: give a relay, or"
            " fetch the whole board"
        )
    if not any((await view.heading()).sizes):
        return await view.bulletin()
    try:
        return OwnEntry(*await view.entry(ticket.group, ticket.keys.address))
    except Absent:
        raise Missing(
            f"the board says that your address {ticket.keys.address.hex()} is not on it; fetch the"
            " whole board (--retrieval whole) to see for yourself"
        ) from None


async def by_size(view: BoardView, ticket: Ticket) -> VerifiedBulletin | OwnEntry:
    """Fetch one entry if there is a relay and the board is large, else the whole board."""
    large = view.relayed and sum((await view.heading()).sizes) > MOST
    return await (one_entry if large else whole_board)(view, ticket)


RETRIEVALS: Final[dict[str, Retrieval]] = {
    "by-size": by_size,
    "whole": whole_board,
    "entry": one_entry,
}
"""Every way, by its name."""
