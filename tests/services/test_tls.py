"""TLS: with a certificate in its settings a service uses TLS, also towards other services."""

import asyncio
import ssl
from pathlib import Path

import httpx2
import pytest

from coatcheck.errors import Misuse, Unavailable
from coatcheck.protocol.wire.messages import Answer
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient, ask
from support.certificates import certify
from support.service_rounds import QUICK, Crowd, draft

pytestmark = pytest.mark.service


def test_a_round_over_tls(tmp_path: Path) -> None:
    """Services and people use TLS throughout; a client without the certificate cannot connect."""
    certify(tmp_path)
    tls = {"tls_certificate": "tls.pem", "tls_key": "tls.key", "ca": "tls.pem"}
    context = ssl.create_default_context(cafile=str(tmp_path / "tls.pem"))
    with Cluster(tmp_path, extra={**QUICK, **tls}) as local, httpx2.Client(verify=context) as http:
        server = local.url("server")
        assert server.startswith("https://")
        body = {"draft": draft("sealed", minimum=3), "closes": 1, "expires": 600}
        headers = {"authorization": f"Bearer {local.token}"}
        status = http.post(f"{server}/rounds", json=body, headers=headers, timeout=60).json()
        assert status["opened"]
        url = status["url"]

        ca = str(tmp_path / "tls.pem")
        crowd = Crowd(local, url)

        async def whole() -> None:
            async with HttpClient(ca=ca) as peers:
                await crowd.join(peers, people=3)
                assert len(await crowd.collect()) == 6

        asyncio.run(whole())
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server}/healthz")

        def mine(*, ca: str = "", patience: float = 600.0) -> Answer:
            path = crowd.sessions[0].path

            async def whole() -> Answer:
                async with Session(url, path=path, trusted=local.trusted, ca=ca) as session:
                    return await session.collect(patience=patience)

            return asyncio.run(whole())

        assert mine(ca=ca).partners
        with pytest.raises(Unavailable, match="certificate"):
            mine(patience=0)
        assert ask("GET", url, ca=ca)["status"]["phase"]
        with pytest.raises(Misuse, match="cannot read certificates"):
            mine(ca=str(tmp_path / "tls.key"))
