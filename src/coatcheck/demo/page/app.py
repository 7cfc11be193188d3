"""The page as one small ASGI application: static files, a stream of events, a few questions.

A border: web frameworks end here. It serves one run on loopback, with everybody's places in it,
so it answers to loopback names only, and a strict policy lets the browser load nothing from
elsewhere, unless a tile server is named. People in browsers reach the services through the relay;
the page gets a copy to show. A round begins when its viewer says so, and another one when asked.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

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

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify
from coatcheck.demo.city import CITY, streets
from coatcheck.demo.events import Pace, Person, plain_promise
from coatcheck.demo.page.history import History, on_map
from coatcheck.demo.people import Here, People
from coatcheck.demo.run import Run
from coatcheck.demo.trilateration import trilateration
from coatcheck.errors import Error, Misuse
from coatcheck.planning import Group, plan
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.process import bind
from coatcheck.services.web.connections import read_body
from coatcheck.services.web.routing import Problem

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario

# HOUSE-DOC demo.page.explorer: 'The explorer\'s figures: what an epsilon and a crowd buy, by the library that plans rounds.\n\nA table made beforehand answers while a slider moves; `answer` gives the exact figure on release.\nSees no person and no round. `python -m coatcheck.demo.page.app` makes the table again.\n\n    >>> found = answer(crowd=500, epsilon=1.0, share=0.0)\n    >>> found["designs"][0]["error"] < found["blind"]\n    True\n'
DELTA: Final = 1e-6
CROWDS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
EPSILONS: Final = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
MECHANISMS: Final = ("minkowski", "bounded", "grid")
FIRST: Final = (4_000, 1.0, 0.01)
"""Where the sliders stand when the page is opened."""
TABLE: Final = Path(__file__).parent / "static" / "explorer.json"


@lru_cache(maxsize=256)
def answer(*, crowd: int, epsilon: float, share: float) -> dict[str, Any]:
    """Plan one group on the city: every mechanism at its best, the least error first.

    Args:
        crowd: the least number of people without whom nothing is released.
        epsilon: the promise to everybody, at δ = 1e-6.
        share: of the crowd, how many may work for the server.
    """
    if not (2 <= crowd <= 1_000_000 and 0.05 <= epsilon <= 8 and 0 <= share <= 0.5):
        raise Misuse(
            "the explorer takes 2 to 1,000,000 people, ε from 0.05 to 8 and up to half of the"
            " crowd corrupted: choose within these"
        )
    corrupted = math.floor(share * crowd)
    groups = {"people": Group(CITY, crowd=crowd, corrupted=corrupted)}
    found = plan(groups, epsilon=epsilon, delta=DELTA)
    people = found["people"]
    return {
        "crowd": crowd,
        "corrupted": corrupted,
        "epsilon": epsilon,
        "delta": DELTA,
        "blind": people.best.report_free,
        "designs": [one.plain() for one in people.designs if one.randomizer.name in MECHANISMS],
        "plan": str(found),
        "promise": str(people.best.guarantee),
        "command": _command(crowd, epsilon, corrupted),
        "python": _python(crowd, epsilon, corrupted),
    }


def warm() -> None:
    """Work out the first answer before anybody asks for it."""
    crowd, epsilon, share = FIRST
    answer(crowd=crowd, epsilon=epsilon, share=share)


def table() -> dict[str, Any]:
    """Work out the answers between which the page interpolates, to four digits."""

    def cells(figure: str) -> list[list[list[float]]]:
        return [
            [[float(f"{by[name][figure]:.4g}") for name in MECHANISMS] for by in line]
            for line in rows
        ]

    asked = [[answer(crowd=n, epsilon=epsilon, share=0.0) for epsilon in EPSILONS] for n in CROWDS]
    rows = [[{one["mechanism"]: one for one in cell["designs"]} for cell in line] for line in asked]
    return {
        "crowds": CROWDS,
        "epsilons": EPSILONS,
        "mechanisms": MECHANISMS,
        "delta": DELTA,
        "blind": asked[0][0]["blind"],
        "errors": cells("error"),
        "locals": cells("local_epsilon"),
    }


def _command(crowd: int, epsilon: float, corrupted: int) -> str:
    box = ",".join(f"{side:g}" for side in (*CITY.lo, *CITY.hi))
    return (
        f"coatcheck plan --epsilon {epsilon:g} --delta {DELTA:g} --crowd {crowd}"
        f" --corrupted {corrupted} --geographic {box}"
    )


def _python(crowd: int, epsilon: float, corrupted: int) -> str:
    south, west, north, east = (*CITY.lo, *CITY.hi)
    return "\n".join(
        (
            "from coatcheck.domains import Box",
            "from coatcheck.planning import Group, plan",
            "",
            f"city = Box.geographic(south={south}, west={west}, north={north}, east={east})",
            f"group = Group(city, crowd={crowd}, corrupted={corrupted})",
            f'print(plan({{"people": group}}, epsilon={epsilon:g}, delta={DELTA:g}))',
        )
    )


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), separators=(",", ":")) + "\n")

# HOUSE-DOC demo.page.adversaries: 'Adversaries: what each one sees of a round, and the guarantee that holds against it.\n\nEvery figure comes from the accountant, for the crowd of the round that is on the page. Knows the\nterms and whom the answers point to. THREATS.md, DESIGN section 4.\n'
ADVERSARIES: Final = ("server", "server-and-people", "onlooker", "shuffler", "relay", "witness")


def corrupted(sizes: Sequence[int], count: int) -> list[Person]:
    """Choose `count` people, the groups in turn, the last of each first."""
    if not 0 <= count <= sum(sizes) - len(sizes):
        raise Misuse(f"of {sum(sizes)} people 0 to {sum(sizes) - len(sizes)} can be corrupted")
    left, chosen = list(sizes), list[Person]()
    while len(chosen) < count:
        for group, size in enumerate(left):
            if size > 1 and len(chosen) < count:
                left[group] -= 1
                chosen.append((group, left[group]))
    return chosen


def against(
    name: str,
    groups: Sequence[GroupPlan],
    *,
    task: tasks.Task,
    group: int,
    people: int = 0,
    partners: Mapping[Person, Sequence[Person]] | None = None,
) -> dict[str, Any]:
    """Say what holds for an honest member of a group against this adversary."""
    if name not in ADVERSARIES or not 0 <= group < len(groups):
        raise Misuse(
            f"the adversaries are {', '.join(ADVERSARIES)}, the groups 0 to {len(groups) - 1}"
        )
    if name in _BLIND:
        return _told(name, epsilon=0.0, sentence=_BLIND[name], plain=_NOTHING)
    mine, sizes = groups[group], [one.minimum for one in groups]
    if name == "shuffler":
        local = mine.randomizer.epsilon_spent
        said = _SHUFFLER.format(local=local)
        return _told(name, epsilon=0.0, sentence=said, plain=_NOTHING, colluding=local)
    bad = corrupted(sizes, people if name == "server-and-people" else 0)
    counts = [sum(1 for g, _ in bad if g == number) for number in range(len(sizes))]
    exposed = tasks.exposure(task, sizes=sizes, corrupted=counts)[group]
    guarantee = amplify(
        mine.randomizer.law,
        crowd=mine.minimum,
        delta=mine.delta,
        corrupted=counts[group],
        exposed=min(exposed, mine.minimum - counts[group] - 1),
    )
    told = {p for person in bad for p in (partners or {}).get(person, ())} - set(bad)
    return _told(
        name,
        epsilon=guarantee.epsilon,
        sentence=str(guarantee),
        plain=plain_promise(epsilon=guarantee.epsilon, delta=guarantee.delta),
        delta=guarantee.delta,
        anonymous=guarantee.anonymous,
        corrupted=bad,
        exposed=sorted(told),
    )


_NOTHING: Final = "it learns nothing of any value (ε = 0), as long as the seals hold"
_BLIND: Final = {
    "onlooker": (
        "Whoever only reads the board sees addresses, sealed answers of one size and sealed"
        " letters: ε = 0 for every value, as long as the seals (HPKE) hold. The number of people"
        " is public."
    ),
    "relay": (
        "The relay sees who asks, which role is asked and when; every message is sealed to a role"
        " and has one size: ε = 0 for every value. Together with the board it knows who wrote"
        " which letter and who fetched which entry; it cannot open either."
    ),
    "witness": (
        "The witness sees the size and the root of the board's log, 32 bytes, and cosigns them if"
        " the log only grew: ε = 0 for every value. It never sees an entry."
    ),
}
_SHUFFLER: Final = (
    "The shuffler knows who hands in a parcel, and all parcels look alike: ε = 0 for every value,"
    " as long as the seals (HPKE) hold and it does not work with the server. If it does, the"
    " crowd hides nobody and only a person's own noise is left: ε = {local:.4g}, the local one."
)


def _told(name: str, **found: Any) -> dict[str, Any]:
    return {"adversary": name, "delta": 0.0, "corrupted": [], "exposed": [], **found}


Served = Callable[[Run], dict[str, Any]]
STATIC: Final = Path(__file__).parent / "static"
_BODY_LIMIT: Final = 1 << 16
_HURRY: Final = 100.0
_PARTS: Final = ("{z}", "{x}", "{y}")
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'TILES; "
        "connect-src 'self' RELAY; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""Put on every answer; the page connects to itself, to the relay, and to a tile server if named."""


