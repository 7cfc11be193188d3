"""Laws of additive noise: Laplace, staircase and square wave per coordinate, and planar Laplace.

For noise per coordinate, each coordinate of a value lies in [-1, 1], and two opposite ends are the
worst pair of values. Planar Laplace noise has the density e^(-s|y - x|) in every direction; the two
farthest values of a ball are the worst pair. Their ratios have no formula: space is cut into cells,
and in each cell the ratios are spread over the ends of their range with their mean, then over the
points of a grid. Proofs: docs/explanation/amplification.md, section 6.
"""

import itertools
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import gammaln

from coatcheck.accounting.laws import AnyLdp, Fieldwise, Ratios, TwoLevel, minkowski
from coatcheck.accounting.numerics import Array, check_epsilon
from coatcheck.errors import Misuse

# More ratios than this would make a law slow to sum.
_MAX_RATIOS: Final = 700
_STEPS: Final = 64
# More than the rounding errors of a probability and a ratio.
_ROUNDING: Final = 1e-13


def safe(
    logs: Mapping[tuple[float, float], float], *, doubt: float = _ROUNDING
) -> tuple[tuple[float, float, float], ...]:
    """Return the (R0/m, R1/m, m) of logs of ratios, with m rounded down, R0 up and R1 down.

    A smaller m is a spread, and a larger R0 and a smaller R1 raise G. `doubt` bounds the relative
    error of each.
    """
    up, down = 1 + 3 * doubt, 1 - doubt
    return tuple(
        (math.exp(x) * up, math.exp(y) * down, mass * down)
        for (x, y), mass in sorted(logs.items())
        if mass > 0
    )


@lru_cache(maxsize=64)
def laplace(epsilon: float, *, dimension: int = 1) -> Ratios | AnyLdp:
    """Return the law of Laplace noise on every coordinate, each of which spends ε/d.

    Rounding the log of a coordinate's ratio to the points of a grid spreads it.
    """
    check_epsilon(epsilon)
    if dimension < 1:
        raise Misuse(f"`dimension` must be at least 1, not {dimension}")
    steps = next((n for n in range(_STEPS, 0, -1) if _kinds(n, dimension) <= _MAX_RATIOS), 0)
    if epsilon == 0 or not steps:
        return AnyLdp(epsilon=epsilon)
    share = epsilon / dimension
    width = share / steps
    end = math.exp(-share) / (1 + math.exp(-width / 2))
    half = math.tanh(width / 4) * math.exp(-share / 2)  # (q - 1)/(q + 1) with q = e^(width/2)
    single = {(0, 0): half, (steps, 0): end, (0, steps): end}
    for step in range(1, steps):
        single[step, 0] = single[0, step] = half * math.exp(-step * width / 2)
    whole = {(0, 0): 1.0}
    for _ in range(dimension):
        more: dict[tuple[int, int], float] = {}
        for ((x, y), mass), ((i, j), chance) in itertools.product(whole.items(), single.items()):
            more[x + i, y + j] = more.get((x + i, y + j), 0.0) + mass * chance
        whole = more
    logs = {(x * width, y * width): mass for (x, y), mass in whole.items()}
    return Ratios(epsilon=epsilon, atoms=safe(logs))


def _kinds(steps: int, dimension: int) -> int:
    """Count the points (x, y) with x up to k times `steps` and y up to d - k times, for some k."""
    return 1 + 2 * dimension * steps + math.comb(dimension, 2) * steps**2


