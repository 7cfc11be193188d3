"""The board's log as tiles, for whoever follows it as they follow any transparency log.

Hashes and entries are on the board's shelf. A tile shows what is on the disk and never
changes, so that caches may keep it. SPEC section 18.
"""

from collections.abc import Callable
from typing import Annotated, Final, Protocol, TypeVar

from msgspec import Meta

from coatcheck.errors import Malformed
from coatcheck.protocol.board import Board
from coatcheck.protocol.tiles import TileName, write_entries
from coatcheck.services.board.documents import Seen
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Header, Reply, Route
from coatcheck.services.leadership import Leadership

Level = Annotated[str, Meta(description="A level from 0 on, or `entries`.", max_length=8)]
Place = Annotated[
    str, Meta(description="`x001/x234/067`, or `067.p/WIDTH` for a partial one.", max_length=40)
]
_KEPT: Final = {"cache-control": "public, max-age=31536000, immutable"}

R = TypeVar("R")


class Tiled(Protocol):
    """What is needed of the board."""

    seen: Seen
    leadership: Leadership

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""


async def tile(service: Tiled, level: Level, place: Place) -> Reply:
    """Give a tile of the log (C2SP tlog-tiles): 256 hashes or entries, or fewer at its end."""
    service.leadership.check()
    try:
        name = TileName.read(level, place)
    except Malformed as error:
        raise Problem("not-found", str(error)) from None
    if not name.is_in(service.seen.size):
        raise Problem("not-found", f"the log has {service.seen.size} places: no such tile yet")
    if name.level is None:
        leaves = await service.read(lambda log: log.leaves(name.start, name.end))
        return Reply(write_entries(leaves), _KEPT)
    return Reply(await service.read(lambda log: log.hashes(name)), _KEPT)


TILES: Final = (
    Route(
        *("GET", "/log/tile/{level}/{place*}", tile),
        sends=(Header("cache-control", "A tile never changes."),),
        problems=(404, 503),
    ),
)
"""What the board serves of it."""
