"""Bounds from below: how much privacy a crowd does lose on one of two data sets.

They tell how much an upper bound wastes. All other people hold one and the same value, so that the
blanket identity is an equality. What is cut off or rounded is left out, so that the result is
reached. No promise depends on this file.
"""

import math

import numpy as np

from coatcheck.accounting.binomials import Array, at_least, excess, point
from coatcheck.accounting.laws import AnyLdp, Clones, Law, OwnCoin, TwoLevel

_MOST = 20_000
# More than the relative rounding errors of a few products.
_ROUNDING = 1e-14
_EDGES = np.linspace(-5.0, 5.0, 41)


def known(law: Law) -> bool:
    """Say whether it is known which δ this law reaches."""
    law = law.law if isinstance(law, OwnCoin) else law
    return not isinstance(law, TwoLevel) or law.reached


def lower(law: Law, *, size: int, epsilon: float) -> float:
    """Give a δ(ε_c) that a crowd of `size` people reaches for some data set; 0 if none is known.

    A randomizer of which only ε is known may be binary response, so it is taken for that.
    """
    rate = 1.0
    if isinstance(law, OwnCoin):
        rate, law = law.rate, law.law
    if epsilon >= law.epsilon:
        return 0.0
    if isinstance(law, Clones):
        law = AnyLdp(epsilon=law.epsilon)
    if isinstance(law, AnyLdp):
        apart = 1 / (math.exp(law.epsilon) + 1)
        law = TwoLevel(epsilon=law.epsilon, cap=apart, apart=apart, reached=True)
    if not law.reached or law.apart <= 0:  # unknown, or one cap for all values
        return 0.0
    found = _others_at_one_end(law.epsilon, rate * law.apart, size=size, epsilon=epsilon)
    if law.third:
        found = max(found, _others_apart(law.epsilon, rate * law.cap, size=size, epsilon=epsilon))
    return found


def _others_apart(local: float, cap: float, *, size: int, epsilon: float) -> float:
    """Let all others hold a value whose cap touches neither cap of the two in question.

    G is p-e and 1-pe on the two caps, (1-e)/p on the others' cap and 1-e elsewhere. Given C, the
    count U in the others' cap is replaced by its mean within bins, which lowers the result.
    """
    p1, e, e1 = math.expm1(local), math.exp(epsilon), math.expm1(epsilon)
    step = p1 * (1 + e)
    clones, mass = _window(size, 2 * cap)
    means, shares = _bins(size - clones, min(1.0, (p1 + 1) * cap / (1 - 2 * cap)))
    rest = (size - clones)[:, None] - p1 / (p1 + 1) * means
    above = (e1 / step) * ((p1 + 2) / 2 * clones[:, None] + rest)
    draws = np.broadcast_to(clones[:, None], above.shape)
    share = e * math.expm1(local - epsilon) / step
    room = share * draws * (1 - _ROUNDING) - e1 / step * rest * (1 + _ROUNDING)
    values = (excess(draws, 0.5, above, room=room, sign=-1.0) * shares).sum(axis=1)
    return step / size * float(mass @ values) * (1 - 1e-9)


def _others_at_one_end(local: float, apart: float, *, size: int, epsilon: float) -> float:
    """Let all others hold the second of the two values: always possible, mostly a little weaker.

    G is p-e on the first cap alone, 1/p-e on the second alone and 1-e elsewhere.
    """
    p1, e1 = math.expm1(local), math.expm1(epsilon)
    p = p1 + 1
    hits, mass = _window(size, apart)
    left = size - hits
    chance = min(1.0, p * apart / (1 - apart))
    enough = (p1 * hits * (1 - _ROUNDING) - e1 * size * (1 + _ROUNDING)) * p / p1
    if chance > 1 - 1e-12:
        values = np.maximum(enough - left, 0.0)
    else:
        values = excess(left, 1 - chance, left * chance - enough, room=enough, sign=-1.0)
    return p1 / p / size * float(mass @ values) * (1 - 1e-9)


def _window(size: int, chance: float) -> tuple[Array, Array]:
    """Give the likeliest counts of a binomial with their masses, rounded down."""
    mean = size * chance
    reach = min(_MOST / 2, 20 + 12 * math.sqrt(mean * (1 - chance)) + 10)
    low, high = max(0, math.floor(mean - reach)), min(size, math.ceil(mean + reach))
    counts = np.arange(low, high + 1, dtype=np.float64)
    return counts, point(np.full_like(counts, size), chance, counts) * (1 - 1e-10)


def _bins(draws: Array, chance: float) -> tuple[Array, Array]:
    """Give the conditional means of a binomial in bins, and their chances, for each row."""
    if chance > 1 - 1e-12:
        return draws[:, None], np.ones((draws.size, 1))
    many = draws[:, None]
    edges = np.ceil(many * chance + _EDGES * np.sqrt(many * chance * (1 - chance)))
    tails = at_least(np.broadcast_to(many, edges.shape), chance, edges)
    sums = many * chance * tails + np.maximum(edges, 0) * (1 - chance) * point(
        np.broadcast_to(many, edges.shape), chance, edges
    )
    one, none = np.ones_like(many), np.zeros_like(many)
    shares = -np.diff(np.hstack([one, tails, none]), axis=1)
    totals = -np.diff(np.hstack([many * chance, sums, none]), axis=1)
    means = np.where(shares > 1e-9, totals / np.maximum(shares, 1e-9), many * chance)
    return means, np.where(shares > 1e-9, shares, 0.0)
