"""A board as gateway and a relay in front of it, in one process, for the relay's tests."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from coatcheck.errors import Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    OVERHEAD,
    REQUEST_MEDIA,
    RESPONSE_MEDIA,
    SIZES,
    Request,
    Response,
    SealedRequest,
    SignedKeys,
    message_size,
    read_keys,
    seal_request,
)
from coatcheck.services.board.routes import BoardService
from coatcheck.services.clock import Clock
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.relay import RelayService
from coatcheck.services.settings import BoardSettings, RelaySettings, read_settings
from coatcheck.services.web.client import HttpAnswer, Origin
from support.asking import ask

BOARD = "http://127.0.0.1:7"
SEALED = {"content-type": REQUEST_MEDIA}


class Scene:
    """A board, and a relay whose connections lead to it."""

    def __init__(self, folder: Path) -> None:
        self.local = Cluster(folder, relay=True, stores={"board": "memory:"})
        self.now = 1_000_000.0
        clock = Clock(wall=lambda: self.now, steady=lambda: self.now)
        settings = read_settings(folder / "board.toml", role="board", kind=BoardSettings)
        self.board = BoardService(settings)
        self.board.clock = self.board.gateway._clock = clock
        self.lists = str(folder / "relay.lists")
        self.relay = RelayService(self.relay_settings())
        self.relay.clock = clock
        self.relay._pool = self  # type: ignore[assignment] # all that the relay asks of it
        self.fetched: list[str] = []
        self.away = False
        self.answer: HttpAnswer | None = None

    def relay_settings(self, **more: Any) -> RelaySettings:
        """Return the settings of the relay."""
        return RelaySettings(name="relay", gateways=(BOARD,), key_lists=self.lists, **more)

    async def exchange(
        self, method: str, origin: Origin, path: str, body: bytes, *, headers: dict[str, str]
    ) -> HttpAnswer:
        """Pass the relay's request to the board."""
        self.fetched.append(method)
        if self.away:
            raise Unavailable("away")
        assert origin.url == BOARD
        assert set(headers) <= {"content-type", "accept"}
        return self.answer or await ask(self.board, method, path, body, headers)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def keys(self) -> SignedKeys:
        """Fetch the board's gateway keys directly."""
        found = await ask(self.board, "GET", GATEWAY_PATH)
        return SignedKeys.read(found.body, found.headers)

    async def sealed(self, request: Request) -> SealedRequest:
        """Seal a request to the board."""
        text = request.encode(message_size(len(request.encode()), overhead=OVERHEAD))
        return seal_request(text, read_keys((await self.keys()).keys))

    async def inside(self, request: Request) -> Response:
        """Send a request to the board through its gateway."""
        sealed = await self.sealed(request)
        found = await ask(self.board, "POST", GATEWAY_PATH, sealed.raw, SEALED)
        assert (found.status, found.headers["content-type"]) == (200, RESPONSE_MEDIA)
        assert len(found.body) in SIZES
        return Response.decode(sealed.open(found.body))


def get(path: bytes, *headers: tuple[bytes, bytes]) -> Request:
    """Return the bytes of a GET request."""
    return Request(b"GET", b"https", b"board.example", path, headers)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine to its end."""

    async def whole() -> None:
        await work()

    asyncio.run(whole())


class Relayed:
    """A person's client that uses the scene's relay."""

    def __init__(self, scene: Scene, trusted: Trust, *, seen: Path | None = None) -> None:
        self.scene = scene
        self.asked: list[str] = []
        self.client = RelayedClient(
            "http://127.0.0.1:9",
            first="http://127.0.0.1:6/rounds/0",
            trusted=trusted,
            http=self,  # type: ignore[arg-type] # all that the client asks of it
            seen=seen,
        )

    async def exchange(self, method: str, url: str, body: bytes = b"", **more: Any) -> HttpAnswer:
        """Pass a request to the relay."""
        self.asked.append(url)
        path = url.removeprefix("http://127.0.0.1:9")
        return await ask(self.scene.relay, method, path, body, more["headers"])
