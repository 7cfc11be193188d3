"""Servers and the load for `bench services`, each in a process of its own.

`python -m bench._ingest KIND SETTINGS PORT` serves; the load is called from the bench.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from coatcheck.protocol.ticket import RECEIPT_SIZE
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.process import collect_seldom
from coatcheck.services.settings import ShufflerSettings, read_settings
from coatcheck.services.shuffler.rounds import ShufflerLiveRound
from coatcheck.services.shuffler.routes import ShufflerService
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.services.web.connections import protocol

_TICK = os.sysconf("SC_CLK_TCK")


class Nowhere(ShufflerStore):
    """A store that keeps rounds and drops uploads: the same server without a store."""

    def __init__(self) -> None:
        super().__init__("memory:")

    def put(
        self, uploads: Sequence[Upload], *, capacities: Mapping[bytes, int] | None = None
    ) -> list[Verdict]:
        """Store nothing."""
        del capacities
        return [Verdict.NEW] * len(uploads)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Read a body and answer with as many bytes as a receipt has."""
    if scope["type"] != "http":
        return
    await receive()
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % RECEIPT_SIZE),
    ]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * RECEIPT_SIZE})


def serve(kind: str, config: Path, port: int) -> None:
    """Serve one of the variants until it is stopped."""
    app: Any = bare
    careful: Any = "httptools"
    if kind != "bare":
        settings = read_settings(config, role="shuffler", kind=ShufflerSettings)
        store = Nowhere() if kind in {"none", "unsigned", "route"} else None
        service = ShufflerService(settings, store)
        service.url = f"http://127.0.0.1:{port}"
        app, careful = service, protocol(deadline=15, limits=service.source_limits)
        if kind in {"unsigned", "route"}:
            _without_signatures(service)
        if kind == "route":
            service.commits.add = _at_once  # type: ignore[method-assign]
    server_config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http=careful,
        loop="uvloop",
        ws="none",
        access_log=False,
        log_level="error",
        server_header=False,
        date_header=False,
        lifespan="off" if kind == "bare" else "on",
    )
    collect_seldom()
    uvicorn.Server(server_config).run()


def _at_once(item: object) -> "asyncio.Future[tuple[Verdict, bytes]]":
    """Accept an upload without group commit: what remains is the route."""
    del item
    done: asyncio.Future[tuple[Verdict, bytes]] = asyncio.get_running_loop().create_future()
    done.set_result((Verdict.NEW, bytes(RECEIPT_SIZE)))
    return done


def _without_signatures(service: ShufflerService) -> None:
    """Leave out the receipt's signature, which is a curve operation and no part of the route."""
    held = service.hold

    def blank(stored: ShufflerRound) -> ShufflerLiveRound:
        live = held(stored)
        if live.role is not None:
            live.role.receipts = lambda bodies: [bytes(RECEIPT_SIZE)] * len(bodies)  # type: ignore[method-assign]
        return live

    service.hold = blank  # type: ignore[method-assign]


@dataclass(frozen=True)
class Burst:
    """The result of one burst of uploads."""

    rate: float
    cpu: float
    p50: float
    p99: float
    done: int


class _Line(asyncio.Protocol):
    """A connection that sends an upload as soon as the previous one is answered."""

    def __init__(self, head: bytes, tail: int, end: float, times: list[float]) -> None:
        self._head, self._tail, self._end, self._times = head, tail, end, times
        self._buffer = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._next()

    def _next(self) -> None:
        self._begun = time.perf_counter()
        if self._begun > self._end:
            self._transport.close()
            if not self.over.done():
                self.over.set_result(None)
            return
        # Nobody opens anything here, so random bytes of the right size do.
        self._transport.write(self._head + os.urandom(self._tail))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0 or len(self._buffer) < at + 4 + RECEIPT_SIZE:
            return
        if not self._buffer.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(self._buffer[:400].decode(errors="replace"))
        self._buffer = b""
        self._times.append(time.perf_counter() - self._begun)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc or ConnectionError("the server hung up"))


async def burst(
    port: int, path: str, upload: bytes, *, pid: int, seconds: float, connections: int = 64
) -> Burst:
    """Send uploads over a number of connections for some seconds."""
    fixed = upload[:36]  # everything before the upload's own id
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(upload)}\r\n\r\n"
    ).encode() + fixed
    times: list[float] = []
    loop = asyncio.get_running_loop()
    before, begun = cpu_of(pid), time.perf_counter()
    end = begun + seconds
    lines = [
        (
            await loop.create_connection(
                lambda: _Line(head, len(upload) - 36, end, times), "127.0.0.1", port
            )
        )[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(line.over for line in lines))
    wall, spent = time.perf_counter() - begun, cpu_of(pid) - before
    times.sort()
    return Burst(
        len(times) / wall,
        spent / len(times),
        times[len(times) // 2],
        times[int(len(times) * 0.99)],
        len(times),
    )


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / _TICK


def cpu_below(pid: int) -> float:
    """Return the CPU seconds of the running processes that a process has started."""
    spent = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = _stat(path)
            if int(fields[1]) == pid:
                spent += (int(fields[11]) + int(fields[12])) / _TICK
    return spent


def _stat(path: Path) -> list[str]:
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
