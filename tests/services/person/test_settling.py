"""Settling through running services: real letters, a crash in the middle, and the command."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import main
from coatcheck.errors import Equivocation, Refused
from coatcheck.protocol import client
from coatcheck.protocol.letters import read_notice
from coatcheck.protocol.settling.candidates import Candidates, begin
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person import letters
from coatcheck.services.person.letters import RoundLetters, settle
from coatcheck.services.person.relay_client import wait_random
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import GROUPS, LIMIT, PATIENCE, draft

pytestmark = pytest.mark.service

PLACES = ((0.1, 0.2), (0.8, 0.7), (0.4, 0.9), (0.6, 0.1))


@pytest.fixture
def local(running: Cluster) -> Cluster:
    """Provide running services."""
    return running


def drafted(name: str, *, pause: int = 3600, decoys: int = 0) -> dict[str, Any]:
    """Draft a round in which riders settle with one of two drivers."""
    plain = draft(name, minimum=4, decoys=decoys)
    plain["task"]["candidates"] = 2
    settling = {"cell": 0.25, "rings": [0.3, 0.6, 1.2], "asks": [2, 1], "pause": pause}
    settling["spread"] = 0.3
    return {**plain, "settle": settling}


async def gathered(local: Cluster, url: str, peers: HttpClient, *, but: int = 0) -> list[Session]:
    """Let people join, except the last `but` riders."""
    sessions = []
    for group in GROUPS:
        for number, place in enumerate(PLACES[: len(PLACES) - but * (group == "riders")]):
            path = local.folder / f"{url[-8:]}-{group}-{number}"
            session = Session(url, path=path, trusted=local.trusted, peers=peers)
            await session.join(place, group=group, limit=LIMIT, ledger=None)
            sessions.append(session)
    return sessions


def place_of(session: Session) -> Sequence[float]:
    """Return a person's place."""
    return PLACES[int(session.path.name[-1])]


def words_of(session: Session) -> str:
    """Return the words that a person sends to the partner."""
    return f"I am {session.ticket.keys.address.hex()}"


async def settled(session: Session) -> Candidates:
    """Settle as a person does."""
    words = words_of(session)
    return await settle(session, place_of(session), words=words, patience=PATIENCE, look=0.1)


def check(sides: Sequence[Candidates]) -> None:
    """Check that partners name each other and exchanged words, and that others wrote none."""
    by_name = {side.machine.address: side for side in sides}
    for side in sides:
        for partner in side.machine.partners:
            if partner in by_name:
                assert by_name[partner].machine.partners == (side.machine.address,)


def test_people_settle_and_a_crash_sends_the_same_letters(local: Cluster) -> None:
    """Each person writes as many letters as the lists require, despite crashes at every step."""

    class Crashing(Session):
        crashes = 0

        async def post(self, postings: Sequence[bytes], *, patience: float = 60.0) -> int:
            # Before anything leaves, or after all of it has: both happen.
            if self.crashes % 2:
                await super().post(postings, patience=patience)
            self.crashes += 1
            if self.crashes <= 6:
                raise ConnectionResetError
            return await super().post(postings, patience=patience)

    async def whole() -> None:
        url = await asyncio.to_thread(local.open_round, drafted("letters"), closes=1, expires=3600)
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers)
            sick = Crashing(url, path=sessions[0].path, trusted=local.trusted, peers=peers)

            async def again() -> Candidates:
                while True:
                    try:
                        return await settled(sick)
                    except ConnectionResetError:
                        continue

            sides = await asyncio.gather(again(), *(settled(session) for session in sessions[1:]))
            check(sides)
            assert sick.crashes > 6
            paired = [side for side in sides if side.partners]
            assert len(paired) >= 4
            for side in paired:
                (partner,) = side.machine.partners
                assert list(side.words.values()) == [f"I am {partner.hex()}".encode()]
            feed = sessions[1].all_letters()
            await feed.update()
            assert len(feed.postings) == sum(letters_of(side) for side in sides)
            assert len({len(posting) for posting in feed.postings}) == 1
            # Settling's letters are not shown among those that people write.
            assert (await sessions[1].read()).letters == ()
            stranger(sessions[1], sides[1], feed.postings)

    asyncio.run(whole())


