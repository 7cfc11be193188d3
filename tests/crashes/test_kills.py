"""Kill -9 at every step of a round and at random times: nothing is lost or doubled."""

import asyncio
import contextlib
import random
import re
from pathlib import Path

import httpx2
import pytest

from coatcheck.errors import Error, Refused
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.client import HttpClient, ask
from support.postgresql import Postgres
from support.service_rounds import (
    MORTAL,
    PATIENCE,
    QUICK,
    SPARE,
    Crowd,
    counted,
    draft,
    get,
    post,
    status,
    until,
)
from support.storm import check_everything, nursed, open_patiently, stores

pytestmark = pytest.mark.service

_SOURCE = Path(__file__).parents[2] / "src" / "coatcheck" / "services"
PLACES = tuple(
    sorted(
        {
            place
            for file in _SOURCE.rglob("*.py")
            for name in re.findall(r'\breach\(f?"([^"]+)"\)', file.read_text())
            for place in {name.replace("{self.role}", role) for role in ("shuffler", "server")}
        }
    )
)


ROUNDS = 8  # at most so many until every place was reached


async def check_abandoned(cluster: Cluster, name: str, peers: HttpClient) -> None:
    """Check that a round which its operator abandons has a signed outcome despite crashes."""
    url = await open_patiently(cluster, name, people=5)
    crowd = Crowd(cluster, url)
    await crowd.join(peers, people=1)

    def is_abandoned() -> bool:
        with contextlib.suppress(Error):
            ask("POST", f"{url}/abandonment", body={"sure": True}, token=cluster.token)
        with contextlib.suppress(httpx2.HTTPError, KeyError):
            return status(url)["phase"] in {"abandoned", "ended"}
        return False

    await asyncio.to_thread(until, is_abandoned)
    with pytest.raises(Refused, match="'shuffler-1' abandoned the round: its operator ended it"):
        await crowd.sessions[0].collect(patience=PATIENCE)


def test_every_step_survives_a_kill(database: Postgres | None, tmp_path: Path) -> None:
    """Each named step ends its process once, and the round still completes."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for place in PLACES:
        (faults / place).touch()

    async def whole() -> None:
        with Cluster(tmp_path, stores=stores(database), extra=MORTAL) as cluster:
            async with nursed(cluster) as deaths:
                # One round may miss a place: when one commit takes all uploads and dies after it,
                # nobody is left to acknowledge. The next round comes to what is left.
                for number in range(ROUNDS):
                    url = await open_patiently(cluster, f"steps-{number}", people=5)
                    peers = HttpClient(timeout=10)
                    crowd = Crowd(cluster, url)
                    await crowd.join(peers, people=5)
                    await check_everything(crowd, people=5)
                    await check_abandoned(cluster, f"few-{number}", peers)
                    await peers.close()
                    # People have their answers before the server has heard that they do.
                    with contextlib.suppress(AssertionError):
                        await asyncio.to_thread(until, lambda: not any(faults.iterdir()), seconds=5)
                    if not (left := {file.name for file in faults.iterdir()}):
                        break
                assert not left, f"no process came to {left}"
                # Two threads of a process may each come to a place at once, and die one death.
                assert 1 <= sum(deaths.values()) <= len(PLACES)

    assert len(PLACES) >= 20
    asyncio.run(whole())


def test_uploads_survive_kills_at_random_times(database: Postgres | None, tmp_path: Path) -> None:
    """The shuffler dies five times during uploads: each acknowledged person is counted once."""
    pick = random.Random(6)  # noqa: S311 - times of kills, nothing secret

    async def whole() -> None:
        with Cluster(tmp_path, stores=stores(database), extra=MORTAL) as cluster:
            async with nursed(cluster) as deaths:
                url = await open_patiently(cluster, "storm", people=50)
                peers = HttpClient(timeout=5)
                crowd = Crowd(cluster, url)

                for _ in range(5):
                    await asyncio.to_thread(until, lambda: cluster.leads("shuffler-1"))
                    joins = asyncio.create_task(crowd.join(peers, people=10))
                    await asyncio.sleep(pick.uniform(0.0, 0.6))
                    cluster.kill("shuffler-1")
                    await joins
                await asyncio.to_thread(until, lambda: deaths["shuffler-1"] == 5)
                await check_everything(crowd, people=50)
                await peers.close()

    asyncio.run(whole())


def test_a_cascade_survives_its_second_shuffler(tmp_path: Path) -> None:
    """The second of two shufflers dies before, while and after it has the batch."""

    async def whole() -> None:
        with Cluster(tmp_path, shufflers=2, extra=MORTAL) as cluster:
            async with nursed(cluster):
                url = await open_patiently(cluster, "cascade", people=4)
                cluster.kill("shuffler-2")
                peers = HttpClient(timeout=5)
                crowd = Crowd(cluster, url)
                await crowd.join(peers, people=4 + SPARE)
                for _ in range(3):
                    await asyncio.sleep(0.7)
                    cluster.kill("shuffler-2")
                await check_everything(crowd, people=4 + SPARE)
                await peers.close()

    asyncio.run(whole())


def test_two_shufflers_on_one_database(tmp_path: Path) -> None:
    """One leads, and both accept uploads; the second takes over when the first dies."""

    async def whole() -> None:
        with Cluster(tmp_path, extra=QUICK) as cluster:
            url = await asyncio.to_thread(
                cluster.open_round, draft("pair", minimum=4), closes=1, expires=6000
            )
            peers = HttpClient(timeout=5)
            crowd = Crowd(cluster, url)
            await crowd.join(peers, people=2)
            second = (tmp_path / "shuffler-1.toml").read_text()
            text = second.replace("shuffler-1.address", "shuffler-1b.address")
            (tmp_path / "shuffler-1b.toml").write_text(text)
            try:
                await asyncio.to_thread(cluster.start, "shuffler-1b")
                there = cluster.url("shuffler-1b")
                assert get(f"{there}/healthz").json()["leads"] is False
                ticket = crowd.sessions[0].ticket
                where = url.rpartition("/rounds/")[2]
                uploads = f"{there}/rounds/{where}/uploads"
                until(lambda: post(uploads, content=ticket.upload).status_code == 201)
                cluster.kill("shuffler-1")
                await asyncio.to_thread(cluster.wait_until_leads, "shuffler-1b")
                assert counted(f"{there}/rounds/{where}", cluster)[0] == 2
                # People know one address only, so the first one comes back when the second dies.
                await asyncio.to_thread(cluster.start, "shuffler-1")
                assert get(f"{cluster.url('shuffler-1')}/healthz").json()["leads"] is False
                cluster.kill("shuffler-1b")
                await asyncio.to_thread(cluster.wait_until_leads, "shuffler-1")
                assert counted(url, cluster)[0] == 2
                await crowd.join(peers, people=2)
                await check_everything(crowd, people=4)
            finally:
                await peers.close()

    asyncio.run(whole())
