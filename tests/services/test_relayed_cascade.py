"""A cascade through a relay: registrations, uploads, proofs and answers all go through it."""

import asyncio
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, SPARE, draft

pytestmark = pytest.mark.service


def test_a_whole_cascade_goes_through_a_relay(tmp_path: Path) -> None:
    """People register with the second shuffler, upload to the first, and get their answers."""
    people = 3 + SPARE
    with Cluster(tmp_path, shufflers=2, relay=True, extra=QUICK) as local:
        url = local.open_round(draft("cascade", minimum=3), closes=1, expires=3600)
        relay = local.url("relay")

        async def one(number: int, group: str) -> tuple[int, int]:
            path = tmp_path / f"{group}-{number}"
            client = RelayedClient(relay, first=url, trusted=local.trusted)
            session = Session(url, path=path, trusted=local.trusted, peers=client)
            ticket = await session.join(
                (0.25, 0.5),
                group=group,
                limit=LIMIT,
                ledger=None,
                token=local.take_tokens(),
                patience=PATIENCE,
            )
            answer = await session.collect(patience=PATIENCE)
            await client.close()
            return len(ticket.registered), len(answer.partners)

        async def whole() -> list[tuple[int, int]]:
            crowd = (one(number, group) for number in range(people) for group in GROUPS)
            return await asyncio.gather(*crowd)

        assert set(asyncio.run(whole())) == {(1, 1)}
