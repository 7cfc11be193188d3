"""The laws of mechanisms that add noise to each coordinate: Laplace, staircase and square wave.

Each coordinate of a value lies in [-1, 1]. The proofs, and why no other pair of values is worse
than two opposite ends, are in docs/explanation/amplification.md, section 6.
"""

import itertools
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from coatcheck.accounting.laws import AnyLdp, Fieldwise, Ratios, TwoLevel, minkowski
from coatcheck.accounting.limits import check_epsilon
from coatcheck.errors import Misuse

# Ratios of a law up to which it is quick to sum.
_MOST: Final = 700
_STEPS: Final = 64
# More than the rounding errors of a chance and a ratio.
_ROUNDING: Final = 1e-13


def safe(
    logs: Mapping[tuple[float, float], float], *, doubt: float = _ROUNDING
) -> tuple[tuple[float, float, float], ...]:
    """Give the (R0/m, R1/m, m) of logs of ratios: m rounded down, R0 up and R1 down.

    A smaller m is a spread, and a larger R0 and a smaller R1 raise G. All of them are off by less
    than `doubt`, relatively.
    """
    up, down = 1 + 3 * doubt, 1 - doubt
    return tuple(
        (math.exp(x) * up, math.exp(y) * down, mass * down)
        for (x, y), mass in sorted(logs.items())
        if mass > 0
    )


@lru_cache(maxsize=64)
def laplace(epsilon: float, *, dimension: int = 1) -> Ratios | AnyLdp:
    """Give the law of Laplace noise on every coordinate, each of which spends ε/d.

    The log of a coordinate's ratio is put on the points of a grid, which spreads it.
    """
    check_epsilon(epsilon)
    if dimension < 1:
        raise Misuse(f"a value has at least 1 coordinate, not {dimension}")
    steps = next((n for n in range(_STEPS, 0, -1) if _kinds(n, dimension) <= _MOST), 0)
    if epsilon == 0 or not steps:
        return AnyLdp(epsilon=epsilon)
    share = epsilon / dimension
    width = share / steps
    end = math.exp(-share) / (1 + math.exp(-width / 2))
    half = math.tanh(width / 4) * math.exp(-share / 2)  # (q - 1)/(q + 1) with q = e^(width/2)
    one = {(0, 0): half, (steps, 0): end, (0, steps): end}
    for step in range(1, steps):
        one[step, 0] = one[0, step] = half * math.exp(-step * width / 2)
    whole = {(0, 0): 1.0}
    for _ in range(dimension):
        more: dict[tuple[int, int], float] = {}
        for ((x, y), mass), ((i, j), chance) in itertools.product(whole.items(), one.items()):
            more[x + i, y + j] = more.get((x + i, y + j), 0.0) + mass * chance
        whole = more
    logs = {(x * width, y * width): mass for (x, y), mass in whole.items()}
    return Ratios(epsilon=epsilon, atoms=safe(logs))


def _kinds(steps: int, dimension: int) -> int:
    """Count the points (x, y) with x up to k times `steps` and y up to d - k times, for some k."""
    return 1 + 2 * dimension * steps + math.comb(dimension, 2) * steps**2


def staircase(epsilon: float, *, within: float, dimension: int = 1) -> Fieldwise:
    """Give the law of staircase noise on every coordinate, each of which spends ε/d.

    Over two steps of the stair the density falls by e^(ε/d), so that a report is as likely as
    under the blanket or e^(ε/d) times as likely.

    Args:
        epsilon: the local ε of all coordinates together.
        within: the chance of noise of at most 1, half the width of the domain.
        dimension: d.
    """
    check_epsilon(epsilon)
    share = epsilon / dimension
    cap = within / math.expm1(share) * (1 + _ROUNDING)
    return Fieldwise(laws=(TwoLevel(epsilon=share, cap=cap, apart=cap),) * dimension)


def square_wave(epsilon: float, *, radius: float, dimension: int = 1) -> Fieldwise:
    """Give the law of a square wave of a radius on every coordinate, each of which spends ε/d."""
    one = minkowski(epsilon / dimension, radius=radius, dimension=1)
    return Fieldwise(laws=(one,) * dimension)
