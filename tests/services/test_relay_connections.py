"""The relay's connections to gateways: each request gets exactly one answer or an error."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from coatcheck.errors import Unavailable
from coatcheck.services.relay import ConnectionPool
from coatcheck.services.web.client import HttpAnswer, origin_of

pytestmark = pytest.mark.service

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 400 No\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"
Work = Callable[[ConnectionPool, str], Awaitable[None]]


def gateway(*said: bytes, work: Work, hang_up: bool = False) -> list[bytes]:
    """Serve these answers, one per request, over any number of connections; yield the requests."""
    asked: list[bytes] = []
    answers = list(said)
    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        while answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = head.partition(b"content-length: ")[2].partition(b"\r")[0]
            asked.append(head + await reader.readexactly(int(length)))
            writer.write(answers.pop(0))
            await writer.drain()
            if hang_up:
                break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def whole() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pipes = ConnectionPool(timeout=5.0)
        try:
            await work(pipes, f"http://127.0.0.1:{port}")
        finally:
            await pipes.close()
            server.close()
            await asyncio.gather(*(task for task in serving if task is not None))

    asyncio.run(whole())
    return asked


async def ask(pipes: ConnectionPool, url: str, body: bytes = b"body") -> HttpAnswer:
    """Send one request."""
    return await pipes.exchange("POST", origin_of(url), "/x", body, headers={"content-type": "a/b"})


def test_answers_come_back_whole_over_kept_connections() -> None:
    """Answers in one piece, in chunks, and the last one before the gateway closes."""

    async def work(pipes: ConnectionPool, url: str) -> None:
        found = [await ask(pipes, url) for _ in range(3)]
        assert [(one.status, one.body) for one in found] == [
            (200, b"hi"),
            (200, b"hi"),
            (400, b"no"),
        ]
        assert found[0].headers["content-type"] == "a/b"

    asked = gateway(PLAIN, CHUNKED, LAST, work=work)
    names = {line.partition(b":")[0] for line in asked[0].split(b"\r\n\r\n")[0].split(b"\r\n")[1:]}
    assert names == {b"host", b"content-type", b"accept-encoding", b"content-length"}


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    """The gateway closed after its answer: the next request opens a new connection."""

    async def work(pipes: ConnectionPool, url: str) -> None:
        for _ in range(3):
            assert (await ask(pipes, url)).body == b"hi"

    assert len(gateway(PLAIN, PLAIN, PLAIN, work=work, hang_up=True)) == 3


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n" + bytes(1_500_000),
        b"HTTP/1.1 200 OK\r\n"
        + b"".join(b"x%d: %d\r\n" % (n, n) for n in range(100_000))
        + PLAIN[17:],
    ],
    ids=["nothing", "no HTTP", "cut off", "too long", "endless headers"],
)
def test_a_faulty_gateway_counts_as_away(said: bytes) -> None:
    """No answer, no HTTP, half an answer, and an answer without end."""

    async def work(pipes: ConnectionPool, url: str) -> None:
        with pytest.raises(Unavailable, match="hangs up"):
            await ask(pipes, url)

    gateway(said, work=work, hang_up=True)


def test_a_gateway_that_is_not_there_counts_as_away() -> None:
    """A refused connection and a timeout."""

    async def whole() -> None:
        pipes = ConnectionPool(timeout=0.2)
        with pytest.raises(Unavailable, match="does not answer"):
            await ask(pipes, "http://127.0.0.1:9")
        await pipes.close()

    asyncio.run(whole())

    async def silent(pipes: ConnectionPool, url: str) -> None:
        pipes._timeout = 0.2
        with pytest.raises(Unavailable, match="TimeoutError"):
            await ask(pipes, url)

    gateway(b"HTTP/1.1 200 OK\r\n", PLAIN, work=silent)
