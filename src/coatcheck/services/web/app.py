"""Base of all services: start and stop, leadership, health, metrics, operators and dispatch.

A role adds its route table and its background steps. There is no web framework: the table is the
router, and msgspec reads and writes the documents (docs/decisions/0009-one-schema-system.md).
"""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coatcheck.errors import Error, Misuse
from coatcheck.protocol.keys import PublicKeys
from coatcheck.protocol.terms import Url
from coatcheck.services import clock
from coatcheck.services.clock import Clock
from coatcheck.services.database_writer import Leadership
from coatcheck.services.settings import Keyring, ProcessSettings, Settings
from coatcheck.services.telemetry import MEDIA as METRICS
from coatcheck.services.telemetry import Metrics, log, place_of, traces
from coatcheck.services.web.connections import (
    Receive,
    Scope,
    Send,
    SourceLimits,
    Wire,
    header,
    read_body,
    respond,
    respond_long,
    respond_problem,
)
from coatcheck.services.web.routing import (
    JSON,
    Long,
    Problem,
    Reply,
    Route,
    describe,
    problem_of,
)
from coatcheck.stores.round_store import Store

_CONTROL_LIMIT: Final = 1 << 18
"""The most bytes of a JSON document in a request."""

Step = Callable[[], Coroutine[Any, Any, None]]
P = TypeVar("P", bound=ProcessSettings)
S = TypeVar("S", bound=Settings)
T = TypeVar("T", bound=Store)
R = TypeVar("R")


