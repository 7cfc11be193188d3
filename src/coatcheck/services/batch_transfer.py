"""Batches between roles: the manifest first, then each partition that the receiver misses.

Both sides may crash at any time. Whenever the sender sends the manifest, the receiver answers which
partitions it misses; it has the batch once that is none. Each body comes with a signature over its
hash, which is checked before the body is read, so that only the role before can make a service hold
a large body. SPEC section 19.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar

from msgspec import Struct

from coatcheck.errors import BadSignature, Malformed, Misuse, Unavailable
from coatcheck.protocol.keys import SigningKey, VerifyingKey
from coatcheck.protocol.log.verification import verify_manifest
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import Manifest, Place
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services import clock
from coatcheck.services.rounds import LiveRound, RoundService
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

_LABEL: Final = b"coatcheck/v1/delivery\0"
_WRONG_BODY: Final = "the body does not have the hash that its header announced"
_HEADERS: Final = (
    Header("coatcheck-content", "The SHA-256 hash of the body.", "^[0-9a-f]{64}$"),
    Header("coatcheck-signature", "The sender's signature over it.", "^[0-9a-f]{128}$"),
)


def delivery(path: str, handler: Callable[..., Awaitable[Any]], *, method: str = "POST") -> Route:
    """Make a route that takes a signed body."""
    return Route(method, path, handler, reads=_HEADERS, problems=(403, 409, 429, 507))


def delivery_headers(raw: bytes, *, digest: bytes, signing: SigningKey) -> dict[str, str]:
    """Make the headers that announce a body and sign for it."""
    return announced(hashlib.sha256(raw).digest(), digest=digest, signing=signing)


def announced(content: bytes, *, digest: bytes, signing: SigningKey) -> dict[str, str]:
    """Make the headers for a body whose hash is known."""
    return {
        "coatcheck-content": content.hex(),
        "coatcheck-signature": signing.sign(_LABEL + digest + content).hex(),
        "content-type": OCTETS,
    }


async def read_delivery(
    scope: Scope, receive: Receive, *, digest: bytes, sender: str, limit: int
) -> bytes:
    """Check that the sender signed for a body, then read it and check its hash."""
    content = _announced(scope, digest=digest, sender=sender)
    grant_time(scope, limit=limit)
    raw = await read_body(scope, receive, limit=limit)
    if hashlib.sha256(raw).digest() != content:
        raise BadSignature(_WRONG_BODY)
    return raw


async def spool_delivery(
    wire: Wire, *, digest: bytes, sender: str, limit: int, into: BinaryIO
) -> None:
    """Do the same with a body that may be too large for memory: write it into a file."""
    scope, receive, _ = wire
    content, received = _announced(scope, digest=digest, sender=sender), hashlib.sha256()
    grant_time(scope, limit=limit)
    async for piece in pieces(receive, limit=limit):
        received.update(piece)
        into.write(piece)
    if received.digest() != content:
        raise BadSignature(_WRONG_BODY)
    into.seek(0)


def _announced(scope: Scope, *, digest: bytes, sender: str) -> bytes:
    """Read the announced hash, which the sender must have signed."""
    try:
        content = bytes.fromhex(header(scope, b"coatcheck-content").decode())
        signature = bytes.fromhex(header(scope, b"coatcheck-signature").decode())
    except ValueError:
        raise BadSignature(
            "`coatcheck-content` and `coatcheck-signature` must be a hash and a signature in hex"
        ) from None
    VerifyingKey(bytes.fromhex(sender)).check(signature, _LABEL + digest + content)
    return content


Service = RoundService[Any, Any, Any]
Live = LiveRound[Any]
_R = TypeVar("_R")
_MOST_MISSING: Final = 1024
IN: Final = "in"
OUT: Final = "out"


class Missing(Struct, frozen=True):
    """The first missing partitions of a batch; none if the receiver has the batch."""

    missing: list[int]


def part_name(kind: str, number: int) -> str:
    """Name the file of a partition of the batch that came `in`, or goes `out`."""
    return f"{kind}-{number}"


def bulletin_part_name(number: int, content: bytes) -> str:
    """Name the file of a part of the bulletin, by its content too: every try seals afresh."""
    return f"{part_name(OUT, number)}-{content[:8].hex()}"


async def batch(service: Service, digest: Digest, wire: Wire) -> Missing:
    """Take the manifest of the shuffler before, and return which partitions are missing.

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
        missing = await _with_blobs(service, _missing, service, live.round, places)
    if not missing:
        await _accept(service, live, raw, whole=True)
        clock.reach("batch.received")
        await service.refresh()
    return Missing(missing[:_MOST_MISSING])


