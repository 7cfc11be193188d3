"""Upper bound on δ(ε_c) of a shuffled crowd, in floating point.

    δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+]                 (docs/explanation/amplification.md, *)

Of n draws of G, C fall on the two side values, A of them on the upper one; the rest adds a weight
R that hides the victim further. Each step replaces a distribution by a mean-preserving spread of
it, which can only raise the right-hand side, adds what it cuts off, and widens by the rounding
error of what it calls. So the result is an upper bound, not an estimate. `upper` sums over the
counts of clones; for laws with many values it calls `upper_by_integral`, which integrates instead,
and where a report has only two values, `binary_response.upper`, which needs no blanket.
With decoys, `upper_with_decoys` takes the mean of such integrals over the number of messages.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting import binary_response, box_caps
from coatcheck.accounting.binary_response import TwoReports
from coatcheck.accounting.laws import AnyPair, Atoms, Boxed, DecoyPair, Pair
from coatcheck.accounting.numerics import (
    END,
    UNIFORMS,
    Array,
    Smear,
    at_least,
    bisect,
    combine,
    doubled,
    excess,
    first_above,
    point,
    smear,
    smoothing,
)

# More than what is lost where a point mass underflows: 2^-1074 times the largest value of G.
_UNDERFLOW: Final = 1e-250
# More than the relative rounding errors of a few products.
_ROUNDING: Final = 1e-14
# Terms up to which a small crowd is summed exactly, without any of the spreads below.
_EXACT: Final = 6000
# Rows of C to evaluate; above twice as many, blocks of rows are bounded by their chord.
_COARSE: Final = 120
_FINE: Final = 900
# Groups of rows, each with its own smear for its number of draws off the sides.
_GROUPS: Final = 3
# Kinks that N may reach; above that, N is put on a few nodes.
_KINKS: Final = 128
_FEW: Final = 40
# Series of the log-gamma function in 1/x², from its last term on, for x up to 1000 and beyond.
_GAMMA: Final = (
    8.11614167470508450300e-4,
    -5.95061904284301438324e-4,
    7.93650340457716943945e-4,
    -2.77777777730099687205e-3,
    8.33333333333331927722e-2,
)
_GAMMA_FAR: Final = (7.9365079365079365079365e-4, -2.7777777777777777777778e-3, 1 / 12)
_HALF_LOG_TAU: Final = 0.91893853320467274178


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Clone counts: sums with the mean of `anchor` and the spread of `draws` ≥ anchor ≥ base."""

    draws: Array
    anchor: Array
    mass: Array
    base: int


def upper(
    pair: AnyPair, *, size: int, epsilon: float, tail: float = 50.0, fine: bool = True
) -> float:
    """Bound δ(ε_c) of `size` people from above; without `fine`, cheaper and looser, never lower.

    *Guarantee:* no data set of `size` people who use a randomizer with this pair law has a larger
    δ at ε_c = `epsilon` under replacement of one person's value.

    Args:
        pair: the law of G, or of a report with two values.
        size: n, the honest people who are still anonymous, the victim included.
        epsilon: ε_c.
        tail: minus the logarithm of the chance cut off each end of C; it is added back.
        fine: evaluate every number of clones, unless there are too many.
    """
    match pair:
        case TwoReports():
            bound = binary_response.upper(pair, size=size, epsilon=epsilon, fine=fine)
        case Atoms():
            bound = upper_by_integral(pair, size=size, epsilon=epsilon, fine=fine)
        case DecoyPair():
            bound = upper_with_decoys(pair, size=size, epsilon=epsilon, fine=fine)
        case Boxed():
            bound = upper(pair.pair, size=size, epsilon=epsilon, tail=tail, fine=fine)
            if epsilon < pair.epsilon:
                caps, guess = pair.caps, bound
                close = box_caps.upper(caps, size=size, epsilon=epsilon, guess=guess, fine=fine)
                bound = min(bound, close)
        case Pair(deep=deep) if deep > 0 and not (fine and _small(pair, size)):
            bound = upper_by_integral(atoms(pair), size=size, epsilon=epsilon, fine=fine)
        case _:
            bound = _upper_by_rows(pair, size=size, epsilon=epsilon, tail=tail, fine=fine)
    return bound


