"""The frame of every service: start and end, who leads, health, counts, problems, the operator.

A role's service fills it with its own routes and steps. The upload paths are dispatched here,
before FastAPI, as bare callables: a FastAPI route costs three times as much.
"""

import asyncio
import contextlib
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from coatcheck.errors import Error
from coatcheck.services.http.connections import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    header,
    read_body,
    respond_problem,
)
from coatcheck.services.http.problems import MEDIA, Problem, told
from coatcheck.services.leadership import Leadership
from coatcheck.services.log import log, place_of
from coatcheck.services.metrics import MEDIA as METRICS_MEDIA
from coatcheck.services.metrics import Metrics
from coatcheck.services.settings import Settings
from coatcheck.stores.store import Store

_CONTROL_LIMIT: Final = 1 << 18
_BARE: Final = re.compile(r"^/rounds/([0-9a-f]{64})/([a-z]+)$")

Bare = Callable[[bytes, Scope, Receive, Send], Awaitable[None]]
Step = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Frame:
    """What surrounds a role.

    Attributes:
        bare: callables for `POST /rounds/{digest}/NAME`, by name.
        loops: what runs beside the requests, as long as the service does.
        step: one look at what is to be done for the rounds.
        loaded: reads the store when this process begins to lead.
    """

    role: str
    settings: Settings
    store: Store
    step: Step
    loaded: Step
    loops: list[Step] = field(default_factory=list)
    endings: list[Step] = field(default_factory=list)
    bare: dict[str, Bare] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.role)
        self.leadership = Leadership(self.store, seconds=self.settings.lease, gained=self.loaded)
        self.api = FastAPI(
            title=f"coatcheck {self.role}",
            version="1",
            lifespan=self._lifespan,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self._token = self.settings.token()
        self._tasks: set[asyncio.Task[bool]] = set()
        _add_common(self)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        del app
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
            self.metrics.failures.labels(name).inc()
            log.warning("%s: %s", name, error)
            return False
        except Exception as error:  # noqa: BLE001 - the loop must outlive whatever it is
            self.metrics.failures.labels(name).inc()
            log.error("%s: a mistake of ours: %s", name, place_of(error))
            return False
        return True

    def absent(self, what: str) -> Problem:
        """Say that something is not here; a process that stands by cannot know."""
        if not self.leadership.leads:
            return Problem("unavailable", "this process stands by, and does not know")
        return Problem("not-found", what)

    def operator(self, request: Request) -> None:
        """Let only the operator pass."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if not self._token or not hmac.compare_digest(given, self._token):
            raise Problem("forbidden", "this needs the operator's token as a Bearer credential")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the bare paths; hand everything else to FastAPI with its body read under a cap."""
        if scope["type"] != "http":
            await self.api(scope, receive, send)
            return
        try:
            if scope["method"] == "POST":
                digest, name = _parsed(scope["path"])
                bare = self.bare.get(name)
                if bare is not None:
                    await bare(digest, scope, receive, send)
                    return
            await self._control(self.api, scope, receive, send)
        except Problem as problem:
            await self.refuse(send, problem)
        except Error as error:
            await self.refuse(send, told(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the one who asked learns nothing of it
            log.error("a mistake of ours: %s", place_of(error))
            await self.refuse(send, Problem("internal", "this is our mistake; it was counted"))

    async def refuse(self, send: Send, problem: Problem) -> None:
        """Tell a problem and count it."""
        self.metrics.problems.labels(problem.kind.name).inc()
        await respond_problem(send, problem)

    async def _control(self, api: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await api(scope, receive, send)
            return
        if header(scope, b"content-type").partition(b";")[0].strip() != b"application/json":
            scope["headers"] = _as_json(scope["headers"])
        body = await read_body(scope, receive, limit=_CONTROL_LIMIT)
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await api(scope, replay, send)


@lru_cache(maxsize=256)
def _parsed(path: str) -> tuple[bytes, str]:
    """Take `/rounds/{digest}/NAME` apart; other paths have no name."""
    found = _BARE.match(path)
    return (bytes.fromhex(found[1]), found[2]) if found else (b"", "")


def _as_json(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Read every control document as JSON, whatever it is called: one way to be refused."""
    rest = [(name, value) for name, value in headers if name != b"content-type"]
    return [*rest, (b"content-type", b"application/json")]


def _add_common(frame: Frame) -> None:
    api = frame.api

    @api.exception_handler(Problem)
    async def tell(request: Request, problem: Problem) -> Response:
        del request
        frame.metrics.problems.labels(problem.kind.name).inc()
        return Response(
            problem.document(), problem.kind.status, headers=problem.headers, media_type=MEDIA
        )

    @api.exception_handler(Error)
    async def tell_error(request: Request, error: Error) -> Response:
        return await tell(request, told(error))

    @api.exception_handler(RequestValidationError)
    async def tell_shape(request: Request, error: RequestValidationError) -> Response:
        places = sorted({".".join(str(part) for part in one["loc"]) for one in error.errors()})
        return await tell(request, Problem("unprocessable", f"wrong: {', '.join(places)[:300]}"))

    @api.exception_handler(HTTPException)
    async def tell_http(request: Request, error: HTTPException) -> Response:
        name = {404: "not-found", 405: "method", 400: "malformed"}.get(error.status_code)
        answer = await tell(request, Problem(name or "internal", str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer

    @api.get("/healthz", responses=problems(503))
    async def healthz() -> dict[str, Any]:
        """Say whether the service leads and its store answers."""
        if not frame.leadership.answers:
            raise Problem("unavailable", "the store does not answer")
        return {"role": frame.role, "leads": frame.leadership.leads}

    @api.get("/metrics", response_class=Response, responses={200: {"content": {METRICS_MEDIA: {}}}})
    async def metrics() -> Response:
        """Give the counts as Prometheus reads them."""
        frame.metrics.leads.set(frame.leadership.leads)
        return Response(frame.metrics.page(), media_type=METRICS_MEDIA)


_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document that an address answers with these problems."""
    return {
        status: {"description": "A problem", "content": {MEDIA: {"schema": _SCHEMA}}}
        for status in statuses
    }