def test_decoys_write_the_same_letters_as_people(
    local: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every address on the board writes what its answer requires, despite crashes; none is known.

    Nobody settles with a decoy, or with somebody who does not want to: partners are people, and
    they name each other. Before each posting a client waits for a random time.
    """
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await wait_random(seconds)

    monkeypatch.setattr(letters, "wait_random", wait)

    class Crashing(Session):
        crashes = 0

        async def post(self, postings: Sequence[bytes], *, patience: float = 60.0) -> int:
            self.crashes += 1
            if self.crashes % 3 == 0 and self.crashes < 15:
                raise ConnectionResetError
            return await super().post(postings, patience=patience)

    async def whole() -> None:
        draft = drafted("hiding", decoys=1)
        url = await asyncio.to_thread(local.open_round, draft, closes=1, expires=3600)
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers)
            sick = Crashing(url, path=sessions[0].path, trusted=local.trusted, peers=peers)

            async def again() -> Candidates:
                while True:
                    try:
                        return await settled(sick)
                    except ConnectionResetError:
                        continue

            unwilling = settle(sessions[-1], None, axes=2, patience=PATIENCE, look=0.1)
            others = (settled(session) for session in sessions[1:-1])
            sides = await asyncio.gather(again(), *others, unwilling)
            check(sides)
            assert not sides[-1].partners
            owners = {side.machine.address for side in sides}
            assert {partner for side in sides for partner in side.machine.partners} <= owners
            assert any(side.partners for side in sides)
            feed = sessions[1].all_letters()
            await feed.update()
            round_, sizes = sessions[1].round, (8, 8)
            hidden = [
                Candidates(ticket, shown, round_=round_, sizes=sizes)
                for session in (sick, *sessions[1:])
                for ticket, shown in zip(
                    session.ticket.decoy_tickets(), session.decoy_answers, strict=True
                )
                if shown is not None
            ]
            assert len(hidden) == len(sides) == 8
            assert not any(side.partners for side in hidden)
            everybody = [*sides, *hidden]
            assert len(feed.postings) == sum(letters_of(side) for side in everybody)
            assert len({len(posting) for posting in feed.postings}) == 1
            notices = [read_notice(raw, round_) for raw in feed.postings]
            wrote = Counter(notice.sender.address for notice in notices if notice)
            assert wrote == {side.machine.address: 5 for side in everybody}
            assert set(waits) == {0.3}
            # Who asks writes at eleven of the sixteen steps, who answers at thirteen.
            assert len(waits) >= 8 * 11 + 8 * 13

    asyncio.run(whole())


def letters_of(side: Candidates) -> int:
    """Return the number of letters that the protocol requires of a person."""
    first, second = (len(names) for names in side.machine.lists)
    shows = 0 if side.machine.asks else 1
    talk = (shows + 2) * first + (shows + 1) * second
    return 5 + 2 * (first + second) + talk + first + second


def stranger(session: Session, side: Candidates, postings: list[bytes]) -> None:
    """Check that foreign and torn letters are not read as this person's notices."""
    mine = [raw for raw in postings if read_notice(raw, session.round)]
    assert len(mine) == 5 * 8
    forged = mine[0][:-60] + bytes(60)
    assert read_notice(forged, session.round) is None
    sealed = next(raw for raw in postings if raw[36:52] == side.machine.address)
    before = dict(side.refused)
    side.hear([sealed[:-1] + bytes([sealed[-1] ^ 1])], read=0)
    assert sum(side.refused.values()) == sum(before.values()) + 1


def test_people_who_never_write_cost_others_only_time(local: Cluster) -> None:
    """A rider and a driver who never settle have no partner, and the others agree."""

    async def whole() -> None:
        url = await asyncio.to_thread(
            local.open_round, drafted("silent", pause=1), closes=1, expires=3600
        )
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers)
            check(await asyncio.gather(*(settled(session) for session in sessions[1:-1])))

    asyncio.run(whole())


def test_no_words_leave_before_the_log_has_the_own_notices(local: Cluster) -> None:
    """A board that misplaces a person's notices is detected before their words leave."""

    class Misled(Session):
        async def post(self, postings: Sequence[bytes], *, patience: float = 60.0) -> int:
            return await super().post(postings, patience=patience) - 1

    async def whole() -> None:
        url = await asyncio.to_thread(
            local.open_round, drafted("misled", pause=1), closes=1, expires=3600
        )
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers)
            misled = Misled(url, path=sessions[0].path, trusted=local.trusted, peers=peers)
            everybody = [settled(session) for session in (misled, *sessions[1:])]
            first, *others = await asyncio.gather(*everybody, return_exceptions=True)
            assert isinstance(first, Equivocation)
            sides = [side for side in others if isinstance(side, Candidates)]
            assert len(sides) == len(others)
            mine = misled.ticket.keys.contact_raw
            assert all(mine not in side.words for side in sides)

    asyncio.run(whole())


