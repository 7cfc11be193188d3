"""Several processes accept uploads for one database: nothing is lost or doubled."""

import asyncio
import hashlib
import os
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from coatcheck.errors import Error
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Receipt
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.shuffler.store import ShufflerStore, Verdict
from coatcheck.services.web.client import HttpClient, patiently
from support.postgresql import Postgres
from support.service_rounds import PATIENCE, QUICK, draft, until

pytestmark = pytest.mark.service

PEOPLE = 600
PROCESSES = ("shuffler-1", "shuffler-1b")


def uploads(round_: Round) -> list[bytes]:
    """Return uploads of the right form, which are never opened here."""
    return [
        Upload(n % 2, round_.digest, os.urandom(16), os.urandom(size - 52)).encode(round_)
        for n in range(PEOPLE)
        for size in [round_.upload_sizes[n % 2]]
    ]


async def hand_in(peers: HttpClient, raw: bytes, urls: list[str], first: int) -> bytes:
    """Send an upload to each process in turn until one signs for it."""
    turn = count(first)

    async def once() -> bytes:
        return await peers.send(urls[next(turn) % len(urls)], raw, headers={})

    return await patiently(once, PATIENCE)


def test_two_processes_take_uploads_while_they_are_killed(
    database: Postgres | None, tmp_path: Path
) -> None:
    """Every upload has a receipt and is stored once, though each process dies meanwhile."""
    store = database.database() if database else f"sqlite:{tmp_path / 'uploads.db'}"

    async def whole() -> None:
        with Cluster(tmp_path, stores={"shuffler-1": store}, extra=QUICK) as cluster:
            url = await asyncio.to_thread(
                cluster.open_round, draft("many", minimum=PEOPLE), closes=1, expires=6000
            )
            text = (tmp_path / "shuffler-1.toml").read_text()
            other = text.replace("shuffler-1.address", "shuffler-1b.address")
            (tmp_path / "shuffler-1b.toml").write_text(other)
            await asyncio.to_thread(cluster.start, "shuffler-1b")
            digest = bytes.fromhex(url.rpartition("/")[2])
            path = f"/rounds/{digest.hex()}/uploads"
            held = ShufflerStore(store, tmp_path / "shuffler-1.rounds")
            round_ = verify_signatures(read_signed(held.round(digest).signed))
            everybody = uploads(round_)
            where = [cluster.url(name) + path for name in PROCESSES]
            peers = HttpClient(timeout=10)
            sending = [
                asyncio.create_task(hand_in(peers, raw, where, n))
                for n, raw in enumerate(everybody)
            ]
            for victim in PROCESSES:
                before = crowd(held, digest)
                await asyncio.to_thread(
                    until, partial(has_grown, held, digest, before + PEOPLE // 6)
                )
                cluster.kill(victim)
                await asyncio.to_thread(cluster.start, victim)
                where[PROCESSES.index(victim)] = cluster.url(victim) + path
            receipts = [Receipt.decode(raw) for raw in await asyncio.gather(*sending)]
            await peers.close()
            check(round_, everybody, receipts, held)
            held.close()

    asyncio.run(whole())


def crowd(store: ShufflerStore, digest: bytes) -> int:
    """Return the number of all uploads of a round."""
    return sum(store.crowd(digest).values())


def has_grown(store: ShufflerStore, digest: bytes, least: int) -> bool:
    """Return whether this many uploads are there, or all."""
    return crowd(store, digest) >= min(least, PEOPLE)


def check(
    round_: Round, everybody: list[bytes], receipts: list[Receipt], store: ShufflerStore
) -> None:
    """Check that each receipt is valid and each upload is stored once."""
    key = VerifyingKey(bytes.fromhex(round_.terms.shufflers[0].verifying))
    for raw, receipt in zip(everybody, receipts, strict=True):
        receipt.check(key)
        assert receipt.content == hashlib.sha256(raw).digest()
    sent = [Upload.decode(raw, round_) for raw in everybody]
    found = store.held(round_.digest)
    assert found == {one.id: (one.group, one.body) for one in sent}
    assert store.crowd(round_.digest) == {0: PEOPLE // 2, 1: PEOPLE // 2}
    with store.database.reading() as session:
        assert session.rows("SELECT COUNT(*) FROM shuffler_uploads") == [(PEOPLE,)]
        (size,) = session.rows("SELECT SUM(size) FROM shuffler_upload_rows")[0]
        assert int(size) == PEOPLE


def test_a_round_closes_while_two_processes_take_uploads(
    database: Postgres | None, tmp_path: Path
) -> None:
    """Closing succeeds although uploads never stop, and the batch has all accepted by then."""
    store = database.database() if database else f"sqlite:{tmp_path / 'uploads.db'}"
    digest = hashlib.sha256(b"round").digest()
    first, *rest = (ShufflerStore(store, tmp_path / "rounds") for _ in range(3))
    first.lead("me", seconds=600)
    first.begin(first.record(digest, "example", b"signed"), fence=1)

    async def busy(taker: ShufflerStore) -> int:
        taken = 0
        while True:
            some = [Upload(0, digest, os.urandom(16), bytes(132)) for _ in range(20)]
            try:
                verdicts = await asyncio.to_thread(taker.put, some)
            except Error:
                continue
            taken += verdicts.count(Verdict.NEW)
            if Verdict.CLOSED in verdicts:
                return taken

    async def whole() -> None:
        takers = [asyncio.create_task(busy(taker)) for taker in rest]
        await asyncio.to_thread(until, lambda: first.crowd(digest).get(0, 0) >= 200)
        await asyncio.to_thread(first.move, digest, "close", fence=1)
        closed = first.crowd(digest)
        assert sum(await asyncio.gather(*takers)) == closed[0] == len(first.held(digest))

    asyncio.run(whole())
    for one in (first, *rest):
        one.close()
