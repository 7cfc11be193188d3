"""The relay as a service: passes sealed requests on to gateways, and knows nothing else.

Knows who asks and which role is asked, never what; keeps and logs neither. It forwards the body
and its media type and nothing of the connection. One list of keys per gateway serves everybody, so
that no gateway can give each person a key of their own. SPEC section 17.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

import httptools
from msgspec import Meta, Struct

from coatcheck.entropy import system
from coatcheck.errors import Malformed, Unavailable
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    KEYS_MEDIA,
    REQUEST_MEDIA,
    RESPONSE_MEDIA,
    SIGNATURES,
    SIZES,
    UNTIL,
    SignedKeys,
)
from coatcheck.services.settings import RelaySettings
from coatcheck.services.telemetry import MEDIA as METRICS
from coatcheck.services.web.app import App, openapi
from coatcheck.services.web.client import Answered, Origin, certificates, check_apart, origin_of
from coatcheck.services.web.connections import Receive, Scope, Send, Wire, header, read_body
from coatcheck.services.web.gateway import SENDS
from coatcheck.services.web.routing import MEDIA, OHTTP_KEY, Problem, Reply, Route

# HOUSE-DOC services.relay.pipes: "Connections from the relay to gateways: kept open, and used by everybody's requests in turn.\n\nThe HTTP client of the services costs about two milliseconds of CPU per request, which is most of\nwhat a relay would do. This one speaks the HTTP/1.1 that a relay needs, and no more.\n"
_PORTS: Final = {"http": 80, "https": 443}


class Pipes:
    """A pool of connections.

    *Guarantee:* no connection belongs to a person: each request takes any that is idle.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._context = certificates(ca)
        self._idle: defaultdict[Origin, list[_Pipe]] = defaultdict(list)

    async def exchange(
        self, method: str, origin: Origin, path: str, body: bytes, *, headers: Mapping[str, str]
    ) -> Answered:
        """Ask once; over a connection that turns out to be closed by now, once more."""
        lines = {"host": origin.authority, **headers, "accept-encoding": "identity"}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = f"{method} {path} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n"
        raw = head.encode() + body
        try:
            async with asyncio.timeout(self._timeout):
                while (pipe := self._taken(origin)) is not None:
                    answer = await self._asked(pipe, origin, raw)
                    if answer is not None:
                        return answer
                answer = await self._asked(await self._opened(origin), origin, raw)
        except (TimeoutError, OSError) as error:
            raise Unavailable(f"{origin.url} does not answer ({type(error).__name__})") from None
        if answer is None:
            raise Unavailable(f"{origin.url} hangs up")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        for pipes in self._idle.values():
            for pipe in pipes:
                pipe.close()

    def _taken(self, origin: Origin) -> "_Pipe | None":
        """Take any idle connection, so that the order of requests does not show who sent them."""
        idle = self._idle[origin]
        while idle:
            pipe = idle.pop(system().integer(len(idle)))
            if not pipe.is_closed:
                return pipe
        return None

    async def _opened(self, origin: Origin) -> "_Pipe":
        context = self._context if origin.scheme == "https" else None
        port = origin.port or _PORTS[origin.scheme]
        loop = asyncio.get_running_loop()
        _, pipe = await loop.create_connection(_Pipe, origin.host, port, ssl=context)
        return pipe

    async def _asked(self, pipe: "_Pipe", origin: Origin, raw: bytes) -> Answered | None:
        try:
            answer = await pipe.ask(raw)
        except BaseException:
            pipe.close()
            raise
        if not pipe.is_closed:
            self._idle[origin].append(pipe)
        return answer


class _Pipe(asyncio.Protocol):
    """One connection; the parser calls the methods that begin with `on_`."""

    most: Final = (1 << 20) + (1 << 16)
    """Bytes of an answer, its headers included."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: asyncio.Future[Answered | None] | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.close()

    def close(self) -> None:
        """Close it; whoever waits is told that there is no answer."""
        self.is_closed = True
        self._transport.close()
        self._settle(None)

    async def ask(self, raw: bytes) -> Answered | None:
        """Send a request and wait for its answer; None if there is none."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._headers, self._body, self._received = {}, bytearray(), 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(raw)
        return await self._waiting

    def data_received(self, data: bytes) -> None:
        try:
            self._received += len(data)
            if self._waiting is None or self._received > self.most:
                self.close()  # nobody asked, or not for so much
                return
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.is_closed = True
            self._transport.close()
        self._settle(Answered(self._parser.get_status_code(), self._headers, bytes(self._body)))

    def _settle(self, answer: Answered | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


Authority = Annotated[str, Meta(pattern=r"\A[0-9a-z.:\[\]-]{1,255}\Z")]
_AWAY: Final = "this gateway does not answer now: try later, and never without a relay"
_ANY_PAGE: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", f"{UNTIL}, {SIGNATURES}".encode()),
]
"""Pages of any site may ask a relay: it knows nobody, so there is nothing to take from it."""
_ASKED: Final = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "86400",
}
_AGAIN: Final = 1.0
"""Seconds within which a gateway's keys are not fetched twice, whatever it says of them."""


class RelayHealth(Struct, frozen=True):
    """Which role this is; a relay has no store, so every process of it serves."""

    role: str
    leads: bool = True


