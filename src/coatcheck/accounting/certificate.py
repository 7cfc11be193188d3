"""A promise replayed in interval arithmetic: no rounding error of floats is left in it.

The bound δ(ε_c) ≤ (1/n) E[(G_1 + ... + G_n)_+] is enclosed between two numbers by Arb, straight
from the few numbers of the law (`enclosure`). Of the float bounds only a starting point is used.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from coatcheck.accounting.guarantee import Certificate
from coatcheck.accounting.laws import (
    AnyLdp,
    Channel,
    Clones,
    Fieldwise,
    Law,
    OwnCoin,
    Ratios,
    TwoLevel,
)
from coatcheck.accounting.pairs import ATOMS, pair
from coatcheck.errors import Misuse

try:
    from flint import arb, ctx

    from coatcheck.accounting.enclosure import enclose

    _HERE = True
except ImportError:  # the extra is not installed
    _HERE = False

# Binary digits to compute with.
_DIGITS: Final = 160
Ball: TypeAlias = Any  # a real ball of Arb
Atom: TypeAlias = tuple[Ball, Ball, Ball]


def certify(*laws: Law, size: int, epsilon: float, delta: float) -> Certificate:
    """Replay a promise of (ε, δ) among `size` people, and enclose what it should have been.

    `laws` bound what a report tells, the closest first. Each is enough on its own.
    """
    pair(laws[0])  # refuses a law that is none
    if not _HERE:
        raise Misuse("certifying needs python-flint: pip install 'coatcheck[certify]'")
    law, least, most = replayed(*laws, size=size, epsilon=epsilon, decide=delta)
    high = epsilon if most <= delta else law.epsilon
    return Certificate(
        low=_below(law, size, epsilon, delta), high=high, delta_low=least, delta_high=most
    )


def replayed(
    *laws: Law, size: int, epsilon: float, decide: float, both: bool = True
) -> tuple[Law, float, float]:
    """Find the first law that keeps δ at most at `decide`, with its interval; else the first one.

    Near the local ε, any mechanism's law can be the one that a promise rests on, because the
    floats of a closer law are rounded up.
    """
    first: tuple[Law, float, float] | None = None
    for law in dict.fromkeys(map(_least, laws)):
        low, high = delta_interval(law, size=size, epsilon=epsilon, decide=decide, both=both)
        if high <= decide:
            return law, low, high
        first = first or (law, low, high)
    if first is None:
        raise Misuse("a promise is replayed by at least one law")
    return first


def _least(law: Law) -> Law:
    """Give any mechanism's law for a clone bound, which holds for any mechanism and is larger."""
    match law:
        case Clones():
            return AnyLdp(epsilon=law.epsilon)
        case OwnCoin(law=Clones()):
            return OwnCoin(law=AnyLdp(epsilon=law.epsilon), rate=law.rate)
    return law


def _below(law: Law, size: int, epsilon: float, delta: float) -> float:
    """Find an ε, not far below, at which the bound is certainly above δ; zero if none is found."""
    for step in (3e-6, 3e-5, 3e-4, 3e-3, 3e-2, 0.3):
        low = epsilon * (1 - step)
        if delta_interval(law, size=size, epsilon=low, decide=delta)[0] > delta:
            return low
    return 0.0


def delta_interval(
    law: Law, *, size: int, epsilon: float, decide: float, both: bool = True
) -> tuple[float, float]:
    """Enclose the right-hand side of (*) at ε_c for a law, the worst pair of its values.

    Args:
        law: what one report tells.
        size: n, the honest people who are still anonymous.
        epsilon: ε_c.
        decide: stop once it is known on which side of this number the result is.
        both: give both ends with care; else the lower one only if the upper one is above.
    """
    if epsilon >= law.epsilon:
        return 0.0, 0.0
    with ctx.workprec(_DIGITS):
        e = arb(epsilon).exp()
        found = [
            enclose([(x - e * y, m) for x, y, m in atoms], size, decide, both=both)
            for atoms in _pairs(law)
        ]
    return max(low for low, _ in found), min(1.0, max(high for _, high in found))


def _pairs(law: Law) -> list[list[Atom]]:
    """Give the (R0/m, R1/m, m) of all reports, for pairs of values of which one is the worst."""
    if isinstance(law, OwnCoin):
        return [_silenced(atoms, arb(law.rate)) for atoms in _pairs(law.law)]
    if isinstance(law, Channel):
        return list(_channel(law))
    if isinstance(law, Ratios):
        return [[(arb(x), arb(y), arb(m)) for x, y, m in law.atoms]]
    p = arb(law.epsilon).exp()
    found = _sides(p, 1 / (p + 1))
    match law:
        case Clones():
            scale = 2 * p / (p + 1)
            found = [(scale * x, scale * y, m) for x, y, m in _sides(p, 1 / (2 * p))]
        case TwoLevel():
            flat, deep = _parts(law, p)
            if flat >= 0:
                found = [*_sides(p, arb(law.apart)), (arb(1), arb(1), flat), (p, p, deep)]
        case Fieldwise():
            found = _product(law)
    return [found]


def _silenced(atoms: list[Atom], rate: Ball) -> list[Atom]:
    """Let people be silent, which is one more report that tells nothing."""
    tells = [(x, y, rate * m) for x, y, m in atoms if not x == y == 1]
    flat = sum((rate * m for x, y, m in atoms if x == y == 1), 1 - rate)
    return [*tells, (arb(1), arb(1), flat)]


def _sides(p: Ball, side: Ball) -> list[Atom]:
    return [(p, arb(1), side), (arb(1), p, side)]


def _parts(law: TwoLevel, p: Ball) -> tuple[Ball, Ball]:
    """Give the chances of the values 1 - e and p(1 - e) of G, as `pairs` does."""
    cap, apart, kernel = (arb(x) for x in (max(law.cap, law.apart), law.apart, law.kernel))
    if not kernel <= cap - apart:
        kernel = cap - apart
    deep = cap - apart - kernel
    return 1 - (p - 1) * cap - 2 * apart - deep - kernel + p * kernel, deep


def _product(law: Fieldwise) -> list[Atom]:
    """Multiply the fields; alike fields are counted together."""
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
    """Take the least chance of each report as the blanket, and list all pairs of values."""
    blanket = [min(column) for column in zip(*law.matrix, strict=True)]
    for one, two in itertools.permutations(dict.fromkeys(law.matrix), 2):
        rows = Counter(zip(one, two, blanket, strict=True))
        yield [(arb(x) / m, arb(y) / m, arb(m) * many) for (x, y, m), many in rows.items()]
