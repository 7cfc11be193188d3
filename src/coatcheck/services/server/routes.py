"""The server's routes: an organizer proposes rounds, the last shuffler delivers a batch."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from coatcheck.protocol.agreement import SignedTerms, read_signed
from coatcheck.protocol.server import Phase
from coatcheck.protocol.terms import Second
from coatcheck.services.http.connections import Wire
from coatcheck.services.http.deliveries import delivery
from coatcheck.services.http.routes import Digest, Route

if TYPE_CHECKING:
    from coatcheck.services.server.service import ServerLiveRound, ServerService


class Proposal(Struct, frozen=True, forbid_unknown_fields=True):
    """What an organizer asks for: a draft as in `coatcheck terms propose`, and the times.

    A time below 10^9 is a number of seconds from now.
    """

    draft: dict[str, Any]
    opens: Second = 0
    closes: Second = 3600
    expires: Second = 7200

    def times(self, now: int) -> tuple[int, int, int]:
        """Give the times in seconds since 1970."""

        def at(time: int) -> int:
            return time if time >= 10**9 else now + time

        return at(self.opens), at(self.closes), at(self.expires)


class RoundStatus(Struct, frozen=True):
    """Where a round stands at the server."""

    round: str
    digest: str
    phase: str
    outcome: str
    opened: bool
    closes: int
    expires: int
    first_shuffler: str


def _status(server: "ServerService", live: "ServerLiveRound") -> RoundStatus:
    terms = live.round.terms
    return RoundStatus(
        round=terms.round,
        digest=live.round.digest.hex(),
        phase=live.stored.phase.value,
        outcome=live.stored.outcome,
        opened=live.opened or live.stored.phase not in {Phase.PROPOSED, Phase.AWAITING},
        closes=terms.closes,
        expires=terms.expires,
        first_shuffler=server.settings.value(server.settings.shufflers[0]),
    )


def _found(server: "ServerService", digest: str) -> "ServerLiveRound":
    return server.rounds.found(bytes.fromhex(digest))


async def rounds(server: "ServerService") -> list[RoundStatus]:
    """List the rounds."""
    return [_status(server, live) for live in server.rounds.values()]


async def round_(server: "ServerService", digest: Digest) -> RoundStatus:
    """Say where a round stands."""
    return _status(server, _found(server, digest))


async def terms(server: "ServerService", digest: Digest) -> SignedTerms:
    """Give the terms with the signatures there are so far."""
    return read_signed(_found(server, digest).stored.signed)


async def propose(server: "ServerService", body: Proposal) -> RoundStatus:
    """Propose a round, have it signed, and open it; asking again goes on where it stopped."""
    return _status(server, await server.propose(body))


def batch(server: "ServerService", digest: Digest, wire: Wire) -> Awaitable[None]:
    """Take the last shuffler's batch; the same one twice is one."""
    return server.receive(bytes.fromhex(digest), *wire)


_ONE: Final = "/rounds/{digest}"

ROUTES: Final = (
    Route("GET", "/rounds", rounds, problems=(503,)),
    Route("POST", "/rounds", propose, operator=True, problems=(409, 507)),
    Route("GET", _ONE, round_),
    Route("GET", f"{_ONE}/terms", terms),
    delivery(f"{_ONE}/batch", batch),
)
