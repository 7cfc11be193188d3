"""Everything through a relay: requests sealed to the roles' gateways, and never one sent directly.

Has the face of `HttpClient`, so that a visit cannot tell them apart, and holds a connection to the
relay only. The relay hands out the gateways' keys; the roles' signatures on them count. SPEC
section 17.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    Answered,
    Exchanges,
    HttpClient,
    Origin,
    apart,
    origin_of,
    taken,
)
from coatcheck.services.web.routing import JSON, OHTTP_KEY

_WHOLE: Final = re.compile(rb"bytes [0-9]+-[0-9]+/([0-9]{1,12})")
_HEADERS: Final = 256
"""Bytes that what surrounds a content may take."""
_LEVELS: Final = 3
"""How many sizes messages are leveled to; longer ones have their own."""
PIECE: Final = SIZES[3] - _HEADERS
"""Bytes of a piece of a bulletin, so that with its headers it has one size of the ladder."""


@dataclass(frozen=True)
class _Known:
    """A gateway's keys, and when they end by this machine's clock."""

    config: GatewayConfig
    until: int


class RelayedClient:
    """Asks roles through a relay.

    *Guarantee:* connects to the relay and to nobody else, whatever fails.

    Attributes:
        relay: the relay's address.
        first: the address of the round, which is at a shuffler. A role is a board unless it is one
            of the shufflers that are known.
        passed: how many sealed requests were sent.
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
            raise Misuse(f"{relay!r} is no relay: give https://HOST[:PORT] without a path")
        self._shufflers = {origin_of(first)}
        self._trusted = trusted
        self._http: Exchanges = http or HttpClient(ca=ca)
        self._known: dict[Origin, _Known] = {}
        self._least = SIZES[0]
        self.passed = 0

    def know(self, shufflers: Iterable[str]) -> None:
        """Learn from the terms where the shufflers are."""
        self._shufflers |= {origin_of(url) for url in shufflers}

    def level(self, size: int) -> None:
        """Give every message from now on the size that one of so many bytes needs."""
        fitting = [rung for rung in SIZES[:_LEVELS] if size + _HEADERS <= rung]
        self._least = fitting[0] if fitting else SIZES[_LEVELS - 1]

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most so many bytes; a long one comes in pieces of one size."""
        if most <= DOCUMENT:
            return self._taken(url, await self._exchange("GET", url))
        return await self._whole(url, most)

    async def page(self, url: str) -> tuple[bytes, dict[str, str]]:
        """Fetch a page with its headers."""
        answer = await self._exchange("GET", url)
        lines = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
        return self._taken(url, answer), lines

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
        return self._taken(url, await self._exchange(method, url, body, headers=lines))

    async def close(self) -> None:
        """Close the connection to the relay."""
        await self._http.close()

    async def _whole(self, url: str, most: int) -> bytes:
        found = bytearray()
        while True:
            wanted = {"range": f"bytes={len(found)}-{len(found) + PIECE - 1}"}
            answer = await self._exchange("GET", url, headers=wanted)
            piece = self._taken(url, answer)
            found += piece
            told = _WHOLE.fullmatch(dict(answer.headers).get(b"content-range", b""))
            if answer.status != 206 or not told or len(found) >= int(told[1]):
                return bytes(found)
            if int(told[1]) > most or not piece:
                raise Refused(f"{url} answers with more than {most} bytes, or without end")

    @staticmethod
    def _taken(url: str, answer: Response) -> bytes:
        return taken(url, Answered(answer.status, {}, answer.content))

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Ask once; if the gateway has other keys by now, once more with those."""
        origin = origin_of(url)
        told = {**(headers or {}), PADDING: str(self._least)}
        lines = tuple((name.encode(), value.encode()) for name, value in told.items())
        path = url[len(origin.url) :].encode()
        host = (origin.scheme.encode(), origin.authority.encode())
        text = Request(method.encode(), *host, path or b"/", lines, body).encode()
        least = self._least - OVERHEAD
        text = text.ljust(message_size(max(len(text), least), overhead=OVERHEAD), b"\0")
        answer, sealed = await self._passed(origin, text)
        if _is_about_keys(answer):
            # The gateway opened nothing, so that asking again is no repetition.
            self._known.pop(origin, None)
            answer, sealed = await self._passed(origin, text)
        if _is_about_keys(answer):
            raise Unavailable(f"the relay has no current keys of {origin.host}: try later")
        return Response.decode(sealed.open(taken(self.relay, answer)))

    async def _passed(self, origin: Origin, text: bytes) -> tuple[Answered, SealedRequest]:
        config = await self._config(origin)
        sealed = seal_request(text, config)
        self.passed += 1
        answer = await self._at_relay("POST", origin, sealed.raw, {"content-type": REQUEST_MEDIA})
        return answer, sealed

    async def _config(self, origin: Origin) -> GatewayConfig:
        known = self._known.get(origin)
        if known is None or known.until <= time.time():
            apart(self.relay, origin.url)
            answer = await self._at_relay("GET", origin, b"", {"accept": KEYS_MEDIA})
            signed = SignedKeys.read(taken(self.relay, answer), answer.headers)
            self._check(signed, origin)
            known = self._known[origin] = _Known(read_keys(signed.keys), signed.until)
        return known.config

    def _check(self, signed: SignedKeys, origin: Origin) -> None:
        """Refuse keys that the role did not sign, or that are of yesterday."""
        known = frozenset[bytes]().union(
            *(self._trusted.shufflers if origin in self._shufflers else [self._trusted.board])
        )
        if not any(signed.is_signed_by(key) for key in known | self._trusted.anywhere):
            raise Refused(
                f"the relay's keys for {origin.host} are signed by nobody you trust in that role:"
                " nothing was sent"
            )
        if signed.until <= time.time():
            raise Unavailable(f"the relay's keys for {origin.host} are of yesterday: try later")

    async def _at_relay(
        self, method: str, origin: Origin, body: bytes, headers: dict[str, str]
    ) -> Answered:
        url = f"{self.relay}/gateways/{origin.authority}"
        try:
            return await self._http.exchange(method, url, body, headers=headers, most=SIZES[-1])
        except Unavailable as away:
            raise Unavailable(f"{away}; nothing is sent around the relay") from None


def _is_about_keys(answer: Answered) -> bool:
    return answer.status == 400 and OHTTP_KEY.encode() in answer.body


def kept_relay(path: Path) -> str:
    """Read the relay of an earlier visit with the same ticket, if there was one."""
    return path.read_text(encoding="ascii") if path.exists() else ""


# HOUSE-DOC services.person.windows: 'Times that say nothing: through a relay a person asks at moments drawn at random.\n\nA relay and a role that both keep times could join requests that follow each other at once. Waiting\nwithout a relay would hide nothing, so nobody waits then. SPEC section 17.\n'
STEP: Final = 0.25
"""The share of a pause of settling within which the letters of a step are posted."""


def window_of(round_: Round, peers: HttpClient | RelayedClient) -> int:
    """Give the seconds within which the times of a person's requests are drawn; 0 for at once."""
    window = round_.terms.window
    return 0 if window is UNSET or not isinstance(peers, RelayedClient) else window


def drawn(seconds: float) -> float:
    """Draw a time evenly between nothing and so many seconds."""
    return system().integer(int(1000 * seconds) + 1) / 1000


async def linger(seconds: float) -> None:
    """Wait for a time drawn evenly between nothing and so many seconds."""
    if seconds:
        await asyncio.sleep(drawn(seconds))
