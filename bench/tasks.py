"""Time and memory of the tasks, each compared with the usual way in one run.

`python -m bench tasks` measures everything but a million people (some minutes), with `--quick` the
small sizes only, with `--large` a million (`bench/_large.py`). Ratios are ours to theirs: at most
0.25 means at least four times faster.
"""

import importlib
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial import cKDTree

from bench import Figure, _large, quickest, show
from bench._crowds import (
    REPORTED,
    check_ins,
    gradients,
    one_cell,
    reported,
    reports,
    sides,
    spread,
)
from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.planning import Group, plan
from coatcheck.protocol.server import belief, numbers
from coatcheck.randomizers import BoundedResponse, Prior
from coatcheck.tasks import Floats, Positions, answer
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.neighbours import nearest_within
from coatcheck.tasks.shapley import Game, mean_field, owen
from coatcheck.tasks.shortlists import candidates
from coatcheck.tasks.solvers.assignment import assign, dense
from coatcheck.tasks.solvers.close_pairs import agreement
from coatcheck.tasks.solvers.maximum import maximum


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    if "--large" in sys.argv:
        return _large.main()
    quick = "--quick" in sys.argv
    _warm_up()
    figures = [*_least_cost(quick=quick), *_maximum(quick=quick)]
    figures += [*_agreement(quick=quick), *_rewards(quick=quick), *_candidates(quick=quick)]
    if not quick:
        figures += [*_growth(), *_memory(), *_plans()]
    return show(figures)


