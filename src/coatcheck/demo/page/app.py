"""The page's ASGI application, and the questions that it answers.

It serves static files, a stream of events, questions (GET) and orders (POST) of one run, on
loopback. The events hold everybody's places, so it answers to loopback names only, and a strict
policy lets the browser load nothing from elsewhere, except from a tile server if one is given.
People in browsers reach the services through the relay, and send the page a copy to show. A round
begins when the viewer starts it, and another one when the viewer asks for it.

    >>> figures = answer(crowd=500, epsilon=1.0, share=0.0)
    >>> figures["designs"][0]["error"] < figures["blind"]
    True
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
"""Headers of every answer: the page connects to itself, the relay, and a tile server if given."""


class Question(msgspec.Struct):
    """The query of a question."""

    adversary: str = "server"
    group: int = 0
    people: int = 0
    crowd: int = 0
    epsilon: float = 0.0
    share: float = 0.0


class Order(msgspec.Struct):
    """An order: play at a speed, pause, take a step, or begin another round."""

    do: Literal["play", "pause", "step", "again"]
    speed: Annotated[float, msgspec.Meta(ge=0.1, le=1000)] | None = None


class Page:
    """The questions and orders of one run.

    Attributes:
        wanted: set when the viewer asks for another round.
        tiles: the URL of map tiles with {z}, {x} and {y}; empty for the city's streets.
    """

    def __init__(self, run: Run, history: History, pace: Pace, *, tiles: str = "") -> None:
        self.run, self.history, self.pace, self.tiles = run, history, pace, tiles
        self.wanted = asyncio.Event()
        self._planning, self._attacking = asyncio.Lock(), asyncio.Lock()
        self._attack: dict[str, Any] = {}

    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream all entries of the history, past and future, as server-sent events."""
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

    async def _stream(self, first: int, left: "asyncio.Task[None]") -> AsyncIterator[bytes]:
        pace = dict[str, Any]()
        while not left.done():
            if pace != (pace := self._current_pace()):
                yield f"event: pace\ndata: {json.dumps(pace)}\n\n".encode()
            entries = await self.history.wait(first, seconds=0.5)
            for number, entry in entries:
                data = json.dumps(entry, separators=(",", ":"))
                yield f"id: {number}\ndata: {data}\n\n".encode()
                first = number + 1
            if not entries:
                yield b": still here\n\n"

    def _current_pace(self) -> dict[str, Any]:
        return {"playing": self.pace.playing, "speed": self.pace.speed}

    async def control(self, body: bytes) -> dict[str, Any]:
        """Play, pause, take a step of the run, or begin another round after this one."""
        order, pace = msgspec.json.decode(body, type=Order), self.pace
        if order.do == "play":
            pace.play(speed=order.speed or pace.speed)
        elif order.do == "pause":
            pace.pause()
        elif order.do == "step":
            pace.step()
        else:
            self.wanted.set()
            pace.play(speed=_HURRY)  # through the rest of this round
        self.history.wake()
        return self._current_pace()

    async def rounds(self, served: Served) -> None:
        """Run one round after another; the page shows the message of an error that ends them."""
        run, speed = self.run, self.pace.speed
        while True:
            self.pace.play(speed=speed)
            self.pace.pause()
            self.history.wake()
            try:
                await run.complete()
                service = await asyncio.to_thread(served, run)
                # msgspec writes what was not measured, NaN, as null; JSON has no NaN.
                document = msgspec.json.decode(msgspec.json.encode(service))
                self.history.add("served", service=document)
                await self.wanted.wait()
                self.wanted.clear()
                self.history.begin()
                await run.again(run.scenario.next_round())
            except Error as error:
                self.history.add("failed", sentence=str(error))
                return

    async def attack(self, _: Question) -> dict[str, Any]:
        """Return the trilaterator's attack, with places as shares of the map."""
        async with self._attacking:
            if not self._attack:
                story = await asyncio.to_thread(trilateration, self.run.scenario)
                self._attack = on_map(story, self.run.scenario.box)
        return self._attack

    async def city(self, _: Question) -> dict[str, Any]:
        """Return the map: the streets of the demo's city, or the URL of tiles."""
        box = self.run.scenario.box
        drawing = streets() if box == CITY and not self.tiles else {}
        corners = [] if box is None else [box.lo, box.hi]
        return {**drawing, "tiles": self.tiles, "corners": corners}

    async def adversary(self, question: Question) -> dict[str, Any]:
        """Return what an adversary sees and the guarantee that holds against it."""
        run = self.run
        return await asyncio.to_thread(
            against,
            question.adversary,
            run.scenario.drafts,
            task=run.scenario.task,
            group=question.group,
            people=question.people,
            partners={person: run.known_partners(person) for person in list(run.answers)},
        )

    async def explore(self, question: Question) -> dict[str, Any]:
        """Return the exact plan for the positions of the sliders."""
        sliders = {"crowd": question.crowd, "epsilon": question.epsilon, "share": question.share}
        async with self._planning:
            return await asyncio.to_thread(answer, **sliders)

    async def terms(self, _: Question) -> dict[str, Any]:
        """Return the terms, a relay, and the keys that people would know from elsewhere."""
        run = self.run
        signed, trusted = msgspec.to_builtins(run.signed), run.cluster.trusted.plain()
        relay = run.cluster.url("relay")
        return {"signed": signed, "trusted": trusted, "relay": relay}

    async def upload(self, body: bytes) -> dict[str, Any]:
        """Store a copy of an upload that a browser sent to the relay, to count and show it."""
        self.run.note(body)
        return {}

    async def letters(self, body: bytes) -> dict[str, Any]:
        """Let the recipient of a letter that a browser has posted read it."""
        run = self.run
        reader = run.person_at(Posting.decode(body, run.round).recipient)
        if reader is not None:
            await run.read_letters(reader)
        return {}


Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_AnswerQuestion = Callable[[Question], Awaitable[dict[str, Any]]]
_ObeyOrder = Callable[[bytes], Awaitable[dict[str, Any]]]


