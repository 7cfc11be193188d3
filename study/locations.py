"""The location figures: errors, travel costs, matching ratios and F1 scores, on real places.

A cell is a data set, a model (local or PIC), a mechanism and a budget; it is drawn with several
seeds and keeps the means and their standard errors. Paper, "Spatial Crowdsourcing" and
"Location-based Social Systems" with their appendices; conventions are in `conventions`.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import LeastCostMatching, MaximumMatching, seeded
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
)
from study.sheets import Cell, Row, Sheet

Floats = NDArray[np.float64]

SUBSET: Final = 10_000
_BUDGETS: Final = {"local": LOCAL_BUDGETS, "pic": GLOBAL_BUDGETS}


def spread(name: str, found: Sequence[float]) -> Row:
    """Return a mean and its standard error over seeds; with one seed there is none."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {name: float(np.mean(found)), f"{name}_se": error}


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
        for model, budgets in _BUDGETS.items()
        for m in (*MECHANISMS, "best")
        for epsilon in (budgets[2:4] if quick else budgets)
    ]


def measure_crowdsourcing(cell: Cell) -> Row:
    """Report, match by both algorithms, and measure in truth what came of it."""
    groups = datasets.crowdsourcing(str(cell["dataset"]))
    made = [
        design(
            str(cell["mechanism"]),
            model=str(cell["model"]),
            epsilon=float(cell["epsilon"]),
            crowd=len(group),
            anonymous=len(group) - 1,
        )
        for group in groups
    ]
    cheapest, largest = LeastCostMatching(), MaximumMatching(radius=SERVING_RADIUS)
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
    whole = size == 0
    several = 2 if whole else 3 if quick else 10
    found: list[tuple[str, str, float, int]] = []
    for model, budgets in _BUDGETS.items():
        asked: tuple[float, ...] = budgets[2:4] if quick else budgets
        if whole and model == "local":  # a larger crowd changes nothing without a crowd's help
            asked = (1.0, 3.0, 5.0)
        found += [
            (model, m, epsilon, several if not whole else 1) for m in BASELINES for epsilon in asked
        ]
        ours = (PUBLISHED, "best")
        found += [(model, m, e, several if model == "pic" else 1) for m in ours for e in asked]
        if model == "pic":
            found += [("honest", m, e, several) for m in ours for e in asked]
    return [
        {"model": model, "mechanism": m, "epsilon": epsilon, "seeds": seeds}
        for model, m, epsilon, seeds in found
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
    made = design(
        str(cell["mechanism"]),
        model=str(cell["model"]),
        epsilon=float(cell["epsilon"]),
        crowd=crowd,
        anonymous=left,
    )
    errors, scores = [], []
    for seed in range(int(cell["seeds"])):
        estimates = _draw(values, made, seed)
        errors.append(_error(values, estimates))
        scores.append(agreement(values, estimates, radius=float(cell["radius"])).f1)
    return {
        "crowd": crowd,
        "anonymous": left,
        "randomizer": made.randomizer.name,
        "local_epsilon": made.randomizer.epsilon,
        **spread("distance", errors),
        **spread("f1", scores),
    }


CROWDSOURCING: Final = Sheet("crowdsourcing", crowdsourcing_cells, measure_crowdsourcing)
SOCIAL: Final = Sheet("social", social_cells, measure_social)
