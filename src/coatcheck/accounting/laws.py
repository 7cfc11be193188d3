"""Privacy laws of mechanisms, and the pairs of distributions that they imply.

A randomizer states its law as a few numbers: what one report reveals about the value behind it.
`pair` finds the worst pair of values of a law: how likely each report is under the two values and
under the blanket, the part of its distribution that all values have in common. The accountant sums
this over a crowd. Proofs: docs/explanation/amplification.md, sections 2 to 6.

    >>> round(minkowski(3.0, radius=0.5, dimension=2).cap, 4)
    0.0356
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from typing import Final, TypeAlias

from coatcheck.accounting.binary_response import TwoReports, symmetric
from coatcheck.accounting.box_caps import MOST_AXES, BoxCaps
from coatcheck.accounting.numerics import check_count, check_epsilon, check_share
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
            can miss; equal to `cap` if two caps can be disjoint.
        kernel: k, the mass under the lower level of what all caps have in common.
        reached: whether two caps really miss each other by `apart`, and neither it nor `cap` is
            overstated by more than rounding. Only lower bounds use this and `third`.
        third: whether three caps can be disjoint.
        binary: whether there are only two reports, each one the cap of some values.
        axes: the number of axes if caps are boxes of one size and `kernel` is that of the box in
            which their centers lie; else 0.
    """

    epsilon: float
    cap: float
    apart: float
    kernel: float = 0.0
    reached: bool = False
    third: bool = False
    binary: bool = False
    axes: int = 0


