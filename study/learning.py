"""Learning on MNIST: our rows beside central DP, no noise, and the server alone.

`python -m study learning` measures what is missing and prints every table; `learning linear`,
`network`, `ablations`, `law` or `rewards` does one part. All choices (features, start, steps,
clips) were made on seeds 0 and 1 and on images 50,000 to 54,999. The rows use other seeds and are
tested on images 55,000 to 59,999, which no choice has seen.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from study.recipes import Recipe
from study.sheets import Cell, Sheet
from study.teaching import measure

SEEDS: Final = (30, 31, 32, 33, 34)
FEWER: Final = SEEDS[:2]
PUBLIC: Final = 200
NETWORK: Final = {
    1: Recipe(model="network", epsilon=1, step=6.0),
    3: Recipe(model="network", epsilon=3, step=9.0),
}
_WARM: Final = {1: 4.0, 3: 6.0}  # the steps after a start from public examples
_EVERYBODY: Final = {1: 9.0, 3: 14.0}  # the steps where everybody speaks in every round
LINEAR: Final = {
    (50_000, 1): Recipe(model="linear", epsilon=1, clip=0.25, step=320.0),
    (50_000, 3): Recipe(model="linear", epsilon=3, clip=0.25, step=320.0),
    (5_000, 1): Recipe(model="linear", people=5_000, epsilon=1, rate=1.0, clip=0.25, step=40.0),
    (5_000, 3): Recipe(model="linear", people=5_000, epsilon=3, rate=1.0, clip=0.25, step=80.0),
}
_WARM_LINEAR: Final = {1: 10.0, 3: 80.0}  # likewise, with 5,000 people
PARTS: Final = ("network", "linear", "law", "ablations")

Listed = tuple[str, float, Recipe, tuple[int, ...]]  # row, ε (0 for none), recipe, seeds


def network() -> Iterator[Listed]:
    """List the rows of the paper's network."""
    warm = {e: replace(NETWORK[e], public=PUBLIC, step=_WARM[e]) for e in (1, 3)}
    for epsilon in (1, 3):
        yield "200 public examples", epsilon, warm[epsilon], SEEDS
    yield "server alone, 200 examples", 0, replace(warm[1], way="alone"), SEEDS
    for epsilon in (1, 3):
        yield "no public example", epsilon, NETWORK[epsilon], SEEDS
    for epsilon in (1, 3):
        central = replace(NETWORK[3], epsilon=epsilon, way="central")
        yield "central DP, no public example", epsilon, central, SEEDS[:3]
    yield "no noise, no public example", 0, replace(NETWORK[3], way="none"), SEEDS[:3]


def linear() -> Iterator[Listed]:
    """List the rows of the linear model."""
    for (people, epsilon), recipe in LINEAR.items():
        yield f"{people:,} people", epsilon, recipe, SEEDS
        yield f"{people:,} people, central DP", epsilon, replace(recipe, way="central"), SEEDS
    for epsilon, step in _WARM_LINEAR.items():
        warm = replace(LINEAR[5_000, epsilon], public=PUBLIC, step=step)
        yield "5,000 people, 200 public examples", epsilon, warm, SEEDS
    yield "50,000 people, no noise", 0, replace(LINEAR[50_000, 3], way="none"), SEEDS
    yield "5,000 people, no noise", 0, replace(LINEAR[5_000, 3], way="none"), SEEDS
    alone = replace(LINEAR[50_000, 1], public=PUBLIC, way="alone")
    yield "server alone, 200 examples", 0, alone, SEEDS


def law() -> Iterator[Listed]:
    """List rows again with the mechanism's stated variance, to compare with real reports."""
    for (people, epsilon), recipe in LINEAR.items():
        yield f"linear, {people:,} people", epsilon, replace(recipe, way="law"), SEEDS
    for epsilon in (1, 3):
        yield "network", epsilon, replace(NETWORK[epsilon], way="law"), FEWER


def ablations() -> Iterator[Listed]:
    """List the network at ε 1 with one idea removed or replaced."""
    ours = NETWORK[1]
    warm = replace(ours, public=PUBLIC, step=_WARM[1])
    changed = {
        "reports of 16 bits (256 turns of the codebook)": replace(ours, turns=256),
        "start drawn, not edges": replace(ours, start="drawn"),
        "no momentum": replace(ours, mover="plain"),
        "Adam with a step of 0.01": replace(ours, mover="adam", step=0.01),
        "gradients of one length, not clipped": replace(ours, length="unit"),
        "each report put back into the ball": replace(ours, project=True),
        "a secret sample, no coins": replace(ours, sampling="secret"),
        "fewer speak (rate 0.05)": replace(ours, rate=0.05),
        "the law of any ε-LDP mechanism": replace(ours, law="any"),
        "PrivUnit, the law of any": replace(ours, mechanism="privunit"),
        "200 public, along 150 public directions": replace(warm, directions=150),
        "everybody speaks (rate 1), step 9": replace(ours, rate=1.0, step=_EVERYBODY[1]),
    }
    for name, recipe in changed.items():
        yield name, 1, recipe, FEWER if recipe.rate < 1 else FEWER[:1]


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List all rows of all parts, seed by seed."""
    cells_of_parts: list[Cell] = []
    for part in PARTS:
        for row, epsilon, recipe, seeds in globals()[part]():
            short = replace(recipe, rounds=3, people=min(recipe.people, 5_000)) if quick else recipe
            for seed in seeds[:1] if quick else seeds:
                one: Cell = {"part": part, "row": row, "epsilon": epsilon}
                cells_of_parts.append({**one, "recipe": str(short), "seed": seed})
    if quick:
        return [one for one in cells_of_parts if one["part"] == "linear"]
    return cells_of_parts


SHEET: Final = Sheet("learning", cells, measure)
