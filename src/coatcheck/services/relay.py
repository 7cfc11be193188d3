"""RELAY: forwards sealed requests of people to the gateways of roles, over pooled connections.

The relay learns who sends a request and to which role, but not what it says; it stores and logs
neither. It forwards the body and its media type, and nothing else of the request. For a whole day
it returns the same keys of a gateway to everybody, whatever the gateway says meanwhile, so that no
gateway can give each person a separate key. SPEC section 17.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import httptools
import msgspec
from msgspec import Meta

from coatcheck.durable_files import create_file
from coatcheck.entropy import system
from coatcheck.errors import Malformed, Misuse, Unavailable
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
from coatcheck.services.clock import Clock, wall
from coatcheck.services.settings import RelaySettings
from coatcheck.services.telemetry import log
from coatcheck.services.web.app import COMMON_WITHOUT_STORE, App
from coatcheck.services.web.client import HttpAnswer, Origin, certificates, check_apart, origin_of
from coatcheck.services.web.connections import Receive, Scope, Send, Wire, header, read_body
from coatcheck.services.web.gateway import SENDS
from coatcheck.services.web.routing import MEDIA, OHTTP_KEY, Problem, Reply, Route

Authority = Annotated[str, Meta(pattern=r"\A[0-9a-z.:\[\]-]{1,255}\Z")]
_NO_ANSWER: Final = "the gateway does not answer; try again later, and only through a relay"
_ANY_PAGE: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", f"{UNTIL}, {SIGNATURES}".encode()),
]
"""Lets pages of any site use the relay: it takes no credentials that they could misuse."""
_PREFLIGHT: Final = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "86400",
}
_REFETCH: Final = 1.0
"""Seconds within which the relay fetches a gateway's keys at most once, whatever it answers."""


