"""From the paper's mechanism to ours, one idea at a time, at ε_c = 1 on even and clustered places.

Each step keeps the promise of the one before, to the same people.
"""

from functools import partial
from typing import Final

from coatcheck import Group, MaximumMatching, Misuse, Prior, plan
from study import datasets
from study.conventions import PUBLISHED, SERVING_RADIUS, SQUARE, Design, delta, design, designs_for
from study.locations import Floats, draw, served
from study.sheets import Cell, Row, Sheet

STEPS: Final = (
    "paper",
    "clipped",
    "own law",
    "mechanism",
    "learned density",
    "task",
    "candidates",
    "prior",
)
EPSILON: Final = 1.0
CANDIDATES: Final = 5
_KNOWN: Final = 10_000  # check-ins that a public prior has, none of them of the crowd


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by step; only the clustered ones have a prior that says something."""
    names = ("GMission",) if quick else ("GMission", *datasets.SOCIAL)
    return [
        {"dataset": name, "step": step, "epsilon": EPSILON, "seeds": 3 if quick else 20}
        for name in names
        for step in (STEPS if name in datasets.SOCIAL else STEPS[:-1])
    ]


def designs(dataset: str, step: str, sizes: list[int]) -> list[Design]:
    """Return the design of each group after a step."""
    largest = MaximumMatching(radius=SERVING_RADIUS)
    if step == "task":
        return designs_for(
            largest, epsilon=EPSILON, crowds=sizes, anonymous=[size - 1 for size in sizes]
        )
    if step == "candidates":
        # A corrupted person sees candidates on both lists: so many fewer are left to hide among.
        left = [size - 1 - 2 * CANDIDATES for size in sizes]
        return designs_for(largest, epsilon=EPSILON, crowds=sizes, anonymous=left)
    return [_one(dataset, step, size) for size in sizes]


def _one(dataset: str, step: str, crowd: int) -> Design:
    made = partial(design, model="pic", epsilon=EPSILON, crowd=crowd, anonymous=crowd - 1)
    if step in {"paper", "clipped"}:
        paper = made(PUBLISHED)
        return paper if step == "paper" else Design(paper.randomizer, "project")
    if step == "mechanism":
        best = made("best").randomizer
        return Design(best, "raw" if "raw" in best.decodes else "project")
    if step == "learned density":
        return Design(made("best").randomizer, "learned-mean")
    groups = {"people": Group(SQUARE, crowd=crowd - 1)}
    known = None
    if step == "prior":
        first = sum(datasets.CLUSTERED)
        places = datasets.social(dataset)[first : first + _KNOWN]
        known = Prior.from_points(places)
    found = plan(groups, epsilon=EPSILON, delta=delta(crowd), prior=known)["people"]
    if step == "prior":
        return Design(found.best.randomizer, found.best.how)
    for one in found.designs:
        if one.randomizer.name == "minkowski":
            return Design(one.randomizer, one.how)
    raise Misuse("a plan for the square has Minkowski response among its designs")


def measure(cell: Cell) -> Row:
    """Report by a step's designs, and measure what the matchings are worth."""
    dataset, step = str(cell["dataset"]), str(cell["step"])
    groups = datasets.crowdsourcing(dataset)
    made = designs(dataset, step, [len(group) for group in groups])

    def estimates(seed: int) -> list[Floats]:
        # Other seeds than those of the figures.
        pairs = zip(groups, made, strict=True)
        return [draw(v, m, 1_000 + 2 * seed + g) for g, (v, m) in enumerate(pairs)]

    candidates = CANDIDATES if step == "candidates" else 1
    return {
        "randomizer": made[0].randomizer.name,
        "local_users": made[0].randomizer.epsilon,
        **served(groups, estimates, seeds=int(cell["seeds"]), candidates=candidates),
    }


SHEET: Final = Sheet("steps", cells, measure)
