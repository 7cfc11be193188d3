"""The page as one small ASGI application: static files, a stream of events, a few questions.

A border: web frameworks end here. It serves one demo on loopback, with everybody's places in it,
so it answers to loopback names only, and a strict policy lets the browser load nothing from
elsewhere. Persons in browsers reach the roles through it with sealed bytes, as through any relay.
"""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coatcheck.demo.page import explorer, seats
from coatcheck.demo.page.live import Live
from coatcheck.errors import Error, Misuse

STATIC: Final = Path(__file__).parent / "static"
_BODY_LIMIT: Final = 1 << 16
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class _Strict:
    """Put the policy on every answer, and let no other site give orders."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        origin = dict(scope["headers"]).get(b"sec-fetch-site", b"same-origin")
        if scope["method"] == "POST" and origin not in {b"same-origin", b"none"}:
            await Response("only this page gives orders", 403)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


class Page:
    """What the page can be asked; one instance a live round."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self._exact = asyncio.Lock()
        threading.Thread(target=explorer.warm, name="explorer", daemon=True).start()

    async def events(self, request: Request) -> Response:
        """Stream everything that has been told and will be, as server-sent events."""
        return StreamingResponse(self._stream(request), media_type="text/event-stream")

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        last = request.headers.get("last-event-id", "")
        place = int(last) + 1 if last.isdecimal() else 0
        while not await request.is_disconnected():
            told = await run_in_threadpool(self.live.history.wait, place, seconds=0.5)
            for event in told:
                data = json.dumps(event, separators=(",", ":"))
                yield f"id: {place}\ndata: {data}\n\n".encode()
                place += 1
            if not told:
                yield b": still here\n\n"

    async def control(self, request: Request) -> Response:
        """Play, pause, or take a step of the live round."""
        asked = await request.json()
        pace = self.live.pace
        if asked.get("do") == "play":
            speed = float(asked.get("speed", pace.speed))
            if not 0.1 <= speed <= 1000:
                raise Misuse("a speed lies from 0.1 to 1000")
            pace.play(speed=speed)
        elif asked.get("do") == "pause":
            pace.pause()
        elif asked.get("do") == "step":
            pace.step()
        else:
            raise Misuse("the page can play, pause and step")
        return JSONResponse({"playing": pace.playing, "speed": pace.speed})

    async def seat(self, request: Request) -> Response:
        """Say what an adversary in a seat sees and which guarantee holds against it."""
        live, asked = self.live, request.query_params
        crowd = seats.Crowd(
            randomizers=tuple(draft.randomizer for draft in live.play.drafts),
            sizes=tuple(len(values) for values in live.play.values),
            deltas=tuple(group.promise.delta for group in live.round.terms.groups),
            task=live.play.task,
        )
        found = await run_in_threadpool(
            seats.seat,
            asked.get("seat", "server"),
            crowd,
            group=_whole(asked.get("group", "0")),
            people=_whole(asked.get("people", "0")),
            partners=live.partners(),
        )
        return JSONResponse(found)

    async def explore(self, request: Request) -> Response:
        """Plan exactly what the sliders ask for."""
        asked = request.query_params
        try:
            crowd, epsilon = int(asked["crowd"]), float(asked["epsilon"])
            share = float(asked.get("share", "0"))
        except (KeyError, ValueError):
            raise Misuse("the explorer asks with crowd, epsilon and share, as numbers") from None
        async with self._exact:
            found = await run_in_threadpool(
                explorer.answer, crowd=crowd, epsilon=epsilon, share=share
            )
        return JSONResponse(found)

    async def terms(self, _: Request) -> Response:
        """Hand out the signed terms, and the keys that a person would know from elsewhere."""
        signed = msgspec.to_builtins(self.live.signed)
        return JSONResponse({"signed": signed, "trusted": self.live.stage.trusted.plain()})

    async def upload(self, request: Request) -> Response:
        """Relay sealed bytes to the first shuffler and return its receipt."""
        raw = await _body(request)
        return _bytes(await run_in_threadpool(self.live.relay, raw))

    async def bulletin(self, _: Request) -> Response:
        """Hand out the whole bulletin, as the board does."""
        if not self.live.published.is_set():
            return JSONResponse({"sentence": "the round is not on the board yet"}, 404)
        return _bytes(await run_in_threadpool(self.live.stage.bulletin))

    async def proof(self, request: Request) -> Response:
        """Hand out the board's word on the bulletin, and how its log grew since a size."""
        since = _whole(request.query_params.get("since", "0"))
        found = await run_in_threadpool(self.live.stage.proof, since=since)
        return JSONResponse(asdict(found))

    async def letters(self, request: Request) -> Response:
        """Post a sealed letter, or hand out all of them."""
        if request.method == "POST":
            await run_in_threadpool(self.live.stage.post, await _body(request))
            await run_in_threadpool(self.live.deliver)
            return JSONResponse({})
        posted = await run_in_threadpool(self.live.stage.letters)
        return JSONResponse([base64.b64encode(raw).decode() for raw in posted])


def create_app(live: Live) -> ASGIApp:
    """Make the application for one live round."""
    page = Page(live)
    routes = [
        Route("/", _file("index.html")),
        Route("/join", _file("join.html")),
        Route("/events", page.events),
        Route("/control", page.control, methods=["POST"]),
        Route("/seat", page.seat),
        Route("/explore", page.explore),
        Route("/round", page.terms),
        Route("/upload", page.upload, methods=["POST"]),
        Route("/bulletin", page.bulletin),
        Route("/proof", page.proof),
        Route("/letters", page.letters, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    loopback = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Strict), loopback],
        exception_handlers={Error: _refusal},
    )


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return FileResponse(STATIC / name)

    return answer


async def _refusal(_: Request, error: Exception) -> Response:
    status = 400 if isinstance(error, Misuse) else 409
    return JSONResponse({"sentence": str(error)}, status)


async def _body(request: Request) -> bytes:
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > _BODY_LIMIT:
            raise Misuse(f"nothing that is sent here has more than {_BODY_LIMIT} bytes")
    return raw


def _bytes(raw: bytes) -> Response:
    return Response(raw, media_type="application/octet-stream")


def _whole(text: str) -> Any:
    if not text.isdecimal():
        raise Misuse(f"{text!r} is no whole number")
    return int(text)
