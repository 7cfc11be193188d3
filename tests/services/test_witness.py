"""A witnessed board: witnesses cosign a log that grows, and clients that demand them see it."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Equivocation, Misuse, Refused, Unavailable
from coatcheck.protocol import client
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import PublicKeys
from coatcheck.protocol.log.merkle import EMPTY, Tree
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note, NoteKey, Submission
from coatcheck.protocol.log.verification import VerifiedCheckpoint, board_note_key
from coatcheck.protocol.log.witness_policy import Quorum
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.board.routes import BoardService
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.person.board_view import BoardView
from coatcheck.services.settings import BoardSettings, WitnessSettings
from coatcheck.services.web.client import HttpAnswer, HttpClient, body_of
from coatcheck.services.witness import WitnessService
from support.asking import ask
from support.boards import show
from support.rounds import SmallRound

SMALL = SmallRound()
CROWD = SMALL.crowd(2)
BULLETIN = SMALL.server().answer(SMALL.batch(CROWD))
SIGNING = SMALL.roles.board.signing
KEY = board_note_key(SIGNING.public_raw.hex())


def letter(number: int) -> bytes:
    """Return a letter from one person to another."""
    to = CROWD[1].keys.contact_raw
    return client.write(CROWD[0], bytes((65 + number,)), to=to, round_=SMALL.round)[0]


LETTERS = [letter(number) for number in range(3)]


class Scene:
    """A board and its witnesses, whose connections are function calls."""

    def __init__(self, folder: Path, *, witnesses: int = 2) -> None:
        self.folder = folder
        public = PublicKeys(
            name="board", suite="x25519", verifying=SIGNING.public_raw.hex(), sealing="00"
        )
        (folder / "board.pub").write_bytes(document(public))
        make_keys(folder / "board", name="board")
        self.names = [f"witness-{n}.example" for n in range(witnesses)]
        for name in self.names:
            make_keys(folder / name, name=name)
        self.witnesses = {name: self.witness(name) for name in self.names}
        self.away: set[str] = set()
        self.board: BoardService

    def witness(self, name: str) -> WitnessService:
        """Start a witness."""
        settings = WitnessSettings(
            name=name,
            key=f"{name}.key",
            boards=("board.pub",),
            checkpoints=f"{name}.notes",
            folder=str(self.folder),
        )
        return WitnessService(settings)

    async def restarted(self, name: str) -> WitnessService:
        """Stop a witness and start it again."""
        await self.witnesses[name].end()
        self.witnesses[name] = self.witness(name)
        return self.witnesses[name]

    async def opened(self) -> BoardService:
        """Return a board that shows the round; another one is a fork."""
        settings = BoardSettings(
            name="board",
            store="memory:",
            keys=("board.key",),
            folder=str(self.folder),
            lease=10_000.0,
            witnesses=tuple(f"http://{name}" for name in self.names),
        )
        service = BoardService(settings)
        service.keyring._pairs[service.keyring.public.verifying] = SMALL.roles.board
        service.watched._signing = SIGNING
        await service.leadership.renew()  # which reads the store: nothing is there
        show(service, SMALL, BULLETIN)
        service._peers = self  # type: ignore[assignment] # all that the board asks of it
        return service

    def show(self, service: BoardService, *letters: bytes) -> None:
        """Post letters to a board."""
        service.commit([(SMALL.round, "letter", one) for one in letters])

    async def exchange(self, method: str, url: str, body: bytes = b"") -> HttpAnswer:
        """Pass the board's request to the witness."""
        name, _, path = url.removeprefix("http://").partition("/")
        if name in self.away:
            raise Unavailable("away")
        return await ask(self.witnesses[name], method, f"/{path}", body)

    def trusted(self, demanded: int) -> Trust:
        """Return trust in both witnesses that demands this many."""
        keys = [frozenset((one.note_key.raw,)) for one in self.witnesses.values()]
        return Trust(witnesses=Quorum.of(keys, demanded))

    def view(self, service: BoardService, demanded: int, *, name: str = "mine") -> BoardView:
        """Verify a board's log as a person does."""
        return BoardView(
            SMALL.round,
            path=self.folder / name,
            peers=Direct(service),
            trusted=self.trusted(demanded),
        )


class Direct(HttpClient):
    """A person's connection to a board without a socket."""

    def __init__(self, service: BoardService) -> None:
        self.service = service

    async def get(self, url: str, *, most: int = 0) -> bytes:
        """Send a request to the board."""
        del most
        return body_of(
            url, await ask(self.service, "GET", url.removeprefix(SMALL.round.terms.board.url))
        )


