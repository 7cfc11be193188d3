"""A person follows the board and detects one that forks, shrinks, withholds or moves."""

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from coatcheck import durable_files
from coatcheck.durable_files import write_bytes
from coatcheck.errors import Equivocation, Refused
from coatcheck.protocol.board import Board
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.ticket import write_ticket
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.person.board_view import BoardView
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import Absent, HttpClient
from support.rounds import SmallRound

SHUFFLER = "https://shuffler-1.example"


class Wire(HttpClient):
    """A client of objects in this process: a board, and documents by their address."""

    def __init__(self, board: Board, small: SmallRound) -> None:
        self.board = board
        self.small = small
        self.documents: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.post = board.post

    async def close(self) -> None:
        """Nothing is open."""

    async def get(self, url: str, *, most: int = 0) -> bytes:
        """Answer as the board's routes do."""
        del most
        self.asked.append(url)
        if url in self.documents:
            return self.documents[url]
        parts = urlsplit(url)
        given = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
        digest = self.small.round.digest
        match parts.path.rpartition("/")[2]:
            case "checkpoint":
                return self.board.checkpoint()
            case "place":
                return str(self.board.place(digest)).encode()
            case "inclusion":
                return _path(self.board.inclusion(given["place"], size=given["size"]))
            case "consistency":
                return _path(self.board.consistency(given["old"], new=given["new"]))
            case "letters":
                return b"".join(self.board.letters(digest, since=given["since"]))
        raise Absent(f"{url} refused: nothing here")

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Post a letter, prefixed by its recipient's contact."""
        del url, headers, method
        posting = body[self.small.round.suite.contact_size :]
        return json.dumps({"place": self.post(posting, self.small.round)}).encode()


def _path(path: list[bytes]) -> bytes:
    return json.dumps({"path": [step.hex() for step in path]}).encode()


class Scene:
    """An answered round, a board that shows it, and a person with a ticket."""

    def __init__(self, folder: Path) -> None:
        self.small = SmallRound()
        self.tickets = self.small.crowd(2)
        self.raw = self.small.server().answer(self.small.batch(self.tickets))
        self.bulletin = verify_bulletin(self.raw, self.small.round)
        self.board = self.fresh()
        self.wire = Wire(self.board, self.small)
        self.path = folder / "ticket"
        write_bytes(self.path, write_ticket(self.tickets[0]), secret=True)
        self.view = BoardView(self.small.round, path=self.path, peers=self.wire)

    def fresh(self, *letters: bytes) -> Board:
        """Start a board with the same key, with the bulletin and these letters."""
        board = self.small.board()
        board.publish(self.raw, self.small.round)
        for letter in letters:
            board.post(letter, self.small.round)
        return board

    def letter(self) -> bytes:
        """Return a posting to a person of the round."""
        size = self.small.round.letter_size()
        return Posting(
            self.small.round.digest, self.tickets[1].keys.address, os.urandom(size)
        ).encode()

    def session(self, *, boards: Path | None = None) -> Session:
        """Open a session with the ticket, as a program does after a restart."""
        offer = self.small.offer("released")
        write_bytes(Path(f"{self.path}.offer"), document(offer), secret=True, replace=True)
        trusted = self.small.roles.trusted
        url = self.small.round.address
        return Session(url, path=self.path, trusted=trusted, peers=self.wire, boards=boards)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Provide an answered round."""
    return Scene(tmp_path)


def test_a_log_that_grows_is_followed_across_restarts(scene: Scene) -> None:
    """The last checkpoint is on disk, and a consistency proof checks the next one against it."""
    asyncio.run(scene.view.check_bulletin(scene.bulletin))
    for _ in range(3):
        scene.board.post(scene.letter(), scene.small.round)
    asyncio.run(scene.session().read())
    assert any("consistency?old=2&new=5" in url for url in scene.wire.asked)
    kept = Path(f"{scene.path}.checkpoint")
    assert kept.read_bytes() == scene.board.checkpoint()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_person_follows_a_board_across_rounds(scene: Scene, tmp_path: Path) -> None:
    """With one folder for all rounds, even a new ticket refuses a log that is not the known one."""
    boards = tmp_path / "ledger.boards"
    asyncio.run(scene.session(boards=boards).read())
    kept = boards / f"{scene.small.round.terms.board.verifying}.checkpoint"
    first = kept.read_bytes()
    assert first == scene.board.checkpoint()
    (tmp_path / "other").mkdir()
    other = Scene(tmp_path / "other")  # another round, at a board of the same key
    with pytest.raises(Equivocation):
        asyncio.run(other.session(boards=boards).read())
    assert kept.read_bytes() == first
    assert kept.with_suffix(".forked").read_bytes() == other.board.checkpoint()


def test_a_checkpoint_stored_by_another_round_stays(scene: Scene, tmp_path: Path) -> None:
    """A newer checkpoint stored during a fetch of an older one is neither a fork nor lost."""
    boards = tmp_path / "ledger.boards"
    asyncio.run(scene.session(boards=boards).read())
    older = scene.board.checkpoint()
    scene.board.post(scene.letter(), scene.small.round)
    ask = scene.wire.get

    async def slowly(url: str, *, most: int = 0) -> bytes:
        if url.endswith("/checkpoint"):
            scene.wire.get = ask  # type: ignore[method-assign] # once
            await scene.session(boards=boards).read()
            return older
        return await ask(url, most=most)

    scene.wire.get = slowly  # type: ignore[method-assign] # once
    asyncio.run(scene.session(boards=boards).read())
    kept = boards / f"{scene.small.round.terms.board.verifying}.checkpoint"
    assert kept.read_bytes() == scene.board.checkpoint()


def test_a_slow_disk_takes_no_newer_checkpoint_back(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds share a folder: a slow write does not replace the newer checkpoint."""
    boards, write = tmp_path / "ledger.boards", durable_files.replace_file
    kept = boards / f"{scene.small.round.terms.board.verifying}.checkpoint"
    other = threading.Thread(target=lambda: asyncio.run(scene.session(boards=boards).read()))

    def slow(path: Path, raw: bytes, *, mode: int) -> None:
        if path == kept and not other.ident:
            scene.board.post(scene.letter(), scene.small.round)
            other.start()
            other.join(0.5)  # time enough for one that does not wait
        write(path, raw, mode=mode)

    monkeypatch.setattr(durable_files, "replace_file", slow)
    asyncio.run(scene.session(boards=boards).read())
    other.join()
    assert kept.read_bytes() == scene.board.checkpoint()