@dataclass(frozen=True, kw_only=True)
class Clones:
    """The clone bound of 2021, a coarser worst case: a report is a clone with chance e^-ε."""

    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Fieldwise:
    """A report of several fields, each drawn by its own two-level mechanism."""

    laws: tuple[TwoLevel, ...]

    @property
    def epsilon(self) -> float:
        """The local ε of the whole report: the sum over its fields, rounded up."""
        return math.fsum(law.epsilon for law in self.laws) * (1 + 1e-15)


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """A mechanism whose worst pair of values is known, report by report.

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
        """Check the probabilities, and drop reports that no value gives."""
        try:
            rows = [[float(chance) for chance in row] for row in self.matrix]
            columns = [column for column in zip(*rows, strict=True) if any(column)]
        except (TypeError, ValueError):
            raise Misuse(
                "`matrix` must be a table of probabilities, with one row per value"
            ) from None
        if len(rows) < 2 or not columns:
            raise Misuse(
                f"`matrix` must have at least 2 rows and 1 possible report, got {len(rows)} rows"
            )
        if not all(chance >= 0 and abs(sum(row) - 1) < 1e-9 for row in rows for chance in row):
            raise Misuse("each row of `matrix` must hold probabilities from 0 to 1 that sum to 1")
        if not all(map(all, columns)):
            raise Misuse(
                "no ε holds if one value gives a report and another never gives it: make its "
                "column of `matrix` positive"
            )
        matrix = tuple(tuple(row) for row in zip(*columns, strict=True))
        object.__setattr__(self, "matrix", matrix)

    @property
    def epsilon(self) -> float:
        """The local ε: the largest log of a ratio in any column, rounded up."""
        ratio = max(max(column) / min(column) for column in zip(*self.matrix, strict=True))
        return math.log(ratio) * (1 + 1e-14) + 1e-15


@dataclass(frozen=True, kw_only=True)
class OwnCoin:
    """A law in a crowd where each person reports with chance `rate` and otherwise sends silence.

    *Assumes:* each person tosses a separate coin, and silence reaches the shuffler as a message
    like any other. The crowd is everybody who tossed a coin, not only the people who reported.
    """

    law: "Law"
    rate: float

    @property
    def epsilon(self) -> float:
        """The local ε of a report; silence does not raise it."""
        return self.law.epsilon


# Beside decoys a report of a larger local ε is as good as true; up to it γ keeps its digits.
MOST_LOCAL: Final = 12.0


@dataclass(frozen=True, kw_only=True)
class WithDecoys:
    """A law in a crowd where each person sends, beside the report, as many uniform decoys.

    *Assumes:* a decoy is drawn from the mechanism's lower level, without looking at the value, and
    nobody but the sender can tell it from a report. So the law must be exact (`reached`): a larger
    cap would be more private, not less, because fewer decoys lie in a small one.

    Attributes:
        law: the law of a report.
        each: how many decoys every person sends.
    """

    law: TwoLevel
    each: int

    def __post_init__(self) -> None:
        """Check that decoys can hide reports of this law."""
        if not isinstance(self.law, TwoLevel) or not self.law.reached or self.law.apart <= 0:
            raise Misuse(
                "decoys need a mechanism whose noise is uniform and whose law is exact: a grid, a "
                "codebook of single points, labels, or Minkowski or Bounded response on a box"
            )
        if self.law.epsilon > MOST_LOCAL:
            raise Misuse(
                f"beside decoys the local epsilon must be at most {MOST_LOCAL:g}, not "
                f"{self.law.epsilon:g}: such a report is as good as true"
            )
        check_count(self.each, "`decoys`")
        if self.each < 1:
            raise Misuse("`decoys` must be at least 1 per person; without decoys use the law alone")

    @property
    def epsilon(self) -> float:
        """The local ε: that of the report, if the shufflers tell who sent what."""
        return self.law.epsilon


Law: TypeAlias = AnyLdp | TwoLevel | Clones | Fieldwise | Ratios | Channel | OwnCoin | WithDecoys


def minkowski(epsilon: float, *, radius: float, dimension: int, norm: float = math.inf) -> TwoLevel:
    """Return the law of Minkowski response: caps of `radius` in a domain of radius 1 + `radius`.

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
    """Return the law of Bounded response: caps of `radius` pushed inside the domain of radius 1.

    This is the continuous mechanism. On a lattice caps are a little larger: use `randomizer.law`.
    """
    _shape(epsilon, radius=radius, dimension=dimension, norm=norm)
    if radius > 1:
        raise Misuse(
            f"`radius` must be at most 1, so that a cap fits inside the domain, not {radius}"
        )
    # Centres are at most 2(1 - r) apart; all caps share the ball of radius 2r - 1.
    offset = (1 - radius) / radius
    law = _capped(epsilon, share=radius**dimension, offset=offset, dimension=dimension, norm=norm)
    three = dimension > 1 and norm == math.inf and radius <= 0.5
    return replace(law, third=three or (dimension == 1 and radius <= 1 / 3))


def grid(epsilon: float, *, cells: int) -> TwoLevel:
    """Return the law of k-ary response on `cells` cells: each cap is one cell."""
    check_epsilon(epsilon)
    if cells < 2:
        raise Misuse(f"`cells` must be at least 2, not {cells}")
    cap = 1 / (math.expm1(epsilon) + cells)
    return TwoLevel(
        epsilon=epsilon, cap=cap, apart=cap, reached=True, third=cells > 2, binary=cells == 2
    )


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
        axes=dimension if dimension == 1 or norm == math.inf else 0,
    )


def _shape(epsilon: float, *, radius: float, dimension: int, norm: float) -> None:
    check_epsilon(epsilon)
    if not (math.isfinite(radius) and radius > 0):
        raise Misuse(f"`radius` must be a positive number, not {radius}")
    if dimension < 1:
        raise Misuse(f"`dimension` must be at least 1, not {dimension}")
    if not norm >= 1:
        raise Misuse(f"`norm` must be a number from 1 to infinity, not {norm}")


# How far rounding may take the stated masses of a mechanism from fitting together.
_SLACK: Final = 1e-3
# How far below 0 the rounding of floats may take the mass of the rest (SPEC S20.3).
_ROUNDED: Final = 1e-13
# The most kinds of reports, and the most pairs of values, that are computed one by one.
ATOMS: Final = 1500
_PAIRS: Final = 2_000


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

    @property
    def noise(self) -> float:
        """The variance of G at ε_c = 0."""
        return 2 * self.side * (self.scale * math.expm1(self.epsilon)) ** 2


