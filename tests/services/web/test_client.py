"""Answers that are too long, too slow or compressed: the client refuses them early."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coatcheck.errors import Refused, Unavailable
from coatcheck.services.web.client import Absent, HttpClient, NotTaken, ask

pytestmark = pytest.mark.service


class Hostile(BaseHTTPRequestHandler):
    """A server that answers as the path says."""

    protocol_version = "HTTP/1.1"
    asked: str | None = ""

    def do_GET(self) -> None:
        """Answer."""
        type(self).asked = self.headers["accept-encoding"]
        name, _, number = self.path[1:].partition("-")
        if name == "bomb":
            self._say(200, gzip.compress(bytes(10_000_000)), encoding="gzip")
        elif name == "long":
            self._say(200, bytes(int(number)))
        elif name == "chunked":
            self._say(200, b"", chunks=int(number))
        else:
            self._say(int(number), b'{"detail": "why"}')

    def _say(self, status: int, body: bytes, *, encoding: str = "", chunks: int = 0) -> None:
        self.send_response(status)
        if encoding:
            self.send_header("content-encoding", encoding)
        if chunks:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        try:
            for _ in range(chunks):
                self.wfile.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
            if chunks:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def log_message(self, *words: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Provide the address of a hostile server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(url: str, *, most: int = 100_000) -> bytes:
    """Fetch a document once."""

    async def whole() -> bytes:
        async with HttpClient(timeout=5) as peers:
            return await peers.get(url, most=most)

    return asyncio.run(whole())


def test_a_compressed_answer_is_not_read(url: str) -> None:
    """The client asks for plain bytes and refuses a compressed answer."""
    with pytest.raises(Refused, match="compressed"):
        fetch(f"{url}/bomb")
    assert Hostile.asked == "identity"
    with pytest.raises(Refused, match="compressed"):
        ask("GET", f"{url}/bomb")


@pytest.mark.parametrize("path", ["long-100001", "chunked-11"])
def test_an_answer_that_is_too_long_is_not_held(url: str, path: str) -> None:
    """An answer over the limit is refused, announced or chunked; one at the limit is accepted."""
    with pytest.raises(Refused, match="more than 100000 bytes"):
        fetch(f"{url}/{path}")
    assert len(fetch(f"{url}/long-100000")) == 100_000
    assert len(fetch(f"{url}/chunked-10")) == 100_000


def test_statuses_map_to_errors(url: str) -> None:
    """Which answers allow a retry, which mean that nothing was accepted, and which are final."""
    with pytest.raises(Absent, match="why"):
        fetch(f"{url}/status-404")
    for status in (425, 429):
        with pytest.raises(NotTaken, match="why"):
            fetch(f"{url}/status-{status}")
    with pytest.raises(Unavailable) as told:
        fetch(f"{url}/status-503")
    assert not isinstance(told.value, NotTaken)
    with pytest.raises(Refused, match="why"):
        fetch(f"{url}/status-409")
