"""Connections: deadlines, and caps on headers and bodies."""

import asyncio
import contextlib
import hashlib
import inspect
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.services.batch_transfer import delivery_headers, read_delivery
from coatcheck.services.settings import ProcessSettings
from coatcheck.services.web import connections as wire
from coatcheck.services.web.connections import (
    HEAD_LIMIT,
    FixedReply,
    Receive,
    Scope,
    Send,
    SourceLimits,
    protocol,
    read_body,
    respond,
    respond_problem,
)
from coatcheck.services.web.routing import Problem
from support.service_rounds import until

pytestmark = pytest.mark.service

DIGEST = hashlib.sha256(b"round").digest()
DEADLINE = 0.4
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ROOT = Path(__file__).parents[3]


@contextlib.asynccontextmanager
async def served(
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    *,
    deadline: float = DEADLINE,
    named: bool = True,
    keep_alive: int = 5,
    each: int = 200,
) -> AsyncIterator[tuple[str, int, uvicorn.Server]]:
    """Serve an application on a free port with a short deadline; `named` sends its `server`."""
    limits = SourceLimits(ProcessSettings(name="wire", connections_each=each))
    config = uvicorn.Config(
        app,
        http=protocol(deadline=deadline, limits=limits),
        lifespan="off",
        ws="none",
        access_log=False,
        log_level="error",
        server_header=named,
        timeout_keep_alive=keep_alive,
        date_header=False,
    )
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        task = asyncio.create_task(server.serve(sockets=[bound]))
        await asyncio.to_thread(until, lambda: server.started)
        try:
            yield *bound.getsockname(), server
        finally:
            server.should_exit = True
            await task


@pytest.mark.parametrize("named", [False, True])
def test_answers_with_one_head_come_whole_and_in_order(*, named: bool) -> None:
    """Three requests sent at once are answered in order, whether an answer has one piece or two."""
    fixed = FixedReply(201, 3)

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        await fixed.respond(send, await read_body(scope, receive, limit=3))

    async def whole() -> None:
        async with served(echo, named=named, deadline=60) as (host, port, _):
            reader, writer = await asyncio.open_connection(host, port)
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n"
            last = head + b"connection: close\r\n"
            writer.write(head + b"\r\none" + head + b"\r\ntwo" + last + b"\r\nend")
            found = await reader.read()
            writer.close()
        own = b"server: uvicorn\r\n" if named else b""
        start = b"HTTP/1.1 201 Created\r\n" + own
        lines = b"content-type: application/octet-stream\r\ncontent-length: 3\r\n"
        assert found == b"".join(
            start + lines + more + b"\r\n" + body
            for body, more in ((b"one", b""), (b"two", b""), (b"end", b"connection: close\r\n"))
        )

    asyncio.run(whole())


@pytest.mark.parametrize("renewals", [0, 20])
def test_half_sent_requests_take_nothing_from_others_behind_the_same_address(renewals: int) -> None:
    """25 people go on with their connections and open new ones; one of them holds 100 others."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(scope, receive, limit=3)
        await respond(send, 200, b"yes")

    async def ask(streams: Streams) -> bytes:
        streams[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await streams[0].readuntil(b"\r\n\r\n")
            return head[:12] + await streams[0].readexactly(3)
        return b"closed"

    async def whole() -> None:
        async with served(app, deadline=600, keep_alive=600, each=25) as (
            host,
            port,
            _,
        ):
            opened: list[Streams] = []

            async def connected(count: int) -> list[Streams]:
                new = [await asyncio.open_connection(host, port) for _ in range(count)]
                opened.extend(new)
                return new

            async def half_sent(count: int) -> None:
                for _, writer in await connected(count):
                    writer.write(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n")

            try:
                people = await connected(25)
                assert {await ask(person) for person in people} == {b"HTTP/1.1 200yes"}
                await half_sent(100)
                for turn in range(renewals):
                    await half_sent(20)
                    assert await ask(people[turn]) == b"HTTP/1.1 200yes"
                assert {await ask(person) for person in people} == {b"HTTP/1.1 200yes"}
                late = await connected(25)
                assert {await ask(person) for person in late} == {b"HTTP/1.1 200yes"}
            finally:
                for _, writer in opened:
                    writer.close()

    asyncio.run(whole())


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_body_is_read_once_and_expect_continue_is_answered(*, asks_first: bool) -> None:
    """A body may come with its headers or after them; nothing follows it."""
    after = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(scope, receive, limit=3)
        with contextlib.suppress(TimeoutError):
            after.append(await asyncio.wait_for(receive(), 0.2))
        await respond(send, 200, body)

    async def whole() -> None:
        async with served(app, deadline=60) as (host, port, _):
            reader, writer = await asyncio.open_connection(host, port)
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n"
            if asks_first:
                writer.write(head + b"expect: 100-continue\r\n\r\n")
                assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
                writer.write(b"one")
            else:
                writer.write(head + b"\r\none")
            assert await answer(reader) == (200, b"one")
            writer.close()

    asyncio.run(whole())
    assert not after


def test_an_idle_connection_is_closed() -> None:
    """After the last answer a connection stays open for as long as the settings say."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, await read_body(scope, receive, limit=3))

    async def whole() -> None:
        async with served(app, deadline=60, keep_alive=1) as (host, port, server):
            reader, writer = await asyncio.open_connection(host, port)
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert await answer(reader) == (200, b"")
                await asyncio.sleep(0.6)
            begun = time.monotonic()
            assert await reader.read() == b""
            assert time.monotonic() - begun < 5
            assert not server.server_state.connections
            writer.close()

    asyncio.run(whole())


