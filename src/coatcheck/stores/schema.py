"""The tables by numbered migrations; a database from a later version is refused.

A migration never changes once it is released: the next change is the next number.
"""

from typing import Final

from coatcheck.errors import Misuse
from coatcheck.stores.database import Session

_LEASES: Final = (
    "CREATE TABLE IF NOT EXISTS coatcheck_leases"
    " (role TEXT PRIMARY KEY, holder TEXT NOT NULL, fence BIGINT NOT NULL,"
    " expires DOUBLE PRECISION NOT NULL, folder TEXT NOT NULL)"
)

_ROUNDS: Final = (
    " (number {number}, digest {bytes} UNIQUE NOT NULL, name TEXT UNIQUE NOT NULL,"
    " signed {bytes} NOT NULL, phase TEXT NOT NULL, accepted {bytes} NOT NULL"
)
_BLOBS: Final = (
    " (digest {bytes} NOT NULL, kind TEXT NOT NULL, raw {bytes} NOT NULL,"
    " PRIMARY KEY (digest, kind))"
)

_SHUFFLER: Final = (
    _LEASES,
    "CREATE TABLE shuffler_pledges (name TEXT PRIMARY KEY, digest {bytes} NOT NULL)",
    f"CREATE TABLE shuffler_rounds{_ROUNDS})",
    "CREATE INDEX shuffler_rounds_at ON shuffler_rounds (phase)",
    # Keyed by a hash of the upload's random id, under the round's key.
    (
        "CREATE TABLE shuffler_parcels (round INTEGER NOT NULL, id {bytes} NOT NULL,"
        " content {bytes} NOT NULL, token {bytes}, PRIMARY KEY (round, id)) {clustered}"
    ),
    (
        "CREATE UNIQUE INDEX shuffler_tokens ON shuffler_parcels (round, token)"
        " WHERE token IS NOT NULL"
    ),
    (
        "CREATE TABLE shuffler_bundles (place {wide} PRIMARY KEY, round INTEGER NOT NULL,"
        " kind INTEGER NOT NULL, size INTEGER NOT NULL, body {bytes} NOT NULL)"
    ),
    "CREATE INDEX shuffler_bundles_of ON shuffler_bundles (round)",
    # One row per process and group, so that two processes never wait for each other.
    (
        "CREATE TABLE shuffler_counts (round INTEGER NOT NULL, holder TEXT NOT NULL,"
        " kind INTEGER NOT NULL, uploads {wide} NOT NULL, PRIMARY KEY (round, holder, kind))"
    ),
    f"CREATE TABLE shuffler_blobs{_BLOBS}",
)

_SERVER: Final = (
    _LEASES,
    f"CREATE TABLE server_rounds{_ROUNDS}, outcome TEXT NOT NULL)",
    "CREATE INDEX server_rounds_at ON server_rounds (phase)",
    f"CREATE TABLE server_blobs{_BLOBS}",
)

_BOARD: Final = (
    _LEASES,
    (
        "CREATE TABLE board_rounds (number {number}, digest {bytes} UNIQUE NOT NULL,"
        " signed {bytes} NOT NULL)"
    ),
    "CREATE TABLE board_shelf (key {bytes} PRIMARY KEY, value {bytes} NOT NULL)",
)

MIGRATIONS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "shuffler": (_SHUFFLER,),
    "server": (_SERVER,),
    "board": (_BOARD,),
}


def migrate(session: Session, *, role: str, words: dict[str, str]) -> None:
    """Bring the tables of a role to this version, from whatever earlier one they have."""
    session.rows(
        "CREATE TABLE IF NOT EXISTS coatcheck_schema"
        " (role TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    found = session.rows("SELECT version FROM coatcheck_schema WHERE role = ?", (role,))
    version = found[0][0] if found else 0
    known = len(MIGRATIONS[role])
    if version > known:
        raise Misuse(
            f"this database is of schema {version} and this coatcheck knows {role} schemas up to"
            f" {known}: start the version that wrote it, or a later one"
        )
    for statements in MIGRATIONS[role][version:]:
        for statement in statements:
            session.rows(statement.format(**words))
    session.rows(
        "INSERT INTO coatcheck_schema (role, version) VALUES (?, ?)"
        " ON CONFLICT (role) DO UPDATE SET version = excluded.version",
        (role, known),
    )
