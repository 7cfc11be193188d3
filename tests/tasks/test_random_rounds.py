"""Matchings on odd crowds, against solvers that see every pair; `bench matchings` holds more."""

import pytest

from bench.matchings import draw, wrong


@pytest.mark.parametrize("part", range(4))
def test_no_matching_of_random_rounds_is_wrong(part: int) -> None:
    """Heavy duplicates, equal sides, moves by 1e9, scales of 1e-160: least cost and maximum."""
    rounds = [draw(seed) for seed in range(10_000 + 60 * part, 10_060 + 60 * part)]
    assert [sentence for one in rounds for sentence in wrong(one)] == []
    assert any(len(one.rows) == len(one.columns) for one in rounds)
