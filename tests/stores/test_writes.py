"""The disk writes of an upload, in bytes and not in seconds."""

import os
import sqlite3
from pathlib import Path

import pytest

from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict

COUNTS = Path("/proc/self/io")
DIGEST = bytes(range(32))


def written() -> int:
    """Return the number of bytes that this process wrote to files so far."""
    found = dict(line.split(": ") for line in COUNTS.read_text(encoding="ascii").splitlines())
    return int(found["wchar"])


@pytest.mark.skipif(not COUNTS.exists(), reason="only Linux counts what is written")
def test_sqlite_writes_at_most_3500_bytes_per_upload(tmp_path: Path) -> None:
    """Uploads of 184 bytes under random names are written to the log, then to the file."""
    store = ShufflerStore(f"sqlite:{tmp_path}/uploads.db", tmp_path / "keys", tmp_path / "blobs")
    fence = store.lead("test", seconds=10_000)
    assert fence is not None
    store.begin(ShufflerRound(DIGEST, "writes", b"signed"), fence=fence)
    groups, size = 500, 64
    before = written()
    for _ in range(groups):
        given = [Upload(0, DIGEST, os.urandom(16), os.urandom(184)) for _ in range(size)]
        assert set(store.put(given)) == {Verdict.NEW}
    with sqlite3.connect(tmp_path / "uploads.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other.close()
    assert (written() - before) / (groups * size) <= 3500
    store.close()
