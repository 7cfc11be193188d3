"""Bytes in and out: bodies read under a cap, requests under a deadline, connections counted.

uvicorn has none of the three (300 half-sent requests stay open for ever, a body of 100 MB is
read whole, an answer that nobody reads is held for ever): the deadlines and the count are in the
protocol class, the cap where bodies are read.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from coatcheck.services.http.problems import MEDIA, Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_OCTETS: Final = b"application/octet-stream"
_PATIENCE: Final = "coatcheck.patience"
_SLOWEST: Final = 1 << 16
"""Bytes a second that a large body or answer has to make at least."""


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> bytes:
    """Read a body of at most `limit` bytes; a larger one is refused before it is here."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) <= limit:
            return body
        raise _too_large(limit)
    length = header(scope, b"content-length")
    if length and (not length.isdigit() or int(length) > limit):
        raise _too_large(limit)
    return await _read_on(bytearray(body), receive, message, limit=limit)


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"at most {limit} bytes are taken here")


async def _read_on(body: bytearray, receive: Receive, message: Message, *, limit: int) -> bytes:
    """Read what is still to come, as long as it is not too much."""
    while True:
        if message["type"] == "http.disconnect":
            raise Problem("too-slow", "the connection ended before the body did")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()
        body += message.get("body", b"")


async def respond(send: Send, status: int, body: bytes, *, media: bytes = _OCTETS) -> None:
    """Send an answer."""
    headers = [(b"content-type", media), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_problem(send: Send, problem: Problem) -> None:
    """Send a problem document."""
    body = problem.document()
    headers = [(b"content-type", MEDIA.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    status = problem.kind.status
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def header(scope: Scope, name: bytes) -> bytes:
    """Give a header's value, or nothing."""
    return next((value for key, value in scope["headers"] if key == name), b"")


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


class _Careful(HttpToolsProtocol):
    """A connection on which every request has to arrive, and every answer to be read, in time."""

    deadline: ClassVar[float] = 15.0
    most: ClassVar[int] = 2000

    _timer: asyncio.TimerHandle | None = None
    _since: float | None = None
    _longer: float = 0.0
    _due: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_raw(Problem("busy", "too many connections are open")))
            transport.close()
            return
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self.deadline, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_PATIENCE: self._grant}  # type: ignore[dict-item] # our own
        self._longer = 0.0
        self._due = None  # whoever asks again has read the answer before
        if self._since is None:
            self._since = self.loop.time()

    def on_message_complete(self) -> None:
        self._since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        del msg
        self.transport.write(_raw(Problem("malformed", "this is not HTTP/1.1")))
        self.transport.close()

    def _grant(self, seconds: float) -> None:
        self._longer = seconds

    def _look(self) -> None:
        """Look now and then, instead of setting a timer for each request: that costs more."""
        now = self.loop.time()
        if self._is_unread(now):
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.deadline / 4, self._look)
        in_time = self._since is None or now - self._since < self.deadline + self._longer
        if in_time or self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started:
            self.transport.write(_raw(Problem("too-slow", "the request was not in time")))
        self.transport.close()

    def _is_unread(self, now: float) -> bool:
        """Tell whether an answer has waited for its reader for too long, also on a closed one."""
        size = self.transport.get_write_buffer_size()
        if not size:
            self._due = None
        elif self._due is None:
            self._due = now + self.deadline + size / _SLOWEST
        return self._due is not None and now > self._due


def protocol(*, deadline: float, connections: int) -> type[_Careful]:
    """Make the protocol class of a service: uvicorn's, with a deadline and a cap."""
    return type("Careful", (_Careful,), {"deadline": deadline, "most": connections})
