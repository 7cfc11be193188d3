"""The location figures: errors, travel costs, matching ratios and F1 scores, on real places.

A cell is a data set, a model (local or PIC), a mechanism and a budget; it is drawn with several
seeds and keeps the means and their standard errors. Ours is planned for the mean error (`best`)
and, in the crowd, for what the figure shows (`task`). Paper, "Spatial Crowdsourcing" and
"Location-based Social Systems" with their appendices; conventions are in `conventions`.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import LeastCostMatching, MaximumMatching, Neighbours, seeded
from coatcheck.tasks import Task
from coatcheck.tasks.pairs import agreement
from study import datasets
from study.conventions import (
    BASELINES,
    GLOBAL_BUDGETS,
    LEFT,
    LOCAL_BUDGETS,
    MECHANISMS,
    PUBLISHED,
    SERVING_RADIUS,
    Design,
    design,
    designs_for,
)
from study.sheets import Cell, Row, Sheet

Floats = NDArray[np.float64]

SUBSET: Final = 10_000
_ASKERS: Final = 1_000  # whose lists are looked at for the longest one
_LISTED: Final = (PUBLISHED, "best", "task")
_ROOM: Final = 1.02  # a list of other people's noise may be a little longer


def spread(name: str, found: Sequence[float]) -> Row:
    """Return a mean and its standard error over seeds; with one seed there is none."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {name: float(np.mean(found)), f"{name}_se": error}


def _designs(
    cell: Cell, task: Task, *, crowds: Sequence[int], anonymous: Sequence[int]
) -> list[Design]:
    """Return the design of each group."""
    epsilon, name = float(cell["epsilon"]), str(cell["mechanism"])
    if name == "task":
        return designs_for(task, epsilon=epsilon, crowds=crowds, anonymous=anonymous)
    return [
        design(name, model=str(cell["model"]), epsilon=epsilon, crowd=crowd, anonymous=left)
        for crowd, left in zip(crowds, anonymous, strict=True)
    ]


def draw(values: Floats, made: Design | None, seed: int) -> Floats:
    """Return estimates from one report per value; seeded: a SIMULATION.

    Without a design nobody reports, and everybody is put into the middle: next to it, so that
    no order of the people can help a matching.
    """
    if made is None:
        return 1e-9 * (seeded(seed).uniforms(values.size).reshape(values.shape) - 0.5)
    reports = made.randomizer.randomize(values, seeded(seed))
    estimates: Floats = made.randomizer.estimate(reports, made.how)
    return estimates


def _error(values: Floats, estimates: Floats) -> float:
    return float(np.linalg.norm(estimates - values, axis=1).mean())


# -- spatial crowdsourcing: Figures SCdistance, SCcost and SCsuccess


def crowdsourcing_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by model by mechanism by budget."""
    names = {
        "none": ("clear", "blind"),
        "local": (*MECHANISMS, "best"),
        "pic": (*MECHANISMS, "best", "task"),
    }
    return [
        {"dataset": d, "model": model, "mechanism": m, "epsilon": e, "seeds": 3 if quick else 20}
        for d in (("GMission",) if quick else datasets.CROWDSOURCING)
        for model, mechanisms in names.items()
        for m in mechanisms
        for e in _budgets(model, quick=quick)
    ]


def clustered_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List the same for real check-ins as users and workers: the paper's mechanism and ours."""
    return [
        {"dataset": d, "model": model, "mechanism": m, "epsilon": e, "seeds": 3 if quick else 20}
        for d in (("Gowalla",) if quick else datasets.SOCIAL)
        for model, names in (("none", ("clear", "blind")), ("pic", _LISTED))
        for m in names
        for e in _budgets(model, quick=quick)
    ]


def _budgets(model: str, *, quick: bool) -> tuple[float, ...]:
    every = {"none": (0.0,), "local": LOCAL_BUDGETS}.get(model, GLOBAL_BUDGETS)
    return every[2:4] if quick and len(every) > 1 else every