async def _accept(service: Service, live: Live, raw: bytes, *, whole: bool) -> None:
    keep = partial(service.store.accept, whole=whole)
    if not await service.write(keep, live.round.digest, raw):
        raise Problem("conflict", "this role has another batch of this round already")


def _missing(service: Service, round_: Round, places: list[Place]) -> list[int]:
    existing = service.store.blobs.names((round_.digest, "round"))
    return [place.number for place in places if part_name(IN, place.number) not in existing]


async def partition(service: Service, digest: Digest, part: Number, wire: Wire) -> Nothing:
    """Take a partition of the batch whose manifest came; a repetition changes nothing."""
    service.leadership.check()
    live, hop = service.batched(digest)
    name = live.round.digest
    try:
        raw = await asyncio.to_thread(service.store.blob, name, "incoming")
    except Misuse:
        raise Problem(
            "closed", "this role has no manifest of the batch; send the manifest first"
        ) from None
    manifest = Manifest.decode(raw, live.round)
    places = manifest.places(live.round)
    place = next((place for place in places if place.number == part), None)
    if place is None:
        raise Problem("unprocessable", "the manifest of this batch has no such partition")
    raw = await _read(live, hop, wire, limit=max(1, place.size))
    try:
        place.part.check(raw)
    except Malformed as error:
        raise Problem("conflict", f"{error}; send partition {part} again") from None
    clock.reach("part.receive")
    await _with_blobs(service, service.store.files(name).put, part_name(IN, part), raw)
    clock.reach("part.received")
    return Nothing()


async def _with_blobs(service: Service, call: Callable[..., _R], *args: Any) -> _R:
    """Use the blob store; an error's text is for this role's operator, not for the sender."""
    try:
        return await asyncio.to_thread(call, *args)
    except Unavailable as error:
        service.metrics.failures.labels("receive").inc()
        log.warning("receive: %s", error)
        raise Problem(
            "unavailable", "this role's blob store failed; its operator finds the reason in the log"
        ) from None


async def _read(live: Live, hop: int, wire: Wire, *, limit: int) -> bytes:
    """Read a body from the shuffler at this place of the cascade."""
    sender, (scope, receive, _) = live.round.terms.shufflers[hop].verifying, wire
    digest = live.round.digest
    return await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)


BATCHES: Final = (
    delivery(f"{ROUND}/batch", batch),
    delivery(f"{ROUND}/batch/{{part}}", partition, method="PUT"),
)


async def hand_on(service: Service, live: Live, *, to: str, signer: str) -> None:
    """Send a batch to the role after this one, until that role misses nothing of it."""
    digest, signing = live.round.digest, service.keyring.of(signer).signing
    sign = partial(delivery_headers, digest=digest, signing=signing)
    url = f"{to}/rounds/{digest.hex()}/batch"
    manifest = await asyncio.to_thread(service.store.blob, digest, "batch")
    while missing := await _announce(service, url, manifest, sign(manifest)):
        for number in missing:
            name = part_name(OUT, number)
            raw = await asyncio.to_thread(service.store.files(digest).get, name, use="batch")
            clock.reach("shuffler.deliver")
            await service.peers.send(f"{url}/{number}", raw, headers=sign(raw), method="PUT")
    clock.reach("shuffler.delivered")


async def _announce(
    service: Service, url: str, manifest: bytes, headers: dict[str, str]
) -> list[int]:
    """Send the manifest of a batch, and read which partitions the receiver misses."""
    raw = await service.peers.send(url, manifest, headers=headers)
    wrong = f"{url} did not answer which partitions it misses"
    return read_document(raw, Missing, wrong, error=Unavailable).missing
