"""Oblivious HTTP gateway of a role (RFC 9458, RFC 9540): opens sealed requests, seals the answers.

It learns what is requested but not by whom: it sees the relay's address only. It has one key per
day, the same for everybody, which survives a restart and is erased soon after its day. It serves
only routes that are marked `relayed`. SPEC section 17.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

from coatcheck.errors import Malformed, Misuse, Unavailable, Unsealable
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    KEYS_MEDIA,
    PADDING,
    REQUEST_MEDIA,
    RESPONSE_MEDIA,
    SIGNATURES,
    SIZES,
    SLACK,
    UNTIL,
    GatewayKey,
    OpenedRequest,
    Request,
    Response,
    SignedKeys,
    message_size,
    write_keys,
)
from coatcheck.protocol.wire.bulletins import PERIOD, KeyList
from coatcheck.services.clock import Clock
from coatcheck.services.settings import Keyring
from coatcheck.services.telemetry import log
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
from coatcheck.stores.round_keys import RoundKeys

LATE: Final = 2 * SLACK
"""Seconds for which a key still opens requests after the end of its period (S17.10)."""
_LOOK: Final = 60.0
_PADDING: Final = PADDING.encode()
_REQUEST_MEDIA: Final = REQUEST_MEDIA.encode()
_RESPONSE_MEDIA: Final = RESPONSE_MEDIA.encode()
_SIZES: Final = {b"%d" % size: size for size in SIZES}
SENDS: Final = (
    Header(UNTIL, "When the keys expire, in seconds since 1970.", "^[0-9]+$"),
    Header(SIGNATURES, "The role's signatures over the keys and their expiry, in hex."),
)


class Gateway:
    """The key of a gateway in each period; opens requests with it, and forgets it in time.

    *Guarantee:* all processes of a role have one key per period, also after a restart.
    """

    def __init__(self, keyring: Keyring, round_keys: RoundKeys, *, clock: Clock) -> None:
        self._keyring = keyring
        self._round_keys = round_keys
        self._clock = clock
        self._keys: dict[int, GatewayKey] = {}
        self._signed = SignedKeys(b"", 0, ())

    def signed(self) -> SignedKeys:
        """Return the key of this period, signed; make it if it is new, and drop ended ones."""
        now = self._clock.now()
        oldest, newest = (now - LATE) // PERIOD, now // PERIOD
        if newest not in self._keys:
            existing = [period for period in self._round_keys.gateway_periods() if period >= oldest]
            self._keys = {
                period: GatewayKey(period % 256, self._round_keys.gateway_secret(period))
                for period in sorted({*existing, newest}, reverse=True)
            }
            keys, until = write_keys([self._keys[newest]]), (newest + 1) * PERIOD
            signatures = self._keyring.sign_by_all(KeyList.signed_part(keys, until))
            self._signed = SignedKeys(keys, until, tuple(signatures))
        for period in [period for period in self._keys if period < oldest]:
            del self._keys[period]
        return self._signed

    async def run(self) -> None:
        """Erase the secrets of ended periods, for ever; also when no request comes."""
        while True:
            oldest = (self._clock.now() - LATE) // PERIOD
            try:
                for period in self._round_keys.gateway_periods():
                    if period < oldest:
                        await asyncio.to_thread(self._round_keys.forget_gateway_secret, period)
            except Unavailable as error:
                log.warning("gateway: %s", error)
            await asyncio.sleep(_LOOK)

    def open(self, raw: bytes) -> OpenedRequest:
        """Open a request with the key to which it is sealed; every failure is the same problem."""
        self.signed()
        for key in self._keys.values():
            try:
                return key.open(raw)
            except Unsealable:
                continue
            except Malformed as error:
                raise Problem("malformed", str(error)) from None
        raise Problem(
            "ohttp-key",
            "the request is not sealed to a current key, or was altered; fetch the keys again",
        )


class GatewayService(Protocol):
    """The part of a service that its gateway uses."""

    gateway: Gateway

    def route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Find the route of a path."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request."""


async def gateway_keys(service: GatewayService) -> Reply:
    """Return the gateway's keys, signed by the role."""
    signed = service.gateway.signed()
    return Reply(signed.keys, signed.headers)


async def gateway_request(service: GatewayService, wire: Wire) -> None:
    """Open a request that came through a relay, and seal the answer with its status inside."""
    scope, receive, send = wire
    if header(scope, b"content-type") != _REQUEST_MEDIA:
        raise Problem("malformed", f"the content type must be {REQUEST_MEDIA}")
    opened = service.gateway.open(await read_body(scope, receive, limit=SIZES[-1]))
    # From here on every answer is sealed, errors too: the relay learns nothing from it (S17.5).
    answer, least = await _answer(service, opened.text)
    sealed = opened.answer(_padded(answer, least, opened.overhead))
    await respond(send, 200, sealed, media=_RESPONSE_MEDIA)


def _padded(answer: Response, least: int, overhead: int) -> bytes:
    """Encode an answer and pad it to a size of the list; one that is too long becomes an error."""
    text = answer.encode()
    try:
        size = message_size(max(len(text), least - overhead), overhead=overhead)
    except Misuse as error:
        return _padded(_response_of(Problem("too-large", str(error))), least, overhead)
    return text.ljust(size, b"\0")


async def _answer(service: GatewayService, text: bytes) -> tuple[Response, int]:
    """Return the answer to an opened request, and the least size that the request names.

    An error is an answer, too.
    """
    least = 0
    try:
        request = Request.decode(text)
        headers = dict(request.headers)
        least = _SIZES.get(headers.get(_PADDING, b""), 0)
        answer = await _pass_on(service, _scope(service, request, headers), request.content)
    except (Malformed, UnicodeDecodeError) as error:
        problem = Problem("malformed", f"the sealed text is not an HTTP request: {error}")
        return _response_of(problem), least
    except Problem as problem:
        return _response_of(problem), least
    return _part(answer, headers[b"range"]) if b"range" in headers else answer, least


def _scope(service: GatewayService, request: Request, headers: Mapping[bytes, bytes]) -> Scope:
    """Return the ASGI scope of a request, if its route is for people (S17.6)."""
    where, _, query = request.path.partition(b"?")
    method, path = request.method.decode("ascii"), unquote(where.decode("ascii"))
    if not service.route(method, path)[0].relayed:
        raise Problem("not-found", "this address is not served through a gateway")
    if b"expect" in headers:
        raise Problem("malformed", "a sealed request comes whole; leave out the header Expect")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": request.headers,
        MOST: SIZES[-1],
    }


async def _pass_on(service: GatewayService, scope: Scope, body: bytes) -> Response:
    """Pass a request to the service as if it had come directly, and return the answer."""
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


def _part(answer: Response, header_: bytes) -> Response:
    """Cut the requested range out of an answer (RFC 9110, section 14)."""
    byte_range = RANGE.fullmatch(header_)
    if answer.status != 200 or not byte_range:
        return answer
    start, end, size = int(byte_range[1]), int(byte_range[2]) + 1, len(answer.content)
    if not start < min(end, size):
        return _response_of(Problem("unprocessable", f"the range must be within 0-{size - 1}"))
    end = min(end, size)
    content_range = (b"content-range", b"bytes %d-%d/%d" % (start, end - 1, size))
    return Response(206, (*answer.headers, content_range), answer.content[start:end])


def _response_of(problem: Problem) -> Response:
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
"""The routes of a gateway."""
