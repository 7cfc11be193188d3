"""From the paper's mechanism to ours, one idea at a time, at ε_c = 1 on even and clustered places.

Each step keeps the promise of the one before, to the same people. Beside the steps stand the lines
that need no privacy: no report, with and without the prior, and true places.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Final

import numpy as np

from coatcheck import Group, LeastCostMatching, MaximumMatching, Misuse, Prior, plan
from coatcheck.protocol.drafting import usual_settling
from coatcheck.randomizers import Randomizer
from coatcheck.simulation.settling import settle_by_rings
from coatcheck.tasks.matching import lists_of
from study import datasets
from study.conventions import PUBLISHED, SERVING_RADIUS, SQUARE, Design, delta, design, designs_for
from study.draws import Floats, Places, draw_groups, error, nobody, spread
from study.matchings import served
from study.sheets import Cell, Row, Sheet

STEPS: Final = (
    "no report",
    "paper",
    "clipped",
    "own law",
    "mechanism",
    "learned density",
    "expected cost",
    "task",
    "candidates",
    "as shipped",
    "true places",
)
KNOWING: Final = ("prior, no report", "prior", "prior, expected cost")
EPSILON: Final = 1.0
CANDIDATES: Final = 5
_KNOWN: Final = 10_000  # check-ins of the public prior; none of them is in the crowd
_AWARE: Final = ("expected cost", "prior, expected cost")


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by step; only the clustered data sets have an informative prior."""
    names = ("GMission",) if quick else ("GMission", *datasets.SOCIAL)
    return [
        {"dataset": name, "step": step, "epsilon": EPSILON, "seeds": 3 if quick else 20}
        for name in names
        for step in (*STEPS, *(KNOWING if name in datasets.SOCIAL else ()))
    ]


def designs(dataset: str, step: str, sizes: list[int]) -> Sequence[Design | None]:
    """Return the design of each group after a step, or none where nobody reports."""
    if step in {"no report", "prior, no report", "true places"}:
        return [None] * len(sizes)
    largest = MaximumMatching(radius=SERVING_RADIUS)
    if step in {"task", "candidates", "as shipped"}:
        # A corrupted person sees the candidates on both lists, so that these do not count as crowd.
        named = 0 if step == "task" else 2 * CANDIDATES
        left = [size - 1 - named for size in sizes]
        return designs_for(largest, epsilon=EPSILON, crowds=sizes, anonymous=left)
    return [_one(dataset, step, size) for size in sizes]


@cache
def _one(dataset: str, step: str, crowd: int) -> Design:
    planned_for = partial(design, model="pic", epsilon=EPSILON, crowd=crowd, anonymous=crowd - 1)
    if step in {"paper", "clipped"}:
        paper = planned_for(PUBLISHED)
        return paper if step == "paper" else Design(paper.randomizer, "project")
    if step == "mechanism":
        return _plainly(planned_for("best").randomizer)
    if step == "learned density":
        return Design(planned_for("best").randomizer, "learned")
    if step == "expected cost":
        return planned_for("best")
    groups = {"people": Group(SQUARE, crowd=crowd - 1)}
    prior = _prior(dataset) if step in KNOWING else None
    planned = plan(groups, epsilon=EPSILON, delta=delta(crowd), prior=prior)["people"]
    if step in KNOWING:
        return Design(planned.best.randomizer, planned.best.how)
    for one in planned.designs:
        if one.randomizer.name == "minkowski":
            return _plainly(one.randomizer)
    raise Misuse("the plan for the square has no Minkowski response among its designs")


def _plainly(randomizer: Randomizer) -> Design:
    """Decode each report separately, as if people were spread evenly over the square."""
    return Design(randomizer, "median" if "median" in randomizer.decodes else "project")


def _known(dataset: str) -> Floats:
    first = sum(datasets.CLUSTERED)
    return datasets.social(dataset)[first : first + _KNOWN]


@cache
def _prior(dataset: str) -> Prior:
    return Prior.from_points(_known(dataset))


def measure(cell: Cell) -> Row:
    """Draw reports by a step's designs, and measure the quality of the matchings."""
    dataset, step, seeds = str(cell["dataset"]), str(cell["step"]), int(cell["seeds"])
    groups = datasets.crowdsourcing(dataset)
    chosen = designs(dataset, step, [len(group) for group in groups])

    def places(seed: int) -> Places:
        if step == "true places":
            return list(groups), None
        if step == "prior, no report":
            middle = np.median(_known(dataset), axis=0)
            return [nobody(v, middle, 1_000 + 2 * seed + g) for g, v in enumerate(groups)], None
        # Other seeds than those of the figures.
        prior = _prior(dataset) if step in KNOWING else None
        return draw_groups(groups, chosen, 1_000 + 2 * seed, aware=step in _AWARE, prior=prior)

    if step == "as shipped":
        quality = _settled(groups, [places(seed)[0] for seed in range(seeds)])
    else:
        candidates = CANDIDATES if step == "candidates" else 1
        quality = served(groups, places, seeds=seeds, candidates=candidates)
    return {
        "randomizer": chosen[0].randomizer.name if chosen[0] else "none",
        "local_users": chosen[0].randomizer.epsilon if chosen[0] else 0.0,
        **quality,
        "paired": quality.get("paired", 1.0),
    }


def _settled(groups: Sequence[Floats], drawn: Sequence[list[Floats]]) -> Row:
    """Settle as people do: by rings, two lists, a few asks; the rest have no partner.

    The cost counts existing pairs only.
    """
    few, many = sorted((0, 1), key=lambda side: len(groups[side]))
    task = LeastCostMatching(candidates=CANDIDATES)
    terms = usual_settling(task, SQUARE)
    errors, costs, ratios, paired = [], [], [], []
    for estimates in drawn:
        lists = lists_of(task(estimates)[few], CANDIDATES)
        partner = settle_by_rings(groups[few], groups[many], lists, terms=terms)
        (rows,) = np.nonzero(partner >= 0)
        apart = np.linalg.norm(groups[few][rows] - groups[many][partner[rows]], axis=1)
        errors.append(error(np.concatenate(groups), np.concatenate(estimates)))
        costs.append(float(apart.sum()))
        ratios.append(float((apart <= SERVING_RADIUS).sum()) / len(partner))
        paired.append(len(rows) / len(partner))
    measures = {"distance": errors, "cost": costs, "success": ratios}
    columns = [spread(name, values) for name, values in measures.items()]
    return {**columns[0], **columns[1], **columns[2], "paired": float(np.mean(paired))}


SHEET: Final = Sheet("steps", cells, measure)
