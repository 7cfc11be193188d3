"""Losses of other accountants and Rényi divergences: never too small, for one adjacency."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation

from coatcheck.accounting.composition import compose, compose_all, from_dp_accounting, losses, renyi
from coatcheck.accounting.laws import AnyLdp, Law, OwnCoin, grid, minkowski
from coatcheck.errors import Misuse
from support.crowds import grid_caps, histogram, two_level

STEP = 2e-3


def test_losses_round_trip() -> None:
    """A round that is exported and imported has the same curve, alone and composed."""
    one = losses(minkowski(4.0, radius=0.5, dimension=2), crowd=2000, step=STEP)
    back = from_dp_accounting(one.to_dp_accounting(), adjacency="replace-one")
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        assert back.delta(epsilon) == pytest.approx(one.delta(epsilon), rel=1e-6, abs=1e-16)
    assert back.times(9).epsilon(1e-7) == pytest.approx(one.times(9).epsilon(1e-7), rel=1e-6)


def test_losses_of_both_directions_are_covered() -> None:
    """The larger of adding and removing counts at every ε; the sum is above theirs."""
    uneven = privacy_loss_distribution.from_two_probability_mass_functions(
        {"a": math.log(0.5), "b": math.log(0.3), "c": math.log(0.2)},
        {"a": math.log(0.2), "b": math.log(0.5), "c": math.log(0.3)},
        value_discretization_interval=STEP,
        symmetric=False,
    )
    here = from_dp_accounting(uneven, adjacency="replace-one")
    for epsilon in (0.0, 0.2, 0.5, 0.9):
        assert here.delta(epsilon) >= uneven.get_delta_for_epsilon(epsilon) * (1 - 1e-9)
    one = losses(grid(2.0, cells=4), crowd=100, step=STEP)
    joint = one.then(here)
    there = one.to_dp_accounting().compose(uneven)
    for epsilon in (0.2, 0.9, 1.5):
        assert joint.delta(epsilon) >= there.get_delta_for_epsilon(epsilon) * (1 - 1e-6) - 1e-12


def test_an_accountant_says_its_adjacency() -> None:
    """Losses for replacing a value are accepted, those for adding or removing are refused."""
    made = {}
    for relation in (NeighboringRelation.REPLACE_ONE, NeighboringRelation.ADD_OR_REMOVE_ONE):
        made[relation] = pld_privacy_accountant.PLDAccountant(
            relation, value_discretization_interval=STEP
        )
    replacing = made[NeighboringRelation.REPLACE_ONE]
    replacing.compose(dp_event.RandomizedResponseDpEvent(0.8, 2))
    here = from_dp_accounting(replacing)
    assert here.delta(0.5) == pytest.approx(replacing.get_delta(0.5), rel=1e-6)
    with pytest.raises(Misuse, match="not add-or-remove-one"):
        from_dp_accounting(replacing, adjacency="add-or-remove-one")
    adding = made[NeighboringRelation.ADD_OR_REMOVE_ONE]
    adding.compose(dp_event.GaussianDpEvent(5.0))
    with pytest.raises(Misuse, match="do not add up"):
        from_dp_accounting(adding)
    with pytest.raises(Misuse, match="not replace-one"):
        from_dp_accounting(adding, adjacency="replace-one")


def test_invalid_losses_are_refused() -> None:
    """No stated adjacency, another one, a rounding down, and no distribution."""
    pessimistic = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=STEP
    )
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=STEP, pessimistic_estimate=False
    )
    with pytest.raises(Misuse, match="pass adjacency"):
        from_dp_accounting(pessimistic)
    with pytest.raises(Misuse, match="do not add up"):
        from_dp_accounting(pessimistic, adjacency="add-or-remove-one")
    with pytest.raises(Misuse, match="rounded down"):
        from_dp_accounting(optimistic, adjacency="replace-one")
    with pytest.raises(Misuse, match="from dp-accounting"):
        from_dp_accounting("losses", adjacency="replace-one")


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 5.0])
def test_renyi_without_a_crowd_is_that_of_binary_response(epsilon: float) -> None:
    """The closed form of the worst pair, from above and closely."""
    p = 1 / (1 + math.exp(-epsilon))
    q = 1 - p
    orders = (1.5, 2, 8, 64)
    for order, found in zip(
        orders, renyi(AnyLdp(epsilon=epsilon), crowd=1, orders=orders), strict=True
    ):
        exact = math.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
        assert exact * (1 - 1e-12) <= found <= exact * 1.0001 + 1e-9


@pytest.mark.parametrize("crowd", [2, 5, 9])
def test_renyi_is_above_every_enumerated_crowd(crowd: int) -> None:
    """3-ary response in small crowds, all data sets of the others that are alike."""
    caps, cells = grid_caps(3)
    channel = two_level(caps, cells, 1.5)
    orders = (1.5, 2.0, 4.0, 16.0)
    bounds = renyi(grid(1.5, cells=3), crowd=crowd, orders=orders)
    for other in range(3):
        mine, yours = (histogram(channel, (v, *(other,) * (crowd - 1))) for v in (0, 1))
        seen = (mine > 0) & (yours > 0)
        for order, bound in zip(orders, bounds, strict=True):
            moment = np.sum(mine[seen] ** order * yours[seen] ** (1 - order))
            assert math.log(moment) / (order - 1) <= bound * (1 + 1e-9)


def test_renyi_converts_to_no_less_than_the_sum_of_losses() -> None:
    """From Rényi to (ε, δ) costs something, so ε is above that of composition, and not far."""
    orders = [1 + 0.25 * k for k in range(1, 200)]
    law = AnyLdp(epsilon=3.0)
    for rounds, sampled in ((10, 1.0), (40, 0.3)):
        found = renyi(law, crowd=5_000, orders=orders, rounds=rounds, sampled=sampled)
        best = min(
            one + math.log1p(-1 / order) - (math.log(1e-6) + math.log(order)) / (order - 1)
            for order, one in zip(orders, found, strict=True)
        )
        exact = compose(law, crowd=5_000, delta=1e-6, rounds=rounds, sampled=sampled)
        assert exact < best < 1.2 * exact


def test_renyi_of_nothing_and_mistakes() -> None:
    """A report that reveals nothing has none; an order must be above one."""
    assert renyi(AnyLdp(epsilon=0.0), crowd=10, orders=[2.0]) == [0.0]
    assert renyi(AnyLdp(epsilon=1.0), crowd=10, orders=[]) == []
    for order in (1.0, 0.5, math.nan, math.inf, "2"):
        with pytest.raises(Misuse, match="each of `orders`"):
            renyi(AnyLdp(epsilon=1.0), crowd=10, orders=[order])  # type: ignore[list-item]


def test_different_rounds_add_up_in_one_sum() -> None:
    """Kinds may be listed in any order or split; never above the plain sum."""
    law, coin = grid(2.0, cells=6), OwnCoin(law=AnyLdp(epsilon=3.0), rate=0.3)
    kinds: list[tuple[Law, int, int]] = [(law, 400, 3), (coin, 2_000, 5)]
    found = compose_all(kinds, delta=1e-6)
    assert compose_all(kinds[::-1], delta=1e-6) == pytest.approx(found, rel=1e-6)
    split: list[tuple[Law, int, int]] = [(law, 400, 1), (coin, 2_000, 5), (law, 400, 2)]
    assert compose_all(split, delta=1e-6) == pytest.approx(found, rel=1e-6)
    alike = compose_all([(law, 400, 3)], delta=1e-6)
    assert alike == pytest.approx(compose(law, crowd=400, delta=1e-6, rounds=3), rel=2e-3)
    assert alike < found
    assert compose_all([(AnyLdp(epsilon=0.5), 1, 2)], delta=1e-6) <= 1.0 + 1e-12
    with pytest.raises(Misuse, match="at least one kind of round"):
        compose_all([], delta=1e-6)
    with pytest.raises(Misuse, match="at least 1"):
        compose_all([(law, 400, 0)], delta=1e-6)
