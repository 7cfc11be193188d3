"""The crowdsourcing figures: errors, travel costs and success ratios, on even and clustered places.

A cell is a data set, a model (local or PIC), a mechanism and a budget. It is drawn with several
seeds, and its row has the means and their standard errors. Ours is planned for the mean error
(`best`) and, in the crowd, for the success ratio (`task`); `expected` matches the reports of `best`
at the least expected cost (`cost="expected"`). Source: the paper's section "Spatial Crowdsourcing"
and its appendix.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from coatcheck import LeastCostMatching, MaximumMatching
from coatcheck.tasks import Belief
from study import datasets
from study.conventions import MECHANISMS, PUBLISHED, SERVING_RADIUS, Design, design, designs_for
from study.draws import Floats, Places, budgets, draw_groups, error, spread
from study.sheets import Cell, Row, Sheet

_OURS: Final = ("best", "expected", "task")
_NONE: Final = ("clear", "blind")


def crowdsourcing_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by model by mechanism by budget."""
    names = {"none": _NONE, "local": (*MECHANISMS, "best"), "pic": (*MECHANISMS, *_OURS)}
    return _cells(("GMission",) if quick else tuple(datasets.CROWDSOURCING), names, quick=quick)


def clustered_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List the same for real check-ins as users and workers: the paper's mechanism and ours."""
    names = {"none": _NONE, "pic": (PUBLISHED, *_OURS)}
    return _cells(("Gowalla",) if quick else tuple(datasets.SOCIAL), names, quick=quick)


def _cells(sets: Sequence[str], names: dict[str, tuple[str, ...]], *, quick: bool) -> list[Cell]:
    return [
        {"dataset": d, "model": model, "mechanism": m, "epsilon": e, "seeds": 3 if quick else 20}
        for d in sets
        for model, mechanisms in names.items()
        for m in mechanisms
        for e in budgets(model, quick=quick)
    ]


def measure(cell: Cell) -> Row:
    """Draw reports, and measure the quality of the matchings."""
    groups = datasets.crowdsourcing(str(cell["dataset"]))
    designs = _designs(cell, [len(group) for group in groups])

    def places(seed: int) -> Places:
        if cell["mechanism"] == "clear":
            return list(groups), None
        return draw_groups(groups, designs, 2 * seed, aware=cell["mechanism"] == "expected")

    return {
        "randomizer": designs[0].randomizer.name if designs[0] else "none",
        "local_users": designs[0].randomizer.epsilon if designs[0] else 0.0,
        "local_workers": designs[1].randomizer.epsilon if designs[1] else 0.0,
        **served(groups, places, seeds=int(cell["seeds"])),
    }


def _designs(cell: Cell, sizes: Sequence[int]) -> Sequence[Design | None]:
    """Return the design of each group, or none if nobody reports; a partner exposes one person."""
    epsilon, name = float(cell["epsilon"]), str(cell["mechanism"])
    if cell["model"] == "none":
        return [None, None]
    left = [size - 1 for size in sizes]
    if name == "task":
        largest = MaximumMatching(radius=SERVING_RADIUS)
        return designs_for(largest, epsilon=epsilon, crowds=sizes, anonymous=left)
    name = "best" if name == "expected" else name
    return [
        design(name, model=str(cell["model"]), epsilon=epsilon, crowd=crowd, anonymous=others)
        for crowd, others in zip(sizes, left, strict=True)
    ]


def served(
    groups: Sequence[Floats],
    places: Callable[[int], Places],
    *,
    seeds: int,
    candidates: int = 1,
) -> Row:
    """Match by both algorithms, and measure the matchings by true places."""
    errors, costs, ratios = [], [], []
    for seed in range(seeds):
        estimates, beliefs = places(seed)
        cost = "distance" if beliefs is None else "expected"
        cheapest = LeastCostMatching(candidates=candidates, cost=cost)
        largest = MaximumMatching(radius=SERVING_RADIUS, candidates=candidates, cost=cost)
        errors.append(error(np.concatenate(groups), np.concatenate(estimates)))
        costs.append(_score(cheapest, groups, estimates, beliefs))
        ratios.append(_score(largest, groups, estimates, beliefs))
    return {**spread("distance", errors), **spread("cost", costs), **spread("success", ratios)}


def _score(
    task: LeastCostMatching | MaximumMatching,
    groups: Sequence[Floats],
    estimates: list[Floats],
    beliefs: list[Belief] | None,
) -> float:
    answers = None if beliefs is None else task.with_beliefs(estimates, beliefs)
    return task.score(groups, estimates=estimates, answers=answers).value


CLUSTERED: Final = Sheet("clustered", clustered_cells, measure)
CROWDSOURCING: Final = Sheet("crowdsourcing", crowdsourcing_cells, measure)
