"""The page as one small ASGI application: static files, a stream of events, a few questions.

It serves one run on loopback, with everybody's places in it,
so it answers to loopback names only, and a strict policy lets the browser load nothing from
elsewhere, unless a tile server is named. People in browsers reach the services through the relay;
the page gets a copy to show. A round begins when its viewer says so, and another one when asked.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec
import uvicorn

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
from coatcheck.services.web.connections import Receive, Scope, Send, header, read_body, respond
from coatcheck.services.web.routing import JSON, Problem

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
_PAGES: Final = {"/": "index.html", "/join": "join.html"}
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

    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream everything that has been told and will be, as server-sent events."""
        last = header(scope, b"last-event-id").decode("latin-1")
        left = asyncio.create_task(_until_left(receive))
        media = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": media})
        try:
            async for piece in self._stream(int(last) + 1 if last.isdecimal() else 0, left):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            left.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, place: int, left: "asyncio.Task[None]") -> AsyncIterator[bytes]:
        pace = dict[str, Any]()
        while not left.done():
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

    async def control(self, body: bytes) -> dict[str, Any]:
        """Play, pause, take a step of the run, or have another round after this one."""
        order, pace = msgspec.json.decode(body, type=Order), self.pace
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
        return self._paced()

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

    async def attack(self, _: Question) -> dict[str, Any]:
        """Tell the trilaterator's story, with places as shares of the map."""
        async with self._attacked:
            if not self._attack:
                story = await asyncio.to_thread(trilateration, self.run.scenario)
                self._attack = on_map(story, self.run.scenario.box)
        return self._attack

    async def city(self, _: Question) -> dict[str, Any]:
        """Draw the ground: the streets of the demo's city, or tiles from elsewhere."""
        box = self.run.scenario.box
        drawn = streets() if box == CITY and not self.tiles else {}
        corners = [] if box is None else [box.lo, box.hi]
        return {**drawn, "tiles": self.tiles, "corners": corners}

    async def adversary(self, question: Question) -> dict[str, Any]:
        """Say what an adversary sees and which guarantee holds against it."""
        run = self.run
        return await asyncio.to_thread(
            against,
            question.adversary,
            run.scenario.drafts,
            task=run.scenario.task,
            group=question.group,
            people=question.people,
            partners={who: run.known_partners(who) for who in list(run.answers)},
        )

    async def explore(self, question: Question) -> dict[str, Any]:
        """Plan exactly what the sliders ask for."""
        sliders = {"crowd": question.crowd, "epsilon": question.epsilon, "share": question.share}
        async with self._exact:
            return await asyncio.to_thread(answer, **sliders)

    async def terms(self, _: Question) -> dict[str, Any]:
        """Hand out the terms, a relay, and the keys that people would know from elsewhere."""
        run = self.run
        signed, trusted = msgspec.to_builtins(run.signed), run.cluster.trusted.plain()
        relay = run.cluster.url("relay")
        return {"signed": signed, "trusted": trusted, "relay": relay}

    async def upload(self, body: bytes) -> dict[str, Any]:
        """Take a copy of what a browser sent through the relay, to count and show it."""
        self.run.note(body)
        return {}

    async def letters(self, body: bytes) -> dict[str, Any]:
        """Hear that a browser posted a letter, and have its reader look."""
        run = self.run
        reader = run.person_at(Posting.decode(body, run.round).recipient)
        if reader is not None:
            await run.read_letters(reader)
        return {}


Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_Asked = Callable[[Question], Awaitable[dict[str, Any]]]
_Ordered = Callable[[bytes], Awaitable[dict[str, Any]]]


def create_app(page: Page) -> Application:
    """Return the ASGI application for one run."""
    questions: dict[str, _Asked] = {
        "/adversary": page.adversary,
        "/explore": page.explore,
        "/trilateration": page.attack,
        "/city": page.city,
        "/round": page.terms,
    }
    orders: dict[str, _Ordered] = {
        "/control": page.control,
        "/upload": page.upload,
        "/letters": page.letters,
    }

    async def reply(scope: Scope, receive: Receive, send: Send) -> None:
        _check_sender(scope)
        path, method = scope["path"], scope["method"]
        if method == "POST" and path in orders:
            body = await read_body(scope, receive, limit=_BODY_LIMIT)
            await _send_document(send, 200, await orders[path](body))
        elif method not in {"GET", "HEAD"}:
            raise Problem("not-found", "this address takes no orders")
        elif path == "/events":
            await page.events(scope, receive, send)
        elif path in questions:
            await _send_document(send, 200, await questions[path](_question(scope)))
        else:
            await _send_file(path, send)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await reply(scope, receive, send)
        except (Error, Problem, msgspec.DecodeError) as error:
            await _refuse(send, error)

    return app


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


def _check_sender(scope: Scope) -> None:
    """Reject requests for another host's name, and orders that another site gives."""
    host = urlsplit(b"//" + header(scope, b"host")).hostname
    if host not in {b"127.0.0.1", b"localhost", b"::1"}:
        raise Problem("malformed", "this page answers at a loopback address only")
    site = header(scope, b"sec-fetch-site") or b"same-origin"
    if scope["method"] == "POST" and site not in {b"same-origin", b"none"}:
        raise Problem("forbidden", "only this page gives orders")


def _question(scope: Scope) -> Question:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return msgspec.convert(query, Question, strict=False)


async def _until_left(receive: Receive) -> None:
    """Wait until the browser closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_file(path: str, send: Send) -> None:
    """Send a file of the page, and none from outside its folder."""
    name = _PAGES.get(path, path.removeprefix("/static/"))
    content = None
    with suppress(OSError, ValueError):
        file = (STATIC / name.lstrip("/")).resolve()
        if name != path and file.is_relative_to(STATIC.resolve()):
            content = await asyncio.to_thread(file.read_bytes)
    if content is None:
        raise Problem("not-found", "there is no such page")
    media = guess_type(name)[0] or "application/octet-stream"
    media += "; charset=utf-8" if media.startswith("text/") else ""
    await respond(send, 200, content, media=media.encode())


async def _send_document(send: Send, status: int, document: Mapping[str, Any]) -> None:
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    await respond(send, status, raw, media=JSON.encode())


async def _refuse(send: Send, error: Exception) -> None:
    """Answer with the sentence of an error, which the page shows."""
    status = 409 if isinstance(error, Error) and not isinstance(error, Misuse) else 400
    if isinstance(error, Problem) and error.kind.name in {"forbidden", "not-found"}:
        status = error.kind.status
    await _send_document(send, status, {"sentence": str(error)})
