"""Made-up wages, and a person's place among the deciles of a crowd."""

import numpy as np

from coatcheck.demo.scenarios import (
    HIGHEST_WAGE,
    LOWEST_WAGE,
    make_scenario,
    measure_shares,
    share_among,
    wages,
)


def test_a_wage_finds_its_place_among_deciles() -> None:
    """At a decile the share is its tenth, between two it lies between; the ends are 0 and 1."""
    deciles = [12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 30.0]
    assert [round(share_among(wage, deciles), 9) for wage in deciles] == [
        tenth / 10 for tenth in range(1, 10)
    ]
    assert (share_among(LOWEST_WAGE, deciles), share_among(HIGHEST_WAGE, deciles)) == (0.0, 1.0)
    assert 0.4 < share_among(19.0, deciles) < 0.5
    # Noisy deciles may go back; a share never does.
    noisy = [20.0, 12.0, *deciles[2:]]
    shares = [share_among(wage, noisy) for wage in np.linspace(LOWEST_WAGE, HIGHEST_WAGE, 50)]
    assert shares == sorted(shares)


def test_true_numbers_are_exact_and_chance_is_a_third() -> None:
    """The true share has no error; two random people are on average a third apart."""
    values = wages(500, entropy=3)
    assert values.min() >= LOWEST_WAGE
    assert values.max() <= HIGHEST_WAGE
    assert np.array_equal(values, wages(500, entropy=3))
    right = np.argsort(np.argsort(values[:, 0])) / 500
    found = measure_shares(values, right, np.quantile(values, np.arange(1, 10) / 10).tolist())
    own, told, true, chance = found["mean_error"].values()
    assert true == 0.0 <= told < 0.01
    assert own < 0.02
    assert abs(chance - 1 / 3) < 0.01


def test_a_scenario_of_wages_is_planned_for_its_crowd() -> None:
    """The plan has one number per person and one group with all people."""
    made = make_scenario("standing", people=60, epsilon=2.0)
    assert made.box is None
    assert [draft.minimum for draft in made.drafts] == [60]
    assert made.everybody == [(0, row) for row in range(60)]
