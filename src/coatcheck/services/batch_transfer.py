"""Batches between roles: the manifest first, then each partition that the next one misses.

Both sides may crash at any time: the receiver says what it misses whenever it is given the
manifest, and has its batch once that is nothing. SPEC section 19.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from msgspec import Struct

from coatcheck.errors import BadSignature, Malformed, Misuse, Unavailable
from coatcheck.protocol.keys import SigningKey, VerifyingKey
from coatcheck.protocol.log.verification import verify_manifest
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import Manifest, Place
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services import clock
from coatcheck.services.telemetry import log
from coatcheck.services.web.connections import (
    Receive,
    Scope,
    Wire,
    grant_time,
    header,
    pieces,
    read_body,
)
from coatcheck.services.web.routing import (
    OCTETS,
    ROUND,
    Digest,
    Header,
    Nothing,
    Number,
    Problem,
    Route,
)

# HOUSE-DOC services.http.deliveries: 'Delivery: a large body comes with a signature over its hash, checked before it is read.\n\nSo nobody but the role before can make a service hold a large body. The batch or bulletin inside\ncarries its own signature, which is what counts.\n'
_LABEL: Final = b"coatcheck/v1/delivery\0"
_OTHER: Final = "the body is not the one that was announced"
_HEADERS: Final = (
    Header("coatcheck-content", "The SHA-256 hash of the body.", "^[0-9a-f]{64}$"),
    Header("coatcheck-signature", "The sender's signature over it.", "^[0-9a-f]{128}$"),
)


def delivery(path: str, handler: Callable[..., Awaitable[Any]], *, method: str = "POST") -> Route:
    """Make the row of a route that takes a delivery."""
    return Route(method, path, handler, reads=_HEADERS, problems=(403, 409, 429, 507))


def delivery_headers(raw: bytes, *, digest: bytes, signing: SigningKey) -> dict[str, str]:
    """Sign for a body on its way."""
    return announced(hashlib.sha256(raw).digest(), digest=digest, signing=signing)


def announced(content: bytes, *, digest: bytes, signing: SigningKey) -> dict[str, str]:
    """Sign for a body of which the hash is known."""
    return {
        "coatcheck-content": content.hex(),
        "coatcheck-signature": signing.sign(_LABEL + digest + content).hex(),
        "content-type": OCTETS,
    }


async def read_delivery(
    scope: Scope, receive: Receive, *, digest: bytes, sender: str, limit: int
) -> bytes:
    """Check who sends, then read the body and check that it is the one announced."""
    content = _announced(scope, digest=digest, sender=sender)
    grant_time(scope, limit=limit)
    raw = await read_body(scope, receive, limit=limit)
    if hashlib.sha256(raw).digest() != content:
        raise BadSignature(_OTHER)
    return raw


async def spool_delivery(
    wire: Wire, *, digest: bytes, sender: str, limit: int, into: BinaryIO
) -> None:
    """Do the same with a body that may be too large to hold: it goes into a file."""
    scope, receive, _ = wire
    content, found = _announced(scope, digest=digest, sender=sender), hashlib.sha256()
    grant_time(scope, limit=limit)
    async for piece in pieces(receive, limit=limit):
        found.update(piece)
        into.write(piece)
    if found.digest() != content:
        raise BadSignature(_OTHER)
    into.seek(0)


def _announced(scope: Scope, *, digest: bytes, sender: str) -> bytes:
    """Read the hash that a delivery announces, if the sender signed it."""
    try:
        content = bytes.fromhex(header(scope, b"coatcheck-content").decode())
        signature = bytes.fromhex(header(scope, b"coatcheck-signature").decode())
    except ValueError:
        raise BadSignature("a delivery announces its hash and a signature, in hex") from None
    VerifyingKey(bytes.fromhex(sender)).check(signature, _LABEL + digest + content)
    return content


if TYPE_CHECKING:
    from coatcheck.services.rounds import LiveRound, RoundService

    Service = RoundService[Any, Any, Any]
    Live = LiveRound[Any]

_R = TypeVar("_R")
_SOME: Final = 1024
IN: Final = "in"
OUT: Final = "out"


class Missing(Struct, frozen=True):
    """Which partitions of a batch are missing, the first of them; none: the batch is taken."""

    missing: list[int]


def part_name(kind: str, number: int) -> str:
    """Name a partition of the batch that came `in`, or goes `out`, in the depot."""
    return f"{kind}-{number}"


def sealed(number: int, content: bytes) -> str:
    """Name a part of the bulletin, by its content too: seals are fresh at every try."""
    return f"{part_name(OUT, number)}-{content[:8].hex()}"


async def batch(service: "Service", digest: Digest, wire: Wire) -> Missing:
    """Take the manifest of the shuffler before, and say which partitions are missing.

    It is checked before it is stored: the first one stays, so a bad one would be the end of the
    round.
    """
    live, hop = service.batched(digest)
    limit = service.settings.batch_limit
    raw = await _read(live, hop, wire, limit=limit)
    manifest = await asyncio.to_thread(verify_manifest, raw, live.round, hop=hop)
    places = list(manifest.places(live.round))
    if sum(place.size for place in places) > limit:
        raise Problem("too-large", f"this role takes batches of at most {limit} bytes")
    clock.reach("batch.receive")
    if live.stored.accepted:
        missing = []
    else:
        await _accept(service, live, raw, whole=False)
        missing = await _kept(service, _missing, service, live.round, places)
    if not missing:
        await _accept(service, live, raw, whole=True)
        clock.reach("batch.received")
        await service.refresh()
    return Missing(missing[:_SOME])


async def _accept(service: "Service", live: "Live", raw: bytes, *, whole: bool) -> None:
    keep = partial(service.store.accept, whole=whole)
    if not await service.write(keep, live.round.digest, raw):
        raise Problem("conflict", "another batch of this round came first, and stays")


def _missing(service: "Service", round_: Round, places: list[Place]) -> list[int]:
    there = service.store.depot.names((round_.digest, "round"))
    return [place.number for place in places if part_name(IN, place.number) not in there]


async def partition(service: "Service", digest: Digest, part: Number, wire: Wire) -> Nothing:
    """Take a partition of the batch whose manifest came; again, nothing changes."""
    service.leadership.check()
    live, hop = service.batched(digest)
    name = live.round.digest
    try:
        raw = await asyncio.to_thread(service.store.kept, name, "incoming")
    except Misuse:
        raise Problem("closed", "no batch is awaited: send its manifest first") from None
    manifest = Manifest.decode(raw, live.round)
    place = next((one for one in manifest.places(live.round) if one.number == part), None)
    if place is None:
        raise Problem("unprocessable", "the manifest of this batch has no such partition")
    raw = await _read(live, hop, wire, limit=max(1, place.size))
    try:
        place.part.check(raw)
    except Malformed as error:
        raise Problem("conflict", f"{error}: send partition {part} again") from None
    clock.reach("part.receive")
    await _kept(service, service.store.crate(name).put, part_name(IN, part), raw)
    clock.reach("part.received")
    return Nothing()


async def _kept(service: "Service", call: Callable[..., _R], *given: Any) -> _R:
    """Use the depot; what fails is for this role's operator, and the sender need not know where."""
    try:
        return await asyncio.to_thread(call, *given)
    except Unavailable as error:
        service.metrics.failures.labels("receive").inc()
        log.warning("receive: %s", error)
        raise Problem("unavailable", "this role's depot fails: its operator finds why") from None


