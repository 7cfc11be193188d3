"""Failing blob stores of running services: the role names the fault, keeps the round, goes on."""

import asyncio
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.client import HttpClient
from support.service_rounds import MORTAL, QUICK, Crowd, draft, get, status, until

pytestmark = pytest.mark.service


def processes_of(pid: int) -> Iterator[int]:
    """List the processes that a process started, and theirs."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text(encoding="ascii").split():
            yield int(child)
            yield from processes_of(int(child))


def troubled(cluster: Cluster, trouble: Callable[[str], None]) -> None:
    """Run a round with a fault after all joined; all get their answers once it is over."""
    url = cluster.open_round(draft("troubled"), closes=1, expires=3600)

    async def whole() -> None:
        async with HttpClient() as peers:
            crowd = Crowd(cluster, url)
            await crowd.join(peers, people=4)
            await asyncio.to_thread(trouble, url)
            answers = await crowd.collect()
            assert all(len(answer.partners) == 1 for answer in answers)

    asyncio.run(whole())


def said(cluster: Cluster, name: str, step: str, text: str) -> None:
    """Wait until a service has logged and counted a failed step."""
    log = cluster.folder / f"{name}.log"
    until(lambda: f"{step}: {text}" in log.read_text(encoding="utf-8"))
    headers = {"authorization": f"Bearer {cluster.token}"}
    counts = get(f"{cluster.url(name)}/metrics", headers=headers).text
    assert f'coatcheck_failures_total{{step="{step}"}}' in counts


def test_a_shufflers_blob_store_that_takes_nothing_and_then_has_no_room(tmp_path: Path) -> None:
    """A file stands where its folder should be; then the disk accepts no file of any size."""
    blobs = tmp_path / "shuffler-1.blobs"

    def trouble(url: str) -> None:
        told = f"cannot write to the blob store {blobs}: "
        said(cluster, "shuffler-1", "release", f"{told}Not a directory")
        assert status(url)["phase"] == "closed"
        workers = list(processes_of(cluster.processes["shuffler-1"].pid))
        before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in workers}
        for pid, (_, most) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (64, most))
        blobs.unlink()
        said(cluster, "shuffler-1", "release", f"{told}File too large")
        assert status(url)["phase"] == "closed"
        for pid, limit in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)

    with Cluster(tmp_path, extra=QUICK) as cluster:
        blobs.write_text("no folder")
        troubled(cluster, trouble)
        until(lambda: not list(blobs.iterdir()))


def test_a_servers_blob_store_that_takes_nothing(tmp_path: Path) -> None:
    """The server's log says why it accepts no partition; the shuffler keeps its batch."""
    blobs = tmp_path / "server.blobs"

    def trouble(url: str) -> None:
        said(
            cluster, "server", "receive", f"cannot write to the blob store {blobs}: Not a directory"
        )
        # Where a party keeps its files is its own business.
        assert str(blobs) not in (tmp_path / "shuffler-1.log").read_text(encoding="utf-8")
        assert status(url)["phase"] == "released"
        blobs.unlink()

    with Cluster(tmp_path, extra=QUICK) as cluster:
        blobs.write_text("no folder")
        troubled(cluster, trouble)
        until(lambda: not list(blobs.iterdir()))


@pytest.mark.parametrize(("role", "name"), [("shuffler-1", "out-0"), ("server", "in-0")])
def test_a_partition_that_was_changed(role: str, name: str, tmp_path: Path) -> None:
    """An altered partition is named and not used; once restored, it is delivered and answered."""
    step = {"shuffler-1": "deliver", "server": "answer"}[role]

    def trouble(url: str) -> None:
        until(lambda: not cluster.running("server"))
        until(lambda: status(url)["phase"] in {"released", "delivered"})
        (path,) = (tmp_path / f"{role}.blobs").rglob(name)
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        cluster.start("server")
        said(cluster, role, step, f"{name} in the blob store is not what was put there")
        path.write_bytes(good)

    (tmp_path / "faults").mkdir()
    # The server ends when a batch begins to come, or when it is there.
    (tmp_path / "faults" / {"deliver": "batch.receive", "answer": "batch.received"}[step]).touch()
    with Cluster(tmp_path, extra=MORTAL) as cluster:
        troubled(cluster, trouble)