def staircase(epsilon: float, *, within: float, dimension: int = 1) -> Fieldwise:
    """Return the law of staircase noise on every coordinate, each of which spends ε/d.

    Over two steps of the stair the density falls by e^(ε/d), so that a report is as likely as
    under the blanket, or e^(ε/d) times as likely.

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
    """Return the law of a square wave of a radius on every coordinate, each of which spends ε/d."""
    law = minkowski(epsilon / dimension, radius=radius, dimension=1)
    return Fieldwise(laws=(law,) * dimension)


# Points of the grid along each axis of logs of ratios, and the largest ε it is used for.
_PLANAR_STEPS: Final = 32
_LARGEST: Final = 24.0
# Points of Gauss's rule along each side of a cell.
_POINTS: Final = 10
# Halvings of cells towards the value, where the density has its peak.
_HALVINGS: Final = 18
# The most that the chances of a value may miss 1, summed over all cells.
_DOUBT: Final = 1e-12


@lru_cache(maxsize=64)
def planar_laplace(epsilon: float, *, dimension: int) -> Ratios | AnyLdp:
    """Return the law of noise whose density falls by e^ε over the diameter of a ball of values."""
    check_epsilon(epsilon)
    if dimension == 1:
        return laplace(epsilon)
    if not 0 < epsilon <= _LARGEST:
        return AnyLdp(epsilon=epsilon)
    first, second, mass, ends = _cells(epsilon / 2, dimension)
    off = abs(float((first + second).sum()) - 1)
    if off > _DOUBT:
        return AnyLdp(epsilon=epsilon)
    masses = np.zeros((_PLANAR_STEPS + 1, _PLANAR_STEPS + 1))
    for x, y, part in _corners(first, second, mass, ends):
        _onto_grid(
            masses,
            x * _PLANAR_STEPS / epsilon,
            y * _PLANAR_STEPS / epsilon,
            part,
            epsilon / _PLANAR_STEPS,
        )
    masses += masses.T  # the other half of space
    width = epsilon / _PLANAR_STEPS
    logs = {
        (i * width, j * width): float(masses[i, j])
        for i, j in zip(*np.nonzero(masses), strict=True)
    }
    return Ratios(epsilon=epsilon, atoms=safe(logs, doubt=_DOUBT))


def _edges(s: float, dimension: int) -> tuple[Array, Array]:
    """Cut distances from the middle and angles to the first value; the last cell has no end."""
    close = 2.0 ** -np.arange(_HALVINGS + 1)
    far = (45 + 2 * s + 3 * dimension) / s
    step = min(0.25, 0.25 / s)
    r = np.concatenate([1 - close, 1 + close, np.arange(step, 3, step), [1.0]])
    beyond = [3.0]
    while beyond[-1] < far:
        beyond.append(beyond[-1] + min(0.2 * beyond[-1], 1 / s))
    angles = np.concatenate([math.pi / 2 * close, np.arange(0, math.pi / 2, min(0.1, 0.2 / s))])
    return np.unique(np.concatenate([r, beyond])), np.unique(np.append(angles, 0.0))


def _cells(s: float, d: int) -> tuple[Array, Array, Array, tuple[Array, ...]]:
    """Return R0, R1 and m of each cell of the half space next to the first value.

    Also return the ends of ln R0/m and ln R1/m in each cell: both rise with the distance from the
    middle; the former falls with the angle, the latter rises.
    """
    r, angle = _edges(s, d)
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    nodes, weights = (nodes + 1) / 2, weights / 2
    across = (r[:-1, None] + np.diff(r)[:, None] * nodes).ravel()
    around = (angle[:-1, None] + np.diff(angle)[:, None] * nodes).ravel()
    wide = (np.diff(r)[:, None] * weights).ravel()[:, None] * (
        np.diff(angle)[:, None] * weights
    ).ravel()
    with np.errstate(divide="ignore"):
        log = d * math.log(s) - gammaln(d) + (d - 1) * np.log(across)[:, None]
        log = log + (d - 2) * np.log(np.sin(around))
    log -= math.lgamma((d - 1) / 2) + math.log(math.pi) / 2 - math.lgamma(d / 2)
    shape = (r.size - 1, _POINTS, angle.size - 1, _POINTS)

    def chance(distance: Array) -> Array:
        weights = (wide * np.exp(log - s * distance)).reshape(shape)
        return np.asarray(weights.sum(axis=(1, 3)))

    near, away = _distances(across, around)
    first, second, mass = chance(near), chance(away), chance(1 + across[:, None])
    at_near, at_away = (s * (1 + r[:, None] - x) for x in _distances(r, angle))
    ends = at_near[:-1, 1:], at_near[1:, :-1], at_away[:-1, :-1], at_away[1:, 1:]
    return first, second, mass, ends


def _distances(r: Array, angle: Array) -> tuple[Array, Array]:
    """Return the distances to the two values, which lie 1 from the middle on either side."""
    r = r[:, None]
    near = np.sqrt((r - 1) ** 2 + 4 * r * np.sin(angle / 2) ** 2)
    away = np.sqrt((r - 1) ** 2 + 4 * r * np.cos(angle / 2) ** 2)
    return near, away


def _corners(
    first: Array, second: Array, mass: Array, ends: tuple[Array, ...]
) -> list[tuple[Array, Array, Array]]:
    """Spread both ratios of each cell over their ends, one high where the other is low."""
    positive = mass > 0
    low, high, least, most = (end[positive] for end in ends)
    first, second, mass = first[positive], second[positive], mass[positive]
    up = _weight(first / mass, low, high)
    down = 1 - _weight(second / mass, least, most)
    both, neither = np.minimum(up, down), 1 - np.maximum(up, down)
    return [
        (high, least, mass * both),
        (low, most, mass * neither),
        (high, most, mass * np.maximum(up - down, 0)),
        (low, least, mass * np.maximum(down - up, 0)),
    ]


def _weight(mean: Array, low: Array, high: Array) -> Array:
    """Return the chance of the higher end with which a lottery over both has this mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (mean * np.exp(-low) - 1) / np.expm1(high - low)
    return np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)


def _onto_grid(masses: Array, x: Array, y: Array, mass: Array, width: float) -> None:
    """Spread ratios over the points of the grid around them; one draw decides both directions."""
    i, j = (np.clip(np.floor(z), 0, _PLANAR_STEPS - 1).astype(np.intp) for z in (x, y))
    up, over = (np.expm1((z - k) * width) / math.expm1(width) for z, k in ((x, i), (y, j)))
    up, over = np.clip(up, 0.0, 1.0), np.clip(over, 0.0, 1.0)
    np.add.at(masses, (i + 1, j + 1), mass * np.minimum(up, over))
    np.add.at(masses, (i + 1, j), mass * np.maximum(up - over, 0))
    np.add.at(masses, (i, j + 1), mass * np.maximum(over - up, 0))
    np.add.at(masses, (i, j), mass * (1 - np.maximum(up, over)))
