"""The bound that every client computes, in whatever language: SPEC, section 20.

`amplify` gives the smallest ε that this library can prove. Another client may prove less, and would
refuse terms that promise as much. So terms promise an ε that the sum of S20.14 confirms:
`promised` raises the ε of `amplify` to it, which rarely changes more than the last digits.

    >>> from coatcheck.accounting.laws import grid
    >>> print(f"{reference_delta(grid(3.0, cells=16), size=1000, epsilon=0.5):.3e}")
    1.299e-05
"""

from dataclasses import replace
from typing import Final

from coatcheck.accounting import box_caps, hockey_stick
from coatcheck.accounting.amplification import amplify, bounding_laws
from coatcheck.accounting.binary_response import TwoReports
from coatcheck.accounting.guarantee import Guarantee
from coatcheck.accounting.laws import Atoms, Boxed, DecoyPair, Law, blanket, pair
from coatcheck.accounting.numerics import bisect
from coatcheck.errors import Misuse

# How far a bound may lie above the promise, as a share of it (S12.10): rounding of the last digits.
ROUNDING: Final = 1e-9

# Kinds of reports, each with its probability under two values over that under all, and the latter.
Kinds = tuple[tuple[float, float, float], ...]


def kinds(law: Law) -> tuple[Kinds, ...]:
    """List the kinds of reports (S20.1) of a law: one list per pair of values that may be worst."""
    worst = blanket(law)
    if isinstance(worst, DecoyPair):
        raise Misuse("a law with decoys has no kinds of reports")
    pairs = worst.pairs if isinstance(worst, Atoms) else hockey_stick.atoms(worst).pairs
    return tuple(tuple(kind for kind in pair if kind[2] > 0) for pair in pairs)


def _bound(law: Law, *, size: int, epsilon: float) -> float:
    worst = pair(law)
    if isinstance(worst, DecoyPair | TwoReports):
        return hockey_stick.upper(worst, size=size, epsilon=epsilon)
    atoms = Atoms(epsilon=worst.epsilon, pairs=kinds(law))
    bound = hockey_stick.upper_by_integral(atoms, size=size, epsilon=epsilon)
    if isinstance(worst, Boxed) and epsilon < worst.epsilon:
        bound = min(bound, box_caps.upper(worst.caps, size=size, epsilon=epsilon, guess=bound))
    return bound


def reference_delta(law: Law, *, size: int, epsilon: float) -> float:
    """Bound δ(ε) of `size` people from above as S20.13 says: the smaller one of two laws."""
    return min(_bound(bound, size=size, epsilon=epsilon) for bound in bounding_laws(law))


def promised(
    law: Law, *, crowd: int, delta: float, corrupted: int = 0, exposed: int = 0, decoys: int = 0
) -> Guarantee:
    """Return the guarantee of the least ε that this library can prove and every client confirms."""
    guarantee = amplify(
        law, crowd=crowd, delta=delta, corrupted=corrupted, exposed=exposed, decoys=decoys
    )

    def confirmed(epsilon: float) -> bool:
        return reference_delta(guarantee.law, size=guarantee.anonymous, epsilon=epsilon) <= delta

    if confirmed(guarantee.epsilon):
        return guarantee
    epsilon = bisect(confirmed, good=law.epsilon, bad=guarantee.epsilon, close=ROUNDING)
    return replace(guarantee, epsilon=epsilon, amplified=epsilon < law.epsilon)


def examined(
    law: Law,
    *,
    promise: float,
    crowd: int,
    delta: float,
    corrupted: int = 0,
    exposed: int = 0,
    decoys: int = 0,
) -> Guarantee:
    """Return the guarantee of a client that reads this promise: at most the promise if it holds.

    *Guarantee:* the ε is proven, by `amplify` or by the sum of S20.14.
    """
    guarantee = amplify(
        law, crowd=crowd, delta=delta, corrupted=corrupted, exposed=exposed, decoys=decoys
    )
    most = promise * (1 + ROUNDING)
    if guarantee.epsilon <= most:
        return guarantee
    if reference_delta(guarantee.law, size=guarantee.anonymous, epsilon=most) <= delta:
        return replace(guarantee, epsilon=most, amplified=True)
    return guarantee
