"""When a round closes: by time and crowd, once, whatever the system's clock does."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coatcheck.agreement import countersign, read_signed, settle, write_signed
from coatcheck.client import Invitation, examine
from coatcheck.keyfiles import read_keys
from coatcheck.services.clock import Clock
from coatcheck.services.local import Local
from coatcheck.services.server_jobs import draft as drafted
from coatcheck.services.settings import ServerSettings, ShufflerSettings, read_settings
from coatcheck.services.shuffler import Live, ShufflerService
from coatcheck.services.wire import Message
from coatcheck.stores.memory import MemoryShuffler
from evenings import LIMIT, draft


class Stage:
    """A shuffler without a socket, whose clocks a test moves, and people with tickets."""

    def __init__(self, folder: Path, *, minimum: int) -> None:
        self.start = self.wall = float(int(time.time()))
        self.steady = 0.0
        local = Local(folder, stores={"shuffler-1": "memory:"})
        config = folder / "shuffler-1.toml"
        settings = read_settings(config, role="shuffler", kind=ShufflerSettings)
        clock = Clock(wall=lambda: self.wall, steady=lambda: self.steady)
        self.service = ShufflerService(settings, store=MemoryShuffler(), clock=clock)
        self.signed = self._terms(folder, minimum)
        self.round = settle(read_signed(self.signed))
        self.invitations = [self._invite(group, local) for group in ("riders", "drivers")]

    def _terms(self, folder: Path, minimum: int) -> bytes:
        server = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        keys = read_keys(folder / "shuffler-1.key")
        board = read_keys(folder / "board.key").public
        now = int(self.start)
        times = (now, now + 100, now + 1000)
        raw = drafted(server, draft("times", minimum=minimum), times, [keys.public], board)
        return write_signed(countersign(read_signed(raw), keys=keys.pairs, pledged={}))

    def _invite(self, group: str, local: Local) -> Invitation:
        signed, now = read_signed(self.signed), int(self.start)
        return examine(signed, group=group, trusted=local.trusted, limit=LIMIT, now=now)

    @property
    def live(self) -> Live:
        """The round as the shuffler holds it."""
        return self.service.rounds[self.round.digest]

    async def upload(self, people: int) -> list[int]:
        """Let people of both groups upload; the statuses they got."""
        return [
            await self._post(invitation.join((0.5, 0.5), ledger=None).upload)
            for _ in range(people)
            for invitation in self.invitations
        ]

    async def _post(self, raw: bytes) -> int:
        path = f"/rounds/{self.round.digest.hex()}/uploads"
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)

        await self.service.frame(scope, receive, send)
        status: int = said[0]["status"]
        return status

    async def wait(self, seconds: float, *, step: float = 0.0) -> str:
        """Let time pass (and the wall's clock step), let the shuffler look, and give the phase."""
        self.steady += seconds
        self.wall += seconds + step
        await self.service.refresh()
        # Delivery fails, for there is no server here: the phase is what counts.
        await self.service.advance(self.live)
        return self.live.stored.phase


@asynccontextmanager
async def staged(folder: Path, *, minimum: int = 3) -> AsyncIterator[Stage]:
    """Run a stage."""
    stage = Stage(folder, minimum=minimum)
    await stage.service.frame.leadership.renew()
    await stage.service.open(stage.round.digest, stage.signed)
    writer = asyncio.create_task(stage.service.commits.run())
    try:
        yield stage
    finally:
        writer.cancel()
        await stage.service.peers.close()


def test_a_full_round_waits_for_its_time(tmp_path: Path) -> None:
    """With its crowd there a round is released at its time, not before."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            assert set(await stage.upload(3)) == {201}
            assert await stage.wait(99) == "open"
            assert await stage.wait(1) == "released"
            assert set(await stage.upload(1)) == {409}

    asyncio.run(whole())


def test_a_small_round_extends_until_its_crowd_is_there(tmp_path: Path) -> None:
    """Past its time a round goes on taking uploads, and is released as soon as it is full."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            assert await stage.wait(500) == "open"
            assert set(await stage.upload(1)) == {201}
            assert await stage.wait(0) == "released"

    asyncio.run(whole())


def test_a_round_that_stays_small_is_abandoned(tmp_path: Path) -> None:
    """At its end nothing is released, and the store has forgotten every upload."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            assert await stage.wait(999) == "open"
            assert await stage.wait(1) == "abandoned"
            assert stage.service.store.parcels(stage.round.digest) == []
            assert stage.live.stored.secret == bytes(32)

    asyncio.run(whole())


def test_steps_of_the_clock_close_a_round_once(tmp_path: Path) -> None:
    """Ten minutes forward do not close it early, ten back do not open it again."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(3)
            assert await stage.wait(10, step=600) == "open"
            assert await stage.wait(10, step=-600) == "open"
            assert await stage.wait(80) == "released"
            batch = stage.service.store.batch(stage.round.digest)
            assert await stage.wait(10, step=-600) == "released"
            assert await stage.wait(1000) == "released"
            assert stage.service.store.batch(stage.round.digest) == batch

    asyncio.run(whole())


def test_reports_that_do_not_open_do_not_make_a_crowd(tmp_path: Path) -> None:
    """A round that is full only with garbage is not released; with more people it is."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            for invitation in stage.invitations:
                raw = invitation.join((0.5, 0.5), ledger=None).upload
                assert await stage._post(raw[:-1] + bytes([raw[-1] ^ 1])) == 201
            assert await stage.wait(100) == "open"
            assert await stage.wait(1) == "open"
            assert set(await stage.upload(1)) == {201}
            assert await stage.wait(1) == "released"

    asyncio.run(whole())