class Question(msgspec.Struct):
    """What the page asks in the query of an address."""

    adversary: str = "server"
    group: int = 0
    people: int = 0
    crowd: int = 0
    epsilon: float = 0.0
    share: float = 0.0


class Order(msgspec.Struct):
    """What the page orders: to play at a speed, to pause, to take a step, or another round."""

    do: Literal["play", "pause", "step", "again"]
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
    """What the page can be asked; one instance per run.

    Attributes:
        wanted: set when somebody asks for another round.
        tiles: the address of map tiles with {z}, {x} and {y} in it; empty for the city's streets.
    """

    def __init__(self, run: Run, history: History, pace: Pace, *, tiles: str = "") -> None:
        self.run, self.history, self.pace, self.tiles = run, history, pace, tiles
        self.wanted = asyncio.Event()
        self._exact, self._attacked = asyncio.Lock(), asyncio.Lock()
        self._attack: dict[str, Any] = {}

    async def events(self, request: Request) -> Response:
        """Stream everything that has been told and will be, as server-sent events."""
        return StreamingResponse(self._stream(request), media_type="text/event-stream")

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        last = request.headers.get("last-event-id", "")
        place, pace = int(last) + 1 if last.isdecimal() else 0, dict[str, Any]()
        while not await request.is_disconnected():
            if pace != (pace := self._paced()):
                yield f"event: pace\ndata: {json.dumps(pace)}\n\n".encode()
            told = await self.history.wait(place, seconds=0.5)
            for number, event in told:
                data = json.dumps(event, separators=(",", ":"))
                yield f"id: {number}\ndata: {data}\n\n".encode()
                place = number + 1
            if not told:
                yield b": still here\n\n"

    def _paced(self) -> dict[str, Any]:
        return {"playing": self.pace.playing, "speed": self.pace.speed}

    async def control(self, request: Request) -> Response:
        """Play, pause, take a step of the run, or have another round after this one."""
        order, pace = msgspec.json.decode(await _body(request), type=Order), self.pace
        if order.do == "play":
            pace.play(speed=order.speed or pace.speed)
        elif order.do == "pause":
            pace.pause()
        elif order.do == "step":
            pace.step()
        else:
            self.wanted.set()
            pace.play(speed=_HURRY)  # whatever is left of this round
        self.history.wake()
        return JSONResponse(self._paced())

    async def rounds(self, served: Served) -> None:
        """Let one round after the other go to its end; a refusal becomes a sentence on the page."""
        run, speed = self.run, self.pace.speed
        while True:
            self.pace.play(speed=speed)
            self.pace.pause()
            self.history.wake()
            try:
                await run.complete()
                service = await asyncio.to_thread(served, run)
                # By way of msgspec: what was not measured is null, for JSON has no NaN.
                told = msgspec.json.decode(msgspec.json.encode(service))
                self.history.add("served", service=told)
                await self.wanted.wait()
                self.wanted.clear()
                self.history.begin()
                await run.again(run.scenario.next_round())
            except Error as error:
                self.history.add("failed", sentence=str(error))
                return

    async def attack(self, _: Request) -> Response:
        """Tell the trilaterator's story, with places as shares of the map."""
        async with self._attacked:
            if not self._attack:
                found = await run_in_threadpool(trilateration, self.run.scenario)
                self._attack = on_map(found, self.run.scenario.box)
        return JSONResponse(self._attack)

    async def city(self, _: Request) -> Response:
        """Draw the ground: the streets of the demo's city, or tiles from elsewhere."""
        box = self.run.scenario.box
        drawn = streets() if box == CITY and not self.tiles else {}
        corners = [] if box is None else [box.lo, box.hi]
        return JSONResponse({**drawn, "tiles": self.tiles, "corners": corners})

    async def adversary(self, request: Request) -> Response:
        """Say what an adversary sees and which guarantee holds against it."""
        run, asked = self.run, _question(request)
        found = await run_in_threadpool(
            against,
            asked.adversary,
            run.scenario.drafts,
            task=run.scenario.task,
            group=asked.group,
            people=asked.people,
            partners={person: run.known_partners(person) for person in list(run.answers)},
        )
        return JSONResponse(found)

    async def explore(self, request: Request) -> Response:
        """Plan exactly what the sliders ask for."""
        asked = _question(request)
        knobs = {"crowd": asked.crowd, "epsilon": asked.epsilon, "share": asked.share}
        async with self._exact:
            return JSONResponse(await run_in_threadpool(answer, **knobs))

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


