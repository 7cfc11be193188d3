"""Limits on a client: connections, headers, bodies and time (S19.17).

uvicorn has none of these limits: 300 half-sent requests stay open forever, headers of 40 MB are
parsed at quadratic cost, a body of 100 MB is read whole, and an answer that the client does not
read is held forever. So `protocol` returns a subclass of its connection class, and bodies are
limited where they are read. The subclass uses internals of uvicorn; `pyproject.toml` bounds its
version for that.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Plain

from coatcheck.errors import Misuse
from coatcheck.protocol.oblivious_http import GATEWAY_PATH
from coatcheck.services.settings import ProcessSettings
from coatcheck.services.web.routing import MEDIA, OCTETS, Long, Problem

_BURST: Final = 10.0
"""A source may send at once as many requests as it may send in these seconds."""
_RELAYED: Final = 20
"""Requests to the gateway that count as one: a relay sends those of many people."""
_MANY: Final = 10_000
"""Number of sources in memory above which those without recent requests are dropped."""


class Stage(Enum):
    """What a connection is doing."""

    SENDING = "sending"  # its first or next request is not complete yet
    ASKING = "asking"  # a complete request waits for its answer, or an expected delivery comes in
    IDLE = "idle"  # its last request is answered, and nothing came since


class Connection(Protocol):
    """The part of a connection that `SourceLimits` uses."""

    @property
    def stage(self) -> Stage:
        """What the connection is doing."""

    def reject(self) -> None:
        """Close this connection; answer first that there are too many, if nothing was answered."""


class SourceLimits:
    """Limits on connections and requests per source, so that one source cannot block the others.

    A source is an IPv4 address, or an IPv6 network of 64 bits. Sources are in memory only, those of
    connections while they are open and those of requests for some seconds; they are never written.

    Connections of a source are counted apart by their stage. So somebody who holds half-sent
    requests takes nothing from the people behind the same address who send theirs and wait.

    *Guarantee:* while one source holds connections on which it requests nothing, every other source
    can connect. A complete request is never dropped for a new connection.
    """

    def __init__(
        self, settings: ProcessSettings, *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = settings.connections
        self._each = settings.connections_each
        self._pace = 1.0 / settings.requests_each
        self._header = settings.source_header.lower().encode()
        try:
            self._proxies = [ipaddress.ip_network(proxy) for proxy in settings.proxies]
        except ValueError as error:
            raise Misuse(f"`proxies` must be a list of addresses and networks: {error}") from None
        self._open: dict[str, dict[Connection, None]] = {}
        self._sources: dict[Connection, str] = {}
        self._due: dict[str, float] = {}
        self._steady = steady
        self._source_of = lru_cache(maxsize=4096)(self._find_source)

    def enter(self, connection: Connection, host: str) -> None:
        """Count a new connection; above a limit, reject the oldest of a stage with too many.

        That is one of the same source, and above the total limit of the largest source. If all
        others are asking, it is the new one.
        """
        source, is_proxy = self._source_of(host)
        siblings = self._open.setdefault(source, {})
        siblings[connection] = None
        self._sources[connection] = source
        is_full = len(self._sources) > self._most
        if is_full:
            siblings = max(self._open.values(), key=len)
        elif len(siblings) <= self._each or is_proxy:
            return
        stages: dict[Stage, list[Connection]] = {stage: [] for stage in Stage}
        for other in siblings:
            stages[other.stage].append(other)
        droppable = max(stages[Stage.SENDING], stages[Stage.IDLE], key=len)
        if len(droppable) > self._each or (is_full and droppable):
            rejected = droppable[0]
        elif len(stages[Stage.ASKING]) >= self._each or is_full:
            rejected = connection
        else:
            return
        self.leave(rejected)
        rejected.reject()

    def leave(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        source = self._sources.pop(connection, None)
        if source is not None:
            del self._open[source][connection]
            if not self._open[source]:
                del self._open[source]

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Reject a request that changes something if its source has recently sent too many."""
        client = scope.get("client")
        if client is None:
            return  # from the gateway: only the relay knows its source
        source, is_proxy = self._source_of(client[0])
        if is_proxy:
            values = [value for name, value in scope["headers"] if name == self._header]
            if not values:
                return
            # The proxy adds the last entry; anybody may have written those before it.
            source, _ = self._source_of(values[-1].rpartition(b",")[2].strip().decode("latin-1"))
        now = self._steady()
        share = _RELAYED if scope["path"] == GATEWAY_PATH else 1
        due = max(self._due.get(source, 0.0), now) + self._pace / share
        if due - now > _BURST:
            raise Problem(
                "busy", "too many requests came from your network address; retry in a moment"
            )
        self._due[source] = due
        if len(self._due) > _MANY:
            self._due = {source: due for source, due in self._due.items() if due > now}

    def _find_source(self, host: str) -> tuple[str, bool]:
        """Return the source of a host, and whether it is a proxy of many people."""
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
"""A request as in ASGI, for handlers that read the body themselves."""

