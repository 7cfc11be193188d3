"""Sphere response: every probability on small codebooks, and the error beside PrivUnit's."""

import hashlib
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from coatcheck.domains import Ball, lattice_norm_within
from coatcheck.entropy import public, seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers import SphereResponse, choose, from_params
from coatcheck.randomizers.baselines import PrivUnit
from coatcheck.randomizers.contract import TOSSES, exp_below
from coatcheck.randomizers.sphere import Codewords

DISC = Ball(radius=1.0, p=2, dimension=2, steps=8)
SHORT = Ball(radius=1.0, p=2, dimension=1, steps=8)


def points_of(domain: Ball) -> list[tuple[int, ...]]:
    """Every point of a small lattice."""
    half = domain.steps // 2
    every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
    return [point for point in every if lattice_norm_within(point, 2, half)]


def sphere(d: int, size: int, *, seed: int = 1) -> Any:
    """Unit vectors, spread evenly."""
    drawn = np.random.default_rng(seed).normal(size=(size, d))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * (1 - 1e-9)


@pytest.mark.parametrize("domain", [DISC, SHORT], ids=["disc", "line"])
@pytest.mark.parametrize(("epsilon", "closest"), [(0.3, 1), (1.0, 3), (4.0, 2), (4.0, 7)])
def test_every_probability(domain: Ball, epsilon: float, closest: int) -> None:
    """Masses sum to one exactly, no ratio is above e^ε, and `density` is the same number."""
    made = SphereResponse(domain=domain, epsilon=epsilon, size=8, closest=closest, turns=3)
    points = points_of(domain)
    table = [[made.mass((y,), point) for y in range(24)] for point in points]
    assert all(sum(row) == 1 for row in table)
    for column in zip(*table, strict=True):
        assert max(column) <= exp_below(epsilon) * min(column)
    low = Fraction(TOSSES - made.heads, TOSSES * 8 * 3)
    assert all(sum(mass > low for mass in row) == closest * 3 for row in table)
    assert made.mass((24,), points[0]) == made.mass((-1,), points[0]) == 0
    pairs = list(itertools.product(range(len(points)), range(-1, 25)))
    rows = np.array([points[i] for i, _ in pairs], dtype=np.int64)
    reports = np.array([[y] for _, y in pairs])
    expected = [float(table[i][y]) if 0 <= y < 24 else 0.0 for i, y in pairs]
    assert made.density(reports, rows) == pytest.approx(expected, rel=1e-12)


def test_draws_follow_the_masses() -> None:
    """Chi-square over every report of one value; false alarm 1e-6, the seed is fixed."""
    made = SphereResponse(domain=DISC, epsilon=2.0, size=8, closest=3, turns=2)
    drawn = made.respond(np.tile([[3, -1]], (60_000, 1)), seeded(4))[:, 0]
    expected = [float(made.mass((y,), (3, -1))) * len(drawn) for y in range(16)]
    assert stats.chisquare(np.bincount(drawn, minlength=16), expected).pvalue > 1e-6
    alone = [made.respond_one((3, -1), seeded(s))[0] for s in range(4_000)]
    expected = [float(made.mass((y,), (3, -1))) * len(alone) for y in range(16)]
    assert stats.chisquare(np.bincount(alone, minlength=16), expected).pvalue > 1e-6


