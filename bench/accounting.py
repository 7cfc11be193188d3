"""How long accounting takes: amplify, calibrate, plan and composition, beside the plain sum.

The plain sum is the same right-hand side, δ ≤ (1/n) E[(G_1 + ... + G_n)_+], evaluated over every
number of clones with whole vectors and no other optimization: the obvious first version. Both solve
for ε with about the same number of evaluations; ratios are of one run.

COATCHECK_PUBLISHED in the environment may name a checkout of apple/ml-shuffling-amplification
(Feldman, McMillan and Talwar 2021); then its program is timed as well, in the same run.
"""

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from scipy import optimize, stats

from bench import Figure, show
from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.accounting.composition import calibrate_rounds, compose
from coatcheck.accounting.laws import AnyLdp, Clones, Fieldwise, Law, bounded, grid, minkowski
from coatcheck.accounting.noise_laws import laplace, planar_laplace, staircase
from coatcheck.domains import Box
from coatcheck.planning import Group, plan

CROWDS: Final = tuple(int(10**power) for power in np.linspace(3, 9, 13))
LOCAL: Final = 4.0
_REMEMBERED: Final = (
    hockey_stick._masses,  # noqa: SLF001 - a fair start
    hockey_stick._rows,  # noqa: SLF001 - as above
    hockey_stick._rest,  # noqa: SLF001 - as above
    hockey_stick._columns,  # noqa: SLF001 - as above
)
REPEATS: Final = 9  # the least of them is what the code costs without other load


def main() -> int:
    """Measure and print; return 1 if a target is missed.

    Targets are multiples of the plain sum among 10,000 people, which took 43 ms on a quiet core.
    """
    plain = _seconds(partial(_plain_epsilon, LOCAL, 10_000, 1e-6), 5)
    first = Figure(what="the plain sum, n = 10,000", value=plain * 1e3, unit="ms")
    timed = [*_amplify(plain), *_calibrate(plain), *_rest(plain)]
    return show([first, *timed, *_ratios(), *_published()])


def _beside(what: str, seconds: float, plain: float, target: float) -> list[Figure]:
    """Return a time, and the same in plain sums, which has a target."""
    return [
        Figure(what=what, value=seconds * 1e3, unit="ms"),
        Figure(what="  in plain sums", value=seconds / plain, unit="x", target=target),
    ]


