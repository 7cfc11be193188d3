"""Wiretaps: proxies that record the bytes and the caller's address of every connection."""

import asyncio
import contextlib
import re
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

import httpx2

from coatcheck.services.web.client import HttpClient


def free_port() -> int:
    """Find a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Wiretap:
    """A recording proxy in front of a service.

    Attributes:
        port: where it listens.
        behind: where the service listens.
        callers: who connected, one per connection.
        heard: all bytes of each connection, in both directions.
    """

    port: int = field(default_factory=free_port)
    behind: int = field(default_factory=free_port)
    callers: list[str] = field(default_factory=list)
    heard: list[bytearray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._tap, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(30)
        return self

    def __exit__(self, *details: object) -> None:
        async def end() -> None:
            self._server.close()
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    @property
    def url(self) -> str:
        """The address that others use."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a service behind the wiretap."""
        return {"url": self.url, "listen": f"127.0.0.1:{self.behind}"}

    @property
    def everything(self) -> bytes:
        """Return all recorded bytes."""
        return b"\n".join(bytes(one) for one in self.heard)

    def sizes(self, media: bytes) -> set[int]:
        """List the lengths of the bodies of a media type."""
        found = set()
        for head in re.findall(rb"(?:[a-z-]+: [^\r]*\r\n){1,20}\r\n", self.everything.lower()):
            if b"content-type: " + media + b"\r\n" in head:
                found |= {int(size) for size in re.findall(rb"content-length: ([0-9]+)", head)}
        return found

    async def _tap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(writer.get_extra_info("peername")[0])
        heard = bytearray()
        self.heard.append(heard)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.behind)
            await asyncio.gather(_pipe(reader, back, heard), _pipe(there, writer, heard))
        writer.close()


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray
) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            heard += piece
            writer.write(piece)
            await writer.drain()
    writer.close()


def from_address(address: str) -> HttpClient:
    """Return a client that connects from one of this machine's loopback addresses."""
    client = HttpClient()
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    client._http = httpx2.AsyncClient(transport=transport, timeout=30.0)
    return client
