"""The check-in figures: errors and F1 scores of the neighbours, on real places.

A cell is a data set, its size, a radius, a model (local or PIC), a mechanism and a budget. It is
drawn with several seeds, and its row has the means and their standard errors. Ours is planned for
the mean error (`best`) and, in the crowd, for the F1 over all pairs (`task`), as in the figures;
`lists` has the lists that people really get. Source: the paper's section "Location-based Social
Systems" with its appendices; `conventions` has the conventions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from coatcheck import Neighbours
from coatcheck.tasks import Answers, Score
from coatcheck.tasks.solvers.close_pairs import agreement
from study import datasets
from study.conventions import BASELINES, LEFT, MECHANISMS, PUBLISHED, Design, design, designs_for
from study.draws import Floats, budgets, draw, error, spread
from study.sheets import Cell, Row, Sheet

SUBSET: Final = 10_000
_ASKERS: Final = 1_000  # the people among whose lists the longest is searched
_LISTED: Final = (PUBLISHED, "best", "task")
_ROOM: Final = 1.02  # with other noise, the longest list may be a little longer


@dataclass(frozen=True, kw_only=True)
class Neighbourhoods(Neighbours):
    """Neighbours without a limit, judged as the figures do: by all pairs, however many."""

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,  # noqa: ARG002 - pairs are counted, not listed
    ) -> Score:
        """Return the F1 over all pairs."""
        counts = agreement(truth[0], estimates[0], radius=self.radius)
        return Score(name="F1 of all pairs", value=counts.f1, higher_is_better=True)


def social_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by size by radius by model by mechanism by budget."""
    cells = []
    for name in ("Gowalla",) if quick else tuple(datasets.SOCIAL):
        for size in (2_000,) if quick else (SUBSET, 0):
            for radius in LEFT:
                cells += [
                    {"dataset": name, "size": size, "radius": radius, **rest}
                    for rest in _social_rows(size, radius, quick=quick)
                ]
    # Small crowds come first, then the crowd model and the main comparisons, so that a stopped
    # study is of use.
    return sorted(cells, key=_turn)


def _turn(cell: Cell) -> tuple[bool, bool, bool]:
    whole = cell["size"] == 0
    return whole, whole and cell["model"] == "local", whole and cell["mechanism"] in BASELINES


def _social_rows(size: int, radius: float, *, quick: bool) -> list[Cell]:
    """List model by mechanism by budget; `honest` counts only people whom no list names.

    One report alone does not know the size of the crowd, so the local model has all check-ins at
    one radius only. With all of them, two seeds are enough for the rows beside ours.
    """
    names = {
        "none": ("blind",),
        "local": (*MECHANISMS, "best"),
        "pic": (*BASELINES, *_LISTED),
        "honest": _LISTED,
    }
    if not size and radius != max(LEFT):
        del names["local"]
    return [
        {
            "model": model,
            "mechanism": m,
            "epsilon": epsilon,
            "seeds": 3 if quick else 10 if size else 2 if m in BASELINES else 3,
        }
        for model, mechanisms in names.items()
        for m in mechanisms
        for epsilon in budgets(model, quick=quick)
    ]


@cache
def _check_ins(name: str, size: int) -> Floats:
    return datasets.social(name, size=size or None)


