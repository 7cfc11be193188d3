"""Connections from the relay to gateways: kept open, and used by everybody's requests in turn.

The HTTP client of the services costs about two milliseconds of CPU per request, which is most of
what a relay would do. This one speaks the HTTP/1.1 that a relay needs, and no more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import httptools

from coatcheck.entropy import system
from coatcheck.errors import Unavailable
from coatcheck.services.http.client import Answered, trusted
from coatcheck.services.http.origins import Origin

_PORTS: Final = {"http": 80, "https": 443}


class Pipes:
    """A pool of connections.

    *Guarantee:* no connection belongs to a person: each request takes any that is idle.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._context = trusted(ca)
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
