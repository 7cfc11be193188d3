"""The server's HTTP routes: terms are proposed, one batch per round comes in, answers go out.

The server knows noisy values and one-time keys in an order that says nothing, and never which
person sent which. Its workers do all arithmetic. SPEC section 11.
"""

from typing import Any

from msgspec import Struct

from coatcheck.protocol.agreement import SignedTerms, read_signed
from coatcheck.protocol.state_machine import ServerPhase
from coatcheck.protocol.terms import Second
from coatcheck.services.batch_transfer import BATCHES
from coatcheck.services.documents import ServerRoundStatus
from coatcheck.services.server.rounds import ServerRounds
from coatcheck.services.web.connections import Wire
from coatcheck.services.web.routing import ROUND, Digest, Nothing, Problem, Route


class Proposal(Struct, frozen=True, forbid_unknown_fields=True):
    """What an organizer asks for: a draft as in `coatcheck terms propose`, and the times.

    A time below 10^9 is a number of seconds from now.
    """

    draft: dict[str, Any]
    opens: Second = 0
    closes: Second = 3600
    expires: Second = 7200

    def times(self, now: int) -> tuple[int, int, int]:
        """Return the times in seconds since 1970."""
        times = (self.opens, self.closes, self.expires)
        opens, closes, expires = (at if at >= 10**9 else now + at for at in times)
        return opens, closes, expires


class ServerService(ServerRounds):
    """One server for many rounds."""

    async def list_rounds(self) -> list[ServerRoundStatus]:
        """List the rounds."""
        return [live.status() for live in self.live_rounds()]

    async def round_status(self, digest: Digest) -> ServerRoundStatus:
        """Return where a round stands."""
        return self.live_round(digest).status()

    async def terms(self, digest: Digest) -> SignedTerms:
        """Return the terms with the signatures so far."""
        return read_signed(self.live_round(digest).stored.signed)

    async def hear(self, digest: Digest, wire: Wire) -> Nothing:
        """Take the signed outcome of a shuffler; a repetition changes nothing."""
        live = self.live_round(digest)
        raw = await self.receive_outcome(live, wire, before=len(live.round.terms.shufflers))
        if live.stored.outcome == "abandoned":
            return Nothing()
        if live.stored.phase is not ServerPhase.AWAITING:
            raise Problem("conflict", "this server has the batch of the round, and continues")
        await self.abandon_round(live, raw)
        return Nothing()

    async def propose(self, body: Proposal) -> ServerRoundStatus:
        """Propose a round, have it signed, and open it; a repetition goes on where it stopped."""
        self.leadership.check()
        live = await self.begin_round(body.draft, body.times(self.clock.now()))
        await self.advance(live)
        return live.status()

    table = (
        Route("GET", "/rounds", list_rounds, problems=(503,)),
        Route("POST", "/rounds", propose, operator=True, problems=(409, 507)),
        Route("GET", ROUND, round_status),
        Route("GET", f"{ROUND}/terms", terms),
        *BATCHES,
        Route("POST", f"{ROUND}/end", hear, problems=(403, 409, 507)),
    )
