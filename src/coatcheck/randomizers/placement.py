"""Where to put the points of a codebook: Lloyd's iteration with the channel's noise in the loss.

A report names the true cell with probability β, else any. So a point is best put at the median
of where a value can have been: the public places of its own cell, which count e^ε times, and
all others, which count once. And given the points, the best cell of a place is that of the
nearest one. The two steps are repeated until they hardly help. Knows public places only.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.entropy import seeded

Floats = NDArray[np.float64]

_SUMMARY: Final = 512  # places that stand for all of them where they count once
_QUICK: Final = 12
_ROUNDS: Final = 60
_STARTS: Final = 3  # for small codebooks, where a start matters
_FEW: Final = 64


def best_places(places: Floats, *, epsilon: float, size: int | None, most: int) -> Floats:
    """Return points with the least mean distance found; `places` are in the unit of errors."""
    if size is not None:
        return _refined(places, epsilon, size, _ROUNDS)[1]
    tried = {size: _refined(places, epsilon, size, _QUICK) for size in _sizes(epsilon, most)[:4]}
    for more in _sizes(epsilon, most)[4:]:
        tried[more] = _refined(places, epsilon, more, _QUICK)
        if min(tried, key=lambda size: tried[size][0]) < more / 3:
            break  # the error has risen for a while
    ordered = sorted(tried, key=lambda size: tried[size][0])
    return min((_refined(places, epsilon, size, _ROUNDS) for size in ordered[:2]), key=_loss)[1]


def _sizes(epsilon: float, most: int) -> list[int]:
    """Return sizes to try, by steps of about 1.35, up to where noise drowns a cell."""
    largest = min(most, 8 + 4 * math.exp(min(epsilon, 20.0)))
    sizes = [1, 2, 3, 4]
    while sizes[-1] * 1.35 <= largest:
        sizes.append(math.ceil(sizes[-1] * 1.35))
    return sizes


def _loss(tried: tuple[float, Floats]) -> float:
    return tried[0]


def _refined(places: Floats, epsilon: float, size: int, rounds: int) -> tuple[float, Floats]:
    """Return the least mean distance of a codebook of this size, and its points."""
    size = min(size, len(places))
    summary = _summary(places)
    starts = _STARTS if size <= _FEW else 1
    return min(
        (
            _lloyd(places, summary, epsilon=epsilon, points=points, rounds=rounds)
            for points in (_spread(places, size, start) for start in range(starts))
        ),
        key=_loss,
    )


def _summary(places: Floats) -> Floats:
    chosen = seeded(0).below(len(places), _SUMMARY)
    return places if len(places) <= _SUMMARY else places[chosen]


def _lloyd(
    places: Floats, summary: Floats, *, epsilon: float, points: Floats, rounds: int
) -> tuple[float, Floats]:
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow to import, and seldom needed

    size = len(points)
    gain = math.expm1(epsilon)
    truth = gain / (gain + size)
    nearly = 1e-6 * float(np.ptp(places, axis=0).max())  # no place is at no distance
    best, found = math.inf, points
    for _ in range(rounds):
        found_at = cKDTree(points).query(places)
        distances, cells = np.asarray(found_at[0]), np.asarray(found_at[1])
        apart = np.linalg.norm(points[:, None, :] - summary, axis=2)
        loss = truth * distances.mean() + (1 - truth) * apart.mean()
        if loss < best:
            best, found = float(loss), points
        # One step of Weiszfeld's to the median of both: each place by its weight over its distance.
        own = gain / np.maximum(distances, nearly)
        every = (len(places) / len(summary)) / np.maximum(apart, nearly)
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
