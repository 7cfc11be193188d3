"""What one report says about two people: the pair laws that the accountant works on.

A randomizer states its law as a few numbers; the accountant (`amplification`) turns them into
what a crowd guarantees. This file knows no data and no mechanism.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AnyLdp:
    """Nothing is known but that the randomizer is ε-LDP: the worst case of all of them."""

    epsilon: float


@dataclass(frozen=True, kw_only=True)
class TwoLevel:
    """A mechanism whose density takes two values, 1 and e^ε (times one constant).

    Each input has a cap of reports that are e^ε times likelier than the rest; all caps have one
    volume. Minkowski, Bounded, Grid and k-ary response are of this kind.

    Attributes:
        epsilon: the log of the ratio between the two levels.
        cap: α, the mass of one cap under the lower level (the blanket).
        apart: a ≤ α, the largest part of a cap, under the lower level, that another input's cap
            can miss; equal to `cap` when two caps can be disjoint.
        kernel: k, the mass under the lower level of what all caps have in common.
    """

    epsilon: float
    cap: float
    apart: float
    kernel: float = 0.0
