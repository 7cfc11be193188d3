"""Addresses of roles: terms state them, roles confirm them, and clients use no others."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.agreement import check_own_entry
from coatcheck.protocol.keys import PublicKeys, read_public
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.board.routes import BoardService
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.process import build
from coatcheck.services.settings import BoardSettings, read_settings
from coatcheck.services.shuffler.admission import admission_of
from coatcheck.services.web.client import HttpClient
from support.rounds import SmallRound

SMALL = SmallRound()


def test_a_board_shows_no_round_that_sends_people_elsewhere(tmp_path: Path) -> None:
    """The board's entry in the terms must have its own address; then it accepts the round."""
    Cluster(tmp_path, stores={"board": "memory:"}, extra={"lease": 10_000.0})
    settings = read_settings(tmp_path / "board.toml", role="board", kind=BoardSettings)
    service = BoardService(settings)
    roles, terms = SMALL.roles, SMALL.round.terms
    service.keyring._pairs[terms.board.verifying] = roles.board
    service.trusted = frozenset({roles.server.signing.public_raw})

    async def whole() -> None:
        await service.leadership.renew()
        service.url = "https://other.example"
        with pytest.raises(Refused, match=r"it is at https://other\.example"):
            await service.admit(SMALL.round.digest.hex(), SMALL.signed)
        service.url = terms.board.url
        commits = asyncio.create_task(service.commits.run())
        assert (await service.admit(SMALL.round.digest.hex(), SMALL.signed)).round == "example"
        commits.cancel()

    asyncio.run(whole())


class _Somebody(HttpClient):
    """A service with the board's key at another address."""

    def __init__(self, public: PublicKeys) -> None:
        self.public = public

    async def get(self, url: str, *, most: int = 0) -> bytes:
        """Return the keys."""
        del url, most
        return document(self.public)


def test_a_server_drafts_no_terms_with_the_address_of_somebody_else(tmp_path: Path) -> None:
    """A role whose address differs from the settings is not put into terms."""
    Cluster(tmp_path, stores={"server": "memory:"})
    service: Any = build("server", tmp_path / "server.toml")
    mine = replace(read_public(tmp_path / "board.public"), url="https://board.example")
    service.peers = _Somebody(mine)
    assert asyncio.run(service._public_keys("https://board.example")) == mine
    with pytest.raises(Refused, match=r"has the address https://board\.example"):
        asyncio.run(service._public_keys("https://other.example"))


@pytest.mark.parametrize("url", ["http://shuffler.example", "http://0.0.0.0:8001", "https://a/b"])
def test_a_role_at_no_address_that_terms_could_name_does_not_start(
    url: str, tmp_path: Path
) -> None:
    """Plain http is for this machine only, and an address has no path."""
    Cluster(tmp_path, stores={"shuffler-1": "memory:"})
    service = build("shuffler", tmp_path / "shuffler-1.toml")
    with pytest.raises(Misuse, match="set `url` to the address at which people reach it"):
        service.take_url(url)


def test_a_shuffler_without_an_admission_policy_does_not_start(tmp_path: Path) -> None:
    """Open admission must be chosen explicitly."""
    Cluster(tmp_path, stores={"shuffler-1": "memory:"})
    settings: Any = build("shuffler", tmp_path / "shuffler-1.toml").settings
    assert settings.admission == "open"
    with pytest.raises(Misuse, match="say whom this shuffler admits"):
        admission_of(replace(settings, admission="tokens"))
    with pytest.raises(Misuse, match="cannot read the token hashes"):
        admission_of(replace(settings, admission="tokens", tokens="nowhere"))


def test_an_entry_is_vouched_for_as_a_whole() -> None:
    """An entry passes only with the same address and the same admission policy."""
    entry = SMALL.round.terms.shufflers[0]
    check_own_entry(entry, url=entry.url, admission=entry.admission)
    with pytest.raises(Refused):
        check_own_entry(entry, url=entry.url + "0", admission=entry.admission)


class _Elsewhere(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(307)
        self.send_header("location", "/there")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_redirects_are_refused() -> None:
    """A redirect cannot send a client to another address."""
    _Elsewhere.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    async def whole() -> None:
        async with HttpClient() as http:
            await http.get(f"http://127.0.0.1:{server.server_port}/here")

    try:
        with pytest.raises(Refused, match="redirects elsewhere"):
            asyncio.run(whole())
    finally:
        server.shutdown()
        server.server_close()
    assert _Elsewhere.asked == ["/here"]
