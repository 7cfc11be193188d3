"""Random request times: a client behind a relay waits within the window of the terms."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from coatcheck.errors import Error
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person import relay_client
from coatcheck.services.person import session as session_module
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import GROUPS, LIMIT, PATIENCE, draft

WINDOW = 30


def test_times_are_even_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 draws: each quarter gets 100 on average; 50 to 150 is missed less than once in 10^8."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def often() -> None:
        for _ in range(400):
            await relay_client.wait_random(WINDOW)
        await relay_client.wait_random(0)

    asyncio.run(often())
    assert len(slept) == 400
    assert all(0 <= one <= WINDOW for one in slept)
    quarters = Counter(min(3, int(4 * one / WINDOW)) for one in slept)
    assert all(50 <= quarters[place] <= 150 for place in range(4))


@pytest.mark.service
def test_a_round_with_a_window(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining, collecting, writing and reading each wait once with a relay, never without."""
    waits: list[tuple[str, float]] = []
    who = "relayed"

    async def linger(seconds: float) -> None:
        waits.append((who, seconds))

    monkeypatch.setattr(session_module, "wait_random", linger)
    plan = {**draft("windows", minimum=1), "window": WINDOW}
    url = running.open_round(plan, closes=1, expires=3600)

    async def join(name: str, peers: HttpClient | RelayedClient) -> Session:
        nonlocal who
        who, group = name, GROUPS[name == "direct"]
        path, trusted = tmp_path / name, running.trusted
        session = Session(url, path=path, trusted=trusted, peers=peers)
        await session.join((0.5, 0.5), group=group, limit=LIMIT, ledger=None, patience=PATIENCE)
        return session

    async def rest(name: str, session: Session) -> None:
        nonlocal who
        who = name
        answer = await session.collect(patience=PATIENCE)
        await session.write(b"hello", to=answer.partners[0].contact)
        await session.read()

    async def whole() -> None:
        async with HttpClient() as http, HttpClient() as plain:
            trusted = running.trusted
            peers = RelayedClient(running.url("relay"), first=url, trusted=trusted, http=http)
            first = await join("relayed", peers)
            second = await join("direct", plain)
            await rest("relayed", first)
            await rest("direct", second)

    asyncio.run(whole())
    assert [seconds for name, seconds in waits if name == "relayed" and seconds] == [WINDOW] * 4
    assert {seconds for name, seconds in waits if name == "direct"} == {0}


@pytest.mark.service
def test_a_window_that_is_none_is_refused(running: Cluster) -> None:
    """A draft with a window of zero or of days is refused."""
    for bad in (0, 86_401, "soon"):
        with pytest.raises(Error, match="window"):
            running.open_round({**draft("bad"), "window": bad}, closes=1, expires=3600)
