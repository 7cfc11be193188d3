"""Where the depot of a role is: a folder, objects below an address, or this process's memory."""

from pathlib import Path

from coatcheck.stores.bucket import BucketDepot
from coatcheck.stores.depot import Depot, MemoryDepot
from coatcheck.stores.folder import FolderDepot

Place = Path | str
"""A folder, or the address of an object store."""


def depot_place(place: Place | None, *, url: str, keys: Path) -> Place:
    """Find the place of a depot: by default beside a store in a file, else beside round keys."""
    kind, _, name = url.partition(":")
    return place or (Path(name).with_suffix(".depot") if kind == "sqlite" else keys / "depot")


def open_depot(place: Place | None, *, url: str, keys: Path | None) -> Depot:
    """Open the depot of a store; that of one in memory is in memory."""
    if url.startswith("memory:") or keys is None:
        return MemoryDepot()
    found = depot_place(place, url=url, keys=keys)
    return BucketDepot(found) if isinstance(found, str) else FolderDepot(found)
