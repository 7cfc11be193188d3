"""What every service is: start and end, who leads, health, counts, routes, problems.

A role adds its table of routes and its steps. There is no web framework: the table is
the router, msgspec reads and writes the documents (docs/decisions/0009-one-schema-system.md).
"""

import asyncio
import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache, partial
from html import escape
from importlib.metadata import version
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
from coatcheck.services.web.routing import JSON, Header, Long, Problem, Reply, Route, describe, told
from coatcheck.stores.round_store import Store

# HOUSE-DOC services.http.operators: "Who operates a service: several people may, each with a token, and the log tells them apart.\n\nA line of the token file is a credential, `NAME.SECRET` or just a secret. The name is the\noperator's, never a person's who takes part: those show other tokens, and nobody writes them down.\n"
NOBODY: Final = ""
_SHORTEST: Final = 16
_NAMED: Final = re.compile(r"([a-z][a-z0-9-]{0,31})\.(\S+)")


class Operators:
    """The operators of a service, by the credentials of its token file."""

    def __init__(self, raw: bytes) -> None:
        lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
        self._known = {line.encode(): _name(line) for line in lines if line}
        if len(set(self._known.values())) < len(self._known):
            raise Misuse("the token file names an operator twice: give each line its own NAME.")

    def check(self, route: Route, scope: Scope) -> None:
        """Refuse whoever is no operator, and log which operator changes something."""
        who = self.who(scope)
        if not who and route.demands:  # a browser then asks for a name and a password
            asks = {"www_authenticate": 'Basic realm="coatcheck", charset="UTF-8"'}
            raise Problem("unadmitted", "show an operator's name and token", **asks)
        if not who:
            raise Problem("forbidden", "this needs the operator's token as a Bearer credential")
        if route.method != "GET":
            log.info("operator %s: %s %s", who, route.method, route.path)

    def who(self, scope: Scope) -> str:
        """Name the operator who asks; nobody without a known credential."""
        found = NOBODY
        for given in _shown(header(scope, b"authorization")):
            for known, name in self._known.items():  # all of them, so that the time tells nothing
                found = name if hmac.compare_digest(given, known) else found
        return found


def _name(line: str) -> str:
    named = _NAMED.fullmatch(line)
    secret = named[2] if named else line
    if len(secret) < _SHORTEST or not line.isascii() or " " in line:
        raise Misuse(
            f"a line of the operator's token file is NAME.SECRET, with {_SHORTEST} characters or"
            " more for the secret; make one with: coatcheck operator NAME --out FILE"
        )
    return named[1] if named else "operator"


def _shown(line: bytes) -> tuple[bytes, ...]:
    """Read the credentials of a header: Bearer, or Basic as browsers send a name and a password."""
    kind, _, rest = line.partition(b" ")
    if kind.lower() == b"bearer":
        return (rest.strip(),)
    if kind.lower() != b"basic":
        return ()
    try:
        name, _, secret = base64.b64decode(rest.strip(), validate=True).partition(b":")
    except binascii.Error:
        return ()
    return (secret, b".".join((name, secret)))


# HOUSE-DOC services.http.admin: "The operator's page: rounds, phases, counts and health of one role, to read and not to change.\n\nPlain HTML, made here, without scripts: a browser asks for the operator's name and token. It shows\nwhat the other routes give the operator as documents, and nothing of one report.\n"
_MEDIA: Final = "text/html; charset=utf-8"
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
MOST: Final = 200
"""How many rounds are shown, the newest."""
_TIMES: Final = ("opens", "closes", "expires")
_STYLE: Final = """
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;
color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%;margin:0 0 2rem}
caption{text-align:left;font-weight:600;padding:.5rem 0}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ccc;vertical-align:top}
code{font-size:.9em}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}th,td{border-color:#444}}
"""


_WHO: Final = Header("www-authenticate", "Asks a browser for an operator's name and token.")


async def admin(service: Any) -> Reply:
    """Show rounds, counts and health to an operator, as a page without scripts."""
    leads = "yes" if service.leadership.leads else "no, another process does"
    made = page(
        name=service.settings.name,
        role=service.role,
        facts={"address": service.url, "leads its store": leads},
        rounds=[msgspec.to_builtins(one) for one in await service.list_rounds()],
        counts=service.metrics.counts(),
        now=service.clock.now(),
    )
    return Reply(made, _HEADERS)