async def _read(live: "Live", hop: int, wire: Wire, *, limit: int) -> bytes:
    """Read what the shuffler at this place of the cascade sends."""
    sender, (scope, receive, _) = live.round.terms.shufflers[hop].verifying, wire
    digest = live.round.digest
    return await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)


BATCHES: Final = (
    delivery(f"{ROUND}/batch", batch),
    delivery(f"{ROUND}/batch/{{part}}", partition, method="PUT"),
)


async def hand_on(service: "Service", live: "Live", *, to: str, signer: str) -> None:
    """Hand a batch to the role after this one: until that one misses nothing of it."""
    digest, signing = live.round.digest, service.keyring.of(signer).signing
    sign = partial(delivery_headers, digest=digest, signing=signing)
    url = f"{to}/rounds/{digest.hex()}/batch"
    manifest = await asyncio.to_thread(service.store.kept, digest, "batch")
    while missing := await _asked(service, url, manifest, sign(manifest)):
        for number in missing:
            name = part_name(OUT, number)
            raw = await asyncio.to_thread(service.store.crate(digest).get, name, use="batch")
            clock.reach("shuffler.deliver")
            await service.peers.send(f"{url}/{number}", raw, headers=sign(raw), method="PUT")
    clock.reach("shuffler.delivered")


async def _asked(
    service: "Service", url: str, manifest: bytes, headers: dict[str, str]
) -> list[int]:
    """Announce a batch, and read which partitions are missing."""
    raw = await service.peers.send(url, manifest, headers=headers)
    wrong = f"{url} does not say what it misses"
    return read_document(raw, Missing, wrong, error=Unavailable).missing
