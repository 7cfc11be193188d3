"""Laws of additive noise: Laplace, staircase and square wave per coordinate, and planar Laplace.

For noise per coordinate, each coordinate of a value lies in [-1, 1], and two opposite ends are the
worst pair of values. Planar Laplace noise has the density e^(-s|y - x|) in every direction; the two
farthest values of a ball are the worst pair. Their ratios have no formula: space is cut into cells,
and in each cell the ratios are spread over the ends of their range with their mean, then over the
points of a grid. The error of each cell's integrals is bounded and granted.
Proofs: docs/explanation/amplification.md, section 6.
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
_POINTS: Final = 16
# Halvings of cells towards the value, where the density has its peak.
_HALVINGS: Final = 18
# More dimensions than this are not cut into cells: their exponents would lose too many digits.
_MOST_DIMENSIONS: Final = 24
# More than the relative rounding errors of a cell: its exponents stay below 1500.
_CELL_ROUNDING: Final = 1e-12
# The ellipses on which the errors of Gauss's rule are bounded; the least of the bounds counts.
_ELLIPSES: Final = np.geomspace(1.3, 64, 24)[:, None, None]


@lru_cache(maxsize=64)
def planar_laplace(epsilon: float, *, dimension: int) -> Ratios | AnyLdp:
    """Return the law of noise whose density falls by e^ε over the diameter of a ball of values.

    The chances of the first value are rounded up by the proven error of their integrals, and those
    of the second down.
    """
    check_epsilon(epsilon)
    if dimension == 1:
        return laplace(epsilon)
    if not 0 < epsilon <= _LARGEST or dimension > _MOST_DIMENSIONS:
        return AnyLdp(epsilon=epsilon)
    first, second, mass, ends = _cells(epsilon / 2, dimension)
    errors = _errors(epsilon / 2, dimension)
    if (errors[2] > 0.1 * _CELL_ROUNDING * mass).any():
        return AnyLdp(epsilon=epsilon)
    width = epsilon / _PLANAR_STEPS
    masses = np.zeros((_PLANAR_STEPS + 1, _PLANAR_STEPS + 1))
    corners = _corners(first + errors[0], np.maximum(second - errors[1], 0.0), mass, ends)
    for x, y, part in corners:
        _onto_grid(masses, x / width, y / width, part, width)
    # Of the space beyond the last cell only the range of the ratios is used.
    masses[-1, 0] += _beyond(epsilon / 2, dimension)
    masses += masses.T  # the other half of space
    logs = {
        (i * width, j * width): float(masses[i, j])
        for i, j in zip(*np.nonzero(masses), strict=True)
    }
    return Ratios(epsilon=epsilon, atoms=safe(logs, doubt=4 * _CELL_ROUNDING))


def _far(s: float, dimension: int) -> float:
    """Return s times a distance from the middle beyond which hardly any report lies."""
    return 45 + 2 * s + 3 * dimension


def _beyond(s: float, dimension: int) -> float:
    """Return the blanket's mass beyond the last cell, in half of space."""
    far = s * float(_edges(s, dimension)[0][-1])
    terms = (far**j / math.factorial(j) for j in range(dimension))
    return math.exp(-s - far) * math.fsum(terms) / 2


def _edges(s: float, dimension: int) -> tuple[Array, Array]:
    """Cut distances from the middle and angles to the first value; the last cell has no end."""
    close = 2.0 ** -np.arange(_HALVINGS + 1)
    far = _far(s, dimension) / s
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


def _errors(s: float, d: int) -> tuple[Array, Array, Array]:
    """Bound the errors of Gauss's rule in R0, R1 and m of each cell; infinite next to the peak.

    For a function that is analytic and at most M on the ellipse with the ends of a side as foci and
    semi-axes of ρ + 1/ρ and ρ - 1/ρ quarters of the side, n points miss its mean by at most
    4M ρ^(-2n)/(1 - 1/ρ).
    """
    r, angle = _edges(s, d)
    inner, outer = r[:-1, None], r[1:, None]
    r, h = (inner + outer) / 2, (outer - inner) / 2
    first, last = angle[None, :-1], angle[None, 1:]
    angle, k = (first + last) / 2, (last - first) / 2
    # How far the ellipses reach from the middle of a cell, along each side.
    a, b = ((_ELLIPSES + 1 / _ELLIPSES) / 2 * side for side in (h, k))
    unit = d * math.log(s) - math.lgamma(d) - math.lgamma((d - 1) / 2) + math.lgamma(d / 2)
    unit -= math.log(math.pi) / 2
    # Twice the bound, for its own rounding.
    log = unit + math.log(8) - 2 * _POINTS * np.log(_ELLIPSES) - np.log1p(-1 / _ELLIPSES)
    log = log + np.log(4 * h * k)
    along = log + (d - 1) * np.log(r + a) + (d - 2) * np.log(np.sin(last))
    sine = np.sin(angle) * np.cosh(b) + np.cos(angle) * np.sinh(b)
    across = log + (d - 1) * np.log(outer) + (d - 2) * np.log(sine)

    def least(distance: Array, step: Array, speed: Array, shift: Array) -> Array:
        """Bound the real part of a distance after a complex step, as far as it is analytic."""
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = speed * distance / np.sqrt((distance - shift) * (distance + shift))
            return np.where(shift < distance, distance - step * slope, -np.inf)

    def error(by_radius: Array, by_angle: Array) -> Array:
        with np.errstate(over="ignore"):
            both = [np.exp(along - s * by_radius), np.exp(across - s * by_angle)]
        return np.asarray(sum(part.min(axis=0) for part in both))

    found = []
    for which, nearest in ((0, first), (1, last)):
        far = _distance(r, nearest, which)
        middle = np.maximum(_distance(r, angle, which) - h, 0.0)
        turned = least(middle, b, np.exp(b), np.expm1(b))
        found.append(error(least(far, a, np.ones(1), a), turned))
    return found[0], found[1], error(1 + r - a, 1 + inner)


def _distance(r: Array, angle: Array, value: int) -> Array:
    """Return the distance to a value, 0 or 1; the two lie 1 from the middle on either side."""
    part = np.cos(angle / 2) if value else np.sin(angle / 2)
    return np.asarray(np.sqrt((r - 1) ** 2 + 4 * r * part**2))


def _distances(r: Array, angle: Array) -> tuple[Array, Array]:
    """Return the distances of all pairs of r and angle to the two values."""
    return _distance(r[:, None], angle, 0), _distance(r[:, None], angle, 1)


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
