"""A made-up city: crowds that gather in quarters, the same ones for the same seed.

The demo's people have to be somewhere when the user brings no file. Nobody real lives here, so
seeded randomness is right; the noise on their places is drawn by the clients, as always.
"""

from typing import Final

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtri

from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.tasks.distances import measured, scale_of

CITY: Final = Box.geographic(south=31.190, west=121.430, north=31.262, east=121.514)
"""Eight kilometres by eight, stated before anybody is asked where they are."""

# Where each quarter lies in the box (share of height and width), how wide it spreads, and how
# many of the crowd are there. The last one is everybody else.
_QUARTERS: Final = (
    ("harbor", 0.80, 0.72, 0.05, 0.22),
    ("old town", 0.55, 0.45, 0.07, 0.28),
    ("university", 0.25, 0.20, 0.06, 0.18),
    ("station", 0.30, 0.75, 0.04, 0.14),
    ("suburbs", 0.50, 0.50, 0.30, 0.18),
)


def places(people: int, *, entropy: Entropy | int) -> Floats:
    """Put people into the quarters, as (latitude, longitude)."""
    drawn = source(entropy)
    shares = np.array([quarter[4] for quarter in _QUARTERS])
    home = np.searchsorted(np.cumsum(shares), drawn.uniforms(people) * shares.sum())
    center = np.array([quarter[1:3] for quarter in _QUARTERS])[home]
    spread = np.array([quarter[3] for quarter in _QUARTERS])[home, None]
    share = center + spread * _normal(drawn, people)
    # Whoever would stand outside the city stands as far inside: reflecting keeps edges empty.
    share = 1 - np.abs(1 - np.abs(share) % 2)
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    return np.asarray(low + np.clip(share, 0.0, 1.0) * (high - low))


def quarters() -> list[tuple[str, tuple[float, float], float]]:
    """Return the quarters: name, center as a share (right, up) of the box, and spread."""
    return [(name, (right, up), wide) for name, up, right, wide, _ in _QUARTERS[:-1]]


def place_of(name: str) -> Floats:
    """Return the center of a quarter, as everybody knows it."""
    (share,) = (one[1:3] for one in _QUARTERS if one[0] == name)
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    return np.asarray(low + np.array(share) * (high - low))


def well_placed(people: Floats, *, within: float) -> int:
    """Tell who of the old town has the most people within so many metres."""
    places = measured(people, scale_of(CITY) or (1.0, 1.0))
    near = cKDTree(places).query_ball_point(places, within, return_length=True)
    there = [quarter(place) == "old town" for place in people]
    return int(np.argmax(np.where(there, near, 0)))


def quarter(place: Floats) -> str:
    """Name the quarter whose center is nearest, as a passer-by would."""
    low, high = np.array(CITY.lo), np.array(CITY.hi)
    share = (place - low) / (high - low)
    apart = [float(np.hypot(*(share - quarter[1:3]))) for quarter in _QUARTERS[:-1]]
    return _QUARTERS[int(np.argmin(apart))][0]


def _normal(entropy: Entropy, rows: int) -> Floats:
    return np.asarray(ndtri(entropy.uniforms(2 * rows))).reshape(rows, 2)
