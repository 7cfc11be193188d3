"""The sum behind amplification for laws with many values, by one fast Fourier transform.

    δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+]                 (docs/explanation/amplification.md, *)

G is put on a grid by fair lotteries, which is a spread, and tilted by e^(λG), so that the part of
its distribution that counts is not lost beside the rest. What a transform may be off is bounded and
added; what wraps around the grid only adds. So the result is an upper bound (section 7a there).
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting.binomials import Array
from coatcheck.accounting.pairs import Atoms
from coatcheck.accounting.roots import bisect, doubled

_UNIT: Final = 2.0**-53
# Standard deviations of the sum on either side of zero that fit on the grid.
_WIDE: Final = 12.0
# More than what is lost where an exponential underflows.
_UNDERFLOW: Final = 1e-250
_LEAST, _MOST = 13, 20  # logs of the sizes of the grid, to base two


def upper(atoms: Atoms, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, for the worst of the law's pairs of values."""
    if epsilon >= atoms.epsilon:
        return 0.0
    cells = math.ceil(math.log2(700 * math.sqrt(size)))
    cells = 2 ** min(_MOST, max(_LEAST, cells if fine else cells - 3))
    e, worst = math.exp(epsilon), 0.0
    for pair in range(len(atoms.pairs)):
        first, second, mass = _columns(atoms, pair)
        values = first - e * second + 8 * _UNIT * (first + e * second)
        worst = max(worst, _upper(values, mass, size=size, cells=cells))
    return min(1.0, worst)


@lru_cache(maxsize=1024)
def _columns(atoms: Atoms, pair: int) -> tuple[Array, Array, Array]:
    first, second, mass = np.array(atoms.pairs[pair]).T
    return first, second, mass


def _upper(values: Array, mass: Array, *, size: int, cells: int) -> float:
    """Bound E[(G_1 + ... + G_n)_+]/n for a G with these values and chances, else zero."""
    if values.max() <= 0:
        return 0.0
    # One draw this low makes every sum negative, so a lower one is as good.
    values = np.maximum(values, -size * values.max())
    lam, log = _tilt(values, mass)
    spread = math.sqrt(size * float(mass * np.exp(lam * values - log) @ values**2))
    most = size * float(np.abs(values).max()) * (1 + 4 * size / cells)
    reach = min(_WIDE * spread + float(values.max()), most)
    step = 2 * reach / cells
    places, mass = _on_grid(values / step, mass)
    values = np.asarray(step * places)
    lam, log = _tilt(values, mass)
    table = np.zeros(cells)
    np.add.at(table, places % cells, mass * np.exp(lam * values - log))
    table[0] += _none(mass) * math.exp(-log)
    sums, off = _power(table, size)
    at = step * np.arange(1, cells // 2)
    kept = float((np.maximum(sums[1 : cells // 2], 0.0) + off) @ (at * np.exp(-lam * at)))
    found = math.exp(min(700.0, size * log)) * kept
    if size * float(values.max()) > at[-1]:
        found += min(
            _beyond(values, mass, float(at[-1]), size=size, lam=lam + more / spread)
            for more in (0, 4, 8, 12, 16, 24)
        )
    return found / size * (1 + 1e-9 + 1e-14 * size) + _UNDERFLOW


def _beyond(values: Array, mass: Array, last: float, *, size: int, lam: float) -> float:
    """Bound E[S; S > last], for which the grid has no place.

    There s ≤ last e^(λ(s - last)) for every λ ≥ 1/last.
    """
    lam = max(lam, 1 / last)
    if lam * float(values.max()) > 600:
        return math.inf
    return last * math.exp(min(700.0, size * _log_mean(values, mass, lam) - lam * last))


def _none(mass: Array) -> float:
    return max(0.0, 1 - float(mass.sum()))


def _log_mean(values: Array, mass: Array, lam: float) -> float:
    return math.log(float((mass * np.exp(lam * values)).sum()) + _none(mass))


def _tilt(values: Array, mass: Array) -> tuple[float, float]:
    """Find the λ at which the tilted mean is about zero, and ln E[e^(λG)]. Any λ > 0 is sound."""
    top = float(values.max())

    def falling(lam: float) -> bool:
        return float((mass * np.exp(lam / top * values)) @ values) <= 0

    good, bad = doubled(lambda lam: not falling(lam) or lam > 500)
    lam = bisect(falling, good=max(good, 1e-9), bad=bad, close=1e-4) / top
    return lam, _log_mean(values, mass, lam)


def _on_grid(values: Array, mass: Array) -> tuple[NDArray[np.int64], Array]:
    """Split each value into a fair lottery over the whole numbers around it, rounded up."""
    below = np.floor(values)
    up = np.minimum(1.0, values - below + 1e-12)
    places = np.concatenate([below, below + 1]).astype(np.int64)
    return places, np.concatenate([mass * (1 - up), mass * up])


def _power(table: Array, size: int) -> tuple[Array, float]:
    """Convolve a distribution with itself, around the grid, and bound the error of each entry."""
    cells = table.size
    once = np.fft.rfft(table)
    # ‖error‖ ≤ 8 log2(cells) u ‖table‖ for either transform: Higham (2002), Theorem 24.2, has 7 for
    # radix two with precise roots of unity; numpy's radices are larger and its roots precise.
    ease = 8 * math.log2(cells) * _UNIT
    doubt = ease * math.sqrt(cells) * float(np.linalg.norm(table))
    high = np.minimum(1.0, np.abs(once) + doubt)
    seen = size * np.log(high) > -700
    many = np.zeros_like(once)
    many[seen] = once[seen] ** size
    wrong = size * (doubt + 8 * _UNIT) * np.where(seen, high ** max(0, size - 1), 0.0)
    off = 2 * float(wrong.sum()) / cells
    off += ease * math.sqrt(2 * float((np.abs(many) ** 2).sum()) / cells) + 1e-290
    return np.fft.irfft(many, cells), off