def create_app(page: Page) -> ASGIApp:
    """Make the application for one run."""
    routes = [
        Route("/", _file("index.html")),
        Route("/join", _file("join.html")),
        Route("/events", page.events),
        Route("/control", page.control, methods=["POST"]),
        Route("/adversary", page.adversary),
        Route("/explore", page.explore),
        Route("/trilateration", page.attack),
        Route("/city", page.city),
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
    tiles: str = "",
) -> None:
    """Run a scenario and serve its page until it is ended.

    `announce` is told the address, and `served` says at the end how well people were served.
    """
    history, pace, headers = History(), Pace(speed=speed), policy(tiles)
    with bind(f"127.0.0.1:{port}") as door:
        async with Run(scenario, cluster, crowd=Here(People), observer=history, pace=pace) as run:
            relay = cluster.url("relay")
            page = Page(run, history, pace, tiles=tiles)
            config = uvicorn.Config(
                create_app(page),
                log_level="warning",
                timeout_graceful_shutdown=1,
                lifespan="off",
                ws="none",
                headers=[(name, text.replace("RELAY", relay)) for name, text in headers.items()],
            )
            server = uvicorn.Server(config)
            live = [
                asyncio.create_task(page.rounds(served)),
                asyncio.create_task(asyncio.to_thread(warm)),
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


def policy(tiles: str) -> dict[str, str]:
    """Return the headers, which let the browser fetch tiles from their server, and only them."""
    found = urlsplit(tiles)
    if tiles and (found.scheme not in {"http", "https"} or not all(map(tiles.count, _PARTS))):
        raise Misuse(f"tiles have an address such as https://HOST/{'/'.join(_PARTS)}.png")
    allowed = f" {found.scheme}://{found.netloc}" if tiles else ""
    return {name: text.replace("TILES", allowed) for name, text in _HEADERS.items()}


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
