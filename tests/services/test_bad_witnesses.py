"""Silent, lying or deceived witnesses: they spoil neither a signed note nor each other."""

import asyncio
import base64
import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note, NoteKey, Submission
from coatcheck.services.board import log
from coatcheck.services.web.client import HttpAnswer
from services.test_witness import KEY, LETTERS, SIGNING, Scene, run
from support.asking import ask


def line(key: NoteKey, made: bytes) -> bytes:
    """Return a signature line as it stands under a note."""
    return f"\u2014 {key.name} {base64.b64encode(key.id + made).decode()}\n".encode()


def test_a_witness_keeps_nothing_of_what_strangers_write_under_a_checkpoint(tmp_path: Path) -> None:
    """A stranger submits a public checkpoint again, with 63 lines of junk or a false signature."""

    async def work(scene: Scene) -> None:
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        name, note = scene.names[0], scene.board.watched.note
        witness = scene.witnesses[name]
        (own,) = (one for one in note.signatures if one[0] == KEY.name)
        rubbish = tuple(("junk.example", bytes(4), bytes((n,)) * 64) for n in range(63))
        false = (witness.note_key.name, witness.note_key.id, bytes(72))
        for more in (rubbish, (false,)):
            sent = Submission(LogCheckpoint.read(note.text).size, (), Note(note.text, (own, *more)))
            assert (await ask(witness, "POST", "/add-checkpoint", sent.write())).status == 200
            witness, before = await scene.restarted(name), witness
            where = hashlib.sha256(KEY.name.encode()).hexdigest()
            for one in (witness, before):
                told = Note.read((await ask(one, "GET", f"/{where}/checkpoint")).body)
                assert len(told.signatures) == 2
                assert set(told.signers([KEY, witness.note_key])) == {KEY, witness.note_key}

    run(tmp_path, work)


def test_a_witness_cosigns_one_of_two_forks_that_come_at_once(tmp_path: Path) -> None:
    """Both forks extend the last cosigned checkpoint; only the first one is cosigned."""
    tree, other = Tree([b"a", b"b", b"c"]), Tree([b"a", b"b", b"x"])

    def sent(old: int, of: Tree, size: int) -> bytes:
        text = LogCheckpoint(KEY.name, size, of.root(size)).write()
        path = tuple(of.consistency(old, size)) if old else ()
        return Submission(old, path, Note(text).signed(KEY, SIGNING.sign)).write()

    async def work(scene: Scene) -> None:
        witness = scene.witnesses[scene.names[0]]
        assert (await ask(witness, "POST", "/add-checkpoint", sent(0, tree, 2))).status == 200
        both = [ask(witness, "POST", "/add-checkpoint", sent(2, of, 3)) for of in (tree, other)]
        assert [one.status for one in await asyncio.gather(*both)] == [200, 409]

    run(tmp_path, work)


def test_a_witness_does_not_start_with_an_unsigned_checkpoint(tmp_path: Path) -> None:
    """A stored note that its log did not sign may hide a fork: the operator must look."""

    async def work(scene: Scene) -> None:
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        name = scene.names[0]
        (path,) = (scene.folder / f"{name}.notes").glob("*.note")
        await scene.witnesses[name].end()
        note = Note.read(path.read_bytes())
        strange = [one for one in note.signatures if one[0] != KEY.name]
        for wrong in (Note(note.text, tuple(strange)).write(), b"", b"rubbish"):
            path.write_bytes(wrong)
            with pytest.raises((Misuse, Malformed)):
                scene.witness(name)

    run(tmp_path, work)


def test_a_cosigned_checkpoint_never_goes_back(tmp_path: Path) -> None:
    """A newer checkpoint that is stored during a slower write of an older one stays."""

    async def work(scene: Scene) -> None:
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        older = scene.board.watched.note.write()
        scene.show(scene.board, LETTERS[0])
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        view, other = (scene.view(scene.board, 1) for _ in "ab")
        get = view._peers.get

        async def slowly(url: str, *, most: int = 0) -> bytes:
            if url.endswith("/log/checkpoint"):
                assert (await other.follow()).size == 3
                return older
            return await get(url, most=most)

        view._peers.get = slowly  # type: ignore[method-assign] # an answer that is late
        assert (await view.follow()).size == 2
        kept = (scene.folder / "mine.checkpoint.note").read_bytes()
        assert LogCheckpoint.read(Note.read(kept).text).size == 3

    run(tmp_path, work)


