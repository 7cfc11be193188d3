"""The log as tiles (C2SP tlog-tiles): hashes and entries in pieces that never change once full.

Knows paths and bytes of tiles, nothing of what is in the log. A cache or static files can serve
them, and whoever reads needs no proofs from the board: it makes them from tiles. SPEC section 18.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coatcheck.errors import Malformed, Misuse

WIDTH: Final = 256
"""How many hashes or entries a full tile has."""
_BITS: Final = 8
_LEVEL: Final = re.compile(r"0|[1-9][0-9]?")
_PLACE: Final = re.compile(r"((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
_MOST: Final = 63
ENTRIES: Final = "entries"


@dataclass(frozen=True)
class TileName:
    """Which tile: its level (None for the entries themselves), its number and its width."""

    level: int | None
    number: int
    width: int = WIDTH

    @classmethod
    def read(cls, level: str, place: str) -> "TileName":
        """Read the two parts of a path, in the one form that each tile has."""
        found = _PLACE.fullmatch(place)
        if not found or (level != ENTRIES and not _LEVEL.fullmatch(level)):
            raise Malformed("this is no tile: its path is LEVEL/x001/x234/067 or LEVEL/067.p/WIDTH")
        number, width = int(found[1].replace("x", "").replace("/", "")), int(found[2] or WIDTH)
        if width > WIDTH:
            raise Malformed(f"this is no tile: it has at most {WIDTH} hashes")
        made = cls(None if level == ENTRIES else int(level), number, width)
        if made.path != f"{level}/{place}" or (made.level or 0) > _MOST:
            raise Malformed("this is no tile: its path is longer than it needs to be")
        return made

    @property
    def path(self) -> str:
        """The path, after `tile/`."""
        parts, rest = [f"{self.number % 1000:03d}"], self.number // 1000
        while rest:
            parts.insert(0, f"x{rest % 1000:03d}")
            rest //= 1000
        if self.width < WIDTH:
            parts.append(str(self.width))
            parts[-2] += ".p"
        elif self.width > WIDTH:
            raise Misuse(f"a tile has at most {WIDTH} hashes")
        return "/".join([ENTRIES if self.level is None else str(self.level), *parts])

    @property
    def height(self) -> int:
        """Each hash of the tile is over 2^height leaves."""
        return _BITS * (self.level or 0)

    @property
    def start(self) -> int:
        """The place of its first hash among those of its height, or of its first entry."""
        return self.number * WIDTH

    @property
    def end(self) -> int:
        """The place after its last one."""
        return self.start + self.width

    def is_in(self, size: int) -> bool:
        """Tell whether a log of so many leaves has all of it."""
        return self.end <= size >> self.height


def write_entries(entries: Iterable[bytes]) -> bytes:
    """Write entries as a tile: each after its length in two bytes."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)
