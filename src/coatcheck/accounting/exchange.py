"""Losses for other accountants: from Google's dp-accounting, and as a Rényi curve.

`Losses.to_dp_accounting` goes the other way. All of it is about replacing one person's value; a
distribution of losses for adding or removing a person is refused, because the two do not add up.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import logsumexp

from coatcheck.accounting import hockeystick
from coatcheck.accounting.amplification import anonymous
from coatcheck.accounting.composition import Losses, connect, knots
from coatcheck.accounting.laws import Law
from coatcheck.accounting.limits import check_rounds, check_share
from coatcheck.accounting.pairs import pair
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

REPLACE_ONE: Final = "replace-one"
_ORDER: Final = 256.0


def from_dp_accounting(
    source: "PrivacyLossDistribution | PLDAccountant", *, adjacency: str | None = None
) -> Losses:
    """Take losses from dp-accounting, to compose them with rounds on the same grid.

    Args:
        source: an accountant, which knows its adjacency, or a distribution of privacy losses,
            which does not.
        adjacency: of a distribution: "replace-one", stated by you.

    *Assumes:* the distribution is right. dp-accounting composes by Fourier transforms, which may
    hide a δ below about 1e-12.
    """
    relation = getattr(source, "neighboring_relation", None)
    if relation is not None:
        stated = str(relation.name).lower().replace("_", "-")
        if adjacency is not None and adjacency != stated:
            raise Misuse(f"the accountant is for {stated} adjacency, not for {adjacency}")
        adjacency = stated
    if adjacency is None:
        raise Misuse(
            "a distribution of losses does not say which people differ: if it was made for "
            "replacing one person's value, say adjacency='replace-one'"
        )
    if adjacency != REPLACE_ONE:
        raise Misuse(
            f"losses for {adjacency} adjacency do not add up with rounds, which are for "
            "replace-one: make the distribution for that relation"
        )
    found: Any = getattr(source, "_pld", source)
    sides: list[Any] = [getattr(found, name, None) for name in ("_pmf_remove", "_pmf_add")]
    if None in sides:
        raise Misuse(f"{type(source).__name__} is no distribution of losses of dp-accounting")
    if not all(side._pessimistic_estimate for side in sides):  # noqa: SLF001 - it has no other way
        raise Misuse("these losses are rounded down: make a pessimistic estimate")
    step, last = 0.0, 1
    for side in (side.to_dense_pmf() for side in sides):
        step = side._discretization  # noqa: SLF001 - it has no other way
        last = max(last, side._lower_loss + side.size)  # noqa: SLF001 - it has no other way
    at = list(range(last + 1))
    deltas = np.clip(found.get_delta_for_epsilon([step * one for one in at]), 0.0, 1.0)
    return connect(at, [float(delta) for delta in deltas], step)


def renyi(
    law: Law, *, crowd: int, orders: Iterable[float], rounds: int = 1, sampled: float = 1.0
) -> list[float]:
    """Bound the Rényi divergence of rounds at each order, from above.

    It holds for replacing one person's value, in both directions. Rounds add up at a fixed order
    even if later ones depend on what earlier ones gave, as long as each has this law and crowd.

    Args:
        law: what one report tells.
        crowd: n', honest and anonymous, the person included.
        orders: each above 1 and at most 256.
        rounds: how many.
        sampled: as for `losses`.
    """
    orders = [_order(order) for order in orders]
    check_rounds(rounds)
    check_share(sampled, "a sampled share")
    size, one = anonymous(crowd=crowd), pair(law)
    if not orders:
        return []
    most = math.log1p(sampled * math.expm1(one.epsilon))
    if most <= 0:
        return [0.0] * len(orders)
    spread = sampled * math.sqrt(one.noise / size) / 24
    last = math.ceil(40 * most / min(spread, most / 40))
    step = most / last
    # Far tails count for so much at a high order that they are worked out, not cut off.
    tail = min(650.0, 50 + 2 * max(orders) * most)
    at = knots(last, 40)
    deltas = [
        sampled
        * hockeystick.upper(
            one,
            size=size,
            epsilon=math.log1p(math.expm1(min(most, knot * step)) / sampled),
            tail=tail,
        )
        for knot in at[:-1]
    ]
    # No loss is above the local one.
    joint = connect(at, [*deltas, 0.0], step)
    with np.errstate(divide="ignore"):
        logs = np.log(joint.mass)
    loss = (joint.first + np.arange(joint.mass.size)) * step
    found = [float(logsumexp(logs + (order - 1) * loss)) / (order - 1) for order in orders]
    return [rounds * min(most, max(0.0, one) + 1e-12) * (1 + 1e-9) for one in found]


def _order(value: float) -> float:
    if not (isinstance(value, int | float) and 1 < value <= _ORDER):
        raise Misuse(f"an order of Rényi divergence is above 1 and at most {_ORDER:g}, not {value}")
    return float(value)
