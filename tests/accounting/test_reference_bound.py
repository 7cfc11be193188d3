"""The bound that every client computes: it is never below the truth, and drafts promise it."""

from dataclasses import replace

import pytest

from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.certificate import delta_interval
from coatcheck.accounting.hockey_stick import upper_by_integral
from coatcheck.accounting.laws import Atoms, Law, OwnCoin, TwoLevel, bounded, grid, minkowski
from coatcheck.accounting.reference_bound import (
    ROUNDING,
    examined,
    kinds,
    promised,
    reference_delta,
)

LAWS: list[Law] = [
    grid(3.0, cells=16),
    minkowski(2.0, radius=0.25, dimension=2),
    bounded(3.0, radius=0.7, dimension=2),
    minkowski(1.0, radius=1.2, dimension=3, norm=2),
    OwnCoin(law=grid(2.0, cells=5), rate=0.3),
]
RARE = TwoLevel(epsilon=0.34773304853224607, cap=0.001, apart=0.001, reached=True, third=True)


@pytest.mark.parametrize("size", [2, 9, 532, 100_000])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_reference_lies_just_above_the_truth(law: Law, size: int) -> None:
    """The bound is at least the lower end of Arb's interval of D, and hardly above it."""
    (parts,) = kinds(law)
    if isinstance(law, TwoLevel):
        law = replace(law, axes=0)  # of boxes more is known than their kinds of reports
    for share in (0.05, 0.4, 0.9):
        epsilon = share * law.epsilon / size**0.25
        low, high = delta_interval(law, size=size, epsilon=epsilon, decide=0.0)
        atoms = Atoms(epsilon=law.epsilon, pairs=(parts,))
        close = 1e-3 if size < 100 else 1e-4
        assert low <= upper_by_integral(atoms, size=size, epsilon=epsilon) <= high * (1 + close)


@pytest.mark.parametrize("law", [*LAWS, RARE, grid(1.0, cells=2)], ids=repr)
def test_every_client_confirms_what_is_drafted(law: Law) -> None:
    """A promise is at least what the library proves, and the common sum confirms it."""
    for crowd, delta in ((2, 1e-3), (19, 3.9e-6), (1000, 1e-6), (10**6, 1e-9)):
        promise = promised(law, crowd=crowd, delta=delta).epsilon
        assert promise >= amplify(law, crowd=crowd, delta=delta).epsilon
        confirmed = reference_delta(law, size=crowd, epsilon=promise) <= delta
        assert confirmed or promise == law.epsilon


def test_where_few_outcomes_decide_the_promise_is_raised() -> None:
    """The common sum is coarser than the exact one for nineteen people and rare caps."""
    drafted = promised(RARE, crowd=19, delta=3.9e-6)
    exact = amplify(RARE, crowd=19, delta=3.9e-6)
    assert exact.epsilon < drafted.epsilon < 1.01 * exact.epsilon
    assert drafted.amplified


def test_a_client_takes_what_the_common_sum_confirms() -> None:
    """Drafts of another implementation hold, even where `amplify` proves less than the sum."""
    law = TwoLevel(epsilon=8.535916306822276, cap=1.9619e-4, apart=1.4055e-4, kernel=2.087e-5)
    good = examined(law, promise=5.11, crowd=431, delta=0.00938)
    assert good.epsilon <= 5.11 * (1 + ROUNDING)
    assert good.amplified
    bad = examined(law, promise=5.1, crowd=431, delta=0.00938)
    assert bad.epsilon > 5.1 * (1 + ROUNDING)