def _upper_by_rows(pair: Pair, *, size: int, epsilon: float, tail: float, fine: bool) -> float:
    """Sum over the numbers of clones; `pair.deep` counts in small crowds only."""
    if epsilon >= pair.epsilon or pair.side <= 0:
        return 0.0
    e, e1, p1 = math.exp(epsilon), math.expm1(epsilon), math.expm1(pair.epsilon)
    # sum G = step (A - t), where t = C/2 + drift C + unit N and N is the weight of `_rest`.
    # C - t = share C - unit N is computed separately: for a large ε_c the float t equals C.
    step = pair.scale * p1 * (1 + e)
    unit = e1 / step
    side = pair.scale * (p1 + 2) / 2
    best = e * math.expm1(pair.epsilon - epsilon)
    share = best / (p1 * (1 + e))
    if fine and _small(pair, size):
        draws, hidden, mass = _every(pair, size)
        room = share * draws * (1 + _ROUNDING) - unit * hidden * (1 - _ROUNDING)
        positive = room > 0
        above = unit * (side * draws + hidden)
        excesses = excess(draws[positive], 0.5, above[positive], room=room[positive])
        return min(1.0, step / size * float(mass[positive] @ excesses) * (1 + 1e-9) + _UNDERFLOW)
    total = 0.0
    wide = _wide(pair, size, unit)
    groups = _GROUPS if fine and not wide and pair.flat > 0 else 1
    lines = _fine(2 * pair.side * size) if fine and not wide else _COARSE
    for rows in _rows(2 * pair.side, size, tail, most=lines, groups=groups):
        rest = _rest(pair, size - rows.base, tail)
        weight = rest.mean / max(1, size - rows.base)
        drift = unit * (rest.mean - weight * (rows.anchor - rows.base))
        above = unit * side * rows.anchor + drift
        most = (rows.draws - rows.anchor) / 2 + share * rows.anchor
        room = most * (1 + _ROUNDING) - drift * (1 - _ROUNDING)
        total += float(rows.mass @ _excesses(rows.draws, above, room, rest, unit))
    total *= step / size
    cut = pair.scale * best * _window(2 * pair.side, size, tail)[2]
    if fine and tail < 1600 and cut > 1e-10 * total:
        return _upper_by_rows(pair, size=size, epsilon=epsilon, tail=2 * tail, fine=fine)
    return min(1.0, total * (1 + 1e-9) + cut + _UNDERFLOW)


def _small(pair: Pair, size: int) -> bool:
    """Return whether `size` draws fall on the sides, flat, deep or zero in few enough ways."""
    others = (pair.flat > 0) + (pair.deep > 0)
    return others > 0 and size < _EXACT and math.comb(size + others + 1, others + 1) <= _EXACT


@lru_cache(maxsize=64)
def _every(pair: Pair, size: int) -> tuple[Array, Array, Array]:
    """List all outcomes: draws on the sides, weight of the rest, and chance."""
    counts, log = _ways(size, pair.flat > 0, pair.deep > 0)
    chances = np.array([2 * pair.side, pair.flat, pair.deep, 0.0])
    chances[3] = max(0.0, 1 - chances.sum())
    impossible = chances <= 0
    log = log + counts @ np.log(np.where(impossible, 1.0, chances))
    weight = counts[:, 1] + math.exp(pair.epsilon) * counts[:, 2]
    possible = ~counts[:, impossible].any(axis=1)
    return counts[possible, 0], weight[possible], np.exp(log[possible])


@lru_cache(maxsize=32)
def _ways(size: int, flat: bool, deep: bool) -> tuple[Array, Array]:  # noqa: FBT001 - a key
    """List all counts on the sides, flat, deep and zero, with the logs of their multiplicities."""
    every = np.arange(size + 1)
    ranges = [every, *(every if used else np.zeros(1, np.int64) for used in (flat, deep))]
    counts = np.stack(np.meshgrid(*ranges), axis=-1).reshape(-1, 3)
    counts = counts[counts.sum(axis=1) <= size]
    counts = np.column_stack([counts, size - counts.sum(axis=1)])
    factorials = _log_factorials(size)
    return counts.astype(np.float64), factorials[size] - factorials[counts].sum(axis=1)


def _log_factorials(size: int) -> Array:
    """Give ln 0! to ln size!, with the digits of SciPy's log-gamma function (Cephes)."""
    logs = [math.log(math.factorial(k)) for k in range(min(size, 11) + 1)]
    for k in range(12, size + 1):
        x = k + 1.0
        square = 1 / (x * x)
        series = 0.0
        for term in _GAMMA if x < 1000 else _GAMMA_FAR:
            series = series * square + term
        logs.append((x - 0.5) * math.log(x) - x + _HALF_LOG_TAU + series / x)
    return np.array(logs)


