"""The application of every service: start and end, who leads, health, counts, routes, problems.

A role's service adds its table of routes and its steps. There is no web framework: the table is
the router, msgspec reads and writes the documents (docs/decisions/0009-one-schema-system.md).
"""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from coatcheck.errors import Error
from coatcheck.protocol.keyfiles import PublicKeys
from coatcheck.services.http.connections import (
    Receive,
    Scope,
    Send,
    Wire,
    header,
    read_body,
    respond,
    respond_problem,
)
from coatcheck.services.http.openapi import describe
from coatcheck.services.http.problems import Problem, told
from coatcheck.services.http.routes import JSON, Reply, Route
from coatcheck.services.leadership import Leadership
from coatcheck.services.log import log, place_of
from coatcheck.services.metrics import MEDIA as METRICS
from coatcheck.services.metrics import Metrics
from coatcheck.services.settings import Settings
from coatcheck.stores.store import Store

_CONTROL_LIMIT: Final = 1 << 18

Step = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Application:
    """The application of a service: everything around its role.

    Attributes:
        step: one look at what is to be done for the rounds.
        loaded: reads the store when this process begins to lead.
        loops: what runs beside the requests, as long as the service does.
        endings: what is done when the service ends.
        routes: the table that the application serves.
        started: called once when the service begins to answer.
        document: the OpenAPI document of the table.
    """

    role: str
    settings: Settings
    store: Store
    step: Step
    loaded: Step
    loops: list[Step] = field(default_factory=list)
    endings: list[Step] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    started: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.role)
        self.leadership = Leadership(self.store, seconds=self.settings.lease, gained=self.loaded)
        self._token = self.settings.token()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._find = lru_cache(maxsize=256)(self._search)
        self._service: Any = None
        self.document: dict[str, Any] = {}

    def serve(self, routes: Sequence[Route], service: object) -> None:
        """Serve a role's routes, whose handlers are called with its service."""
        self._service = service
        self.routes = [*routes, *COMMON]
        self.document = describe(self.role, self.routes)

    # -- the service's life

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._running():
            self.started()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        await self.leadership.renew()
        running: list[asyncio.Task[Any]] = [
            asyncio.create_task(loop())
            for loop in (self.leadership.run, self._keep_stepping, *self.loops)
        ]
        try:
            yield
        finally:
            running += self._tasks
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.leadership.end()
            for ending in self.endings:
                await ending()
            self.store.close()

    async def _keep_stepping(self) -> None:
        while True:
            if self.leadership.leads:
                await self.attempt("look", self.step)
            await asyncio.sleep(self.settings.tick)

    def spawn(self, step: Step) -> None:
        """Let a step of one round run beside those of the others."""
        task = asyncio.create_task(self.attempt("look", step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def attempt(self, name: str, step: Step) -> bool:
        """Do a step; what fails is counted and tried again at the next look."""
        try:
            await step()
        except Error as error:
            log.warning("%s: %s", name, error)
        except Exception as error:  # noqa: BLE001 - the loop must outlive whatever it is
            log.error("%s: a mistake of ours: %s", name, place_of(error))
        else:
            return True
        self.metrics.failures.labels(name).inc()
        return False

    # -- requests

    def absent(self, what: str) -> Problem:
        """Say that something is not here; a process that stands by cannot know."""
        if not self.leadership.leads:
            return Problem("unavailable", "this process stands by, and does not know")
        return Problem("not-found", what)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; whatever goes wrong is told as a problem."""
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        try:
            await self._find(scope["method"], scope["path"])((scope, receive, send))
        except Problem as problem:
            await self.refuse(send, problem)
        except Error as error:
            await self.refuse(send, told(error))
        except Exception as error:  # noqa: BLE001 - the one who asked learns nothing of it
            log.error("a mistake of ours: %s", place_of(error))
            await self.refuse(send, Problem("internal", "this is our mistake; it was counted"))

    def _search(self, method: str, path: str) -> Callable[[Wire], Awaitable[None]]:
        """Find what answers requests for a path."""
        others: list[str] = []
        for route in self.routes:
            found = route.pattern.fullmatch(path)
            if found and route.method == method:
                if not route.takes_bytes:
                    return partial(self._answer, route, found.groupdict())
                return partial(
                    route.handler, self._service, *route.read(found.groupdict()).values()
                )
            others += [route.method] if found else []
        if others:
            allowed = ", ".join(others)
            raise Problem("method", f"this address takes {allowed}", allow=allowed)
        raise Problem("not-found", "there is nothing at this address")

    async def _answer(self, route: Route, path: dict[str, str], wire: Wire) -> None:
        scope, receive, send = wire
        if route.operator:
            self._check_operator(scope)
        asked = route.read(path, scope["query_string"])
        if route.body is not None:
            raw = await read_body(scope, receive, limit=_CONTROL_LIMIT)
            asked["body"] = route.read_body(raw)
        found = await route.handler(self._service, **asked)
        media = route.media
        if not isinstance(found, Reply):
            found, media = Reply(msgspec.json.encode(found)), JSON
        await respond(send, route.status, found.body, media=media.encode(), headers=found.headers)

    def _check_operator(self, scope: Scope) -> None:
        given = header(scope, b"authorization").removeprefix(b"Bearer ")
        if not self._token or not hmac.compare_digest(given, self._token):
            raise Problem("forbidden", "this needs the operator's token as a Bearer credential")

    async def refuse(self, send: Send, problem: Problem) -> None:
        """Tell a problem and count it."""
        self.metrics.problems.labels(problem.kind.name).inc()
        await respond_problem(send, problem)


class Health(Struct, frozen=True):
    """Which role this is, and whether this process leads its store."""

    role: str
    leads: bool


async def healthz(service: Any) -> Health:
    """Say whether the service leads and its store answers."""
    app: Application = service.app
    if not app.leadership.answers:
        raise Problem("unavailable", "the store does not answer")
    return Health(app.role, app.leadership.leads)


async def key(service: Any) -> PublicKeys:
    """Give the public keys for new rounds."""
    public: PublicKeys = service.keyring.public
    return public


async def metrics(service: Any) -> Reply:
    """Give the counts as Prometheus reads them."""
    app: Application = service.app
    app.metrics.leads.set(app.leadership.leads)
    return Reply(app.metrics.page())


async def openapi(service: Any) -> dict[str, Any]:
    """Give this document."""
    app: Application = service.app
    return app.document


COMMON: Final = (
    Route("GET", "/key", key),
    Route("GET", "/healthz", healthz, problems=(503,)),
    Route("GET", "/metrics", metrics, media=METRICS),
    Route("GET", "/openapi.json", openapi),
)
"""What every service serves."""
