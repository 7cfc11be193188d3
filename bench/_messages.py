"""Broken messages by the million: good ones that are cut, grown, spliced and flipped."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from coatcheck.errors import Refused
from coatcheck.protocol.oblivious_http import (
    GatewayKey,
    Request,
    Response,
    read_keys,
    seal_request,
    write_keys,
)

KEY: Final = GatewayKey(7, bytes(range(32)))
CONFIG: Final = read_keys(write_keys([KEY]))
_FIELDS: Final = ((b"accept", b"*/*"), (b"range", b"bytes=0-4000"))
_REQUEST: Final = Request(b"POST", b"https", b"board.example", b"/rounds/0?a=b", _FIELDS, b"body")
_RESPONSE: Final = Response(200, _FIELDS, b"content", _FIELDS)
_PENDING: Final = seal_request(_REQUEST.encode(300), CONFIG, secret=bytes(range(1, 33)))
_ANSWER: Final = KEY.open(_PENDING.raw).answer(_RESPONSE.encode(300), salt=bytes(16))

KINDS: Final[dict[str, tuple[Callable[[bytes], object], bytes]]] = {
    "request": (Request.decode, _REQUEST.encode(90)),
    "response": (Response.decode, _RESPONSE.encode(120)),
    "keys": (read_keys, write_keys([KEY, GatewayKey(8, bytes(32))])),
    "sealed request": (lambda raw: Request.decode(KEY.open(raw).text), _PENDING.raw),
    "sealed response": (lambda raw: Response.decode(_PENDING.open(raw)), _ANSWER),
}
"""What is read, and a good example of it."""


def broken(good: bytes, rng: Random) -> bytes:
    """Return a message that is altered in one to three places."""
    raw = bytearray(good)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        way = rng.randrange(5)
        if way == 0:
            raw[at : at + 1] = bytes((rng.randrange(256),))
        elif way == 1:
            raw[at:at] = rng.randbytes(rng.randint(1, 9))
        elif way == 2:
            del raw[at : at + rng.randint(1, 20)]
        elif way == 3:
            other = rng.randrange(len(raw) + 1)
            raw[at:at] = raw[other : other + rng.randint(1, 30)]
        else:
            del raw[at:]
    return bytes(raw)


def outcomes(kind: str, count: int, *, seed: int) -> Iterator[bool]:
    """Decode a number of broken messages; count those that were accepted and rejected."""
    read, good = KINDS[kind]
    rng = Random(seed)  # noqa: S311 - test data
    for _ in range(count):
        try:
            read(broken(good, rng))
        except Refused:
            yield False
        else:
            yield True