def _fine(clones: float) -> int:
    """Choose a number of rows that keeps the chords over them within about 2e-4 of δ."""
    return int(min(_FINE, max(_COARSE, 1.4e6 / math.sqrt(max(1.0, clones)))))


def _wide(pair: Pair, size: int, unit: float) -> bool:
    """Return whether N reaches too many kinks to evaluate rows one by one."""
    return unit * math.sqrt(size * pair.flat) * 18 > _KINKS


def _window(chance: float, size: int, tail: float) -> tuple[int, int, float]:
    """Return the range that C leaves with chance e^-tail at either end, and what to add for it."""
    mean, variance = size * chance, size * chance * (1 - chance)
    reach = tail / 3 + math.sqrt(tail * tail / 9 + 2 * variance * tail)  # Bernstein
    low, high = max(0, math.floor(mean - reach)), min(size, math.ceil(mean + reach))
    # (sum G)_+ ≤ A times the largest value; E[C; C < low] ≤ low e^-tail, and above alike.
    cut = math.exp(-tail) * ((low / size if low else 0.0) + (chance if high < size else 0.0))
    return low, high, cut


@lru_cache(maxsize=256)
def _rows(chance: float, size: int, tail: float, *, most: int, groups: int) -> tuple[_Rows, ...]:
    """Cut the number of clones, Bin(size, chance), to a window, the window to groups of rows."""
    if chance >= 1:
        everybody = np.array([float(size)])
        return (_Rows(draws=everybody, anchor=everybody, mass=np.ones(1), base=size),)
    clones, mass = _masses(chance, size, tail)
    if clones.size > 2 * most:
        return (_blocks(clones, mass, width=math.ceil(2 * clones.size / most)),)
    groups = max(1, min(groups, round(100 * clones.size / size)))
    edges = np.linspace(0, clones.size, groups + 1).astype(int)
    return tuple(
        _Rows(draws=clones[i:j], anchor=clones[i:j], mass=mass[i:j], base=int(clones[i]))
        for i, j in itertools.pairwise(edges)
        if j > i
    )


def _blocks(clones: Array, mass: Array, *, width: int) -> _Rows:
    """Bound `width` rows at a time by the chord over them.

    C clones are fewer than the c1 at the end of their block: the sum of C fair draws is smaller
    in the convex order than that of c1 draws with the mean of C, and that is convex in C.
    """
    first = np.arange(0, clones.size, width)
    last = np.minimum(first + width - 1, clones.size - 1)
    block = np.repeat(np.arange(first.size), last - first + 1)
    share = (clones - clones[first][block]) / np.maximum(1, last - first)[block]
    whole = np.bincount(block, mass)
    at_end = np.bincount(block, mass * share)
    return _Rows(
        draws=np.tile(clones[last], 2),
        anchor=np.concatenate([clones[first], clones[last]]),
        mass=np.concatenate([whole - at_end, at_end]),
        base=int(clones[0]),
    )


@lru_cache(maxsize=16)
def _masses(chance: float, size: int, tail: float) -> tuple[Array, Array]:
    """Return the counts of the window with their binomial masses, by ratios, summing to one."""
    low, high, _ = _window(chance, size, tail)
    clones = np.arange(low, high + 1, dtype=np.float64)
    ratio = (size - clones[:-1]) / (clones[:-1] + 1) * (chance / (1 - chance))
    mode = int(np.clip(math.floor((size + 1) * chance) - clones[0], 0, clones.size - 1))
    mass = np.ones_like(clones)
    mass[mode + 1 :] = np.cumprod(ratio[mode:])
    mass[:mode] = np.cumprod(1 / ratio[:mode][::-1])[::-1]
    return clones, np.asarray(mass / mass.sum())


@lru_cache(maxsize=256)
def _rest(pair: Pair, size: int, tail: float) -> Smear:
    """Smear N, the number of `size` draws off the sides that weigh 1; with c ≤ C, R ≤ N - (C - c)w.

    Adding such a weight, less its mean w, for C - c others is a spread.
    """
    other = 1 - 2 * pair.side
    chance = min(1.0, pair.flat / other) if other > 0 else 0.0
    return smear(size, chance, reach=math.sqrt(2 * tail))


