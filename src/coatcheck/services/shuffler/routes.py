"""The shuffler's typed routes, as OpenAPI tells them; uploads are described here by hand."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Body, Depends, Path
from pydantic import BaseModel

from coatcheck.protocol.keyfiles import document
from coatcheck.protocol.shuffler import MOVES, Phase
from coatcheck.services.http.app import problems
from coatcheck.services.http.documents import Key, SignedDocument, key_of, signed_document
from coatcheck.services.http.problems import Problem

if TYPE_CHECKING:
    from coatcheck.services.shuffler.rounds import ShufflerLiveRound
    from coatcheck.services.shuffler.service import ShufflerService

Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The digest of the terms.")]
_UPLOADS: Final = "/rounds/{digest}/uploads"


class GroupCount(BaseModel):
    """How many are there, and how many are needed."""

    name: str
    minimum: int
    crowd: int


class RoundStatus(BaseModel):
    """Where a round stands at this shuffler: counts, and nothing about anybody."""

    round: str
    digest: str
    phase: str
    delivered: bool
    hop: int | None
    opens: int
    closes: int
    expires: int
    groups: list[GroupCount]


class Offer(BaseModel):
    """What a person needs to take part: the terms, and where the board is."""

    signed: SignedDocument
    board: str
    status: RoundStatus


def status(live: "ShufflerLiveRound") -> RoundStatus:
    """Tell where a round stands."""
    terms = live.round.terms
    return RoundStatus(
        round=terms.round,
        digest=live.round.digest.hex(),
        phase=live.stored.phase.value,
        delivered=live.stored.phase is Phase.DELIVERED,
        hop=live.hop,
        opens=terms.opens,
        closes=terms.closes,
        expires=terms.expires,
        groups=[
            GroupCount(name=group.name, minimum=group.minimum, crowd=live.crowd[number])
            for number, group in enumerate(terms.groups)
        ],
    )


def add_routes(service: "ShufflerService") -> None:
    """Add the shuffler's routes."""
    _for_everybody(service)
    _for_the_server(service)
    _for_the_operator(service)
    _describe_uploads(service)


def _found(service: "ShufflerService", digest: str) -> "ShufflerLiveRound":
    return service.rounds.found(bytes.fromhex(digest))


def _for_everybody(service: "ShufflerService") -> None:
    api = service.frame.api

    @api.get("/key")
    async def key() -> Key:
        """Give the public keys for new rounds."""
        return key_of(service.keyring.public)

    @api.get("/rounds", responses=problems(503))
    async def rounds() -> list[RoundStatus]:
        """List the rounds."""
        return [status(live) for live in service.rounds.values()]

    @api.get("/rounds/{digest}", responses=problems(404, 422, 503))
    async def offer(digest: Digest) -> Offer:
        """Give the signed terms of a round and where it stands."""
        live = _found(service, digest)
        board = service.settings.value(service.settings.board)
        signed = signed_document(live.stored.signed)
        return Offer(signed=signed, board=board, status=status(live))


def _for_the_server(service: "ShufflerService") -> None:
    api = service.frame.api

    @api.post("/rounds", responses=problems(400, 403, 409, 413, 422, 503, 507))
    async def sign(signed: SignedDocument) -> SignedDocument:
        """Counter-sign terms of a known server, once per name."""
        return signed_document(await service.sign(document(signed.model_dump())))

    @api.put("/rounds/{digest}", responses=problems(400, 403, 404, 409, 413, 422, 503, 507))
    async def open_round(digest: Digest, signed: SignedDocument) -> RoundStatus:
        """Open a round on terms that everybody signed."""
        await service.open(bytes.fromhex(digest), document(signed.model_dump()))
        return status(_found(service, digest))


def _for_the_operator(service: "ShufflerService") -> None:
    api = service.frame.api
    operator = [Depends(service.frame.operator)]

    @api.post(
        "/rounds/{digest}/abandonment",
        dependencies=operator,
        responses=problems(403, 404, 409, 413, 422, 503, 507),
    )
    async def abandon(digest: Digest, sure: Annotated[bool, Body(embed=True)]) -> RoundStatus:
        """Give a round up: nothing of it leaves."""
        live = _found(service, digest)
        if not sure:
            raise Problem("unprocessable", "say sure: true to give the round up for good")
        if not MOVES.allows(live.stored.phase, "abandon"):
            raise Problem("closed", f"the round is {live.stored.phase.value} already")
        await service.abandon(live)
        return status(_found(service, digest))

    @api.post(
        "/rounds/{digest}/closing",
        dependencies=operator,
        responses=problems(403, 404, 409, 413, 422, 503, 507),
    )
    async def close(digest: Digest) -> RoundStatus:
        """Close a round whose time is over and whose crowd is there, without waiting for a look."""
        live = _found(service, digest)
        if live.stored.phase is Phase.OPEN and service.clock.now() < live.round.terms.closes:
            raise Problem("refused", "the terms keep this round open longer: wait, or abandon it")
        if live.stored.phase is Phase.OPEN and not service.enough(live):
            raise Problem("refused", "a group is below its minimum crowd: wait, or abandon it")
        await service.rounds.advance(live)
        return status(_found(service, digest))


def _describe_uploads(service: "ShufflerService") -> None:
    """Write the bare paths into the OpenAPI document."""
    api = service.frame.api
    plain = api.openapi

    def described() -> dict[str, Any]:
        if api.openapi_schema is None:
            schema = plain()
            schema["paths"][_UPLOADS] = {"post": _upload()}
            api.openapi_schema = schema
        return api.openapi_schema

    api.openapi = described  # type: ignore[method-assign]


def _upload() -> dict[str, Any]:
    octets = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    told = problems(400, 403, 404, 408, 409, 413, 425, 429, 503, 507)
    return {
        "summary": "Hand in a sealed report",
        "description": "The bytes of a ticket, exactly; the same bytes again are no second report.",
        "operationId": "upload",
        "parameters": [
            {
                "name": "digest",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            },
            {
                "name": "coatcheck-token",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
            },
        ],
        "requestBody": {"required": True, "content": octets},
        "responses": {
            "201": {"description": "The signed receipt", "content": octets},
            **{str(status): value for status, value in told.items()},
        },
    }