@pytest.mark.parametrize("more", [0, 1, 2])
def test_another_log_is_refused_and_both_checkpoints_are_stored(scene: Scene, more: int) -> None:
    """A board with another history has no consistency proof, however large its log is."""
    scene.board.post(scene.letter(), scene.small.round)
    asyncio.run(scene.view.check_bulletin(scene.bulletin))
    first = scene.board.checkpoint()
    scene.wire.board = scene.fresh(*(scene.letter() for _ in range(more)))
    with pytest.raises(Equivocation, match=r"ticket\.forked"):
        asyncio.run(scene.session().read())
    assert Path(f"{scene.path}.checkpoint").read_bytes() == first
    assert Path(f"{scene.path}.forked").read_bytes() == scene.wire.board.checkpoint()


def test_a_board_without_a_proof_is_refused(scene: Scene) -> None:
    """A board that returns no consistency proof is refused, since its log may have forked."""
    asyncio.run(scene.view.follow())
    scene.board.post(scene.letter(), scene.small.round)
    scene.wire.documents[f"{scene.view.url}/proofs/consistency?old=2&new=3"] = b"{}"
    with pytest.raises(Equivocation, match="no proof"):
        asyncio.run(scene.view.follow())


def test_a_writer_sees_the_letter_in_the_log(scene: Scene) -> None:
    """The client reports a letter that the board accepted but does not show."""
    to = scene.tickets[1].keys.contact_raw
    asyncio.run(scene.session().write(b"hello", to=to))
    assert any("inclusion?place=2&size=3" in url for url in scene.wire.asked)
    scene.wire.post = lambda raw, round_: 0  # noqa: ARG005 - it says it did
    with pytest.raises(Equivocation):
        asyncio.run(scene.session().write(b"again", to=to))


def test_an_answer_without_a_place_is_told(scene: Scene) -> None:
    """The client reports a board that accepts a letter without a place in the log."""

    class Silent:
        async def send(self, url: str, body: bytes, **kept: object) -> bytes:
            del url, body, kept
            return b"{}"

    session = scene.session()
    session._peers = Silent()  # type: ignore[assignment]
    with pytest.raises(Refused, match="the place of your letter"):
        asyncio.run(session.write(b"hello", to=scene.tickets[1].keys.contact_raw))


def test_the_terms_say_where_the_board_is(scene: Scene) -> None:
    """A shuffler cannot redirect people to a board that the terms do not name."""
    offer = msgspec.to_builtins(scene.small.offer("released"))
    offer["board"] = "http://elsewhere.example"
    scene.wire.documents[scene.small.round.address] = json.dumps(offer).encode()
    session = scene.session()

    async def whole() -> None:
        assert (await session.offer()).status.phase == "released"
        await session.read()

    asyncio.run(whole())
    asked = {url.partition("/rounds")[0].partition("/checkpoint")[0] for url in scene.wire.asked}
    assert asked == {SHUFFLER, "https://board.example"}


def test_other_terms_are_refused(scene: Scene) -> None:
    """A shuffler that shows other terms at the address of a ticket causes `Equivocation`."""
    signed = {**msgspec.to_builtins(scene.small.signed), "document": "{}"}
    offer = {**msgspec.to_builtins(scene.small.offer()), "signed": signed}
    scene.wire.documents[scene.small.round.address] = json.dumps(offer).encode()
    with pytest.raises(Equivocation, match="other terms"):
        asyncio.run(scene.session().offer())


def test_an_offer_without_a_ticket_is_of_no_round(tmp_path: Path, scene: Scene) -> None:
    """Files left by a crash before a ticket existed do not bind a person to their terms."""
    path = tmp_path / "fresh"
    write_bytes(Path(f"{path}.offer"), b"rubbish", secret=True)
    offer = msgspec.to_builtins(scene.small.offer())
    url, trusted = scene.small.round.address, scene.small.roles.trusted
    scene.wire.documents[url] = json.dumps(offer).encode()
    session = Session(url, path=path, trusted=trusted, peers=scene.wire)
    assert asyncio.run(session.offer()).signed == scene.small.signed