class App(Generic[P]):
    """The ASGI application of a process that answers requests.

    Attributes:
        role: the role's name.
        table: the role's own routes.
        common: the routes that it shares with other roles.
        routes: all routes.
        settings_type: the class of the role's settings.
        loops: background tasks that run as long as the service does.
        started: called once, when the service begins to answer.
        failure: why the process stops by itself; empty while it does not.
        stop: stops the process in order.
        url: the address at which others reach it.
        document: the OpenAPI document.
    """

    role: ClassVar[str]
    table: ClassVar[Sequence[Route]]
    common: ClassVar[Sequence[Route]]
    settings_type: ClassVar[type[ProcessSettings]]

    def __init__(self, settings: P) -> None:
        self.settings = settings
        self.url = settings.url
        self.metrics = Metrics(self.role)
        self.loops: list[Step] = []
        self.started: Callable[[], None] = lambda: None
        self.failure = ""
        self.stop: Callable[[], None] = lambda: None
        self.source_limits = SourceLimits(settings)
        self.operators = Operators(settings.token())
        self.traces = traces(settings.traces, role=self.role)
        self._tasks: set[asyncio.Task[bool]] = set()
        self.routes = [*self.table, *self.common]
        self.route = lru_cache(maxsize=256)(self._route)
        self._find = lru_cache(maxsize=256)(self._search)
        self.document = describe(self.role, self.routes)

    def take_url(self, url: str) -> None:
        """Set the address at which others reach the service."""
        self.url = url

    def fail(self, reason: str) -> None:
        """Stop the process and report why, because continuing would do harm."""
        log.error("%s", reason)
        self.failure = self.failure or reason
        self.stop()

    async def begin(self) -> None:
        """Run before the first request is answered."""

    async def leave(self) -> None:
        """Run after the last request was answered."""

    async def end(self) -> None:
        """Close what the process holds open."""

    # -- start and stop

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.begin()
        running: list[asyncio.Task[Any]] = [asyncio.create_task(loop()) for loop in self.loops]
        try:
            self.started()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        finally:
            running += self._tasks
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.leave()
            await self.end()
            await asyncio.to_thread(self.traces.close)
        await send({"type": "lifespan.shutdown.complete"})

    def spawn(self, step: Step) -> None:
        """Run a step of one round concurrently with those of the others."""
        task = asyncio.create_task(self.attempt("look", step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def attempt(self, name: str, step: Step) -> bool:
        """Run a step; count a failure, which the next tick tries again."""
        try:
            with nullcontext() if name == "look" else self.traces.span(name):
                await step()
        except Error as error:
            log.warning("%s: %s", name, error)
        except Exception as error:  # noqa: BLE001 - the loop must survive any error
            log.error("%s: internal error: %s", name, place_of(error))
        else:
            return True
        self.metrics.failures.labels(name).inc()
        return False

    # -- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every error becomes a problem document."""
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        try:
            if scope["method"] != "GET":
                self.source_limits.check(scope)
            await self._find(scope["method"], scope["path"])((scope, receive, send))
        except Problem as problem:
            await self.refuse(send, problem)
        except Error as error:
            await self.refuse(send, problem_of(error))
        except Exception as error:  # noqa: BLE001 - the client must learn nothing about it
            log.error("internal error: %s", place_of(error))
            await self.refuse(
                send, Problem("internal", "this is an error of the service; it was counted")
            )

    def _search(self, method: str, path: str) -> Callable[[Wire], Awaitable[None]]:
        """Find the function that answers requests for a path."""
        route, parameters = self.route(method, path)
        if route.gives is None:
            return partial(self._reply, route, parameters)
        return partial(route.handler, self, *route.read(parameters).values())

    def _route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Find the route of a path, and the parameters in the path."""
        methods: list[str] = []
        for route in self.routes:
            match = route.pattern.fullmatch(path)
            if match and route.method == method:
                return route, match.groupdict()
            methods += [route.method] if match else []
        if methods:
            allowed = ", ".join(methods)
            raise Problem("method", f"this address takes only {allowed}", allow=allowed)
        raise Problem("not-found", "this address is not served here; /openapi.json lists all")

    async def _reply(self, route: Route, path: dict[str, str], wire: Wire) -> None:
        scope, receive, send = wire
        if route.operator:
            self.operators.check(route, scope)
        args = route.read(path, scope["query_string"])
        if route.takes_bytes:
            args["wire"] = wire
        if route.body is not None:
            args["body"] = route.read_body(await read_body(scope, receive, limit=_CONTROL_LIMIT))
        with self._traced(route):
            reply = await route.handler(self, **args)
        media = route.media
        if isinstance(reply, Long):
            await respond_long(scope, send, route.status, reply, media=media.encode())
            return
        if not isinstance(reply, Reply):
            reply, media = Reply(msgspec.json.encode(reply)), JSON
        await respond(send, route.status, reply.body, media=media.encode(), headers=reply.headers)

    def _traced(self, route: Route) -> AbstractContextManager[None]:
        """Return a span for a request of another role or an operator; none for people."""
        if route.method == "GET" or route.relayed:
            return nullcontext()
        facts = {"http_route": route.path, "http_request_method": route.method}
        return self.traces.span(f"{route.method} {route.path}", **facts)

    async def refuse(self, send: Send, problem: Problem) -> None:
        """Answer with a problem and count it."""
        self.metrics.problems.labels(problem.kind.name).inc()
        await respond_problem(send, problem)


class Health(Struct, frozen=True):
    """The role, whether this process leads its store, and the time on its clock."""

    role: str
    leads: bool
    now: int


async def healthz(service: "Service[Any, Any]") -> Health:
    """Return whether this process leads its store; 503 if the store does not answer."""
    if not service.leadership.answers:
        raise Problem("unavailable", "the store of this service does not answer")
    return Health(service.role, service.leadership.leads, service.clock.now())


async def key(service: "Service[Any, Any]") -> PublicKeys:
    """Return the public keys for new rounds, and the address that terms name."""
    return replace(service.keyring.public, url=service.url)


async def metrics(service: "Service[Any, Any]") -> Reply:
    """Return the metrics in the text format of Prometheus."""
    service.metrics.leads.set(service.leadership.leads)
    return Reply(service.metrics.page())


async def openapi(service: App[Any]) -> dict[str, Any]:
    """Return this document."""
    return service.document


COMMON: Final = (
    Route("GET", "/key", key),
    Route("GET", "/healthz", healthz, problems=(503,)),
    Route("GET", "/metrics", metrics, media=METRICS, operator=True),
    Route("GET", "/openapi.json", openapi),
)
"""The routes of every role with a store."""


class RoleHealth(Struct, frozen=True):
    """The role of a process without a store, which always leads."""

    role: str
    leads: bool = True


async def role_healthz(service: App[Any]) -> RoleHealth:
    """Return the role, as a sign that it answers."""
    return RoleHealth(service.role)


async def role_metrics(service: App[Any]) -> Reply:
    """Return the metrics in the text format of Prometheus."""
    return Reply(service.metrics.page())


COMMON_WITHOUT_STORE: Final = (
    Route("GET", "/healthz", role_healthz),
    Route("GET", "/metrics", role_metrics, media=METRICS, operator=True),
    Route("GET", "/openapi.json", openapi),
)
"""The routes of every role without a store."""


class Service(App[S], Generic[S, T]):
    """The application of a role with a store and keys.

    Attributes:
        store_type: the class of the role's store.
    """

    common = COMMON
    store_type: ClassVar[type[Any]]

    def __init__(self, settings: S, store: T | None = None) -> None:
        super().__init__(settings)
        self.store: T = store or self.store_type(*settings.places)
        self.store.database.check()
        self.clock = Clock(wall=clock.wall)
        self.keyring = Keyring(settings.key_files)
        self.trusted = settings.trusted_keys()
        self.leadership = Leadership(self.store, seconds=settings.lease, gained=self.load)
        self.leadership.failed = self.fail
        self.loops += [self.leadership.run, self._keep_stepping]

    def take_url(self, url: str) -> None:
        """Set the address at which others reach the service; reject one that terms cannot name."""
        try:
            self.url = msgspec.convert(url, Url)
        except msgspec.ValidationError:
            raise Misuse(
                f"terms cannot name {url} as the address of the {self.role}; set `url` to the"
                " address at which people reach it, https://HOST[:PORT] (http:// only on this"
                " machine)"
            ) from None

    async def list_rounds(self) -> Sequence[Struct]:
        """List the rounds."""
        raise NotImplementedError

    async def load(self) -> None:
        """Read the store, when this process begins to lead."""

    async def compare(self) -> None:
        """Compare with the other roles, before the first step."""

    async def step(self) -> None:
        """Do what is due; called once per tick while this process leads."""

    async def follow(self) -> None:
        """Read what a standby process needs; called once per tick while another one leads."""

    async def begin(self) -> None:
        """Try to get the lease."""
        await self.leadership.renew()

    async def leave(self) -> None:
        """Give up the lease."""
        await self.leadership.end()

    async def end(self) -> None:
        """Close the store."""
        self.store.close()

    async def _keep_stepping(self) -> None:
        is_compared = False
        while True:
            if self.leadership.leads and not is_compared:
                is_compared = await self.attempt("compare", self.compare)
            elif self.leadership.leads and not self.failure:
                await self.attempt("look", self.step)
            elif not self.leadership.leads and self.leadership.answers:
                await self.attempt("follow", self.follow)
            await asyncio.sleep(self.settings.tick)

    async def write(self, call: Callable[..., R], *args: Any) -> R:
        """Call a writing method of the store in a thread, with this process's fencing token."""
        return await asyncio.to_thread(call, *args, fence=self.leadership.fence)

    def absent(self, detail: str) -> Problem:
        """Return the problem for something that is not stored; a standby process cannot know."""
        if not self.leadership.leads:
            return Problem("unavailable", "this process is a standby and cannot know; retry")
        return Problem("not-found", detail)


# -- operators

NOBODY: Final = ""
_SHORTEST: Final = 16
_NAMED: Final = re.compile(r"([a-z][a-z0-9-]{0,31})\.(\S+)")


class Operators:
    """The operators of a service, by the credentials in its token file.

    A line of the file is `NAME.SECRET`, or just a secret. The name is the operator's and goes into
    the log. People who take part show other tokens, which are never logged.
    """

    def __init__(self, raw: bytes) -> None:
        lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
        self._names = {line.encode(): _operator_name(line) for line in lines if line}
        if len(set(self._names.values())) < len(self._names):
            raise Misuse("the token file has two lines for one operator; give each its own NAME.")

    def check(self, route: Route, scope: Scope) -> None:
        """Reject a request without an operator's credential; log the operator of a change."""
        name = self.name_of(scope)
        if not name:
            raise Problem("forbidden", "this needs an operator's token as a Bearer credential")
        if route.method != "GET":
            log.info("operator %s: %s %s", name, route.method, route.path)

    def name_of(self, scope: Scope) -> str:
        """Return the name of the operator who sent a request; `NOBODY` without a credential."""
        kind, _, rest = header(scope, b"authorization").partition(b" ")
        if kind.lower() != b"bearer":
            return NOBODY
        sender, credential = NOBODY, rest.strip()
        for token, name in self._names.items():  # all of them: the time must not show which matches
            sender = name if hmac.compare_digest(credential, token) else sender
        return sender


def _operator_name(line: str) -> str:
    named = _NAMED.fullmatch(line)
    secret = named[2] if named else line
    if len(secret) < _SHORTEST or not line.isascii() or " " in line:
        raise Misuse(
            "each line of the operators' token file must be NAME.SECRET, with a secret of at least"
            f" {_SHORTEST} characters; make one with: coatcheck operator NAME --out FILE"
        )
    return named[1] if named else "operator"