@dataclass(frozen=True, kw_only=True)
class Atoms:
    """The distribution of G for one or more pairs of values, one of which is the worst.

    Attributes:
        epsilon: no ratio of the two densities is above e^ε.
        pairs: for each pair of values the (R0/m, R1/m, m) of all reports, alike ones together.
    """

    epsilon: float
    pairs: tuple[tuple[tuple[float, float, float], ...], ...]

    def values(self, epsilon: float) -> list[tuple[float, float]]:
        """List the (value, chance) of G of the first pair at a central ε_c."""
        atoms, e = self.pairs[0], math.exp(epsilon)
        rest = max(0.0, 1 - math.fsum(mass for _, _, mass in atoms))
        return [*((first - e * second, mass) for first, second, mass in atoms), (0.0, rest)]

    @property
    def noise(self) -> float:
        """The largest variance of G at ε_c = 0."""
        return max(sum(m * (x - y) ** 2 for x, y, m in atoms) for atoms in self.pairs)


@dataclass(frozen=True, kw_only=True)
class DecoyPair:
    """The distribution of H = (R0 - e R1)/U at a uniform message, for the worst pair of values.

    Attributes:
        epsilon: ln p.
        share: γ, the chance that a report is drawn uniformly, whatever the value.
        apart: chance under U of a report in the first cap alone; as much in the second alone.
        both: chance under U of a report in both caps.
        each: decoys per person.
    """

    epsilon: float
    share: float
    apart: float
    both: float
    each: int

    def values(self, epsilon: float) -> list[tuple[float, float]]:
        """List the (value, chance) of H at a central ε_c; the chances sum to one."""
        p, e = math.exp(self.epsilon), math.exp(epsilon)
        rest = max(0.0, 1 - 2 * self.apart - self.both)
        return [
            (self.share * (p - e), self.apart),
            (self.share * (1 - p * e), self.apart),
            (self.share * p * (1 - e), self.both),
            (self.share * (1 - e), rest),
        ]

    @property
    def noise(self) -> float:
        """The variance of H at ε_c = 0, over the uniform messages per person."""
        variance = 2 * self.apart * (self.share * math.expm1(self.epsilon)) ** 2
        return variance / (self.each + self.share)


@dataclass(frozen=True, kw_only=True)
class Boxed:
    """The distribution of G, and the boxes that bound δ more closely."""

    pair: Pair
    caps: BoxCaps

    @property
    def epsilon(self) -> float:
        """No ratio of the two densities is above e^ε."""
        return self.pair.epsilon

    @property
    def noise(self) -> float:
        """The variance of G at ε_c = 0 if all others hold the worst value."""
        return self.caps.noise


AnyPair: TypeAlias = Pair | Atoms | DecoyPair | TwoReports | Boxed


def pair(law: Law) -> AnyPair:
    """Return the worst pair of inputs of a law, or a few of which one is the worst.

    Where a report has only two values, return their chances, and where caps are boxes, these as
    well: they say more than a blanket.
    """
    worst = blanket(law)
    if isinstance(law, TwoLevel) and isinstance(worst, Pair):
        if law.binary:
            return symmetric(law.epsilon)
        share = law.kernel / law.cap if law.cap > 0 else 0.0
        if 0 < law.axes <= MOST_AXES and share > 0 and worst.flat > 0:
            share = share ** (1 / law.axes) * (1 - 1e-14)
            caps = BoxCaps(epsilon=law.epsilon, cap=law.cap, share=share, axes=law.axes)
            return Boxed(pair=worst, caps=caps)
    if isinstance(law, Channel) and len(law.matrix[0]) == 2:
        rows = [(row[0], row[1]) for row in law.matrix]
        fewest, most = min(rows, key=_ones), max(rows, key=_ones)
        return TwoReports(epsilon=law.epsilon, fewest=fewest, most=most)
    return worst