def measure_crowdsourcing(cell: Cell) -> Row:
    """Report, and measure what the matchings are worth."""
    groups = datasets.crowdsourcing(str(cell["dataset"]))
    largest = MaximumMatching(radius=SERVING_RADIUS)
    sizes = [len(group) for group in groups]
    made: list[Design | None] = [None, None]
    if cell["model"] != "none":
        made = [*_designs(cell, largest, crowds=sizes, anonymous=[size - 1 for size in sizes])]

    def estimates(seed: int) -> list[Floats]:
        if cell["mechanism"] == "clear":
            return list(groups)
        pairs = zip(groups, made, strict=True)
        return [draw(v, m, 2 * seed + g) for g, (v, m) in enumerate(pairs)]

    return {
        "randomizer": made[0].randomizer.name if made[0] else "none",
        "local_users": made[0].randomizer.epsilon if made[0] else 0.0,
        "local_workers": made[1].randomizer.epsilon if made[1] else 0.0,
        **served(groups, estimates, seeds=int(cell["seeds"])),
    }


def served(
    groups: Sequence[Floats],
    estimates: Callable[[int], list[Floats]],
    *,
    seeds: int,
    candidates: int = 1,
) -> Row:
    """Match by both algorithms, and measure in truth what came of it."""
    cheapest = LeastCostMatching(candidates=candidates)
    largest = MaximumMatching(radius=SERVING_RADIUS, candidates=candidates)
    errors, costs, ratios = [], [], []
    for seed in range(seeds):
        places = estimates(seed)
        errors.append(_error(np.concatenate(groups), np.concatenate(places)))
        costs.append(cheapest.score(groups, estimates=places).value)
        ratios.append(largest.score(groups, estimates=places).value)
    return {**spread("distance", errors), **spread("cost", costs), **spread("success", ratios)}


# -- location-based social systems: the LBS figures


def social_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by size by radius by model by mechanism by budget."""
    found = []
    for name in ("Gowalla",) if quick else tuple(datasets.SOCIAL):
        for size in (2_000,) if quick else (SUBSET, 0):
            for radius in LEFT:
                found += [
                    {"dataset": name, "size": size, "radius": radius, **rest}
                    for rest in _social_rows(size, quick=quick)
                ]
    # Small crowds first, then what the crowd helps and what is compared most: a stopped study is
    # of use.
    return sorted(found, key=_turn)


def _turn(cell: Cell) -> tuple[bool, bool, bool]:
    whole = cell["size"] == 0
    return whole, whole and cell["model"] == "local", whole and cell["mechanism"] in BASELINES


def _social_rows(size: int, *, quick: bool) -> list[Cell]:
    """List model by mechanism by budget; `honest` hides among those whom no list gives away."""
    names = {
        "none": ("blind",),
        "local": (*MECHANISMS, "best"),
        "pic": (*BASELINES, *_LISTED),
        "honest": _LISTED,
    }
    return [
        {
            "model": model,
            "mechanism": m,
            "epsilon": epsilon,
            "seeds": 3 if quick or not size else 10,
        }
        for model, mechanisms in names.items()
        for m in mechanisms
        for epsilon in _budgets(model, quick=quick)
    ]


@cache
def _check_ins(name: str, size: int) -> Floats:
    return datasets.social(name, size=size or None)


def longest_list(places: Floats, *, radius: float) -> int:
    """Return how many neighbours the one of 1,000 people with the most has."""
    askers = places[:: max(1, len(places) // _ASKERS)][:_ASKERS].astype(np.float32)
    others = places.astype(np.float32)
    squares, most = (others**2).sum(axis=1), 0
    for start in range(0, len(askers), 100):
        mine = askers[start : start + 100]
        apart = (mine**2).sum(axis=1)[:, None] + squares - 2 * (mine @ others.T)
        most = max(most, int((apart <= radius**2).sum(axis=1).max()))
    return most - 1


@cache
def longest_true_list(name: str, size: int, radius: float) -> int:
    """Return how many true neighbours somebody has: whom an answer to them gives away."""
    return longest_list(_check_ins(name, size), radius=radius)


def _hidden(cell: Cell) -> tuple[Design, int]:
    """Return a design, and how many of the crowd are left to hide among.

    The paper leaves a fixed share. `honest` leaves what one corrupted person's list does, the
    longest true one or the longest one by report, whichever is longer; a design that makes longer
    lists than it was planned for is planned again.
    """
    name, size, radius = str(cell["dataset"]), int(cell["size"]), float(cell["radius"])
    values, task = _check_ins(name, size), Neighbours(radius=radius)
    crowd = len(values)
    left = math.floor(LEFT[radius] * crowd)
    if cell["model"] == "honest":
        left = crowd - 1 - longest_true_list(name, size, radius)
    while True:
        (made,) = _designs(cell, task, crowds=[crowd], anonymous=[left])
        if cell["model"] != "honest":
            return made, left
        seen = longest_list(draw(values, made, 0), radius=radius)
        if crowd - 1 - seen >= left:
            return made, left
        left = crowd - 1 - min(math.ceil(_ROOM * seen), crowd - 2)


def measure_social(cell: Cell) -> Row:
    """Report, find neighbours, and compare them with the true ones, pair by pair and exactly."""
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    radius = float(cell["radius"])
    made, left = _hidden(cell) if cell["model"] != "none" else (None, len(values))
    errors, scores, longest = [], [], math.nan
    for seed in range(int(cell["seeds"])):
        estimates = draw(values, made, seed)
        errors.append(_error(values, estimates))
        scores.append(agreement(values, estimates, radius=radius).f1)
        if cell["mechanism"] in _LISTED and not seed:
            longest = longest_list(estimates, radius=radius)
    return {
        "crowd": len(values),
        "anonymous": left,
        "longest_list": longest,
        "randomizer": made.randomizer.name if made else "none",
        "local_epsilon": made.randomizer.epsilon if made else 0.0,
        **spread("distance", errors),
        **spread("f1", scores),
    }


# -- the reading under which the printed F1 scores come out


def reading_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by radius by budget, where the text says something of a score."""
    return [
        {"dataset": name, "size": 2_000 if quick else 0, "radius": radius, "model": m, "epsilon": e}
        for name in (("Gowalla",) if quick else datasets.SOCIAL)
        for radius in LEFT
        for m, e in (("pic", 1.0), ("pic", 3.0), ("local", 5.0))
    ]


