"""Tools to predict errors: evenly spread nodes, places of extreme error, and a minimiser.

Errors are averaged over fixed points instead of random draws: the additive recurrence of Roberts
(2018) with the generalised golden ratio. It is deterministic, so a search over radii sees a
smooth function, and a few thousand points are accurate to about 1e-3.
"""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GRID: Final = 11  # places along an axis of a quadrant of the square where the worst is sought
_CLOSE: Final = 1e-3  # the finest difference between two arguments of `least`


def unit_ball(p: float, uniforms: Floats) -> Floats:
    """Map uniforms of shape (n, d + 1) onto the continuous unit l_p ball, measure for measure.

    Coordinates Gamma(1/p) to the power 1/p with signs, over the sum plus an exponential
    (Barthe et al. 2005); a cube needs only the first d.
    """
    sides = 2 * uniforms[:, :-1] - 1
    if p == math.inf:
        return sides
    gammas = _gammas(p, np.abs(sides))
    whole = gammas.sum(axis=1) - np.log(uniforms[:, -1])
    sizes: Floats = (gammas / whole[:, None]) ** (1 / p)
    return np.copysign(sizes, sides)


def _gammas(p: float, uniforms: Floats) -> Floats:
    """Return the quantiles of Gamma(1/p), by the quick formulas where there are some."""
    if p == 1:
        return -np.log1p(-uniforms)
    from scipy import special  # noqa: PLC0415 - slow to load, and seldom needed

    if p == 2:
        roots: Floats = special.erfinv(uniforms)
        return roots * roots
    return np.asarray(special.gammaincinv(1 / p, uniforms), dtype=np.float64)


@lru_cache(maxsize=8)
def evenly(size: int, *, dimension: int, p: float, extra: int) -> tuple[Floats, Floats]:
    """Return places (size, dimension) of the unit l_p ball and uniforms (size, extra) beside."""
    total = dimension + 1 + extra
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (total + 1))
    steps = ratio ** -np.arange(1.0, total + 1)
    table = (0.5 + np.outer(np.arange(1, size + 1), steps)) % 1.0
    table = np.clip(table, 1e-12, 1 - 1e-12)
    places = unit_ball(p, table[:, : dimension + 1])
    uniforms = table[:, dimension + 1 :].copy()
    places.flags.writeable = uniforms.flags.writeable = False
    return places, uniforms


@lru_cache(maxsize=8)
def evenly_twice(size: int, *, dimension: int, p: float) -> tuple[Floats, Floats]:
    """Return places of the unit l_p ball and, beside each, an offset from the same ball."""
    places, uniforms = evenly(size, dimension=dimension, p=p, extra=dimension + 1)
    offsets = unit_ball(p, uniforms)
    offsets.flags.writeable = False
    return places, offsets


@lru_cache(maxsize=32)
def corners(dimension: int, p: float, *, alike: bool) -> Floats:
    """Return the places (m, dimension) of the unit l_p ball among which the worst is sought.

    A grid of one quadrant up to two dimensions (half of it if the axes are alike); above, the
    rays to the centers of the faces of every kind (one coordinate, two, ... all equal), which
    hold the extremes of a symmetric error.
    """
    if dimension <= 2 and p == math.inf:
        axis = np.linspace(0.0, 1.0, _GRID)
        grid = itertools.product(axis, repeat=dimension)
        return np.array([place for place in grid if place[0] >= place[-1] or not alike])
    places = [np.zeros(dimension)]
    for equal in sorted({1, 2, dimension // 2, dimension} & set(range(1, dimension + 1))):
        ray = np.zeros(dimension)
        ray[:equal] = 1.0 if p == math.inf else equal ** (-1 / p)
        places += [ray * t for t in (0.25, 0.5, 0.7, 0.8, 0.9, 1.0)]
    return np.array(places)


def extremes(dimension: int, p: float) -> list[Floats]:
    """Return places of the unit l_p ball that hold the extremes of |x|_2, on any scale of axes."""
    diagonal = np.full(dimension, math.pow(dimension, -1 / p))
    return [np.zeros(dimension), diagonal, *np.eye(dimension)]


def box_median(lo: Floats, hi: Floats, gain: float) -> Floats:
    """Return the median, axis by axis, of a density 1 + gain on lo..hi and 1 elsewhere.

    The marginal distribution function is piecewise linear, so the median has a formula.
    """
    width = np.maximum(hi - lo, 1e-300)
    weight = gain * np.prod(width / 2, axis=1, keepdims=True)
    # (t + 1)/2 + weight (t - lo)/width = (1 + weight)/2, unless t falls before or after the box
    inside = (weight / 2 + weight * lo / width) / (0.5 + weight / width)
    outside = np.where(lo >= weight, weight, -weight)
    median: Floats = np.where((lo >= weight) | (hi <= -weight), outside, inside)
    return median


def least(error: Callable[[float], float], low: float, high: float, *, looks: int) -> float:
    """Return the argument at which a function of one variable is least, as far as the search sees.

    It evaluates the function at `looks` evenly spread arguments; Brent's search then refines the
    lowest valley, and also the second one if it is within a tenth.
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

    nodes: list[float] = np.linspace(low, high, looks).tolist()
    seen = {node: error(node) for node in nodes}
    values = [math.inf, *seen.values(), math.inf]
    valleys = [i for i in range(looks) if values[i] > values[i + 1] <= values[i + 2]]
    lowest = min(seen.values())
    for i in sorted(valleys, key=lambda i: values[i + 1])[:2]:
        if values[i + 1] - lowest <= 0.1 * abs(lowest):
            minimum = optimize.minimize_scalar(
                error,
                bounds=(nodes[max(i - 1, 0)], nodes[min(i + 1, looks - 1)]),
                method="bounded",
                options={"xatol": _CLOSE, "maxiter": 16},
            )
            seen[float(minimum.x)] = float(minimum.fun)
    return min(seen, key=seen.__getitem__)
