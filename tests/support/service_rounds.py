"""Rounds with a few people over real processes, for the tests of the services."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from coatcheck.domains import Box
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.protocol.wire.messages import Answer
from coatcheck.services.documents import Offer
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient

SQUARE = Box(lo=(0.0, 0.0), hi=(1.0, 1.0)).params()
RANDOMIZER = {"name": "minkowski", "domain": SQUARE, "epsilon": 2.0, "radius": 0.5}
LIMIT = Limit(epsilon=10.0, delta=1e-3)
GROUPS = ("riders", "drivers")
SPARE = 9
"""How many people more than the minimum a cascade needs with the draft below."""
PATIENCE = 600.0
"""Seconds for what takes a moment on a quiet machine: a limit, never a time that is waited for."""
QUICK = {"tick": 0.05, "lease": 6.0, "peer_timeout": 3.0}
"""Settings of a service that looks often. No busy machine keeps it from renewing its lease."""
MORTAL = {**QUICK, "lease": 0.6}
"""For services that are killed: the lease of the dead ends soon. Only patient clients ask them, as
on a busy machine the living lose it too."""

_CERTIFICATES = httpx2.create_ssl_context()  # read once: that takes longer than to ask
get = partial(httpx2.get, timeout=PATIENCE, verify=_CERTIFICATES)
post = partial(httpx2.post, timeout=PATIENCE, verify=_CERTIFICATES)


def draft(name: str, *, minimum: int = 3, decoys: int = 0) -> dict[str, Any]:
    """Draft a round of riders and drivers."""
    group = {"randomizer": RANDOMIZER, "minimum": minimum, "delta": 1e-3, "decoys": decoys}
    return {
        "round": name,
        "task": {"name": "least-cost-matching"},
        "groups": [{"name": name, **group} for name in GROUPS],
        "trap_delta": 9.9e-4,
    }


class Crowd:
    """People who take part in a round, each with a ticket."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.url = url
        self.sessions: list[Session] = []
        self.acknowledged = 0
        self.folder = cluster.folder / f"tickets-{url[-8:]}"
        self.folder.mkdir(exist_ok=True)

    async def invitations(self, peers: HttpClient) -> tuple[Offer, list[Invitation]]:
        """Examine the terms once for each group."""
        now, trusted = int(time.time()), self.cluster.trusted
        probe = Session(self.url, path=self.folder / "none", trusted=trusted, peers=peers)
        offer = await probe.offer(patience=PATIENCE)
        return offer, [
            examine(offer.signed, group=group, trusted=trusted, limit=LIMIT, now=now)
            for group in GROUPS
        ]

    async def join(self, peers: HttpClient, *, people: int, patience: float = PATIENCE) -> None:
        """Let this many people of each group join at once; every upload is acknowledged."""
        offer, invitations = await self.invitations(peers)

        async def one(number: int, invitation: Invitation) -> Session:
            path = self.folder / f"{invitation.group_terms.name}-{number}"
            trusted = self.cluster.trusted
            session = Session(self.url, path=path, trusted=trusted, peers=peers, offer=offer)
            session.prepare(invitation, (0.25, 0.5), ledger=None)
            token = self.cluster.take_tokens()
            await session.upload(invitation.round, token=token, patience=patience)
            self.acknowledged += 1
            return session

        begun = len(self.sessions)
        self.sessions += await asyncio.gather(
            *(one(begun + n, invitation) for n in range(people) for invitation in invitations)
        )

    async def collect(self, *, patience: float = PATIENCE) -> Sequence[Answer]:
        """Let every person collect."""
        return await asyncio.gather(
            *(session.collect(patience=patience) for session in self.sessions)
        )


async def prepared(cluster: Cluster, url: str, name: str) -> Session:
    """Make a ticket without sending it."""
    async with Session(url, path=cluster.folder / name, trusted=cluster.trusted) as session:
        invitation = await session.invitation(group="riders", limit=LIMIT)
        session.prepare(invitation, (0.5, 0.5), ledger=None)
        return session


async def whole_round(cluster: Cluster, name: str, *, people: int = 4) -> Crowd:
    """Run a whole round and check that all are answered; a cascade gets a few more people."""
    spare = SPARE if len(cluster.shufflers) > 1 else 0
    url = await asyncio.to_thread(
        cluster.open_round, draft(name, minimum=people), closes=1, expires=3600
    )
    async with HttpClient() as peers:
        crowd = Crowd(cluster, url)
        await crowd.join(peers, people=people + spare)
        answers = await crowd.collect()
        assert all(len(answer.partners) == 1 for answer in answers)
        return crowd


def status(url: str) -> dict[str, Any]:
    """Return a shuffler's status of a round."""
    found: dict[str, Any] = get(url).raise_for_status().json()["status"]
    return found


def counted(url: str, cluster: Cluster) -> list[int]:
    """Return the upload counts of each group, as a shuffler shows them to its operator."""
    found = get(f"{url}/crowd", headers={"authorization": f"Bearer {cluster.token}"}).json()
    return [group["crowd"] for group in found["groups"]]


def logs(folder: Path) -> str:
    """Return all logs of the services."""
    return "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.log"))


def until(true: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)
