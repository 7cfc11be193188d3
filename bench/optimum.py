"""How near the mechanisms that `choose` finds are to the best that any ε-LDP mechanism can do.

The best is a linear program: values are cells of the domain, answers are places, and the chance of
an answer from one value is at most e^ε times that from another. Rotating or mirroring the domain
changes nothing, so one value per orbit is enough. A program with finite cells is not a
proof of optimality; finer ones moved its value by less than 1 % on a line and 2 % elsewhere.
"""

import itertools
import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench import Figure, show
from coatcheck.domains import Ball, Box
from coatcheck.randomizers import Goal, choose

Floats = NDArray[np.float64]

SMALL: Final = (0.5, 1.0, 2.0, 3.0, 5.0)
LINE: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 6.0)
_WITHIN: Final = 6  # places along an axis of a cell over which a distance is averaged


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    return show(list(figures()))


def figures() -> Iterator[Figure]:
    """Yield errors as a ratio to the linear program's, and on balls to answering the middle."""
    line, square = Box((-1.0,), (1.0,)), Box((-1.0, -1.0), (1.0, 1.0))
    disk, cube = Ball(radius=1.0, p=2, dimension=2), Box((-1.0,) * 3, (1.0,) * 3)
    for epsilon in LINE:
        yield _figure("line, mean", line, epsilon, box_optimum(1, 60, epsilon), 1.03)
        best = math.sqrt(box_optimum(1, 60, epsilon, power=2))
        yield _figure("line, squared", line, epsilon, best, 1.05, goal="squared")
        best = line_minimax(61, epsilon)
        yield _figure("line, worst", line, epsilon, best, 1.05, goal="worst")
        best = math.sqrt(line_unbiased(21, 121, epsilon))
        limit = 1.02 if epsilon <= 1 else 1.1 if epsilon <= 3 else 1.22
        yield _figure("line, unbiased", line, epsilon, best, limit, goal="unbiased")
    for epsilon in SMALL:
        yield _figure("square, mean", square, epsilon, box_optimum(2, 15, epsilon), 1.03)
        limit = 1.03 if epsilon <= 3 else 1.06
        yield _figure("l2 disk, mean", disk, epsilon, disk_optimum(epsilon), limit)
    for epsilon in (3.0, 5.0):
        yield _figure("cube, mean", cube, epsilon, box_optimum(3, 7, epsilon), 1.03)
    for p in (1, 2):
        chosen = choose(epsilon=3.0, domain=Ball(radius=1.0, p=p, dimension=6), exact=True)
        ratio = chosen.error / (chosen.report_free or math.nan)
        what = f"l{p} ball, d = 6, ε 3: mean error : answering 0"
        yield Figure(what=what, value=ratio, unit="x", target=0.95)


def _figure(
    what: str,
    domain: Box | Ball,
    epsilon: float,
    best: float,
    target: float,
    *,
    goal: Goal = "mean",
) -> Figure:
    power = 2 if goal in {"squared", "unbiased"} else 1
    chosen = choose(epsilon=epsilon, domain=domain, goal=goal, exact=True)
    label = f"{what}, ε {epsilon:g}: {chosen.randomizer.name} : linear program ({best**power:.4g})"
    return Figure(what=label, value=(chosen.error / best) ** power, unit="x", target=target)


# -- linear programs


def box_optimum(dimension: int, side: int, epsilon: float, *, power: int = 1) -> float:
    """Return the least mean distance on the cube, cut into cells along each axis."""
    middles = (np.arange(side) + 0.5) / side * 2 - 1
    within = ((np.arange(_WITHIN) + 0.5) / _WITHIN - 0.5) * 2 / side
    every = np.array(list(itertools.product(range(side), repeat=dimension)))
    kinds = np.sort(np.maximum(every, side - 1 - every), axis=1)  # mirrored and turned
    values, weights = np.unique(kinds, axis=0, return_counts=True)
    answers = middles[every]
    offsets = np.array(list(itertools.product(within, repeat=dimension)))
    cost = np.zeros((len(values), len(answers)))
    for offset in offsets:
        apart = (middles[values] + offset)[:, None, :] - answers
        cost += np.linalg.norm(apart, axis=2) ** power / len(offsets)
    _, orbit = np.unique(kinds, axis=0, return_inverse=True)
    return _least(cost, weights / weights.sum(), orbit.ravel(), epsilon)