def create_app(page: Page) -> Application:
    """Return the ASGI application for one run."""
    questions: dict[str, _AnswerQuestion] = {
        "/adversary": page.adversary,
        "/explore": page.explore,
        "/trilateration": page.attack,
        "/city": page.city,
        "/round": page.terms,
    }
    orders: dict[str, _ObeyOrder] = {
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
            raise Problem("not-found", "this path takes no orders")
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
    """Run a scenario and serve its page until it is cancelled.

    Args:
        scenario: the scenario.
        cluster: the services on which it runs.
        announce: called with the address of the page and the run.
        served: measures at the end of a round how well people were served.
        port: the port of the page; 0 for any free port.
        speed: how fast people join.
        tiles: the URL of map tiles with {z}, {x} and {y}; empty for the city's streets.
    """
    history, pace, headers = History(), Pace(speed=speed), policy(tiles)
    with bind(f"127.0.0.1:{port}") as listener:
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
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            announce(f"http://127.0.0.1:{listener.getsockname()[1]}", run)
            try:
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
                for task in live:
                    task.cancel()
                await asyncio.gather(serving, *live, return_exceptions=True)


def policy(tiles: str) -> dict[str, str]:
    """Return the headers of the page; they let the browser fetch only tiles from elsewhere."""
    url = urlsplit(tiles)
    if tiles and (url.scheme not in {"http", "https"} or not all(map(tiles.count, _PARTS))):
        example = f"https://HOST/{'/'.join(_PARTS)}.png"
        raise Misuse(f"`--tiles` must be an address such as {example}, got {tiles!r}")
    allowed = f" {url.scheme}://{url.netloc}" if tiles else ""
    return {name: text.replace("TILES", allowed) for name, text in _HEADERS.items()}


def _check_sender(scope: Scope) -> None:
    """Reject requests for another host's name, and orders from another site."""
    host = urlsplit(b"//" + header(scope, b"host")).hostname
    if host not in {b"127.0.0.1", b"localhost", b"::1"}:
        raise Problem("malformed", "this page answers at a loopback address only")
    site = header(scope, b"sec-fetch-site") or b"same-origin"
    if scope["method"] == "POST" and site not in {b"same-origin", b"none"}:
        raise Problem("forbidden", "only this page may give orders")


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
    """Answer with the message of an error, which the page shows."""
    status = 409 if isinstance(error, Error) and not isinstance(error, Misuse) else 400
    if isinstance(error, Problem) and error.kind.name in {"forbidden", "not-found"}:
        status = error.kind.status
    await _send_document(send, status, {"sentence": str(error)})


# -- the explorer: what an ε and a crowd buy, computed by the planner. A precomputed table answers
# while a slider moves, and `answer` gives the exact figures when it is released. The explorer sees
# no person and no round. `python -m coatcheck.demo.page.app` writes the table again.

DELTA: Final = 1e-6
CROWDS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
EPSILONS: Final = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
MECHANISMS: Final = ("minkowski", "bounded", "grid")
FIRST: Final = (4_000, 1.0, 0.01)
"""The positions of the sliders when the page is opened."""
TABLE: Final = Path(__file__).parent / "static" / "explorer.json"


@lru_cache(maxsize=256)
def answer(*, crowd: int, epsilon: float, share: float) -> dict[str, Any]:
    """Plan one group on the city: every mechanism at its best, the least error first.

    Args:
        crowd: the minimum crowd of a release.
        epsilon: the ε promised to everybody, at δ = 1e-6.
        share: the share of the crowd that may work for the server.
    """
    if not 2 <= crowd <= 1_000_000:
        raise Misuse(f"`crowd` must be from 2 to 1,000,000, got {crowd:,}")
    if not 0.05 <= epsilon <= 8:
        raise Misuse(f"`epsilon` must be from 0.05 to 8, got {epsilon:g}")
    if not 0 <= share <= 0.5:
        raise Misuse(f"`share` must be from 0 to 0.5, got {share:g}")
    corrupted = math.floor(share * crowd)
    groups = {"people": Group(CITY, crowd=crowd, corrupted=corrupted)}
    planned = plan(groups, epsilon=epsilon, delta=DELTA)
    people = planned["people"]
    return {
        "crowd": crowd,
        "corrupted": corrupted,
        "epsilon": epsilon,
        "delta": DELTA,
        "blind": people.best.report_free,
        "designs": [
            design.plain() for design in people.designs if design.randomizer.name in MECHANISMS
        ],
        "plan": str(planned),
        "promise": str(people.best.guarantee),
        "command": _command(crowd, epsilon, corrupted),
        "python": _python(crowd, epsilon, corrupted),
    }


def warm() -> None:
    """Compute the first answer before the viewer asks for it."""
    crowd, epsilon, share = FIRST
    answer(crowd=crowd, epsilon=epsilon, share=share)


def table() -> dict[str, Any]:
    """Compute the answers between which the page interpolates, to four digits."""

    def cells(figure: str) -> list[list[list[float]]]:
        return [
            [[float(f"{by[name][figure]:.4g}") for name in MECHANISMS] for by in line]
            for line in rows
        ]

    answers = [
        [answer(crowd=n, epsilon=epsilon, share=0.0) for epsilon in EPSILONS] for n in CROWDS
    ]
    rows = [
        [{design["mechanism"]: design for design in cell["designs"]} for cell in line]
        for line in answers
    ]
    return {
        "crowds": CROWDS,
        "epsilons": EPSILONS,
        "mechanisms": MECHANISMS,
        "delta": DELTA,
        "blind": answers[0][0]["blind"],
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


# -- adversaries: what each of them sees of a round, and the guarantee that holds against it. Every
# figure comes from the accountant, for the crowd of the round on the page. THREATS.md.

ADVERSARIES: Final = ("server", "server-and-people", "onlooker", "shuffler", "relay", "witness")


def corrupted(sizes: Sequence[int], count: int) -> list[Person]:
    """Return `count` corrupted people: the groups in turn, the last person of each first."""
    if not 0 <= count <= sum(sizes) - len(sizes):
        raise Misuse(
            f"`people` must be from 0 to {sum(sizes) - len(sizes)}, one fewer than each group has,"
            f" got {count}"
        )
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
    """Return the guarantee for an honest member of a group against an adversary."""
    if name not in ADVERSARIES:
        raise Misuse(f"`adversary` must be one of {', '.join(ADVERSARIES)}, got {name!r}")
    if not 0 <= group < len(groups):
        raise Misuse(f"`group` must be from 0 to {len(groups) - 1}, got {group}")
    if name in _BLIND:
        return _result(name, epsilon=0.0, sentence=_BLIND[name], plain=_NOTHING)
    terms, sizes = groups[group], [other.minimum for other in groups]
    if name == "shuffler":
        local = terms.randomizer.epsilon_spent
        sentence = _SHUFFLER.format(local=local)
        return _result(name, epsilon=0.0, sentence=sentence, plain=_NOTHING, colluding=local)
    bad = corrupted(sizes, people if name == "server-and-people" else 0)
    counts = [sum(1 for g, _ in bad if g == number) for number in range(len(sizes))]
    exposed = tasks.exposure(task, sizes=sizes, corrupted=counts)[group]
    guarantee = amplify(
        terms.randomizer.law,
        crowd=terms.minimum,
        delta=terms.delta,
        corrupted=counts[group],
        exposed=min(exposed, terms.minimum - counts[group] - 1),
    )
    named = {p for person in bad for p in (partners or {}).get(person, ())} - set(bad)
    return _result(
        name,
        epsilon=guarantee.epsilon,
        sentence=str(guarantee),
        plain=plain_promise(epsilon=guarantee.epsilon, delta=guarantee.delta),
        delta=guarantee.delta,
        anonymous=guarantee.anonymous,
        corrupted=bad,
        exposed=sorted(named),
    )


_NOTHING: Final = "it learns nothing of any value (ε = 0), as long as the seals hold"
_BLIND: Final = {
    "onlooker": (
        "An onlooker, who only reads the board, sees addresses, sealed answers of one size and"
        " sealed letters: ε = 0 for every value, as long as the seals (HPKE) hold. The number of"
        " people is public."
    ),
    "relay": (
        "The relay sees network addresses, and when each of them sends a request to which role;"
        " every message is sealed to a role and has one size: ε = 0 for every value. Together with"
        " the board it knows which network address wrote which letter and fetched which entry; it"
        " cannot open either."
    ),
    "witness": (
        "The witness sees the size and the root of the board's log, 32 bytes, and cosigns them if"
        " the log only grew: ε = 0 for every value. It never sees an entry."
    ),
}
_SHUFFLER: Final = (
    "The shuffler knows who sends an upload, and all uploads look alike: ε = 0 for every value,"
    " as long as the seals (HPKE) hold and it does not work with the server. If it does, the"
    " crowd hides nobody and only a person's own noise is left: ε = {local:.4g}, the local one."
)


def _result(name: str, **figures: Any) -> dict[str, Any]:
    return {"adversary": name, "delta": 0.0, "corrupted": [], "exposed": [], **figures}


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), separators=(",", ":")) + "\n")
