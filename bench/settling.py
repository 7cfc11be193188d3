"""Quality of the pairs that people settle by letter, compared with the goals, on fresh draws.

`python -m bench settling` prints for each crowd the share of the smaller side that ends with a
partner within the radius, and the mean distance of those who are paired. The server's own single
partner from the same reports stands beside it, and how people would settle if each candidate knew
the other's exact place, instead of the ring. Distances are in the box [-1, 1]^2, the radius is 0.4;
the demo's city is in metres. There are no letters here; those of the demo are real. Designs are
planned with goal "task" for people spread evenly: both groups report in one shape, and the plan
uses nothing of the people who are measured. It also decides about decoys, by trial rounds with
letters, and prints what it decided. `--steps` instead measures quality against the number
of candidates and of steps.
"""

import math
import sys
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec.structs import replace

from bench import Figure, show
from bench._crowds import check_ins, sides, spread
from coatcheck.demo import city
from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, seeded
from coatcheck.planning import Group, Recommendation, plan
from coatcheck.planning.budget_search import usual_delta
from coatcheck.planning.settled_rounds import people_only, with_decoys
from coatcheck.protocol.drafting import usual_settling
from coatcheck.protocol.server import numbers
from coatcheck.randomizers.choice import misses
from coatcheck.simulation.quality import one_partner
from coatcheck.simulation.settling import settle_by_rings
from coatcheck.simulation.trial import make_task
from coatcheck.tasks import References, Task
from coatcheck.tasks.contract import Positions, scale_of
from coatcheck.tasks.matching import lists_of
from coatcheck.tasks.shortlists import settled

if TYPE_CHECKING:
    from coatcheck.randomizers import Decode

SEEDS = range(100, 108)
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
RADIUS = 0.4
CANDIDATES = 16
_NOISE = 1_000_000  # noise is drawn from other seeds than places
Pairs = list[tuple[int, int]]


def main() -> int:
    """Measure and print; return 1 if a goal is missed."""
    if "--steps" in sys.argv:
        return show(_steps())
    figures = []
    crowds: dict[str, tuple[list[Floats], dict[int, tuple[float, ...]]]] = {
        "gmission": ([_square(side) for side in sides("gmission")], {1: (0.86, 0.42), 3: (0.95,)}),
        "everysender": (
            [_square(side) for side in sides("everysender")],
            {1: (0.90, 0.33), 3: (0.95,)},
        ),
        "gowalla": ([], {1: (0.90, 0.24), 3: ()}),
        "equal sides, uniform": ([spread(900, 5) * 2 - 1, spread(900, 6) * 2 - 1], {1: ()}),
    }
    for name, (places, goals) in crowds.items():
        for epsilon, goal in goals.items():
            results = [
                _measure(places or _gowalla(seed), SQUARE, epsilon, seed, radius=RADIUS)
                for seed in SEEDS
            ]
            figures += _figures(f"{name}, ε {epsilon}", results, goal)
    results = [
        _measure(
            [city.places(180, entropy=seed), city.places(220, entropy=seed + 50)],
            city.CITY,
            1,
            seed,
            radius=1600.0,
        )
        for seed in SEEDS
    ]
    figures += _figures("city of 400, ε 1", results, (0.0, 1400.0, 750.0))
    return show(figures)


def _steps() -> list[Figure]:
    """Print the quality by the number of candidates and of steps."""
    places, figures = [_square(side) for side in sides("gmission")], []
    for candidates, asks in product((3, 5, 10), ((1,), (2,), (3,), (3, 2), (4, 2))):
        options: dict[str, Any] = {"candidates": candidates, "asks": asks}
        results = [
            _measure(places, SQUARE, 1, seed, radius=RADIUS, **options) for seed in SEEDS[:2]
        ]
        figures += _figures(f"gmission, ε 1, {candidates} candidates, asks {asks}", results, ())
    return figures


def _square(side: Floats) -> Floats:
    return np.clip(np.asarray(side) / 2.5 - 1, -1, 1)


def _gowalla(seed: int) -> list[Floats]:
    places = check_ins("gowalla_sf")
    chosen = np.random.default_rng(seed).permutation(len(places))[:1400]
    return [places[chosen[:600]], places[chosen[600:]]]


