"""A storm over one round of real processes: kills at steps, database crashes, junk, clock steps.

Nothing here happens at a time. A kill comes when every service is ready again and people have got
further, or when a process comes to a named place; so on a slow machine a storm is only slower.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from coatcheck.errors import Error, Missing
from coatcheck.protocol import client
from coatcheck.protocol.client import Invitation
from coatcheck.protocol.log.verification import VerifiedBulletin
from coatcheck.protocol.outcomes import OUTCOMES, inconsistency
from coatcheck.protocol.ticket import Receipt
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.client import HttpClient
from support.postgresql import Postgres
from support.service_rounds import GROUPS, MORTAL, PATIENCE, SPARE, Crowd, draft, until

LATER: Final = (
    *("shuffler.close", "shuffler.closed", "shuffler.shuffle", "shuffler.release"),
    *("shuffler.released", "shuffler.deliver", "batch.receive", "batch.received"),
    *("shuffler.delivered", "server.open", "server.seal", "server.answered"),
    *("server.deliver", "board.write", "board.written", "server.delivered"),
)
"""Where processes die once everybody is in: the steps from the first close to the last answer."""
STEPS: Final = (45, 0, 20, 50)
"""Seconds by which the wall clocks are ahead after each wave: they step forth and back."""


@dataclass
class Count:
    """What happened in a storm, and how it ended for people."""

    deployment: str
    people: int
    kills: int = 0
    database_crashes: int = 0
    junk: int = 0
    junk_taken: int = 0
    clock_steps: int = 0
    answered: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    end: str = "none"

    @property
    def is_good(self) -> bool:
        """Whether every person was answered exactly once and the round's outcome is `answered`."""
        wrong = self.lost + self.doubled + self.stuck
        return not wrong and self.answered == self.people and self.end == "answered"


@contextlib.asynccontextmanager
async def nursed(cluster: Cluster) -> AsyncIterator[dict[str, int]]:
    """Restart every process that ends, as an operating system would; count how often each ended."""
    deaths = dict.fromkeys(cluster.names, 0)

    async def nurse() -> None:
        while True:
            for name in cluster.names:
                if not cluster.running(name):
                    deaths[name] += 1
                    cluster.start(name, wait=False)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(nurse())
    try:
        yield deaths
    finally:
        task.cancel()


def stores(database: Postgres | None) -> dict[str, str]:
    """Assign a database to each role; without one, SQLite in the role's folder."""
    if database is None:
        return {}
    return {name: database.database() for name in ("shuffler-1", "server", "board")}


async def open_patiently(cluster: Cluster, name: str, *, people: int) -> str:
    """Request a round until it is open, although processes die meanwhile.

    Its minimum is the whole crowd, so it closes when everybody is in and not by the time.
    """
    plan = draft(name, minimum=people)
    return await asyncio.to_thread(
        cluster.open_round, plan, closes=1, expires=6000, patience=PATIENCE
    )


async def check_everything(crowd: Crowd, people: int) -> None:
    """Check that each person is answered once, receipts hold and there is one bulletin."""
    answers = await crowd.collect()
    assert len(answers) == 2 * people
    assert all(len(answer.partners) == 1 for answer in answers)
    contacts = [answer.partners[0].contact for answer in answers]
    assert len(set(contacts)) == len(contacts)  # a matching: nobody is in it twice
    bulletin = await crowd.sessions[0].bulletin(patience=PATIENCE)
    items = people * len(crowd.cluster.shufflers)
    assert [tally.received for tally in bulletin.heading.tallies] == [items, items]
    assert [tally.kept for tally in bulletin.heading.tallies] == [people, people]
    # Who was answered while the shuffler died, and came again after the release, has none: which
    # may be everybody, if all uploads were in one commit.
    receipts = [one.ticket.receipt for one in crowd.sessions if one.ticket.receipt]
    assert len({Receipt.decode(receipt).id for receipt in receipts}) == len(receipts)


