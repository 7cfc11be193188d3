"""Certificates: a guarantee replayed in interval arithmetic, without rounding errors of floats.

Arb encloses the bound δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+] between two numbers, directly from the
few numbers of the law; the float bounds give only a starting point. `enclose` sums over all
outcomes where these are few, over the numbers of clones where a law has only its two sides, and
otherwise over points of the integral of `hockey_stick`: noise of width h makes it U(h), and the
truth lies between 2 U(h) - U(2h) and U(h). Where a report has two values, the sum of
`binary_response` is enclosed instead. Proofs: docs/explanation/amplification.md, section 7b, 7c.
Needs the extra `certify` (python-flint).
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from coatcheck.accounting import binary_response, box_caps, hockey_stick
from coatcheck.accounting.binary_response import CUT, TwoReports
from coatcheck.accounting.box_caps import BoxCaps
from coatcheck.accounting.guarantee import Certificate
from coatcheck.accounting.laws import (
    ATOMS,
    AnyLdp,
    Boxed,
    Channel,
    Clones,
    Fieldwise,
    Law,
    OwnCoin,
    Ratios,
    TwoLevel,
    WithDecoys,
    pair,
)
from coatcheck.accounting.numerics import END, UNIFORMS
from coatcheck.errors import Misuse

try:
    from flint import acb, acb_mat, arb, ctx

    _AVAILABLE = True
except ImportError:  # the extra is not installed
    _AVAILABLE = False

Ball: TypeAlias = Any  # a real ball of Arb
Draws: TypeAlias = list[tuple[Ball, Ball]]  # values of G and their chances; otherwise G is zero
Atom: TypeAlias = tuple[Ball, Ball, Ball]
# Chances of a zero and of a one, and how many people have these.
People: TypeAlias = tuple[tuple[tuple[Ball, ...], int], ...]

# Binary digits to compute with.
_DIGITS: Final = 160


def certify(*laws: Law, size: int, epsilon: float, delta: float) -> Certificate:
    """Replay a promise of (ε, δ) among `size` people, and enclose the ε and δ that hold.

    `laws` bound what a report reveals, the closest first. Each one is sufficient.
    """
    pair(laws[0])  # rejects what is not a law
    if isinstance(laws[0], WithDecoys):
        raise Misuse("a promise with decoys cannot be replayed in interval arithmetic yet")
    if not _AVAILABLE:
        raise Misuse("certifying needs python-flint: pip install 'coatcheck[certify]'")
    law, delta_low, delta_high = replayed(*laws, size=size, epsilon=epsilon, decide=delta)
    high = epsilon if delta_high <= delta else law.epsilon
    return Certificate(
        low=_below(law, size, epsilon, delta), high=high, delta_low=delta_low, delta_high=delta_high
    )


def replayed(
    *laws: Law, size: int, epsilon: float, decide: float, both: bool = True
) -> tuple[Law, float, float]:
    """Find the first law that keeps δ at most `decide`, with its interval; else the first law.

    Near the local ε a promise may rest on a coarser law, because the floats of the closer law are
    rounded up.
    """
    first: tuple[Law, float, float] | None = None
    for law in dict.fromkeys(map(_widest, laws)):
        low, high = delta_interval(law, size=size, epsilon=epsilon, decide=decide, both=both)
        if high <= decide:
            return law, low, high
        first = first or (law, low, high)
    if first is None:
        raise Misuse("`laws` must name at least one law")
    return first


def _widest(law: Law) -> Law:
    """Replace a clone bound by the law of any mechanism, which is smaller and also holds."""
    match law:
        case Clones():
            return AnyLdp(epsilon=law.epsilon)
        case OwnCoin(law=Clones()):
            return OwnCoin(law=AnyLdp(epsilon=law.epsilon), rate=law.rate)
    return law


def _below(law: Law, size: int, epsilon: float, delta: float) -> float:
    """Find a slightly smaller ε at which the bound is certainly above δ; zero if there is none."""
    for step in (3e-6, 3e-5, 3e-4, 3e-3, 3e-2, 0.3):
        low = epsilon * (1 - step)
        if delta_interval(law, size=size, epsilon=low, decide=delta)[0] > delta:
            return low
    return 0.0


def delta_interval(
    law: Law, *, size: int, epsilon: float, decide: float, both: bool = True
) -> tuple[float, float]:
    """Enclose the right-hand side of (*) at ε_c, for the worst pair of values of a law.

    Args:
        law: the privacy law of one report.
        size: n, the honest people who are still anonymous.
        epsilon: ε_c.
        decide: stop once the result is certainly above, or certainly not above, this number.
        both: compute both ends closely; else the lower one only if the upper is above `decide`.
    """
    if epsilon >= law.epsilon:
        return 0.0, 0.0
    with ctx.workprec(_DIGITS):
        e = arb(epsilon).exp()
        worst = pair(law)
        if isinstance(worst, TwoReports):
            return _two_reports(worst, size, epsilon)
        intervals = [
            enclose([(x - e * y, m) for x, y, m in atoms], size, decide, both=both)
            for atoms in _pairs(law)
        ]
        low, high = max(low for low, _ in intervals), min(1.0, max(high for _, high in intervals))
        if isinstance(worst, Boxed):
            closer = _box_caps(worst.caps, size, epsilon, high)
            low, high = min(low, closer[0]), min(high, closer[1])
    return low, high


def _pairs(law: Law) -> list[list[Atom]]:
    """Return the (R0/m, R1/m, m) of all reports, for pairs of values of which one is the worst."""
    if isinstance(law, OwnCoin):
        return [_silenced(atoms, arb(law.rate)) for atoms in _pairs(law.law)]
    if isinstance(law, Channel):
        return list(_channel(law))
    if isinstance(law, Ratios):
        return [[(arb(x), arb(y), arb(m)) for x, y, m in law.atoms]]
    p = arb(law.epsilon).exp()
    atoms = _sides(p, 1 / (p + 1))
    match law:
        case Clones():
            scale = 2 * p / (p + 1)
            atoms = [(scale * x, scale * y, m) for x, y, m in _sides(p, 1 / (2 * p))]
        case TwoLevel():
            flat, deep = _parts(law, p)
            if flat >= 0:
                atoms = [*_sides(p, arb(law.apart)), (arb(1), arb(1), flat), (p, p, deep)]
        case Fieldwise():
            atoms = _product(law)
    return [atoms]


def _silenced(atoms: list[Atom], rate: Ball) -> list[Atom]:
    """Add silence, one more report that reveals nothing."""
    spoken = [(x, y, rate * m) for x, y, m in atoms if not x == y == 1]
    flat = sum((rate * m for x, y, m in atoms if x == y == 1), 1 - rate)
    return [*spoken, (arb(1), arb(1), flat)]


def _sides(p: Ball, side: Ball) -> list[Atom]:
    return [(p, arb(1), side), (arb(1), p, side)]


def _parts(law: TwoLevel, p: Ball) -> tuple[Ball, Ball]:
    """Return the chances of the values 1 - e and p(1 - e) of G, as `laws.pair` does."""
    cap, apart, kernel = (arb(x) for x in (max(law.cap, law.apart), law.apart, law.kernel))
    if not kernel <= cap - apart:
        kernel = cap - apart
    deep = cap - apart - kernel
    return 1 - (p - 1) * cap - 2 * apart - deep - kernel + p * kernel, deep


def _product(law: Fieldwise) -> list[Atom]:
    """Multiply the fields; equal fields are counted together."""
    any_law = _sides(arb(law.epsilon).exp(), 1 / (arb(law.epsilon).exp() + 1))
    kinds = list(dict.fromkeys(law.laws))
    ratios = [arb(kind.epsilon).exp() for kind in kinds]
    # How often each kind of field raised the first value, and how often the second.
    whole: dict[tuple[tuple[int, int], ...], Ball] = {((0, 0),) * len(kinds): arb(1)}
    for field in law.laws:
        place = kinds.index(field)
        p = ratios[place]
        side, (flat, deep) = arb(field.apart), _parts(field, p)
        if not flat >= 0:
            if not (field.reached and field.apart == field.cap):
                return any_law
            side, flat, deep = 1 / (p + 1), arb(0), arb(0)
        more: dict[tuple[tuple[int, int], ...], Ball] = {}
        for key, mass in whole.items():
            x, y = key[place]
            for part, up in (((1, 0), side), ((0, 1), side), ((0, 0), flat), ((1, 1), deep)):
                raised = (x + part[0], y + part[1])
                new = (*key[:place], raised, *key[place + 1 :])
                more[new] = more.get(new, arb(0)) + mass * up
        whole = more
        if len(whole) > ATOMS:
            return any_law
    return [
        (_power(ratios, (x for x, _ in key)), _power(ratios, (y for _, y in key)), mass)
        for key, mass in whole.items()
        if not mass == 0  # noqa: SIM201 - a ball may be neither
    ]


def _power(ratios: list[Ball], counts: Iterable[int]) -> Ball:
    return math.prod((p**k for p, k in zip(ratios, counts, strict=True)), start=arb(1))


def _channel(law: Channel) -> Iterable[list[Atom]]:
    """Use the least chance of each report as the blanket, and list all pairs of values."""
    blanket = [min(column) for column in zip(*law.matrix, strict=True)]
    for row, other in itertools.permutations(dict.fromkeys(law.matrix), 2):
        rows = Counter(zip(row, other, blanket, strict=True))
        yield [(arb(x) / m, arb(y) / m, arb(m) * many) for (x, y, m), many in rows.items()]


# -- enclosures of E[(G_1 + ... + G_n)_+]/n

# Widths of the noise over 1/c, tried in turn until the promise is decided.
_WIDTHS: Final = (0.008, 0.002, 0.0005)
# Standard deviations of the sum between images, and at which multiples of c these are bounded.
_APART: Final = 13.0
_RATIOS: Final = (0.1, 0.4, 0.8, 1.2, 1.6, 2.5)
# Clones on either side up to which their numbers are summed one by one.
_ROWS: Final = 50_000
# Ways to draw a few values up to which all outcomes are listed.
_OUTCOMES: Final = 30_000
# Values drawn less often than this are counted one by one where counting all takes too long.
_RARE: Final = 40.0
# Terms past which an integral is quicker.
_TERMS: Final = 300_000
# Minus the log of the chance that a count lies outside the window that is summed.
_TAIL: Final = 90.0


def enclose(draws: Draws, size: int, decide: float, *, both: bool = True) -> tuple[float, float]:
    """Enclose E[(G_1 + ... + G_n)_+]/n for a G with these values and chances, otherwise zero.

    Without `both` the lower end may be zero once the upper end is at most `decide`.
    """
    draws = [(value, mass) for value, mass in draws if not mass == 0]  # noqa: SIM201 - balls
    if all(value <= 0 for value, _ in draws):
        return 0.0, 0.0
    # One draw this low makes every sum negative, so a lower value makes no difference.
    floor = -size * max(value for value, _ in draws)
    draws = [(max(value, floor), mass) for value, mass in draws]
    some = sum((mass for _, mass in draws), arb(0))
    even = len(draws) == 2 and draws[0][1].overlaps(draws[1][1])
    if even and size * some < _ROWS:
        return _ends(_by_rows(draws, size))
    return (
        _by_counts(draws, [], size, decide)
        or _by_counts(*_split(draws, size), size, decide)
        or _by_integral(draws, size, decide, both=both)
    )


def _split(draws: Draws, size: int) -> tuple[Draws, Draws]:
    rare = [draw for draw in draws if size * draw[1] < _RARE]
    return rare, [draw for draw in draws if not size * draw[1] < _RARE]


def _by_integral(draws: Draws, size: int, decide: float, *, both: bool) -> tuple[float, float]:
    values = np.array([float(value.mid()) for value, _ in draws])
    masses = np.array([float(mass.mid()) for _, mass in draws])
    c = hockey_stick.saddle(values, masses, size=size)
    none = (1 - _whole(draws)) ** size
    low, high = 0.0, math.inf
    for width in _WIDTHS:
        single, images = _smoothed(draws, size, c=c, width=width)
        # If every draw is zero, the sum is zero, and so is its positive part.
        high = min(high, _ends(single - none * _noise() * width / c / size)[1])
        if high <= decide and not both:
            break
        double, _ = _smoothed(draws, size, c=c, width=2 * width)
        low = max(low, _ends(2 * single - double - 2 * images)[0])
        if not low <= decide < high:
            break
    return low, max(low, high)


def _whole(draws: Draws) -> Ball:
    return sum((mass for _, mass in draws), arb(0))


def _noise() -> Ball:
    """Return E[X_+] of a sum of 16 variables that are uniform on [-1/2, 1/2]."""
    half = UNIFORMS // 2
    terms = ((-1) ** j * math.comb(UNIFORMS, j) * (half - j) ** (UNIFORMS + 1) for j in range(half))
    return arb(sum(terms)) / math.factorial(UNIFORMS + 1)


def _ends(ball: Ball) -> tuple[float, float]:
    if not ball.is_finite():
        return 0.0, math.inf
    low, high = float(ball.lower()), float(ball.upper())
    return max(0.0, math.nextafter(low, -1)), math.nextafter(high, math.inf)


def _most(rare: Draws, size: int, close: float) -> tuple[int, Ball]:
    """Return a number of rare draws past which the expectation is small, and enclose the rest.

    E[K; K > k] = n s P[Bin(n - 1, s) >= k] ≤ n s (n s)^k/k! for K ~ Bin(n, s) such draws.
    """
    top = max(value for value, _ in rare)
    mean = size * _whole(rare)
    most = min(size, math.ceil(float(mean.upper())))
    while most < min(size, 300):
        cut = top * mean * mean**most / arb(most).fac()
        if cut < close:
            return most, arb(0, 1) * cut / size
        most += 1
    return most, arb(0) if most == size else arb("inf")


def _by_counts(rare: Draws, common: Draws, size: int, decide: float) -> tuple[float, float] | None:
    """Sum over the counts of each rare value; None if there are too many counts."""
    if len(common) > 1 or not any(value > 0 for value, _ in rare):
        return None
    most, cut = _most(rare, size, 1e-8 * decide * size)
    if math.comb(min(most, 300) + len(rare), len(rare)) > _OUTCOMES or not cut.is_finite():
        return None
    remainder = 1 - _whole(rare)
    value, mass = common[0] if common else (arb(0), arb(0))
    rest = _Rest(value, mass / remainder, 1e-10 * decide)
    powers = [[mass**k / arb(k).fac() for k in range(most + 1)] for _, mass in rare]
    total_excess, ways = cut * size, arb(1)
    for total in range(most + 1):
        ways *= size - total + 1 if total else 1
        chances = ways * remainder ** (size - total)
        for counts in _compositions(total, len(rare)):
            offset = sum((k * v for k, (v, _) in zip(counts, rare, strict=True)), arb(0))
            chance = math.prod(row[k] for row, k in zip(powers, counts, strict=True)) * chances
            total_excess += chance * rest.excess(offset, size - total, chance)
        if rest.terms > _TERMS:
            return None
    return _ends(total_excess / size)


@dataclass
class _Rest:
    """The count T ~ Bin(n, chance) of the one common value, and E[(x + value T)_+]."""

    value: Ball
    chance: Ball
    close: float
    terms: int = 0

    def excess(self, x: Ball, size: int, weight: Ball) -> Ball:
        """Enclose E[(x + value T)_+], more closely for a larger weight."""
        if self.value == 0 or size == 0:
            return x.nonnegative_part()
        turn = -x / self.value  # the T at which it is zero
        mean = x + size * self.chance * self.value
        if (self.value < 0 and turn >= size) or (self.value > 0 and turn <= 0):
            return mean
        if (self.value < 0 and turn <= 0) or (self.value > 0 and turn >= size):
            return arb(0)
        upper = bool(turn > size * self.chance)  # the side of T on which the sum is small
        small = self._side(turn, size, weight, upper=upper)
        return small if upper == bool(self.value > 0) else mean + small

    def _side(self, turn: Ball, size: int, weight: Ball, *, upper: bool) -> Ball:
        """Enclose |value| E[(T - turn)_+], or of turn - T, where that is the rarer side."""
        scale, close = abs(self.value), self.close * size
        tail = scale * size * _chernoff(size, self.chance, turn)
        if tail * weight < close:
            return arb(0, 1) * tail
        step = 1 if upper else -1
        count = math.floor(float(turn.mid())) + (1 if upper else 0)
        point = _point(arb(size), self.chance, count) if 0 <= count <= size else arb(0)
        odds = self.chance / (1 - self.chance)
        expected = arb(0, 1) * turn.rad()
        while 0 <= count <= size:
            self.terms += 1
            far = (count - turn) * step
            expected += point * far.nonnegative_part()
            ratio = (arb(size - count) / (count + 1)) * odds
            if not upper:
                ratio = arb(count) / (size - count + 1) / odds
            # Ratios fall from here on, so the rest is below a geometric series.
            if self.terms % 64 == 0 and ratio < 1:
                rest = point * ratio * ((far + 1) / (1 - ratio) + ratio / (1 - ratio) ** 2)
                if scale * rest * weight < close:
                    return scale * (expected + arb(0, 1) * rest)
            point *= ratio
            count += step
        return scale * expected


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as an ordered sum of `parts` numbers, 0 or more."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _by_rows(draws: Draws, size: int) -> Ball:
    """Enclose E[(vA - wB)_+]/n exactly, for counts A and B of equal chances, given C = A + B.

    E[(A - t)_+] = (C/2 - t) P[A >= k] + (k/2) P[A = k] for the least whole k above t.
    """
    (value, side), (other, _) = draws
    up, down = (value, other) if value > other else (other, value)
    step, chance = up - down, 2 * side
    low, high, cut = _window(chance, size)
    mass = _point(arb(size), chance, low) if low else (1 - chance) ** size
    k, at_k, tail = 0, arb(1) if low == 0 else arb(0), arb(1)
    total = arb(0)
    for clones in range(low, high + 1):
        t = -down * clones / step
        first = math.floor(float(t.mid())) + 1
        if clones == low and low:
            k, at_k, tail = _tail(clones, first)
        elif clones > low:
            before = at_k * k / (clones - k) if k < clones else arb(0)  # P[A = k-1] of C - 1
            if k == clones:
                before = arb(2) ** (1 - clones)
            tail, at_k = tail + before / 2, (at_k + before) / 2
        while k < first and k <= clones:
            tail, at_k, k = tail - at_k, at_k * (clones - k) / (k + 1), k + 1
        excess = (arb(clones) / 2 - t) * tail + arb(k) / 2 * at_k
        total += mass * (excess + arb(0, 1) * t.rad())
        mass *= (size - clones) * chance / ((clones + 1) * (1 - chance))
    return (step * total + arb(0, 1) * up * cut) / size


def _window(chance: Ball, size: int) -> tuple[int, int, Ball]:
    """Return a range for C ~ Bin(n, chance), and a bound on E[C; C outside], by Chernoff."""
    mean = size * float(chance.mid())
    reach = _TAIL / 3 + math.sqrt(_TAIL**2 / 9 + 2 * mean * _TAIL)
    low, high = max(0, math.floor(mean - reach)), min(size, math.ceil(mean + reach))
    cut = arb(0)
    if low:
        cut += low * _chernoff(size, chance, arb(low))
    if high < size:
        cut += size * _chernoff(size, chance, arb(high))
    return low, high, cut


def _chernoff(size: int, chance: Ball, count: Ball) -> Ball:
    """Bound P[C <= count] below the mean, or P[C >= count] above it, by their divergence."""
    share = count / size
    log = share * (share / chance).log() + (1 - share) * ((1 - share) / (1 - chance)).log()
    return (-size * log).exp()


def _point(draws: Ball, chance: Ball, k: int) -> Ball:
    """Return P[Bin(draws, chance) = k]."""
    ways = (draws + 1).lgamma() - arb(k + 1).lgamma() - (draws - k + 1).lgamma()
    return (ways + k * chance.log() + (draws - k) * (1 - chance).log()).exp()


def _tail(draws: int, k: int) -> tuple[int, Ball, Ball]:
    """Return k, P[A = k] and P[A >= k] for A ~ Bin(draws, 1/2)."""
    if k > draws:
        return k, arb(0), arb(0)
    at_k = _point(arb(draws), arb(0.5), k)
    total, term = arb(0), at_k
    for j in range(k, draws + 1):
        total += term
        term *= arb(draws - j) / (j + 1)
    return k, at_k, total


def _smoothed(draws: Draws, size: int, *, c: float, width: float) -> tuple[Ball, Ball]:
    """Enclose E[(S + hX)_+]/n with its images, and bound the images, which are at least zero.

    X is a sum of 16 uniform variables, h = width/c. Both are a sum over points (Statement 28).
    """
    grown = [mass * (c * value).exp() for value, mass in draws]
    whole = 1 - _whole(draws) + sum(grown, arb(0))  # M(c)
    turns = [c * value for value, _ in draws]
    shares = [mass / whole for mass in grown]
    spread = sum(float(x * t * t) for x, t in zip(shares, turns, strict=True))
    spread -= sum(float(x * t) for x, t in zip(shares, turns, strict=True)) ** 2
    reach = _APART * math.sqrt(max(0.0, size * spread) + UNIFORMS / 12 * width**2) + 8
    step, end = 2 * math.pi / reach, END / width
    half, integral = arb(width) / 2, arb(0)
    far = arb(0, half.cosh() ** UNIFORMS * math.exp(1 - _TAIL))
    for k, ratio in enumerate(_ratios(turns, shares, step, math.ceil(end / step) + 1)):
        if size * math.log(float(abs(ratio).upper()) + 1e-300) < -_TAIL:
            integral += far  # |sinh(x + iy)/(x + iy)| ≤ cosh x
            continue
        z = acb(1, k * arb(step))
        kernel = ((z * half).sinh() / (z * half)) ** UNIFORMS / (z * z)
        term = (ratio**size * kernel).real
        integral += term if k else term / 2
    past = (half.cosh() / (half * end)) ** UNIFORMS / ((UNIFORMS + 1) * end)
    total = step * integral + arb(0, past)
    images = [_image(draws, size, c=c, width=width, ratio=x, at=step) for x in _RATIOS]
    sides = (images[: len(images) // 2], images[len(images) // 2 :])
    least = (min(side, key=lambda x: float(x.upper())) for side in sides)
    return whole**size / (arb.pi() * c * size) * total, sum(least, arb(0))


def _ratios(turns: list[Ball], shares: list[Ball], step: float, points: int) -> Iterator[Any]:
    """Return M(c + ick)/M(c) at multiples of a step, by a product of two matrices."""
    row = math.isqrt(points) + 1
    none, unit = 1 - sum(shares, arb(0)), acb(0, arb(step))
    first = [[(unit * k * turn).exp() for turn in turns] for k in range(row)]
    rows = math.ceil(points / row)
    both = list(zip(turns, shares, strict=True))
    start = [[share * (unit * row * k * turn).exp() for k in range(rows)] for turn, share in both]
    product = acb_mat(first) * acb_mat(start)
    return (product[k % row, k // row] + none for k in range(points))


def _image(draws: Draws, size: int, *, c: float, width: float, ratio: float, at: float) -> Ball:
    """Bound what all images on one side add to the sum: e^(cx) E[(S + hX - x)_+] at 2πk/(c step).

    E[(Y - x)_+] ≤ e^(-lx) E[e^(lY)]/(el) for every l > 0, here l = ratio c.
    """
    grown = sum((mass * ((ratio * c * value).exp() - 1) for value, mass in draws), arb(1))
    half = arb(width) * ratio / 2
    noise = (half.sinh() / half) ** UNIFORMS
    falls = (-abs(arb(ratio) - 1) * 2 * arb.pi() / arb(at)).exp()
    return grown**size * noise * falls / (1 - falls) / (arb(1).exp() * ratio * c * size)


# -- reports with two values


def _two_reports(law: TwoReports, size: int, epsilon: float) -> tuple[float, float]:
    """Enclose δ(ε_c) of the least private of the crowds of `binary_response.blocks`."""
    p, e = arb(law.epsilon).exp(), arb(epsilon).exp()
    fewest, most = (tuple(map(arb, row or (1, 1))) for row in (law.fewest, law.most))
    ways = [(fewest, most), (most[::-1], fewest[::-1])]
    if law.most is None:
        fewest = (p / (1 + p), 1 / (1 + p))
        ways = [(fewest, fewest[::-1])]
    low, high = 0.0, 0.0
    for few, many in ways:
        first, second = few[0] - e * many[0], e * many[1] - few[1]
        if first <= 0:
            continue
        if not 0 < first < second:
            return 0.0, math.inf
        # The float tilt only chooses the blocks.
        chances = [(float(zero), float(one)) for zero, one in (few, many)]
        tilt = binary_response.tilted(float(first), float(second - first), *chances)
        crowds, _ = binary_response.blocks(tilt, size - 1)
        for others, count in zip(crowds.others, crowds.many, strict=True):
            people = ((few, int(others - count)), (many, int(count)))
            ends = _ends(_most_of_one_crowd(first, second, people))
            low, high = max(low, ends[0]), max(high, ends[1])
    return low, high


def _most_of_one_crowd(first: Ball, second: Ball, people: People) -> Ball:
    """Enclose the largest a P[S <= m] - b P[S <= m - 1], S the ones of people of two kinds."""
    ratio = second / first
    tilted = [((one / ratio) / (zero + one / ratio), count) for (zero, one), count in people]
    mean = sum((one * count for one, count in tilted), arb(0))
    spread = float(sum((one * (1 - one) * count for one, count in tilted), arb(0)).upper())
    reach = math.ceil(CUT / 3 + math.sqrt(CUT**2 / 9 + 2 * spread * CUT)) + 4
    points = 2 * reach + 1
    scale = first * ratio * math.prod((zero + one / ratio) ** n for (zero, one), n in people)
    rest = (1 - 1 / ratio) / ratio**reach
    near = binary_response.modes(np.array([float(mean.mid())]))
    modes = sorted({int(m[0]) for m in near if m[0] >= 0})
    totals = [ratio ** -(reach + 1) / points for _ in modes]
    for k in range(1, reach + 1):
        turn = acb(0, 2 * arb.pi() * k / points).exp()
        if spread * (1 - turn.real) > CUT:
            break
        phase = math.prod((1 - one + one * turn) ** n for one, n in tilted) / (ratio - turn)
        phase *= 1 - turn + rest * turn ** (reach + 1)
        for at, m in enumerate(modes):
            totals[at] += 2 * (phase * turn**-m).real / points
    cut = arb(0, 1) * 8 * math.exp(-CUT) / ratio
    ends = [scale * ratio**m * (total + cut) for m, total in zip(modes, totals, strict=True)]
    return functools.reduce(arb.max, ends)


# -- caps that are boxes


def _box_caps(caps: BoxCaps, size: int, epsilon: float, guess: float) -> tuple[float, float]:
    """Enclose the bound of `box_caps`, with the pool that floats choose."""
    _, share = box_caps.closest(caps, size=size, epsilon=epsilon, guess=guess)
    if share == 0:
        return 1.0, 1.0
    p, e, pool = arb(caps.epsilon).exp(), arb(epsilon).exp(), arb(share)
    levels, values = [], []
    for alike, *inside in zip(box_caps.ALL, box_caps.IN0, box_caps.IN1, box_caps.INX, strict=True):
        first, second, other = (p if within else arb(1) for within in inside)
        taken = pool * (p if alike else 1) if inside[0] == inside[1] else arb(0)
        levels.append((other, taken))
        values.append((first - e * second) / (other - taken))
    volumes = [_volumes(caps, p, counts) for counts in box_caps.patterns(caps.axes)]
    masses = [
        [v * (other - taken) for v, (other, taken) in zip(row, levels, strict=True)]
        for row in volumes
    ]
    chances = [
        sum((v * taken for v, (_, taken) in zip(row, levels, strict=True)), arb(0))
        for row in volumes
    ]
    most, least = max(map(_high, chances)), min(float(x.lower()) for x in chances)
    floats = np.array([[float(x.mid()) for x in row] for row in masses])
    near = np.maximum([float(x.mid()) for x in values], -size * float(max(values, key=_high)))
    c = box_caps.saddle(near, floats, size=size)
    grown = [[m * (c * x).exp() for m, x in zip(row, values, strict=True)] for row in masses]
    spread = max(
        float(sum((m * x * x for m, x in zip(row, values, strict=True)), arb(0)))
        / float(sum(row, arb(0)) + k)
        for row, k in zip(grown, chances, strict=True)
    )
    width = box_caps.WIDTH
    reach = _APART * math.sqrt(size * spread * c**2 + UNIFORMS / 12 * width**2) + 8
    step, end = 2 * math.pi / reach, END / width
    totals = [arb(0) for _ in grown]
    half = arb(width) / 2
    for k in range(math.ceil(end / step) + 1):
        z = acb(1, k * arb(step))
        weight = abs(((z * half).sinh() / (z * half)) ** UNIFORMS / (z * z)) * (2 if k else 1)
        turned = [(acb(0, k * arb(step)) * c * x).exp() for x in values]
        for at, (row, chance) in enumerate(zip(grown, chances, strict=True)):
            whole = sum((m * x for m, x in zip(row, turned, strict=True)), acb(chance))
            totals[at] += weight * _mean_power(abs(whole), abs(whole - most), size)
    past = (half.cosh() / (half * end)) ** UNIFORMS / ((UNIFORMS + 1) * end) / arb.pi()
    ends = []
    for row, chance, total in zip(grown, chances, totals, strict=True):
        high = sum(row, chance)
        rest = past * _mean_power(high, abs(high - 2 * chance) + most, size)
        ends.append(_ends(most / c * (arb(step) / (2 * arb.pi()) * total + rest)))
    alone = (1 - arb(least)) ** (size - 1) * arb(caps.cap) * (1 - arb(caps.share) ** caps.axes)
    alone *= max(values[box_caps.FIRST_ONLY], arb(0))
    empty = _ends(alone)
    return max(low for low, _ in ends) + empty[0], (max(high for _, high in ends) + empty[1]) * (
        1 + 1e-15
    )


def _high(ball: Ball) -> float:
    return math.nextafter(float(ball.upper()), math.inf)


def _mean_power(first: Ball, second: Ball, size: int) -> Ball:
    """Enclose the mean of x^(n-1) over the numbers x between two numbers."""
    if first.overlaps(second):
        return arb.max(first, second) ** (size - 1)
    return (first**size - second**size) / (size * (first - second))


def _volumes(caps: BoxCaps, p: Ball, counts: tuple[int, int, int]) -> list[Ball]:
    """Return the masses under the lower level of the nine kinds of reports."""
    q, (first, second, third) = arb(caps.share), counts
    pair, one, two = q ** (first + second), q ** (first + third), q ** (second + third)
    three, everywhere = q ** (first + second + third), q**caps.axes
    inside = [everywhere, three - everywhere, pair - three, one - three, two - three]
    inside += [1 - pair - one + three, 1 - pair - two + three, 1 - one - two + three]
    masses = [arb(caps.cap) * max(x, arb(0)) for x in inside]
    return [*masses, max(arb(0), 1 - (p - 1) * arb(caps.cap) - sum(masses, arb(0)))]