def run(folder: Path, work: Any, *, witnesses: int = 2) -> None:
    """Run a scene to its end."""

    async def whole() -> None:
        scene = Scene(folder, witnesses=witnesses)
        scene.board = await scene.opened()
        await work(scene)
        await scene.board.leadership.end()
        scene.board.store.close()

    asyncio.run(whole())


def test_people_who_demand_witnesses_get_what_these_have_seen(tmp_path: Path) -> None:
    """The log grows, and witnesses and a client follow: bulletin, entry and letter."""

    async def work(scene: Scene) -> None:
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        for demanded in (1, 2):
            view = scene.view(scene.board, demanded, name=f"person-{demanded}")
            await view.bulletin()
            ticket = CROWD[0]
            _, entry = await view.entry(ticket.group, ticket.keys.address)
            assert client.open_entry(ticket, entry)
        view = scene.view(scene.board, 2)
        assert (await view.follow()).size == 2
        scene.show(scene.board, *LETTERS[:2])
        with pytest.raises(Unavailable, match="have not cosigned this"):
            await view.check_letters([(2, LETTERS[0])])
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        await view.check_letters([(2, LETTERS[0])])
        assert (await view.follow()).size == 4

    run(tmp_path, work)


def test_terms_are_proven_under_what_witnesses_have_seen(tmp_path: Path) -> None:
    """A client that demands witnesses waits for them and refuses a round that is not logged."""
    morning = SmallRound(name="morning")

    async def work(scene: Scene) -> None:
        view = scene.view(scene.board, 2)
        with pytest.raises(Unavailable, match="you demand 2"):
            await view.check_logged()
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        await view.check_logged()
        await scene.view(scene.board, 0, name="trusting").check_logged()
        for demanded in (0, 2):
            other = scene.view(scene.board, demanded, name=f"other-{demanded}")
            other.round = morning.round
            with pytest.raises(Refused, match="has not logged the terms"):
                await other.check_logged()
        show(scene.board, morning)
        with pytest.raises(Unavailable, match="not under that checkpoint"):
            await other.check_logged()
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        await other.check_logged()

    run(tmp_path, work)


def test_what_no_witness_has_seen_is_awaited(tmp_path: Path, monkeypatch: Any) -> None:
    """Witnesses that saw only an empty log are waited for: that is no equivocation."""

    async def empty() -> VerifiedCheckpoint:
        return VerifiedCheckpoint(0, EMPTY, signature=b"")

    async def work(scene: Scene) -> None:
        view = scene.view(scene.board, 1)
        monkeypatch.setattr(view, "follow", empty)
        with pytest.raises(Unavailable, match="have not cosigned this"):
            await view.entry(CROWD[0].group, CROWD[0].keys.address)

    run(tmp_path, work)


def test_a_leader_again_shows_no_older_checkpoint(tmp_path: Path) -> None:
    """Another process led and showed more: an older checkpoint would look like a shrunken log."""

    async def work(scene: Scene) -> None:
        board = scene.board
        await board.watched.collect(scene)  # type: ignore[arg-type] # a client
        view = scene.view(board, 1)
        await view.follow()
        before, old = board.seen, board.watched._note
        scene.show(board, LETTERS[0])
        await board.watched.collect(scene)  # type: ignore[arg-type] # a client
        newest = await view.follow()
        board.seen, board.watched._note = before, old  # as the process had it that stood by
        await board.load()
        with pytest.raises(Unavailable, match="0 of your witnesses"):
            await view.follow()
        await board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await view.follow()).size == newest.size

    run(tmp_path, work)