class Storm:
    """One round under trouble, on one deployment."""

    def __init__(
        self, folder: Path, *, shufflers: int, postgres: Postgres | None, people: int, seed: int = 0
    ) -> None:
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.postgres = postgres
        names = [*(f"shuffler-{n + 1}" for n in range(shufflers)), "server", "board"]
        stores = {name: postgres.database() for name in names} if postgres else {}
        self.cluster = Cluster(folder, shufflers=shufflers, stores=stores, extra=MORTAL)
        self.each = people // len(GROUPS)
        self.pick = random.Random(seed)  # noqa: S311 - whom to kill, nothing secret
        kind = "postgresql" if postgres else "sqlite"
        self.count = Count(f"{kind} {shufflers}", people)

    async def run(self, *, kills: int, crashes: int, junk: int) -> Count:
        """Run the round to its end: half of the kills during uploads, half after them."""
        with self.cluster:
            async with nursed(self.cluster) as deaths, HttpClient(timeout=30) as peers:
                spare = SPARE if len(self.cluster.shufflers) > 1 else 0
                plan = draft(f"storm {self.count.deployment}", minimum=self.each - spare)
                url = await asyncio.to_thread(
                    self.cluster.open_round, plan, closes=1, expires=6000, patience=PATIENCE
                )
                crowd = Crowd(self.cluster, url)
                await self._upload(crowd, peers, waves=kills // 2, crashes=crashes, junk=junk)
                await self._finish(crowd, peers, kills=kills - kills // 2, junk=junk)
                self.count.kills = sum(deaths.values())
        return self.count

    async def _upload(
        self, crowd: Crowd, peers: HttpClient, *, waves: int, crashes: int, junk: int
    ) -> None:
        """Let people join in waves; in each, a process dies when a few uploads are acknowledged."""
        for wave in range(waves):
            size = self.each * (wave + 1) // (waves + 1) - self.each * wave // (waves + 1)
            before = crowd.acknowledged
            joins = asyncio.create_task(crowd.join(peers, people=size))
            await self._throw(crowd, peers, junk // (waves + 1))
            await self._until(lambda: joins.done() or crowd.acknowledged > before)  # noqa: B023
            if wave < crashes:
                await self._crash()
            self.cluster.kill(self.pick.choice(self.cluster.names))
            (self.faults / "clock").write_text(str(STEPS[wave % len(STEPS)]))
            self.count.clock_steps += 1
            await joins
            await self._until(self._all_lead)
        (self.faults / "clock").unlink(missing_ok=True)

    async def _finish(self, crowd: Crowd, peers: HttpClient, *, kills: int, junk: int) -> None:
        """Let the last people join, and let processes die at the steps that follow."""
        places = self.pick.sample(LATER, kills)
        for place in places:
            (self.faults / place).touch()
        await self._throw(crowd, peers, junk - self.count.junk)
        await crowd.join(peers, people=self.each - len(crowd.sessions) // len(GROUPS))
        bulletin = await crowd.sessions[0].bulletin(patience=PATIENCE)
        self._tell(crowd, bulletin)
        # People have their answers before the server has heard that they do.
        await self._until(lambda: not any((self.faults / place).exists() for place in places))
        await self._until(self._all_lead)

    def _tell(self, crowd: Crowd, bulletin: VerifiedBulletin) -> None:
        """Count how the round ended for each person."""
        if not inconsistency(bulletin.heading, bulletin.round):
            self.count.end = OUTCOMES[bulletin.heading.outcome]
        partners: list[bytes] = []
        for session in crowd.sessions:
            try:
                (partner,) = client.collect(session.ticket, bulletin).partners
            except Missing:
                self.count.lost += 1
            except (Error, ValueError):
                self.count.stuck += 1
            else:
                partners.append(partner.contact)
        self.count.answered = len(partners)
        self.count.doubled = len(partners) - len(set(partners))
        for tally in bulletin.heading.tallies:
            self.count.doubled += max(0, tally.kept - self.each)

    async def _until(self, holds: Callable[[], bool]) -> None:
        await asyncio.to_thread(until, holds)

    def _all_lead(self) -> bool:
        return all(self.cluster.leads(name) for name in self.cluster.names)

    async def _crash(self) -> None:
        """Crash the database: PostgreSQL as a whole, SQLite with the process that commits."""
        self.count.database_crashes += 1
        if self.postgres is None:
            (self.faults / "shuffler.upload").touch()
            return
        await asyncio.to_thread(self.postgres.stop, crash=True)
        await asyncio.to_thread(self.postgres.start)

    async def _throw(self, crowd: Crowd, peers: HttpClient, count: int) -> None:
        """Send useless bytes: some are no upload, others are uploads that do not open."""
        _, invitations = await crowd.invitations(peers)
        async with httpx2.AsyncClient(timeout=30) as http:
            for _ in range(count):
                number = self.count.junk
                raw = useless(invitations[number % len(GROUPS)], kind=number % 4)
                self.count.junk_taken += await _sent(http, f"{crowd.url}/uploads", raw) == 201
                self.count.junk += 1


async def _sent(http: httpx2.AsyncClient, url: str, raw: bytes) -> int:
    """Send bytes until a process answers; return the status."""
    while True:
        with contextlib.suppress(httpx2.HTTPError):
            status = (await http.post(url, content=raw)).status_code
            if status not in {425, 429, 500, 503}:
                return status
        await asyncio.sleep(0.1)


def useless(invitation: Invitation, *, kind: int) -> bytes:
    """Return bytes that are no valid report."""
    raw = invitation.join((0.5, 0.5), ledger=None).upload
    if kind == 0:
        return raw[:-1]  # another size
    if kind == 1:
        return raw[:4] + bytes(32) + raw[36:]  # of no round
    return raw[:36] + bytes([raw[36] ^ 1]) + raw[37:]  # layers of another id, which do not open
