"""A whole deployment in one process; tests move its one clock and cut its connections."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from coatcheck.protocol.agreement import AgreedTerms, read_signed, verify_signatures
from coatcheck.protocol.board import NotShown
from coatcheck.protocol.client import Invitation, examine
from coatcheck.protocol.outcomes import outcome_due
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import Heading
from coatcheck.services.board.routes import BoardService
from coatcheck.services.clock import Clock
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.server.routes import Proposal, ServerService
from coatcheck.services.settings import (
    BoardSettings,
    ServerSettings,
    ShufflerSettings,
    read_settings,
)
from coatcheck.services.shuffler.routes import ShufflerService
from coatcheck.services.web.client import HttpClient
from support.service_rounds import GROUPS, LIMIT, SPARE, draft

if TYPE_CHECKING:
    from coatcheck.services.rounds import RoundService

CLOSES, EXPIRES, GRACE = 100, 400, 300


class Links(httpx2.AsyncBaseTransport):
    """The connections to all services, by name."""

    def __init__(self, links: dict[str, "Link"]) -> None:
        self._links = links

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass a request on to the service that it names."""
        return await self._links[request.url.host].handle_async_request(request)


class Link(httpx2.ASGITransport):
    """The connection to one service, which a test may cut."""

    cut = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass a request on unless the connection is cut."""
        if self.cut:
            raise httpx2.ConnectError("nobody answers")
        return await super().handle_async_request(request)


class Clockwork:
    """Shufflers, server and board without sockets; time passes only when a test says so.

    Attributes:
        services: by their names; one that is `dead` does nothing and answers nobody.
        off: by how many seconds a service's wall clock is wrong.
    """

    def __init__(self, folder: Path, *, shufflers: int) -> None:
        self.folder = folder
        self.start = self.wall = float(int(time.time()))
        self.steady = 0.0
        names = [*(f"shuffler-{n + 1}" for n in range(shufflers)), "server", "board"]
        stores = dict.fromkeys(names, "memory:")
        # A lease that outlasts every test, for nobody renews it.
        self.local = Cluster(folder, shufflers=shufflers, stores=stores, extra={"lease": 10_000.0})
        for name in names:
            (folder / f"{name}.address").write_text(f"https://{name}")
        self.rounds: dict[str, RoundService[Any, Any, Any]] = {}
        for name in names[:-2]:
            settings = read_settings(
                folder / f"{name}.toml", role="shuffler", kind=ShufflerSettings
            )
            self.rounds[name] = ShufflerService(settings)
        of_server = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        self.server = self.rounds["server"] = ServerService(of_server)
        of_board = read_settings(folder / "board.toml", role="board", kind=BoardSettings)
        self.board = BoardService(of_board)
        self.links = {name: Link(app=service) for name, service in self.services.items()}
        self.dead: set[str] = set()
        self.off: dict[str, float] = {}
        self.peers = HttpClient()
        self.peers._http = httpx2.AsyncClient(transport=Links(self.links))
        for service in self.rounds.values():
            service.peers = self.peers
            service.workers.run = asyncio.to_thread  # type: ignore[method-assign, assignment]
        for name, each in self.services.items():
            each.take_url(f"https://{name}")
            each.clock = Clock(wall=partial(self.shown_by, name), steady=lambda: self.steady)

    def shown_by(self, name: str) -> float:
        """Return the time that a service's wall clock shows."""
        return self.wall + self.off.get(name, 0.0)

    @property
    def services(self) -> dict[str, Any]:
        """Return every service by its name."""
        return {**self.rounds, "board": self.board}

    def kill(self, *names: str) -> None:
        """Stop services for good."""
        self.dead.update(names)
        for name in names:
            self.links[name].cut = True

    async def open(self, *, minimum: int = 3) -> None:
        """Open a round at every role."""
        plan = {**draft("clockwork", minimum=minimum), "grace": GRACE}
        now = int(self.wall)
        times = {"opens": now, "closes": now + CLOSES, "expires": now + EXPIRES}
        status = await self.server.propose(Proposal(draft=plan, **times))
        assert status.opened
        self.digest = bytes.fromhex(status.digest)
        self.signed = read_signed(self.server.rounds[self.digest].stored.signed)
        self.round: AgreedTerms = verify_signatures(self.signed)

    def invite(self, group: str) -> Invitation:
        """Examine the terms and return the invitation."""
        now, trusted = int(self.start), self.local.trusted
        return examine(self.signed, group=group, trusted=trusted, limit=LIMIT, now=now)

    async def join(self, people: int) -> list[Ticket]:
        """Let this many people of each group upload a report; a cascade gets a few more people."""
        tickets = []
        people += SPARE if len(self.round.terms.shufflers) > 1 else 0
        for invitation in [self.invite(group) for group in GROUPS] * people:
            ticket = invitation.join((0.25, 0.5), ledger=None)
            for hop, raw in reversed([*enumerate((ticket.upload, *ticket.registrations))]):
                assert await self.send(raw, hop=hop) == 201
            tickets.append(ticket)
        return tickets

    async def send(self, raw: bytes, *, hop: int) -> int:
        """Send an upload or a registration with a token of its own; return the status."""
        token = self.local.take_tokens().split(",")[hop]
        url = f"https://shuffler-{hop + 1}/rounds/{self.digest.hex()}/uploads"
        async with httpx2.AsyncClient(transport=Links(self.links)) as http:
            headers = {"coatcheck-token": token}
            return (await http.post(url, content=raw, headers=headers)).status_code

    async def until(self, second: float, *, step: float = 60.0) -> None:
        """Move time up to this many seconds after the start, with ticks in between."""
        while self.wall < self.start + second:
            passed = min(step, self.start + second - self.wall)
            self.wall += passed
            self.steady += passed
            await self.look()

    async def look(self) -> None:
        """Run the ticks of every service until nothing more happens."""
        before = None
        while before != (before := self.phases()):
            for name, service in self.rounds.items():
                if name not in self.dead:
                    await service.refresh()
                    for live in list(service.rounds.values()):
                        await service.advance(live)

    def phases(self) -> dict[str, str]:
        """Return the round's phase at each living role that has it."""
        return {
            name: service.rounds[self.digest].stored.phase.value
            for name, service in self.rounds.items()
            if name not in self.dead and self.digest in service.rounds
        }

    def end(self) -> Heading | None:
        """Return the round's outcome on the board."""
        try:
            return Heading.decode(self.board.read_snapshot(lambda log: log.heading(self.digest)))
        except NotShown:
            return None

    @property
    def due(self) -> float:
        """Return the seconds from the start until the round's outcome is due."""
        return outcome_due(self.round) - self.start


@asynccontextmanager
async def clockwork(folder: Path, *, shufflers: int = 1) -> AsyncIterator[Clockwork]:
    """Run a deployment."""
    works = Clockwork(folder, shufflers=shufflers)
    writers = []
    for service in works.services.values():
        await service.leadership.renew()
        if hasattr(service, "commits"):
            writers.append(asyncio.create_task(service.commits.run()))
    try:
        yield works
    finally:
        for writer in writers:
            writer.cancel()
        await works.peers.close()
