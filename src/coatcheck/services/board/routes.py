"""The board's typed routes, as OpenAPI tells them; bulletins and letters are plain bytes."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Path, Query, Response
from pydantic import BaseModel

from coatcheck.errors import Refused
from coatcheck.protocol.keyfiles import document
from coatcheck.protocol.notices import posting_size
from coatcheck.services.http.app import problems
from coatcheck.services.http.documents import Key, SignedDocument, key_of
from coatcheck.services.http.problems import Problem

if TYPE_CHECKING:
    from coatcheck.services.board.service import BoardService

Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The digest of the terms.")]
Address = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Number = Annotated[int, Query(ge=0, le=2**40)]
PAGE: Final = 1 << 18
"""The most bytes of a page of letters: a copy is held for each reader."""
_OCTETS: Final = "application/octet-stream"
_BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {_OCTETS: {"schema": {"type": "string", "format": "binary"}}}}
}


class RoundStatus(BaseModel):
    """What the board has of a round."""

    round: str
    digest: str
    shown: bool
    letters: int


class Entry(BaseModel):
    """One entry of a bulletin with the path to its root, and the bulletin's place in the log."""

    entry: str
    place: int
    path: list[str]


class Proof(BaseModel):
    """Hashes that prove something about the log."""

    path: list[str]


def add_routes(service: "BoardService") -> None:
    """Add the board's routes."""
    _rounds(service)
    _contents(service)
    _proofs(service)


def _status(service: "BoardService", digest: bytes) -> RoundStatus:
    return RoundStatus(
        round=service.found(digest).terms.round,
        digest=digest.hex(),
        shown=digest in service.seen.letters,
        letters=service.seen.letters.get(digest, 0),
    )


def _shown(service: "BoardService", digest: str) -> bytes:
    raw = bytes.fromhex(digest)
    service.found(raw)
    if raw not in service.seen.letters:
        raise Problem("not-found", "this round is not answered yet: ask again later")
    return raw


def _leading(service: "BoardService") -> None:
    """Let only a leader speak of the log: an older one would look like one taken back."""
    if not service.frame.leadership.leads:
        raise Problem("unavailable", "this process stands by, and does not know the log")


def _rounds(service: "BoardService") -> None:
    api = service.frame.api

    @api.get("/key")
    async def key() -> Key:
        """Give the public keys."""
        return key_of(service.keyring.public)

    @api.get("/rounds")
    async def rounds() -> list[RoundStatus]:
        """List the rounds."""
        return [_status(service, digest) for digest in service.rounds]

    @api.get("/rounds/{digest}", responses=problems(404, 422))
    async def round_(digest: Digest) -> RoundStatus:
        """Say what the board has of a round."""
        return _status(service, bytes.fromhex(digest))

    @api.put("/rounds/{digest}", responses=problems(400, 403, 409, 413, 422, 503, 507))
    async def admit(digest: Digest, signed: SignedDocument) -> RoundStatus:
        """Take up a round of a known server, on terms that everybody signed."""
        await service.admit(bytes.fromhex(digest), document(signed.model_dump()))
        return _status(service, bytes.fromhex(digest))


def _contents(service: "BoardService") -> None:
    api = service.frame.api

    @api.get(
        "/rounds/{digest}/bulletin",
        response_class=Response,
        responses={**_BYTES, **problems(404, 422)},
    )
    async def bulletin(digest: Digest) -> Response:
        """Give the whole bulletin: whoever fetches all of it tells nothing about themselves."""
        raw = service.role.bulletin(_shown(service, digest))
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(raw, media_type=_OCTETS, headers=kept)

    @api.get("/rounds/{digest}/entries/{group}/{address}", responses=problems(404, 422))
    async def entry(
        digest: Digest, group: Annotated[int, Path(ge=0, lt=16)], address: Address
    ) -> Entry:
        """Give one entry with its proof; who asks shows which one, so ask through a relay."""
        raw = _shown(service, digest)
        if group >= len(service.found(raw).terms.groups):
            raise Problem("not-found", "the round has no such group")
        try:
            found, place, path = await asyncio.to_thread(
                service.role.entry, raw, group=group, address=bytes.fromhex(address)
            )
        except Refused:
            raise Problem("not-found", "nobody has this address in this round") from None
        return Entry(entry=found.hex(), place=place, path=[step.hex() for step in path])

    @api.get(
        "/rounds/{digest}/letters",
        response_class=Response,
        responses={**_BYTES, **problems(404, 422)},
    )
    async def letters(digest: Digest, since: Number = 0) -> Response:
        """Give a page of the letters from a place on, one after the other; they have one size.

        The header `coatcheck-next` is the place to ask for next; an empty page is the last.
        """
        raw = _shown(service, digest)
        page = max(1, PAGE // posting_size(service.found(raw)))
        many = min(page, max(0, service.seen.letters[raw] - since))
        found = service.role.letters(raw, since=since)[:many]
        after = {"coatcheck-next": str(since + len(found))}
        return Response(b"".join(found), media_type=_OCTETS, headers=after)


def _proofs(service: "BoardService") -> None:
    api = service.frame.api

    def known(size: int) -> None:
        _leading(service)
        if size > service.seen.size:
            raise Problem("not-found", f"the log has {service.seen.size} places")

    @api.get("/checkpoint", response_class=Response, responses={**_BYTES, **problems(503)})
    async def checkpoint() -> Response:
        """Give the board's signed word over everything it has shown."""
        _leading(service)
        return Response(service.seen.checkpoint, media_type=_OCTETS)

    @api.get("/rounds/{digest}/place", responses=problems(404, 422))
    async def place(digest: Digest) -> int:
        """Give the place of a round's heading in the log."""
        return service.role.place(_shown(service, digest))

    @api.get("/proofs/inclusion", responses=problems(404, 422, 503))
    async def inclusion(place: Number, size: Number) -> Proof:
        """Prove that a place is under the checkpoint of this size."""
        known(size)
        if place >= size:
            raise Problem("not-found", "this place is not among the first ones asked for")
        with service.lock:
            path = service.role.inclusion(place, size=size)
        return Proof(path=[step.hex() for step in path])

    @api.get("/proofs/consistency", responses=problems(404, 422, 503))
    async def consistency(old: Number, new: Number) -> Proof:
        """Prove that the log only grew between two sizes."""
        known(new)
        if not 1 <= old <= new:
            raise Problem("unprocessable", "the old size is at least 1 and at most the new one")
        with service.lock:
            path = service.role.consistency(old, new=new)
        return Proof(path=[step.hex() for step in path])
