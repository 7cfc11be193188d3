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
from web.browser import Refusal, ask


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay."""
    with Cluster(tmp_path_factory.mktemp("relayed"), relay=True, extra=QUICK) as made:
        yield made


@pytest.fixture(scope="module")
def known(local: Cluster) -> dict[str, Any]:
    """What a browser knows of an open round."""
    url = local.open_round(draft("browsers", minimum=1), closes=1, expires=3600)
    return {"relay": local.url("relay"), "url": url, "trusted": local.trusted.plain()}


def test_a_round_from_the_browser_through_the_relay(
    local: Cluster, known: dict[str, Any], tmp_path: Path
) -> None:
    """A browser and a Python client are matched, write to each other, and meet only the relay."""
    limit = {"epsilon": 10.0, "delta": 1e-3}
    joined = ask("joinByRelay", value=[0.25, 0.75], group=GROUPS[0], limit=limit, **known)
    assert set(joined["names"]) == {known["relay"]}
    assert read_ticket(joined["ticket"].encode()).receipt

    async def other() -> Session:
        peers = RelayedClient(known["relay"], first=known["url"], trusted=local.trusted)
        path = tmp_path / "ticket"
        visit = Session(known["url"], path=path, trusted=local.trusted, peers=peers)
        await visit.join((0.3, 0.7), group=GROUPS[1], limit=LIMIT, ledger=None, patience=PATIENCE)
        answer = await visit.collect(patience=PATIENCE)
        assert answer.partners[0].contact == read_ticket(joined["ticket"].encode()).keys.contact_raw
        return visit

    async def read(visit: Session) -> list[bytes]:
        found = [letter.body for letter in (await visit.read()).letters]
        await visit._peers.close()
        return found

    with asyncio.Runner() as runner:
        visit = runner.run(other())
        asked = {**known, "signed": joined["signed"]}
        done = ask("collectByRelay", ticket=joined["ticket"], body="by the door", **asked)
        assert set(done["names"]) == {known["relay"]}
        assert done["partners"] == [visit.ticket.keys.contact_raw.hex()]
        assert runner.run(read(visit)) == [b"by the door"]


def test_without_the_relay_nothing_is_asked(local: Cluster, known: dict[str, Any]) -> None:
    """A relay that is away, or another role's signature under the keys: a sentence, no request."""
    board = local.url("board")
    with pytest.raises(Refusal, match="nothing is sent around it"):
        ask("getByRelay", board=board, **{**known, "relay": "http://127.0.0.1:9"})
    with pytest.raises(Refusal, match="has no keys of"):
        ask("getByRelay", board="http://127.0.0.1:9", **known)
    stranger = {**known["trusted"], "board": known["trusted"]["server"]}
    with pytest.raises(Refusal, match="signed by nobody you trust"):
        ask("getByRelay", board=board, **{**known, "trusted": stranger})
    assert ask("getByRelay", board=board, **known) == [known["relay"]] * 2


def test_a_page_of_any_site_may_ask_the_relay(local: Cluster) -> None:
    """What a browser asks before and reads after a request to another site."""
    where = f"{local.url('relay')}/gateways/{local.url('board')[7:]}"
    for method in ("OPTIONS", "GET"):
        asked = urllib.request.Request(where, method=method)  # noqa: S310 - our own
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - our own
            headers = answer.headers
        assert headers["access-control-allow-origin"] == "*"
        if method == "OPTIONS":
            assert "content-type" in headers["access-control-allow-headers"]
        else:
            assert "coatcheck-signatures" in headers["access-control-expose-headers"]
