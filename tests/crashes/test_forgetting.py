"""A whole round over real processes leaves nothing behind, even after crashes."""

import asyncio
from pathlib import Path

import pytest

from coatcheck.protocol.agreement import verify_signatures
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.client import HttpClient
from support.disks import Disk
from support.postgresql import Postgres
from support.service_rounds import MORTAL, Crowd, until
from support.storm import check_everything, nursed, open_patiently, stores

pytestmark = pytest.mark.service

DEATHS = (
    *("shuffler.uploaded", "shuffler.closed", "shuffler.release", "shuffler.released"),
    *("shuffler.deliver", "shuffler.delivered", "part.received"),
    *("batch.received", "server.answered"),
)


def test_nothing_is_left_of_a_round(database: Postgres | None, tmp_path: Path) -> None:
    """Processes die at each step that deletes; afterwards no store file has an id or a body."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for place in DEATHS:
        (faults / place).touch()

    async def whole() -> None:
        with Cluster(tmp_path, stores=stores(database), extra=MORTAL) as cluster:
            async with nursed(cluster):
                url = await open_patiently(cluster, "once", people=5)
                peers = HttpClient(timeout=10)
                crowd = Crowd(cluster, url)
                await crowd.join(peers, people=5)
                await check_everything(crowd, people=5)
                round_ = verify_signatures((await crowd.sessions[0].offer(patience=60)).signed)
                await peers.close()
                folders = [tmp_path / f"{name}.rounds" for name in ("shuffler-1", "server")]
                # The keys are the last to go: the board has the answers before.
                await asyncio.to_thread(until, lambda: not any(map(_files, folders)))
                folders = [
                    tmp_path / (f"{name}.blobs" if database is None else f"{name}.rounds/blobs")
                    for name in ("shuffler-1", "server")
                ]
                await asyncio.to_thread(until, lambda: not any(map(_files, folders)))
        given = [Upload.decode(session.ticket.upload, round_) for session in crowd.sessions]
        needles = [piece for one in given for piece in (one.id, one.body[:24], one.body[-24:])]
        files = Disk("", database.folder) if database else Disk("", tmp_path, "*.db*")
        assert files.found(round_.digest) == [round_.digest]
        assert files.found(*needles) == []
        assert not list(faults.iterdir())

    asyncio.run(whole())


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("*.*"))
