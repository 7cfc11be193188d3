"""Fixed points at which errors are averaged: even coverage instead of random draws.

The additive recurrence of Roberts (2018) with the generalised golden ratio: deterministic, so a
search over radii sees a smooth function, and accurate to about 1e-3 with a few thousand points.
"""

import itertools
import math
from functools import lru_cache
from typing import Final

import numpy as np

from coatcheck.domain import Floats
from coatcheck.randomizers.balls import unit_ball

_GRID: Final = 6  # places along an axis of a quadrant of the square where the worst is sought


@lru_cache(maxsize=8)
def evenly(size: int, *, dimension: int, p: float, extra: int) -> tuple[Floats, Floats]:
    """Return places (size, dimension) of the unit l_p ball and uniforms (size, extra) beside."""
    total = dimension + 1 + extra
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (total + 1))
    steps = ratio ** -np.arange(1.0, total + 1)
    table = (0.5 + np.outer(np.arange(1, size + 1), steps)) % 1.0
    table = np.clip(table, 1e-12, 1 - 1e-12)
    places = unit_ball(p, table[:, : dimension + 1])
    uniforms = table[:, dimension + 1 :].copy()
    places.flags.writeable = uniforms.flags.writeable = False
    return places, uniforms


@lru_cache(maxsize=32)
def corners(dimension: int, p: float) -> list[Floats]:
    """Return the places of the unit l_p ball among which the worst case is sought.

    A grid of one quadrant up to two dimensions; above, the rays to the centers of the faces of
    every kind (one coordinate, two, ... all alike), which hold the extremes of a symmetric error.
    """
    if dimension <= 2 and p == math.inf:
        axis = np.linspace(0.0, 1.0, _GRID)
        return [np.array(place) for place in itertools.product(axis, repeat=dimension)]
    places = [np.zeros(dimension)]
    for alike in sorted({1, 2, dimension // 2, dimension} - {0}):
        ray = np.zeros(dimension)
        ray[:alike] = 1.0 if p == math.inf else alike ** (-1 / p)
        places += [ray * t for t in (0.25, 0.5, 0.75, 0.9, 1.0)]
    return places
