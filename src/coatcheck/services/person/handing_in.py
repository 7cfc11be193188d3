"""Handing in: what a ticket holds goes to the shufflers, the later ones of a cascade first.

The upload leaves when every later shuffler has signed for its registration, and not before. Only
the ticket's bytes are ever sent, as often as it takes. SPEC section 12.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Ticket, keep_receipt, keep_registered
from coatcheck.services.http.client import NotTaken, patiently
from coatcheck.services.person.credentials import credential
from coatcheck.services.person.tickets import TicketFile
from coatcheck.services.person.windows import linger

if TYPE_CHECKING:
    from coatcheck.services.person.board import Peers

BYTES: Final = {"content-type": "application/octet-stream"}


def headers_for(round_: Round, token: str) -> Sequence[dict[str, str]]:
    """Give what is shown to each shuffler: `token` has one each, by commas, and no two the same.

    A shuffler could use up at another one what it is shown.
    """
    hops, given = len(round_.terms.shufflers), token.split(",")
    shown = [one for one in given if one]
    if len(given) > hops or len(set(shown)) < len(shown):
        raise Misuse(
            f"the round has {hops} shufflers, and each takes a token of its own: give them in the"
            " order of the terms, separated by commas"
        )
    tokens = [*given, *[""] * hops]
    return [{**BYTES, **credential(round_, tokens[hop], hop=hop)} for hop in range(hops)]


class HandingIn:
    """One ticket on its way to the shufflers of a round.

    Attributes:
        maybe_sent: whether the report may have reached the first shuffler.
    """

    def __init__(
        self, file: TicketFile, *, peers: "Peers", token: str = "", maybe_sent: bool = False
    ) -> None:
        self._file = file
        self._peers = peers
        self._token = token
        self.maybe_sent = maybe_sent

    async def run(self, round_: Round, *, patience: float, window: float = 0.0) -> Ticket:
        """Register the traps, then send the upload; give the ticket with all receipts.

        If an answer was lost and the round closed meanwhile, the report may be in without a
        receipt: the ticket comes back without one, and collecting tells.
        """
        ticket = self._file.read()
        if ticket.receipt:
            return ticket
        headers = headers_for(round_, self._token)
        for hop in range(1 + len(ticket.registered), len(headers)):
            await linger(window)
            ticket = await self._register(ticket, round_, hop, headers[hop], patience)
        await linger(window)
        try:
            receipt = await patiently(lambda: self._once(ticket, round_, headers[0]), patience)
        except Refused:
            if self.maybe_sent:
                return ticket
            raise
        kept = keep_receipt(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, kept)
        return kept

    async def _register(
        self, ticket: Ticket, round_: Round, hop: int, headers: dict[str, str], patience: float
    ) -> Ticket:
        party, raw = round_.terms.shufflers[hop], ticket.registrations[hop - 1]
        url = f"{party.url}/rounds/{round_.digest.hex()}/uploads"
        try:
            receipt = await patiently(lambda: self._peers.send(url, raw, headers=headers), patience)
        except Refused as error:
            raise Refused(
                f"{party.name} does not take part in your trap ({error}): your report stays with"
                " you, nothing of it has left"
            ) from None
        kept = keep_registered(ticket, receipt, round_)
        await asyncio.to_thread(self._file.update, kept)
        return kept

    async def _once(self, ticket: Ticket, round_: Round, headers: dict[str, str]) -> bytes:
        try:
            return await self._peers.send(
                f"{round_.address}/uploads", ticket.upload, headers=headers
            )
        except Unavailable as away:
            self.maybe_sent |= not isinstance(away, NotTaken)
            raise
