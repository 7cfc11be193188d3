"""Distances in the unit people think in: one factor per axis turns estimates into it.

For degrees of latitude and longitude the factors are metres per degree: a radius is then in metres,
and a circle is round. Knows points, not people.
"""

import numpy as np

from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Floats, Positions

Scale = tuple[float, ...]


def scale_of(domain: Box) -> Scale:
    """The factors of a box: metres per degree if it is geographic, else none are needed."""
    if not domain.degrees:
        return ()
    half = (np.array(domain.hi) - np.array(domain.lo)) / 2
    return tuple(float(factor) for factor in domain.scale / half)


def checked(scale: object) -> Scale:
    """The factors as a tuple (empty means 1 per axis); they arrive as a list from the terms."""
    factors = tuple(float(factor) for factor in scale) if isinstance(scale, list | tuple) else None
    if factors is None or not all(np.isfinite(factors)) or not all(f > 0 for f in factors):
        raise Misuse(f"scale must be positive factors, one per axis, got {scale!r}")
    return factors


def positive(value: float, *, what: str) -> float:
    """The number, if it is finite and above zero."""
    if not (np.isfinite(value) and value > 0):
        raise Misuse(f"{what} must be a positive number, got {value!r}")
    return float(value)


def measured(points: Floats, scale: Scale) -> Floats:
    """The points in the unit of distances."""
    if not scale:
        return np.ascontiguousarray(points, dtype=np.float64)
    if len(scale) != points.shape[1]:
        raise Misuse(f"scale has {len(scale)} factors but estimates have {points.shape[1]} axes")
    return np.ascontiguousarray(points * np.array(scale))


def normalised(*sides: Floats) -> tuple[list[Floats], float]:
    """The points centred and scaled into [-1, 1], and the unit: the length of 1 there.

    The unit is a power of two, so that nothing is rounded but the shift. Squares of the results
    neither overflow nor vanish, and no offset eats the digits of a distance.
    """
    points = np.concatenate(sides)
    if not points.size:
        return list(sides), 1.0
    low, high = points.min(axis=0), points.max(axis=0)
    half = float((high / 2 - low / 2).max())
    exponent = int(np.frexp(half)[1])
    centre = low / 2 + high / 2
    return [np.ldexp(side - centre, -exponent) for side in sides], float(np.ldexp(1.0, exponent))


def distinct(points: Floats) -> tuple[Floats, Positions]:
    """The different places among points, at least one, in order; and which of them each is at."""
    order = np.lexsort(points.T[::-1])
    new = np.concatenate([[True], np.any(np.diff(points[order], axis=0) != 0, axis=1)])
    place = np.empty(len(points), dtype=np.int64)
    place[order] = np.cumsum(new) - 1
    return points[order[new]], place