HEAD_LIMIT: Final = 1 << 15
"""The most bytes of the request line and all headers, and of the trailers of a chunked body."""
_NO_HEAD: Final = -1
"""In place of the count of header bytes, while a body arrives."""
_LINGER: Final = 1.0
"""Seconds for which a rejected connection still discards input, so that the client can read why."""
_PATIENCE: Final = "coatcheck.patience"
_PROGRESS: Final = "coatcheck.progress"
MOST: Final = "coatcheck.most"
"""Key in the scope of a request: the most bytes of an answer that the client can take."""
_PIECE: Final = 1 << 18
"""Bytes of a long answer that are in memory at once."""
RANGE: Final = re.compile(rb"bytes=([0-9]{1,12})-([0-9]{1,12})")
_SLOWEST: Final = 1 << 16
"""Bytes per second below which a large body or answer is too slow."""


async def pieces(receive: Receive, *, limit: int) -> AsyncIterator[bytes]:
    """Yield a body of at most `limit` bytes as it arrives."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("too-slow", "the connection closed before the whole body had arrived")
        body, more = message.get("body", b""), message.get("more_body", False)
        size += len(body)
        if size > limit:
            raise _too_large(limit)
        yield body


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> bytes:
    """Read a body of at most `limit` bytes; reject a larger one before all of it is here."""
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
            raise Problem("too-slow", "the connection closed before the whole body had arrived")
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()
        body += message.get("body", b"")
    raise _too_large(limit)


def _is_whole(cycle: RequestResponseCycle, limit: int) -> bool:
    """Return whether the body has arrived completely, as small ones do with their headers."""
    is_open = not cycle.disconnected and not cycle.waiting_for_100_continue
    return is_open and not cycle.more_body and len(cycle.body) <= limit


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"the body may have at most {limit} bytes here")


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


class FixedReply:
    """Answers that differ in their body only: the head is encoded once."""

    def __init__(self, status: int, size: int, *, media: str = OCTETS) -> None:
        lines = [(b"content-type", media.encode()), (b"content-length", b"%d" % size)]
        self._start = {"type": "http.response.start", "status": status, "headers": lines}
        headers = b"".join(b"%b: %b\r\n" % line for line in lines)
        self._head = STATUS_LINE[status] + headers + b"\r\n"

    async def respond(self, send: Send, body: bytes) -> None:
        """Send an answer; in a single write if the connection needs nothing else."""
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
    """Return whether an answer needs no more headers, and no write is waiting before it."""
    is_open = not cycle.response_started and not cycle.disconnected and cycle.keep_alive
    has_more = cycle.default_headers or CLOSE_HEADER in cycle.scope["headers"]
    return is_open and not has_more and not cycle.flow.write_paused


async def respond_long(scope: Scope, send: Send, status: int, reply: Long, *, media: bytes) -> None:
    """Send an answer piece by piece, or the requested range of it (RFC 9110, section 14)."""
    start, end, lines = 0, reply.size, dict(reply.headers)
    byte_range = RANGE.fullmatch(header(scope, b"range"))
    if byte_range:
        start = int(byte_range[1])
        end = min(int(byte_range[2]) + 1, reply.size, start + scope.get(MOST, reply.size))
        if not start < end:
            raise Problem("unprocessable", f"the range must be within 0-{reply.size - 1}")
        status, lines["content-range"] = 206, f"bytes {start}-{end - 1}/{reply.size}"
    elif reply.size > scope.get(MOST, reply.size):
        raise Problem("too-large", f"the answer has {reply.size} bytes; request ranges of it")
    lines["content-length"] = str(end - start)
    head = [(b"content-type", media), *((key.encode(), of.encode()) for key, of in lines.items())]
    at, piece = start, await reply.read(start, min(start + _PIECE, end))
    await send({"type": "http.response.start", "status": status, "headers": head})
    while at + len(piece) < end:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        scope.get("extensions", {}).get(_PROGRESS, _nothing)()
        at += len(piece)
        piece = await reply.read(at, min(at + _PIECE, end))
    await send({"type": "http.response.body", "body": piece})


def _nothing() -> None:
    """Do nothing: the server does not track progress."""


async def respond_problem(send: Send, problem: Problem) -> None:
    """Send a problem document."""
    status, body, headers = problem.kind.status, problem.document(), problem.headers
    await respond(send, status, body, media=MEDIA.encode(), headers=headers)


def header(scope: Scope, name: bytes) -> bytes:
    """Return a header's value; empty if there is none."""
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
    """Extend the deadline of a large body that is expected, by its announced length."""
    length = header(scope, b"content-length")
    grant = scope.get("extensions", {}).get(_PATIENCE)
    if grant is not None and length.isdigit():
        grant(min(int(length), limit) / _SLOWEST)


