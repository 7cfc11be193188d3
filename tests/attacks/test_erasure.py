"""Data that a round must delete is nowhere in a database's folder: no log, page or index."""

import os
import secrets
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from coatcheck.errors import Fenced, Forgotten, Misuse, Refused, Unavailable, Unsealable
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.shuffler import store as shuffler_store
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.stores.database import Transaction
from coatcheck.stores.round_keys import RoundKey, RoundKeys
from support.disks import Disk
from support.postgresql import Postgres

DIGEST, OTHER = b"d" * 32, b"o" * 32
SIGNED = b"the signed terms, which everybody may read" * 3


@pytest.fixture
def disk(database: Postgres | None, tmp_path: Path) -> Disk:
    """Provide an empty database of each kind on disk."""
    keys = tmp_path / "keys"
    if database is None:
        folder = tmp_path / "database"
        folder.mkdir()
        return Disk(f"sqlite:{folder / 'store.db'}", folder, keys=keys)
    return Disk(database.database(), database.folder, keys=keys)


@pytest.fixture
def store(disk: Disk) -> Iterator[ShufflerStore]:
    """Provide a shuffler's store with one open round, led with token 1."""
    opened = ShufflerStore(disk.url, disk.keys)
    assert opened.lead("me", seconds=60) == 1
    opened.begin(ShufflerRound(DIGEST, "example", SIGNED), fence=1)
    yield opened
    opened.close()


def uploads(count: int = 40) -> list[Upload]:
    """Return uploads with random ids, bodies and tokens."""
    draw = secrets.token_bytes
    return [Upload(n % 2, DIGEST, draw(16), draw(220), draw(32)) for n in range(count)]


def parts(given: list[Upload]) -> list[bytes]:
    """List the parts of uploads that must not be found; of a body its beginning and its end."""
    tokens = [one.token for one in given if one.token]
    bodies = [piece for one in given for piece in (one.body[:24], one.body[-24:])]
    return [*(one.id for one in given), *bodies, *tokens]


def test_a_search_finds_what_is_there(store: ShufflerStore, disk: Disk) -> None:
    """The search of these tests reads both databases' files: public data is found."""
    assert store.rounds()
    assert disk.found(SIGNED, secrets.token_bytes(16)) == [SIGNED]


def test_nothing_is_in_the_clear_while_a_round_is_open(store: ShufflerStore, disk: Disk) -> None:
    """A copy of the database without the folder of keys reveals no ids or bodies at any time."""
    given = uploads()
    assert store.put(given) == [Verdict.NEW] * 40
    # Refused ones leave their bytes in the log of some databases too.
    assert store.put([given[0], *uploads(1)]) == [Verdict.KNOWN, Verdict.NEW]
    conflict = Upload(given[1].group, DIGEST, given[1].id, secrets.token_bytes(220))
    assert store.put([conflict]) == [Verdict.CONFLICT]
    key = (disk.keys / f"{DIGEST.hex()}.round").read_bytes()
    assert disk.found(*parts([*given, conflict]), store.secret(DIGEST), key) == []
    assert store.held(DIGEST).items() >= {one.id: (one.group, one.body) for one in given}.items()


@pytest.mark.parametrize("move", ["release", "abandon", "expire"])
def test_a_finished_round_is_deleted(store: ShufflerStore, disk: Disk, move: str) -> None:
    """Afterwards nothing is found, and an earlier copy of the database cannot be decrypted."""
    given = uploads()
    store.put(given)
    secret, batch = store.secret(DIGEST), secrets.token_bytes(4000)
    key = (disk.keys / f"{DIGEST.hex()}.round").read_bytes()
    store.move(DIGEST, "close", fence=1)
    store.move(DIGEST, move, fence=1, batch=batch if move == "release" else b"")
    assert disk.found(*parts(given), secret, key, batch[:24], batch[-24:]) == []
    assert disk.key_files() == ([".batch"] if move == "release" else [])
    with pytest.raises(Forgotten):
        store.held(DIGEST)
    if move == "release":
        assert store.blob(DIGEST, "batch") == batch
        store.move(DIGEST, "forget", fence=1)
        assert disk.key_files() == []
        assert disk.found(batch[:24]) == []


