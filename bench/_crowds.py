"""The crowds of the benches: the paper's if their files exist, or else synthetic ones.

Set COATCHECK_DATA to the directory of the `.npz` files. A synthetic crowd has the same size, and
the output says which one was used.
"""

import os
from pathlib import Path
from typing import Final

import numpy as np

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.randomizers import (
    BoundedResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    tuned,
)
from coatcheck.tasks import Floats
from coatcheck.tasks.learning import Learning
from coatcheck.tasks.shapley import Game

SQUARE: Final = Box((-1, -1), (1, 1))
SIDES: Final = {"gmission": (713, 532), "everysender": (4036, 817)}
REPORTED: Final[dict[str, Randomizer]] = {
    "grid": GridResponse(domain=SQUARE, epsilon=2.0, cells=(20, 20)),
    "bounded": tuned(BoundedResponse, domain=SQUARE, epsilon=2.0),
}
CITIES: Final = {
    "gowalla_sf": ((37.54, -122.51), (37.79, -122.38)),
    "foursquare_nyc": ((40.55, -74.27), (40.99, -73.68)),
}
CHECK_INS: Final = {"gowalla_sf": 138_368, "foursquare_nyc": 227_428}


def _file(name: str) -> Path:
    return Path(os.environ.get("COATCHECK_DATA", "data")) / f"{name}.npz"


def spread(count: int, seed: int) -> Floats:
    """Return places anywhere in the unit square."""
    return np.random.default_rng(seed).random((count, 2))


def sides(name: str) -> tuple[Floats, Floats]:
    """Return the smaller and the larger side of a crowdsourcing crowd, on [0, 5]^2."""
    if not _file(name).exists():
        print(f"{name}: no file, a uniform crowd of its size stands in")
        larger, smaller = SIDES[name]
        return spread(smaller, 1) * 5, spread(larger, 2) * 5
    data = np.load(_file(name))
    users, workers = (data["xy"][data["group"] == side] for side in ("user", "worker"))
    return workers, users


def latlon(name: str) -> Floats:
    """Return real places in degrees, many at one venue, in random order."""
    if not _file(name).exists():
        return np.array([37.75, -122.4]) + check_ins(name) * 0.3
    return np.asarray(np.load(_file(name))["latlon"], dtype=np.float64)


def check_ins(name: str, most: int | None = None) -> Floats:
    """Return real places on [-1, 1]^2, many at one venue."""
    if not _file(name).exists():
        print(f"{name}: no file, a clustered crowd of its size stands in")
        draw = np.random.default_rng(3)
        venues = np.clip(draw.normal(0, 0.4, (CHECK_INS[name] // 6, 2)), -1, 1)
        return venues[draw.integers(0, len(venues), CHECK_INS[name])][:most]
    places = np.load(_file(name))["latlon"]
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - low) / (high - low) * 2 - 1)[:most]


def geographic(name: str) -> tuple[Floats, Box]:
    """Return real places in degrees and the box around them, or a stand-in on that city's box."""
    sides = np.array(CITIES[name])
    if not _file(name).exists():
        return sides[0] + (check_ins(name) + 1) / 2 * (sides[1] - sides[0]), _around(sides)
    places = np.asarray(np.load(_file(name))["latlon"], dtype=np.float64)
    return places, _around(np.array([places.min(axis=0), places.max(axis=0)]))


def _around(sides: Floats) -> Box:
    (south, west), (north, east) = sides.tolist()
    return Box.geographic(south=south, west=west, north=north, east=east)


def reported(places: Floats) -> Floats:
    """Return the places as the server sees them at ε 8 with a cap of 0.05, decoded raw."""
    randomizer = MinkowskiResponse(domain=SQUARE, epsilon=8.0, radius=0.05)
    reports = randomizer.randomize(places, seeded(5), clamp=True)
    return np.asarray(randomizer.estimate(reports, "raw"))


def reports(count: int, seed: int, *, mechanism: str = "bounded", clustered: bool = True) -> Floats:
    """Return a mechanism's reports at ε 2 of people in five parts of town, or anywhere."""
    draw = np.random.default_rng(seed)
    places = draw.uniform(-1, 1, (count, 2))
    if clustered:
        parts = np.array([[-0.5, -0.4], [0.2, 0.3], [0.6, -0.5], [-0.3, 0.7], [0.0, 0.0]])
        places = parts[draw.integers(0, len(parts), count)] + 0.12 * draw.normal(size=(count, 2))
    randomizer = REPORTED[mechanism]
    return np.asarray(
        randomizer.estimate(randomizer.randomize(places, seeded(seed), clamp=True), "raw")
    )


def one_cell() -> tuple[Floats, Floats]:
    """Return 2,700 riders in a cell, 2,600 drivers there and 400 in the next: 100 must travel."""
    drivers = np.zeros((3000, 2))
    drivers[2600:, 0] = 1.0
    return np.zeros((2700, 2)), drivers


def gradients(count: int, *, dimension: int = 4292, sampled: int = 6) -> Game:
    """Return sparse gradients with a common drift, as in the paper's learning round."""
    entropy = seeded(6)
    where = Learning(dimension=dimension, sampled=sampled).draw_coordinates(count, entropy=entropy)
    draw = np.random.default_rng(7)
    direction = draw.normal(size=dimension) * draw.random(dimension) ** 3
    values = 0.2 * direction[where] + 0.3 * draw.normal(size=where.shape)
    return Game(coordinates=where, values=values, direction=direction)