def _ones(row: tuple[float, float]) -> float:
    return row[1]


def blanket(law: Law) -> Pair | Atoms | DecoyPair:  # noqa: PLR0911 - one per kind of law
    """Return the distribution of G for the worst pair of inputs of a law."""
    if not isinstance(law, Law):
        raise Misuse(
            f"`law` must be a privacy law, not {law!r}; pass the property `law` of a randomizer"
        )
    check_epsilon(law.epsilon)
    p = math.exp(law.epsilon)
    match law:
        case OwnCoin():
            return _silenced(blanket(law.law), law.rate)
        case WithDecoys():
            return _decoyed(law, p)
        case AnyLdp():
            return Pair(epsilon=law.epsilon, side=1 / (p + 1))
        case Clones():
            return Pair(epsilon=law.epsilon, side=1 / (2 * p), scale=2 * p / (p + 1))
        case TwoLevel():
            return _two_level(law, p)
        case Fieldwise():
            return _product(law)
        case Ratios():
            return _ratios(law, p)
        case Channel():
            return _channel(law)


def _decoyed(law: WithDecoys, p: float) -> DecoyPair:
    """Lay out the caps in shares of all possible reports; a kernel is a part of both caps."""
    _parts(law.law, p)  # rejects what no mechanism has
    share = max(2.0**-40, 1 - (p - 1) * law.law.cap)
    return DecoyPair(
        epsilon=law.epsilon,
        share=share,
        apart=law.law.apart / share,
        both=max(0.0, law.law.cap - law.law.apart) / share,
        each=law.each,
    )


def _silenced(pair: Pair | Atoms | DecoyPair, rate: float) -> Pair | Atoms:
    check_share(rate, "the share of people who report")
    if isinstance(pair, DecoyPair):
        raise Misuse(
            "a round with decoys has no participation coins: leave out the rate, or decoys"
        )
    if isinstance(pair, Atoms):
        silence = (1.0, 1.0, 1 - rate)
        reports = [[(x, y, rate * m) for x, y, m in atoms] for atoms in pair.pairs]
        return replace(pair, pairs=tuple((*atoms, silence) for atoms in reports))
    return replace(
        pair, side=rate * pair.side, flat=rate * pair.flat + 1 - rate, deep=rate * pair.deep
    )


def _two_level(law: TwoLevel, p: float) -> Pair:
    """Lay out two caps, what they share, and the rest, in masses of the blanket.

    Randomizers round their caps up, which only spreads G. If nothing is left for the rest, the
    law of any ε-LDP randomizer applies.
    """
    flat, deep = _parts(law, p)
    if flat < 0:
        return Pair(epsilon=law.epsilon, side=1 / (p + 1))
    return Pair(epsilon=law.epsilon, side=law.apart, flat=flat, deep=deep)


def _parts(law: TwoLevel, p: float) -> tuple[float, float]:
    """Return the chances of the values 1 - e and p(1 - e) of G; the first may be below zero."""
    if not all(isinstance(x, Real) and 0 <= x <= 1 for x in (law.cap, law.apart, law.kernel)):
        raise Misuse(
            f"no mechanism has the law {law}: `cap`, `apart` and `kernel` must be from 0 to 1"
        )
    # Rounding may make the parts exceed the whole: a larger cap and a smaller kernel are safe.
    cap = max(law.cap, law.apart)
    kernel = min(law.kernel, cap - law.apart)
    blanket = 1 - math.expm1(law.epsilon) * cap
    # What two caps share outside the kernel; to understate it is safe.
    deep = max(0.0, cap - law.apart - kernel)
    deep = 0.0 if deep <= 1e-9 * cap else deep
    flat = blanket - 2 * law.apart - deep - kernel + p * kernel
    flat = 0.0 if -_ROUNDED <= flat < 0 else flat
    if not (
        law.apart + law.kernel <= law.cap * (1 + 1e-9)
        and blanket >= -_SLACK
        and -_SLACK <= flat <= 1 - 2 * law.apart - deep + _SLACK
    ):
        raise Misuse(f"no mechanism has the law {law}: its caps do not fit into its reports")
    return flat, deep


