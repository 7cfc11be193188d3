"""How long accounting takes: amplify, calibrate, plan and composition, beside the plain sum.

The plain sum is the same right-hand side, δ ≤ (1/n) E[(G_1 + ... + G_n)_+], evaluated over every
number of clones with whole vectors and nothing else thought of: what one writes first. Both solve
for ε with the same number of evaluations in mind; ratios are of one run.
"""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from scipy import optimize, stats

from bench import Figure, show
from coatcheck.accounting import hockeystick
from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.accounting.composition import calibrate_rounds, compose
from coatcheck.accounting.laws import AnyLdp, Law, minkowski
from coatcheck.domains import Box
from coatcheck.planning import Group, plan

CROWDS: Final = tuple(int(10**power) for power in np.linspace(3, 8, 21))
LOCAL: Final = 4.0
REPEATS: Final = 9  # the least of them is what the code costs without other load


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    return show([*_amplify(), *_calibrate(), *_ratios(), *_rest()])


def _seconds(job: Callable[[], object], repeats: int = REPEATS) -> float:
    """Time the quickest of a few runs, each with nothing remembered from the one before."""
    times = []
    for _ in range(repeats):
        for known in (hockeystick._masses, hockeystick._rows, hockeystick._rest):  # noqa: SLF001 - a fair start
            known.cache_clear()
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def _laws() -> dict[str, Callable[[float], Law]]:
    square = partial(minkowski, radius=0.37, dimension=2)
    return {"generic": lambda x: AnyLdp(epsilon=x), "minkowski": square}


def _amplify() -> list[Figure]:
    found = []
    for name, make in _laws().items():
        times = [
            _seconds(partial(amplify, make(LOCAL), crowd=n, delta=0.01 / n)) * 1e3 for n in CROWDS
        ]
        median = statistics.median(times)
        found += [
            Figure(what=f"amplify, {name}, median of n", value=median, unit="ms", target=5.0),
            Figure(what=f"amplify, {name}, slowest n", value=max(times), unit="ms", target=60.0),
        ]
    return found


def _calibrate() -> list[Figure]:
    found = []
    for name, make in _laws().items():
        times = [
            _seconds(partial(calibrate, make, epsilon=1.0, crowd=n, delta=0.01 / n)) * 1e3
            for n in CROWDS
        ]
        found.append(
            Figure(what=f"calibrate, {name}, slowest n", value=max(times), unit="ms", target=60.0)
        )
    return found


def _ratios() -> list[Figure]:
    """Compare with the plain sum where that fits into memory and patience."""
    found = []
    for n in (1_000, 10_000, 100_000, 1_000_000):
        law = AnyLdp(epsilon=LOCAL)
        ours = _seconds(partial(amplify, law, crowd=n, delta=0.01 / n))
        plain = _seconds(partial(_plain_epsilon, LOCAL, n, 0.01 / n), 3)
        mine = amplify(law, crowd=n, delta=0.01 / n).epsilon
        theirs = _plain_epsilon(LOCAL, n, 0.01 / n)
        found += [
            Figure(what=f"plain sum : amplify, n = {n:,}", value=plain / ours, unit="x"),
            Figure(what=f"ε above the plain sum's, n = {n:,}", value=mine / theirs - 1, unit=""),
        ]
    return found


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


def _rest() -> list[Figure]:
    square = {"all": Group(Box((-1, -1), (1, 1)), crowd=10_000)}
    planned = _seconds(partial(plan, square, epsilon=1.0, delta=1e-6), 2)
    law = AnyLdp(epsilon=4.276)
    season = partial(compose, law, crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    back = partial(calibrate_rounds, epsilon=1.0, crowd=10_000, delta=2e-7, rounds=80, sampled=0.2)
    composed, calibrated = _seconds(season), _seconds(back)
    return [
        Figure(what="plan, one group on a square", value=planned, unit="s", target=3.0),
        Figure(what="compose 80 rounds", value=composed, unit="s", target=1.0),
        Figure(what="calibrate 80 rounds", value=calibrated, unit="s", target=1.0),
    ]
