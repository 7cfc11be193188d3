"""SimplePIR of the bench: exact answers, and queries that look the same whatever is asked for."""

import numpy as np
import pytest

from bench._pir import MOST, SIGMA, STEP, N, answer, ask, gaussian, hint, matrix, recover
from coatcheck.entropy import seeded

SEED = b"a round"
RNG = np.random.default_rng(7)
DATABASE = RNG.integers(0, 256, (24, 700), dtype=np.uint8)


def test_every_answer_is_exact() -> None:
    """The hint and the secret give back the column that was asked for, byte by byte.

    The error has a deviation of at most 255 * 6.4 * sqrt(700) = 43,200, and 2^23 would be wrong.
    """
    known, entropy = hint(DATABASE, SEED), seeded(3)
    for place in (0, 1, 255, 350, 698, 699):
        query, secret = ask(place, 700, SEED, entropy)
        found = recover(answer(DATABASE, query), known, secret)
        assert found == DATABASE[:, place].tobytes()


def test_the_hint_is_the_product_modulo_2_to_the_32() -> None:
    """Floats carry it exactly, over more than one piece of columns."""
    wide = RNG.integers(0, 256, (3, 5000), dtype=np.uint8)
    whole = matrix(SEED, 0, 5000).astype(np.uint64)
    exact = (wide.astype(np.uint64) @ whole) % 2**32
    assert np.array_equal(hint(wide, SEED), exact.astype(np.uint32))


def test_queries_for_two_entries_differ_by_a_public_number_alone() -> None:
    """With the same draws they are equal but for q / p at two places: what hides it is A s + e.

    So the one is as good as uniform exactly if the other is, which learning with errors says.
    """
    first, _ = ask(3, 700, SEED, seeded(5))
    second, _ = ask(600, 700, SEED, seeded(5))
    moved = (first - second).astype(np.int64)
    assert {place: moved[place] for place in np.flatnonzero(moved)} == {3: STEP, 600: 2**32 - STEP}
    assert first.nbytes == second.nbytes == 4 * 700
    fresh, _ = ask(3, 700, SEED, seeded(6))
    assert np.count_nonzero(first == fresh) < 5  # a chance of 10^-33 for uniform numbers


def test_the_bytes_of_queries_show_no_place() -> None:
    """The top byte at the place asked for is as even as elsewhere (chi square, 10^-6 per look)."""
    entropy, places = seeded(11), (5, 20)
    for place in places:
        tops = [int(ask(place, 32, SEED, entropy)[0][place] >> 24) for _ in range(2048)]
        counts = np.bincount(tops, minlength=256)
        assert ((counts - 8) ** 2 / 8).sum() < 378  # the 1 - 10^-6 quantile for 255 degrees


def test_errors_have_their_deviation() -> None:
    """Mean and deviation of 200,000 draws; a fixed seed, six deviations wide."""
    drawn = gaussian(200_000, seeded(2))
    assert abs(drawn.mean()) < 6 * SIGMA / 200_000**0.5
    assert abs(drawn.std() - (SIGMA**2 + 1 / 12) ** 0.5) < 6 * SIGMA / (2 * 200_000) ** 0.5


def test_what_the_estimate_does_not_cover_is_refused() -> None:
    """More columns than 2^20, or a place that is none of them."""
    for place, columns in ((0, MOST + 1), (5, 5), (-1, 5)):
        with pytest.raises(ValueError, match="columns"):
            ask(place, columns, SEED, seeded(1))
    assert matrix(SEED, 4, 2).shape == (2, N)
    assert np.array_equal(matrix(SEED, 4, 2), matrix(SEED, 0, 6)[4:])
