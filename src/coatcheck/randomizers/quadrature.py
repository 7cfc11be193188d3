"""Fixed points at which errors are averaged: even coverage instead of random draws.

The additive recurrence of Roberts (2018) with the generalised golden ratio: deterministic, so a
search over radii sees a smooth function, and accurate to about 1e-3 with a few thousand points.
"""

import itertools
import math
from functools import lru_cache
from typing import Final

import numpy as np

from coatcheck.domains import Floats
from coatcheck.randomizers.balls import unit_ball

_GRID: Final = 11  # places along an axis of a quadrant of the square where the worst is sought


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


@lru_cache(maxsize=8)
def evenly_twice(size: int, *, dimension: int, p: float) -> tuple[Floats, Floats]:
    """Return places of the unit l_p ball and, beside each, an offset from the same ball."""
    places, uniforms = evenly(size, dimension=dimension, p=p, extra=dimension + 1)
    offsets = unit_ball(p, uniforms)
    offsets.flags.writeable = False
    return places, offsets


@lru_cache(maxsize=32)
def corners(dimension: int, p: float, *, alike: bool) -> Floats:
    """Return the places (m, dimension) of the unit l_p ball among which the worst is sought.

    A grid of one quadrant up to two dimensions (half of it if the axes are alike); above, the
    rays to the centers of the faces of every kind (one coordinate, two, ... all equal), which
    hold the extremes of a symmetric error.
    """
    if dimension <= 2 and p == math.inf:
        axis = np.linspace(0.0, 1.0, _GRID)
        grid = itertools.product(axis, repeat=dimension)
        return np.array([place for place in grid if place[0] >= place[-1] or not alike])
    places = [np.zeros(dimension)]
    for equal in sorted({1, 2, dimension // 2, dimension} & set(range(1, dimension + 1))):
        ray = np.zeros(dimension)
        ray[:equal] = 1.0 if p == math.inf else equal ** (-1 / p)
        places += [ray * t for t in (0.25, 0.5, 0.7, 0.8, 0.9, 1.0)]
    return np.array(places)


def extremes(dimension: int, p: float) -> list[Floats]:
    """Return places of the unit l_p ball that hold the extremes of |x|_2, on any scale of axes."""
    diagonal = np.full(dimension, math.pow(dimension, -1 / p))
    return [np.zeros(dimension), diagonal, *np.eye(dimension)]