def _excesses(draws: Array, above: Array, room: Array, rest: Smear, unit: float) -> Array:
    """Return E[(A - t - unit (N - E N))_+] for A ~ Bin(draws, 1/2), t = draws/2 + above.

    `room` is draws - t, rounded up.
    """
    low = math.ceil(unit * (rest.mean - rest.at[0])) + 1
    high = math.ceil(unit * (rest.at[-1] - rest.mean)) + 1
    if low + high > _KINKS:
        return _by_nodes(draws, above, room, rest, unit)
    k = first_above(draws, 0.5, above, room)
    mass, tail = point(draws, 0.5, k), at_least(draws, 0.5, k)
    value = combine(draws, 0.5, above, room=room, k=k, tail=tail, mass=mass)
    if rest.at.size == 1 or unit == 0:
        return value
    # In t the excess is linear except for a kink at each integer, where N's randomness adds its
    # smear times the point mass of A; kinks beyond N's reach add less than the table's ends.
    start = np.clip(k, 0.0, draws)
    up = start + np.arange(high)[:, None]
    down = start - np.arange(low)[:, None]
    base = mass if (start == k).all() else point(draws, 0.5, start)
    rise = base * np.cumprod((draws - up) / (up + 1), axis=0)
    fall = base * np.cumprod(np.maximum(down, 0) / (draws - down + 1), axis=0)
    # start - t, by whichever of the two numbers is the smaller and so the more precise.
    off = np.where(room < above, room - (draws - start), start - draws / 2 - above)
    added = base * rest(rest.mean + off / unit)
    added += (rise * rest(rest.mean + (off + (up + 1 - start)) / unit)).sum(axis=0)
    added += (fall * rest(rest.mean + (off - (start + 1 - down)) / unit)).sum(axis=0)
    return np.asarray(value + unit * (added + rest.value[0] + rest.value[-1]))


def _by_nodes(draws: Array, above: Array, room: Array, rest: Smear, unit: float) -> Array:
    """Return the same with N spread over a few nodes, for an N that reaches too many kinks."""
    nodes = rest.nodes(_FEW)
    moved = unit * (nodes.at - rest.mean)[None, :]
    wide = np.broadcast_to(draws[:, None], (draws.size, nodes.at.size))
    excesses = excess(wide, 0.5, above[:, None] + moved, room=room[:, None] - moved)
    return np.asarray(excesses @ nodes.mass + unit * rest.value[0])


# -- laws with many values: the sum as one integral. With M(z) = E[e^(zG)] and any c > 0,
# E[(G_1 + ... + G_n)_+] = (1/2π) ∫ M(c + it)^n / (c + it)² dt. Noise of mean zero is added to the
# sum, which is a spread, so that the integrand ends early. The difference between the integral and
# the sum over points of the integrand is positive; what that sum leaves out, and the rounding
# errors of floats, are bounded and added. So the result is an upper bound (section 7a).

_UNIT: Final = 2.0**-53
# Width of each of them over 1/c: that of SPEC S20.14 costs about 2e-5 of δ.
_FINE_STEP, _COARSE_STEP = 0.005, 0.06
# Mean of the positive part of their sum, in widths, rounded down.
_MEAN: Final = 0.462116
# Standard deviations of the sum between the images that a sum over points adds.
_APART: Final = 13.0
# The most values of G that are summed as they are; more are put on as many points.
_MAX_VALUES: Final = 130
_INTEGRAL_ROUNDING: Final = 1e-12


