"""An app that rounds distances, and trilateration: the attack that finds its people to the metre.

Many apps tell how far away somebody is, rounded, to whoever says where they are. The answer flips
where the distance is exactly between two rounded ones. Whoever moves about by saying false places
finds such points, and three of them with their distances are three circles that meet in one point.
Places are in metres, east and north.

    >>> app = RoundingApp(np.array([[3210.0, 4567.0]]), step=500.0)
    >>> found = trilaterate(lambda place: app.distance(place, who=0), start=(0.0, 0.0), step=500.0)
    >>> bool(np.hypot(*(found.guess - app.places[0])) < 1.0)
    True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from coatcheck.domains import Floats
from coatcheck.errors import Refused

Circle = tuple[Floats, float]
_RAYS: Final = 3
_STRIDE: Final = 0.25  # of a step: small enough that no flip is jumped over
_FINE: Final = 1.0  # metres: how well a flip is found
_FAR: Final = 400  # strides: after so many a distance must have changed


@dataclass(frozen=True, eq=False)
class RoundingApp:
    """An app that tells anybody how far away its people are, to the nearest `step` metres."""

    places: Floats
    step: float

    def distance(self, claimed: Sequence[float] | Floats, *, who: int) -> float:
        """Tell whoever claims to be there how far away a person is."""
        away = float(np.hypot(*(self.places[who] - np.asarray(claimed))))
        return self.step * round(away / self.step)


@dataclass(frozen=True, eq=False)
class Pinned:
    """What trilateration found.

    Attributes:
        guess: where the person is.
        circles: the last three points where the answer flips, and how far the person is from each.
        asked: every place that was claimed, in order, with the distance that was told.
    """

    guess: Floats
    circles: list[Circle]
    asked: list[tuple[Floats, float]] = field(repr=False)


def trilaterate(
    ask: Callable[[Floats], float], *, start: Sequence[float] | Floats, step: float
) -> Pinned:
    """Find a person by an app's rounded distances: roughly first, then from close by."""
    asked: list[tuple[Floats, float]] = []

    def told(place: Floats) -> float:
        asked.append((place, ask(place)))
        return asked[-1][1]

    guess, circles = np.asarray(start, dtype=np.float64), list[Circle]()
    for _ in range(3):  # circles around points on all sides of a person meet at steeper angles
        turns = 2 * np.pi * np.arange(_RAYS) / _RAYS
        rays = np.column_stack([np.cos(turns), np.sin(turns)])
        circles = [_flip(told, guess, ray, step) for ray in rays]
        guess = meet(circles)
    return Pinned(guess, circles, asked)


def _flip(told: Callable[[Floats], float], start: Floats, ray: Floats, step: float) -> Circle:
    """Walk along a ray until the answer changes, and halve to where it does."""
    near, first = 0.0, told(start)
    for count in range(1, _FAR + 1):
        far = count * _STRIDE * step
        other = told(start + far * ray)
        if other != first:
            break
        near = far
    else:
        raise Refused("the distance does not change: this app does not tell where one is")
    while far - near > _FINE:
        middle = (near + far) / 2
        if told(start + middle * ray) == first:
            near = middle
        else:
            far = middle
    return start + (near + far) / 2 * ray, (first + other) / 2


def meet(circles: Sequence[Circle]) -> Floats:
    """Return the point that lies on all circles: their differences are straight lines."""
    centers = np.array([center for center, _ in circles])
    radii = np.array([radius for _, radius in circles])
    slopes = 2 * (centers[1:] - centers[0])
    sides = (centers[1:] ** 2 - centers[0] ** 2).sum(axis=1) - (radii[1:] ** 2 - radii[0] ** 2)
    return np.asarray(np.linalg.lstsq(slopes, sides, rcond=None)[0])