class KeyLists:
    """The newest key list of each gateway, in a folder: one per gateway and period, the first one.

    *Guarantee:* a list is on the disk before anybody gets it, and no other list of its period
    replaces it, also after a restart and with several processes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Misuse(f"cannot make {folder} for key lists: {error.strerror}") from None

    def newest(self, authority: str) -> SignedKeys | None:
        """Return the newest list of a gateway; None if there is none."""
        paths = self._paths(authority)
        return self._read(paths[-1]) if paths else None

    def keep(self, authority: str, signed: SignedKeys) -> SignedKeys:
        """Store the first list of a period, and return the one that is stored for this period."""
        path = self._folder / f"{authority}.{signed.until}"
        try:
            create_file(path, msgspec.json.encode(signed), mode=0o600)
        except OSError as error:
            raise Unavailable(f"cannot write into {self._folder}: {error}") from None
        for older in self._paths(authority)[:-2]:
            older.unlink(missing_ok=True)
        return self._read(path)

    def _paths(self, authority: str) -> list[Path]:
        ends = [path.name.rpartition(".") for path in self._folder.iterdir()]
        periods = sorted(int(end) for name, _, end in ends if name == authority and end.isdecimal())
        return [self._folder / f"{authority}.{until}" for until in periods]

    @staticmethod
    def _read(path: Path) -> SignedKeys:
        try:
            return msgspec.json.decode(path.read_bytes(), type=SignedKeys)
        except (OSError, msgspec.DecodeError) as error:
            raise Unavailable(f"{path} is not a key list ({error}): remove it") from None


class RelayService(App[RelaySettings]):
    """A relay for the gateways that its settings name."""

    role = "relay"
    settings_type = RelaySettings

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__(settings)
        self._pool = ConnectionPool(ca=settings.ca_file, timeout=settings.peer_timeout)
        self._gateways: dict[str, Origin] = {}
        self.clock = Clock(wall=wall)
        self._lists = KeyLists(settings.path(settings.key_lists))
        self._keys: dict[str, SignedKeys] = {}
        self._fetched: dict[str, float] = {}
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._in_progress = 0
        for gateway in settings.gateways:
            if not gateway.startswith("@"):
                self._add(gateway)

    def _add(self, url: str) -> None:
        origin = origin_of(url)
        if self.settings.url:
            check_apart(self.settings.url, url)
        self._gateways[origin.authority] = origin

    def _gateway(self, authority: str) -> Origin:
        """Return a gateway of the settings, by its authority."""
        if authority not in self._gateways:
            for gateway in self.settings.gateways:
                if gateway.startswith("@"):
                    with suppress(Unavailable):  # a role that has not started yet
                        self._add(self.settings.value(gateway))
        if authority not in self._gateways:
            raise Problem(
                "not-found",
                "not a gateway of this relay; its operator can add it to `gateways`",
            )
        return self._gateways[authority]

    async def end(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with headers that let pages of any site read the answer."""

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_ANY_PAGE]
            await send(message)

        await super().__call__(
            scope, receive, send_with_headers if scope["type"] == "http" else send
        )

    async def preflight(self, authority: Authority) -> Reply:
        """Let a browser send requests for a page of any site."""
        self._gateway(authority)
        return Reply(b"", _PREFLIGHT)

    async def keys(self, authority: Authority) -> Reply:
        """Return a gateway's keys, the same to everybody until their day ends."""
        gateway = self._gateway(authority)
        async with self._fetching[authority]:  # requests that arrive meanwhile get the same answer
            signed = self._keys.get(authority) or self._lists.newest(authority)
            if signed is None or signed.until <= self.clock.now():
                signed = await self._renewed(gateway, signed)
            self._keys[authority] = signed
        return Reply(signed.keys, signed.headers)

    async def _renewed(self, gateway: Origin, ended: SignedKeys | None) -> SignedKeys:
        """Fetch a gateway's keys for the next period; within the slack the ended ones serve, too.

        Nothing that the gateway says brings a second list of one period (S17.12).
        """
        authority, now = gateway.authority, self.clock.now()
        usable = ended if ended is not None and ended.covers(now) else None
        if usable and time.monotonic() - self._fetched.get(authority, -_REFETCH) < _REFETCH:
            return usable
        self._fetched[authority] = time.monotonic()
        try:
            signed = await self._fetch(gateway)
        except Problem:
            if usable:
                return usable
            raise
        if ended is not None and signed.until <= ended.until:
            if signed.keys != ended.keys:
                log.error("%s gives a second key list for one day; it is ignored", gateway.url)
            if usable:
                return usable
            raise Problem("unavailable", _NO_ANSWER)
        return await asyncio.to_thread(self._lists.keep, authority, signed)

    async def _fetch(self, gateway: Origin) -> SignedKeys:
        """Fetch a gateway's keys of today."""
        answer = await self._ask("GET", gateway, b"", {"accept": KEYS_MEDIA})
        if answer.status != 200:
            raise Problem("unavailable", _NO_ANSWER)
        try:
            signed = SignedKeys.read(answer.body, answer.headers)
        except Malformed:
            raise Problem("unavailable", _NO_ANSWER) from None
        if not signed.covers(self.clock.now()):
            log.warning("the keys of %s are not for today: compare the clocks", gateway.url)
            raise Problem("unavailable", _NO_ANSWER)
        return signed

    async def forward(self, authority: Authority, wire: Wire) -> Reply:
        """Forward a sealed request to a gateway, and return its sealed answer."""
        scope, receive, _ = wire
        gateway = self._gateway(authority)
        if header(scope, b"content-type") != REQUEST_MEDIA.encode():
            raise Problem("malformed", f"the content type must be {REQUEST_MEDIA}")
        if self._in_progress >= self.settings.waiting:
            raise Problem("busy", "too many requests are in progress; try again in a moment")
        self._in_progress += 1
        try:
            body = await read_body(scope, receive, limit=SIZES[-1])
            answer = await self._ask("POST", gateway, body, {"content-type": REQUEST_MEDIA})
        finally:
            self._in_progress -= 1
        media = answer.headers.get("content-type", "")
        if answer.status == 200 and media == RESPONSE_MEDIA:
            return Reply(answer.body)
        if media == MEDIA and OHTTP_KEY.encode() in answer.body:
            raise Problem("ohttp-key", "the gateway does not open this with a key that it has now")
        if answer.status == 400:
            raise Problem(
                "malformed", "the gateway rejected the body: it is not an encapsulated request"
            )
        raise Problem("unavailable", _NO_ANSWER)

    async def _ask(
        self, method: str, gateway: Origin, body: bytes, headers: dict[str, str]
    ) -> HttpAnswer:
        try:
            return await self._pool.exchange(method, gateway, GATEWAY_PATH, body, headers=headers)
        except Unavailable:
            raise Problem("unavailable", _NO_ANSWER) from None

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
    common = COMMON_WITHOUT_STORE