def _seconds(job: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the least processor time of a few runs, each with empty caches."""
    times = []
    for _ in range(repeats):
        for cached in _REMEMBERED:
            cached.cache_clear()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def _laws() -> dict[str, Callable[[float], Law]]:
    square = partial(minkowski, radius=0.37, dimension=2)
    return {"generic": lambda x: AnyLdp(epsilon=x), "minkowski": square}


def _every_law() -> dict[str, Law]:
    """Return a law of every kind; those with many ratios are made once and cached."""
    inner = (1 - math.exp(-LOCAL)) / 2
    return {name: make(LOCAL) for name, make in _laws().items()} | {
        "l2 disc with the lens": minkowski(LOCAL, radius=1.5, dimension=2, norm=2),
        "bounded": bounded(LOCAL, radius=0.3, dimension=2),
        "k-ary, 1,000 cells": grid(LOCAL, cells=1000),
        "4 fields": Fieldwise(laws=(grid(LOCAL / 4, cells=10),) * 4),
        "staircase, 2 axes": staircase(LOCAL, within=inner, dimension=2),
        "laplace": laplace(LOCAL),
        "laplace, 2 axes": laplace(LOCAL, dimension=2),
        "planar laplace": planar_laplace(LOCAL, dimension=2),
    }


def _amplify(plain: float) -> list[Figure]:
    """Time every law; a quarter of the plain sum is about 10 ms on a quiet core."""
    figures = []
    for name, law in _every_law().items():
        times = [_seconds(partial(amplify, law, crowd=n, delta=0.01 / n)) for n in CROWDS]
        figures += _beside(f"amplify, {name}, median of n", statistics.median(times), plain, 0.25)
        figures += _beside(f"amplify, {name}, slowest n", max(times), plain, 1.0)
    return figures


def _calibrate(plain: float) -> list[Figure]:
    figures = []
    for name, make in _laws().items():
        times = [
            _seconds(partial(calibrate, make, epsilon=1.0, crowd=n, delta=0.01 / n)) for n in CROWDS
        ]
        figures += _beside(f"calibrate, {name}, slowest n", max(times), plain, 1.0)
    return figures


def _ratios() -> list[Figure]:
    """Compare with the plain sum where that fits into memory and patience."""
    figures = []
    for n in (1_000, 10_000, 100_000, 1_000_000):
        law = AnyLdp(epsilon=LOCAL)
        ours = _seconds(partial(amplify, law, crowd=n, delta=0.01 / n))
        plain = _seconds(partial(_plain_epsilon, LOCAL, n, 0.01 / n), 3)
        mine = amplify(law, crowd=n, delta=0.01 / n).epsilon
        theirs = _plain_epsilon(LOCAL, n, 0.01 / n)
        figures += [
            Figure(what=f"plain sum : amplify, n = {n:,}", value=plain / ours, unit="x"),
            Figure(what=f"ε above the plain sum's, n = {n:,}", value=mine / theirs - 1, unit=""),
        ]
    return figures


def _plain_epsilon(local: float, n: int, delta: float) -> float:
    """Solve for ε by the plain sum of the generic law, all clones of any weight at once."""
    p = math.exp(local)
    clones = np.arange(n + 1) if n <= 100_000 else np.arange(int(8 * n / (p + 1)))
    mass = stats.binom.pmf(clones, n, 2 / (p + 1))

    def excess(epsilon: float) -> float:
        e = math.exp(epsilon)
        least = (p * e - 1) * clones / ((p - 1) * (1 + e))
        k = np.floor(least) + 1
        tail, point = stats.binom.sf(k - 1, clones, 0.5), stats.binom.pmf(k, clones, 0.5)
        gain = (clones / 2 - least) * tail + k / 2 * point
        return math.log((p - 1) * (1 + e) / n * float(mass @ gain) + 1e-300) - math.log(delta)

    return float(optimize.brentq(excess, 1e-9, local - 1e-9, xtol=1e-9))


def _published() -> list[Figure]:
    """Time the published program of the clone bound, if there is a checkout of it."""
    where = os.environ.get("COATCHECK_PUBLISHED")
    if not where:
        return []
    sys.path.insert(0, where)
    from computeamplification import numericalanalysis  # type: ignore[import-not-found] # noqa: PLC0415

    figures = []
    for n in (1_000, 10_000, 100_000):
        delta = 0.01 / n
        theirs = _seconds(partial(numericalanalysis, n, LOCAL, delta, 10, 100, upperbound=True), 1)
        ours = _seconds(partial(amplify, Clones(epsilon=LOCAL), crowd=n, delta=delta))
        figures.append(
            Figure(what=f"published : amplify, n = {n:,}", value=theirs / ours, unit="x")
        )
    return figures


def _rest(plain: float) -> list[Figure]:
    """Time plans and repeated rounds; 23 plain sums are about 1 s on a quiet core."""
    square = {"all": Group(Box((-1, -1), (1, 1)), crowd=10_000)}
    law = AnyLdp(epsilon=4.276)
    season = partial(compose, law, crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    back = partial(calibrate_rounds, epsilon=1.0, crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    planned = _seconds(partial(plan, square, epsilon=1.0, delta=1e-6), 2)
    return [
        *_beside("plan, one group on a square", planned, plain, 60.0),
        *_beside("compose 80 rounds", _seconds(season), plain, 23.0),
        *_beside("calibrate 80 rounds", _seconds(back), plain, 23.0),
    ]