async def slowly(host: str, port: int, head: dict[str, str], body: bytes) -> bytes:
    """Send a body in pieces over three deadlines; return the first line of the answer."""
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


def test_a_signed_body_has_time_for_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender with a signature may take longer for it; others have the usual deadline."""
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
def test_an_unread_answer_is_dropped(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled reader loses its connection, and the memory for its answer is freed."""
    monkeypatch.setattr(wire, "_SLOWEST", 1 << 30)
    body, answered = bytes(20_000_000), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        answered.append(how)
        await respond(send, 200, body)

    async def whole() -> None:
        async with served(app) as (host, port, server):
            with socket.socket() as stalled:
                stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stalled.connect((host, port))
                stalled.sendall(f"GET / HTTP/1.1\r\nhost: x\r\nconnection: {how}\r\n\r\n".encode())
                await asyncio.to_thread(until, lambda: bool(answered))
                await asyncio.to_thread(until, lambda: not server.server_state.connections)

    asyncio.run(whole())


async def takes_little(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of a body, or refuse it."""
    try:
        body = await read_body(scope, receive, limit=1000)
    except Problem as problem:
        await respond_problem(send, problem)
    else:
        await respond(send, 200, str(len(body)).encode())


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer; return its status and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


def test_a_sender_of_too_much_can_read_the_refusal() -> None:
    """The rest of a body is discarded, so the answer arrives and the connection goes on."""
    post = "POST / HTTP/1.1\r\nhost: x\r\n"

    async def whole() -> None:
        async with served(takes_little, deadline=600) as (host, port, _):
            reader, writer = await asyncio.open_connection(host, port)
            for body in (bytes(20_000_000), bytes(1000), bytes(1001)):
                writer.write(f"{post}content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
                status, said = await answer(reader)
                assert (status, said) == (200, b"1000") if len(body) == 1000 else status == 413
            writer.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: ", 431),
        (b"GET /", 431),
        (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nx: ", 431),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", 0),
    ],
    ids=["header", "line", "second", "trailer"],
)
def test_headers_have_a_cap(begin: bytes, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of any size, the parser gets at most twice the cap."""
    parsed = 0
    feed = HttpToolsProtocol.data_received

    def counted(self: HttpToolsProtocol, data: bytes) -> None:
        nonlocal parsed
        parsed += len(data)
        feed(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", counted)

    async def whole(size: int) -> None:
        async with served(takes_little, deadline=600) as (host, port, _):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(begin)
            if begin.count(b"GET") == 2:
                assert await answer(reader) == (200, b"0")
            with contextlib.suppress(ConnectionError):
                for _ in range(4 * HEAD_LIMIT // size):
                    writer.write(b"a" * size)
                    await writer.drain()
                said = await reader.read()
                assert said.startswith(b"HTTP/1.1 431 ") if status else said == b""
            writer.close()

    for size in (100, 4 * HEAD_LIMIT):
        parsed = 0
        asyncio.run(whole(size))
        assert HEAD_LIMIT <= parsed <= 2 * HEAD_LIMIT


def test_headers_within_the_cap_are_read() -> None:
    """Headers one byte below the cap are accepted, even with a body in the same piece."""

    async def whole() -> None:
        async with served(takes_little, deadline=600) as (host, port, _):
            reader, writer = await asyncio.open_connection(host, port)
            for _ in range(3):
                head = b"POST / HTTP/1.1\r\ncontent-length: 1000\r\nx: "
                fill = b"a" * (HEAD_LIMIT - 1 - len(head) - 4)
                writer.write(head + fill + b"\r\n\r\n" + bytes(1000))
                assert await answer(reader) == (200, b"1000")
            writer.close()

    asyncio.run(whole())


# -- uvicorn's internals


def test_uvicorn_is_bounded_by_the_newest_tested_minor_version() -> None:
    """The installed and locked versions are below the bound, and the bound is the next one."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (bound,) = re.findall(r'"uvicorn>=[0-9.]+,<([0-9]+\.[0-9]+)"', text)
    locks = "".join(path.read_text("utf-8") for path in (ROOT / "requirements").glob("*.lock"))
    locked = re.findall(r"^uvicorn==(\S+)", locks, re.MULTILINE)
    major, minor = max(map(_minor, [uvicorn.__version__, *locked]))
    assert _minor(bound) == (major, minor + 1)


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def test_uvicorn_has_the_internals_that_the_connections_use() -> None:
    """Methods that we override or call, and attributes that we read or set, exist."""
    methods = (
        "connection_made connection_lost data_received on_message_begin on_headers_complete"
        " on_body on_message_complete on_response_complete send_400_response"
    )
    assert all(callable(getattr(HttpToolsProtocol, name)) for name in methods.split())

    async def made() -> HttpToolsProtocol:
        config = uvicorn.Config(respond_nothing, lifespan="off", ws="none", log_config=None)
        config.load()
        return HttpToolsProtocol(config, ServerState(), {})

    attributes = "client cycle flow loop pipeline scope server_state timeout_keep_alive transport"
    known = vars(asyncio.run(made()))
    assert set(attributes.split()) <= set(known)
    assert STATUS_LINE[201].startswith(b"HTTP/1.1 201")
    of_cycle = set(re.findall(r"self\.(\w+)", inspect.getsource(RequestResponseCycle)))
    used = (
        "body default_headers disconnected flow keep_alive message_event more_body on_response"
        " response_complete response_started scope transport waiting_for_100_continue"
    )
    assert set(used.split()) <= of_cycle


async def respond_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Stand in for an application."""
