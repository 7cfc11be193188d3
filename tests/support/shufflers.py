"""A shuffler without a socket, for tests that move its clocks, break its store or look inside."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from coatcheck.protocol.agreement import countersign, read_signed, verify_signatures, write_signed
from coatcheck.protocol.client import Invitation, examine
from coatcheck.protocol.keys import SecretKeys, read_keys
from coatcheck.services.clock import Clock
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.server.drafts import draft as drafted
from coatcheck.services.settings import ServerSettings, ShufflerSettings, read_settings
from coatcheck.services.shuffler.admission import Admission
from coatcheck.services.shuffler.rounds import ShufflerLiveRound
from coatcheck.services.shuffler.routes import Abandonment, ShufflerService
from coatcheck.services.web.connections import Message
from support.service_rounds import LIMIT, draft


class LoneShuffler:
    """A shuffler without a socket, whose clocks a test moves, and people with tickets."""

    def __init__(
        self,
        folder: Path,
        *,
        minimum: int,
        admission: Admission | None = None,
        plan: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.start = self.wall = float(int(time.time()))
        self.steady = 0.0
        # A lease that outlasts every test, for nobody renews it.
        lasting = {"lease": 10_000.0}
        local = Cluster(folder, stores={"shuffler-1": "memory:"}, extra=lasting)
        config = folder / "shuffler-1.toml"
        settings = read_settings(config, role="shuffler", kind=ShufflerSettings)
        self.service = ShufflerService(settings)
        self.service.admission = admission or self.service.admission
        self.service.clock = Clock(wall=lambda: self.wall, steady=lambda: self.steady)
        self.signed = self.terms(folder, minimum)
        self.round = verify_signatures(read_signed(self.signed))
        self.invitations = [self._invite(one.name, local) for one in self.round.terms.groups]

    def terms(
        self, folder: Path, minimum: int, *, name: str = "times", other: SecretKeys | None = None
    ) -> bytes:
        """Sign terms as every party, with another party's sealing key if one is given.

        No shuffler of ours would sign such terms; one of an earlier version would.
        """
        server = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        keys = read_keys(folder / "shuffler-1.key")
        public, pairs = keys.public, keys.pairs
        if other is not None:
            public, pairs.opening = (
                replace(public, sealing=other.public.sealing),
                other.pairs.opening,
            )
        board = read_keys(folder / "board.key").public
        self.service.url = "http://127.0.0.1:1"
        now = int(self.start)
        raw = drafted(
            server,
            self.plan or draft(name, minimum=minimum),
            (now, now + 100, now + 1000),
            url="http://127.0.0.1:2",
            shufflers=[
                replace(public, url=self.service.url).shuffler(self.service.admission.terms)
            ],
            board=replace(board, url="http://127.0.0.1:3").notary,
        )
        return write_signed(countersign(read_signed(raw), keys=pairs, pledged={}))

    def _invite(self, group: str, local: Cluster) -> Invitation:
        signed, now = read_signed(self.signed), int(self.start)
        return examine(signed, group=group, trusted=local.trusted, limit=LIMIT, now=now)

    @property
    def live(self) -> ShufflerLiveRound:
        """The round as the shuffler holds it."""
        return self.service.rounds[self.round.digest]

    async def upload(self, people: int) -> list[int]:
        """Let people of both groups upload; return the statuses."""
        return [
            await self.post(invitation.join((0.5, 0.5), ledger=None).upload)
            for _ in range(people)
            for invitation in self.invitations
        ]

    async def post(self, raw: bytes, *, token: bytes = b"") -> int:
        """Send bytes as an upload; return the status."""
        return (await self.ask(raw, token=token))[0]

    async def ask(self, raw: bytes, *, token: bytes = b"") -> tuple[int, bytes]:
        """Send bytes as an upload; return the status and the body."""
        shown = {"coatcheck-token": token.decode()} if token else {}
        status, _, body = await self.exchange(raw, shown)
        return status, body

    async def exchange(
        self, raw: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send bytes as an upload; return the status, the headers and the body."""
        path = f"/rounds/{self.round.digest.hex()}/uploads"
        lines = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": "POST", "path": path, "headers": lines}
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)

        await self.service(scope, receive, send)
        told = {name.decode(): value.decode() for name, value in said[0]["headers"]}
        return said[0]["status"], told, b"".join(message.get("body", b"") for message in said)

    async def abandon(self) -> None:
        """Abandon the round, as its operator does."""
        await self.service.abandon(self.round.digest.hex(), Abandonment(sure=True))

    async def wait(self, seconds: float, *, step: float = 0.0) -> str:
        """Let time pass (and the wall clock step), run a tick and return the phase."""
        self.steady += seconds
        self.wall += seconds + step
        await self.service.refresh()
        # Delivery fails, for there is no server here: the phase is what counts.
        await self.service.advance(self.live)
        return self.live.stored.phase.value


@asynccontextmanager
async def lone_shuffler(
    folder: Path, *, minimum: int = 3, admission: Admission | None = None
) -> AsyncIterator[LoneShuffler]:
    """Run a shuffler with one open round."""
    lone = LoneShuffler(folder, minimum=minimum, admission=admission)
    await lone.service.leadership.renew()
    await lone.service.open_round(lone.round.digest.hex(), read_signed(lone.signed))
    writer = asyncio.create_task(lone.service.commits.run())
    try:
        yield lone
    finally:
        writer.cancel()
        await lone.service.peers.close()
