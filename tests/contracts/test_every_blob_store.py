"""Blob stores keep whole files by round and key, report disk faults, and delete."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from coatcheck.errors import Full, Unavailable
from coatcheck.services.server.store import ServerStore
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.stores import blobs as folders
from coatcheck.stores.blobs import BlobStore, FolderBlobStore, MemoryBlobStore
from support.blob_stores import ONE, check_blob_store


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """Provide an empty blob store of each kind."""
    return FolderBlobStore(tmp_path / "blobs") if request.param == "folder" else MemoryBlobStore()


def test_files_are_kept_by_round_and_key(blobs: BlobStore) -> None:
    """Files can be read whole or in part, and are deleted with their key alone."""
    check_blob_store(blobs)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, Full), (errno.EACCES, Unavailable), (errno.EROFS, Unavailable)],
)
def test_a_full_disk_is_reported(
    number: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk and missing rights give different errors; the old file is unchanged."""
    blobs = FolderBlobStore(tmp_path / "blobs")
    blobs.put(ONE, "in-0", b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(folders, "replace_file", fail)
        with pytest.raises(kind, match=f"cannot write to the blob store .*: {os.strerror(number)}"):
            blobs.put(ONE, "in-0", b"new")
    assert blobs.get(ONE, "in-0") == b"old"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """A file stands where the folder should be: even root's rights do not help."""
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(Unavailable, match="cannot write to the blob store"):
        FolderBlobStore(tmp_path / "blobs").put(ONE, "in-0", b"raw")


def test_a_stored_file_is_sealed_to_its_name(tmp_path: Path) -> None:
    """A file under another name does not open, and its plaintext is nowhere in it."""
    store = ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", tmp_path / "keys")
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(b"d" * 32, "one", b"signed"), fence=1)
    store.files(b"d" * 32).put("in-0", b"sixteen bytes or more")
    assert store.files(b"d" * 32).get("in-0") == b"sixteen bytes or more"
    folder = tmp_path / "store.blobs" / f"{(b'd' * 32).hex()}.round"
    (path,) = folder.iterdir()
    assert b"sixteen" not in path.read_bytes()
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    path.rename(folder / "in-1")
    with pytest.raises(Unavailable, match="in-1 in the blob store is not what was put"):
        store.files(b"d" * 32).get("in-1")
    (folder / ".in-2.left").write_bytes(b"what a crash left")
    assert store.blobs.names((b"d" * 32, "round")) == {"in-1"}
    store.move(b"d" * 32, "abandon", fence=1, end=b"end")
    assert list((tmp_path / "store.blobs").iterdir()) == []


def test_two_may_delete_a_round_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is already gone is no error, and the others are deleted as well."""
    blobs, real = FolderBlobStore(tmp_path), shutil.rmtree
    for name in ("in-0", "in-1"):
        blobs.put(ONE, name, b"raw")
    met: list[Path] = []

    def meet(folder: Path) -> None:
        met.append(folder)
        if len(met) == 1:
            (folder / "in-0").unlink()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        real(folder)

    monkeypatch.setattr(shutil, "rmtree", meet)
    blobs.drop(ONE)
    assert (len(met), blobs.rounds()) == (2, set())


def test_what_comes_while_a_slow_blob_store_is_listed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that gets its key and first file meanwhile does not count as one without a key."""
    store = ServerStore(f"sqlite:{tmp_path / 'store.db'}", tmp_path / "keys")
    store.lead("me", seconds=60)
    listed = store.blobs.rounds

    def slow() -> set[tuple[bytes, str]]:
        store.round_keys.make(*ONE)
        store.blobs.put(ONE, "in-0", b"raw")
        return listed()

    monkeypatch.setattr(store.blobs, "rounds", slow)
    store.clear()
    assert store.blobs.names(ONE) == {"in-0"}
    store.close()