def test_a_received_batch_is_deleted_with_its_round(store: ShufflerStore, disk: Disk) -> None:
    """A later shuffler stores the batch of the one before under the round's key."""
    batch = secrets.token_bytes(4000)
    part, mixed = secrets.token_bytes(4000), secrets.token_bytes(4000)
    assert store.accept(DIGEST, batch, fence=1, whole=False)
    store.files(DIGEST).put("in-0", part)
    assert store.accept(DIGEST, batch, fence=1)
    assert store.blob(DIGEST, "incoming") == batch
    store.prepare(DIGEST, "release", fence=1)
    store.files(DIGEST).put("out-0", mixed, use="batch")
    assert disk.blob_files() == ["in-0", "out-0"]
    assert disk.found(*(one[at : at + 24] for one in (batch, part, mixed) for at in (0, 99))) == []
    assert store.sweep(fence=1) == set()
    store.move(DIGEST, "release", fence=1, batch=b"mixed")
    assert disk.key_files() == [".batch"]
    assert disk.blob_files() == ["out-0"]
    store.move(DIGEST, "forget", fence=1)
    assert (disk.key_files(), disk.blob_files()) == ([], [])


def test_millions_of_uploads_are_deleted_in_pieces(
    store: ShufflerStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction deletes a whole crowd; after a crash the next leader deletes the rest."""
    monkeypatch.setattr(shuffler_store, "_AT_ONCE", 50)
    given = uploads(400)
    assert set(store.put(given)) == {Verdict.NEW}
    most, transaction = [400], store.database.transaction

    @contextmanager
    def watched() -> Iterator[Transaction]:
        with transaction() as session:
            yield session
            most.append(session.rows("SELECT COUNT(*) FROM shuffler_uploads")[0][0])
        if len(most) > 4:
            raise KeyboardInterrupt

    store.move(DIGEST, "close", fence=1)
    monkeypatch.setattr(store.database, "transaction", watched)
    with pytest.raises(KeyboardInterrupt):
        store.move(DIGEST, "abandon", fence=1)
    assert max(a - b for a, b in pairwise(most)) < 150
    assert most[-1] > 0
    assert disk.found(*parts(given)) == []
    other = ShufflerStore(disk.url, disk.keys)
    assert other.crowd(DIGEST) == {0: 200, 1: 200}  # the counts go last
    other.clear()
    assert other.crowd(DIGEST) == {}
    assert other.read("SELECT id FROM shuffler_uploads") == []
    assert other.read("SELECT place FROM shuffler_upload_rows") == []
    other.close()


def test_files_without_a_key_are_deleted(store: ShufflerStore, disk: Disk) -> None:
    """After a crash, a lost key or a late writer, files that no key opens are deleted."""
    store.files(DIGEST).put("in-0", b"bytes")
    store.clear()
    assert disk.blob_files() == ["in-0"]
    store.round_keys.destroy(DIGEST, "round")
    with pytest.raises(Forgotten):
        store.files(DIGEST).put("in-1", b"bytes")
    assert store.sweep(fence=1) == {DIGEST}
    store.clear()
    assert disk.blob_files() == ["in-0"]  # a round that may get its key anew cleans up then
    store.move(DIGEST, "abandon", fence=1)
    assert disk.blob_files() == []
    store.blobs.put((DIGEST, "round"), "in-1", b"late")
    store.clear()
    assert disk.blob_files() == []


def test_an_unfinished_batch_goes_when_the_round_reopens(store: ShufflerStore, disk: Disk) -> None:
    """Its key may exist while the round is closed, and at no other time before the release."""
    with pytest.raises(Refused):
        store.prepare(DIGEST, "release", fence=1)
    store.move(DIGEST, "close", fence=1)
    store.prepare(DIGEST, "release", fence=1)
    assert store.sweep(fence=1) == set()
    assert disk.key_files() == [".batch", ".round"]
    store.move(DIGEST, "reopen", fence=1)
    assert store.sweep(fence=1) == set()
    assert disk.key_files() == [".round"]


def test_a_server_deletes_the_batch_when_it_has_answered(disk: Disk) -> None:
    """The batch is under a key that is destroyed with the answer; the bulletin is public."""
    store = ServerStore(disk.url, disk.keys)
    store.lead("me", seconds=60)
    store.begin(ServerRound(DIGEST, "example", SIGNED), fence=1)
    store.agree(DIGEST, SIGNED, fence=1)
    batch = secrets.token_bytes(4000)
    store.accept(DIGEST, batch, fence=1, whole=False)
    part = secrets.token_bytes(4000)
    store.files(DIGEST).put("in-0", part)
    assert store.sweep(fence=1) == set()
    store.accept(DIGEST, batch, fence=1)
    assert disk.found(batch[:24], batch[-24:], part[:24], part[-24:]) == []
    assert (disk.key_files(), disk.blob_files()) == ([".round"], ["in-0"])
    store.prepare(DIGEST, "answer", fence=1)
    store.files(DIGEST).put("open-0", part)
    store.files(DIGEST).put("out-0", part, use="batch")
    assert store.sweep(fence=1) == set()
    store.answer(DIGEST, "answer", b"the bulletin, for everybody", fence=1)
    assert (disk.key_files(), disk.blob_files()) == ([".batch"], ["out-0"])
    assert disk.found(part[:24], part[-24:]) == []
    store.finish(DIGEST, "publish", fence=1)
    assert (disk.key_files(), disk.blob_files()) == ([], [])
    assert disk.found(batch[:24], b"the bulletin, for everybody") == [
        b"the bulletin, for everybody"
    ]
    store.close()


CRASH = """
import os, sys
from pathlib import Path
from coatcheck.services.shuffler.store import ShufflerStore
from coatcheck.stores.round_keys import RoundKeys
url, keys, place = sys.argv[1:]
store = ShufflerStore(url, Path(keys))
fence = store.lead("you", seconds=0)
owner = RoundKeys if place == "destroy" else ShufflerStore
setattr(owner, place, lambda *given, **named: os.kill(os.getpid(), 9))
store.move(b"d" * 32, "release", fence=fence, batch=b"batch")
"""


@pytest.mark.parametrize("place", ["destroy", "delete_blobs"])
def test_a_crash_in_the_middle_of_a_release(store: ShufflerStore, disk: Disk, place: str) -> None:
    """Before the commit the round goes on; after it, the next start destroys the key."""
    given = uploads()
    store.put(given)
    secret = store.secret(DIGEST)
    store.move(DIGEST, "close", fence=1)
    store.resign("me")
    command = [sys.executable, "-c", CRASH, disk.url, str(disk.keys), place]
    assert subprocess.run(command, check=False).returncode == -9  # noqa: S603 - our own
    assert disk.found(*parts(given), secret) == []
    fence = store.lead("me", seconds=60)
    assert fence
    assert store.sweep(fence=fence) == set()
    if place == "delete_blobs":
        assert store.round(DIGEST).phase is ShufflerPhase.CLOSED
        assert disk.key_files() == [".round"]
        assert len(store.held(DIGEST)) == 40
        return
    assert store.round(DIGEST).phase is ShufflerPhase.RELEASED
    assert disk.key_files() == [".batch"]
    assert store.blob(DIGEST, "batch") == b"batch"
    assert disk.found(*parts(given), secret) == []


def test_a_start_destroys_unneeded_keys(store: ShufflerStore, disk: Disk) -> None:
    """Keys of unknown rounds and of wrong phases go; a round without its key is reported."""
    for digest, use in ((OTHER, "round"), (DIGEST, "batch")):
        store.round_keys.make(digest, use)
    assert store.sweep(fence=1) == set()
    assert disk.key_files() == [".round"]
    (disk.keys / f"{DIGEST.hex()}.round").unlink()
    assert store.sweep(fence=1) == {DIGEST}
    assert store.put(uploads(2)) == [Verdict.CLOSED] * 2


def test_a_restored_backup_cannot_be_read(tmp_path: Path) -> None:
    """A copy from when the round was open has rows that no key opens."""
    file, copy, keys = tmp_path / "store.db", tmp_path / "copy.db", tmp_path / "keys"
    store = ShufflerStore(f"sqlite:{file}", keys)
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(DIGEST, "example", SIGNED), fence=1)
    store.put(uploads())
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    store.move(DIGEST, "abandon", fence=1)
    store.close()
    restored = ShufflerStore(f"sqlite:{copy}", keys)
    assert restored.crowd(DIGEST) == {0: 20, 1: 20}
    with pytest.raises(Forgotten):
        restored.held(DIGEST)
    with pytest.raises(Fenced):
        restored.sweep(fence=2)
    restored.resign("me")
    fence = restored.lead("you", seconds=60)
    assert fence
    assert restored.sweep(fence=fence) == {DIGEST}
    restored.close()


def test_a_row_that_was_changed_counts_as_one_that_does_not_open(store: ShufflerStore) -> None:
    """Two upload rows that swapped places in the database do not open."""
    for one in uploads(4):
        store.put([one] if one.group == 0 else [])
    with store.database.transaction() as session:
        rows = session.rows("SELECT place, body FROM shuffler_upload_rows")
        for (place, _), (_, body) in zip(rows, reversed(rows), strict=True):
            session.rows("UPDATE shuffler_upload_rows SET body = ? WHERE place = ?", (body, place))
    assert sorted(store.held(DIGEST).values()) == [(0, b""), (0, b"")]


def test_keys_are_files_for_their_owner_alone(tmp_path: Path) -> None:
    """The folder has mode 0700 and each key 0600; a folder that is open to others is refused."""
    round_keys = RoundKeys(tmp_path / "deep" / "keys")
    first = round_keys.make(DIGEST)
    folder = tmp_path / "deep" / "keys"
    (path,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32
    assert round_keys.make(DIGEST).secret == first.secret
    folder.chmod(0o750)
    with pytest.raises(Misuse, match="chmod 700"):
        ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", folder)
    with pytest.raises(Misuse, match="folder"):
        ShufflerStore(f"sqlite:{tmp_path / 'store.db'}")


def test_a_key_that_cannot_be_stored_or_removed_is_reported(tmp_path: Path) -> None:
    """Failed disk operations are retried later; nothing is stored without its key."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Misuse, match="cannot make"):
        ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", tmp_path / "file")
    with pytest.raises(Unavailable, match="cannot"):
        RoundKeys(tmp_path / "file").make(DIGEST)
    round_keys = RoundKeys(tmp_path / "keys")
    round_keys.make(DIGEST)
    path = tmp_path / "keys" / f"{DIGEST.hex()}.round"
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="cannot remove"):
        round_keys.destroy(DIGEST, "round")
    round_keys.destroy(OTHER, "round")  # not there: nothing to do


