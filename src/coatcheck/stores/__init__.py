"""BORDER: what survives a crash, one small store a role, kept in memory, SQLite or PostgreSQL.

A store keeps bytes and names of phases; it opens nothing and understands no report. Every write
is one transaction that is durable when the call returns, and carries the fencing token of the
process that leads: a process that lost its lease changes nothing any more.
"""

from pathlib import Path
from typing import Literal

from coatcheck.errors import Misuse
from coatcheck.stores.board_tables import BoardTables
from coatcheck.stores.contracts import (
    BoardStore,
    Gathering,
    Leased,
    Parcel,
    ServerStore,
    Shown,
    ShufflerStore,
    Sitting,
    Verdict,
)
from coatcheck.stores.database import Database
from coatcheck.stores.memory import MemoryBoard, MemoryServer, MemoryShuffler
from coatcheck.stores.server_tables import ServerTables
from coatcheck.stores.shuffler_tables import ShufflerTables
from coatcheck.stores.sqlite import SQLite

__all__ = [
    "BoardStore",
    "Gathering",
    "Leased",
    "Parcel",
    "ServerStore",
    "Shown",
    "ShufflerStore",
    "Sitting",
    "Verdict",
    "board_store",
    "server_store",
    "shuffler_store",
]

Role = Literal["shuffler", "server", "board"]


def shuffler_store(url: str) -> ShufflerStore:
    """Open the store of a shuffler: `memory:`, `sqlite:FILE` or `postgresql://...`."""
    return MemoryShuffler() if url == "memory:" else ShufflerTables(_database("shuffler", url))


def server_store(url: str) -> ServerStore:
    """Open the store of a server."""
    return MemoryServer() if url == "memory:" else ServerTables(_database("server", url))


def board_store(url: str) -> BoardStore:
    """Open the store of a board."""
    return MemoryBoard() if url == "memory:" else BoardTables(_database("board", url))


def _database(role: Role, url: str) -> Database:
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        return SQLite(Path(rest), role=role)
    if kind in {"postgresql", "postgres"}:
        from coatcheck.stores.postgres import Postgres  # noqa: PLC0415 - an extra, loaded if asked

        return Postgres(url, role=role)
    raise Misuse(f"a store is memory:, sqlite:FILE or postgresql://HOST/NAME, not {url!r}")
