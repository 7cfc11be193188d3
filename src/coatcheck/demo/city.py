"""A made-up city: where its people are, and its streets.

The demo's people need places when the user brings no file. They gather in quarters, the same ones
for the same seed. Nobody real lives here, so seeded randomness is right; the noise on the places is
drawn by the clients, as always. Streets are in shares (right, up) of the city's box, as the page
draws them; nothing is fetched.

    >>> streets()["quarters"][0]["name"]
    'harbor'
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtri

from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.tasks.contract import scale_of, scaled

CITY: Final = Box.geographic(south=31.190, west=121.430, north=31.262, east=121.514)
"""Eight kilometres by eight, stated before anybody reports a place."""

# Where each quarter lies in the box (share of height and width), how wide it spreads, and which
# share of the crowd is there. The last quarter is everybody else.
_QUARTERS: Final = (
    ("harbor", 0.80, 0.72, 0.05, 0.22),
    ("old town", 0.55, 0.45, 0.07, 0.28),
    ("university", 0.25, 0.20, 0.06, 0.18),
    ("station", 0.30, 0.75, 0.04, 0.14),
    ("suburbs", 0.50, 0.50, 0.30, 0.18),
)


def places(people: int, *, entropy: Entropy | int) -> Floats:
    """Return places of people in the quarters, as (latitude, longitude)."""
    drawn = source(entropy)
    shares = np.array([quarter[4] for quarter in _QUARTERS])
    home = np.searchsorted(np.cumsum(shares), drawn.uniforms(people) * shares.sum())
    center = np.array([quarter[1:3] for quarter in _QUARTERS])[home]
    spread = np.array([quarter[3] for quarter in _QUARTERS])[home, None]
    share = center + spread * _normal(drawn, people)
    # A place outside the city is reflected to as far inside, which keeps the edges empty.
    share = 1 - np.abs(1 - np.abs(share) % 2)
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    return np.asarray(low + np.clip(share, 0.0, 1.0) * (high - low))


def quarters() -> list[tuple[str, tuple[float, float], float]]:
    """Return the quarters: name, center as a share (right, up) of the box, and spread."""
    return [(name, (right, up), wide) for name, up, right, wide, _ in _QUARTERS[:-1]]


def place_of(name: str) -> Floats:
    """Return the center of a quarter."""
    (share,) = (quarter[1:3] for quarter in _QUARTERS if quarter[0] == name)
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    return np.asarray(low + np.array(share) * (high - low))


def well_placed(people: Floats, *, within: float) -> int:
    """Return the row of the person in the old town with the most people within that distance."""
    places = scaled(people, scale_of(CITY) or (1.0, 1.0))
    near = cKDTree(places).query_ball_point(places, within, return_length=True)
    in_old_town = [quarter(place) == "old town" for place in people]
    return int(np.argmax(np.where(in_old_town, near, 0)))


def quarter(place: Floats) -> str:
    """Return the name of the quarter whose center is nearest."""
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    share = (place - low) / (high - low)
    apart = [float(np.hypot(*(share - quarter[1:3]))) for quarter in _QUARTERS[:-1]]
    return _QUARTERS[int(np.argmin(apart))][0]


def _normal(entropy: Entropy, rows: int) -> Floats:
    return np.asarray(ndtri(entropy.uniforms(2 * rows))).reshape(rows, 2)


Point = tuple[float, float]
_RIVER: Final[tuple[Point, ...]] = (
    (-0.10, 0.66),
    (0.10, 0.70),
    (0.24, 0.66),
    (0.38, 0.70),
    (0.52, 0.79),
    (0.62, 0.90),
    (0.72, 1.10),
)
_PARKS: Final = (
    ("Castle Park", ((0.24, 0.50), (0.33, 0.49), (0.34, 0.57), (0.25, 0.58))),
    ("Botanic Garden", ((0.06, 0.33), (0.13, 0.36), (0.11, 0.43), (0.04, 0.40))),
    ("East Heath", ((0.86, 0.52), (0.97, 0.50), (0.98, 0.62), (0.88, 0.63))),
)
_AVENUES: Final = (
    ("Harbor Avenue", ("old town", "harbor"), 0.05),
    ("University Road", ("old town", "university"), -0.04),
    ("Station Street", ("old town", "station"), 0.05),
    ("South Parkway", ("university", "station"), -0.07),
    ("East Parkway", ("station", "harbor"), 0.08),
)
_GRIDS: Final = {"harbor": 0.5, "university": 0.15, "station": -0.2}
_BLOCK: Final = 0.035


@lru_cache(maxsize=1)
def streets() -> dict[str, Any]:
    """Return the river, the parks, the streets and the quarters, with their names."""
    at = {name: place for name, place, _ in quarters()}
    lines = [
        {"kind": "lane", "name": "", "line": line}
        for line in (*_suburbs(), *_rings(at["old town"]), *_blocks(at))
    ]
    lines += [
        {"kind": "avenue", "name": name, "line": _bent(at[ends[0]], at[ends[1]], bend)}
        for name, ends, bend in _AVENUES
    ]
    lines.append({"kind": "avenue", "name": "Ring", "line": _circle((0.47, 0.50), 0.36)})
    return {
        "river": {"name": "the river", "line": list(_RIVER)},
        "parks": [{"name": name, "line": list(shape)} for name, shape in _PARKS],
        "streets": lines,
        "quarters": [{"name": name, "at": place} for name, place, _ in quarters()],
    }


def _bent(start: Point, end: Point, bend: float) -> list[Point]:
    """Draw a street from one point to another through a third, which lies aside."""
    (a, b), (c, d) = start, end
    middle = ((a + c) / 2 - bend * (d - b) * 2, (b + d) / 2 + bend * (c - a) * 2)
    return [start, *(_between(start, middle, end, n / 8) for n in range(1, 8)), end]


def _between(start: Point, middle: Point, end: Point, share: float) -> Point:
    """Return the point of the curve of three points at a share of its length."""
    parts = zip(start, middle, end, strict=True)
    far = 1 - share
    right, up = (a * far * far + 2 * b * share * far + c * share * share for a, b, c in parts)
    return right, up


def _circle(center: Point, radius: float, corners: int = 36) -> list[Point]:
    turns = (2 * math.pi * n / corners for n in range(corners + 1))
    return [(center[0] + radius * math.cos(t), center[1] + radius * math.sin(t)) for t in turns]


def _rings(center: Point) -> Iterator[list[Point]]:
    """Draw rings and spokes around an old center, all slightly irregular."""
    for ring in range(1, 5):
        yield [
            (x + 0.006 * math.sin(5 * y * ring), y + 0.006 * math.cos(7 * x * ring))
            for x, y in _circle(center, 0.03 * ring, 24)
        ]
    for spoke in range(9):
        turn = 2 * math.pi * (spoke + 0.3 * math.sin(spoke)) / 9
        ray = (math.cos(turn), math.sin(turn))
        yield [(center[0] + far * ray[0], center[1] + far * ray[1]) for far in (0.02, 0.14)]


def _blocks(at: dict[str, Point]) -> Iterator[list[Point]]:
    """Draw a turned grid over each of the newer quarters."""
    for name, turn in _GRIDS.items():
        (x, y), cos, sin = at[name], math.cos(turn), math.sin(turn)
        for step in range(-3, 4):
            for across in (False, True):
                ends = [(step * _BLOCK, far * _BLOCK) for far in (-3.4, 3.4)]
                turned = [(b, a) if across else (a, b) for a, b in ends]
                yield [(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in turned]


def _suburbs() -> Iterator[list[Point]]:
    """Draw a few long streets through the whole city, each slightly bent."""
    for number in range(1, 10):
        where = number / 10
        sway = [0.012 * math.sin(3 * number + 6 * share / 10) for share in range(-1, 12)]
        yield [(share / 10, where + sway[share + 1]) for share in range(-1, 12)]
        yield [(where + sway[11 - share], share / 10) for share in range(-1, 12)]
