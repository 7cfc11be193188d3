"""Client that sends every request through a relay, sealed to a role's gateway, at random times.

`RelayedClient` has the methods of `HttpClient`, so that a session can use either. It connects to
the relay only. The relay returns the gateways' keys, which are accepted only with the roles'
signatures. Through a relay a person also sends requests at random times: a relay and a role that
both record times could otherwise join requests that follow one another. SPEC section 17.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from coatcheck.entropy import system
from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.oblivious_http import (
    KEYS_MEDIA,
    OVERHEAD,
    PADDING,
    REQUEST_MEDIA,
    SIZES,
    GatewayConfig,
    Request,
    Response,
    SealedRequest,
    SignedKeys,
    message_size,
    read_keys,
    seal_request,
)
from coatcheck.protocol.terms import Round
from coatcheck.services.web.client import (
    DOCUMENT,
    Exchanges,
    HttpAnswer,
    HttpClient,
    Origin,
    body_of,
    check_apart,
    origin_of,
)
from coatcheck.services.web.routing import JSON, OHTTP_KEY

_WHOLE: Final = re.compile(rb"bytes [0-9]+-[0-9]+/([0-9]{1,12})")
_HEADERS: Final = 256
"""Bytes of headers and framing around a content, at most."""
_LEVELS: Final = 3
"""The number of sizes to which messages are padded by `pad_for`; longer ones have their own."""
PIECE: Final = SIZES[3] - _HEADERS
"""Bytes of a piece of a bulletin: with its headers it fills one of the sizes."""


@dataclass(frozen=True)
class _GatewayKeys:
    """The keys of a gateway, and when they expire."""

    config: GatewayConfig
    until: int


class RelayedClient:
    """A client of roles, through a relay.

    *Guarantee:* it connects to the relay and to nothing else, whatever fails.

    Attributes:
        relay: the relay's address.
        first: the address of the round, which is at a shuffler. Any other role counts as the board
            unless `add_shufflers` has named it as a shuffler.
        sent_requests: the number of sealed requests that were sent.
    """

    def __init__(
        self,
        relay: str,
        *,
        first: str,
        trusted: Trust,
        http: Exchanges | None = None,
        ca: str = "",
    ) -> None:
        self.relay = origin_of(relay).url
        if relay.rstrip("/") != self.relay:
            raise Misuse(
                f"{relay!r} is not the address of a relay; give https://HOST[:PORT] without a path"
            )
        self._shufflers = {origin_of(first)}
        self._trusted = trusted
        self._http: Exchanges = http or HttpClient(ca=ca)
        self._keys: dict[Origin, _GatewayKeys] = {}
        self._least = SIZES[0]
        self.sent_requests = 0

    def add_shufflers(self, shufflers: Iterable[str]) -> None:
        """Add the addresses of the shufflers, from the terms."""
        self._shufflers |= {origin_of(url) for url in shufflers}

    def pad_for(self, size: int) -> None:
        """Pad every message from now on to the size that a content of `size` bytes needs."""
        fitting = [padded for padded in SIZES[:_LEVELS] if size + _HEADERS <= padded]
        self._least = fitting[0] if fitting else SIZES[_LEVELS - 1]

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most `most` bytes; a long one comes in pieces of one size."""
        if most <= DOCUMENT:
            return self._body(url, await self._exchange("GET", url))
        return await self._get_in_pieces(url, most)

    async def page(self, url: str) -> tuple[bytes, dict[str, str]]:
        """Fetch a page with its headers."""
        answer = await self._exchange("GET", url)
        lines = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
        return self._body(url, answer), lines

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Send a body, JSON unless the headers say otherwise, and return the answer."""
        lines = headers or {"content-type": JSON}
        return self._body(url, await self._exchange(method, url, body, headers=lines))

    async def close(self) -> None:
        """Close the connection to the relay."""
        await self._http.close()

    async def _get_in_pieces(self, url: str, most: int) -> bytes:
        body = bytearray()
        while True:
            byte_range = {"range": f"bytes={len(body)}-{len(body) + PIECE - 1}"}
            answer = await self._exchange("GET", url, headers=byte_range)
            piece = self._body(url, answer)
            body += piece
            total = _WHOLE.fullmatch(dict(answer.headers).get(b"content-range", b""))
            if answer.status != 206 or not total or len(body) >= int(total[1]):
                return bytes(body)
            if int(total[1]) > most or not piece:
                raise Refused(f"{url} answers with more than {most} bytes, or without end")

    @staticmethod
    def _body(url: str, answer: Response) -> bytes:
        return body_of(url, HttpAnswer(answer.status, {}, answer.content))

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request once; if the gateway has changed its keys, once more with the new ones."""
        origin = origin_of(url)
        named = {**(headers or {}), PADDING: str(self._least)}
        lines = tuple((name.encode(), value.encode()) for name, value in named.items())
        path = url[len(origin.url) :].encode()
        host = (origin.scheme.encode(), origin.authority.encode())
        text = Request(method.encode(), *host, path or b"/", lines, body).encode()
        least = self._least - OVERHEAD
        text = text.ljust(message_size(max(len(text), least), overhead=OVERHEAD), b"\0")
        answer, sealed = await self._send_sealed(origin, text)
        if _is_about_keys(answer):
            # The gateway has opened nothing, so this repeats no request (S17.22).
            self._keys.pop(origin, None)
            answer, sealed = await self._send_sealed(origin, text)
        if _is_about_keys(answer):
            raise Unavailable(f"the relay has no current keys of {origin.host}; try later")
        return Response.decode(sealed.open(body_of(self.relay, answer)))

    async def _send_sealed(self, origin: Origin, text: bytes) -> tuple[HttpAnswer, SealedRequest]:
        config = await self._config(origin)
        sealed = seal_request(text, config)
        self.sent_requests += 1
        answer = await self._at_relay("POST", origin, sealed.raw, {"content-type": REQUEST_MEDIA})
        return answer, sealed

    async def _config(self, origin: Origin) -> GatewayConfig:
        keys = self._keys.get(origin)
        if keys is None or keys.until <= time.time():
            check_apart(self.relay, origin.url)
            answer = await self._at_relay("GET", origin, b"", {"accept": KEYS_MEDIA})
            signed = SignedKeys.read(body_of(self.relay, answer), answer.headers)
            self._check(signed, origin)
            keys = self._keys[origin] = _GatewayKeys(read_keys(signed.keys), signed.until)
        return keys.config

    def _check(self, signed: SignedKeys, origin: Origin) -> None:
        """Reject keys that no trusted key of the role signed, or that have expired (S17.20)."""
        trusted = frozenset[bytes]().union(
            *(self._trusted.shufflers if origin in self._shufflers else [self._trusted.board])
        )
        if not any(signed.is_signed_by(key) for key in trusted | self._trusted.anywhere):
            raise Refused(
                f"the relay's keys for {origin.host} are not signed by a key that you trust for"
                " that role; nothing was sent"
            )
        if signed.until <= time.time():
            raise Unavailable(f"the relay's keys for {origin.host} have expired; try later")

    async def _at_relay(
        self, method: str, origin: Origin, body: bytes, headers: dict[str, str]
    ) -> HttpAnswer:
        url = f"{self.relay}/gateways/{origin.authority}"
        try:
            return await self._http.exchange(method, url, body, headers=headers, most=SIZES[-1])
        except Unavailable as error:
            raise Unavailable(f"{error}; nothing was sent without the relay") from None


def _is_about_keys(answer: HttpAnswer) -> bool:
    return answer.status == 400 and OHTTP_KEY.encode() in answer.body


# -- random request times

STEP: Final = 0.25
"""The share of a pause of settling within which the letters of a step are posted (S17.26)."""


def window_of(round_: Round, peers: HttpClient | RelayedClient) -> int:
    """Return the seconds within which request times are drawn; 0 without a relay (S17.27)."""
    window = round_.terms.window
    return 0 if window is UNSET or not isinstance(peers, RelayedClient) else window


def random_delay(seconds: float) -> float:
    """Draw a time evenly from 0 to `seconds`."""
    return system().integer(int(1000 * seconds) + 1) / 1000


async def wait_random(seconds: float) -> None:
    """Wait for a time drawn evenly from 0 to `seconds`."""
    if seconds:
        await asyncio.sleep(random_delay(seconds))
