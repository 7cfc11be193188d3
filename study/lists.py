"""Lists as the product gives them out: each person gets at most the nearest 16 within the radius.

The paper's F1 is over all pairs, a quarter of the crowd for each person; nobody gets such a list.
Here each person gets the list that the product publishes, and those lists are scored. One corrupted
person learns of 16 others, so these are left out of the crowd. Ours is the product's plan for this
task. It never uses a grid, whose cells would name the same few people to everybody in them.
"""

import math
from typing import Final

import numpy as np

from coatcheck import Group, Neighbours, plan
from coatcheck.tasks.neighbours import nearest_within
from study import datasets
from study.conventions import LEFT, PUBLISHED, SQUARE, Design, delta, design
from study.draws import Floats, budgets, draw, spread
from study.sheets import Cell, Row, Sheet

SIZE: Final = 10_000
_NAMES: Final = {"none": ("clear", "blind"), "pic": (PUBLISHED, "best")}


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by radius by mechanism by budget."""
    return [
        {
            "dataset": name,
            "size": 2_000 if quick else SIZE,
            "radius": radius,
            "model": model,
            "mechanism": m,
            "epsilon": epsilon,
            "seeds": 3 if quick else 10,
        }
        for name in (("Gowalla",) if quick else tuple(datasets.SOCIAL))
        for radius in LEFT
        for model, names in _NAMES.items()
        for m in names
        for epsilon in budgets(model, quick=quick)
    ]


def shipped(task: Neighbours, *, epsilon: float, crowd: int) -> Design:
    """Return the product's plan for lists in a crowd with one corrupted member."""
    groups = {"people": Group(SQUARE, crowd=crowd, corrupted=1)}
    planned = plan(groups, epsilon=epsilon, delta=delta(crowd), task=task)["people"]
    best = planned.without("grid").best
    return Design(best.randomizer, best.how)


def measure(cell: Cell) -> Row:
    """Draw reports, make the lists, and score them as given out."""
    values = datasets.social(str(cell["dataset"]), size=int(cell["size"]))
    task, crowd = Neighbours(radius=float(cell["radius"])), len(values)
    epsilon, chosen = float(cell["epsilon"]), None
    left = crowd - 1 - task.limit
    if cell["mechanism"] == "best":
        chosen = shipped(task, epsilon=epsilon, crowd=crowd)
    elif cell["mechanism"] == PUBLISHED:
        chosen = design(PUBLISHED, model="pic", epsilon=epsilon, crowd=crowd, anonymous=left)
    scores, lengths, heard = [], [], []
    for seed in range(int(cell["seeds"])):
        estimates: Floats = values if cell["mechanism"] == "clear" else draw(values, chosen, seed)
        lists = nearest_within(estimates, radius=task.radius, limit=task.limit)
        scores.append(task.score([values], estimates=[estimates], answers=[lists]).value)
        lengths.append(len(lists.indices) / crowd)
        heard.append(int(np.bincount(lists.indices, minlength=crowd).max()))
    return {
        "crowd": crowd,
        "anonymous": left,
        "randomizer": chosen.randomizer.name if chosen else "none",
        "local_epsilon": chosen.randomizer.epsilon if chosen else math.nan,
        **spread("f1", scores),
        "listed": float(np.mean(lengths)),
        "most_listed": max(heard),
    }


SHEET: Final = Sheet("lists", cells, measure)
