"""Kill -9 at every step of a round, and at random times: nothing is lost, nothing is doubled."""

import asyncio
import contextlib
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from clusters import Cluster
from coatcheck.protocol.parcels import Receipt
from coatcheck.protocol.verification import verify_bulletin
from coatcheck.services.cluster import Local
from coatcheck.services.http.client import HttpClient
from evenings import QUICK, Crowd, draft, status

_SOURCE = Path(__file__).parents[2] / "src" / "coatcheck" / "services"
PLACES = tuple(
    sorted(
        {
            place
            for file in _SOURCE.rglob("*.py")
            for place in re.findall(r'faults\.reach\("([a-z.]+)"\)', file.read_text())
        }
    )
)


def stores(kind: str, cluster: Cluster) -> dict[str, str]:
    """Give a database to each role."""
    if kind == "sqlite":
        return {}
    return {name: cluster.database() for name in ("shuffler-1", "server", "board")}


@contextlib.asynccontextmanager
async def nursed(local: Local) -> AsyncIterator[dict[str, int]]:
    """Start every process that ends again, as an operating system would."""
    deaths = dict.fromkeys(local.names, 0)

    async def nurse() -> None:
        while True:
            for name in local.names:
                if local.processes[name].poll() is not None:
                    deaths[name] += 1
                    local.start(name, wait=False)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(nurse())
    try:
        yield deaths
    finally:
        task.cancel()


async def open_patiently(local: Local, name: str, *, people: int) -> str:
    """Ask for a round until it is open, whoever dies meanwhile.

    Its minimum is the whole crowd, so it closes when everybody is in and not by the time.
    """
    for _ in range(6000):
        with contextlib.suppress(Exception):
            return await asyncio.to_thread(
                local.open_round, draft(name, minimum=people), closes=1, expires=6000
            )
        await asyncio.sleep(0.1)
    raise AssertionError("the round did not open")


async def check_everything(local: Local, crowd: Crowd, people: int) -> None:
    """Everybody acknowledged is answered once, receipts hold, and there is one bulletin."""
    answers = await crowd.collect(patience=600)
    assert len(answers) == 2 * people
    assert all(len(answer.partners) == 1 for answer in answers)
    contacts = [answer.partners[0].contact for answer in answers]
    assert len(set(contacts)) == len(contacts)  # a matching: nobody is in it twice
    round_ = crowd.visits[0].round
    url = f"{local.url('board')}/rounds/{round_.digest.hex()}/bulletin"
    bulletin = verify_bulletin(httpx2.get(url).content, round_)
    assert [tally.received for tally in bulletin.heading.tallies] == [people, people]
    assert [tally.kept for tally in bulletin.heading.tallies] == [people, people]
    # Who was answered while the shuffler died, and came again after the release, has none: which
    # may be everybody, if all uploads were in one commit.
    receipts = [one.ticket.receipt for one in crowd.visits if one.ticket.receipt]
    assert len({Receipt.decode(receipt).id for receipt in receipts}) == len(receipts)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_step_survives_a_kill(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    """Each named place of a round ends its process once, and the round completes whole."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for place in PLACES:
        (faults / place).touch()

    async def whole() -> None:
        with Local(tmp_path, stores=stores(kind, cluster), extra=QUICK) as local:
            async with nursed(local) as deaths:
                url = await open_patiently(local, "evening", people=5)
                peers = HttpClient(timeout=10)
                crowd = Crowd(local, url)
                await crowd.join(peers, people=5, patience=600)
                await check_everything(local, crowd, people=5)
                await peers.close()
                # People have their answers before the server has heard that they do.
                for _ in range(6000):
                    if sum(deaths.values()) == len(PLACES):
                        break
                    await asyncio.sleep(0.1)
                left = {file.name for file in faults.iterdir()}
                assert not left, f"no process came to {left}"
                assert sum(deaths.values()) == len(PLACES)

    assert len(PLACES) >= 20
    asyncio.run(whole())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_uploads_survive_kills_at_random_times(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    """The shuffler dies six times while people upload: whoever was acknowledged is counted once."""
    pick = random.Random(6)  # noqa: S311 - times of kills, nothing secret

    async def whole() -> None:
        with Local(tmp_path, stores=stores(kind, cluster), extra=QUICK) as local:
            async with nursed(local) as deaths:
                url = await open_patiently(local, "storm", people=50)
                peers = HttpClient(timeout=5)
                crowd = Crowd(local, url)

                async def kills() -> None:
                    for _ in range(6):
                        await asyncio.sleep(pick.uniform(0.1, 1.2))
                        if local.processes["shuffler-1"].poll() is None:
                            local.kill("shuffler-1")

                storm = asyncio.create_task(kills())
                for _ in range(5):
                    await crowd.join(peers, people=10, patience=600)
                    await asyncio.sleep(0.3)
                await storm
                assert deaths["shuffler-1"] >= 4
                await check_everything(local, crowd, people=50)
                await peers.close()

    asyncio.run(whole())


def test_a_cascade_survives_its_second_shuffler(tmp_path: Path) -> None:
    """The second of two shufflers dies before, while and after it has the batch."""

    async def whole() -> None:
        with Local(tmp_path, shufflers=2, extra=QUICK) as local:
            async with nursed(local):
                url = await open_patiently(local, "cascade", people=4)
                local.kill("shuffler-2")
                peers = HttpClient(timeout=5)
                crowd = Crowd(local, url)
                await crowd.join(peers, people=4)
                for _ in range(3):
                    await asyncio.sleep(0.7)
                    local.kill("shuffler-2")
                await check_everything(local, crowd, people=4)
                await peers.close()

    asyncio.run(whole())


def test_two_shufflers_on_one_database(tmp_path: Path) -> None:
    """One leads and takes uploads, the other stands by and refuses; it takes over a dead one."""

    async def whole() -> None:
        with Local(tmp_path, extra=QUICK) as local:
            url = await asyncio.to_thread(
                local.open_round, draft("pair", minimum=4), closes=1, expires=120
            )
            peers = HttpClient(timeout=5)
            crowd = Crowd(local, url)
            await crowd.join(peers, people=2)
            second = (tmp_path / "shuffler-1.toml").read_text()
            text = second.replace("shuffler-1.address", "second.address")
            (tmp_path / "second.toml").write_text(text)
            command = [sys.executable, "-m", "coatcheck.cli", "serve", "shuffler", "--config"]
            standby = subprocess.Popen([*command, str(tmp_path / "second.toml")])  # noqa: S603, ASYNC220 - our own
            try:
                local.processes["second"] = standby
                there = await asyncio.to_thread(local.wait, "second")
                assert httpx2.get(f"{there}/healthz").json()["leads"] is False
                ticket = crowd.visits[0].ticket
                where = url.rpartition("/rounds/")[2]
                refused = httpx2.post(f"{there}/rounds/{where}/uploads", content=ticket.upload)
                assert refused.status_code in {404, 503}
                local.kill("shuffler-1")
                crowd.url = f"{there}/rounds/{where}"
                await _until_leads(there)
                assert status(crowd.url)["groups"][0]["crowd"] == 2
                await crowd.join(peers, people=2)
                await check_everything(local, crowd, people=4)
            finally:
                standby.terminate()
                standby.wait()
                await peers.close()

    asyncio.run(whole())


async def _until_leads(url: str) -> None:
    for _ in range(100):
        if httpx2.get(f"{url}/healthz").json()["leads"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the one that stood by did not take over")
