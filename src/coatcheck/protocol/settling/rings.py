"""Rings: places rounded to cells, and how far apart two cells are, as the number of a ring.

The terms give the side of a cell and the radii of the rings. Two cells are in ring 1 of each other
if they are at most the first radius apart, and so on; beyond the last radius they are in none.
SPEC section 16.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Annotated, Final

from msgspec import Meta

from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Misuse, Refused
from coatcheck.protocol.settling.blinded_sets import VALUE_SIZE, table_size

Cell = tuple[Annotated[int, Meta(ge=-(2**31), lt=2**31)], ...]

_LAST: Final = 2**31 - 2**11
_NOBODY: Final = b"coatcheck/v1/settle/nobody\0"
_MOST_SLOTS: Final = 4094 // VALUE_SIZE
"""The most slots of a table: the longest letter has no room for more."""


def cell_of(place: Sequence[float], *, scale: Sequence[float], side: float) -> Cell:
    """Round a place to its cell: the number of the cell on each axis (S16.1).

    Refused if tickets cannot hold these numbers, or those of the cells around (S16.2).
    """
    factors = scale or (1.0,) * len(place)
    try:
        numbers = [float(x * f // side) for x, f in zip(place, factors, strict=True)]
    except UNTRUSTED_DATA_ERRORS as error:
        raise Refused(f"the terms give this place no cell: {error}; do not settle here") from None
    if not all(-_LAST <= number <= _LAST for number in numbers):
        raise Refused("the cells of this round are too small for this place: do not settle here")
    return tuple(int(number) for number in numbers)


def cell_of_nobody(secret: bytes, axes: int) -> Cell:
    """Draw the cell of an address behind which is nobody, from 2^31 per axis.

    Such an address settles like a person in this cell. That a person is near it has no chance
    worth counting, so it settles with nobody, and no letter differs from a person's.
    """
    digests = (hashlib.sha256(_NOBODY + bytes((axis,)) + secret).digest() for axis in range(axes))
    return tuple(int.from_bytes(raw[:4], "big") // 2 - 2**30 for raw in digests)


class Rings:
    """The rings around every cell.

    Attributes:
        count: the number of rings; ring 1 is the innermost.
        axes: the number of axes of a cell.
        width: the number of cells across the last ring.
        around: the ring of each offset from a cell that is in one, in the order of offsets.
    """

    def __init__(self, radii: Sequence[float], *, side: float, axes: int) -> None:
        if not radii or not all(a < b for a, b in zip((0.0, *radii), radii, strict=False)):
            raise Misuse("`rings` must be one or more radii, each larger than the one before")
        self._radii, self._side = tuple(radii), side
        self.count, self.axes = len(radii), axes
        across = 2 * radii[-1] / side + 1
        if across > _MOST_SLOTS or axes * math.log(2 * int(radii[-1] / side) + 1) > math.log(
            _MOST_SLOTS
        ):
            raise Misuse(
                f"a letter holds a table of at most {_MOST_SLOTS} cells: make `cell` larger or"
                " `rings` smaller"
            )
        self.width = 2 * int(radii[-1] / side) + 1

    @property
    def table_size(self) -> int:
        """The bytes of a table, the longest content of a letter."""
        return table_size(self.width, self.axes)

    @cached_property
    def around(self) -> dict[Cell, int]:
        """The ring of each offset that is in one (S16.5)."""
        reach = self.width // 2
        rings = {
            offset: self._ring(sum(n * n for n in offset))
            for offset in product(range(-reach, reach + 1), repeat=self.axes)
        }
        return {offset: ring for offset, ring in rings.items() if ring}

    def _ring(self, squared: int) -> int:
        """Return the first ring that holds a squared distance in cells, or 0."""
        apart = squared * self._side * self._side
        rings = (n for n, radius in enumerate(self._radii, 1) if apart <= radius * radius)
        return next(rings, 0)

    def ring(self, one: Sequence[int], other: Sequence[int]) -> int:
        """Return the ring in which two cells are of each other, or 0."""
        return self.around.get(tuple(a - b for a, b in zip(one, other, strict=True)), 0)