def measure_reading(cell: Cell) -> Row:
    """Score the paper's Minkowski response by each half of the reading, and by the whole of it.

    Its text names the radius on [-1, 1]^2 and both places noisy. The reading: distances are those
    of the unit square (here: twice the radius), and everybody asks from their true place.
    """
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    radius = float(cell["radius"])
    made, _ = _hidden({**cell, "mechanism": PUBLISHED})
    estimates = draw(values, made, 0)
    return {
        "local_epsilon": made.randomizer.epsilon,
        "as_written": agreement(values, estimates, radius=radius).f1,
        "asked_from_truth": f1_from_truth(values, estimates, radius=radius),
        "unit_square": agreement(values, estimates, radius=2 * radius).f1,
        "both": f1_from_truth(values, estimates, radius=2 * radius),
    }


def f1_from_truth(values: Floats, estimates: Floats, *, radius: float) -> float:
    """Return the exact F1 if everybody looks from their true place at the reports of others.

    Pairs are counted over askers and reports together; those of two askers and those of two
    reports are taken away again, and everybody's own report.
    """
    askers = agreement(values, values, radius=radius)
    reports = agreement(values, estimates, radius=radius)
    together = agreement(
        np.concatenate([values, values]), np.concatenate([values, estimates]), radius=radius
    )
    own = int((np.linalg.norm(values - estimates, axis=1) <= radius).sum())
    seen = (together.noisy - askers.noisy - reports.noisy) // 2 - own
    right = (together.both - askers.both - reports.both) // 2 - own
    return 2 * right / (askers.true + seen)


CLUSTERED: Final = Sheet("clustered", clustered_cells, measure_crowdsourcing)
CROWDSOURCING: Final = Sheet("crowdsourcing", crowdsourcing_cells, measure_crowdsourcing)
SOCIAL: Final = Sheet("social", social_cells, measure_social)
READING: Final = Sheet("reading", reading_cells, measure_reading)