class _Limited(_Plain):
    """A connection that is closed if a request does not arrive, or an answer is not read, in time.

    *Guarantee:* the parser gets at most twice `HEAD_LIMIT` bytes of the headers of one request.
    """

    # Methods that run for every request name their base class: five calls of super() cost 1 µs.

    deadline: ClassVar[float] = 15.0
    limits: ClassVar[SourceLimits]

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
        self._timer = self.loop.call_later(self._pause, self._check)
        self.limits.enter(self, self.client[0] if self.client else "")

    @property
    def stage(self) -> Stage:
        """What the connection is doing; an expected delivery counts as a complete request."""
        if self._since is not None:
            return Stage.ASKING if self._longer else Stage.SENDING
        is_answered = self.cycle is None or self.cycle.response_complete
        return Stage.IDLE if is_answered else Stage.ASKING

    def reject(self) -> None:
        """Close this connection; answer first that there are too many, if nothing was answered.

        A client would take what comes on an idle connection for the answer to its next request.
        """
        if self.cycle is None or not self.cycle.response_started:
            self.transport.write(_raw(Problem("busy", "too many connections are open")))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.leave(self)
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
        """Answer, and discard what still arrives: a reset could destroy the answer."""
        if self.cycle is None or self.cycle.response_complete:
            detail = f"the request line and headers may have at most {HEAD_LIMIT} bytes"
            self.transport.write(_raw(Problem("long-headers", detail)))
        self.loop.call_later(_LINGER, self.transport.close)

    def on_message_begin(self) -> None:
        _Plain.on_message_begin(self)
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item] # our own
        self._longer = 0.0
        self._due = None  # a client that sends the next request has read the last answer
        if self._since is None:
            self._since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._head = _NO_HEAD
        _Plain.on_headers_complete(self)

    def on_chunk_header(self) -> None:
        """Count what follows the last, empty chunk: trailers are headers, too."""
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
        # As in uvicorn, but without a timer per idle connection: `_check` closes those.
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._answered = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        del msg
        self.transport.write(_raw(Problem("malformed", "the request is not valid HTTP/1.1")))
        self.transport.close()

    def _grant(self, seconds: float) -> None:
        self._longer = seconds

    def _progress(self) -> None:
        """Note that the client has read more of a long answer."""
        self._due = None

    def _check(self) -> None:
        """Check the deadlines now and then, which costs less than a timer per request."""
        now = self.loop.time()
        if self._is_unread(now):
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self._pause, self._check)
        if self.transport.is_closing():
            return
        is_late = self._since is not None and now - self._since >= self.deadline + self._longer
        if is_late and (self.cycle is None or not self.cycle.response_started):
            self.transport.write(
                _raw(
                    Problem(
                        "too-slow",
                        f"the request did not arrive within {self.deadline + self._longer:g} s",
                    )
                )
            )
        if is_late or self._is_left(now):
            self.transport.close()

    def _is_left(self, now: float) -> bool:
        """Return whether the connection has been idle for too long since the last answer."""
        return self.stage is Stage.IDLE and now - self._answered >= self.timeout_keep_alive

    def _is_unread(self, now: float) -> bool:
        """Return whether an answer has waited too long to be read, also on a closing connection."""
        size = self.transport.get_write_buffer_size()
        if not size:
            self._due = None
        elif self._due is None:
            self._due = now + self.deadline + size / _SLOWEST
        return self._due is not None and now > self._due


def protocol(*, deadline: float, limits: SourceLimits) -> type[_Limited]:
    """Return the protocol class of a service: uvicorn's, with a deadline and source limits."""
    return type("Limited", (_Limited,), {"deadline": deadline, "limits": limits})
