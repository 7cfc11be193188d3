"""The browser client goes through a real relay process, and nowhere else."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.ticket import read_ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, draft
from world.web.browser import Refusal, ask


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay."""
    with Cluster(tmp_path_factory.mktemp("relayed"), relay=True, extra=QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def options(local: Cluster) -> dict[str, Any]:
    """What a browser knows of an open round."""
    url = local.open_round(draft("browsers", minimum=1), closes=1, expires=3600)
    return {"relay": local.url("relay"), "url": url, "trusted": local.trusted.plain()}


def test_a_round_from_the_browser_through_the_relay(
    local: Cluster, options: dict[str, Any], tmp_path: Path
) -> None:
    """A browser and a Python client are matched, write to each other, and meet only the relay."""
    limit = {"epsilon": 10.0, "delta": 1e-3}
    joined = ask("joinByRelay", value=[0.25, 0.75], group=GROUPS[0], limit=limit, **options)
    assert set(joined["names"]) == {options["relay"]}
    assert read_ticket(joined["ticket"].encode()).receipt

    async def other() -> Session:
        peers = RelayedClient(options["relay"], first=options["url"], trusted=local.trusted)
        path = tmp_path / "ticket"
        session = Session(options["url"], path=path, trusted=local.trusted, peers=peers)
        await session.join((0.3, 0.7), group=GROUPS[1], limit=LIMIT, ledger=None, patience=PATIENCE)
        answer = await session.collect(patience=PATIENCE)
        assert answer.partners[0].contact == read_ticket(joined["ticket"].encode()).keys.contact_raw
        return session

    async def read(session: Session) -> list[bytes]:
        bodies = [letter.body for letter in (await session.read()).letters]
        await session._peers.close()
        return bodies

    with asyncio.Runner() as runner:
        session = runner.run(other())
        request = {**options, "signed": joined["signed"]}
        done = ask("collectByRelay", ticket=joined["ticket"], body="by the door", **request)
        assert set(done["names"]) == {options["relay"]}
        assert done["partners"] == [session.ticket.keys.contact_raw.hex()]
        assert runner.run(read(session)) == [b"by the door"]


def test_without_the_relay_nothing_is_asked(local: Cluster, options: dict[str, Any]) -> None:
    """A relay that is away, or another role's signature under the keys: a sentence, no request."""
    board = local.url("board")
    with pytest.raises(Refusal, match="nothing was sent directly"):
        ask("getByRelay", board=board, **{**options, "relay": "http://127.0.0.1:9"})
    with pytest.raises(Refusal, match="has no keys of"):
        ask("getByRelay", board="http://127.0.0.1:9", **options)
    stranger = {**options["trusted"], "board": options["trusted"]["server"]}
    with pytest.raises(Refusal, match="no key that you trust"):
        ask("getByRelay", board=board, **{**options, "trusted": stranger})
    assert ask("getByRelay", board=board, **options) == [options["relay"]] * 2


def test_a_page_of_any_site_may_ask_the_relay(local: Cluster) -> None:
    """What a browser asks before and reads after a request to another site."""
    where = f"{local.url('relay')}/gateways/{local.url('board')[7:]}"
    for method in ("OPTIONS", "GET"):
        request = urllib.request.Request(where, method=method)  # noqa: S310 - our own
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
            headers = answer.headers
        assert headers["access-control-allow-origin"] == "*"
        if method == "OPTIONS":
            assert "content-type" in headers["access-control-allow-headers"]
        else:
            assert "coatcheck-signatures" in headers["access-control-expose-headers"]
