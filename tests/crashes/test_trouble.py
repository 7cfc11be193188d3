"""Failing disks, databases and networks: an error at once, and recovery without a restart."""

import asyncio
import resource
import signal
from pathlib import Path

import httpx2
import pytest

from coatcheck.services.local_cluster import Cluster, make_keys
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.postgresql import Postgres
from support.service_rounds import (
    MORTAL,
    QUICK,
    Crowd,
    counted,
    draft,
    get,
    post,
    prepared,
    status,
    until,
    whole_round,
)

pytestmark = pytest.mark.service


def send(session: Session) -> httpx2.Response:
    """Send a ticket's bytes once; the timeout detects a service that waits instead of refusing."""
    return post(f"{session.url}/uploads", content=session.ticket.upload)


def test_a_full_disk(tmp_path: Path) -> None:
    """Without room, uploads are refused at once; with room again they go on, none lost."""
    with Cluster(tmp_path, extra=QUICK) as cluster:
        url = cluster.open_round(draft("full"), closes=3000, expires=36000)

        async def whole() -> None:
            async with HttpClient() as peers:
                await Crowd(cluster, url).join(peers, people=5)

        asyncio.run(whole())
        pid = cluster.processes["shuffler-1"].pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        session = asyncio.run(prepared(cluster, url, "late"))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, before[1]))
        for _ in range(3):
            answer = send(session)
            assert answer.status_code in {503, 507}
            assert int(answer.headers["retry-after"]) > 0
        until(lambda: get(f"{cluster.url('shuffler-1')}/healthz").status_code == 503)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        until(lambda: send(session).status_code == 201)
        assert counted(url, cluster)[0] == 6
        assert cluster.running("shuffler-1")


def test_a_database_that_goes_and_comes_back(postgres: Postgres, tmp_path: Path) -> None:
    """Without its database a service refuses at once; afterwards it goes on by itself."""
    stores = {name: postgres.database() for name in ("shuffler-1", "server", "board")}
    with Cluster(tmp_path, stores=stores, extra=QUICK) as cluster:
        url = cluster.open_round(draft("gone", minimum=4), closes=1, expires=3600)
        peers = HttpClient()
        crowd = Crowd(cluster, url)

        async def join(people: int) -> None:
            await crowd.join(peers, people=people)

        async def whole() -> None:
            await join(2)
            session = await prepared(cluster, url, "late")
            postgres.stop(crash=True)
            try:
                for _ in range(3):
                    assert send(session).status_code == 503
                    await asyncio.sleep(0.3)
            finally:
                postgres.start()
            await join(2)
            assert len(await crowd.collect()) == 8
            await peers.close()

        asyncio.run(whole())
        assert all(cluster.running(name) for name in cluster.names)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_partition_between_shuffler_and_server(how: signal.Signals, tmp_path: Path) -> None:
    """While the server is away or silent the batch waits; then it is delivered once."""
    with Cluster(tmp_path, extra={**MORTAL, "peer_timeout": 1.0}) as cluster:
        url = cluster.open_round(draft("parted", minimum=3), closes=1, expires=3600)

        async def whole() -> None:
            async with HttpClient() as peers:
                crowd = Crowd(cluster, url)
                # Before the last has joined, or the batch may be there already.
                cluster.processes["server"].send_signal(how)
                await crowd.join(peers, people=3)
                await asyncio.to_thread(until, lambda: status(url)["phase"] == "released")
                await asyncio.sleep(1.5)
                assert status(url)["phase"] != "delivered"
                if how == signal.SIGSTOP:
                    cluster.processes["server"].send_signal(signal.SIGCONT)
                else:
                    cluster.start("server")
                answers = await crowd.collect()
                assert all(len(answer.partners) == 1 for answer in answers)
                await asyncio.to_thread(until, lambda: status(url)["phase"] == "delivered")

        asyncio.run(whole())


def test_one_use_tokens_serve_once(tmp_path: Path) -> None:
    """Each upload needs a listed token, and a token admits one upload per round."""
    import hashlib  # noqa: PLC0415 - of this test only

    hashes = [hashlib.sha256(token).hexdigest() for token in (b"one", b"two")]
    (tmp_path / "tokens").write_text("\n".join(hashes))
    admission = {"shuffler": {"admission": "tokens", "tokens": "tokens"}}
    with Cluster(tmp_path, extra=QUICK, role_extra=admission) as cluster:
        url = cluster.open_round(draft("tokens"), closes=3000, expires=36000)

        async def made() -> list[Session]:
            return [await prepared(cluster, url, name) for name in ("a", "b")]

        first, second = asyncio.run(made())

        def hand(session: Session, token: str) -> int:
            headers = {"coatcheck-token": token} if token else {}
            upload = session.ticket.upload
            return post(f"{url}/uploads", content=upload, headers=headers).status_code

        assert [hand(first, ""), hand(first, "three"), hand(first, "one")] == [403, 403, 201]
        assert [hand(first, "one"), hand(second, "one"), hand(second, "two")] == [201, 403, 201]
        assert "one" not in "".join(file.read_text() for file in tmp_path.glob("*.log"))


def test_keys_rotate_between_rounds(tmp_path: Path) -> None:
    """A new first key serves new rounds; an open round ends with the old key."""
    with Cluster(tmp_path, extra=QUICK) as cluster:
        before = cluster.open_round(draft("before", minimum=3), closes=1, expires=3600)
    make_keys(tmp_path / "shuffler-1.1.key", name="shuffler-1")
    with Cluster(tmp_path, extra=QUICK) as cluster:
        after = cluster.open_round(draft("after", minimum=3), closes=1, expires=3600)
        keys = []

        async def whole() -> None:
            async with HttpClient() as peers:
                for url in (before, after):
                    crowd = Crowd(cluster, url)
                    await crowd.join(peers, people=3)
                    assert len(await crowd.collect()) == 6
                    keys.append(crowd.sessions[0].round.terms.shufflers[0].sealing)

        asyncio.run(whole())
        assert keys[0] != keys[1]


def test_two_shufflers_in_a_row_and_the_hybrid_suite(tmp_path: Path) -> None:
    """A cascade runs a whole round, also with the post-quantum hybrid suite."""
    with Cluster(tmp_path, shufflers=2, suite="mlkem768-x25519", extra=QUICK) as cluster:
        asyncio.run(whole_round(cluster, "hybrid"))
