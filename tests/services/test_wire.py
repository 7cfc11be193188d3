"""Deadlines of a connection: large deliveries have the time they need, nobody else has more."""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.suites import CLASSICAL
from coatcheck.services.http import connections as wire
from coatcheck.services.http.connections import (
    App,
    Receive,
    Scope,
    Send,
    protocol,
    read_body,
    respond,
)
from coatcheck.services.http.deliveries import delivery_headers, read_delivery

DIGEST = hashlib.sha256(b"round").digest()
DEADLINE = 0.4


@contextlib.asynccontextmanager
async def served(app: App) -> AsyncIterator[tuple[str, int, uvicorn.Server]]:
    """Serve an application on a free port, with a short deadline."""
    config = uvicorn.Config(
        app,
        http=protocol(deadline=DEADLINE, connections=100),
        lifespan="off",
        access_log=False,
        log_level="error",
    )
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        task = asyncio.create_task(server.serve(sockets=[bound]))
        for _ in range(500):
            if server.started:
                break
            await asyncio.sleep(0.01)
        try:
            yield *bound.getsockname(), server
        finally:
            server.should_exit = True
            await task


async def slowly(host: str, port: int, head: dict[str, str], body: bytes) -> bytes:
    """Send a body in pieces, for three deadlines; the answer's first line."""
    reader, writer = await asyncio.open_connection(host, port)
    lines = [f"{name}: {value}" for name, value in head.items()]
    text = "\r\n".join(["POST / HTTP/1.1", "host: x", f"content-length: {len(body)}", *lines])
    writer.write(text.encode() + b"\r\n\r\n")
    step = len(body) // 12
    with contextlib.suppress(ConnectionError):
        for at in range(0, len(body), step):
            writer.write(body[at : at + step])
            await writer.drain()
            await asyncio.sleep(DEADLINE / 4)
    said = b""
    with contextlib.suppress(ConnectionError):
        said = await reader.readline()
    writer.close()
    return said


def test_a_delivery_has_the_time_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who signed for a body may take longer for it; who did not has the usual deadline."""
    monkeypatch.setattr(wire, "_SLOWEST", 1 << 10)
    keys = KeyPairs(CLASSICAL, b"k" * 32)
    body = bytes(12_000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"coatcheck-content" for name, _ in scope["headers"]):
            sender = keys.signing.public_raw.hex()
            await read_delivery(scope, receive, digest=DIGEST, sender=sender, limit=1 << 20)
        else:
            await read_body(scope, receive, limit=1 << 20)
        await respond(send, 200, b"{}")

    async def whole() -> None:
        async with served(app) as (host, port, _):
            signed = delivery_headers(body, digest=DIGEST, signing=keys.signing)
            assert b" 200 " in await slowly(host, port, signed, body)
            assert b" 200 " not in await slowly(host, port, {}, body)

    asyncio.run(whole())


@pytest.mark.parametrize("how", ["keep-alive", "close"])
def test_an_answer_that_nobody_reads_is_dropped(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that stalls loses the connection, and what was held for it is free again."""
    monkeypatch.setattr(wire, "_SLOWEST", 1 << 30)
    body = bytes(20_000_000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await respond(send, 200, body)

    async def whole() -> None:
        async with served(app) as (host, port, server):
            with socket.socket() as stalled:
                stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stalled.connect((host, port))
                stalled.sendall(f"GET / HTTP/1.1\r\nhost: x\r\nconnection: {how}\r\n\r\n".encode())
                await asyncio.sleep(DEADLINE / 2)
                assert server.server_state.connections
                await asyncio.sleep(4 * DEADLINE)
                assert not server.server_state.connections

    asyncio.run(whole())
