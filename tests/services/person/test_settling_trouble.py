"""Settling with hostile people and a hostile board: no session hangs or loses its ticket."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.letters import read_notice
from coatcheck.protocol.settling.candidates import Candidates
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.letters import settle
from coatcheck.services.person.session import BYTES, Session
from coatcheck.services.web.client import HttpClient
from services.person.test_settling import PLACES, check, drafted, gathered, settled
from support.service_rounds import PATIENCE, QUICK

pytestmark = pytest.mark.service

MOST = 40
"""How many letters an address may get."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide running services."""
    few = {"board": {"letters_each": MOST}}
    with Cluster(tmp_path_factory.mktemp("trouble"), extra=QUICK, role_extra=few) as local:
        yield local


async def opened(local: Cluster, name: str, peers: HttpClient, **settle: Any) -> list[Session]:
    """Open a round and let people join."""
    plain = drafted(name, pause=1)
    plain["settle"] |= settle
    url = await asyncio.to_thread(local.open_round, plain, closes=1, expires=3600)
    return await gathered(local, url, peers)


async def fill(session: Session) -> None:
    """Use up a person's letters, as anyone who knows the contact can."""
    keys, round_ = session.ticket.keys, session.round
    size = round_.letter_size()
    raw = [Posting(round_.digest, keys.address, os.urandom(size)).encode() for _ in range(MOST)]
    url = f"{session._round_at_board}/letters"
    await session._peers.send(url, b"".join(keys.contact_raw + one for one in raw), headers=BYTES)


def test_a_full_mailbox_costs_only_its_owner(local: Cluster) -> None:
    """A person who has that candidate among others settles with another one."""

    async def some_meet(pause: int) -> bool:
        async with HttpClient() as peers:
            sessions = await opened(local, f"full {pause}", peers, pause=pause)
            await asyncio.gather(*(session.collect(patience=PATIENCE) for session in sessions))
            await fill(sessions[-1])
            *others, last = await asyncio.gather(*map(settled, sessions), return_exceptions=True)
            assert isinstance(last, Refused)
            sides = [side for side in others if isinstance(side, Candidates)]
            assert len(sides) == len(others)
            check(sides)
            return any(side.partners for side in sides)

    # On a busy machine a short pause is over before anybody has written.
    assert any(asyncio.run(some_meet(pause)) for pause in (1, 10, 100))


def test_a_person_with_only_full_mailboxes_has_no_partner(
    local: Cluster,
) -> None:
    """This is no error, though a step may have a single letter to a mailbox that a cheat filled."""

    async def whole() -> None:
        async with HttpClient() as peers:
            sessions = await opened(local, "all full", peers)
            await asyncio.gather(*(session.collect(patience=PATIENCE) for session in sessions))
            riders, drivers = sessions[: len(PLACES)], sessions[len(PLACES) :]
            for driver in drivers:
                await fill(driver)
            sides = await asyncio.gather(*map(settled, sessions), return_exceptions=True)
            alone, refused = sides[: len(riders)], sides[len(riders) :]
            assert [type(side) for side in alone] == [Candidates] * len(riders)
            assert not any(side.partners for side in alone if isinstance(side, Candidates))
            assert [type(side) for side in refused] == [Refused] * len(drivers)

    asyncio.run(whole())


def test_a_hidden_notice_is_not_awaited_for_ever(local: Cluster) -> None:
    """The board accepts a notice and does not show it: the session says so after its patience."""

    async def whole() -> None:
        async with HttpClient() as peers:
            sessions = await opened(local, "hidden", peers)
            first = sessions[0]
            await first._load_terms()
            mine, shown = first.ticket.keys.address, first.letter_source.to

            def hiding(addresses: Sequence[bytes], *, since: int) -> list[bytes]:
                found = shown(addresses, since=since)
                return [raw for raw in found if raw[36:52] != mine or not is_notice(raw)]

            def is_notice(raw: bytes) -> bool:
                return read_notice(raw, first.round) is not None

            first.letter_source.to = hiding  # type: ignore[method-assign, assignment] # the board lies
            await first.collect(patience=PATIENCE)
            others = asyncio.gather(*map(settled, sessions[1:]))
            with pytest.raises(Unavailable, match="does not show it"):
                await asyncio.wait_for(settle(first, PLACES[0], patience=2, look=0.1), PATIENCE)
            check(await others)

    asyncio.run(whole())


def test_made_up_numbers_lose_no_ticket(local: Cluster) -> None:
    """Cells too small for any place, and a log place beyond the limit, lose no ticket."""

    class Misled(Session):
        async def post(self, stamped: Sequence[bytes], *, patience: float = 60.0) -> int:
            await super().post(stamped, patience=patience)
            return 1 << 60

    async def whole() -> None:
        async with HttpClient() as peers:
            sessions = await opened(local, "tiny", peers, cell=1e-12, rings=[1e-12])
            with pytest.raises(Refused, match="too small"):
                await settle(sessions[1], PLACES[1], patience=PATIENCE)
            assert sessions[1].ticket.settling is None
            sessions = await opened(local, "far", peers)
            misled = Misled(
                sessions[0].url, path=Path(sessions[0].path), trusted=local.trusted, peers=peers
            )
            first, *_ = await asyncio.gather(
                *map(settled, (misled, *sessions[1:])), return_exceptions=True
            )
            assert isinstance(first, Refused)
            assert misled.ticket.settling is not None
            assert misled.ticket.settling.placed == []

    asyncio.run(whole())