def test_sessions_share_the_requests_of_one_letter_source() -> None:
    """Concurrent updates need two fetches in total; a later update fetches again."""

    class Page(HttpClient):
        asked = 0
        shown = b"x" * 60

        async def get(self, url: str, *, most: int = 0) -> bytes:
            del most
            self.asked += 1
            await asyncio.sleep(0)
            return self.shown[60 * int(url.rpartition("=")[2]) :]

    async def whole() -> None:
        async with Page() as peers:
            feed = RoundLetters("http://board", size=60, peers=peers)
            await asyncio.gather(*(feed.update() for _ in range(50)))
            assert peers.asked <= 4  # two fetches, each with the empty page at its end
            peers.shown += b"y" * 60
            await feed.update()
            assert feed.postings == [b"x" * 60, b"y" * 60]
            assert feed.to([b"y" * 16], since=1) == [b"y" * 60]
            assert feed.to([b"x" * 16], since=1) == []

    asyncio.run(whole())


def test_the_command_settles(local: Cluster, tmp_path: Path) -> None:
    """`take-part --settle` prints the partner and their words; it sends nothing but `--words`."""
    url = local.open_round(drafted("command"), closes=1, expires=3600)
    ledger, ticket = tmp_path / "ledger", tmp_path / "ticket-3"
    Ledger.open(ledger, epsilon=20.0, delta=1e-2)
    files = sorted(local.folder.glob("*.public"))
    words = ["take-part", url, "--ticket", ticket, "--ledger", ledger, "--epsilon", 10]
    words += ["--delta", 1e-3, "--group", "riders", "--value", "0.6,0.1", "--settle", "--json"]
    words += [word for file in files for word in ("--trust", file)]

    for most, wrong in ((3, "your limit is 3"), (0, "must be at least 1")):
        few = [*map(str, words), "--disclosures", str(most)]
        refused = CliRunner().invoke(main, few)
        assert refused.exit_code
        assert wrong in refused.stderr
        assert not ticket.exists()
        assert Ledger.open(ledger).rounds == ()

    async def whole() -> tuple[Any, list[Candidates]]:
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers, but=1)
            everybody = asyncio.gather(*(settled(session) for session in sessions))
            found = await asyncio.to_thread(CliRunner().invoke, main, [str(one) for one in words])
            return found, await everybody

    result, others = asyncio.run(whole())
    assert result.exit_code == 0, result.output
    # Before anything is spent the command says what letters tell; the ledger counts it.
    told, sent = "each of at most 4 candidates learns one exact answer", "signed for your report"
    assert told in result.stderr.partition(sent)[0]
    assert Ledger.open(ledger).disclosures == 4
    document = json.loads(result.stdout)
    # The second list is shorter where too few others are left, which the noise decides.
    assert len(document["partners"]) == 2
    assert len(document["second"]) <= 2
    mine = Session(url, path=ticket, trusted=local.trusted).ticket.keys.address
    partners = [side for side in others if mine in side.machine.partners]
    assert document["settled"]["partners"] == [
        {
            "contact": partner.ticket.keys.contact_raw.hex(),
            "words": f"I am {partner.machine.address.hex()}",
        }
        for partner in partners
    ]
    assert [partner.words for partner in partners] == [{}] * len(partners)  # no words, no place


def test_terms_without_settling_are_refused(local: Cluster) -> None:
    """A round whose terms have no settling is refused before anything is written."""
    url = local.open_round(draft("plain", minimum=4), closes=1, expires=3600)

    async def whole() -> None:
        async with HttpClient() as peers:
            sessions = await gathered(local, url, peers)
            bulletin = await sessions[0].bulletin(patience=PATIENCE)
            with pytest.raises(Refused, match="have no `settle`"):
                begin(sessions[0].ticket, (0.1, 0.2), round_=bulletin.round, now=0.0)
            with pytest.raises(Refused, match="have no `settle`"):
                await settled(sessions[0])
            answer = client.collect(sessions[0].ticket, bulletin)
            assert answer.second == ()
            assert sessions[0].ticket.settling is None

    asyncio.run(whole())