def turned_by_hand(vector: list[int], *, seed: int, turn: int) -> list[int]:
    """Turn a vector as in SPEC, one coordinate after the other."""
    drawn = public(f"coatcheck sphere turn {seed} {turn}", start=0, stop=4 + len(vector))
    move = int.from_bytes(drawn[:4], "little") % len(vector)
    moved = [vector[(j + move) % len(vector)] for j in range(len(vector))]
    return [-x if drawn[4 + j // 8] >> (j % 8) & 1 else x for j, x in enumerate(moved)]


def test_nearness_is_decided_in_integers() -> None:
    """The nearest codewords are those that Python's integers give, ties by index."""
    for width, half in ((3, 4), (66, 1 << 19), (1001, 1 << 23)):
        codebook = Codewords(7, width, 40, 4, half)
        ball = Ball(radius=1.0, p=2, dimension=width - 1, steps=2 * half)
        point = ball.snap(sphere(width - 1, 1))
        plain = [*point[0].tolist(), math.isqrt(half**2 - sum(i * i for i in point[0].tolist()))]
        turned = turned_by_hand(plain, seed=7, turn=2)
        keys = []
        for index, row in enumerate(codebook.rows(0, 40).tolist()):
            length = math.isqrt(sum(g * g for g in row) << 24)
            score = sum(g * z for g, z in zip(row, turned, strict=True)) * ((1 << 38) // length)
            keys.append((score >> max(0, half.bit_length() - 10), -index))
        wanted = sorted(range(40), key=keys.__getitem__)[-5:]
        (_, found), *_ = codebook.nearest(point, np.array([2]), 5)
        assert sorted(found[0].tolist()) == sorted(wanted)


def test_the_codebook_is_the_same_everywhere() -> None:
    """Bytes fixed by SPEC: another machine, or another read of the same rows, gives the same."""
    codebook = Codewords(7, 65, 1024, 64, 1 << 19)
    whole = codebook.rows(0, 1024)
    assert (codebook.rows(700, 710) == whole[700:710]).all()
    moves, signs = codebook.turn(np.array([3, 1 << 21, 3]))
    digest = hashlib.sha256(whole.tobytes() + moves.astype("<i8").tobytes() + signs.tobytes())
    assert digest.hexdigest()[:16] == "c51c6f3945b15b33"
    assert public("x", start=100, stop=140) == public("x", start=0, stop=200)[100:140]
    assert np.abs(whole.astype(float)).min() >= 1


def test_turning_back() -> None:
    """A vector that is turned and turned back is itself; another turn is another order."""
    codebook = Codewords(0, 9, 16, 8, 64)
    vectors, turns = np.arange(36.0).reshape(4, 9), np.array([0, 5, 5, 7])
    turned = codebook.turned(vectors, turns)
    assert (codebook.turned_back(turned, turns) == vectors).all()
    assert turned[1].tolist() == turned_by_hand([*range(9, 18)], seed=0, turn=5)
    assert (np.sort(np.abs(turned), axis=1) == np.sort(vectors, axis=1)).all()
    assert not (np.abs(turned) == vectors).all(axis=1).any()


@pytest.mark.parametrize(("d", "epsilon", "most"), [(64, 4, 1.05), (64, 8, 1.05), (1000, 8, 1.08)])
def test_the_error_is_close_to_privunits(d: int, epsilon: float, most: float) -> None:
    """Predicted and drawn: the squared error at full length, beside PrivUnit's closed form."""
    ball = Ball(radius=2.0, p=2, dimension=d)
    made = SphereResponse(domain=ball, epsilon=epsilon)
    best = PrivUnit(domain=ball, epsilon=epsilon).squared_error(np.eye(d)[0])
    assert 1 <= made.worst_error(power=2) / best < most
    values = 2 * sphere(d, 2_000)
    estimates = made.estimate(made.randomize(values, seeded(2)))
    drawn = np.square(estimates - values).sum(axis=1)
    slack = 5 * drawn.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - made.worst_error(power=2)) < slack + 0.01 * best
    along = (estimates * values).sum(axis=1) / 4
    assert abs(along.mean() - 1) < 5 * along.std() / math.sqrt(len(along))
    assert made.report_bits == 32


def test_turns_take_away_the_lean() -> None:
    """The mean of many reports of one value is off by `lean`, which falls with the turns."""
    ball = Ball(radius=1.0, p=2, dimension=16)
    value = sphere(16, 1)
    for turns in (1, 64):
        made = SphereResponse(domain=ball, epsilon=6.0, size=256, closest=4, turns=turns)
        estimates = made.estimate(made.randomize(np.repeat(value, 40_000, axis=0), seeded(3)))
        off = np.linalg.norm(estimates.mean(axis=0) - value[0])
        noise = math.sqrt(estimates.var(axis=0).sum() / len(estimates))
        assert made.lean / 2 - noise < off < 2 * made.lean + 2 * noise
    assert noise < made.lean  # or nothing was measured
    one = SphereResponse(domain=ball, epsilon=6.0, size=256, closest=4, turns=1)
    assert one.lean == pytest.approx(8 * made.lean)


@pytest.mark.parametrize("value", ["even", "one coordinate", "short"])
def test_a_crowd_of_one_value_is_read_as_well_as_its_size_says(value: str) -> None:
    """With the usual turns, the squared error of a mean falls as the stated variance over n.

    People whose gradients are alike share a codebook's lean, and with 64 turns that was larger than
    the noise of 4,000 reports. The squared error of a mean in 200 dimensions deviates by about
    sqrt(2 / 200) = 10 %; the room is 4.5 of them, and the seed is fixed.
    """
    d = 200
    made = SphereResponse(domain=Ball(radius=1.0, p=2, dimension=d), epsilon=6.0)
    held = {
        "even": sphere(d, 1),
        "one coordinate": 0.999 * np.eye(d)[:1],
        "short": np.zeros((1, d)),
    }
    estimates = made.estimate(made.randomize(np.repeat(held[value], 8_000, axis=0), seeded(5)))
    for n in (500, 2_000, 8_000):
        off = float(np.square(estimates[:n].mean(axis=0) - held[value]).sum())
        assert off == pytest.approx(made.squared_error(held[value][0]) / n, rel=0.45)
    few = replace(made, turns=64)
    assert few.lean**2 > 2 * made.squared_error(held[value][0]) / 4_000 > 1e4 * made.lean**2


def test_five_thousand_dimensions() -> None:
    """A report of a large gradient; more than 5,000 dimensions are refused."""
    ball = Ball(radius=1.0, p=2, dimension=5_000)
    made = SphereResponse(domain=ball, epsilon=8.0)
    reports = made.randomize(sphere(5_000, 3), seeded(1))
    assert made.estimate(reports).shape == (3, 5_000)
    with pytest.raises(Misuse, match="at most 5000 dimensions"):
        SphereResponse(domain=Ball(radius=1.0, p=2, dimension=5_001), epsilon=8.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"closest": 16}, "`closest` must be from 1 to 15, got 16"),
        ({"closest": -1}, "whole number"),
        ({"closest": True}, "whole number"),
        ({"size": 1 << 17}, "at most 2\\^16"),
        ({"turns": 1 << 29}, "at most 2\\^32"),
        ({"seed": 1 << 53}, "seed"),
        ({"decode": "median"}, "are decoded by"),
        ({"size": 0}, "not complete"),
        ({"turns": 0}, "not complete"),
    ],
)
def test_invalid_parameters_are_refused(change: dict[str, Any], words: str) -> None:
    """They are refused before any codeword is derived."""
    plain = SphereResponse(domain=DISC, epsilon=1.0, size=16, closest=2, turns=4).params()
    assert from_params(plain).params() == plain
    with pytest.raises(Misuse, match=words):
        from_params({**plain, **change})
    large = Ball(radius=1.0, p=2, dimension=5_000)
    with pytest.raises(Misuse, match="integers"):
        SphereResponse(domain=large, epsilon=1.0, size=4096, closest=9)


def test_reports_out_of_range_are_refused() -> None:
    """There is no codeword behind such a report."""
    made = SphereResponse(domain=DISC, epsilon=1.0, size=16, closest=2, turns=4)
    for wrong in (-1, 64):
        with pytest.raises(Misuse, match="from 0 to 63"):
            made.estimate(np.array([[wrong]]))


def test_it_is_chosen_where_an_unbiased_exact_report_is_asked_for() -> None:
    """Above eight dimensions nothing else is exact on the l2 ball."""
    found = choose(
        epsilon=4.0, domain=Ball(radius=1.0, p=2, dimension=64), goal="unbiased", exact=True
    )
    assert found.randomizer.name == "sphere"
    assert found.error**2 == pytest.approx(27.3, rel=0.02)
