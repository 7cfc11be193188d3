"""People and rounds on long-running services: small crowds, repeated tickets, untrusted keys."""

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from coatcheck.errors import Refused
from coatcheck.protocol.ticket import read_ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import (
    LIMIT,
    PATIENCE,
    Crowd,
    counted,
    draft,
    get,
    post,
    prepared,
)

pytestmark = pytest.mark.service


def test_a_round_below_its_crowd_is_abandoned(running: Cluster) -> None:
    """At its end a small round is abandoned, people get an error, and the round is deleted."""

    async def joined(peers: HttpClient) -> Crowd:
        for seconds in (6, 20, 60, 180):  # on a busy machine a round may expire before
            name = f"small {seconds}"
            opened = partial(running.open_round, closes=1, expires=seconds)
            url = await asyncio.to_thread(opened, draft(name, minimum=9))
            crowd = Crowd(running, url)
            with contextlib.suppress(Refused):
                await crowd.join(peers, people=2)
                return crowd
        raise AssertionError("nobody could join")

    async def whole() -> Crowd:
        async with HttpClient() as peers:
            crowd = await joined(peers)
            with pytest.raises(Refused, match="abandoned"):
                await crowd.sessions[0].collect(patience=PATIENCE)
            upload = crowd.sessions[0].ticket.upload
            late = post(f"{crowd.url}/uploads", content=upload)
            assert late.status_code == 409
            return crowd

    crowd = asyncio.run(whole())
    kept = b"".join(file.read_bytes() for file in running.folder.glob("shuffler-1.db*"))
    for file in crowd.folder.glob("*[0-9]"):
        ticket = read_ticket(file.read_bytes())
        assert ticket.upload[100:160] not in kept


def test_a_ticket_from_before_a_crash_is_used_again(running: Cluster) -> None:
    """A person who crashed after storing the ticket sends the same bytes and pays once."""
    url = running.open_round(draft("again", minimum=3), closes=3000, expires=36000)
    first = asyncio.run(prepared(running, url, "mine"))
    upload = first.ticket.upload

    async def again() -> bytes:
        async with Session(url, path=running.folder / "mine", trusted=running.trusted) as session:
            await session.join((0.9, 0.9), group="riders", limit=LIMIT, ledger=None)
            return session.ticket.upload

    assert asyncio.run(again()) == upload
    assert asyncio.run(again()) == upload
    assert counted(url, running)[0] == 1
    assert (running.folder / "mine").stat().st_mode & 0o777 == 0o600


def test_an_untrusted_key_stops_a_client(running: Cluster, tmp_path: Path) -> None:
    """A client that lacks a key of the terms sends nothing."""
    url = running.open_round(draft("strange"), closes=3000, expires=36000)
    some = replace(running.trusted, shufflers=())

    async def whole() -> None:
        async with Session(url, path=tmp_path / "t", trusted=some) as session:
            with pytest.raises(Refused, match="not one you trust"):
                await session.join((0.5, 0.5), group="riders", limit=LIMIT, ledger=None)

    asyncio.run(whole())
    assert not (tmp_path / "t").exists()
    assert counted(url, running)[0] == 0


def test_healthz_returns_the_time(running: Cluster) -> None:
    """Other roles compare their clocks with it."""
    before = int(time.time())
    told = get(f"{running.url('board')}/healthz").json()["now"]
    assert before - 1 <= told <= time.time() + 1