def _least_cost(*, quick: bool) -> list[Figure]:
    figures = []
    for name, faster in (("gmission", 0.8), ("everysender", 2.5)):
        rows, columns = sides(name)
        ours, theirs = quickest(partial(assign, rows, columns), partial(dense, rows, columns))
        figures.append(_ratio(f"least-cost {name} : scipy dense", ours, theirs, faster))
        figures.append(Figure(what=f"least-cost {name}", value=ours * 1e3, unit="ms"))
    seconds, matching = _once(lambda: assign(*one_cell()))
    figures.append(Figure(what="least-cost, one crowded cell", value=seconds, unit="s", target=1.0))
    figures.append(Figure(what="  its cost", value=matching.cost, unit="", target=100.0))
    n = 2_000 if quick else 10_000
    rows, columns = reports(n, 1), reports(n, 2)
    ours, matching = _once(lambda: assign(rows, columns))
    theirs, least = _once(lambda: dense(rows, columns))
    what = f"least-cost, reports {n} x {n}"
    figures.append(_ratio(f"{what} : scipy dense", ours, theirs, 2 if quick else 8))
    figures.append(_gap("  cost above scipy's", matching.cost / least.cost - 1))
    cases = [(n, n, 1.0), (n * 4 // 5, n, 1.0)]
    if not quick:
        cases += [(50_000, 50_000, 10.0), (80_000, 100_000, 5.0)]
    for (n, m, target), mechanism, clustered in product(cases, REPORTED, (False, True)):
        rows = reports(n, 1, mechanism=mechanism, clustered=clustered)
        columns = reports(m, 2, mechanism=mechanism, clustered=clustered)
        seconds, matching = _once(partial(assign, rows, columns))
        what = f"least-cost {n} x {m} {mechanism} {'clustered' if clustered else 'even'}"
        figures.append(Figure(what=what, value=seconds, unit="s", target=target))
        figures.append(_gap("  unproven gap", matching.gap))
    return figures


def _maximum(*, quick: bool) -> list[Figure]:
    figures = []
    cases = [(f"{name} radius 1", *sides(name), 1.0) for name in ("gmission", "everysender")]
    for n in (10_000,) if quick else (10_000, 100_000, 1_000_000):
        for degree in (3, 30):
            if n < 1_000_000 or degree == 3:
                radius = math.sqrt(degree / math.pi / n)
                case = f"{n * 4 // 5} x {n}, degree {degree}"
                cases.append((case, spread(n * 4 // 5, 1), spread(n, 2), radius))
    for what, rows, columns, radius in cases:
        jobs = _two_ways(rows, columns, radius)
        ours, theirs = quickest(*jobs, rounds=7 if len(rows) < 20_000 else 2)
        figures.append(_ratio(f"maximum {what} : full graph", ours, theirs, 1.0))
        sizes = [int((np.asarray(job()) >= 0).sum()) for job in jobs]
        figures.append(Figure(what="  fewer matched", value=sizes[1] - sizes[0], unit="", target=0))
    return figures


def _two_ways(
    rows: Floats, columns: Floats, radius: float
) -> tuple[Callable[[], Positions], Callable[[], Positions]]:
    def full() -> Positions:
        trees = cKDTree(rows), cKDTree(columns)
        pairs = trees[0].sparse_distance_matrix(trees[1], radius, output_type="ndarray")
        ones = np.ones(len(pairs), dtype=np.int8)
        graph = csr_array((ones, (pairs["i"], pairs["j"])), shape=(len(rows), len(columns)))
        return np.asarray(maximum_bipartite_matching(graph, perm_type="column"))

    return lambda: maximum(rows, columns, radius=radius), full


def _agreement(*, quick: bool) -> list[Figure]:
    """Measure F1 beside three cKDTree counts: true, noisy, and the joint space.

    No tree can count the pairs that are close in both spaces; the l2 count in the joint space,
    a smaller set, stands in for it.
    """
    figures = []
    for name in ("gowalla_sf", "foursquare_nyc"):
        truth = check_ins(name, 20_000 if quick else None)
        noisy = reported(truth)
        for radius in (0.2, 0.1):
            ours, counts = _once(partial(agreement, truth, noisy, radius=radius))
            theirs = sum(
                _once(partial(_tree_count, places, radius))[0]
                for places in (truth, noisy, np.hstack([truth, noisy]))
            )
            what = f"F1 {name} {len(truth)} radius {radius}"
            figures.append(Figure(what=what, value=ours, unit="s"))
            figures.append(_ratio("  : three cKDTree counts", ours, theirs, 4.0))
            figures.append(Figure(what="  its value", value=counts.f1, unit=""))
        seconds, _ = _once(partial(nearest_within, noisy, radius=0.2, limit=16))
        figures.append(Figure(what=f"16 neighbours {name}", value=seconds, unit="s"))
    return figures


def _tree_count(places: Floats, radius: float) -> object:
    return cKDTree(places).count_neighbors(cKDTree(places), radius)


def _rewards(*, quick: bool) -> list[Figure]:
    game = gradients(10_000)
    ours = quickest(lambda: mean_field(game))[0]
    truth = owen(game, entropy=seeded(8), sets=1_500 if quick else 12_000).values
    off = _error(mean_field(game).values, truth)
    figures = [
        Figure(what="rewards of 10,000, closed form", value=ours * 1e3, unit="ms", target=50.0),
        Figure(
            what="  error", value=off * 100, unit="%", target=0.5 if quick else 0.1
        ),  # quick: the reference itself is 0.2 % off
    ]
    small = gradients(1_000)
    truth = owen(small, entropy=seeded(8), sets=3_000).values
    seconds = quickest(lambda: mean_field(small))[0]
    value = _error(mean_field(small).values, truth) * 100
    figures.append(Figure(what="rewards of 1,000: error", value=value, unit="%"))
    try:
        theirs, estimate = _once(lambda: _shapiq(small))
    except Exception as error:  # noqa: BLE001 - a peer fails to import in its own ways
        print(f"shapiq is absent ({type(error).__name__}: {error}); pip install shapiq")
        return figures
    figures.append(_ratio("  : shapiq, 20 permutations", seconds, theirs, 10.0))
    figures.append(Figure(what="  shapiq: error", value=_error(estimate, truth) * 100, unit="%"))
    return figures


def _shapiq(game: Game) -> Floats:
    peer = importlib.import_module("shapiq")
    n, size = len(game), len(game.direction)
    whole = csr_array(
        (
            game.values.ravel(),
            (np.repeat(np.arange(n), game.values.shape[1]), game.coordinates.ravel()),
        ),
        shape=(n, size),
    )

    def utility(coalitions: Any) -> Floats:
        summed = np.asarray(np.atleast_2d(coalitions).astype(np.float64) @ whole)
        length = np.linalg.norm(summed, axis=1)
        return np.where(length > 0, summed @ game.direction / np.where(length > 0, length, 1), 0)

    sampler = peer.PermutationSamplingSV(n=n, random_state=1)
    values = sampler.approximate(budget=20 * n, game=utility)
    return np.array([values[(i,)] for i in range(n)])


def _candidates(*, quick: bool) -> list[Figure]:
    """Measure lists of candidates and matchings by expected costs, on grid and cap reports."""
    n, figures = 2_000 if quick else 100_000, []
    for mechanism in REPORTED:
        places = [reports(m, g, mechanism=mechanism) for g, m in enumerate((n * 4 // 5, n))]
        seconds, (first, second) = _once(partial(candidates, *places, count=5))
        what = f"five candidates {n * 4 // 5} x {n} {mechanism}"
        figures.append(Figure(what=what, value=seconds, unit="s"))
        loads = np.bincount(first.ravel(), minlength=n)
        figures.append(
            Figure(what="  loads differ by", value=float(np.ptp(loads)), unit="", target=1)
        )
        short = float((second < 0).mean()) * 100
        figures.append(Figure(what="  second lists short by", value=short, unit="%", target=1.0))
    box = Box((-1.0, -1.0), (1.0, 1.0))
    made = BoundedResponse(domain=box, epsilon=2.0, radius=0.3)
    batches = [made.randomize(check_ins("gowalla_sf", m), seeded(m)) for m in (n * 4 // 5, n)]
    seconds, beliefs = _once(lambda: [belief(made, group) for group in batches])
    figures.append(Figure(what=f"beliefs about {n} reports", value=seconds, unit="s"))
    task, seen = LeastCostMatching(cost="expected"), [numbers(made, group) for group in batches]
    seconds, _ = _once(lambda: answer(task, seen, beliefs=beliefs))
    what = f"least expected cost {n * 4 // 5} x {n}"
    figures.append(Figure(what=what, value=seconds, unit="s"))
    return figures


def _plans() -> list[Figure]:
    """Compare the predictions of plans for a task with measurements on fresh crowds."""
    box, task, off = Box((-1.0, -1.0), (1.0, 1.0)), MaximumMatching(radius=0.4), []
    for seed in range(500, 520):
        groups = {name: Group(box, crowd=120) for name in task.groups}
        planned = plan(
            groups, epsilon=3.0, delta=1e-4, goal="task", task=task, entropy=seeded(seed)
        )
        promised, entropy, lost = planned["users"].best, seeded(1000 + seed), []
        for _ in range(40):
            truth = [Prior.even(box).draw(box, 120, entropy) for _ in groups]
            seen = [
                numbers(own.randomizer, own.randomizer.randomize(places, entropy), own.best.how)
                for own, places in zip(planned, truth, strict=True)
            ]
            lost.append(1 - task.score(truth, estimates=seen).value)
        error = math.hypot(promised.standard_error or 0.0, float(np.std(lost)) / math.sqrt(40))
        off.append(abs(float(np.mean(lost)) - promised.error) / error)
    figures = [Figure(what="20 plans for a task: worst miss", value=max(off), unit="SE")]
    beyond = float(np.mean(np.array(off) > 2))  # one in twenty misses by chance
    figures.append(Figure(what="  beyond two", value=beyond * 100, unit="%", target=15.0))
    return figures


def _growth() -> list[Figure]:
    """Return the exponents of the time in the number of people."""
    jobs: list[tuple[str, tuple[int, ...], Callable[[int], object]]] = [
        ("least-cost, sides 5 : 4", (10_000, 100_000), lambda n: _solve(n * 4 // 5, n)),
        ("least-cost, equal sides", (10_000, 50_000), lambda n: _solve(n, n)),
        ("scipy dense, equal sides", (1_000, 4_000), lambda n: dense(spread(n, 1), spread(n, 2))),
        ("maximum, degree 3", (10_000, 300_000), _match),
        (
            "F1, uniform",
            (20_000, 80_000),
            lambda n: agreement(spread(n, 1), spread(n, 2), radius=0.1),
        ),
        ("rewards", (10_000, 300_000), lambda n: mean_field(gradients(n))),
    ]
    figures = []
    for what, (small, large), job in jobs:
        times = [min(_once(partial(job, n))[0] for _ in range(2)) for n in (small, large)]
        exponent = math.log(times[1] / times[0]) / math.log(large / small)
        target = 1.6 if what.startswith("least-cost") else None
        named = f"growth of {what}: n to the"
        figures.append(Figure(what=named, value=exponent, unit="", target=target))
    return figures


def _solve(n: int, m: int) -> object:
    return assign(reports(n, 1), reports(m, 2))


def _match(n: int) -> object:
    return maximum(spread(n * 4 // 5, 1), spread(n, 2), radius=math.sqrt(3 / math.pi / n))


def _memory() -> list[Figure]:
    """Return peaks of whole processes, the interpreter and numba included."""
    figures = []
    for job, people, target in (("check-ins", 0, 0.5), ("least-cost, bounded", 50_000, 1.0)):
        seconds, peak = _large.measured(job, people)
        figures.append(Figure(what=f"{job}: peak memory", value=peak, unit="GB", target=target))
        figures.append(Figure(what=f"{job}: time", value=seconds, unit="s"))
    return figures


def _warm_up() -> None:
    """Compile, so that no figure includes the compiler."""
    _solve(900, 1000)
    _solve(1000, 1000)
    agreement(spread(500, 1), spread(500, 2), radius=0.2)


def _once(job: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of a job, which other load hardly lengthens, and its result."""
    start = time.process_time()
    result = job()
    return time.process_time() - start, result


def _ratio(what: str, ours: float, theirs: float, faster: float) -> Figure:
    return Figure(what=what, value=ours / theirs, unit="x", target=1 / faster)


def _gap(what: str, gap: float) -> Figure:
    return Figure(what=what, value=gap, unit="", target=1e-9)


def _error(estimate: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((estimate - truth) ** 2)) / truth.std())


if __name__ == "__main__":
    sys.exit(main())
