"""Tables errortime and mpec, and the exact F1 of all check-ins: costs of one report and of counts.

Times are CPU time of one core of the machine that the page names; `rounds` has those of the
protocol. Source: the paper's appendices on spatial crowdsourcing and on permutation-equivariant
computation.
"""

import math
import resource
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Box, Group, choose, plan, seeded
from coatcheck.tasks.solvers.close_pairs import agreement
from study import datasets
from study.conventions import LEFT, MECHANISMS, PUBLISHED, SQUARE, Design, location_mechanism
from study.sheets import Cell, Row, Sheet

Floats = NDArray[np.float64]

PRINTED_BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)


def cpu(action: Callable[[], object], *, times: int = 1, turns: int = 3) -> float:
    """Return the least CPU seconds per call, over a few batches of calls."""
    least = math.inf
    for _ in range(turns):
        start = time.process_time()
        for _ in range(times):
            action()
        least = min(least, (time.process_time() - start) / times)
    return least


# -- Table errortime


def errortime_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List mechanism by budget."""
    size = 20_000 if quick else 400_000
    return [
        {"mechanism": name, "epsilon": epsilon, "samples": size}
        for name in (*MECHANISMS, "best")
        for epsilon in PRINTED_BUDGETS
    ]


def measure_errortime(cell: Cell) -> Row:
    """Draw values uniformly from the square, report each once, and time it both ways."""
    epsilon, size = float(cell["epsilon"]), int(cell["samples"])
    design = _errortime_design(str(cell["mechanism"]), epsilon)
    values = seeded(7).uniforms(2 * size).reshape(size, 2) * 2 - 1
    entropy = seeded(8)
    randomizer = design.randomizer
    misses = randomizer.estimate(randomizer.randomize(values, entropy), design.how) - values
    lengths = np.linalg.norm(misses, axis=1)
    some, one = values[:20_000], tuple(values[0].tolist())
    bulk = cpu(lambda: randomizer.randomize(some, entropy)) / len(some)
    alone = cpu(lambda: randomizer.randomize_one(one, entropy), times=200)
    return {
        "randomizer": randomizer.name,
        "error": float(lengths.mean()),
        "spread": float(lengths.std()),
        "bulk_us": 1e6 * bulk,
        "one_us": 1e6 * alone,
    }


def _errortime_design(name: str, epsilon: float) -> Design:
    if name != "best":
        return location_mechanism(name, epsilon)
    chosen = choose(epsilon=epsilon, domain=SQUARE)
    return Design(chosen.randomizer, chosen.how)


# -- Table mpec


def mpec_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List dimension by crowd, all under one promise, ε = 1 at δ = 1e-9, to compare crowds."""
    dimensions, crowds = (
        ((2,), (10**4, 10**5)) if quick else ((1, 2, 3, 6), tuple(10**k for k in range(3, 10)))
    )
    return [{"dimension": d, "crowd": n, "epsilon": 1.0} for d in dimensions for n in crowds]


def measure_mpec(cell: Cell) -> Row:
    """Plan for a crowd, and compare the squared error of a report with that of one alone."""
    d, crowd, epsilon = int(cell["dimension"]), int(cell["crowd"]), float(cell["epsilon"])
    cube = Box((-1,) * d, (1,) * d)
    best = plan({"people": Group(cube, crowd=crowd)}, epsilon=epsilon, delta=1e-9, goal="unbiased")
    randomizer = best["people"].best.randomizer
    alone = choose(epsilon=epsilon, domain=cube, goal="unbiased")
    return {
        "randomizer": randomizer.name,
        "local_epsilon": randomizer.epsilon,
        "squared_error": randomizer.worst_error("unbiased", power=2),
        "alone_squared_error": alone.error**2,
        "report_bits": randomizer.report_bits,
    }


# -- the exact F1 of all check-ins


def scale_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by radius."""
    size = 5_000 if quick else 0
    return [
        {"dataset": name, "size": size, "radius": radius}
        for name in datasets.SOCIAL
        for radius in LEFT
    ]


def measure_scale(cell: Cell) -> Row:
    """Count every true, reported and common pair of neighbours, and the memory that it took."""
    places = datasets.social(str(cell["dataset"]), size=int(cell["size"]) or None)
    design = location_mechanism(PUBLISHED, 8.0)
    estimates = design.randomizer.estimate(
        design.randomizer.randomize(places, seeded(0)), design.how
    )
    start = time.process_time()
    counts = agreement(places, estimates, radius=float(cell["radius"]))
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000  # kilobytes on Linux
    return {
        "check_ins": len(places),
        "true_pairs": counts.true,
        "reported_pairs": counts.noisy,
        "common_pairs": counts.both,
        "f1": counts.f1,
        "count_seconds": spent,
        "peak_megabytes": peak,
    }


SCALE: Final = Sheet("scale", scale_cells, measure_scale)
ERRORTIME: Final = Sheet("errortime", errortime_cells, measure_errortime)
MPEC: Final = Sheet("mpec", mpec_cells, measure_mpec)
