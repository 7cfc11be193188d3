"""Retrieval: the ways to get your answer from the board, under one contract.

The whole board tells nobody which entry is yours. One entry with its proof is small, and shows the
board which one is asked for; so it goes through a relay, which does not see it. SPEC section 9.
"""

from typing import Final, Protocol

from coatcheck.errors import Missing, Misuse
from coatcheck.protocol import client
from coatcheck.protocol.client import Budget
from coatcheck.protocol.messages import Answer
from coatcheck.protocol.ticket import Ticket
from coatcheck.services.http.client import Absent
from coatcheck.services.person.board import BoardView

MOST: Final = 2_000
"""Entries up to which the whole board is fetched, also when a relay is known."""


class Retrieval(Protocol):
    """A way to get an answer: what the board shows, verified, and then opened with the ticket.

    Raises `Absent` while the round is not answered.
    """

    async def __call__(self, view: BoardView, ticket: Ticket, *, ledger: Budget | None) -> Answer:
        """Fetch, verify and open."""


async def whole_board(view: BoardView, ticket: Ticket, *, ledger: Budget | None) -> Answer:
    """Fetch the whole bulletin, as everybody does."""
    return client.collect(ticket, await view.bulletin(), ledger=ledger)


async def one_entry(view: BoardView, ticket: Ticket, *, ledger: Budget | None) -> Answer:
    """Fetch one entry with its proof, through a relay."""
    if not view.relayed:
        raise Misuse(
            "asking the board for your entry directly shows which one is yours: give a relay, or"
            " fetch the whole board"
        )
    await view.heading()  # Absent until the round is answered
    try:
        heading, entry = await view.entry(ticket.group, ticket.keys.address)
    except Absent:
        raise Missing(
            f"the board says that your address {ticket.keys.address.hex()} is not on it; fetch the"
            " whole board (--retrieval whole) to see for yourself"
        ) from None
    client.settle(ticket, heading, ledger=ledger)
    return client.open_entry(ticket, entry)


async def by_size(view: BoardView, ticket: Ticket, *, ledger: Budget | None) -> Answer:
    """Fetch one entry if there is a relay and the board is large, else the whole board."""
    large = view.relayed and sum((await view.heading()).sizes) > MOST
    return await (one_entry if large else whole_board)(view, ticket, ledger=ledger)


RETRIEVALS: Final[dict[str, Retrieval]] = {
    "by-size": by_size,
    "whole": whole_board,
    "entry": one_entry,
}
"""Every way, by its name."""
