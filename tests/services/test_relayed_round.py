"""A round through a relay with wiretaps everywhere: no party sees a name with a request."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Misuse, Unavailable
from coatcheck.protocol.oblivious_http import SIZES
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person import board_view
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, draft
from support.wiretaps import Wiretap, from_address

pytestmark = pytest.mark.service

PEOPLE = 3
"""People per group."""
HOMES = [f"127.77.0.{n}" for n in range(1, 2 * PEOPLE + 1)]
"""Where people live: each has an address of their own on this machine."""
ALOOF = "127.78.0.1"
"""Somebody who asks without a relay."""


@dataclass
class Tapped:
    """Services behind wiretaps, and a round that went through them."""

    local: Cluster
    taps: dict[str, Wiretap]
    url: str
    sessions: list[Session]
    found: list[Any]

    def records(self, name: str) -> bytes:
        """Return all that a role could have stored: requests, logs and files."""
        files = [path for path in self.local.folder.glob(f"{name}*") if path.is_file()]
        heard = self.taps[name].everything if name in self.taps else b""
        return heard + b"".join(path.read_bytes() for path in files)


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapped]:
    """Run a round in which all requests go through the relay and clients demand a witness."""
    folder = tmp_path_factory.mktemp("tapped")
    with ExitStack() as stack:
        taps = {
            name: stack.enter_context(Wiretap())
            for name in ("shuffler-1", "server", "board", "relay")
        }
        extra = {name.partition("-")[0]: tap.settings for name, tap in taps.items()}
        local = Cluster(folder, relay=True, witnesses=1, extra=QUICK, role_extra=extra)
        stack.enter_context(local)
        url = local.open_round(draft("tapped", minimum=PEOPLE), closes=1, expires=3600)
        made = Tapped(local, taps, url, [], [])
        asyncio.run(_hold(made))
        yield made


async def _hold(made: Tapped) -> None:
    people = made.local.folder / "people"
    people.mkdir()

    async def join(number: int) -> Session:
        session = _visit(made, number)
        group = GROUPS[number % 2]
        await session.join((0.25, 0.5), group=group, limit=LIMIT, ledger=None, patience=PATIENCE)
        return session

    made.sessions = list(await asyncio.gather(*(join(n) for n in range(2 * PEOPLE))))
    ways = [board_view.one_entry, board_view.whole_board, board_view.by_size]
    made.found = await asyncio.gather(
        *(
            session.collect(patience=PATIENCE, retrieval=ways[number % 3])
            for number, session in enumerate(made.sessions)
        )
    )
    for session, answer in zip(made.sessions, made.found, strict=True):
        await session.write(b"at the corner", to=answer.partners[0].contact)
    boxes = [await session.read() for session in made.sessions]
    assert [letter.body for box in boxes for letter in box.letters] == [b"at the corner"] * (
        2 * PEOPLE
    )
    for session in made.sessions:
        await session._peers.close()


def _visit(made: Tapped, number: int) -> Session:
    trusted, http = made.local.trusted, from_address(HOMES[number])
    peers = RelayedClient(made.local.url("relay"), first=made.url, trusted=trusted, http=http)
    path = made.local.folder / "people" / f"ticket-{number}"
    return Session(made.url, path=path, trusted=trusted, peers=peers)


def test_no_role_sees_a_person(tapped: Tapped) -> None:
    """No connection, log, store or packet of a role contains a person's address."""
    for name in ("shuffler-1", "server", "board"):
        assert not set(HOMES) & set(tapped.taps[name].callers)
        records = tapped.records(name)
        assert len(records) > 1_000
        assert not [home for home in HOMES if home.encode() in records]
    # The relay met them all: the tap would have heard them at the roles, too.
    assert set(HOMES) <= set(tapped.taps["relay"].callers)


