"""Where to put the points of a codebook: Lloyd's iteration with the channel's noise in the loss.

A report names the true cell with probability β, else any. So a point is best put at the median
(or the mean, for squared errors) of where a value can have been: the public places of its own
cell, which count e^ε times, and all others, which count once. And given the points, the best cell
of a place is that of the nearest one. The two steps are repeated until they hardly help. On a
line the points for the worst value are found too. Knows public places only.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.entropy import seeded

Floats = NDArray[np.float64]

_SUMMARY: Final = 512  # places that stand for all of them where they count once
_QUICK: Final = 12
_ROUNDS: Final = 60
_STARTS: Final = 3  # for small codebooks, where a start matters
_FEW: Final = 64
_STILL: Final = 2e-4  # a round that gains a smaller part is one of the last
_GROWTH: Final = 1.35  # between two sizes that are tried

_LINE: Final = 64  # points on a line, for the worst value
_FEWEST: Final = 4  # of them that are close, so that a cap moves in small steps
_SHARES: Final = 9  # of the points that are close, tried
_CURVE: Final = (1.4, -0.25, -0.1)  # about what is best at ε from 2 to 6


def best_places(
    places: Floats,
    *,
    budget: Callable[[int], float],
    size: int | None,
    most: int,
    squared: bool = False,
    quick: bool = False,
) -> Floats:
    """Return points with the least mean distance found, or the least mean squared distance.

    `places` are in the unit of errors; `budget` gives the ε of a codebook by its size.
    """

    def refined(size: int, rounds: int, starts: int = 1) -> tuple[float, Floats]:
        return _refined(places, budget(size), size, rounds=rounds, starts=starts, squared=squared)

    def full(size: int) -> tuple[float, Floats]:
        return refined(size, _ROUNDS, _STARTS if size <= _FEW else 1)

    if size is None:
        tried: dict[int, tuple[float, Floats]] = {}

        def loss(size: int) -> float:
            if size not in tried:
                tried[size] = refined(size, _QUICK)
            return tried[size][0]

        size = _lowest(loss, _sizes(most), _guess(budget(_FEW), places.shape[1]))
        if quick:
            return tried[size][1]
        nearly = sorted(tried, key=loss)[:2]
        return min((full(size) for size in nearly), key=_loss)[1]
    return full(size)[1]


def _loss(tried: tuple[float, Floats]) -> float:
    return tried[0]


def _guess(epsilon: float, dimension: int) -> float:
    """Return about how many cells are best for people who are spread evenly."""
    return float((0.37 * math.exp(min(epsilon, 20.0))) ** (dimension / (dimension + 1)))


def _sizes(most: int) -> list[int]:
    sizes = list(range(1, 9))
    while sizes[-1] * _GROWTH <= most:
        sizes.append(math.ceil(sizes[-1] * _GROWTH))
    return [size for size in sizes if size <= most]


def _lowest(loss: Callable[[int], float], sizes: list[int], guess: float) -> int:
    """Return the size of least loss, walking downhill from a guess and looking two steps ahead."""
    best = min(range(len(sizes)), key=lambda i: abs(math.log(sizes[i] / max(guess, 1.0))))
    while True:
        near = range(max(0, best - 2), min(len(sizes), best + 3))
        lower = min(near, key=lambda i: loss(sizes[i]))
        if lower == best:
            return sizes[best]
        best = lower


def _refined(
    places: Floats, epsilon: float, size: int, *, rounds: int, starts: int, squared: bool
) -> tuple[float, Floats]:
    """Return the least loss of a codebook of this size, and its points."""
    size = min(size, len(places))
    chosen = seeded(0).below(len(places), _SUMMARY)
    summary = places if len(places) <= _SUMMARY else places[chosen]
    found = [
        _lloyd(places, summary, epsilon=epsilon, points=points, rounds=rounds, squared=squared)
        for points in (_spread(places, size, start) for start in range(starts))
    ]
    return min(found, key=_loss)


def _lloyd(
    places: Floats,
    summary: Floats,
    *,
    epsilon: float,
    points: Floats,
    rounds: int,
    squared: bool,
) -> tuple[float, Floats]:
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow to import, and seldom needed

    size, power = len(points), 2 if squared else 1
    gain = math.expm1(epsilon)
    truth = gain / (gain + size)
    nearly = 1e-6 * float(np.ptp(places, axis=0).max())  # no place is at no distance
    best, found, still = math.inf, points, 0
    for _ in range(rounds):
        found_at = cKDTree(points).query(places)
        distances, cells = np.asarray(found_at[0]), np.asarray(found_at[1])
        apart = np.linalg.norm(points[:, None, :] - summary, axis=2)
        loss = float(truth * (distances**power).mean() + (1 - truth) * (apart**power).mean())
        still = still + 1 if loss > (1 - _STILL) * best else 0
        if loss < best:
            best, found = loss, points
        if still == 3:
            break
        # One step of Weiszfeld's to the median of both: each place by its weight over its distance.
        # For squared errors the mean is the place itself.
        own = gain / np.maximum(distances, nearly) ** (2 - power)
        every = (len(places) / len(summary)) / np.maximum(apart, nearly) ** (2 - power)
        pull = np.bincount(cells, own, minlength=size) + every.sum(axis=1)
        sums = every @ summary
        for axis in range(places.shape[1]):
            sums[:, axis] += np.bincount(cells, own * places[:, axis], minlength=size)
        points = sums / pull[:, None]
    return best, found


def _spread(places: Floats, size: int, start: int) -> Floats:
    """Return places to start from: each far from those before, by its squared distance."""
    entropy = seeded(start)
    some = places[entropy.below(len(places), min(len(places), 4 * size + 64))]
    chosen = [some[0]]
    nearest = np.full(len(some), np.inf)
    for draw in entropy.uniforms(size - 1) if size > 1 else ():
        nearest = np.minimum(nearest, np.square(some - chosen[-1]).sum(axis=1))
        if not nearest.any():
            break
        chosen.append(some[int(np.searchsorted(np.cumsum(nearest), draw * nearest.sum()))])
    return np.array(chosen)


# -- the worst value of a line


def evenest_line(budget: Callable[[int, int], float], most: int) -> tuple[Floats, int]:
    """Return points of -1 .. 1, and how many are close, with the least error at the worst value.

    The best mechanism by linear programming has caps that are wide in the middle and narrow at
    the ends, where an answer from anywhere costs most. So points lie denser towards the ends: by a
    curve with three parameters, searched for each share of close points. `budget` gives the ε of
    a codebook by the number of close points and of all.
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

    def fitted(share: float) -> tuple[float, Floats, int]:
        size = min(most, max(_LINE, math.ceil(_FEWEST / share)))
        closest = max(1, round(share * size))
        mixing = _mixing(budget(closest, size), closest, size)

        def worst(at: Floats) -> float:
            return _worst(_curved(size, at), closest, mixing)

        simplex = np.concatenate([[_CURVE], np.array(_CURVE) + np.diag((0.15, 0.15, -0.2))])
        options: Any = {"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-5, "maxiter": 150}
        found: Any = optimize.minimize(worst, simplex[0], method="Nelder-Mead", options=options)
        return float(found.fun), _curved(size, found.x), closest

    usual = 0.6 * math.exp(-0.4 * min(budget(1, _LINE), 12.0))
    shares = np.geomspace(usual / 2, min(2 * usual, 0.5), _SHARES).tolist()
    _, points, closest = min(map(fitted, shares), key=lambda tried: tried[0])
    return points, closest


def _mixing(epsilon: float, closest: int, size: int) -> float:
    gain = math.expm1(epsilon) * closest
    return gain / (gain + size)


def _curved(size: int, curve: Floats) -> Floats:
    even = (np.arange(size) + 0.5) / size * 2 - 1
    length = np.abs(even)
    bent = curve[0] * length + curve[1] * length**2 + curve[2] * length**4
    return np.asarray(np.clip(np.sign(even) * bent, -1, 1))


def _worst(points: Floats, closest: int, mixing: float) -> float:
    """Return the largest error over the values of half a line; the other half mirrors it."""
    points = np.sort(points)
    ends = (points[closest:] + points[:-closest]) / 2  # where the close points change
    values = np.append(ends[ends >= 0], (0.0, 1.0))
    misses = np.abs(values[:, None] - points)
    near = np.partition(misses, closest - 1, axis=1)[:, :closest].mean(axis=1)
    return float((mixing * near + (1 - mixing) * misses.mean(axis=1)).max())
