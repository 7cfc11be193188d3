"""The location figures: errors, travel costs, matching ratios and F1 scores, on real places.

A cell is a data set, a model (local or PIC), a mechanism and a budget; it is drawn with several
seeds and keeps the means and their standard errors. Ours is planned for the mean error (`best`)
and, in the crowd, for what the figure shows (`task`). Paper, "Spatial Crowdsourcing" and
"Location-based Social Systems" with their appendices; conventions are in `conventions`.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import LeastCostMatching, MaximumMatching, Neighbours, Task, seeded
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
_BUDGETS: Final = {"local": LOCAL_BUDGETS, "pic": GLOBAL_BUDGETS, "honest": GLOBAL_BUDGETS}


def spread(name: str, found: Sequence[float]) -> Row:
    """Return a mean and its standard error over seeds; with one seed there is none."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {name: float(np.mean(found)), f"{name}_se": error}


def _designs(
    cell: Cell, task: Task, crowds: Sequence[int], anonymous: Sequence[int]
) -> list[Design]:
    """Return the design of each group."""
    epsilon, name = float(cell["epsilon"]), str(cell["mechanism"])
    if name == "task":
        return designs_for(task, epsilon=epsilon, crowds=crowds, anonymous=anonymous)
    return [
        design(name, model=str(cell["model"]), epsilon=epsilon, crowd=crowd, anonymous=left)
        for crowd, left in zip(crowds, anonymous, strict=True)
    ]


def _draw(values: Floats, made: Design, seed: int) -> Floats:
    """Return estimates from one report a value; seeded: a SIMULATION."""
    reports = made.randomizer.randomize(values, seeded(seed))
    estimates: Floats = made.randomizer.estimate(reports, made.how)
    return estimates


def _error(values: Floats, estimates: Floats) -> float:
    return float(np.linalg.norm(estimates - values, axis=1).mean())


# -- spatial crowdsourcing: Figures SCdistance, SCcost and SCsuccess


def crowdsourcing_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by model by mechanism by budget."""
    names = ("GMission",) if quick else tuple(datasets.CROWDSOURCING)
    seeds = 3 if quick else 20
    return [
        {"dataset": d, "model": model, "mechanism": m, "epsilon": epsilon, "seeds": seeds}
        for d in names
        for model in ("local", "pic")
        for m in (*MECHANISMS, "best", *(("task",) if model == "pic" else ()))
        for epsilon in (_BUDGETS[model][2:4] if quick else _BUDGETS[model])
    ]


def measure_crowdsourcing(cell: Cell) -> Row:
    """Report, match by both algorithms, and measure in truth what came of it."""
    groups = datasets.crowdsourcing(str(cell["dataset"]))
    cheapest, largest = LeastCostMatching(), MaximumMatching(radius=SERVING_RADIUS)
    sizes = [len(group) for group in groups]
    made = _designs(cell, largest, sizes, [size - 1 for size in sizes])
    errors, costs, ratios = [], [], []
    for seed in range(int(cell["seeds"])):
        estimates = [
            _draw(v, m, 2 * seed + g) for g, (v, m) in enumerate(zip(groups, made, strict=True))
        ]
        errors.append(_error(np.concatenate(groups), np.concatenate(estimates)))
        costs.append(cheapest.score(groups, estimates=estimates).value)
        ratios.append(largest.score(groups, estimates=estimates).value)
    return {
        "randomizer": made[0].randomizer.name,
        "local_users": made[0].randomizer.epsilon,
        "local_workers": made[1].randomizer.epsilon,
        **spread("distance", errors),
        **spread("cost", costs),
        **spread("success", ratios),
    }


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
    ours = (PUBLISHED, "best", "task")
    names = {"local": (*MECHANISMS, "best"), "pic": (*BASELINES, *ours), "honest": ours}
    return [
        {
            "model": model,
            "mechanism": m,
            "epsilon": epsilon,
            "seeds": 3 if quick or not size else 10,
        }
        for model, mechanisms in names.items()
        for m in mechanisms
        for epsilon in (_BUDGETS[model][2:4] if quick else _BUDGETS[model])
    ]


@cache
def _check_ins(name: str, size: int) -> Floats:
    return datasets.social(name, size=size or None)


@cache
def largest_neighbourhood(name: str, size: int, radius: float) -> int:
    """Return how many neighbours the person with the most has: whom one answer gives away."""
    places, counts = np.unique(_check_ins(name, size), axis=0, return_counts=True)
    single = places.astype(np.float32)
    squares, most = (single**2).sum(axis=1), 0.0
    for start in range(0, len(single), 512):
        mine = slice(start, start + 512)
        apart = squares[mine, None] + squares - 2 * (single[mine] @ single.T)
        near = (apart <= radius**2).astype(np.float32) @ counts.astype(np.float32)
        most = max(most, float(near.max()))
    return int(most) - 1


def anonymous(cell: Cell) -> tuple[int, int]:
    """Return the crowd of a cell, and who is left of it to hide among."""
    name, size, radius = str(cell["dataset"]), int(cell["size"]), float(cell["radius"])
    crowd = len(_check_ins(name, size))
    if cell["model"] == "honest":
        return crowd, crowd - largest_neighbourhood(name, size, radius)
    return crowd, math.floor(LEFT[radius] * crowd)


def measure_social(cell: Cell) -> Row:
    """Report, find neighbours, and compare them with the true ones, pair by pair and exactly."""
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    crowd, left = anonymous(cell)
    radius = float(cell["radius"])
    (made,) = _designs(cell, Neighbours(radius=radius), [crowd], [left])
    errors, scores = [], []
    for seed in range(int(cell["seeds"])):
        estimates = _draw(values, made, seed)
        errors.append(_error(values, estimates))
        scores.append(agreement(values, estimates, radius=radius).f1)
    return {
        "crowd": crowd,
        "anonymous": left,
        "randomizer": made.randomizer.name,
        "local_epsilon": made.randomizer.epsilon,
        **spread("distance", errors),
        **spread("f1", scores),
    }


# -- the reading under which the printed F1 scores come out


def reading_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by radius by budget, where the text names a score."""
    return [
        {"dataset": name, "size": 2_000 if quick else 0, "radius": radius, "epsilon": epsilon}
        for name in (("Gowalla",) if quick else datasets.SOCIAL)
        for radius in LEFT
        for epsilon in (1.0, 3.0)
    ]


def measure_reading(cell: Cell) -> Row:
    """Score the paper's Minkowski response by each half of the reading, and by the whole of it.

    Its text names the radius on [-1, 1]^2 and both places noisy. Its scores come out if distances
    are those of the unit square (here: twice the radius) and everybody asks from their true place.
    """
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    crowd, radius = len(values), float(cell["radius"])
    left = math.floor(LEFT[radius] * crowd)
    made = design(
        PUBLISHED, model="pic", epsilon=float(cell["epsilon"]), crowd=crowd, anonymous=left
    )
    estimates = _draw(values, made, 0)
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


CROWDSOURCING: Final = Sheet("crowdsourcing", crowdsourcing_cells, measure_crowdsourcing)
SOCIAL: Final = Sheet("social", social_cells, measure_social)
READING: Final = Sheet("reading", reading_cells, measure_reading)
