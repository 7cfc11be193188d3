"""Rounds under random kills, for as long as asked: `python tests/soak.py --minutes 10`.

Every process of shuffler, server and board is killed at random times while rounds run one after
the other, on SQLite and on PostgreSQL in turns. Afterwards every person is answered exactly once,
and memory and open files of processes that lived are told.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from coatcheck.errors import Error
from coatcheck.services.cluster import Cluster
from coatcheck.services.http.client import HttpClient
from postgresql import Postgres, installed
from service_rounds import MORTAL, PATIENCE, Crowd, draft

PEOPLE = 10


class Soak:
    """What has happened so far."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.kills = 0
        self.rounds = 0
        self.answers = 0
        self.unsure = 0
        self.pick = random.Random(0)  # noqa: S311 - times of kills, nothing secret

    async def trouble(self) -> None:
        """Kill a service now and then and start it again; the next only when all are ready."""
        while True:
            for name in self.cluster.names:
                await asyncio.to_thread(self.cluster.wait_until_leads, name)
            await asyncio.sleep(self.pick.uniform(0.5, 6.0))
            name = self.pick.choice(self.cluster.names)
            self.cluster.kill(name)
            self.kills += 1
            self.cluster.start(name, wait=False)

    async def round(self) -> None:
        """Run a round to its end under trouble, and check it."""
        name = f"{self.kind} {self.rounds}"
        url = await self._opened(name)
        async with HttpClient(timeout=10) as peers:
            crowd = Crowd(self.cluster, url)
            await crowd.join(peers, people=PEOPLE)
            answers = await crowd.collect()
        contacts = {answer.partners[0].contact for answer in answers}
        if len(contacts) != 2 * PEOPLE:
            raise AssertionError(f"{name}: {len(contacts)} of {2 * PEOPLE} were matched once")
        self.rounds += 1
        self.answers += len(answers)
        self.unsure += sum(not visit.ticket.receipt for visit in crowd.visits)

    async def _opened(self, name: str) -> str:
        end, plan = time.monotonic() + PATIENCE, draft(name, minimum=PEOPLE)
        while time.monotonic() < end:
            with contextlib.suppress(Error):
                return await asyncio.to_thread(
                    self.cluster.open_round, plan, closes=1, expires=3600
                )
            await asyncio.sleep(0.2)
        raise AssertionError(f"{name} did not open within {PATIENCE:g} s")

    async def run(self, seconds: float) -> None:
        """Run rounds until the time is over; each has to end, and the kills have to go on."""
        end = time.monotonic() + seconds
        trouble = asyncio.create_task(self.trouble())
        while time.monotonic() < end:
            rounds = asyncio.create_task(self.round())
            await asyncio.wait({rounds, trouble}, return_when=asyncio.FIRST_COMPLETED)
            if trouble.done():
                rounds.cancel()
                await trouble
            await rounds
        trouble.cancel()


def soak(kind: str, seconds: float, postgres: Postgres | None) -> dict[str, object]:
    """Soak one kind of store."""
    with tempfile.TemporaryDirectory(prefix="coatcheck-soak-") as folder:
        roles = ("shuffler-1", "server", "board")
        stores = {} if postgres is None else {role: postgres.database() for role in roles}
        with Cluster(Path(folder), stores=stores, extra={**MORTAL, "lease": 1.0}) as cluster:
            one = Soak(cluster, kind)
            asyncio.run(one.run(seconds))
            sizes = {name: _size(cluster.processes[name].pid) for name in cluster.names}
    return {
        "store": kind,
        "rounds": one.rounds,
        "kills": one.kills,
        "answers": one.answers,
        "answered without a receipt": one.unsure,
        "memory and files": sizes,
    }


def _size(pid: int) -> str:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return f"{pages * os.sysconf('SC_PAGE_SIZE') // 1_000_000} MB, {files} files"
    return "down"


def main() -> int:
    """Soak both stores, half of the time each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    seconds = parser.parse_args().minutes * 30
    print(json.dumps(soak("sqlite", seconds, None)), flush=True)  # noqa: T201 - the result
    if installed() is None:
        print("soak: PostgreSQL is not installed and was left out")  # noqa: T201 - the result
        return 0
    with tempfile.TemporaryDirectory(prefix="coatcheck-pg-") as folder:
        postgres = Postgres(Path(folder))
        try:
            print(json.dumps(soak("postgresql", seconds, postgres)), flush=True)  # noqa: T201
        finally:
            postgres.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