def longest_list(places: Floats, *, radius: float) -> int:
    """Return the largest number of neighbours that one of 1,000 people has."""
    askers = places[:: max(1, len(places) // _ASKERS)][:_ASKERS].astype(np.float32)
    others = places.astype(np.float32)
    squares, most = (others**2).sum(axis=1), 0
    for start in range(0, len(askers), 100):
        block = askers[start : start + 100]
        apart = (block**2).sum(axis=1)[:, None] + squares - 2 * (block @ others.T)
        most = max(most, int((apart <= radius**2).sum(axis=1).max()))
    return most - 1


@cache
def longest_true_list(name: str, size: int, radius: float) -> int:
    """Return the largest number of true neighbours of a person; that person's answer names them."""
    return longest_list(_check_ins(name, size), radius=radius)


def _hidden(cell: Cell) -> tuple[Design, int]:
    """Return a design, and the number of people left as the crowd.

    The paper leaves a fixed share. `honest` leaves everybody whom one corrupted person's list does
    not name: the longest true list or the longest by report, whichever is longer. A design that
    makes longer lists than it was planned for is planned again.
    """
    name, size, radius = str(cell["dataset"]), int(cell["size"]), float(cell["radius"])
    values = _check_ins(name, size)
    crowd = len(values)
    left = math.floor(LEFT[radius] * crowd)
    if cell["model"] != "honest":
        return _design(cell, crowd, left), left
    left = crowd - 1 - longest_true_list(name, size, radius)
    while True:
        chosen = _design(cell, crowd, left)
        seen = longest_list(draw(values, chosen, 0), radius=radius)
        if crowd - 1 - seen >= left:
            return chosen, left
        left = crowd - 1 - min(math.ceil(_ROOM * seen), crowd - 2)


def _design(cell: Cell, crowd: int, left: int) -> Design:
    epsilon, name = float(cell["epsilon"]), str(cell["mechanism"])
    if name == "task":
        task = Neighbourhoods(radius=float(cell["radius"]))
        (chosen,) = designs_for(task, epsilon=epsilon, crowds=[crowd], anonymous=[left])
        return chosen
    return design(name, model=str(cell["model"]), epsilon=epsilon, crowd=crowd, anonymous=left)


def measure_social(cell: Cell) -> Row:
    """Draw reports, find neighbours, and compare them exactly with the true ones, pair by pair."""
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    radius = float(cell["radius"])
    chosen, left = _hidden(cell) if cell["model"] != "none" else (None, len(values))
    errors, scores, longest = [], [], math.nan
    for seed in range(int(cell["seeds"])):
        estimates = draw(values, chosen, seed)
        errors.append(error(values, estimates))
        scores.append(agreement(values, estimates, radius=radius).f1)
        if cell["mechanism"] in _LISTED and not seed:
            longest = longest_list(estimates, radius=radius)
    return {
        "crowd": len(values),
        "anonymous": left,
        "longest_list": longest,
        "randomizer": chosen.randomizer.name if chosen else "none",
        "local_epsilon": chosen.randomizer.epsilon if chosen else 0.0,
        **spread("distance", errors),
        **spread("f1", scores),
    }


# -- the interpretation that yields the printed F1 scores


def reading_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by radius by budget, where the text states a score."""
    return [
        {"dataset": name, "size": 2_000 if quick else 0, "radius": radius, "model": m, "epsilon": e}
        for name in (("Gowalla",) if quick else datasets.SOCIAL)
        for radius in LEFT
        for m, e in (("pic", 1.0), ("pic", 3.0), ("local", 5.0))
    ]


def measure_reading(cell: Cell) -> Row:
    """Score the paper's Minkowski response under each half of the interpretation, and under both.

    The text states the radius on [-1, 1]^2, with both places noisy. The interpretation: distances
    are those of the unit square (here: twice the radius), and everybody asks from their true place.
    """
    values = _check_ins(str(cell["dataset"]), int(cell["size"]))
    radius = float(cell["radius"])
    chosen, _ = _hidden({**cell, "mechanism": PUBLISHED})
    estimates = draw(values, chosen, 0)
    return {
        "local_epsilon": chosen.randomizer.epsilon,
        "as_written": agreement(values, estimates, radius=radius).f1,
        "asked_from_truth": f1_from_truth(values, estimates, radius=radius),
        "unit_square": agreement(values, estimates, radius=2 * radius).f1,
        "both": f1_from_truth(values, estimates, radius=2 * radius),
    }


def f1_from_truth(values: Floats, estimates: Floats, *, radius: float) -> float:
    """Return the exact F1 if everybody compares their true place with the reports of others.

    Pairs are counted over askers and reports together; then pairs of two askers, pairs of two
    reports, and each person's pair with their own report are subtracted.
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


SOCIAL: Final = Sheet("social", social_cells, measure_social)
READING: Final = Sheet("reading", reading_cells, measure_reading)
