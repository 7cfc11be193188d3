"""Our compiled solvers beside SciPy's, from a thousand to a million people per side.

`python -m bench matchings --scipy` prints a table. `--only WORD` takes the rows whose task or crowd
has this word in its name, `--sizes 1000,10000` other sizes, and `--seconds N` another time limit.
Each cell is measured in a process of its own, with loops compiled before: seconds of the processor
for the solver alone, and the most memory that the process held, the crowd included. A way that
exceeds the time limit or 8 GB is not tried at larger sizes, nor one that takes a tenth of the limit
or twenty times as long as ours. A cell also shows how far its answer is from ours, if it differs.
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import (
    maximum_bipartite_matching,
    maximum_flow,
    min_weight_full_bipartite_matching,
)
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from bench._crowds import REPORTED, SQUARE, check_ins, reported, spread
from bench._large import peak
from coatcheck.entropy import seeded
from coatcheck.protocol.server import belief
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.tasks import Belief, Floats, Positions
from coatcheck.tasks.contract import distinct, normalised
from coatcheck.tasks.solvers import assignment, maximum
from coatcheck.tasks.solvers.assignment import expected_costs, partners_from_flows, ship
from coatcheck.tasks.solvers.close_pairs import agreement, close_pairs
from coatcheck.tasks.solvers.maximum import _compiled_graph as _listed

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SECONDS: Final = 60.0
_MOST_MEMORY: Final = 8 << 30
_ENOUGH: Final = 0.5  # seconds: a quicker job is repeated for this long, and the mean counts
_HOPELESS: Final = 20  # times as long as ours
_NEAR: Final = 24
_MOST_VARIABLES: Final = 3_000_000  # of a linear program
_CHUNK: Final = 2_000


@dataclass(frozen=True)
class Crowd:
    """Two sides and a radius; where pairs are counted, people's places and their estimates."""

    rows: Floats
    columns: Floats
    radius: float


# -- crowds, as estimates of reports


def _people(count: int, seed: int, *, clustered: bool) -> Floats:
    draws = np.random.default_rng(seed)
    if not clustered:
        return draws.uniform(-1, 1, (count, 2))
    parts = np.array([[-0.5, -0.4], [0.2, 0.3], [0.6, -0.5], [-0.3, 0.7], [0.0, 0.0]])
    return parts[draws.integers(0, len(parts), count)] + 0.12 * draws.normal(size=(count, 2))


def _estimates(
    count: int, seed: int, *, mechanism: str, how: Any, clustered: bool = True
) -> Floats:
    randomizer = (
        MinkowskiResponse(domain=SQUARE, epsilon=2.0, radius=0.5)
        if mechanism == "minkowski"
        else REPORTED[mechanism]
    )
    places = _people(count, seed, clustered=clustered)
    return np.asarray(
        randomizer.estimate(randomizer.randomize(places, seeded(seed), clamp=True), how)
    )


def _sides(few: float, radius: Callable[[int], float], draw: Callable[..., Floats]) -> Any:
    """Return a maker of crowds in which the first side has this share of the second's size."""
    return lambda n: Crowd(draw(int(n * few), 1), draw(n, 2), radius(n))


def _degree(times: float) -> Callable[[int], float]:
    return lambda n: float(np.sqrt(times / math.pi / n))


def _critical(n: int) -> float:
    return float(0.5 * math.log(n) ** 0.75 / math.sqrt(n))


_MEDIAN: Final = partial(_estimates, mechanism="bounded", how="median")
_LEARNED: Final = partial(_estimates, mechanism="bounded", how="learned")
_GRID: Final = partial(_estimates, mechanism="grid", how="raw")
_EDGE: Final = partial(_estimates, mechanism="minkowski", how="project")

