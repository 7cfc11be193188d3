"""Bytes in and out: headers and bodies have a cap, requests a deadline, connections are counted.

uvicorn has none of these: 300 half-sent requests stay open for ever, headers of 40 MB are parsed
at quadratic cost, a body of 100 MB is read whole, an answer that nobody reads is held for ever.
The cap on bodies is where they are read, the rest in the protocol class.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Plain

from coatcheck.errors import Misuse
from coatcheck.protocol.oblivious_http import GATEWAY_PATH
from coatcheck.services.settings import ProcessSettings
from coatcheck.services.web.routing import MEDIA, OCTETS, Long, Problem

# HOUSE-DOC services.http.doors: 'The doors: how much one source address may take up, so that nobody keeps the others out.\n\nA source is an IPv4 address, or an IPv6 network of 64 bits. Sources are in memory only, those of\nconnections while they are open and those of requests for some seconds. They are never written.\n'
_BURST: Final = 10.0
"""Seconds whose requests may come at once."""
_RELAYED: Final = 20
"""A relay asks for many people: so many requests to the gateway count as one."""
_MANY: Final = 10_000
"""So many sources are remembered before those of which nothing is left to count are dropped."""


class Connection(Protocol):
    """What the doors need to know of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer on it: no request has come whole."""

    def turn_away(self) -> None:
        """Say that too many are here, and close."""


class SourceLimits:
    """Counts connections and requests by source.

    *Guarantee:* while one source holds connections without asking anything, every other one gets
    in. A whole request is never dropped for a newcomer.
    """

    def __init__(
        self, settings: ProcessSettings, *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = settings.connections
        self._each = settings.connections_each
        self._pace = 1.0 / settings.requests_each
        self._header = settings.source_header.lower().encode()
        try:
            self._proxies = [ipaddress.ip_network(one) for one in settings.proxies]
        except ValueError as error:
            raise Misuse(f"`proxies` has addresses and networks: {error}") from None
        self._inside: dict[str, dict[Connection, None]] = {}
        self._sources: dict[Connection, str] = {}
        self._due: dict[str, float] = {}
        self._steady = steady
        self._found = lru_cache(maxsize=4096)(self._find)

    def enter(self, one: Connection, host: str) -> None:
        """Let a connection in; if there are too many, the oldest idle one of its source goes.

        If there are too many in all, it is one of the source that has most.
        """
        source, is_proxy = self._found(host)
        mine = self._inside.setdefault(source, {})
        mine[one] = None
        self._sources[one] = source
        if len(self._sources) > self._most:
            mine = max(self._inside.values(), key=len)
        elif len(mine) <= self._each or is_proxy:
            return
        # A newcomer has not asked yet either, and is the last in line.
        going = next((other for other in mine if other.is_idle), one)
        self.leave(going)
        going.turn_away()

    def leave(self, one: Connection) -> None:
        """Forget a connection that ended."""
        source = self._sources.pop(one, None)
        if source is not None:
            del self._inside[source][one]
            if not self._inside[source]:
                del self._inside[source]

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Refuse a request that changes something if its source asked for too many of late."""
        client = scope.get("client")
        if client is None:
            return  # from a gateway: the relay knows who it was, and nobody here does
        source, is_proxy = self._found(client[0])
        if is_proxy:
            told = [value for name, value in scope["headers"] if name == self._header]
            if not told:
                return
            # The proxy adds the last one; what stands before it anybody may have written.
            source, _ = self._found(told[-1].rpartition(b",")[2].strip().decode("latin-1"))
        now = self._steady()
        share = _RELAYED if scope["path"] == GATEWAY_PATH else 1
        due = max(self._due.get(source, 0.0), now) + self._pace / share
        if due - now > _BURST:
            raise Problem("busy", "too many requests came from your network address")
        self._due[source] = due
        if len(self._due) > _MANY:
            self._due = {source: due for source, due in self._due.items() if due > now}

    def _find(self, host: str) -> tuple[str, bool]:
        """Give the source of a host, and whether many people come through it."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host[:64], False
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        is_proxy = any(address in network for network in self._proxies)
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.IPv6Network((address, 64), strict=False)), is_proxy
        return str(address), is_proxy


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Wire = tuple[Scope, Receive, Send]
"""A request as ASGI hands it over, for handlers that read bytes by themselves."""

HEAD_LIMIT: Final = 1 << 15
"""The most bytes of a request's line and headers, and of the trailers after a chunked body."""
_NO_HEAD: Final = -1
"""Stands for the count of header bytes while there is a body."""
_LINGER: Final = 1.0
"""Seconds for which what is still coming is thrown away, so that a refusal can be read."""
_PATIENCE: Final = "coatcheck.patience"
_PROGRESS: Final = "coatcheck.progress"
MOST: Final = "coatcheck.most"
"""How many bytes of an answer whoever asks can take, in the scope of a request."""
_PIECE: Final = 1 << 18
"""Bytes of a long answer that are held at once."""
RANGE: Final = re.compile(rb"bytes=([0-9]{1,12})-([0-9]{1,12})")
_SLOWEST: Final = 1 << 16
"""Bytes a second that a large body or answer has to make at least."""


