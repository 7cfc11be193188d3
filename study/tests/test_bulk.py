"""Bulk reports of the study of learning: values, nearest codewords, coins and reading."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from coatcheck import Ball
from coatcheck.entropy import seeded
from coatcheck.randomizers import SphereResponse
from coatcheck.randomizers.sphere import Codewords
from coatcheck.tasks.learning import clipped
from study.bulk import Bulk

CLIP = 0.7


def _bulk(dimension: int, *, stretch: bool = False, turns: int = 0) -> Bulk:
    ball = Ball(radius=1.0, p=2, dimension=dimension)
    return Bulk(SphereResponse(domain=ball, epsilon=4.5, turns=turns), clip=CLIP, stretch=stretch)


def _codewords(part: SphereResponse) -> Codewords:
    width, half = part.domain.dimension + 1, part.domain.steps // 2
    return Codewords(part.seed, width, part.size, part.turns, half)


def _gradients(count: int, dimension: int) -> NDArray[np.float32]:
    """Make gradients of lengths from 0.1 to 2, so that some are clipped; and one of zeros."""
    rng = np.random.default_rng(dimension)
    found = rng.normal(size=(count, dimension)) * rng.exponential(size=dimension)
    found *= rng.uniform(0.1, 2.0, size=(count, 1)) / np.linalg.norm(found, axis=1, keepdims=True)
    found[0] = 0
    return found.astype(np.float32)


@pytest.mark.parametrize("dimension", [30, 1161])
def test_gradients_are_clipped_snapped_lifted_and_turned_as_in_the_product(dimension: int) -> None:
    """Each coordinate is that of the product's lattice point, but for a step of float rounding."""
    bulk, gradients = _bulk(dimension), _gradients(200, dimension)
    turns = np.arange(200) * 20_000
    values = clipped(gradients, dimension=dimension, clip=CLIP) / CLIP
    lifted = _codewords(bulk.part).lift(bulk.part.domain.snap(values * (1 - 1e-9)))
    half = bulk.part.domain.steps // 2
    expected = _codewords(bulk.part).turned(lifted, turns) / half
    found = bulk.turned(gradients, _codewords(bulk.part).turn(turns))
    assert np.abs(found - expected).max() <= 2 / half
    assert (np.abs(found - expected.astype(np.float32)) > 0).mean() < 1e-2


@pytest.mark.parametrize("dimension", [30, 1161])
def test_the_nearest_codewords_are_the_products(dimension: int) -> None:
    """The same sets, for values at random and for one value in all turns."""
    bulk, gradients = _bulk(dimension), _gradients(600, dimension)
    gradients[400:] = gradients[400]
    turns = np.arange(600) * 5_000
    points = bulk.part.domain.snap(
        clipped(gradients, dimension=dimension, clip=CLIP) / CLIP * (1 - 1e-9)
    )
    exact = _codewords(bulk.part).nearest(points, turns, bulk.part.closest)
    expected = np.concatenate([one for _, one in exact])
    found = bulk.nearest(gradients, turns, _codewords(bulk.part).turn(turns))
    assert np.array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


def test_the_law_of_a_report_is_the_mechanisms() -> None:
    """Reports of one value hit its near set as often as `density` says, and no codeword too often.

    A share of 40,000 reports is at most 5 standard deviations off: once in 1.7 million seeds.
    """
    bulk, gradient = _bulk(30, turns=64), _gradients(2, 30)[1:]
    count = 40_000
    reports = bulk.draw(np.arange(count), lambda rows: gradient[np.zeros_like(rows)], seeded(5))
    point = bulk.part.domain.snap(clipped(gradient, dimension=30, clip=CLIP) / CLIP)
    likely = bulk.part.density(reports[:, None], np.repeat(point, count, axis=0))
    near = float((likely > likely.min()).mean())
    part = bulk.part
    expected = part.mixing + (1 - part.mixing) * part.closest / part.size
    assert abs(near - expected) < 5 * np.sqrt(expected * (1 - expected) / count)
    turns = np.bincount(reports // part.size, minlength=part.turns)
    assert np.abs(turns - count / part.turns).max() < 5 * np.sqrt(count / part.turns)
    top = Counter(reports.tolist()).most_common(1)[0][1]
    assert top < 100  # about 42 times is usual for a near one


@pytest.mark.parametrize("project", [False, True])
def test_the_sum_is_that_of_the_reports_read_one_by_one(project: bool) -> None:  # noqa: FBT001 - two ways
    """Reading is linear, so counting reports first changes nothing."""
    bulk = _bulk(200)
    gradients = _gradients(300, 200)
    reports = bulk.draw(np.arange(300), lambda rows: gradients[rows], seeded(6))
    read = bulk.part.estimate(reports[:, None], "project" if project else "unbiased")
    found = bulk.total(np.arange(300), lambda rows: gradients[rows], seeded(6), project=project)
    assert found == pytest.approx(read.sum(axis=0), abs=1e-6)


def test_gradients_may_all_be_stretched_to_one_length() -> None:
    """A short gradient that is stretched has nothing left for the lift."""
    bulk, gradients = _bulk(30, stretch=True), _gradients(5, 30)
    lifts = 1 - np.linalg.norm(bulk.part.domain.values(bulk._points(gradients[1:])), axis=1)
    assert np.abs(lifts).max() < 1e-3


def test_nobodys_gradient_is_asked_for_without_need() -> None:
    """Where the coin says any codeword, the value has no part in the report."""
    bulk, gradients = _bulk(30), _gradients(400, 30)
    asked: list[int] = []

    def looked(rows: NDArray[np.intp]) -> NDArray[np.float32]:
        asked.extend(rows.tolist())
        return gradients[rows]

    bulk.draw(np.arange(400), looked, seeded(7))
    assert 0 < len(asked) < 400
    assert abs(len(asked) / 400 - bulk.part.mixing) < 0.12


def test_turns_take_the_lean_out_of_people_who_are_alike() -> None:
    """With few turns a crowd of one value is off by the stated lean; with many only by noise.

    The squared error of a mean has a relative deviation of about sqrt(2/300) = 8 %; the room is
    more than 4 of them. The seed is fixed.
    """
    gradient, count = _gradients(2, 300)[1:], 20_000
    ball = Ball(radius=1.0, p=2, dimension=300)
    value = clipped(gradient, dimension=300, clip=CLIP)[0] / CLIP
    for turns in (4, 4_096):
        part = SphereResponse(domain=ball, epsilon=4.5, turns=turns)
        bulk = Bulk(part, clip=CLIP)
        total = bulk.total(np.arange(count), lambda rows: gradient[np.zeros_like(rows)], seeded(8))
        off = float(np.square(total / count - value).sum())
        expected = part.squared_error(value) / count + part.lean**2
        assert off == pytest.approx(expected, rel=0.35)
        assert (part.lean**2 > 0.5 * expected) == (turns == 4)
