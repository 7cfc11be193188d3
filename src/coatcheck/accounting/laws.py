"""Laws: what one report tells about the value behind it.

A randomizer states its law as a few numbers. The accountant (`amplification`) turns them into what
a crowd guarantees. This file knows no data and no mechanism. It knows how likely a report is under
one value, under another, and under the blanket: the part of its distribution that every value has
in common. The derivations are in docs/explanation/amplification.md.

    >>> round(minkowski(3.0, radius=0.5, dimension=2).cap, 4)
    0.0356
"""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Final, TypeAlias

from coatcheck.accounting.limits import check_epsilon, check_share
from coatcheck.errors import Misuse


@dataclass(frozen=True, kw_only=True)
class AnyLdp:
    """Any randomizer that is ε-LDP: the worst case over all of them."""

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
        reached: whether two caps really miss each other by `apart`, and neither it nor `cap` is
            overstated by more than rounding. Only bounds from below ask for this and for `third`.
        third: whether, moreover, three caps can be disjoint.
    """

    epsilon: float
    cap: float
    apart: float
    kernel: float = 0.0
    reached: bool = False
    third: bool = False


@dataclass(frozen=True, kw_only=True)
class Clones:
    """The clone bound of 2021, a coarser worst case: a report is a clone with chance e^-ε."""

    epsilon: float


@dataclass(frozen=True, kw_only=True)
class OwnCoin:
    """A law in a crowd where each person reports with chance `rate` and otherwise sends silence.

    *Assumes:* each person tosses a coin of their own, and silence reaches the shuffler as a message
    like any other. The crowd to count is everybody who tossed a coin, not those who reported.
    """

    law: "AnyLdp | TwoLevel | Clones"
    rate: float

    @property
    def epsilon(self) -> float:
        """The local ε of a report; silence does not raise it."""
        return self.law.epsilon


# How far rounding may take the stated masses of a mechanism from fitting together.
_SLACK: Final = 1e-3

Law: TypeAlias = AnyLdp | TwoLevel | Clones | OwnCoin


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The distribution of G, the amplification variable, with p = e^ε and e = e^ε_c left open.

    G = (R(x0) - e R(x1)) / m at a report drawn from the blanket m; zero where m has no mass.

    Attributes:
        epsilon: ln p.
        side: chance of scale·(p - e), and again of scale·(1 - pe).
        scale: how far below the two inputs the blanket lies at those reports, over p or 1.
        flat: chance of 1 - e.
        deep: chance of p(1 - e).
    """

    epsilon: float
    side: float
    scale: float = 1.0
    flat: float = 0.0
    deep: float = 0.0

    def values(self, epsilon: float) -> list[tuple[float, float]]:
        """List the (value, chance) of G at a central ε_c; the chances sum to one."""
        p, e = math.exp(self.epsilon), math.exp(epsilon)
        rest = max(0.0, 1 - 2 * self.side - self.flat - self.deep)
        return [
            (self.scale * (p - e), self.side),
            (self.scale * (1 - p * e), self.side),
            (1 - e, self.flat),
            (p * (1 - e), self.deep),
            (0.0, rest),
        ]


def pair(law: Law) -> Pair:
    """Give the worst pair of inputs of a law."""
    if not isinstance(law, Law):
        raise Misuse(f"{law!r} is no law; a randomizer has one as its property `law`")
    check_epsilon(law.epsilon)
    p = math.exp(law.epsilon)
    match law:
        case OwnCoin():
            return _silenced(pair(law.law), law.rate)
        case AnyLdp():
            return Pair(epsilon=law.epsilon, side=1 / (p + 1))
        case Clones():
            return Pair(epsilon=law.epsilon, side=1 / (2 * p), scale=2 * p / (p + 1))
        case TwoLevel():
            return _two_level(law, p)


def _silenced(pair: Pair, rate: float) -> Pair:
    check_share(rate, "the share of people who report")
    return replace(
        pair, side=rate * pair.side, flat=rate * pair.flat + 1 - rate, deep=rate * pair.deep
    )


