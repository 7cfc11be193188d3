"""The page as one small ASGI application: static files, a stream of events, a few questions.

A border: web frameworks end here. It serves one run on loopback, with everybody's places in it,
so it answers to loopback names only, and a strict policy lets the browser load nothing from
elsewhere. People in browsers reach the services through the relay; the page gets a copy to show.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from coatcheck.demo.events import Pace
from coatcheck.demo.page import adversaries, explorer
from coatcheck.demo.page.history import History
from coatcheck.demo.run import Run
from coatcheck.errors import Error, Misuse
from coatcheck.protocol.notices import Posting
from coatcheck.services.cluster import Cluster
from coatcheck.services.http.connections import read_body
from coatcheck.services.http.problems import Problem
from coatcheck.services.run import bind

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario

Served = Callable[[Run], dict[str, Any]]
STATIC: Final = Path(__file__).parent / "static"
_BODY_LIMIT: Final = 1 << 16
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self' RELAY; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""Put on every answer; the page connects to itself and to the relay."""


class Question(msgspec.Struct):
    """What the page asks in the query of an address."""

    adversary: str = "server"
    group: int = 0
    people: int = 0
    crowd: int = 0
    epsilon: float = 0.0
    share: float = 0.0


class Order(msgspec.Struct):
    """What the page orders: to play at a speed, to pause, or to take a step."""

    do: Literal["play", "pause", "step"]
    speed: Annotated[float, msgspec.Meta(ge=0.1, le=1000)] | None = None


class _OwnOrders:
    """Let no other site give orders."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, site = self._app, Headers(scope=scope).get("sec-fetch-site", "same-origin")
        if scope.get("method") == "POST" and site not in {"same-origin", "none"}:
            app = Response("only this page gives orders", 403)
        await app(scope, receive, send)


class Page:
    """What the page can be asked; one instance per run."""

    def __init__(self, run: Run, history: History, pace: Pace) -> None:
        self.run, self.history, self.pace = run, history, pace
        self._exact = asyncio.Lock()

    async def events(self, request: Request) -> Response:
        """Stream everything that has been told and will be, as server-sent events."""
        return StreamingResponse(self._stream(request), media_type="text/event-stream")

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        last = request.headers.get("last-event-id", "")
        place = int(last) + 1 if last.isdecimal() else 0
        while not await request.is_disconnected():
            told = await self.history.wait(place, seconds=0.5)
            for event in told:
                data = json.dumps(event, separators=(",", ":"))
                yield f"id: {place}\ndata: {data}\n\n".encode()
                place += 1
            if not told:
                yield b": still here\n\n"

    async def control(self, request: Request) -> Response:
        """Play, pause, or take a step of the run."""
        order, pace = msgspec.json.decode(await _body(request), type=Order), self.pace
        if order.do == "play":
            pace.play(speed=order.speed or pace.speed)
        elif order.do == "pause":
            pace.pause()
        else:
            pace.step()
        return JSONResponse({"playing": pace.playing, "speed": pace.speed})

    async def adversary(self, request: Request) -> Response:
        """Say what an adversary sees and which guarantee holds against it."""
        run, asked = self.run, _question(request)
        found = await run_in_threadpool(
            adversaries.against,
            asked.adversary,
            run.scenario.drafts,
            task=run.scenario.task,
            group=asked.group,
            people=asked.people,
            partners={who: run.known_partners(who) for who in list(run.answers)},
        )
        return JSONResponse(found)

    async def explore(self, request: Request) -> Response:
        """Plan exactly what the sliders ask for."""
        asked = _question(request)
        knobs = {"crowd": asked.crowd, "epsilon": asked.epsilon, "share": asked.share}
        async with self._exact:
            return JSONResponse(await run_in_threadpool(explorer.answer, **knobs))

    async def terms(self, _: Request) -> Response:
        """Hand out the terms, a relay, and the keys that people would know from elsewhere."""
        run = self.run
        signed, trusted = msgspec.to_builtins(run.signed), run.cluster.trusted.plain()
        relay = run.cluster.url("relay")
        return JSONResponse({"signed": signed, "trusted": trusted, "relay": relay})

    async def upload(self, request: Request) -> Response:
        """Take a copy of what a browser sent through the relay, to count and show it."""
        self.run.note(await _body(request))
        return JSONResponse({})

    async def letters(self, request: Request) -> Response:
        """Hear that a browser posted a letter, and have its reader look."""
        run = self.run
        reader = run.person_at(Posting.decode(await _body(request), run.round).recipient)
        if reader is not None:
            await run.read_letters(reader)
        return JSONResponse({})


def create_app(run: Run, history: History, pace: Pace) -> ASGIApp:
    """Make the application for one run."""
    page = Page(run, history, pace)
    routes = [
        Route("/", _file("index.html")),
        Route("/join", _file("join.html")),
        Route("/events", page.events),
        Route("/control", page.control, methods=["POST"]),
        Route("/adversary", page.adversary),
        Route("/explore", page.explore),
        Route("/round", page.terms),
        Route("/upload", page.upload, methods=["POST"]),
        Route("/letters", page.letters, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    loopback = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
    return Starlette(
        routes=routes,
        middleware=[Middleware(_OwnOrders), loopback],
        exception_handlers={Error: _refusal, Problem: _refusal, msgspec.DecodeError: _refusal},
    )


async def serve_page(
    scenario: "Scenario",
    cluster: Cluster,
    *,
    announce: Callable[[str, Run], object],
    served: Served,
    port: int = 0,
    speed: float = 1.0,
) -> None:
    """Run a scenario and serve its page until it is ended.

    `announce` is told the address, and `served` says at the end how well people were served.
    """
    history, pace = History(), Pace(speed=speed)
    with bind(f"127.0.0.1:{port}") as door:
        async with Run(scenario, cluster, observer=history, pace=pace) as run:
            app = create_app(run, history, pace)
            config = uvicorn.Config(
                app,
                log_level="warning",
                timeout_graceful_shutdown=1,
                lifespan="off",
                ws="none",
                headers=_headers(cluster.url("relay")),
            )
            server = uvicorn.Server(config)
            live = [
                asyncio.create_task(_completed(run, history, served)),
                asyncio.create_task(asyncio.to_thread(explorer.warm)),
            ]
            serving = asyncio.create_task(server.serve(sockets=[door]))
            announce(f"http://127.0.0.1:{door.getsockname()[1]}", run)
            try:
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
                for task in live:
                    task.cancel()
                await asyncio.gather(serving, *live, return_exceptions=True)


def _headers(relay: str) -> list[tuple[str, str]]:
    return [(name, value.replace("RELAY", relay)) for name, value in _HEADERS.items()]


async def _completed(run: Run, history: History, served: Served) -> None:
    """Let the round go to its end; whatever is refused becomes a sentence on the page."""
    try:
        await run.complete()
        service = await asyncio.to_thread(served, run)
        # By way of msgspec: what was not measured is null, for JSON has no NaN.
        history.add("served", service=msgspec.json.decode(msgspec.json.encode(service)))
    except Error as error:
        history.add("failed", sentence=str(error))


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return FileResponse(STATIC / name)

    return answer


async def _refusal(_: Request, error: Exception) -> Response:
    status = 409 if isinstance(error, Error) and not isinstance(error, Misuse) else 400
    return JSONResponse({"sentence": str(error)}, status)


def _body(request: Request) -> Awaitable[bytes]:
    return read_body(request.scope, request.receive, limit=_BODY_LIMIT)


def _question(request: Request) -> Question:
    return msgspec.convert(dict(request.query_params), Question, strict=False)