def _figures(name: str, results: list[tuple[float, ...]], goal: tuple[float, ...]) -> list[Figure]:
    alone, missed, paired, mean, median, exact = np.mean(results, axis=0)
    error = np.std(results, axis=0, ddof=1) / math.sqrt(len(results))
    targets = [1 - goal[0] if goal and goal[0] else None, *goal[1:], None, None][:3]
    return [
        Figure(what=f"{name}: share not near, single partner of the server", value=alone, unit=""),
        Figure(
            what="  share not near or unpaired, settled", value=missed, unit="", target=targets[0]
        ),
        Figure(what="  standard error", value=error[1], unit=""),
        Figure(what="  the same, if candidates knew exact places", value=exact, unit=""),
        Figure(what="  share unpaired", value=1 - paired, unit=""),
        Figure(what="  mean distance", value=mean, unit="", target=targets[1]),
        Figure(what="  median distance", value=median, unit="", target=targets[2]),
    ]


def _measure(
    values: Sequence[Floats],
    box: Box,
    epsilon: float,
    seed: int,
    *,
    radius: float,
    candidates: int = CANDIDATES,
    asks: Sequence[int] = (3, 2),
) -> tuple[float, ...]:
    """Plan, report, list and settle once: shares and distances of the smaller side."""
    few, many = sorted(values, key=len)
    task = make_task("least-cost-matching", names=("few", "many"), box=box, candidates=candidates)
    plans = _planned((len(few), len(many)), box, epsilon, candidates)
    draws = seeded(_NOISE + seed)
    reports, owners = zip(
        *(_read(plan, side, draws) for plan, side in zip(plans, (few, many), strict=True)),
        strict=True,
    )
    alone = _near(_named(one_partner(task), reports, owners), few, many, box, radius)
    tables = lists_of(_references(task, reports), candidates)[: len(asks)]
    lists = [people_only(table, *owners, rows=len(few)) for table in tables]
    scale = scale_of(box)
    terms = replace(usual_settling(task, box), asks=tuple(asks))
    partners = settle_by_rings(few, many, lists, terms=terms, scale=scale)
    pairs = [(one, other) for one, other in enumerate(partners.tolist()) if other >= 0]
    factors = np.array(scale or (1.0,) * box.dimension)
    knowing = settled(few * factors, many * factors, lists, asks=asks)
    better = [(one, other) for one, other in enumerate(knowing.tolist()) if other >= 0]
    apart = _apart(pairs, few, many, box)
    return (
        1 - alone,
        1 - _near(pairs, few, many, box, radius),
        len(pairs) / len(few),
        float(apart.mean()),
        float(np.median(apart)),
        1 - _near(better, few, many, box, radius),
    )


@cache
def _planned(
    sizes: tuple[int, int], box: Box, epsilon: float, candidates: int
) -> tuple[Recommendation, ...]:
    task = make_task("least-cost-matching", names=("few", "many"), box=box, candidates=candidates)
    groups = {name: Group(box, size) for name, size in zip(task.groups, sizes, strict=True)}
    delta = usual_delta(sizes)
    planned = plan(groups, epsilon=epsilon, delta=delta, goal="task", task=task)
    crowd = f"{sizes[0]} and {sizes[1]} people, ε {epsilon:g}:"
    print(crowd, *planned.tried, sep="\n  ", flush=True)
    return planned.groups


def _read(plan: Recommendation, side: Floats, draws: Entropy) -> tuple[Floats, Positions]:
    """Return the estimates of all messages, and whose they are: -1 for decoys."""
    messages, owners = with_decoys(plan.randomizer, side, plan.decoys, draws)
    decode = cast("Decode", plan.decode)
    return numbers(plan.randomizer, messages, decode, decoys=plan.decoys), owners


def _references(task: Task, reports: Sequence[Floats]) -> References:
    first = task(reports)[0]
    if not isinstance(first, References):
        raise TypeError(task.name)
    return first


def _named(task: Task, reports: Sequence[Floats], owners: Sequence[Positions]) -> Pairs:
    """Return the pairs of people that the server names; whoever gets a decoy has no partner."""
    first = _references(task, reports)
    few, many = owners[0][first.owners()], owners[1][first.indices]
    both = (few >= 0) & (many >= 0)
    return list(zip(few[both].tolist(), many[both].tolist(), strict=True))


def _apart(pairs: Pairs, few: Floats, many: Floats, box: Box) -> Floats:
    one, other = np.array(pairs).T
    return misses(box, few[one], many[other])


def _near(pairs: Pairs, few: Floats, many: Floats, box: Box, radius: float) -> float:
    return float((_apart(pairs, few, many, box) <= radius).sum() / len(few))


if __name__ == "__main__":
    sys.exit(main())
