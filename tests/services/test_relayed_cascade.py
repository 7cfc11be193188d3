"""A cascade with decoys through a relay: registrations, uploads, proofs, answers and letters."""

import asyncio
from pathlib import Path

import pytest

from coatcheck.protocol.ticket import Ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.board_view import one_entry
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import DOCUMENT
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, SPARE, draft

pytestmark = pytest.mark.service

DECOYS = 1


class Recording(RelayedClient):
    """A client behind a relay that stores what it asks for."""

    asked: list[str]

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Record the address of a document, and fetch it."""
        self.asked = [*getattr(self, "asked", []), url]
        return await super().get(url, most=most)


def test_a_whole_cascade_with_decoys_goes_through_a_relay(tmp_path: Path) -> None:
    """People register with the second shuffler, upload to the first, and get their answers.

    Everybody fetches single entries: that of the report and that of each decoy, once.
    """
    people = 3 + SPARE + 1  # the count of traps holds for reports and decoys
    with Cluster(tmp_path, shufflers=2, relay=True, extra=QUICK) as local:
        url = local.open_round(draft("cascade", minimum=3, decoys=DECOYS), closes=1, expires=3600)
        relay = local.url("relay")

        async def one(number: int, group: str) -> tuple[Ticket, list[str]]:
            path = tmp_path / f"{group}-{number}"
            client = Recording(relay, first=url, trusted=local.trusted)
            session = Session(url, path=path, trusted=local.trusted, peers=client)
            ticket = await session.join(
                (0.25, 0.5),
                group=group,
                limit=LIMIT,
                ledger=None,
                token=local.take_tokens(),
                patience=PATIENCE,
            )
            answer = await session.collect(patience=PATIENCE, retrieval=one_entry)
            assert len(answer.partners) == len(ticket.registered) == 1
            assert len(session.decoy_answers) == DECOYS
            assert all(shown and len(shown.partners) == 1 for shown in session.decoy_answers)
            assert not (await session.read()).letters
            await client.close()
            return ticket, client.asked

        async def whole() -> list[tuple[Ticket, list[str]]]:
            crowd = (one(number, group) for number in range(people) for group in GROUPS)
            return await asyncio.gather(*crowd)

        first = set()
        for ticket, asked in asyncio.run(whole()):
            entries = [url.rpartition("/")[2] for url in asked if "/entries/" in url]
            assert sorted(entries) == sorted(address.hex() for address in ticket.addresses)
            first.add(entries[0] == ticket.keys.address.hex())
        assert first == {True, False}  # by chance once in 2^25