async def pieces(receive: Receive, *, limit: int) -> AsyncIterator[bytes]:
    """Read a body of at most `limit` bytes as it comes."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("too-slow", "the connection ended before the body did")
        body, more = message.get("body", b""), message.get("more_body", False)
        size += len(body)
        if size > limit:
            raise _too_large(limit)
        yield body


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> bytes:
    """Read a body of at most `limit` bytes; a larger one is refused before it is here."""
    cycle = getattr(receive, "__self__", None)
    if isinstance(cycle, RequestResponseCycle) and _is_whole(cycle, limit):
        whole, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return whole
    message = await receive()
    body: bytes | bytearray = message.get("body", b"")
    if message.get("more_body", False):
        body = bytearray(body)
        length = header(scope, b"content-length")
        if length and (not length.isdigit() or int(length) > limit):
            raise _too_large(limit)
    while len(body) <= limit:
        if message["type"] == "http.disconnect":
            raise Problem("too-slow", "the connection ended before the body did")
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()
        body += message.get("body", b"")
    raise _too_large(limit)


def _is_whole(cycle: RequestResponseCycle, limit: int) -> bool:
    """Tell whether a body that may be taken is all here, as a small one is with its headers."""
    is_asked = not cycle.disconnected and not cycle.waiting_for_100_continue
    return is_asked and not cycle.more_body and len(cycle.body) <= limit


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"at most {limit} bytes are taken here")


async def respond(
    send: Send,
    status: int,
    body: bytes,
    *,
    media: bytes = OCTETS.encode(),
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an answer."""
    lines = [(b"content-type", media), (b"content-length", b"%d" % len(body))]
    lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class Fixed:
    """Answers that differ in their bodies alone: the head is written once."""

    def __init__(self, status: int, size: int, *, media: str = OCTETS) -> None:
        lines = [(b"content-type", media.encode()), (b"content-length", b"%d" % size)]
        self._start = {"type": "http.response.start", "status": status, "headers": lines}
        told = b"".join(b"%b: %b\r\n" % line for line in lines)
        self._head = STATUS_LINE[status] + told + b"\r\n"

    async def respond(self, send: Send, body: bytes) -> None:
        """Send an answer; in one piece if a connection waits for no more than that."""
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle) and _is_plain(cycle):
            cycle.response_started = cycle.response_complete = True
            cycle.transport.write(self._head + body)
            cycle.message_event.set()
            cycle.on_response()
            return
        await send(self._start)
        await send({"type": "http.response.body", "body": body})


def _is_plain(cycle: RequestResponseCycle) -> bool:
    """Tell whether an answer needs no other header than its own, and nobody waits before it."""
    is_asked = not cycle.response_started and not cycle.disconnected and cycle.keep_alive
    is_told = cycle.default_headers or CLOSE_HEADER in cycle.scope["headers"]
    return is_asked and not is_told and not cycle.flow.write_paused


async def respond_long(scope: Scope, send: Send, status: int, found: Long, *, media: bytes) -> None:
    """Send an answer piece by piece, or the range of it that is asked for (RFC 9110, 14)."""
    start, end, lines = 0, found.size, dict(found.headers)
    asked = RANGE.fullmatch(header(scope, b"range"))
    if asked:
        start = int(asked[1])
        end = min(int(asked[2]) + 1, found.size, start + scope.get(MOST, found.size))
        if not start < end:
            raise Problem("unprocessable", f"there are {found.size} bytes: ask for some of them")
        status, lines["content-range"] = 206, f"bytes {start}-{end - 1}/{found.size}"
    elif found.size > scope.get(MOST, found.size):
        raise Problem("too-large", f"there are {found.size} bytes: ask for ranges of them")
    lines["content-length"] = str(end - start)
    head = [(b"content-type", media), *((key.encode(), of.encode()) for key, of in lines.items())]
    at, piece = start, await found.read(start, min(start + _PIECE, end))
    await send({"type": "http.response.start", "status": status, "headers": head})
    while at + len(piece) < end:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        scope.get("extensions", {}).get(_PROGRESS, _nothing)()
        at += len(piece)
        piece = await found.read(at, min(at + _PIECE, end))
    await send({"type": "http.response.body", "body": piece})


def _nothing() -> None:
    """Nobody waits for progress."""


async def respond_problem(send: Send, problem: Problem) -> None:
    """Send a problem document."""
    status, body, headers = problem.kind.status, problem.document(), problem.headers
    await respond(send, status, body, media=MEDIA.encode(), headers=headers)


def header(scope: Scope, name: bytes) -> bytes:
    """Give a header's value, or nothing."""
    for key, value in scope["headers"]:
        if key == name:
            return value  # type: ignore[no-any-return] # ASGI has bytes
    return b""


