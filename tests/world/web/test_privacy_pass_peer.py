"""Tokens of an independent issuer (@cloudflare/privacypass-ts) admit people to a whole round."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Refused
from coatcheck.protocol.ticket import read_ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, draft, post
from world.web.browser import HERE, ROOT, Refusal, ask, needed

CLIENT = (ROOT / "src/coatcheck/demo/page/static/client.js").as_uri()
PAGE = """
import * as coatcheck from "{client}";
import {{ readFileSync }} from "node:fs";
const round = coatcheck.readTerms(readFileSync(0, "utf-8"));
{block}
console.log(coatcheck.hex(request.serialize()));
"""


@pytest.fixture(scope="module")
def issue(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Install the issuer, and return a function that runs it."""
    npm, node = needed("npm"), needed("node")
    peer = tmp_path_factory.mktemp("issuer") / "peer"
    shutil.copytree(HERE / "issuer", peer, ignore=shutil.ignore_patterns("node_modules"))
    install = [npm, "ci", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=peer, check=False, capture_output=True, timeout=300)  # noqa: S603 - by the lock file
    if done.returncode and not os.environ.get("CI"):
        pytest.skip("npm cannot fetch the packages that the issuer is made of")
    assert done.returncode == 0, done.stderr

    def run(*args: str, stdin: str = "", script: str = "issue.mjs") -> list[str]:
        command = [node, script, *args]
        result = subprocess.run(  # noqa: S603 - our own script
            command, cwd=peer, check=True, input=stdin, capture_output=True, text=True, timeout=300
        )
        return result.stdout.split("\n")[:-1]

    (peer / "page.mjs").write_text(PAGE.format(client=CLIENT, block=_block()), encoding="utf-8")
    return run


def _block() -> str:
    page = (ROOT / "docs/how-to/admit-people.md").read_text(encoding="utf-8")
    block = re.search(r"^```js\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


def test_the_block_of_the_manual_asks_the_issuer(issue: Callable[..., list[str]]) -> None:
    """It reads the challenge of a round, and makes a request of the type and size of the RFC."""
    cases = json.loads((ROOT / "tests/vectors/admission.json").read_text())["cases"]
    challenges = [case for case in cases if case["kind"] == "challenge"]
    vector = next(case for case in challenges if case["input"]["hop"] == 0)
    (sent,) = issue(script="page.mjs", stdin=vector["input"]["document"])
    assert sent.startswith("0002")
    assert len(sent) == 2 * (2 + 1 + 256)


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
        demand = refused.headers["www-authenticate"]
        tokens = issue("token", str(tmp_path / "issuer.json"), "2", stdin=demand)
        first, second = (token.removeprefix("PrivateToken token=") for token in tokens)

        async def person() -> Session:
            session = Session(url, path=tmp_path / "ticket", trusted=local.trusted)
            options: dict[str, Any] = {
                "group": GROUPS[0],
                "limit": LIMIT,
                "ledger": None,
                "patience": PATIENCE,
            }
            await session.join((0.3, 0.7), token=first, **options)
            twin = Session(url, path=tmp_path / "twin", trusted=local.trusted)
            with pytest.raises(Refused, match="used for another upload"):
                await twin.join((0.3, 0.7), token=first, **options)
            await twin._peers.close()
            return session

        async def whole() -> None:
            session = await person()
            async with session, HttpClient() as http:
                offer = (await http.get(url)).decode()
                limit = {"epsilon": LIMIT.epsilon, "delta": LIMIT.delta}
                offered = {"offer": offer, "group": GROUPS[1]}
                browser: dict[str, Any] = {**offered, "trusted": local.trusted.plain()}
                with pytest.raises(Refusal, match=r"Privacy Pass token of issuer\.example"):
                    ask("joinByToken", value=[0.2, 0.8], limit=limit, token="", **browser)
                joined = ask("joinByToken", value=[0.2, 0.8], limit=limit, token=second, **browser)
                assert read_ticket(joined["ticket"].encode()).receipt
                answer = await session.collect(patience=PATIENCE)
                other = read_ticket(joined["ticket"].encode()).keys.contact_raw
                assert [partner.contact for partner in answer.partners] == [other]

        asyncio.run(whole())
