"""Where the database and the depot of a role are: by addresses, in files, or in memory."""

from pathlib import Path

from coatcheck.errors import Misuse
from coatcheck.stores.blobs import BlobStore, FolderBlobStore, MemoryBlobStore, S3BlobStore
from coatcheck.stores.database import Database
from coatcheck.stores.sqlite import SQLite

Place = Path | str
"""A folder, or the address of an object store."""


def open_database(url: str, *, role: str) -> Database:
    """Open a role's database: `sqlite:FILE`, `postgresql://...`, or `memory:`, which forgets."""
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return SQLite(None, role=role)
    if kind == "sqlite" and rest:
        return SQLite(Path(rest), role=role)
    if kind in {"postgresql", "postgres"}:
        from coatcheck.stores.postgres import Postgres  # noqa: PLC0415 - an extra, loaded if asked

        return Postgres(url, role=role)
    raise Misuse(f"a store is memory:, sqlite:FILE or postgresql://HOST/NAME, not {url!r}")


def blob_place(place: Place | None, *, url: str, keys: Path) -> Place:
    """Find the place of a depot: by default beside a store in a file, else beside round keys."""
    kind, _, name = url.partition(":")
    return place or (Path(name).with_suffix(".depot") if kind == "sqlite" else keys / "depot")


def open_blobs(place: Place | None, *, url: str, keys: Path | None) -> BlobStore:
    """Open the depot of a store; that of one in memory is in memory."""
    if url.startswith("memory:") or keys is None:
        return MemoryBlobStore()
    found = blob_place(place, url=url, keys=keys)
    return S3BlobStore(found) if isinstance(found, str) else FolderBlobStore(found)