MAXIMUM: Final = {
    "anywhere, degree 3": _sides(0.8, _degree(3), spread),
    "anywhere, degree 30": _sides(0.8, _degree(30), spread),
    "anywhere, critical radius": _sides(1.0, _critical, spread),
    "medians, radius 0.02": _sides(0.8, lambda _: 0.02, _MEDIAN),
    "piled on an edge, radius 0.02": _sides(0.8, lambda _: 0.02, _EDGE),
    "learned places, radius 0.11": _sides(0.8, lambda _: 0.11, _LEARNED),
    "grid, radius 0.11": _sides(0.8, lambda _: 0.11, _GRID),
}
LEAST_COST: Final = {
    "medians, equal sides": _sides(1.0, lambda _: 0, _MEDIAN),
    "medians, 4 : 5": _sides(0.8, lambda _: 0, _MEDIAN),
    "piled on an edge, 4 : 5": _sides(0.8, lambda _: 0, _EDGE),
    "learned places, 4 : 5": _sides(0.8, lambda _: 0, _LEARNED),
    "grid, 4 : 5": _sides(0.8, lambda _: 0, _GRID),
}


def _believed(n: int, *, mechanism: str) -> tuple[Floats, Positions, Positions]:
    """Return expected distances by kinds of reports, and the number of reports of each kind."""
    randomizer = REPORTED[mechanism]
    beliefs: list[Belief] = [
        belief(
            randomizer, randomizer.randomize(_people(m, m, clustered=True), seeded(m), clamp=True)
        )
        for m in (n * 4 // 5, n)
    ]
    costs = expected_costs(beliefs[0], beliefs[1], cdist)
    counts = [
        np.bincount(side.kinds, minlength=size)
        for side, size in zip(beliefs, costs.shape, strict=True)
    ]
    rows, columns = map(np.flatnonzero, counts)
    return costs[np.ix_(rows, columns)], counts[0][rows], counts[1][columns]


EXPECTED: Final = {
    "bounded": partial(_believed, mechanism="bounded"),
    "grid": partial(_believed, mechanism="grid"),
}


def _checked_in(n: int) -> Crowd:
    truth = check_ins("foursquare_nyc")
    truth = truth[np.random.default_rng(1).integers(0, len(truth), n)]
    return Crowd(truth, reported(truth), 0.1)


PAIRS: Final = {
    "check-ins, radius 0.1": _checked_in,
    "anywhere, radius 0.02": lambda n: Crowd(spread(n, 1), spread(n, 2), 0.02),
}


# -- ways to solve


def _graph(crowd: Crowd) -> csr_array:
    """Return every pair within the radius, by SciPy's trees."""
    trees = cKDTree(crowd.rows), cKDTree(crowd.columns)
    pairs = trees[0].sparse_distance_matrix(trees[1], crowd.radius, output_type="ndarray")
    ones = np.ones(len(pairs), dtype=np.int8)
    shape = len(crowd.rows), len(crowd.columns)
    return csr_array(
        (ones, (pairs["i"].astype(np.int32), pairs["j"].astype(np.int32))), shape=shape
    )


def _matched(graph: csr_array) -> Any:
    return maximum_bipartite_matching(graph, perm_type="column")


@dataclass(frozen=True)
class Network:
    """Different places of both sides, which of them everybody is at, and a radius."""

    ours: tuple[Floats, Positions]
    theirs: tuple[Floats, Positions]
    radius: float

    @classmethod
    def between(cls, crowd: Crowd) -> "Network":
        """Return the places of a crowd, in the unit of the solver."""
        (rows, columns), unit = normalised(crowd.rows, crowd.columns)
        return cls(distinct(rows), distinct(columns), crowd.radius / unit)


def _flow(network: Network) -> Any:
    """SciPy's largest flow between all pairs of places within the radius, dealt out as ours."""
    (ours, first), (theirs, second) = network.ours, network.theirs
    sources, targets, amounts = _flows(network)
    supply, n, m = np.bincount(first), len(ours), len(theirs)
    left = supply - np.bincount(sources, amounts, minlength=n).astype(np.int64)
    over = np.flatnonzero(left)
    return partners_from_flows(
        (first, np.append(second, np.full(left.sum(), m))),
        np.append(sources, over),
        np.append(targets, np.full(len(over), m)),
        np.append(amounts, left[over]),
    ), len(second)


def _flows(network: Network) -> tuple[Positions, Positions, Positions]:
    (ours, first), (theirs, second) = network.ours, network.theirs
    near = _graph(Crowd(ours, theirs, network.radius)).tocoo()
    n, m = len(ours), len(theirs)
    supply, demand = np.bincount(first), np.bincount(second)
    sources = np.concatenate([np.full(n, n + m), near.row, n + np.arange(m)])
    targets = np.concatenate([np.arange(n), n + near.col, np.full(m, n + m + 1)])
    amounts = np.concatenate([supply, np.minimum(supply[near.row], demand[near.col]), demand])
    shape = n + m + 2, n + m + 2
    edges = csr_array((amounts.astype(np.int32), (sources, targets)), shape=shape)
    flow = maximum_flow(edges, n + m, n + m + 1).flow[:n].tocoo()
    some = np.flatnonzero(flow.data > 0)
    sources, targets = (side[some].astype(np.int64) for side in (flow.row, flow.col - n))
    return sources, targets, flow.data[some].astype(np.int64)


def _our_flows(network: Network) -> int:
    (ours, first), (theirs, second) = network.ours, network.theirs
    sides = np.bincount(first), np.bincount(second)
    kernels = import_module("coatcheck.tasks.solvers.maximum_kernels")
    return int(kernels.flow(ours, theirs, network.radius**2, *sides)[2].sum())


def _plainly(crowd: Crowd) -> Any:
    """Ours without compiled loops: SciPy's matching on near pairs, then on those that can help."""
    with patch.object(maximum, "available", lambda: False):
        return maximum.maximum(crowd.rows, crowd.columns, radius=crowd.radius)


def _complete(crowd: Crowd) -> float:
    """SciPy's sparse solver on all pairs; a pair of no weight would be none to it, so add 1."""
    costs = cdist(crowd.rows, crowd.columns)
    rows, columns = min_weight_full_bipartite_matching(csr_array(costs + 1))
    return float(costs[rows, columns].sum())


def _nearest(crowd: Crowd) -> float:
    """SciPy's sparse solver on the nearest columns of each row, and one full plan."""
    n, m = len(crowd.rows), len(crowd.columns)
    near = np.asarray(cKDTree(crowd.columns).query(crowd.rows, k=min(_NEAR, m))[1])
    orders = [np.lexsort(side.T[::-1]) for side in (crowd.rows, crowd.columns)]
    plan = np.empty(n, dtype=np.int64)
    plan[orders[0]] = orders[1][np.arange(n) * m // n]
    pairs = np.unique(
        np.repeat(np.arange(n), near.shape[1] + 1) * m + np.column_stack([near, plan]).ravel()
    )
    rows, columns = np.divmod(pairs, m)
    costs = np.hypot.reduce(crowd.rows[rows] - crowd.columns[columns], axis=1)
    graph = csr_array((costs + 1, (rows, columns)), shape=(n, m))
    picked, partners = min_weight_full_bipartite_matching(graph)
    return float(np.hypot.reduce(crowd.rows[picked] - crowd.columns[partners], axis=1).sum())


def _program(costs: Floats, supply: Positions, demand: Positions) -> float:
    """SciPy's linear program over kinds or places."""
    n, m = costs.shape
    if n * m > _MOST_VARIABLES:
        sys.exit(f"{n * m:,} variables")
    pairs = np.arange(n * m)
    left = coo_array((np.ones(n * m), (pairs // m, pairs)))
    room = coo_array((np.ones(n * m), (pairs % m, pairs)))
    solve: Any = linprog
    solution = solve(costs.ravel(), A_ub=room, b_ub=demand, A_eq=left, b_eq=supply, method="highs")
    return float(solution.fun)


def _places_program(crowd: Crowd) -> float:
    (ours, first), (theirs, second) = distinct(crowd.rows), distinct(crowd.columns)
    if len(ours) * len(theirs) > _MOST_VARIABLES:
        sys.exit(f"{len(ours) * len(theirs):,} variables")
    return _program(cdist(ours, theirs), np.bincount(first), np.bincount(second))


def _units(costs: Floats, supply: Positions, demand: Positions) -> float:
    """SciPy's dense solver with a row and a column for every person."""
    with patch.object(assignment, "available", lambda: False):
        return ship(costs, supply, demand).cost


def _both(crowd: Crowd) -> int:
    """How many pairs are close in truth and by report: list the first, compare the second."""
    tree, square, total = cKDTree(crowd.rows), crowd.radius**2, 0
    for start in range(0, len(crowd.rows), _CHUNK):
        part = cKDTree(crowd.rows[start : start + _CHUNK])
        close = part.sparse_distance_matrix(tree, crowd.radius, output_type="ndarray")
        apart = crowd.columns[start + close["i"]] - crowd.columns[close["j"]]
        total += int((np.einsum("ij,ij->i", apart, apart) <= square).sum())
    return total - len(crowd.rows)


def _ours_both(crowd: Crowd) -> int:
    return agreement(crowd.rows, crowd.columns, radius=crowd.radius).both


def _counted(crowd: Crowd) -> int:
    tree = cKDTree(crowd.columns)
    return int(tree.count_neighbors(tree, crowd.radius)) - len(crowd.columns)


def _weighed(crowd: Crowd) -> int:
    """SciPy's count with equal places as one, each with a weight."""
    places, at = distinct(crowd.columns)
    weights, tree = np.bincount(at).astype(float), cKDTree(places)
    count = tree.count_neighbors(tree, crowd.radius, weights=(weights, weights))
    return round(float(count)) - len(crowd.columns)


def _our_matched(graph: csr_array) -> Any:
    kernels = import_module("coatcheck.tasks.solvers.maximum_kernels")
    return kernels.matched(graph.indptr, graph.indices, graph.shape[1])


@dataclass(frozen=True)
class Task:
    """What is solved, the crowds, and the ways; the first way is ours."""

    crowds: Mapping[str, Callable[[int], Any]]
    ways: Mapping[str, Callable[[Any], Any]]


def _size(partners: Any) -> int:
    return int((np.asarray(partners) >= 0).sum())


def _dealt(partners: Any, columns: int) -> int:
    return int((partners < columns).sum())


TASKS: Final = {
    "maximum matching": Task(
        MAXIMUM,
        {
            "ours": lambda c: _size(maximum.maximum(c.rows, c.columns, radius=c.radius)),
            "all pairs, bipartite": lambda c: _size(_matched(_graph(c))),
            "near pairs, bipartite": lambda c: _size(_plainly(c)),
            "places, maximum_flow": lambda c: _dealt(*_flow(Network.between(c))),
        },
    ),
    "pairs listed in the plane": Task(
        {name: MAXIMUM[name] for name in list(MAXIMUM)[:4]},
        {
            "ours": lambda c: _listed(c.rows, c.columns, c.radius).nnz,
            "sparse_distance_matrix": lambda c: _graph(c).nnz,
        },
    ),
    "matching on listed pairs": Task(
        {name: MAXIMUM[name] for name in list(MAXIMUM)[:5]},
        {
            "ours": lambda g: _size(_our_matched(g)),
            "maximum_bipartite_matching": lambda g: _size(_matched(g)),
        },
    ),
    "flow between places": Task(
        {name: MAXIMUM[name] for name in list(MAXIMUM)[3:]},
        {
            "ours": _our_flows,
            "sparse_distance_matrix, maximum_flow": lambda n: int(_flows(n)[2].sum()),
        },
    ),
    "least cost": Task(
        LEAST_COST,
        {
            "ours": lambda c: assignment.assign(c.rows, c.columns).cost,
            "dense": lambda c: assignment.dense(c.rows, c.columns).cost,
            "all pairs, sparse": _complete,
            "24 nearest, sparse": _nearest,
            "places, linprog": _places_program,
        },
    ),
    "least expected cost": Task(
        EXPECTED,
        {
            "ours": lambda table: ship(*table).cost,
            "dense": lambda table: _units(*table),
            "kinds, linprog": lambda table: _program(*table),
        },
    ),
    "close pairs": Task(
        PAIRS,
        {
            "ours": lambda c: close_pairs(c.columns, radius=c.radius),
            "count_neighbors": _counted,
            "weighted count_neighbors": _weighed,
        },
    ),
    "pairs close twice (with both counts)": Task(
        PAIRS, {"ours": _ours_both, "sparse_distance_matrix": _both}
    ),
}


# -- measuring


def main() -> int:
    """Print the table, which has no targets."""
    options = dict(zip(sys.argv, sys.argv[1:], strict=False))
    sizes = [int(size) for size in options["--sizes"].split(",")] if "--sizes" in options else SIZES
    limit, only = float(options.get("--seconds", SECONDS)), options.get("--only", "")
    for name, task in TASKS.items():
        crowds = [crowd for crowd in task.crowds if only in f"{name}: {crowd}"]
        if not crowds:
            continue
        print(f"\n| {name} | people | {' | '.join(task.ways)} |")
        print("|---" * (2 + len(task.ways)) + "|")
        failed: set[tuple[str, str]] = set()
        for crowd, size in product(crowds, sizes):
            cells, ours = [], None
            for way in task.ways:
                row: Any = "not tried"
                if (crowd, way) not in failed:
                    row = _measured(name, crowd, way, size, limit)
                if isinstance(row, str):
                    failed.add((crowd, way))
                    cells.append(row)
                    continue
                ours = ours or row
                if row is not ours and row["seconds"] > min(
                    limit / 10, _HOPELESS * max(ours["seconds"], 0.01)
                ):
                    failed.add((crowd, way))
                cells.append(_told(row, ours))
            print(f"| {crowd} | {size:,} | {' | '.join(cells)} |", flush=True)
    return 0


def _told(row: dict[str, float], ours: dict[str, float]) -> str:
    """One cell: seconds, the ratio to ours, memory, and how far the answer is from ours."""
    text = f"{row['seconds']:.3g} s"
    if row is not ours:
        text += f" ({row['seconds'] / ours['seconds']:.2g}x)"
    text += f", {row['peak']:.2f} GB"
    off = row["answer"] / ours["answer"] - 1 if ours["answer"] else 0.0
    return text if abs(off) < 1e-9 else f"{text}, answer {off:+.2%}"


def _measured(task: str, crowd: str, way: str, size: int, limit: float) -> dict[str, float] | str:
    words = [sys.executable, "-m", "bench._solvers", task, crowd, way, str(size), str(limit)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - our own program, by our own interpreter
            words, check=False, capture_output=True, text=True, timeout=4 * limit + 60, env=alone
        )
    except subprocess.TimeoutExpired:
        return f"over {limit:g} s"
    if done.returncode < 0:
        return f"over {limit:g} s"  # the limit of the processor's seconds ended it
    if "MemoryError" in done.stderr:
        return "over 8 GB"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:60]
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _child(task: str, crowd: str, way: str, size: int, limit: float) -> None:
    solve = TASKS[task].ways[way]
    for count in (300, 3_000) if way == "ours" else (300,):
        solve(_drawn(task, crowd, count))
    if way == "ours" and task == "maximum matching":  # whichever of its loops the crowd needs
        solve(MAXIMUM["grid, radius 0.11"](3_000))
        solve(MAXIMUM["anywhere, degree 3"](3_000))
    problem = _drawn(task, crowd, size)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    most = int(time.process_time() + limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    turns, spent, start = 0, 0.0, time.process_time()
    while not turns or spent < _ENOUGH:
        try:
            answer = float(solve(problem))
        except MemoryError:
            sys.exit("over 8 GB")
        turns, spent = turns + 1, time.process_time() - start
    print(json.dumps({"seconds": spent / turns, "peak": peak(), "answer": answer}))


def _drawn(task: str, crowd: str, size: int) -> Any:
    problem = TASKS[task].crowds[crowd](size)
    if task == "flow between places":
        return Network.between(problem)
    return _graph(problem) if task == "matching on listed pairs" else problem


if __name__ == "__main__":
    _, *words = sys.argv
    _child(words[0], words[1], words[2], int(words[3]), float(words[4]))
