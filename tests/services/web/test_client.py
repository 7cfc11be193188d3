"""A peer that answers with too much, too slowly or compressed is refused before it is held."""

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
    """Answers as its path says."""

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
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A hostile peer's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(url: str, *, most: int = 100_000) -> bytes:
    """Fetch once."""

    async def whole() -> bytes:
        async with HttpClient(timeout=5) as peers:
            return await peers.get(url, most=most)

    return asyncio.run(whole())


def test_a_compressed_answer_is_not_read(url: str) -> None:
    """Plain bytes are asked for; what comes compressed all the same is refused."""
    with pytest.raises(Refused, match="compressed"):
        fetch(f"{url}/bomb")
    assert Hostile.asked == "identity"
    with pytest.raises(Refused, match="compressed"):
        ask("GET", f"{url}/bomb")


@pytest.mark.parametrize("path", ["long-100001", "chunked-11"])
def test_an_answer_that_is_too_long_is_not_held(url: str, path: str) -> None:
    """Announced or in chunks, beyond the limit it is refused; at the limit it is taken."""
    with pytest.raises(Refused, match="more than 100000 bytes"):
        fetch(f"{url}/{path}")
    assert len(fetch(f"{url}/long-100000")) == 100_000
    assert len(fetch(f"{url}/chunked-10")) == 100_000


def test_answers_are_told_by_their_status(url: str) -> None:
    """What may be tried again, what was certainly not taken, and what is final."""
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
