"""Laws: what one report tells about the value behind it.

A randomizer states its law as a few numbers. The accountant (`amplification`) turns them into what
a crowd guarantees. This file knows no data and no mechanism. The derivations are in
docs/explanation/amplification.md.

    >>> round(minkowski(3.0, radius=0.5, dimension=2).cap, 4)
    0.0356
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from coatcheck.accounting.limits import check_epsilon
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
class Fieldwise:
    """A report of several fields, each drawn by a two-level mechanism of its own."""

    laws: tuple[TwoLevel, ...]

    @property
    def epsilon(self) -> float:
        """The local ε of the whole report: the sum over its fields, rounded up."""
        return math.fsum(law.epsilon for law in self.laws) * (1 + 1e-15)


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """A mechanism of which the worst pair of values is known, report by report.

    *Assumes:* no other pair of values has a G that is larger in the convex order
    (docs/explanation/amplification.md, section 6); `Channel` assumes nothing.

    Attributes:
        epsilon: the local ε.
        atoms: (R0/m, R1/m, m) of each kind of report, for the blanket m.
    """

    epsilon: float
    atoms: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Channel:
    """Any mechanism with finitely many values and reports, given by its probabilities.

    Attributes:
        matrix: one row per value, one column per report; each row sums to one.
    """

    matrix: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        """Check the probabilities, and leave out reports that never come."""
        try:
            rows = [[float(chance) for chance in row] for row in self.matrix]
            columns = [column for column in zip(*rows, strict=True) if any(column)]
        except (TypeError, ValueError):
            raise Misuse("a channel is a table of chances: one row of numbers per value") from None
        if len(rows) < 2 or not columns:
            raise Misuse("a channel has at least 2 values and 1 report")
        if not all(chance >= 0 and abs(sum(row) - 1) < 1e-9 for row in rows for chance in row):
            raise Misuse("each row of a channel has chances from 0 to 1 that sum to 1")
        if not all(map(all, columns)):
            raise Misuse("a report that one value gives and another never does tells them apart")
        kept = tuple(tuple(row) for row in zip(*columns, strict=True))
        object.__setattr__(self, "matrix", kept)

    @property
    def epsilon(self) -> float:
        """The local ε: the largest log of a ratio in any column, rounded up."""
        ratio = max(max(column) / min(column) for column in zip(*self.matrix, strict=True))
        return math.log(ratio) * (1 + 1e-14) + 1e-15


@dataclass(frozen=True, kw_only=True)
class OwnCoin:
    """A law in a crowd where each person reports with chance `rate` and otherwise sends silence.

    *Assumes:* each person tosses a coin of their own, and silence reaches the shuffler as a message
    like any other. The crowd to count is everybody who tossed a coin, not those who reported.
    """

    law: "AnyLdp | TwoLevel | Clones | Fieldwise | Ratios | Channel"
    rate: float

    @property
    def epsilon(self) -> float:
        """The local ε of a report; silence does not raise it."""
        return self.law.epsilon


Law: TypeAlias = AnyLdp | TwoLevel | Clones | Fieldwise | Ratios | Channel | OwnCoin


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