ADMIN: Final = Route(
    *("GET", "/admin", admin), media=_MEDIA, operator=True, demands=_WHO, problems=(401, 503)
)
"""The route of the page."""


def page(
    *,
    name: str,
    role: str,
    facts: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    counts: Iterable[tuple[str, str, float]],
    now: int,
) -> bytes:
    """Write the page of a role for an operator."""
    shown = sorted(rounds, key=lambda one: one.get("opens") or one.get("closes") or 0)[-MOST:]
    facts = {**facts, "time": _time(now), "version": version("coatcheck")}
    title = f"{name}: coatcheck {role}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _table("Health", ("", ""), [(key, str(value)) for key, value in facts.items()]),
        _table("Rounds, the newest first", *_rounds(shown[::-1])),
        _table("Counts since the start", ("count", "of", ""), _told(counts)),
        "<p>This page changes nothing: <code>coatcheck round --help</code> tells what does.</p>",
    ]
    head = f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    look = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{look}{head}</head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    ).encode()


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Tell each round by the fields that its role gives."""
    columns = [
        name for name in ("round", "phase", "groups", *_TIMES) if name in (rounds or [{}])[0]
    ]
    return columns, [[_cell(name, one[name]) for name in columns] for one in rounds]


def _cell(name: str, value: Any) -> str:
    if name in _TIMES:
        return _time(value)
    if name == "groups":
        return ", ".join(f"{one['name']} {one['crowd']:,} of {one['minimum']:,}" for one in value)
    return str(value)


def _told(counts: Iterable[tuple[str, str, float]]) -> list[Sequence[str]]:
    return [(name.replace("_", " "), of, f"{value:,.10g}") for name, of, value in counts]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table, or say that it is empty; the first cell of a row heads it."""
    if not rows:
        return f"<h2>{escape(caption)}</h2><p>None yet.</p>"
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in headings)
    lines = [
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    top = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return (
        f"<table><caption>{escape(caption)}</caption>{top}<tbody>{''.join(lines)}</tbody></table>"
    )


_CONTROL_LIMIT: Final = 1 << 18

Step = Callable[[], Coroutine[Any, Any, None]]
P = TypeVar("P", bound=ProcessSettings)
S = TypeVar("S", bound=Settings)
T = TypeVar("T", bound=Store)
R = TypeVar("R")


class App(Generic[P]):
    """A process that answers requests: its life, its routes, its counts and its problems.

    Attributes:
        role: the role's name.
        table: the role's own routes.
        common: what it serves besides.
        routes: all that are served.
        settings_type: the role's settings.
        loops: what runs beside the requests, as long as the service does.
        started: called once when the service begins to answer.
        failure: why the process ends by itself; empty as long as it does not.
        stop: ends the process in order.
        url: how others reach it.
        document: the OpenAPI document of the table.
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
        self.doors = SourceLimits(settings)
        self.operators = Operators(settings.token())
        self.traces = traces(settings.traces, role=self.role)
        self._tasks: set[asyncio.Task[bool]] = set()
        self.routes = [*self.table, *self.common]
        self.route = lru_cache(maxsize=256)(self._route)
        self._find = lru_cache(maxsize=256)(self._search)
        self.document = describe(self.role, self.routes)

    def take_url(self, url: str) -> None:
        """Take over how others reach the service."""
        self.url = url

    def fail(self, why: str) -> None:
        """End the process with a sentence, because going on would do harm."""
        log.error("%s", why)
        self.failure = self.failure or why
        self.stop()

    async def begin(self) -> None:
        """Do what comes before the first answer."""

    async def leave(self) -> None:
        """Do what comes after the last answer."""

    async def end(self) -> None:
        """Let go of what the process holds."""

    # -- the service's life

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
        """Let a step of one round run beside those of the others."""
        task = asyncio.create_task(self.attempt("look", step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def attempt(self, name: str, step: Step) -> bool:
        """Do a step; what fails is counted and tried again at the next look."""
        try:
            with nullcontext() if name == "look" else self.traces.span(name):
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; whatever goes wrong is told as a problem."""
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        try:
            if scope["method"] != "GET":
                self.doors.check(scope)
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
        route, found = self.route(method, path)
        if route.gives is None:
            return partial(self._reply, route, found)
        return partial(route.handler, self, *route.read(found).values())

    def _route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Find the route of a path, and the parameters in it."""
        others: list[str] = []
        for route in self.routes:
            found = route.pattern.fullmatch(path)
            if found and route.method == method:
                return route, found.groupdict()
            others += [route.method] if found else []
        if others:
            allowed = ", ".join(others)
            raise Problem("method", f"this address takes {allowed}", allow=allowed)
        raise Problem("not-found", "there is nothing at this address")

    async def _reply(self, route: Route, path: dict[str, str], wire: Wire) -> None:
        scope, receive, send = wire
        if route.operator:
            self.operators.check(route, scope)
        asked = route.read(path, scope["query_string"])
        if route.takes_bytes:
            asked["wire"] = wire
        if route.body is not None:
            asked["body"] = route.read_body(await read_body(scope, receive, limit=_CONTROL_LIMIT))
        with self._traced(route):
            found = await route.handler(self, **asked)
        media = route.media
        if isinstance(found, Long):
            await respond_long(scope, send, route.status, found, media=media.encode())
            return
        if not isinstance(found, Reply):
            found, media = Reply(msgspec.json.encode(found)), JSON
        await respond(send, route.status, found.body, media=media.encode(), headers=found.headers)

    def _traced(self, route: Route) -> AbstractContextManager[None]:
        """Time what another role or an operator asks for; never what people do."""
        if route.method == "GET" or route.relayed:
            return nullcontext()
        facts = {"http_route": route.path, "http_request_method": route.method}
        return self.traces.span(f"{route.method} {route.path}", **facts)

    async def refuse(self, send: Send, problem: Problem) -> None:
        """Tell a problem and count it."""
        self.metrics.problems.labels(problem.kind.name).inc()
        await respond_problem(send, problem)


class Health(Struct, frozen=True):
    """Which role this is, whether this process leads its store, and its clock."""

    role: str
    leads: bool
    now: int


async def healthz(service: "Service[Any, Any]") -> Health:
    """Say whether the service leads and its store answers."""
    if not service.leadership.answers:
        raise Problem("unavailable", "the store does not answer")
    return Health(service.role, service.leadership.leads, service.clock.now())


async def key(service: "Service[Any, Any]") -> PublicKeys:
    """Give the public keys for new rounds, and the address that terms name."""
    return replace(service.keyring.public, url=service.url)


async def metrics(service: "Service[Any, Any]") -> Reply:
    """Give the counts as Prometheus reads them."""
    service.metrics.leads.set(service.leadership.leads)
    return Reply(service.metrics.page())


async def openapi(service: App[Any]) -> dict[str, Any]:
    """Give this document."""
    return service.document


COMMON: Final = (
    Route("GET", "/key", key),
    Route("GET", "/healthz", healthz, problems=(503,)),
    Route("GET", "/metrics", metrics, media=METRICS, operator=True),
    Route("GET", "/openapi.json", openapi),
    ADMIN,
)
"""What every role with a store serves."""


class Service(App[S], Generic[S, T]):
    """A role with a store and keys: everything around the role itself. A role adds its steps.

    Attributes:
        store_type: the role's store, which is opened at its URL.
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
        """Take over how others reach the service; refuse what no terms could name."""
        try:
            self.url = msgspec.convert(url, Url)
        except msgspec.ValidationError:
            raise Misuse(
                f"terms cannot say that the {self.role} is at {url}: set `url` to the address at"
                " which people reach it, https://HOST[:PORT], or http:// on this machine alone"
            ) from None

    async def list_rounds(self) -> Sequence[Struct]:
        """List the rounds."""
        raise NotImplementedError

    async def load(self) -> None:
        """Read the store when this process begins to lead."""

    async def compare(self) -> None:
        """Compare with the other roles before the first step."""

    async def step(self) -> None:
        """Look once at what is to be done."""

    async def follow(self) -> None:
        """Look once at what a process that stands by has to know."""

    async def begin(self) -> None:
        """Ask for the lease."""
        await self.leadership.renew()

    async def leave(self) -> None:
        """Hand the lease back."""
        await self.leadership.end()

    async def end(self) -> None:
        """Let go of what the service holds."""
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

    async def write(self, call: Callable[..., R], *given: Any) -> R:
        """Have the store write something, under the token of this process, off the event loop."""
        return await asyncio.to_thread(call, *given, fence=self.leadership.fence)

    def absent(self, what: str) -> Problem:
        """Say that something is not here; a process that stands by cannot know."""
        if not self.leadership.leads:
            return Problem("unavailable", "this process stands by, and does not know")
        return Problem("not-found", what)
