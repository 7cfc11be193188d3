"""Checks for every kind of blob store, and blob stores that soon run out of room."""

from pathlib import Path
from typing import Final

import pytest

from coatcheck.errors import Full, Unavailable
from coatcheck.stores.blobs import BlobStore, FolderBlobStore

ONE: Final = (b"d" * 32, "round")
OTHER: Final = (b"d" * 32, "batch")


MUCH = 600
"""Most bytes of a blob store per report of a large round, as in docs/how-to/scale-out.md."""


def stored(folder: str) -> int:
    """Return the total size of the files in the blob stores under a folder."""
    sizes = [path.stat().st_size for path in Path(folder).glob("*.blobs/*/*")]
    assert sizes
    return sum(sizes)


def check_blob_store(blobs: BlobStore) -> None:
    """Check that files can be read whole or in part, and that one round is dropped alone."""
    assert blobs.rounds() == set() == blobs.names(ONE)
    blobs.put(ONE, "in-0", b"abcdef")
    blobs.put(ONE, "in-0", b"ABCDEF")
    blobs.put(OTHER, "out-0", b"other")
    blobs.put(OTHER, "out-1", b"")
    assert (blobs.get(ONE, "in-0"), blobs.get(ONE, "in-0", 2, 3)) == (b"ABCDEF", b"CDE")
    assert (blobs.get(ONE, "in-0", 0, 2), blobs.get(OTHER, "out-1")) == (b"AB", b"")
    assert (blobs.names(ONE), blobs.rounds()) == ({"in-0"}, {ONE, OTHER})
    with pytest.raises(Unavailable, match="no in-1"):
        blobs.get(ONE, "in-1")
    blobs.drop(ONE)
    assert (blobs.names(ONE), blobs.rounds()) == (set(), {OTHER})
    blobs.drop(OTHER)
    blobs.drop(OTHER)
    assert blobs.rounds() == set()


def leave_room(monkeypatch: pytest.MonkeyPatch, *, files: int) -> list[int]:
    """Let blob stores accept `files` more files; a test raises the number in the list for more."""
    real, left = FolderBlobStore.put, [files]

    def put(self: FolderBlobStore, of: tuple[bytes, str], name: str, raw: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Full("cannot write to the blob store here: No space left on device")
        real(self, of, name, raw)

    monkeypatch.setattr(FolderBlobStore, "put", put)
    return left
