"""The gateway of a role (RFC 9458, RFC 9540): opens what came through a relay and answers sealed.

Knows what is asked, never who asks: it sees the relay's address. Its keys are in memory only, and
each opens for two periods. Only routes that say `relayed` are served. SPEC section 17.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

from coatcheck.entropy import system
from coatcheck.errors import Malformed, Misuse, Unsealable
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    KEYS_MEDIA,
    PADDING,
    REQUEST_MEDIA,
    RESPONSE_MEDIA,
    SIGNATURES,
    SIZES,
    UNTIL,
    GatewayKey,
    OpenedRequest,
    Request,
    Response,
    SignedKeys,
    message_size,
    signed_part,
    write_keys,
)
from coatcheck.services.clock import Clock
from coatcheck.services.settings import Keyring
from coatcheck.services.web.connections import (
    MOST,
    RANGE,
    Message,
    Scope,
    Wire,
    header,
    read_body,
    respond,
)
from coatcheck.services.web.routing import MEDIA, Header, Problem, Reply, Route

_PADDING: Final = PADDING.encode()
_REQUEST_MEDIA: Final = REQUEST_MEDIA.encode()
_RESPONSE_MEDIA: Final = RESPONSE_MEDIA.encode()
_RUNGS: Final = {b"%d" % rung: rung for rung in SIZES}
SENDS: Final = (
    Header(UNTIL, "When the keys end, in seconds since 1970.", "^[0-9]+$"),
    Header(SIGNATURES, "The role's signatures over the keys and their end, in hex."),
)


class Gateway:
    """The keys of one gateway, and what is done with them."""

    def __init__(self, keyring: Keyring, *, clock: Clock, period: float) -> None:
        self._keyring = keyring
        self._clock = clock
        self._period = period
        self._keys: list[tuple[GatewayKey, int]] = []
        self._next = 0.0
        self._shown = SignedKeys(b"", 0, ())

    def signed(self) -> SignedKeys:
        """Give the current keys, signed; a key that is too old goes, a new one comes."""
        now = self._clock.now()
        self._keys = [(key, until) for key, until in self._keys if now < until]
        if now >= self._next:
            source = system()
            number = (self._keys[0][0].number + 1) % 256 if self._keys else source.integer(256)
            fresh, until = GatewayKey(number, source.token(32)), int(now + 2 * self._period)
            self._keys = [(fresh, until), *self._keys]
            self._next = now + self._period
            keys = write_keys([fresh])
            signatures = self._keyring.sign_by_all(signed_part(keys, until))
            self._shown = SignedKeys(keys, until, tuple(signatures))
        return self._shown

    def open(self, raw: bytes) -> OpenedRequest:
        """Open a request with whichever key it is sealed to; one problem, whatever the cause."""
        self.signed()
        for key, _ in self._keys:
            try:
                return key.open(raw)
            except Unsealable:
                continue
            except Malformed as error:
                raise Problem("malformed", str(error)) from None
        raise Problem("ohttp-key", "sealed to no key of today, or altered: fetch the keys again")


class Gated(Protocol):
    """A service with a gateway."""

    gateway: Gateway

    def route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Find the route of a path."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request."""


async def gateway_keys(service: Gated) -> Reply:
    """Give the gateway's keys, signed by the role."""
    shown = service.gateway.signed()
    return Reply(shown.keys, shown.headers)


async def gateway_request(service: Gated, wire: Wire) -> None:
    """Open a request that came through a relay, and answer it sealed; its status is inside."""
    scope, receive, send = wire
    if header(scope, b"content-type") != _REQUEST_MEDIA:
        raise Problem("malformed", f"a gateway takes {REQUEST_MEDIA}")
    opened = service.gateway.open(await read_body(scope, receive, limit=SIZES[-1]))
    # From here on every answer is sealed, whatever it says: the relay learns nothing from it.
    answer, least = await _answered(service, opened.text)
    sealed = opened.answer(_padded(answer, least, opened.overhead))
    await respond(send, 200, sealed, media=_RESPONSE_MEDIA)


def _padded(answer: Response, least: int, overhead: int) -> bytes:
    """Write an answer at one of the few sizes; one that is too long for all is refused."""
    text = answer.encode()
    try:
        size = message_size(max(len(text), least - overhead), overhead=overhead)
    except Misuse as error:
        return _padded(_told(Problem("too-large", str(error))), least, overhead)
    return text.ljust(size, b"\0")


async def _answered(service: Gated, text: bytes) -> tuple[Response, int]:
    """Answer a request that was opened, and tell the least size that it asks for.

    Whatever is wrong with it is an answer, too.
    """
    least = 0
    try:
        request = Request.decode(text)
        asked = dict(request.headers)
        least = _RUNGS.get(asked.get(_PADDING, b""), 0)
        answer = await _asked(service, _scope(service, request, asked), request.content)
    except (Malformed, UnicodeDecodeError) as error:
        return _told(Problem("malformed", f"this is no request: {error}")), least
    except Problem as problem:
        return _told(problem), least
    return _part(answer, asked[b"range"]) if b"range" in asked else answer, least


def _scope(service: Gated, request: Request, asked: Mapping[bytes, bytes]) -> Scope:
    """Write a request as ASGI has it, if its route is for people."""
    where, _, query = request.path.partition(b"?")
    method, path = request.method.decode("ascii"), unquote(where.decode("ascii"))
    if not service.route(method, path)[0].relayed:
        raise Problem("not-found", "this address is not served through a gateway")
    if b"expect" in asked:
        raise Problem("malformed", "a gateway's requests come whole: leave out Expect")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": request.headers,
        MOST: SIZES[-1],
    }


async def _asked(service: Gated, scope: Scope, body: bytes) -> Response:
    """Have the service answer as if the request had come directly."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await service(scope, receive, send)
    start, *rest = sent
    headers = tuple([line for line in start["headers"] if line[0] != b"content-length"])
    content = b"".join([message.get("body", b"") for message in rest])
    return Response(start["status"], headers, content)


def _part(answer: Response, asked: bytes) -> Response:
    """Cut the range out of an answer that was asked for (RFC 9110, section 14)."""
    found = RANGE.fullmatch(asked)
    if answer.status != 200 or not found:
        return answer
    start, end, size = int(found[1]), int(found[2]) + 1, len(answer.content)
    if not start < min(end, size):
        return _told(Problem("unprocessable", f"there are {size} bytes: ask for some of them"))
    end = min(end, size)
    place = (b"content-range", b"bytes %d-%d/%d" % (start, end - 1, size))
    return Response(206, (*answer.headers, place), answer.content[start:end])


def _told(problem: Problem) -> Response:
    lines = {"content-type": MEDIA, **problem.headers}
    headers = tuple((name.encode(), value.encode()) for name, value in lines.items())
    return Response(problem.kind.status, headers, problem.document())


GATEWAY: Final = (
    Route("GET", GATEWAY_PATH, gateway_keys, media=KEYS_MEDIA, sends=SENDS),
    Route(
        *("POST", GATEWAY_PATH, gateway_request),
        takes=REQUEST_MEDIA,
        media=RESPONSE_MEDIA,
        gives=Reply,
    ),
)
"""What a role with a gateway serves besides."""
