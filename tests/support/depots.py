"""What every kind of depot does, for the tests of each; and depots that are soon full."""

from pathlib import Path
from typing import Final

import pytest

from coatcheck.errors import Full, Unavailable
from coatcheck.stores.blobs import BlobStore, FolderBlobStore

ONE: Final = (b"d" * 32, "round")
OTHER: Final = (b"d" * 32, "batch")


MUCH = 600
"""Bytes of a depot per report of a large round, at most: docs/how-to/scale-out.md tells it."""


def stored(folder: str) -> int:
    """Add up what is in the depots of a folder."""
    found = [path.stat().st_size for path in Path(folder).glob("*.depot/*/*")]
    assert found
    return sum(found)


def check_depot(depot: BlobStore) -> None:
    """Files are kept by round and key: what is put is there, in part or whole, and goes alone."""
    assert depot.rounds() == set() == depot.names(ONE)
    depot.put(ONE, "in-0", b"abcdef")
    depot.put(ONE, "in-0", b"ABCDEF")
    depot.put(OTHER, "out-0", b"other")
    depot.put(OTHER, "out-1", b"")
    assert (depot.get(ONE, "in-0"), depot.get(ONE, "in-0", 2, 3)) == (b"ABCDEF", b"CDE")
    assert (depot.get(ONE, "in-0", 0, 2), depot.get(OTHER, "out-1")) == (b"AB", b"")
    assert (depot.names(ONE), depot.rounds()) == ({"in-0"}, {ONE, OTHER})
    with pytest.raises(Unavailable, match="no in-1"):
        depot.get(ONE, "in-1")
    depot.drop(ONE)
    assert (depot.names(ONE), depot.rounds()) == (set(), {OTHER})
    depot.drop(OTHER)
    depot.drop(OTHER)
    assert depot.rounds() == set()


def leave_room(monkeypatch: pytest.MonkeyPatch, *, files: int) -> list[int]:
    """Let depots take so many more files; the one number of the list can be raised."""
    real, left = FolderBlobStore.put, [files]

    def put(self: FolderBlobStore, of: tuple[bytes, str], name: str, raw: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Full("cannot write to the depot here: No space left on device")
        real(self, of, name, raw)

    monkeypatch.setattr(FolderBlobStore, "put", put)
    return left