def disk_optimum(epsilon: float, *, rings: int = 12, turns: int = 36) -> float:
    """Return the least mean distance on the unit disk, cut into rings of sectors."""
    radii = (np.arange(rings) + 0.5) / rings
    angles = np.arange(turns) * 2 * math.pi / turns
    answers = (radii[:, None] * np.exp(1j * angles)).ravel()
    within = (np.arange(_WITHIN) + 0.5) / _WITHIN - 0.5
    cost, share = np.zeros((rings, len(answers))), np.zeros(rings)
    for out, turn in itertools.product(within / rings, within * 2 * math.pi / turns):
        lengths = radii + out
        apart = np.abs((lengths * np.exp(1j * turn))[:, None] - answers)
        cost += lengths[:, None] * apart
        share += lengths
    orbit = np.repeat(np.arange(rings), turns)
    return _least(cost / share[:, None], share / share.sum(), orbit, epsilon)


def line_minimax(size: int, epsilon: float) -> float:
    """Return the least mean distance at the worst of the values of a line."""
    line = np.linspace(-1, 1, size)
    values = line[line >= -1e-9]
    _, orbit = np.unique(np.round(np.abs(line), 9), return_inverse=True)
    return _least(np.abs(values[:, None] - line), None, orbit.ravel(), epsilon)


def line_unbiased(size: int, answers: int, epsilon: float) -> float:
    """Return the least mean squared error at the worst value, if every mean is the value."""
    widest = 1.2 / math.tanh(epsilon / 2)  # binary response answers 1 / tanh(ε/2)
    values = np.linspace(0, 1, size)
    line = np.linspace(-widest, widest, answers)
    _, orbit = np.unique(np.round(np.abs(line), 9), return_inverse=True)
    cost = (values[:, None] - line) ** 2
    return _least(cost, None, orbit.ravel(), epsilon, means=(values, line))


def _least(
    cost: Floats,
    weights: Floats | None,
    orbit: Any,
    epsilon: float,
    *,
    means: tuple[Floats, Floats] | None = None,
) -> float:
    """Return the optimum over chances of answers; with no weights, at the worst value.

    With `means`, values and answers, the mean answer from each value is the value.
    The chance of an answer lies between m and e^ε m, with one m for all answers of an orbit.
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import

    sparse: Any = import_module("scipy.sparse")

    kinds, answers = cost.shape
    pairs, orbits = cost.size, int(orbit.max()) + 1
    row = np.arange(pairs)
    of = np.tile(orbit, kinds)
    one = sparse.eye_array(pairs)
    low = sparse.coo_array((np.ones(pairs), (row, of)), (pairs, orbits))
    between = sparse.vstack(
        [sparse.hstack([one, -math.exp(epsilon) * low]), sparse.hstack([-one, low])]
    )
    sums = sparse.coo_array((np.ones(pairs), (np.repeat(np.arange(kinds), answers), row)))
    totals = np.ones(kinds)
    if means is not None:
        place = (np.repeat(np.arange(kinds), answers), row)
        sums = sparse.vstack([sums, sparse.coo_array((np.tile(means[1], kinds), place))])
        totals = np.concatenate([totals, means[0]])
    sums = sparse.hstack([sums, sparse.coo_array((len(totals), orbits))])
    limits = np.zeros(2 * pairs)
    if weights is not None:
        loss = np.concatenate([(weights[:, None] * cost).ravel(), np.zeros(orbits)])
    else:  # one more variable, the worst
        place = (np.repeat(np.arange(kinds), answers), row)
        errors = sparse.coo_array((cost.ravel(), place), (kinds, pairs + orbits))
        worst = sparse.vstack([sparse.coo_array((2 * pairs, 1)), -np.ones((kinds, 1))])
        between = sparse.hstack([sparse.vstack([between, errors]), worst])
        sums = sparse.hstack([sums, sparse.coo_array((len(totals), 1))])
        limits = np.zeros(2 * pairs + kinds)
        loss = np.eye(1, pairs + orbits + 1, pairs + orbits)[0]
    solution: Any = optimize.linprog(
        loss,
        A_ub=between.tocsr(),
        b_ub=limits,
        A_eq=sums.tocsr(),
        b_eq=totals,
        method="highs-ipm",
    )
    return float(solution.fun)
