"""The one source of randomness: no value is given out twice, draws are unbiased and named."""

import os

import numpy as np
import pytest
from scipy import stats

from coatcheck import Misuse
from coatcheck.entropy import Entropy, seeded, source, system


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 2**20 + 1])
def test_bulk_integers_are_uniform(bound: int) -> None:
    """Bulk draws fill their range evenly (chi-square, false alarm 1e-6 a case, seed fixed)."""
    drawn = seeded(11).below(bound, 60_000)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    bins = min(bound, 64)
    counts = np.bincount(drawn * bins // bound, minlength=bins)
    sizes = np.diff([-(-k * bound // bins) for k in range(bins + 1)])
    assert bins == 1 or stats.chisquare(counts, 60_000 * sizes / bound).pvalue > 1e-6


def test_words_that_would_favor_some_results_are_drawn_again() -> None:
    """With a bound of 3 * 2^30 a quarter of all words is unfair; the thirds still come out even.

    False alarm 1e-6, seed fixed. Without the redraw the first third would hold half of all.
    """
    drawn = seeded(5).below(3 << 30, 30_000)
    counts = np.bincount(drawn >> 30, minlength=3)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_single_integers_of_any_length_are_uniform() -> None:
    """One draw at a time is uniform too, far beyond 64 bits (false alarm 1e-6, seed fixed)."""
    entropy = seeded(3)
    bound = 5 * 2**200 + 17
    counts = np.bincount([entropy.integer(bound) * 5 // bound for _ in range(4000)], minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert {entropy.integer(1) for _ in range(5)} == {0}


def test_coins_fall_as_told() -> None:
    """A coin with heads of 2^64 falls heads always, with 0 never, and with 1/8 one in eight."""
    entropy = seeded(8)
    assert entropy.coins(1 << 64, 100).all()
    assert not entropy.coins(0, 100).any()
    heads = int(entropy.coins(1 << 61, 80_000).sum())
    assert stats.binomtest(heads, 80_000, 1 / 8).pvalue > 1e-6
    assert entropy.coin(1 << 64)
    assert not entropy.coin(0)


def test_a_seed_repeats_and_says_that_it_is_not_for_people() -> None:
    """Two sources of one seed agree, and neither is secure; the system's is, and differs."""
    assert seeded(1).token(50) == seeded(1).token(50)
    assert not seeded(1).secure
    assert "seeded" in repr(seeded(1))
    assert system().secure
    assert system().token(32) != system().token(32)


def test_large_and_small_draws_are_of_the_size_asked() -> None:
    """Draws around the size of the pool come whole."""
    for entropy in (system(), seeded(2)):
        for size in (0, 1, 4095, 4096, 4097, 100_000):
            assert len(entropy.token(size)) == size
        assert entropy.words(7).dtype == np.uint64


def test_floats_stay_inside_the_open_interval() -> None:
    """The extreme words give neither 0 nor 1, where a logarithm would be infinite."""

    class Fixed(Entropy):
        secure = False

        def __init__(self, byte: bytes) -> None:
            super().__init__()
            self.byte = byte

        def _stream(self, size: int) -> bytes:
            return self.byte * size

    assert 0 < Fixed(b"\0").uniforms(1)[0] < Fixed(b"\xff").uniforms(1)[0] < 1


def test_a_forked_child_does_not_repeat_its_parents_noise() -> None:
    """Parent and child of a fork draw different bytes from the same source."""
    source = system()
    source.token(8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.token(32))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32) != source.token(32)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("bound", [0, -1, 2**32 + 1])
def test_bounds_without_meaning_are_refused(bound: int) -> None:
    """A bulk draw says which bounds it takes."""
    with pytest.raises(Misuse, match="bound"):
        seeded(0).below(bound, 1)


def test_negative_seeds_are_refused() -> None:
    """A seed below 0 gets a sentence."""
    with pytest.raises(Misuse, match="seed"):
        seeded(-1)


def test_a_seed_stands_for_the_source_it_makes() -> None:
    """Wherever entropy is an argument, a seed and its source are the same; a source is kept."""
    assert source(8).token(16) == seeded(8).token(16)
    assert source(system()) is system()
    assert source(8).seed() == seeded(8).seed() != seeded(9).seed()
    with pytest.raises(Misuse, match="`seed` must be"):
        source(-1)
