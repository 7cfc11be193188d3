"""Two processes of one witness on one folder, and a board that shows each another log."""

import asyncio
from pathlib import Path

import pytest

from coatcheck.durable_files import write_bytes
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.keys import PublicKeys
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note, Submission
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.client import HttpClient
from services.test_witness import KEY, SIGNING, Scene, run
from support.asking import ask

TRUE, FORK = Tree([b"a", b"b", b"c"]), Tree([b"a", b"x", b"c"])


def submission(tree: Tree, old: int, size: int) -> bytes:
    """Return a checkpoint of the board as it submits it to a witness."""
    text = LogCheckpoint(KEY.name, size, tree.root(size)).write()
    path = tuple(tree.consistency(old, size)) if old else ()
    return Submission(old, path, Note(text).signed(KEY, SIGNING.sign)).write()


class Witnesses(Cluster):
    """Two processes of one witness: one key, one name and one folder of checkpoints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, witnesses=1)
        self.names = ("witness-1", "witness-again")
        public = PublicKeys(
            name="board", suite="x25519", verifying=SIGNING.public_raw.hex(), sealing="00"
        )
        write_bytes(folder / "board.public", document(public), replace=True)
        text = (folder / "witness-1.toml").read_text(encoding="utf-8")
        text = text.replace("witness-1.address", "witness-again.address")
        write_bytes(folder / "witness-again.toml", text.encode())


def statuses(cluster: Witnesses, name: str, *bodies: bytes) -> list[int]:
    """Submit checkpoints to a process, one after the other."""

    async def submit() -> list[int]:
        http = HttpClient()
        url = f"{cluster.url(name)}/add-checkpoint"
        try:
            return [(await http.exchange("POST", url, body)).status for body in bodies]
        finally:
            await http.close()

    return asyncio.run(submit())


@pytest.mark.service
def test_two_processes_on_one_folder_cosign_one_log(tmp_path: Path) -> None:
    """The second one does not start; after the first was killed it starts, and knows its log."""
    cluster = Witnesses(tmp_path)
    try:
        cluster.start("witness-1")
        with pytest.raises(Refused, match=r"another witness already runs on .*witness-1"):
            cluster.start("witness-again")
        assert statuses(cluster, "witness-1", submission(TRUE, 0, 2)) == [200]
        fork, longer = submission(FORK, 0, 2), submission(TRUE, 2, 3)
        assert statuses(cluster, "witness-1", fork, longer) == [409, 200]
        cluster.kill("witness-1")
        cluster.start("witness-again")
        assert statuses(cluster, "witness-again", fork, submission(FORK, 2, 3)) == [409, 409]
    finally:
        cluster.end()


def test_a_second_witness_in_one_process_is_refused_too(tmp_path: Path) -> None:
    """The lock is not of the process but of the service; its end frees the folder."""

    async def work(scene: Scene) -> None:
        name = scene.names[0]
        with pytest.raises(Misuse, match="another witness already runs on"):
            scene.witness(name)
        assert await scene.restarted(name)

    run(tmp_path, work)


@pytest.mark.parametrize("change", ["an older copy", "another log", "nothing"])
def test_a_witness_stops_if_its_stored_checkpoint_was_changed(change: str, tmp_path: Path) -> None:
    """A program that ignores the lock wrote there: the witness cosigns nothing more."""

    async def work(scene: Scene) -> None:
        name, other = scene.names
        witness = scene.witnesses[name]
        post = ("POST", "/add-checkpoint")
        assert (await ask(witness, *post, submission(TRUE, 0, 2))).status == 200
        (path,) = (scene.folder / f"{name}.notes").glob("*.note")
        older = path.read_bytes()
        assert (await ask(witness, *post, submission(TRUE, 2, 3))).status == 200
        if change == "an older copy":
            path.write_bytes(older)
        elif change == "another log":
            assert (await ask(scene.witnesses[other], *post, submission(FORK, 0, 3))).status == 200
            path.write_bytes((scene.folder / f"{other}.notes" / path.name).read_bytes())
        else:
            path.unlink()
        stopped: list[bool] = []
        witness.stop = lambda: stopped.append(True)
        assert (await ask(witness, *post, submission(TRUE, 3, 3))).status == 503
        assert stopped
        assert "is not as this witness stored it" in witness.failure

    run(tmp_path, work)
