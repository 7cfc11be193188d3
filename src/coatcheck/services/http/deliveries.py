"""Delivery: a large body comes with a signature over its hash, checked before it is read.

So nobody but the role before can make a service hold a large body. The batch or bulletin inside
carries its own signature, which is what counts.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, Final

from coatcheck.errors import BadSignature
from coatcheck.protocol.keys import SigningKey, VerifyingKey
from coatcheck.services.http.connections import (
    Receive,
    Scope,
    Wire,
    grant_time,
    header,
    pieces,
    read_body,
)
from coatcheck.services.http.routes import OCTETS, Header, Route

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