# -- connections to gateways. The services' HTTP client takes about 2 ms of CPU per request, most of
# a relay's work; this one implements only the part of HTTP/1.1 that a relay needs.

_PORTS: Final = {"http": 80, "https": 443}


class ConnectionPool:
    """A pool of connections to gateways.

    *Guarantee:* no connection belongs to a person: each request takes any one that is idle.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._context = certificates(ca)
        self._idle: defaultdict[Origin, list[_Connection]] = defaultdict(list)

    async def exchange(
        self, method: str, origin: Origin, path: str, body: bytes, *, headers: Mapping[str, str]
    ) -> HttpAnswer:
        """Send a request once, or again if the idle connection turns out to be closed."""
        lines = {"host": origin.authority, **headers, "accept-encoding": "identity"}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = f"{method} {path} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n"
        raw = head.encode() + body
        try:
            async with asyncio.timeout(self._timeout):
                while (connection := self._take_idle(origin)) is not None:
                    answer = await self._send(connection, origin, raw)
                    if answer is not None:
                        return answer
                answer = await self._send(await self._open(origin), origin, raw)
        except (TimeoutError, OSError) as error:
            raise Unavailable(
                f"{origin.url} does not answer ({type(error).__name__}); try again later"
            ) from None
        if answer is None:
            raise Unavailable(f"{origin.url} hangs up without an answer; try again later")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()

    def _take_idle(self, origin: Origin) -> "_Connection | None":
        """Take any idle connection, so that the order of requests does not show who sent them."""
        idle = self._idle[origin]
        while idle:
            connection = idle.pop(system().integer(len(idle)))
            if not connection.is_closed:
                return connection
        return None

    async def _open(self, origin: Origin) -> "_Connection":
        context = self._context if origin.scheme == "https" else None
        port = origin.port or _PORTS[origin.scheme]
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, origin.host, port, ssl=context)
        return connection

    async def _send(
        self, connection: "_Connection", origin: Origin, raw: bytes
    ) -> HttpAnswer | None:
        try:
            answer = await connection.ask(raw)
        except BaseException:
            connection.close()
            raise
        if not connection.is_closed:
            self._idle[origin].append(connection)
        return answer


class _Connection(asyncio.Protocol):
    """One connection; the HTTP parser calls the methods that begin with `on_`."""

    most: Final = (1 << 20) + (1 << 16)
    """Bytes of an answer, its headers included."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: asyncio.Future[HttpAnswer | None] | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.close()

    def close(self) -> None:
        """Close the connection; a waiting request gets no answer."""
        self.is_closed = True
        self._transport.close()
        self._finish(None)

    async def ask(self, raw: bytes) -> HttpAnswer | None:
        """Send a request and wait for its answer; None if the connection closes first."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._headers, self._body, self._received = {}, bytearray(), 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(raw)
        return await self._waiting

    def data_received(self, data: bytes) -> None:
        try:
            self._received += len(data)
            if self._waiting is None or self._received > self.most:
                self.close()  # an answer without a request, or one that is too long
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
        self._finish(HttpAnswer(self._parser.get_status_code(), self._headers, bytes(self._body)))

    def _finish(self, answer: HttpAnswer | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
