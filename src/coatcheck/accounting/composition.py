"""Privacy cost of many rounds: the privacy loss of a round as a distribution, and its sums.

A round's curve δ(ε) belongs to one pair of distributions, so rounds compose by adding privacy
losses. Values and reports may depend on earlier rounds; each round's law and crowd must not. If
they do, use `privacy_filter`, as the ledger does. Losses lie on a grid: `connect` derives them from
points of the curve, and plain convolution adds them. Each step can only raise δ. The last part of
the file exchanges losses with Google's dp-accounting. All of it is about replacing one person's
value; a distribution of losses for adding or removing a person is rejected, because the two do not
add up.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import amplify, anonymous, any_ldp, central, delta_curve
from coatcheck.accounting.laws import Law, pair
from coatcheck.accounting.numerics import (
    EPSILON,
    bisect,
    check_delta,
    check_epsilon,
    check_rounds,
    check_share,
    root,
)
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Array = NDArray[np.float64]
Kinds: TypeAlias = Sequence[tuple[Law, int, int]]
"""Rounds of different kinds: the law, the crowd, and how many of each kind."""

# Mass that a cut may move to an infinite loss; far below any δ.
_CUT: Final = 1e-18
# Mass at the low end that a cut may move to a larger loss; this hardly changes δ.
_LOW: Final = 1e-13
# Points of a curve per spread of its losses, and per distance from zero.
_FINE: Final = 24
_FAR: Final = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """A distribution of privacy losses, at least as bad as the truth.

    Attributes:
        step: the grid; a loss is a whole number of steps.
        first: the least loss, in steps.
        mass: the chance of each loss from there on.
        infinite: the chance of an unbounded loss.
        reach: losses above this count as infinite, which is safe and quicker.
    """

    step: float
    first: int
    mass: Array
    infinite: float
    reach: float = math.inf

    def delta(self, epsilon: float) -> float:
        """Bound δ at an ε."""
        losses = (self.first + np.arange(self.mass.size)) * self.step
        gain = -np.expm1(np.minimum(0.0, epsilon - losses))
        return min(1.0, (self.infinite + float(self.mass @ gain)) * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """Find the least ε whose δ is at most the given one, rounded up; infinite if none is."""
        check_delta(delta)
        good = max(0.0, (self.first + self.mass.size) * self.step)
        if self.delta(good) > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        return bisect(lambda x: self.delta(x) <= delta, good=good, bad=0.0, close=1e-9)

    def then(self, other: Self) -> Self:
        """Compose with another distribution on the same grid."""
        if self.step != other.step:
            raise Misuse(f"losses with `step` {self.step} and {other.step} do not add up; use one")
        joint = replace(
            self,
            first=self.first + other.first,
            mass=np.convolve(self.mass, other.mass),
            infinite=self.infinite + other.infinite,
        )
        return joint._cut()  # noqa: SLF001 - a copy of self

    def times(self, rounds: int) -> Self:
        """Compose with itself, `rounds` times in all."""
        check_rounds(rounds)
        rounds = int(rounds)
        product, power = None, self
        while rounds:
            if rounds & 1:
                product = power if product is None else product.then(power)
            rounds >>= 1
            power = power.then(power) if rounds else power
        return self if product is None else product

    def _cut(self) -> Self:
        """Cut the tails: large losses become infinite, small ones become the least that stays."""
        below = np.cumsum(self.mass)
        above = np.cumsum(self.mass[::-1])
        low = int(np.searchsorted(below, _LOW, side="right"))
        high = self.mass.size - int(np.searchsorted(above, _CUT, side="right"))
        high = math.ceil(min(high, self.reach / self.step - self.first))
        if low >= high:
            return self
        mass = self.mass[low:high].copy()
        mass[0] += below[low - 1] if low else 0.0
        lost = float(self.mass[high:].sum())
        return replace(self, first=self.first + low, mass=mass, infinite=self.infinite + lost)

    def to_dp_accounting(self) -> "PrivacyLossDistribution":
        """Convert the losses to a distribution of Google's dp-accounting, to compose there.

        It is pessimistic, symmetric and for replace-one adjacency; compose it only with
        distributions of the same adjacency and grid.
        """
        try:
            from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # noqa: PLC0415 - extra
        except ImportError as error:
            raise Misuse(
                "converting losses needs dp-accounting: pip install 'coatcheck[accounting]'"
            ) from error
        pmf = pld_pmf.DensePLDPmf(
            self.step, self.first, self.mass.copy(), self.infinite, pessimistic_estimate=True
        )
        return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def losses(
    law: Law, *, crowd: int, step: float, sampled: float = 1.0, reach: float = math.inf
) -> Losses:
    """Return the privacy loss of one round in a crowd of honest, anonymous people.

    Args:
        law: the privacy law of one report; wrap it in `OwnCoin` if each person tosses a coin first.
        crowd: n', the person included; with coins, everybody who tossed one.
        step: the grid of losses; a hundredth of the round's ε is close, a coarser grid is safe.
        sampled: the crowd as a share of the population from which it is drawn, without
            replacement. *Assumes:* each round draws it independently, nobody in the population is
            corrupted (corrupted people know whether they were drawn, which reveals the share of
            the honest), and only the sampler and the sampled people learn the sample. If not,
            leave it at 1 and compose only the rounds that a person was in.
        reach: losses above this count as infinite.
    """
    return _losses(law, crowd, step, sampled=sampled, reach=reach, fine=_FINE)


def _losses(
    law: Law, crowd: int, step: float, *, sampled: float, reach: float, fine: int
) -> Losses:
    """Return the loss of one round, from `fine` points of its curve per spread of its losses."""
    check_share(sampled, "`sampled`")
    if not (isinstance(step, Real) and math.isfinite(step) and step > 0):
        raise Misuse(f"`step` must be a positive number, not {step}")
    anonymous(crowd=crowd)
    worst = pair(law)
    local = worst.epsilon
    most = math.log1p(sampled * math.expm1(local))
    apart = min(sampled * math.sqrt(worst.noise / crowd) / fine, most / _FAR)
    at: list[int] = []
    deltas: list[float] = []
    for knot in knots(math.ceil(min(most, reach) / step), max(1, int(apart / step))):
        # δ_s(ln(1 + γ(e^x - 1))) = γ δ(x) for a secret sample of share γ.
        x = math.log1p(math.expm1(knot * step) / sampled) if knot * step < most else local
        at.append(knot)
        deltas.append(sampled * float(delta_curve(law, epsilons=[x], crowd=crowd)[0]))
        if deltas[-1] < _CUT:
            break
    return replace(connect(at, deltas, step), reach=reach)


def knots(last: int, apart: int) -> list[int]:
    """Choose grid points: `apart` steps apart near zero, and farther apart farther out."""
    at = [0]
    while at[-1] < last:
        at.append(min(last, at[-1] + max(apart, at[-1] // _FAR)))
    return at


def connect(at: list[int], deltas: list[float], step: float) -> Losses:
    """Connect the dots: the largest convex curve through points of δ, as a function of e^ε.

    Its slopes are the chances of larger losses under one input; those under the other, and all
    losses below zero, follow because the pair is symmetric.
    """
    hull: list[int] = []
    x = [math.exp(knot * step) for knot in at]
    for i in range(len(at)):
        while len(hull) > 1 and _above(x, deltas, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    e = np.array([x[i] for i in hull])
    value = np.array([deltas[i] for i in hull])
    slope = np.append(np.diff(value) / np.diff(e), 0.0)
    other = np.maximum(np.diff(slope), 0.0)  # from the second knot on
    places = np.array([at[i] for i in hull[1:]], dtype=np.intp)
    last = at[-1]
    mass = np.zeros(2 * last + 1)
    mass[last + places] = other * e[1:]
    mass[last - places] = other
    mass[last] = max(0.0, 1 - float(mass.sum()) - deltas[-1])
    return Losses(step=step, first=-last, mass=mass, infinite=deltas[-1])


def _above(x: list[float], y: list[float], i: int, j: int, k: int) -> bool:
    """Return whether the middle of three points is on or above the line through the others."""
    return (y[j] - y[i]) * (x[k] - x[i]) >= (y[k] - y[i]) * (x[j] - x[i])


def compose(law: Law, *, crowd: int, delta: float, rounds: int, sampled: float = 1.0) -> float:
    """Bound the ε of `rounds` equal rounds at a total δ; arguments are as for `losses`.

    It is never above the plain sum, in which each round takes an equal part of δ.

    *Assumes:* the rounds are fixed in advance, and nobody in a sampled population is corrupted.
    """
    return compose_all([(law, crowd, rounds)], delta=delta, sampled=sampled)


def compose_all(rounds: Kinds, *, delta: float, sampled: float = 1.0) -> float:
    """Bound the ε of different rounds at a total δ: the law, the crowd and how many of each kind.

    It is never above the plain sum, in which each round takes an equal part of δ.

    *Assumes:* the same as `compose`.
    """
    joint = all_losses(rounds, delta=delta, sampled=sampled)
    share = min(0.5, delta / (sampled * sum(count for _, _, count in rounds)))
    plain = sum(
        count * math.log1p(sampled * math.expm1(central(law, size=crowd, delta=share)))
        for law, crowd, count in rounds
    )
    return min(joint.epsilon(delta), plain * (1 + 1e-14))


def all_losses(rounds: Kinds, *, delta: float, sampled: float = 1.0) -> Losses:
    """Return the privacy loss of different rounds together, on a grid fine enough for a δ."""
    check_delta(delta)
    check_share(sampled, "`sampled`")
    for _, _, count in rounds:
        check_rounds(count)
    parts = [amplify(law, crowd=n, delta=delta).epsilon for law, n, _ in rounds]
    parts = [math.log1p(sampled * math.expm1(max(1e-9, part))) for part in parts]
    whole = math.sqrt(sum(k * part**2 for part, (_, _, k) in zip(parts, rounds, strict=True)))
    # A thousandth of the sum, and well below what one round adds to it, unless that is zero.
    step = min(whole / 1000, min(parts, default=1.0) / 40)
    step = max(step, 1e-12, *(pair(law).epsilon / 40_000 for law, _, _ in rounds))
    joint: Losses | None = None
    for law, crowd, count in rounds:
        kind = losses(law, crowd=crowd, step=step, sampled=sampled).times(count)
        joint = kind if joint is None else joint.then(kind)
    if joint is None:
        raise Misuse("`rounds` must list at least one kind of round")
    return joint


def calibrate_rounds(
    make: Callable[[float], Law] = any_ldp,
    *,
    epsilon: float,
    crowd: int,
    delta: float,
    rounds: int,
    sampled: float = 1.0,
) -> float:
    """Find the largest local ε per round at which `rounds` rounds together keep (ε, δ).

    *Assumes:* the same as `compose`: nobody in a sampled population is corrupted.
    """
    check_epsilon(epsilon, "a promised epsilon", positive=True)
    check_delta(delta)
    check_rounds(rounds)
    anonymous(crowd=crowd)

    def excess(point: float, /, *, fine: bool) -> float:
        step = epsilon / (600 if fine else 150)
        points = _FINE if fine else _FINE // 4
        single = _losses(make(point), crowd, step, sampled=sampled, reach=epsilon + 6, fine=points)
        total = single.delta(epsilon)
        if total <= delta:  # otherwise a single round already costs too much
            total = single.times(rounds).delta(epsilon)
        return max(-700.0, math.log(total / delta + 1e-320))

    most = min(EPSILON, epsilon + math.log(crowd) + 4)

    def guessed(point: float) -> bool:
        spread = sampled * math.sqrt(rounds * pair(make(point)).noise / crowd)
        return spread * math.sqrt(2 * math.log(1 / delta)) <= epsilon

    start = bisect(guessed, good=epsilon / rounds, bad=most, close=0.01)
    return root(excess, good=epsilon / rounds, bad=most, start=start)


# -- exchange with other accountants: from dp-accounting, and as a Rényi curve

REPLACE_ONE: Final = "replace-one"
_ORDER: Final = 256.0


def from_dp_accounting(
    source: "PrivacyLossDistribution | PLDAccountant", *, adjacency: str | None = None
) -> Losses:
    """Convert losses from dp-accounting, to compose them with rounds on the same grid.

    Args:
        source: an accountant, which states its adjacency, or a distribution of privacy losses,
            which does not.
        adjacency: "replace-one" for a distribution.

    *Assumes:* the distribution is correct. dp-accounting composes by Fourier transforms, which may
    hide a δ below about 1e-12.
    """
    relation = getattr(source, "neighboring_relation", None)
    if relation is not None:
        stated = str(relation.name).lower().replace("_", "-")
        if adjacency is not None and adjacency != stated:
            raise Misuse(f"the accountant has {stated} adjacency, not {adjacency}")
        adjacency = stated
    if adjacency is None:
        raise Misuse(
            "a distribution of losses does not state its adjacency: if it is for replacing one "
            "person's value, pass adjacency='replace-one'"
        )
    if adjacency != REPLACE_ONE:
        raise Misuse(
            f"losses for {adjacency} adjacency do not add up with rounds, which are for "
            "replace-one; compute the distribution for replace-one"
        )
    distribution: Any = getattr(source, "_pld", source)
    sides: list[Any] = [getattr(distribution, name, None) for name in ("_pmf_remove", "_pmf_add")]
    if None in sides:
        raise Misuse(f"`source` must be from dp-accounting, not a {type(source).__name__}")
    if not all(side._pessimistic_estimate for side in sides):  # noqa: SLF001 - no public way
        raise Misuse("these losses are rounded down; compute a pessimistic estimate")
    step, last = 0.0, 1
    for side in (side.to_dense_pmf() for side in sides):
        step = side._discretization  # noqa: SLF001 - no public way
        last = max(last, side._lower_loss + side.size)  # noqa: SLF001 - no public way
    at = list(range(last + 1))
    deltas = np.clip(distribution.get_delta_for_epsilon([step * knot for knot in at]), 0.0, 1.0)
    return connect(at, [float(delta) for delta in deltas], step)


def renyi(
    law: Law, *, crowd: int, orders: Iterable[float], rounds: int = 1, sampled: float = 1.0
) -> list[float]:
    """Bound the Rényi divergence of rounds at each order, from above.

    The bound is for replacing one person's value, in both directions. Rounds add up at a fixed
    order, even if later rounds depend on the results of earlier ones, as long as each has this
    law and crowd.

    Args:
        law: the privacy law of one report.
        crowd: n', honest and anonymous, the person included.
        orders: each above 1 and at most 256.
        rounds: how many.
        sampled: as for `losses`.
    """
    orders = [_order(order) for order in orders]
    check_rounds(rounds)
    check_share(sampled, "`sampled`")
    size, worst = anonymous(crowd=crowd), pair(law)
    if not orders:
        return []
    most = math.log1p(sampled * math.expm1(worst.epsilon))
    if most <= 0:
        return [0.0] * len(orders)
    spread = sampled * math.sqrt(worst.noise / size) / 24
    last = math.ceil(40 * most / min(spread, most / 40))
    step = most / last
    # Far tails weigh so much at a high order that they are computed, not cut off.
    tail = min(650.0, 50 + 2 * max(orders) * most)
    at = knots(last, 40)
    deltas = [
        sampled
        * hockey_stick.upper(
            worst,
            size=size,
            epsilon=math.log1p(math.expm1(min(most, knot * step)) / sampled),
            tail=tail,
        )
        for knot in at[:-1]
    ]
    # No loss exceeds the local one.
    joint = connect(at, [*deltas, 0.0], step)
    from scipy.special import logsumexp  # noqa: PLC0415 - only here, and slow to load

    with np.errstate(divide="ignore"):
        logs = np.log(joint.mass)
    loss = (joint.first + np.arange(joint.mass.size)) * step
    bounds = [float(logsumexp(logs + (order - 1) * loss)) / (order - 1) for order in orders]
    return [rounds * min(most, max(0.0, bound) + 1e-12) * (1 + 1e-9) for bound in bounds]


def _order(value: float) -> float:
    if not (isinstance(value, int | float) and 1 < value <= _ORDER):
        raise Misuse(f"each of `orders` must be above 1 and at most {_ORDER:g}, not {value}")
    return float(value)
