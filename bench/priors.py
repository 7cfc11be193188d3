"""What knowledge of where people are is worth: real check-ins under three decoders.

`median` and `learned` decode the same reports of the mechanism that `choose` finds for a batch of
that many reports; `learned` knows nothing but the batch. `prior` is the codebook that `choose`
finds for a public prior. No person is in both the crowd and the prior. The report-free answer is
one place for everybody: the middle of the box, or the prior's median. Set COATCHECK_DATA to the
directory of the files; otherwise a synthetic crowd stands in. `--json` prints rows.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench import Figure, show
from bench._crowds import CHECK_INS, geographic
from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.randomizers import Prior, Randomizer, choose
from coatcheck.randomizers.choice import misses

Floats = NDArray[np.float64]

BUDGETS: Final = (1.0, 3.0, 5.0, 8.0)
CROWDS: Final = (1_000, 10_000)
_PUBLIC: Final = 40_000  # check-ins of the prior; none of them is in the crowd
SEEDS: Final = (201, 202, 203)
"""Of the people and of their noise. The smoothing, the cells and what a made-up city looks like
(`randomizers.crowd_search`) were set on other draws from the same two data sets."""
TARGETS: Final = {
    "gowalla_sf": (4_500, 3_400, 2_150, 970),
    "foursquare_nyc": (8_500, 7_400, 5_100, 2_250),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """The mean distance between people's places and their estimates, in metres."""

    data: str
    epsilon: float
    people: int
    decode: str
    mean_error: float
    report_free: float


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    rows = list(measured())
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    return show(_figures(rows)) if "--json" not in sys.argv else _missed(rows)


def measured() -> Iterator[Row]:
    """Yield one row per data set, ε, crowd and decode, the mean over the seeds."""
    for data in CHECK_INS:
        places, box = geographic(data)
        order = np.random.default_rng(SEEDS[0]).permutation(len(places))
        prior, rest = Prior.from_points(places[order[:_PUBLIC]]), places[order[_PUBLIC:]]
        for epsilon in BUDGETS:
            for people in CROWDS:
                chosen = choose(epsilon=epsilon, domain=box, crowd=people)
                for how in ("median", chosen.decode):
                    yield _row(data, chosen.randomizer, how, rest, people=people)
            best = choose(epsilon=epsilon, domain=box, prior=prior)
            yield _row(data, best.randomizer, best.decode, rest, people=max(CROWDS), prior=prior)


def _row(
    data: str,
    randomizer: Randomizer,
    how: Any,
    places: Floats,
    *,
    people: int,
    prior: Prior | None = None,
) -> Row:
    box, errors, free = randomizer.domain, [], []
    if not isinstance(box, Box):
        raise TypeError(f"a city is a box, not {box}")
    for seed in SEEDS:
        values = places[np.random.default_rng(seed).permutation(len(places))[:people]]
        reports = randomizer.randomize(values, seeded(seed))
        errors.append(misses(box, randomizer.estimate(reports, how), values).mean())
        middle = box.from_unit(np.zeros((1, 2))) if prior is None else np.array([_median(prior)])
        free.append(misses(box, middle, values).mean())
    return Row(
        data=data,
        epsilon=randomizer.epsilon,
        people=people,
        decode=how if prior is None else "prior",
        mean_error=round(float(np.mean(errors)), 1),
        report_free=round(float(np.mean(free)), 1),
    )


def _median(prior: Prior) -> Floats:
    return np.asarray(np.median(prior.points, axis=0))


def _figures(rows: list[Row]) -> list[Figure]:
    figures = []
    for row in rows:
        goal = _target(row)
        what = f"{row.data}, ε {row.epsilon:g}, {row.people:,} people, {row.decode}"
        figures.append(Figure(what=what, value=row.mean_error, unit="m", target=goal))
    return figures


def _missed(rows: list[Row]) -> int:
    return int(any(not figure.passed for figure in _figures(rows)))


def _target(row: Row) -> float | None:
    if row.decode == "median":
        return None
    if row.decode != "learned" or row.people < max(CROWDS):
        return row.report_free
    return min(row.report_free, TARGETS[row.data][BUDGETS.index(row.epsilon)])


if __name__ == "__main__":
    sys.exit(main())