def test_a_committed_record_counts_though_its_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has the record; posted again, it adds nothing and is proven at once."""

    async def work(scene: Scene) -> None:
        board, appending = scene.board, scene.board.store.appending

        @contextmanager
        def lost(fence: int) -> Iterator[Any]:
            with appending(fence) as key_values:
                yield key_values
            raise Unavailable("the connection broke at the commit")

        before = board.seen
        with monkeypatch.context() as trouble:
            trouble.setattr(board.store, "appending", lost)
            with pytest.raises(Unavailable):
                scene.show(board, LETTERS[0])
        assert board.seen is before
        scene.show(board, LETTERS[0])
        assert board.seen.size == before.size + 1 == len(board.read_snapshot(lambda log: log))
        newest = board.seen

        @contextmanager
        def slow(fence: int) -> Iterator[Any]:
            with appending(fence) as key_values:
                yield key_values
            board.seen = replace(newest, size=newest.size + 9)  # read when it led again

        monkeypatch.setattr(board.store, "appending", slow)
        scene.show(board, LETTERS[1])
        assert board.seen.size == newest.size + 9

    run(tmp_path, work)


def test_an_absent_witness_delays_only_clients_that_demand_it(tmp_path: Path) -> None:
    """Of two witnesses one is down: a client that demands one is served, one with both waits."""

    async def work(scene: Scene) -> None:
        scene.away = {scene.names[1]}
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 1, name="one").follow()).size == 2
        with pytest.raises(Unavailable, match="1 of your witnesses"):
            await scene.view(scene.board, 2).follow()
        assert (await scene.view(scene.board, 0, name="none").follow()).size == 2
        scene.away = set()
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 2).follow()).size == 2

    run(tmp_path, work)


def test_a_fork_is_refused_even_by_a_new_client(tmp_path: Path) -> None:
    """The witnesses saw another log: they cosign no fork, even after a restart."""

    async def work(scene: Scene) -> None:
        scene.show(scene.board, *LETTERS[:2])
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        # The same board with another letter: every signature but the witnesses' is there.
        for name in scene.names:
            await scene.restarted(name)
        fork = await scene.opened()
        scene.show(fork, LETTERS[2], LETTERS[0])
        await fork.watched.collect(scene)  # type: ignore[arg-type] # a client
        newcomer = scene.view(fork, 1, name="newcomer")
        with pytest.raises(Unavailable, match="0 of your witnesses"):
            await newcomer.follow()
        assert (await scene.view(fork, 0, name="trusting").follow()).size == 4
        # With the cosignature of the true log, the fork's text does not hold.
        note = Note(fork.watched.note.text, scene.board.watched.note.signatures)
        with pytest.raises(Refused):
            note.signers([KEY])
        # A person who has seen the true log keeps the proof.
        await scene.view(scene.board, 2).follow()
        fork.watched._note = Note(fork.watched._fresh(fork.seen).text).signed(KEY, SIGNING.sign)
        for witness in scene.witnesses.values():
            forced = fork.watched._note.signed(witness.note_key, witness._signing.sign, time=5)
            fork.watched._note = forced
        with pytest.raises(Equivocation):
            await scene.view(fork, 2).follow()
        await fork.leadership.end()
        fork.store.close()

    run(tmp_path, work)


def test_a_witness_answers_as_c2sp_says(tmp_path: Path) -> None:
    """Each wrong submission gets its status; the last checkpoint can be fetched."""

    def sent(old: int, tree: Tree, size: int, *path: bytes, key: NoteKey = KEY) -> bytes:
        text = LogCheckpoint(key.name, size, tree.root(size)).write()
        return Submission(old, path, Note(text).signed(key, SIGNING.sign)).write()

    async def work(scene: Scene) -> None:
        witness = scene.witnesses[scene.names[0]]
        tree, other = Tree([b"a", b"b", b"c"]), Tree([b"a", b"x", b"c"])
        unknown = NoteKey("elsewhere.example/log", KEY.raw)
        steps = [
            (b"nonsense", 400),
            (sent(0, tree, 2, key=unknown), 404),
            (sent(0, tree, 2).replace(b"\n2\n", b"\n1\n"), 403),
            (sent(3, tree, 2), 400),
            (sent(0, tree, 2, bytes(32)), 422),
            (sent(0, tree, 2), 200),
            (sent(0, tree, 3), 409),
            (sent(2, other, 3, *other.consistency(2, 3)), 422),
            (sent(2, tree, 3), 422),
            (sent(2, other, 2), 409),
            (sent(2, tree, 3, *tree.consistency(2, 3)), 200),
            (bytes(1 << 17), 413),
        ]
        for body, status in steps:
            response = await ask(witness, "POST", "/add-checkpoint", body)
            assert response.status == status, body[:80]
            if status == 409:
                assert (response.headers["content-type"], response.body) == (
                    "text/x.tlog.size",
                    b"2\n",
                )
        where = hashlib.sha256(KEY.name.encode()).hexdigest()
        last = Note.read((await ask(witness, "GET", f"/{where}/checkpoint")).body)
        assert set(last.signers([KEY, witness.note_key])) == {KEY, witness.note_key}
        assert LogCheckpoint.read(last.text).size == 3
        assert (await ask(witness, "GET", f"/{'0' * 64}/checkpoint")).status == 404
        key = (await ask(witness, "GET", "/key")).body.decode()
        assert NoteKey.read(key) == witness.note_key

    run(tmp_path, work)


def test_a_client_cannot_demand_more_witnesses_than_it_names() -> None:
    """The error gives the number; the default demands all of them."""
    some = Trust.of([("witness", [b"a" * 32]), ("witness", [b"b" * 32])])
    assert some.witnesses.least == 2
    assert some.demanding(1).witnesses.least == 1
    for wrong in (0, 3):
        with pytest.raises(Misuse, match="must be from 1 to 2"):
            some.demanding(wrong)