def _raw(problem: Problem) -> bytes:
    body = problem.document()
    lines = [
        f"HTTP/1.1 {problem.kind.status} -",
        f"content-type: {MEDIA}",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in problem.headers.items()),
        "connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def grant_time(scope: Scope, *, limit: int) -> None:
    """Let a large body that is wanted take the time that its announced length needs."""
    length = header(scope, b"content-length")
    grant = scope.get("extensions", {}).get(_PATIENCE)
    if grant is not None and length.isdigit():
        grant(min(int(length), limit) / _SLOWEST)


class _Careful(_Plain):
    """A connection on which every request has to arrive, and every answer to be read, in time.

    *Guarantee:* the parser gets at most twice `HEAD_LIMIT` bytes of the headers of one request.
    """

    # What runs for every request names its base class: five super() cost a microsecond.

    deadline: ClassVar[float] = 15.0
    doors: ClassVar[SourceLimits]

    _timer: asyncio.TimerHandle | None = None
    _since: float | None = None
    _longer: float = 0.0
    _due: float | None = None
    _answered: float = 0.0
    _head: int = 0  # bytes of headers so far; stays at the limit once they were refused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._extensions = {_PATIENCE: self._grant, _PROGRESS: self._progress}
        self._since = self.loop.time()
        self._pause = min(self.deadline, self.timeout_keep_alive) / 4
        self._timer = self.loop.call_later(self._pause, self._look)
        self.doors.enter(self, self.client[0] if self.client else "")

    @property
    def is_idle(self) -> bool:
        """Whether no whole request waits for its answer; a wanted delivery counts as one."""
        if self._since is not None:
            return not self._longer
        return self.cycle is None or self.cycle.response_complete

    def turn_away(self) -> None:
        """Say that too many are here, and close."""
        if self.cycle is None or not self.cycle.response_started:
            self.transport.write(_raw(Problem("busy", "too many connections are open")))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.doors.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        at = 0
        while at < len(data) and self._head < HEAD_LIMIT and not self.transport.is_closing():
            piece = data[at : at + HEAD_LIMIT - max(self._head, 0)]
            at += len(piece)
            if self._head >= 0:
                self._head += len(piece)
            _Plain.data_received(self, piece)
            if self._head >= HEAD_LIMIT:
                self._refuse_head()

    def _refuse_head(self) -> None:
        """Answer, and throw away what is still coming: a reset would take the answer along."""
        if self.cycle is None or self.cycle.response_complete:
            detail = f"at most {HEAD_LIMIT} bytes of headers are read"
            self.transport.write(_raw(Problem("long-headers", detail)))
        self.loop.call_later(_LINGER, self.transport.close)

    def on_message_begin(self) -> None:
        _Plain.on_message_begin(self)
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item] # our own
        self._longer = 0.0
        self._due = None  # whoever asks again has read the answer before
        if self._since is None:
            self._since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._head = _NO_HEAD
        _Plain.on_headers_complete(self)

    def on_chunk_header(self) -> None:
        """Count what follows the last chunk, which is empty: trailers are headers, too."""
        self._head = 0

    def on_body(self, body: bytes) -> None:
        self._head = _NO_HEAD
        _Plain.on_body(self, body)

    def on_message_complete(self) -> None:
        self._since = None
        self._head = 0
        _Plain.on_message_complete(self)

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            _Plain.on_response_complete(self)
            return
        # As uvicorn does it, but without a timer for those who ask nothing more: `_look` comes by.
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._answered = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        del msg
        self.transport.write(_raw(Problem("malformed", "this is not HTTP/1.1")))
        self.transport.close()

    def _grant(self, seconds: float) -> None:
        self._longer = seconds

    def _progress(self) -> None:
        """Note that the reader of a long answer has read more of it."""
        self._due = None

    def _look(self) -> None:
        """Look now and then, instead of setting a timer for each request: that costs more."""
        now = self.loop.time()
        if self._is_unread(now):
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self._pause, self._look)
        if self.transport.is_closing():
            return
        is_late = self._since is not None and now - self._since >= self.deadline + self._longer
        if is_late and (self.cycle is None or not self.cycle.response_started):
            self.transport.write(_raw(Problem("too-slow", "the request was not in time")))
        if is_late or self._is_left(now):
            self.transport.close()

    def _is_left(self, now: float) -> bool:
        """Tell whether nothing was asked for too long after the last answer."""
        is_waiting = self._since is None and self.is_idle
        return is_waiting and now - self._answered >= self.timeout_keep_alive

    def _is_unread(self, now: float) -> bool:
        """Tell whether an answer has waited for its reader for too long, also on a closed one."""
        size = self.transport.get_write_buffer_size()
        if not size:
            self._due = None
        elif self._due is None:
            self._due = now + self.deadline + size / _SLOWEST
        return self._due is not None and now > self._due


def protocol(*, deadline: float, doors: SourceLimits) -> type[_Careful]:
    """Make the protocol class of a service: uvicorn's, with a deadline and doors."""
    return type("Careful", (_Careful,), {"deadline": deadline, "doors": doors})