def test_the_relay_sees_no_content(tapped: Tapped) -> None:
    """Nothing the relay saw or stored contains an upload, entry, letter or address, even sealed."""
    records = tapped.records("relay").lower()
    board = tapped.taps["board"].everything + tapped.records("board")
    round_ = tapped.sessions[0].round
    tickets = [session.ticket for session in tapped.sessions]
    pieces = [round_.digest, *(ticket.upload[60:92] for ticket in tickets)]
    pieces += [ticket.keys.address for ticket in tickets]
    for piece in pieces:
        assert piece.lower() not in records
        assert piece.hex().encode() not in records
    assert b"/rounds/" not in records
    # What is searched for is there where it may be: on the board.
    assert all(ticket.keys.address in board for ticket in tickets)


def test_the_relay_writes_nothing_down(tapped: Tapped) -> None:
    """The relay's log has only the line with its address."""
    text = (tapped.local.folder / "relay.log").read_text(encoding="utf-8")
    assert text.splitlines() == [f"coatcheck: relay at {tapped.taps['relay'].url}"]
    assert not list(tapped.local.folder.glob("relay*.db"))


def test_steps_cannot_be_told_apart_by_size(tapped: Tapped) -> None:
    """Every sealed request has one size; so has every answer except pieces of the bulletin."""
    relay = tapped.taps["relay"]
    assert relay.sizes(b"message/ohttp-req") == {SIZES[0]}
    assert relay.sizes(b"message/ohttp-res") <= set(SIZES)
    assert SIZES[0] in relay.sizes(b"message/ohttp-res")


def test_a_direct_request_would_have_been_found(tapped: Tapped) -> None:
    """The same search finds a person who sends a request to the board directly."""

    async def whole() -> None:
        async with from_address(ALOOF) as http:
            await http.get(f"{tapped.local.url('board')}/checkpoint")

    asyncio.run(whole())
    assert ALOOF in tapped.taps["board"].callers


def test_one_entry_needs_a_relay(tapped: Tapped) -> None:
    """Without a relay the client refuses to fetch it, and the ticket remembers the relay."""
    number = 1
    path, trusted = tapped.sessions[number].path, tapped.local.trusted
    remembered = Session(tapped.url, path=path, trusted=trusted)
    assert isinstance(remembered._peers, RelayedClient)
    asyncio.run(remembered._peers.close())
    Path(f"{path}.relay").rename(f"{path}.away")

    async def direct() -> None:
        async with Session(tapped.url, path=path, trusted=trusted) as session:
            await session.collect(retrieval=board_view.one_entry)

    with pytest.raises(Misuse, match="give a relay"):
        asyncio.run(direct())
    Path(f"{path}.away").rename(f"{path}.relay")


def test_every_retrieval_gives_the_same_answer(tapped: Tapped) -> None:
    """One entry, the whole board, and the choice by size."""

    async def whole() -> None:
        session = _visit(tapped, 0)
        found = [await session.collect(retrieval=way) for way in board_view.RETRIEVALS.values()]
        assert found == [tapped.found[0]] * 3
        await session._peers.close()

    asyncio.run(whole())


def test_with_the_relay_gone_nothing_goes_around_it(tapped: Tapped) -> None:
    """The client waits, says so, and no role gets a request. The last test: it ends the relay."""
    tapped.local.kill("relay")
    before = {name: len(tap.callers) for name, tap in tapped.taps.items() if name != "relay"}

    async def whole() -> None:
        session = _visit(tapped, 0)
        with pytest.raises(Unavailable, match="nothing was sent without the relay"):
            await session.collect(patience=1.0)
        with pytest.raises(Unavailable, match="nothing was sent without the relay"):
            await session.write(b"hello", to=tapped.found[0].partners[0].contact, patience=0.5)
        await session._peers.close()

    asyncio.run(whole())
    callers = {name: tapped.taps[name].callers[count:] for name, count in before.items()}
    assert not [home for some in callers.values() for home in some if home in HOMES]