def _two_level(law: TwoLevel, p: float) -> Pair:
    """Lay out two caps, what they share, and the rest, in masses of the blanket.

    Randomizers round their caps up, which only spreads G. If nothing is left for the rest, the
    law of any ε-LDP randomizer holds as well.
    """
    if not all(isinstance(x, Real) and 0 <= x <= 1 for x in (law.cap, law.apart, law.kernel)):
        raise Misuse(f"no mechanism has the law {law}: its masses are not from 0 to 1")
    # Rounding may make the parts exceed the whole: a larger cap and a smaller kernel are safe.
    cap = max(law.cap, law.apart)
    kernel = min(law.kernel, cap - law.apart)
    blanket = 1 - math.expm1(law.epsilon) * cap
    # What two caps share outside the kernel; to understate it is safe.
    deep = max(0.0, cap - law.apart - kernel)
    deep = 0.0 if deep <= 1e-9 * cap else deep
    flat = blanket - 2 * law.apart - deep - kernel + p * kernel
    if not (
        law.apart + law.kernel <= law.cap * (1 + 1e-9)
        and blanket >= -_SLACK
        and -_SLACK <= flat <= 1 - 2 * law.apart - deep + _SLACK
    ):
        raise Misuse(f"no mechanism has the law {law}: its caps do not fit into its reports")
    if flat < 0:
        return Pair(epsilon=law.epsilon, side=1 / (p + 1))
    return Pair(epsilon=law.epsilon, side=law.apart, flat=flat, deep=deep)


def minkowski(epsilon: float, *, radius: float, dimension: int, norm: float = math.inf) -> TwoLevel:
    """Give the law of Minkowski response: caps of `radius` in a domain of radius 1 + `radius`.

    This is the continuous mechanism. On a lattice caps are a little larger: use `randomizer.law`.
    The overlap of caps is exact on the cube (`norm` inf) and the l2 ball; in any other norm it is
    understated, which is safe.
    """
    _shape(epsilon, radius=radius, dimension=dimension, norm=norm)
    share = math.exp(-dimension * math.log1p(1 / radius))
    # Centres are at most 2 apart; all caps share the ball of radius r - 1 about the middle.
    third = dimension > 1 or radius <= 0.5
    if norm == 2:
        third = dimension > 1 and radius <= math.sqrt(3) / 2
    law = _capped(epsilon, share=share, offset=1 / radius, dimension=dimension, norm=norm)
    return replace(law, third=third and radius <= 1 and norm in {2, math.inf})


def bounded(epsilon: float, *, radius: float, dimension: int, norm: float = math.inf) -> TwoLevel:
    """Give the law of Bounded response: caps of `radius` pushed inside the domain of radius 1.

    This is the continuous mechanism. On a lattice caps are a little larger: use `randomizer.law`.
    """
    _shape(epsilon, radius=radius, dimension=dimension, norm=norm)
    if radius > 1:
        raise Misuse(f"a cap inside the domain has a radius of at most 1, not {radius}")
    # Centres are at most 2(1 - r) apart; all caps share the ball of radius 2r - 1.
    offset = (1 - radius) / radius
    law = _capped(epsilon, share=radius**dimension, offset=offset, dimension=dimension, norm=norm)
    three = dimension > 1 and norm == math.inf and radius <= 0.5
    return replace(law, third=three or (dimension == 1 and radius <= 1 / 3))


def grid(epsilon: float, *, cells: int) -> TwoLevel:
    """Give the law of k-ary response on `cells` cells: each cap is one cell."""
    check_epsilon(epsilon)
    if cells < 2:
        raise Misuse(f"k-ary response needs at least 2 cells, not {cells}")
    cap = 1 / (math.expm1(epsilon) + cells)
    return TwoLevel(epsilon=epsilon, cap=cap, apart=cap, reached=True, third=cells > 2)


def _capped(
    epsilon: float, *, share: float, offset: float, dimension: int, norm: float
) -> TwoLevel:
    """Turn volumes into masses: `share` of a cap in the reports, `offset` of centres in radii."""
    cap = share / (1 + share * math.expm1(epsilon))
    if offset >= 1:
        return TwoLevel(epsilon=epsilon, cap=cap, apart=cap, reached=True)
    common = (1 - offset) ** dimension
    overlap = common
    if norm == 2:
        from scipy.special import betainc  # noqa: PLC0415 - only here, and slow to load

        overlap = float(betainc((dimension + 1) / 2, 0.5, 1 - offset**2))
    return TwoLevel(
        epsilon=epsilon,
        cap=cap,
        apart=cap * (1 - overlap),
        kernel=cap * common,
        reached=dimension == 1 or norm in {2, math.inf},
    )


def _shape(epsilon: float, *, radius: float, dimension: int, norm: float) -> None:
    check_epsilon(epsilon)
    if not (math.isfinite(radius) and radius > 0):
        raise Misuse(f"a cap needs a positive radius, not {radius}")
    if dimension < 1:
        raise Misuse(f"a domain has at least 1 dimension, not {dimension}")
    if not norm >= 1:
        raise Misuse(f"a norm is a number from 1 to infinity, not {norm}")
