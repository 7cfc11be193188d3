"""How far codebooks reach: real check-ins held out from the prior, and directions beside PrivUnit.

Places: 40,000 public check-ins place a codebook, 10,000 others are the people; mean error in
metres, expected over the noise. Directions: squared error at full length as a ratio to PrivUnit's,
seconds of one report and of many. `--json` prints one row per figure instead.
"""

import json
import sys
import time
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench import Figure, quickest, show
from bench._crowds import latlon
from coatcheck.domains import Ball, Box
from coatcheck.entropy import system
from coatcheck.randomizers import CodebookResponse, SphereResponse
from coatcheck.randomizers.baselines import PrivUnit

Floats = NDArray[np.float64]

PRIOR: Final = 40_000
PEOPLE: Final = 10_000
EPSILONS: Final = (1.0, 3.0, 5.0, 8.0)
TARGETS: Final = {
    "gowalla_sf": (3_750.0, 2_450.0, 1_220.0, 490.0),
    "foursquare_nyc": (8_000.0, 6_250.0, 3_850.0, 1_480.0),
}
DIRECTIONS: Final = ((64, 4.0, 1.05), (64, 8.0, 1.05), (1_000, 4.0, 1.08), (1_000, 8.0, 1.08))
BULK: Final = 2_000


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    rows = [*_places(), *_directions()]
    if "--json" not in sys.argv:
        return show([_figure(row) for row in rows])
    for row in rows:
        print(json.dumps(row))
    return 0 if all(_figure(row).passed for row in rows) else 1


def _figure(row: dict[str, Any]) -> Figure:
    what = f"{row['data']}, ε {row['epsilon']:g}: {row['what']}"
    return Figure(what=what, value=row["value"], unit=row["unit"], target=row["target"])


def _places() -> list[dict[str, Any]]:
    rows = []
    for name, targets in TARGETS.items():
        every = latlon(name)
        (south, west), (north, east) = every.min(axis=0).tolist(), every.max(axis=0).tolist()
        city = Box.geographic(south=south, west=west, north=north, east=east)
        public, people = every[:PRIOR], every[PRIOR : PRIOR + PEOPLE]
        free = _report_free(city, public, people)
        for epsilon, target in zip(EPSILONS, targets, strict=True):
            response = CodebookResponse.placed(domain=city, epsilon=epsilon, points=public)
            error = response.expected_error(places=people)
            row = {"data": name, "epsilon": epsilon, "what": "codebook", "value": error}
            row |= {"unit": "m", "target": min(target, free), "people": len(people)}
            rows.append(row | {"decode": response.decode, "mean_error": error, "report_free": free})
    return rows


def _report_free(city: Box, public: Floats, people: Floats) -> float:
    """Return the mean error of the best single place: a codebook of one point."""
    one = CodebookResponse.placed(domain=city, epsilon=1.0, points=public, size=1)
    return one.expected_error(places=people)


def _directions() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for d, epsilon, target in DIRECTIONS:
        ball = Ball(radius=1.0, p=2, dimension=d)
        ours = SphereResponse(domain=ball, epsilon=epsilon)
        theirs = PrivUnit(domain=ball, epsilon=epsilon)
        ratio = ours.worst_error(power=2) / theirs.squared_error(np.eye(d)[0])
        named = {"data": f"d = {d}", "epsilon": epsilon, "report_bits": ours.report_bits}
        row = {"what": "squared error : PrivUnit's", "value": ratio, "unit": "x", "target": target}
        rows.append(named | row)
        if d == DIRECTIONS[-1][0]:
            drawn = np.random.default_rng(1).normal(size=(BULK, d))
            values = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * (1 - 1e-9)
            one = 1e3 * min(_seconds(ours, values[0]) for _ in range(20))
            row = {"what": "one report, CPU", "value": one, "unit": "ms", "target": 5.0}
            rows.append(named | row)
            jobs = (
                partial(randomizer.randomize, values, system()) for randomizer in (ours, theirs)
            )
            times = quickest(*jobs, rounds=5)
            row = {"what": "many reports : PrivUnit", "value": times[0] / times[1], "unit": "x"}
            rows.append(named | row | {"target": 3.0})
    return rows


def _seconds(randomizer: SphereResponse, value: Floats) -> float:
    start = time.process_time()
    randomizer.randomize_one(value, system())
    return time.process_time() - start
