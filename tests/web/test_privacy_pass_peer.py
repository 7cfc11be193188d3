"""Tokens of an independent issuer (@cloudflare/privacypass-ts) admit people to a whole round."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Refused
from coatcheck.protocol.ticket import read_ticket
from coatcheck.services.cluster import Cluster
from coatcheck.services.http.client import HttpClient
from coatcheck.services.person.visit import Visit
from service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, draft, post
from web.browser import HERE, Refusal, ask, needed


@pytest.fixture(scope="module")
def issue(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Install the issuer, and give what runs it."""
    npm, node = needed("npm"), needed("node")
    peer = tmp_path_factory.mktemp("issuer") / "peer"
    shutil.copytree(HERE / "issuer", peer, ignore=shutil.ignore_patterns("node_modules"))
    install = [npm, "ci", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=peer, check=False, capture_output=True, timeout=300)  # noqa: S603 - by the lock file
    if done.returncode and not os.environ.get("CI"):
        pytest.skip("npm cannot fetch the packages that the issuer is made of")
    assert done.returncode == 0, done.stderr

    def run(*given: str, told: str = "") -> list[str]:
        command = [node, "issue.mjs", *given]
        made = subprocess.run(  # noqa: S603 - our own script
            command, cwd=peer, check=True, input=told, capture_output=True, text=True, timeout=300
        )
        return made.stdout.split("\n")[:-1]

    return run


def test_a_round_of_people_with_blind_tokens(
    issue: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Challenge, blind issuance, redemption: by a Python client, and by the browser's."""
    (key,) = issue("key", str(tmp_path / "issuer.json"))
    (tmp_path / "issuer.der").write_bytes(bytes.fromhex(key))
    admission = {
        "admission": "privacy-pass",
        "issuer": "issuer.example",
        "issuer_key": "issuer.der",
    }
    with Cluster(tmp_path, extra=QUICK, role_extra={"shuffler": admission}) as local:
        url = local.open_round(draft("blind", minimum=1), closes=1, expires=3600)
        refused = post(f"{url}/uploads", content=b"anything")
        assert refused.status_code == 401
        asked = refused.headers["www-authenticate"]
        shown = issue("token", str(tmp_path / "issuer.json"), "2", told=asked)
        first, second = (one.removeprefix("PrivateToken token=") for one in shown)

        async def person() -> Visit:
            visit = Visit(url, path=tmp_path / "ticket", trusted=local.trusted)
            given: dict[str, Any] = {
                "group": GROUPS[0],
                "limit": LIMIT,
                "ledger": None,
                "patience": PATIENCE,
            }
            await visit.join((0.3, 0.7), token=first, **given)
            twin = Visit(url, path=tmp_path / "twin", trusted=local.trusted)
            with pytest.raises(Refused, match="used for another upload"):
                await twin.join((0.3, 0.7), token=first, **given)
            await twin._peers.close()
            return visit

        async def whole() -> None:
            visit = await person()
            async with visit, HttpClient() as http:
                offer = (await http.get(url)).decode()
                limit = {"epsilon": LIMIT.epsilon, "delta": LIMIT.delta}
                browser = {"offer": offer, "group": GROUPS[1], "trusted": local.trusted.plain()}
                with pytest.raises(Refusal, match=r"Privacy Pass token of issuer\.example"):
                    ask("joinByToken", value=[0.2, 0.8], limit=limit, token="", **browser)
                joined = ask("joinByToken", value=[0.2, 0.8], limit=limit, token=second, **browser)
                assert read_ticket(joined["ticket"].encode()).receipt
                answer = await visit.collect(patience=PATIENCE)
                other = read_ticket(joined["ticket"].encode()).keys.contact_raw
                assert [partner.contact for partner in answer.partners] == [other]

        asyncio.run(whole())