def upper_by_integral(atoms: Atoms, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, for the worst of the law's pairs of values."""
    if epsilon >= atoms.epsilon:
        return 0.0
    e, worst = math.exp(epsilon), 0.0
    for pair in range(len(atoms.pairs)):
        first, second, mass = _columns(atoms, pair)
        values = first - e * second + 8 * _UNIT * (first + e * second)
        if values.size > _MAX_VALUES:
            values, mass = _fewer(values, mass, e)
        worst = max(
            worst, mean_excess(values, mass, size=size, width=_FINE_STEP if fine else _COARSE_STEP)
        )
    return min(1.0, worst)


@lru_cache(maxsize=256)
def atoms(pair: Pair) -> Atoms:
    """Write the law of G as a list of reports."""
    p, scale = math.exp(pair.epsilon), pair.scale
    sides = ((scale * p, scale, pair.side), (scale, scale * p, pair.side))
    rest = ((1.0, 1.0, pair.flat), (p, p, pair.deep))
    return Atoms(epsilon=pair.epsilon, pairs=((*sides, *rest),))


@lru_cache(maxsize=1024)
def _columns(atoms: Atoms, pair: int) -> tuple[Array, Array, Array]:
    first, second, mass = np.array(atoms.pairs[pair]).T
    return first, second, mass


def _fewer(values: Array, mass: Array, e: float) -> tuple[Array, Array]:
    """Spread values over fewer points: those of two ratios of which one is 1."""
    top = max(
        (values.max() + e) * (1 + _INTEGRAL_ROUNDING),
        (1 - values.min()) / e * (1 + _INTEGRAL_ROUNDING),
        2.0,
    )
    ratios = np.geomspace(1, top, _MAX_VALUES // 2)
    points = np.unique(np.concatenate([1 - e * ratios, ratios - e]))
    last = np.clip(np.searchsorted(points, values), 1, points.size - 1)
    up = np.clip((values - points[last - 1]) / (points[last] - points[last - 1]), 0.0, 1.0)
    spread: Array = np.zeros(points.size)
    np.add.at(spread, last, mass * up)
    np.add.at(spread, last - 1, mass * (1 - up))
    used = spread > 0
    return points[used] + 16 * _UNIT * (np.abs(points[used]) + e), spread[used]


def mean_excess(
    values: Array, mass: Array, *, size: int, width: float, images: float = 8.0
) -> float:
    """Bound E[(G_1 + ... + G_n)_+]/n for a G with these values and chances, otherwise zero.

    With `images` larger, fewer of the images at about e^-images are added, at more points.
    """
    return integral(values, mass, sizes=[size], shares=[1.0], width=width, images=images)


def integral(
    values: Array,
    mass: Array,
    *,
    sizes: Sequence[int],
    shares: Sequence[float],
    width: float,
    images: float = 8.0,
) -> float:
    """Bound the mean of E[(G_1 + ... + G_n)_+]/n over several n, each with its share.

    G has these values with these chances, and is zero otherwise.
    """
    if values.max() <= 0:
        return 0.0
    # One draw this low makes every sum negative, so a lower value makes no difference.
    most = max(sizes)
    values = np.maximum(values, -most * values.max())
    c = saddle(values, mass, size=sizes[len(sizes) // 2])
    grown = mass * np.exp(c * values)
    more = float(mass @ np.expm1(c * values))  # M(c) - 1
    mean = float(grown @ values) / (1 + more)
    variance = float(grown @ values**2) / (1 + more) - mean**2
    noise = width / c
    reach = _APART * math.sqrt(most * variance + UNIFORMS / 12 * noise**2) + images / c
    step, end = 2 * math.pi / reach, END / noise
    points = math.ceil(end / step) + 1
    # The rounding error per draw, over M(c), is at most `off` times |z|.
    unit = (32 + 2 * values.size) * _UNIT / (1 + more)
    off = unit * float(grown @ np.abs(values))
    at = step * np.arange(points, dtype=np.float64)
    ratio = _ratio(step, points, values, grown / (1 + more))
    kernel = smoothing(at, c=c, noise=noise)
    # Past the end the kernel is below (2 cosh(c noise/2) / (t noise))^16 / t².
    past = (2 * math.cosh(width / 2) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / math.pi
    spared = float(mass @ np.abs(np.expm1(c * values)))
    none = max(0.0, 1 - float(mass.sum()) - (32 + 2 * values.size) * _UNIT)
    total = 0.0
    for size, share in zip(sizes, shares, strict=True):
        terms = _terms(at, *ratio, kernel, c=c, off=off, size=size)
        grow = math.exp(min(700.0, size * math.log1p(more)))
        rounding = 1e-12 + unit * size * spared
        whole = grow * (step / (2 * math.pi) * terms + past) * (1 + rounding)
        # If no draw adds anything, only the noise was counted (Statement 29).
        empty = none**size * noise * _MEAN * (1 - 1e-6)
        total += share * max(0.0, whole - empty) / size
    return total + _UNDERFLOW


def _ratio(step: float, points: int, values: Array, grown: Array) -> tuple[Array, Array]:
    """Return ln|q| and the angle of q = M(c + it)/M(c) at multiples of a step.

    Points are cut into rows: q - 1 is a product of matrices plus the term of the row's first
    point, because uw - 1 = (u - 1)w + (w - 1). So q is exact where it is close to one.
    """
    row = math.ceil(math.sqrt(points))
    inner = _turned(np.outer(step * np.arange(row), values / 2))
    outer = _turned(np.outer(row * step * np.arange(math.ceil(points / row)), values / 2))
    left = ((1 + outer) * grown) @ inner.T + (outer @ grown)[:, None]
    less = left.ravel()[:points]
    real, imaginary = less.real, less.imag
    square = 2 * real + real * real + imaginary * imaginary  # |q|² - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log(np.hypot(1 + real, imaginary))
        near = np.log1p(square) / 2
    return np.where(square < -0.5, far, near), np.arctan2(imaginary, 1 + real)


def _turned(half: Array) -> NDArray[np.complex128]:
    """Return e^(2ix) - 1 for each x."""
    sine = np.sin(half)
    return np.asarray(2 * sine * (1j * np.cos(half) - sine))


def _terms(
    at: Array,
    log: Array,
    angle: Array,
    kernel: NDArray[np.complex128],
    *,
    c: float,
    off: float,
    size: int,
) -> float:
    """Sum the integrand at t and -t, over M(c)^n, and add the rounding errors."""
    turned = np.cos(size * angle) * kernel.real - np.sin(size * angle) * kernel.imag
    doubt = off * np.abs(c + 1j * at)
    error = size * doubt * np.exp((size - 1) * np.log(np.exp(log) + doubt)) + 128 * _UNIT
    weight = np.where(at > 0, 2.0, 1.0)
    return float(weight @ (np.exp(size * log) * turned + error * np.abs(kernel)))


def saddle(values: Array, mass: Array, *, size: int) -> float:
    """Find the c > 0 at which M(c)^n/c² is about least; any c > 0 is sound."""
    top = float(values.max())
    none = max(0.0, 1 - float(mass.sum()))

    def low(c: float) -> bool:
        grown = mass * np.exp(c / top * values)
        return size * c * float(grown @ values) <= 2 * top * (float(grown.sum()) + none)

    bad, good = 1.0, 1.0
    if low(1.0):
        good, bad = doubled(lambda c: not low(c) or c > 500)
    else:
        while not low(good) and good > 1e-300:
            bad, good = good, good / 4
    return bisect(low, good=good, bad=bad, close=1e-3) / top


# -- decoys: besides the person's report, the B ~ Bin(n - 1, γ) reports of others that are drawn
# from the blanket and m(n - 1) decoys are uniform. So δ(ε_c) ≤ E[E[(H_1 + ... + H_k)_+]/k] with
# k = 1 + B + m(n - 1) (section 7c).

# Groups of values of B, each bounded by its smallest.
_FINE_GROUPS, _COARSE_GROUPS = 64, 12
# Minus the log of the chance of the values of B below those that are summed.
_FEWER: Final = 50.0
# The relative error of a ratio or a chance, times γ.
_DECOY_ROUNDING: Final = 2.0**-48


def upper_with_decoys(pair: DecoyPair, *, size: int, epsilon: float, fine: bool = True) -> float:
    """Bound δ(ε_c) of `size` people from above, who all send decoys besides their reports.

    The person's own decoys are not counted, so that somebody who hides among nobody else has none.
    """
    if epsilon >= pair.epsilon:
        return 0.0
    values, mass = np.array(pair.values(epsilon)).T
    close = _DECOY_ROUNDING / pair.share
    values += close * pair.share * (math.exp(pair.epsilon) + 1) * (math.exp(epsilon) + 1)
    groups = _FINE_GROUPS if fine else _COARSE_GROUPS
    numbers, shares = _uniform_reports(size - 1, pair.share * (1 - close), groups)
    sizes = [1 + pair.each * (size - 1) + number for number in numbers]
    total = integral(
        values[mass > 0],
        mass[mass > 0],
        sizes=sizes,
        shares=shares,
        width=_FINE_STEP if fine else _COARSE_STEP,
    )
    rounding = math.exp(min(700.0, sizes[-1] * close))
    return min(1.0, total * rounding * (1 + 1e-9) + math.exp(-_FEWER))


@lru_cache(maxsize=256)
def _uniform_reports(
    others: int, chance: float, groups: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Cut the values of B to groups, and return the least value and the chance of each."""
    low, high, _ = _window(chance, max(1, others), _FEWER)
    if others == 0 or low == high:
        return (min(low, others),), (1.0,)
    numbers, mass = _masses(chance, others, _FEWER)
    starts = range(0, numbers.size, math.ceil(numbers.size / groups))
    return (
        tuple(int(numbers[at]) for at in starts),
        tuple(np.add.reduceat(mass, np.array(starts)).tolist()),
    )
