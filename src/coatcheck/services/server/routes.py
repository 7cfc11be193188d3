"""The server's typed routes, as OpenAPI tells them."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from coatcheck.protocol.server import Phase
from coatcheck.services.http.app import problems
from coatcheck.services.http.documents import Key, SignedDocument, key_of, signed_document

if TYPE_CHECKING:
    from coatcheck.services.server.service import ServerLiveRound, ServerService

Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The digest of the terms.")]
Time = Annotated[int, Field(ge=0, le=2**48)]


class Plan(BaseModel):
    """What an organizer asks for: a draft as in `coatcheck terms propose`, and the times.

    A time below 10^9 is a distance from now in seconds.
    """

    model_config = ConfigDict(extra="forbid")

    draft: dict[str, Any]
    opens: Time = 0
    closes: Time = 3600
    expires: Time = 7200

    def times(self, now: int) -> tuple[int, int, int]:
        """Give the times in seconds since 1970."""

        def at(time: int) -> int:
            return time if time >= 10**9 else now + time

        return at(self.opens), at(self.closes), at(self.expires)


class RoundStatus(BaseModel):
    """Where a round stands at the server."""

    round: str
    digest: str
    phase: str
    outcome: str
    opened: bool
    closes: int
    expires: int
    first_shuffler: str


def add_routes(service: "ServerService") -> None:
    """Add the server's routes."""
    api = service.frame.api

    def status(live: "ServerLiveRound") -> RoundStatus:
        terms = live.round.terms
        return RoundStatus(
            round=terms.round,
            digest=live.round.digest.hex(),
            phase=live.stored.phase.value,
            outcome=live.stored.outcome,
            opened=live.opened or live.stored.phase not in {Phase.PROPOSED, Phase.AWAITING},
            closes=terms.closes,
            expires=terms.expires,
            first_shuffler=service.settings.value(service.settings.shufflers[0]),
        )

    @api.get("/key")
    async def key() -> Key:
        """Give the public keys for new rounds."""
        return key_of(service.keyring.public)

    @api.get("/rounds", responses=problems(503))
    async def rounds() -> list[RoundStatus]:
        """List the rounds."""
        return [status(live) for live in service.rounds.values()]

    @api.get("/rounds/{digest}", responses=problems(404, 422, 503))
    async def round_(digest: Digest) -> RoundStatus:
        """Say where a round stands."""
        return status(service.rounds.found(bytes.fromhex(digest)))

    @api.get("/rounds/{digest}/terms", responses=problems(404, 422))
    async def terms(digest: Digest) -> SignedDocument:
        """Give the terms with the signatures there are so far."""
        return signed_document(service.rounds.found(bytes.fromhex(digest)).stored.signed)

    @api.post(
        "/rounds",
        dependencies=[Depends(service.frame.operator)],
        responses=problems(400, 403, 409, 413, 422, 503, 507),
    )
    async def propose(plan: Plan) -> RoundStatus:
        """Propose a round, have it signed, and open it; asking again goes on where it stopped."""
        return status(await service.propose(plan))
