"""The board's log as tiles, checked against `tlog-scales`, another implementation, both ways."""

import asyncio
import os
import sys
from pathlib import Path
from threading import Thread

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tlog_scales import reader as tiles_reader
from tlog_scales import signing
from tlog_scales import writer as tiles_writer

from coatcheck.errors import Malformed
from coatcheck.protocol.log.merkle import (
    TileCache,
    TileName,
    Tree,
    check_consistency,
    check_inclusion,
    leaf_hash,
)
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note, NoteKey
from coatcheck.protocol.log.verification import board_note_key
from coatcheck.protocol.wire.bulletins import LETTER_LEAF, ROUND_LEAF, TERMS_LEAF, Posting
from coatcheck.services.board.routes import BoardService
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.settings import BoardSettings
from support.asking import ask
from support.boards import show
from support.rounds import SmallRound

LETTERS = 700
"""So many that the log has two full tiles and a partial one."""


class Shown:
    """A board without a socket that shows a round and many letters."""

    def __init__(self, folder: Path) -> None:
        small = SmallRound()
        tickets = small.crowd(2)
        self.raw = small.server().answer(small.batch(tickets))
        make_keys(folder / "board", name="board")
        settings = BoardSettings(
            name="board",
            store="sqlite:board.db",
            keys=("board.key",),
            folder=str(folder),
            letters_each=LETTERS,
            lease=10_000.0,
        )
        self.service = BoardService(settings)
        address, size = tickets[0].keys.address, small.round.letter_size()
        digest = small.round.digest
        self.letters = [Posting(digest, address, os.urandom(size)).encode() for _ in range(LETTERS)]
        self.small = small

    async def show(self) -> None:
        """Publish and post, as the service does, group by group."""
        await self.service.leadership.renew()
        show(self.service, self.small, self.raw, self.letters)

    @property
    def leaves(self) -> list[bytes]:
        """Return every leaf of the log."""
        heading = self.service.read_snapshot(lambda log: log.heading(self.small.round.digest))
        terms = TERMS_LEAF + self.small.round.digest
        return [terms, ROUND_LEAF + heading, *(LETTER_LEAF + one for one in self.letters)]

    def get(self, *path: str) -> bytes | None:
        """Fetch a path below the log's address, as tlog-scales does."""
        answer = asyncio.run(ask(self.service, "GET", "/log/" + "/".join(path)))
        return answer.body if answer.status == 200 else None


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Provide a log of a bulletin and many letters."""
    made = Shown(tmp_path_factory.mktemp("tiles"))
    asyncio.run(made.show())
    return made


@pytest.mark.parametrize(
    ("level", "place", "number", "width"),
    [
        ("0", "000", 0, 256),
        ("3", "x001/x234/067", 1_234_067, 256),
        ("entries", "999.p/255", 999, 255),
        ("0", "x001/000.p/1", 1000, 1),
    ],
)
def test_a_path_names_one_tile(level: str, place: str, number: int, width: int) -> None:
    """Paths follow C2SP, and decoding inverts encoding."""
    name = TileName.read(level, place)
    assert (name.number, name.width) == (number, width)
    assert name.path == f"{level}/{place}"


@pytest.mark.parametrize(
    "path",
    [
        *("0/0", "0/x000/001", "00/001", "0/001.p/0", "0/001.p/256", "0/001.p/01", "0/001.p"),
        *("0/1000", "-1/000", "64/000", "data/000", "0/x001/x23/067", "0/001/002", "0/000.p/2/3"),
        *("0/٠٠٠", "0/001.p/257", "0/001.p/999", "entries/001.p/300"),
    ],
)
def test_no_other_path_is_a_tile(path: str) -> None:
    """No tile has a second path."""
    with pytest.raises(Malformed):
        TileName.read(*path.split("/", 1))


def test_tiles_are_there_as_far_as_the_log_goes(shown: Shown) -> None:
    """Full tiles, the partial last tile and every narrower one exist; nothing beyond them does."""
    size = 2 + LETTERS
    last = size - 512
    assert shown.get("tile", "0", "000") == b"".join(map(leaf_hash, shown.leaves[:256]))
    assert shown.get("tile", "0", f"002.p/{last}") == b"".join(map(leaf_hash, shown.leaves[512:]))
    assert shown.get("tile", "0", "002.p/1") == leaf_hash(shown.leaves[512])
    tops = b"".join(Tree(shown.leaves[at : at + 256]).root() for at in (0, 256))
    assert shown.get("tile", "1", "000.p/2") == tops
    for beyond in (
        "0/002",
        f"0/002.p/{last + 1}",
        "1/000",
        "1/000.p/3",
        "2/000.p/1",
        "entries/003",
        "0/000.p/300",
    ):
        assert shown.get("tile", *beyond.split("/", 1)) is None


def test_tlog_scales_follows_our_board(shown: Shown) -> None:
    """tlog-scales reads our checkpoint, computes the root from tiles and proves all entries."""
    reader = tiles_reader.TilesReader(shown)
    point = reader.get_checkpoint()
    key = board_note_key(shown.service.keyring.current.signing.public_raw.hex())
    point.verify(signing.Vkey.from_string(key.text))
    assert point.size == 2 + LETTERS
    assert reader.calculate_root_hash() == point.root_hash
    for place in (0, 1, 255, 256, 511, 512, LETTERS):
        leaf = reader.get_entry(place)
        assert leaf == shown.leaves[place]
        reader.get_inclusion_proof(place, point.size).check(leaf_hash(leaf), point.root_hash)
    for old in (1, 256, 300, 512, LETTERS):
        grown = reader.get_consistency_proof(old, point.size)
        grown.check(shown.service.read_snapshot(lambda log: log.root(old)), point.root_hash)  # noqa: B023
        path = shown.service.read_snapshot(lambda log: log.consistency(old))  # noqa: B023
        assert grown.node_hashes == path


def test_several_threads_share_a_cache() -> None:
    """A thread that reads a tile while another evicts it gets the tile or a miss, no error."""
    cache, wrong = TileCache(), list[Exception]()

    def work(first: int) -> None:
        try:
            for turn in range(20_000):
                key = b"%d" % ((first + turn) % 300)
                if not cache.get(key):
                    cache.put(key, [[key]])
        except Exception as error:  # noqa: BLE001 - whatever it is
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=work, args=(n * 70,)) for n in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def test_we_follow_a_log_of_tlog_scales(tmp_path: Path) -> None:
    """Its checkpoint is a valid note, its root is our tree's, and its proofs pass our checks."""
    leaves = [b"entry %d" % n for n in range(LETTERS)]
    secret = Ed25519PrivateKey.generate()
    writer = tiles_writer.TilesWriter.create(tmp_path / "log", "example.org/log")
    for leaf in leaves:
        writer.add_leaf(leaf)
    writer.commit([signing.PlainEd25519Signer("example.org/log", secret)])
    note = Note.read((tmp_path / "log" / "checkpoint").read_bytes())
    key = NoteKey("example.org/log", secret.public_key().public_bytes_raw())
    assert set(note.signers([key])) == {key}
    point, tree = LogCheckpoint.read(note.text), Tree(leaves)
    assert (point.size, point.root) == (LETTERS, tree.root())
    proof = writer.reader.get_inclusion_proof(300, LETTERS)
    path, root = proof.node_hashes, point.root
    check_inclusion(leaves[300], place=300, size=LETTERS, root=root, path=path)
    grown = writer.reader.get_consistency_proof(300, LETTERS).node_hashes
    old = tree.root(300)
    check_consistency(old=300, old_root=old, new=LETTERS, new_root=root, path=grown)
    full = (tmp_path / "log" / "tile" / "0" / "001").read_bytes()
    assert full == b"".join(tree.node(0, place) for place in range(256, 512))