def test_an_absent_folder_has_not_lost_its_keys(tmp_path: Path) -> None:
    """While it is not mounted no round is abandoned, and no key counts as destroyed."""
    folder, aside = tmp_path / "keys", tmp_path / "aside"
    store = ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", folder)
    assert store.lead("me", seconds=600) == 1
    store.begin(ShufflerRound(DIGEST, "round", b"signed"), fence=1)
    secret = store.secret(DIGEST)
    folder.rename(aside)
    for there in (False, True):
        if there:
            folder.mkdir(mode=0o700)  # where it was mounted
        with pytest.raises(Unavailable, match="mount it"):
            store.secret(DIGEST)
        with pytest.raises(Unavailable, match="mount it"):
            store.sweep(fence=1)
        with pytest.raises(Unavailable, match="mount it"):
            store.round_keys.destroy(DIGEST, "round")
    folder.rmdir()
    aside.rename(folder)
    assert store.secret(DIGEST) == secret
    assert store.sweep(fence=1) == set()
    store.round_keys.destroy(DIGEST, "round")
    assert store.sweep(fence=1) == {DIGEST}
    store.close()


def test_a_round_key_hides_and_binds() -> None:
    """Names differ by key and type; sealed data opens only at its own place."""
    key, other = RoundKey(os.urandom(32)), RoundKey(os.urandom(32))
    names = {key.name(b"id", kind="upload"), key.name(b"id", kind="token")}
    assert len(names | {other.name(b"id", kind="upload")}) == 3
    sealed = key.seal(b"body", DIGEST, b"name")
    assert key.seal(b"body", DIGEST, b"name") == sealed
    assert key.open(sealed, DIGEST, b"name") == b"body"
    for opener, bound in ((key, (DIGEST, b"eman")), (key, (DIGEST,)), (other, (DIGEST, b"name"))):
        with pytest.raises(Unsealable):
            opener.open(sealed, *bound)
    with pytest.raises(Unsealable):
        key.open(b"short", DIGEST, b"name")
    assert key.secret != other.secret
    assert "RoundKey" in repr(key)
    assert key.secret.hex() not in repr(key)
