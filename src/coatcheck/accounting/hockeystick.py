"""The sum behind amplification: an upper bound on δ(ε_c) of a shuffled crowd, in floating point.

    δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+]                 (docs/explanation/amplification.md, *)

Of n draws of G, C fall on the two side values, A of them on the upper one; the rest adds a weight
R that hides the victim further. Each step below replaces a distribution by a mean-preserving
spread of it, which can only raise the right-hand side, adds what it cuts off, and widens by the
rounding error of what it calls. So the result is an upper bound, not an estimate.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import gammaln

from coatcheck.accounting import inversion
from coatcheck.accounting.binomials import (
    Array,
    Smear,
    Weights,
    at_least,
    combine,
    excess,
    first_above,
    point,
    smear,
    spread,
)
from coatcheck.accounting.pairs import Atoms, Pair

# More than what is lost where a point mass underflows: 2^-1074 times the largest value of G.
_UNDERFLOW: Final = 1e-250
# More than the relative rounding errors of a few products.
_ROUNDING: Final = 1e-14
# Terms up to which a small crowd is summed exactly, without any of the spreads below.
_EXACT: Final = 6000
# Rows of C to evaluate; past twice as many, blocks of rows are bounded by their chord.
_COARSE: Final = 120
_FINE: Final = 900
# Groups of rows whose smear is worked out with its own number of draws off the sides.
_GROUPS: Final = 3
# Kinks that N may reach before it is put on a few nodes.
_KINKS: Final = 128
_FEW: Final = 40
# Chance past which a table of smears may end.
_FAR: Final = 1e-25


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Numbers of clones: sums with the mean of `anchor`, the spread of `draws` ≥ anchor ≥ base."""

    draws: Array
    anchor: Array
    mass: Array
    base: int


def upper(
    pair: Pair | Atoms, *, size: int, epsilon: float, tail: float = 50.0, fine: bool = True
) -> float:
    """Bound δ(ε_c) of `size` people from above; a coarse bound is cheaper and looser, not lower.

    *Guarantee:* no data set of `size` people who use a randomizer with this pair law has a larger
    δ at ε_c = `epsilon` under replacement of one person's value.

    Args:
        pair: the law of G.
        size: n, the honest people who are still anonymous, the victim included.
        epsilon: ε_c.
        tail: minus the log of the chance that may be cut off each end of C; it is added back.
        fine: evaluate every number of clones, if they are not too many.
    """
    if isinstance(pair, Atoms):
        return inversion.upper(pair, size=size, epsilon=epsilon, fine=fine)
    if epsilon >= pair.epsilon or pair.side <= 0:
        return 0.0
    e, e1, p1 = math.exp(epsilon), math.expm1(epsilon), math.expm1(pair.epsilon)
    # sum G = step (A - t), where t = C/2 + drift C + unit N and N is the weight of `_rest`.
    # C - t = share C - unit N is computed by itself: for a large ε_c the float t is equal to C.
    step = pair.scale * p1 * (1 + e)
    unit = e1 / step
    side = pair.scale * (p1 + 2) / 2
    best = e * math.expm1(pair.epsilon - epsilon)
    share = best / (p1 * (1 + e))
    if fine and _small(pair, size):
        draws, hidden, mass = _every(pair, size)
        room = share * draws * (1 + _ROUNDING) - unit * hidden * (1 - _ROUNDING)
        some = room > 0
        above = unit * (side * draws + hidden)
        found = excess(draws[some], 0.5, above[some], room=room[some])
        return min(1.0, step / size * float(mass[some] @ found) * (1 + 1e-9) + _UNDERFLOW)
    kept = 0.0
    wide = _wide(pair, size, unit)
    groups = _GROUPS if fine and not wide and pair.flat + pair.deep > 0 else 1
    lines = _fine(2 * pair.side * size) if fine and not wide else _COARSE
    for rows in _rows(2 * pair.side, size, tail, most=lines, groups=groups):
        rest = _rest(pair, size - rows.base, tail)
        weight = rest.mean / max(1, size - rows.base)
        drift = unit * (rest.mean - weight * (rows.anchor - rows.base))
        above = unit * side * rows.anchor + drift
        most = (rows.draws - rows.anchor) / 2 + share * rows.anchor
        room = most * (1 + _ROUNDING) - drift * (1 - _ROUNDING)
        kept += float(rows.mass @ _excesses(rows.draws, above, room, rest, unit))
    kept *= step / size
    cut = pair.scale * best * _window(2 * pair.side, size, tail)[2]
    if fine and tail < 1600 and cut > 1e-10 * kept:
        return upper(pair, size=size, epsilon=epsilon, tail=2 * tail)
    return min(1.0, kept * (1 + 1e-9) + cut + _UNDERFLOW)


def _small(pair: Pair, size: int) -> bool:
    """Say whether `size` draws fall on the sides, flat, deep or zero in few enough ways."""
    others = (pair.flat > 0) + (pair.deep > 0)
    return others > 0 and size < _EXACT and math.comb(size + others + 1, others + 1) <= _EXACT


