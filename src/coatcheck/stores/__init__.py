"""Databases and blob stores of the roles, opened by their addresses: files, servers, or memory."""

from pathlib import Path

from coatcheck.errors import Misuse
from coatcheck.stores.blobs import BlobStore, FolderBlobStore, MemoryBlobStore, S3BlobStore
from coatcheck.stores.database import Database
from coatcheck.stores.sqlite import SQLite

Place = Path | str
"""A folder, or the address of an object store."""


def open_database(url: str, *, role: str) -> Database:
    """Open a role's database at `sqlite:FILE`, `postgresql://...`, or in `memory:`."""
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return SQLite(None, role=role)
    if kind == "sqlite" and rest:
        return SQLite(Path(rest), role=role)
    if kind in {"postgresql", "postgres"}:
        from coatcheck.stores.postgres import Postgres  # noqa: PLC0415 - an extra, loaded if asked

        return Postgres(url, role=role)
    raise Misuse(f"`store` must be memory:, sqlite:FILE or postgresql://HOST/NAME, got {url!r}")


def blob_place(place: Place | None, *, url: str, keys: Path) -> Place:
    """Find the place of blobs: by default beside a database in a file, else beside round keys."""
    kind, _, name = url.partition(":")
    return place or (Path(name).with_suffix(".blobs") if kind == "sqlite" else keys / "blobs")


def open_blobs(place: Place | None, *, url: str, keys: Path | None) -> BlobStore:
    """Open the blob store that belongs to a database; for one in memory it is in memory."""
    if url.startswith("memory:") or keys is None:
        return MemoryBlobStore()
    folder = blob_place(place, url=url, keys=keys)
    return S3BlobStore(folder) if isinstance(folder, str) else FolderBlobStore(folder)