@pytest.mark.parametrize("lie", ["another's", "many", "own", "no key", "no lines"])
def test_a_witness_that_lies_spoils_no_note(lie: str, tmp_path: Path) -> None:
    """False lines under its own or another name, and too many lines, are dropped."""

    async def work(scene: Scene) -> None:
        good, bad = (scene.witnesses[name].note_key for name in scene.names)
        lines = {
            "another's": line(good, bytes(72)),
            "many": b"".join(
                line(NoteKey("x", bytes(31) + bytes((n,)), 4), bytes(72)) for n in range(64)
            ),
            "own": line(bad, bytes(72)),
            "no lines": b"rubbish",
        }
        real = scene.exchange

        async def lied(method: str, url: str, body: bytes = b"") -> HttpAnswer:
            if scene.names[1] not in url or (method == "GET" and lie != "no key"):
                return await real(method, url, body)
            return HttpAnswer(200, {}, b"rubbish" if method == "GET" else lines.get(lie, b""))

        scene.exchange = lied  # type: ignore[method-assign] # what the board asks
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 1).follow()).size == 2
        assert set(scene.board.watched.note.signers([KEY, good, bad])) == {KEY, good}
        assert len(scene.board.watched.note.signatures) == 2
        # Once it is well, its word stands there too.
        scene.exchange = real  # type: ignore[method-assign] # as it was
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 2).follow()).size == 2

    run(tmp_path, work)


def test_a_silent_witness_delays_only_clients_that_demand_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other cosignatures are shown while one is awaited, also under later checkpoints."""
    monkeypatch.setattr(log, "_PATIENCE", 0.2)

    async def work(scene: Scene) -> None:
        real, spoken = scene.exchange, asyncio.Event()

        async def silent(method: str, url: str, body: bytes = b"") -> HttpAnswer:
            if scene.names[1] in url:
                await spoken.wait()
            return await real(method, url, body)

        scene.exchange = silent  # type: ignore[method-assign] # what the board asks
        begun = time.monotonic()
        look: Any = asyncio.create_task(scene.board.watched.collect(scene))  # type: ignore[arg-type]
        while scene.board.watched._note is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert not look.done()
        assert (await scene.view(scene.board, 1).follow()).size == 2
        await look
        for number in range(3):
            scene.show(scene.board, LETTERS[number])
            await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
            assert (await scene.view(scene.board, 1).follow()).size == 3 + number
        assert len(scene.board.watched._tasks) == 1
        assert time.monotonic() - begun < 60
        # What it says of an old checkpoint is not put under the new one; then it is asked again.
        spoken.set()
        await asyncio.gather(*scene.board.watched._tasks.values())
        assert len(scene.board.watched.note.signatures) == 2
        await scene.board.watched.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 2).follow()).size == 5

    run(tmp_path, work)


def test_a_witness_of_another_operator_is_named_with_its_key(tmp_path: Path) -> None:
    """C2SP publishes no addresses for witness keys: the settings name the key."""

    async def work(scene: Scene) -> None:
        board = scene.board.watched
        named = {
            f"http://{name}": f"http://{name} {scene.witnesses[name].note_key.text}"
            for name in scene.names
        }
        board._sizes = dict.fromkeys(named.values(), 0)
        real = scene.exchange

        async def keyless(method: str, url: str, body: bytes = b"") -> HttpAnswer:
            assert method == "POST"
            return await real(method, url, body)

        scene.exchange = keyless  # type: ignore[method-assign] # what the board asks
        await board.collect(scene)  # type: ignore[arg-type] # a client
        assert (await scene.view(scene.board, 2).follow()).size == 2

    run(tmp_path, work)