@lru_cache(maxsize=64)
def _every(pair: Pair, size: int) -> tuple[Array, Array, Array]:
    """List the draws on the sides and the weight of the rest in all ways, with their chances."""
    counts, log = _ways(size, pair.flat > 0, pair.deep > 0)
    chances = np.array([2 * pair.side, pair.flat, pair.deep, 0.0])
    chances[3] = max(0.0, 1 - chances.sum())
    none = chances <= 0
    log = log + counts @ np.log(np.where(none, 1.0, chances))
    weight = counts[:, 1] + math.exp(pair.epsilon) * counts[:, 2]
    some = ~counts[:, none].any(axis=1)
    return counts[some, 0], weight[some], np.exp(log[some])


@lru_cache(maxsize=32)
def _ways(size: int, flat: bool, deep: bool) -> tuple[Array, Array]:  # noqa: FBT001 - a key
    """List all counts of draws on the sides, flat, deep and zero, with the logs of their ways."""
    last = np.arange(size + 1)
    some = [last, *(last if there else np.zeros(1, np.int64) for there in (flat, deep))]
    counts = np.stack(np.meshgrid(*some), axis=-1).reshape(-1, 3)
    counts = counts[counts.sum(axis=1) <= size]
    counts = np.column_stack([counts, size - counts.sum(axis=1)])
    factorials = gammaln(np.arange(1.0, size + 2))
    return counts.astype(np.float64), factorials[size] - factorials[counts].sum(axis=1)


def _fine(clones: float) -> int:
    """Choose how many rows keep the chords over them within about 2e-4 of δ."""
    return int(min(_FINE, max(_COARSE, 1.4e6 / math.sqrt(max(1.0, clones)))))


def _wide(pair: Pair, size: int, unit: float) -> bool:
    """Say whether N reaches so many kinks that rows are too dear to be taken one by one."""
    p = math.exp(pair.epsilon)
    return unit * math.sqrt(size * (pair.flat + p * p * pair.deep)) * 18 > _KINKS


def _window(chance: float, size: int, tail: float) -> tuple[int, int, float]:
    """Give the range that C leaves with chance e^-tail at either end, and what to add for it."""
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
        one = np.array([float(size)])
        return (_Rows(draws=one, anchor=one, mass=np.ones(1), base=size),)
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
    """Give the counts of the window with their binomial masses, by ratios, summing to one."""
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
    """Smear N, the weight of `size` draws off the sides; with c ≤ C, R ≤ N - (C - c) E[N]/size.

    The n - C draws off the sides weigh 1 (flat), p (deep) or 0. Giving C - c others such a
    weight as well, less its mean, is a spread; so is drawing flat and deep without each other.
    """
    other = 1 - 2 * pair.side
    reach = math.sqrt(2 * tail)
    if other <= 0 or pair.flat + pair.deep <= 0:
        return smear(size, 0.0, reach=reach)
    deep = min(1.0, pair.deep / other)
    flat = min(1.0, pair.flat / (other - pair.deep)) if deep < 1 else 0.0
    shallow = smear(size, flat, reach=reach)
    if deep <= 0:
        return shallow
    depth = math.exp(pair.epsilon) - flat
    return _sum(shallow, spread(size, deep, reach=reach, nodes=128), depth)


def _sum(shallow: Smear, sunk: Weights, depth: float) -> Smear:
    """Smear the sum of two independent weights."""
    at, mass = depth * sunk.at, sunk.mass
    mean = shallow.mean + float(at @ mass)
    # Past these ends the table's last values stand in, so they only have to be far out.
    first = int(np.argmax(np.cumsum(mass) > _FAR))
    last = at.size - 1 - int(np.argmax(np.cumsum(mass[::-1]) > _FAR))
    ends = (shallow.at[0] + at[first], shallow.at[-1] + at[last])
    u = np.unique(np.append(np.linspace(*ends, 256), mean))
    left = u[:, None] - at[None, :]
    puts = shallow(left) + np.maximum(left - shallow.mean, 0.0)
    calls = shallow(left) + np.maximum(shallow.mean - left, 0.0)
    value = np.where(u <= mean, puts @ mass, calls @ mass)
    return Smear(mean=mean, at=u, value=value)


def _excesses(draws: Array, above: Array, room: Array, rest: Smear, unit: float) -> Array:
    """Give E[(A - t - unit (N - E N))_+] for A ~ Bin(draws, 1/2), t = draws/2 + above.

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
    # In t the excess is linear but for a kink at each integer, where N's randomness adds its
    # smear times the point mass of A; kinks out of N's reach add less than the table's ends.
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
    """Do the same with N spread over a few nodes, where it reaches too many kinks."""
    nodes = rest.nodes(_FEW)
    moved = unit * (nodes.at - rest.mean)[None, :]
    wide = np.broadcast_to(draws[:, None], (draws.size, nodes.at.size))
    found = excess(wide, 0.5, above[:, None] + moved, room=room[:, None] - moved)
    return np.asarray(found @ nodes.mass + unit * rest.value[0])
