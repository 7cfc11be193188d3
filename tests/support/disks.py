"""A search of every file of a database for bytes that must not be there."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg


@dataclass
class Disk:
    """A database, all of its files, and the folder of its round keys."""

    url: str
    folder: Path
    pattern: str = "*"
    keys: Path = Path()

    def found(self, *needles: bytes) -> list[bytes]:
        """Search every file of the database for bytes, raw and in hex."""
        self._settle()
        wanted = {
            form[:16]: needle for needle in needles for form in (needle, needle.hex().encode())
        }
        # Which pairs of bytes a needle begins with: a table, so that all are looked for at once.
        begins = np.zeros(1 << 16, dtype=bool)
        begins[[form[0] << 8 | form[1] for form in wanted]] = True
        found: set[bytes] = set()
        blobs = self.keys / "blobs"
        for path in (*self.folder.rglob(self.pattern), *blobs.rglob("*")):
            if path.is_file():
                raw = path.read_bytes()
                each = np.frombuffer(raw, dtype=np.uint8).astype(np.uint16)
                places = np.flatnonzero(begins[each[:-1] << 8 | each[1:]])
                found |= {wanted.get(raw[at : at + 16], b"") for at in places}
        return sorted(found - {b""})

    def _settle(self) -> None:
        """Make PostgreSQL write its pages to its files."""
        if self.url.startswith("postgresql"):
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("CHECKPOINT")

    def blob_files(self) -> list[str]:
        """List the rounds' files in the blob store, beside the database or among the keys."""
        found = {path for place in (self.folder, self.keys) for path in place.rglob("*.blobs/**/*")}
        found |= set(self.keys.rglob("blobs/**/*"))
        return sorted(path.name for path in found if path.is_file())

    def key_files(self) -> list[str]:
        """List the files in the folder of round keys."""
        return sorted(path.suffix for path in self.keys.glob("*.*"))