@dataclass(frozen=True)
class _Kept:
    """A gateway's keys as everybody gets them, and since when by the steady clock."""

    signed: SignedKeys
    since: float


class RelayService(App[RelaySettings]):
    """One relay for the gateways that its settings name."""

    role = "relay"
    settings_type = RelaySettings

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__(settings)
        self._pipes = Pipes(ca=settings.ca_file, timeout=settings.peer_timeout)
        self._gateways: dict[str, Origin] = {}
        self._kept: dict[str, _Kept] = {}
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._under_way = 0
        for told in settings.gateways:
            if not told.startswith("@"):
                self._admit(told)

    def _admit(self, told: str) -> None:
        origin = origin_of(told)
        if self.settings.url:
            check_apart(self.settings.url, told)
        self._gateways[origin.authority] = origin

    def _gateway(self, authority: str) -> Origin:
        """Find a gateway that the settings name."""
        if authority not in self._gateways:
            for told in self.settings.gateways:
                if told.startswith("@"):
                    with suppress(Unavailable):  # a role that has not started yet
                        self._admit(self.settings.value(told))
        if authority not in self._gateways:
            raise Problem("not-found", "this relay serves no such gateway")
        return self._gateways[authority]

    async def end(self) -> None:
        """Close the connections."""
        await self._pipes.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; browsers are told that any page may read the answer."""

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_ANY_PAGE]
            await send(message)

        await super().__call__(scope, receive, sent if scope["type"] == "http" else send)

    # -- for people

    async def preflight(self, authority: Authority) -> Reply:
        """Tell a browser that a page of any site may ask."""
        self._gateway(authority)
        return Reply(b"", _ASKED)

    async def keys(self, authority: Authority) -> Reply:
        """Give a gateway's keys: the same to everybody for a while."""
        gateway = self._gateway(authority)
        async with self._fetching[authority]:  # whoever asks meanwhile gets what the first one gets
            kept = self._kept.get(authority)
            if kept is None or time.monotonic() - kept.since > self.settings.keys_for:
                kept = self._kept[authority] = await self._fetched(gateway)
        return Reply(kept.signed.keys, kept.signed.headers)

    async def _fetched(self, gateway: Origin) -> _Kept:
        """Fetch a gateway's keys."""
        answer = await self._ask("GET", gateway, b"", {"accept": KEYS_MEDIA})
        if answer.status != 200:
            raise Problem("unavailable", _AWAY)
        try:
            return _Kept(SignedKeys.read(answer.body, answer.headers), time.monotonic())
        except Malformed:
            raise Problem("unavailable", _AWAY) from None

    async def forward(self, authority: Authority, wire: Wire) -> Reply:
        """Pass a sealed request on to a gateway, and its sealed answer back."""
        scope, receive, _ = wire
        gateway = self._gateway(authority)
        if header(scope, b"content-type") != REQUEST_MEDIA.encode():
            raise Problem("malformed", f"a relay takes {REQUEST_MEDIA}")
        if self._under_way >= self.settings.waiting:
            raise Problem("busy", "too many requests are under way: try again in a moment")
        self._under_way += 1
        try:
            body = await read_body(scope, receive, limit=SIZES[-1])
            answer = await self._ask("POST", gateway, body, {"content-type": REQUEST_MEDIA})
        finally:
            self._under_way -= 1
        media = answer.headers.get("content-type", "")
        if answer.status == 200 and media == RESPONSE_MEDIA:
            return Reply(answer.body)
        if media == MEDIA and OHTTP_KEY.encode() in answer.body:
            self._forget(authority)
            raise Problem("ohttp-key", "the gateway has other keys now: fetch them again")
        if answer.status == 400:
            raise Problem("malformed", "the gateway says that this is no encapsulated request")
        raise Problem("unavailable", _AWAY)

    def _forget(self, authority: str) -> None:
        """Have the keys fetched again, but not at the pace of whoever sends rubbish."""
        kept = self._kept.get(authority)
        if kept is not None and time.monotonic() - kept.since > _AGAIN:
            del self._kept[authority]

    async def _ask(
        self, method: str, gateway: Origin, body: bytes, headers: dict[str, str]
    ) -> Answered:
        try:
            return await self._pipes.exchange(method, gateway, GATEWAY_PATH, body, headers=headers)
        except Unavailable:
            raise Problem("unavailable", _AWAY) from None

    # -- for the operator

    async def healthz(self) -> RelayHealth:
        """Say that the relay answers."""
        return RelayHealth(self.role)

    async def metrics_page(self) -> Reply:
        """Give the counts as Prometheus reads them."""
        return Reply(self.metrics.page())

    table = (
        Route(
            *("POST", "/gateways/{authority}", forward),
            takes=REQUEST_MEDIA,
            media=RESPONSE_MEDIA,
            problems=(404, 422, 429),
        ),
        Route(
            *("GET", "/gateways/{authority}", keys),
            media=KEYS_MEDIA,
            sends=SENDS,
            problems=(404, 503),
        ),
        Route("OPTIONS", "/gateways/{authority}", preflight, problems=(404,)),
    )
    common = (
        Route("GET", "/healthz", healthz),
        Route("GET", "/metrics", metrics_page, media=METRICS, operator=True),
        Route("GET", "/openapi.json", openapi),
    )