@lru_cache(maxsize=64)
def _product(law: Fieldwise) -> Pair | Atoms | DecoyPair:
    """Multiply the fields: values that differ as far as they can in every field are the worst.

    If nothing is left for the rest of a field, it is binary response, which is the worst for caps
    of at most half of the reports (Statement 18). For other caps, and for fields with too many
    kinds of reports together, only the law of any ε-LDP randomizer is known.
    """
    if not law.laws:
        raise Misuse("`laws` must list at least 1 field")
    merged = [(1.0, 1.0, 1.0)]
    for field in law.laws:
        check_epsilon(field.epsilon)
        p = math.exp(field.epsilon)
        side, (flat, deep) = field.apart, _parts(field, p)
        if flat < 0:
            if not (field.reached and field.apart == field.cap):
                return blanket(AnyLdp(epsilon=law.epsilon))
            side, flat, deep = 1 / (p + 1), 0.0, 0.0
        parts = [(p, 1.0, side), (1.0, p, side), (1.0, 1.0, flat), (p, p, deep)]
        joint = itertools.product(merged, (part for part in parts if part[2] > 0))
        merged = list(_merged((x * a, y * b, m * c) for (x, y, m), (a, b, c) in joint))
        if len(merged) > ATOMS:
            return blanket(AnyLdp(epsilon=law.epsilon))
    return Atoms(epsilon=law.epsilon, pairs=(tuple(merged),))


@lru_cache(maxsize=64)
def _ratios(law: Ratios, p: float) -> Atoms:
    """Return the stated ratios; reject ratios that no mechanism can have."""
    if not all(m >= 0 and 0 <= max(x, y) <= p * (1 + _SLACK) * min(x, y) for x, y, m in law.atoms):
        raise Misuse(
            "no mechanism has these `atoms`: no mass may be negative, and the two ratios of an atom"
            " must be at most a factor e^`epsilon` apart"
        )
    blanket = math.fsum(m for *_, m in law.atoms)
    if not blanket <= 1 + _SLACK:
        raise Misuse(
            f"no mechanism has these `atoms`: their masses sum to {blanket:.6g}; the blanket's mass"
            " must be at most 1"
        )
    sums = [math.fsum(atom[i] * atom[2] for atom in law.atoms) for i in (0, 1)]
    if not all(abs(total - 1) <= _SLACK for total in sums):
        raise Misuse(
            "no mechanism has these `atoms`: the probabilities of each value must sum to 1"
        )
    return Atoms(epsilon=law.epsilon, pairs=(law.atoms,))


def _channel(law: Channel) -> Atoms:
    """Use the least chance of each report as the blanket, and list all pairs of values."""
    blanket = [min(column) for column in zip(*law.matrix, strict=True)]
    pairs = {
        _merged((x / m, y / m, m) for x, y, m in zip(row, other, blanket, strict=True))
        for row, other in itertools.permutations(dict.fromkeys(law.matrix), 2)
    }
    if len(pairs) > _PAIRS:
        raise Misuse(
            f"a channel may have at most {_PAIRS:,} different pairs of values, got {len(pairs):,}"
        )
    return Atoms(epsilon=law.epsilon, pairs=tuple(sorted(pairs)) or (((1.0, 1.0, 1.0),),))


def _merged(
    atoms: Iterable[tuple[float, float, float]],
) -> tuple[tuple[float, float, float], ...]:
    """Add up the masses of reports that have the same two ratios."""
    masses: dict[tuple[float, float], list[float]] = {}
    for first, second, mass in atoms:
        masses.setdefault((first, second), []).append(mass)
    return tuple((x, y, math.fsum(parts)) for (x, y), parts in sorted(masses.items()))
