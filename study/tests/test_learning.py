"""The study of learning: noise by the mechanism's law is what real reports give; features; rows."""

import numpy as np
import pytest

from coatcheck.entropy import seeded
from coatcheck.randomizers.composed import CoinResponse, without_coin
from study import models, teaching
from study.recipes import Recipe, mechanism


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make up images, for machines without MNIST."""
    rng = np.random.default_rng(7)
    some = rng.uniform(size=(2_000, 28, 28)).astype(np.float32), rng.integers(10, size=2_000)
    seen = models.edges(some[0])
    monkeypatch.setattr(models, "part", lambda _: some)
    monkeypatch.setattr(models, "features", lambda _: seen)


def test_the_law_of_a_mean_is_that_of_real_reports() -> None:
    """Means of 500 reports: unbiased, and as far off as the stated squared error says.

    The squared length of the error has a relative deviation of about sqrt(2/1161) per mean; over 4
    means the room of 10 % is more than 4 standard deviations. The seed is fixed.
    """
    made = mechanism(1161, people=5_000, epsilon=3, rate=0.5)
    assert isinstance(made, CoinResponse)
    part = without_coin(made)
    values = np.random.default_rng(1).normal(size=(500, 1161))
    values *= 0.9 / np.linalg.norm(values, axis=1, keepdims=True)
    off = []
    for number in range(4):
        reports = part.randomize(values, seeded(number))
        off.append(part.estimate(reports, "unbiased").mean(axis=0) - values.mean(axis=0))
    stated = part.squared_error(np.zeros(1161)) / 500
    assert np.square(off).sum(axis=1).mean() == pytest.approx(stated, rel=0.1)
    assert np.abs(np.mean(off, axis=0)).max() < 6 * np.sqrt(stated / 1161 / 4)


def test_the_local_budget_does_not_depend_on_the_dimension() -> None:
    """So that it is planned once, for a small ball."""
    few, many = (mechanism(d, people=5_000, epsilon=3, rate=0.5) for d in (64, 1161))
    assert few.epsilon == many.epsilon
    assert few.law == many.law


def test_features_have_unit_length_and_see_directions() -> None:
    """A bar that is turned by a right angle has other features; a blank image has none."""
    images = np.zeros((3, 28, 28), dtype=np.float32)
    images[0, 10:18] = 1.0
    images[1, :, 10:18] = 1.0
    found = models.edges(images)
    assert found.shape == (3, models.FEATURES)
    assert np.linalg.norm(found[:2], axis=1) == pytest.approx(np.ones(2))
    assert found[0] @ found[1] < 0.5
    assert not found[2].any()


def test_slopes_of_the_linear_model_are_those_of_its_loss(images: None) -> None:  # noqa: ARG001 - a fixture
    """Finite differences of the loss of one person agree with the gradient."""
    model = models.linear(np.zeros(models.FEATURES))
    at = np.random.default_rng(2).normal(size=model.dimension)
    rows = np.arange(3)
    (slope, *_) = model.gradients(at, "train", rows)
    ahead = np.random.default_rng(3).normal(size=model.dimension)

    def moved(size: float) -> float:
        return float(model.gradients(at + size * ahead, "train", rows)[0] @ ahead)

    # The loss is convex: its slope along a line rises, and is continuous.
    assert moved(-1e-6) <= slope @ ahead <= moved(1e-6)
    assert moved(1e-6) - moved(-1e-6) < 1e-3


def test_a_few_rounds_teach_and_noise_costs(images: None) -> None:  # noqa: ARG001 - a fixture
    """Three rounds by real reports run through the product's mechanism and read."""
    recipe = Recipe(
        model="linear", people=2_000, rate=0.2, clip=0.25, step=20.0, rounds=3, way="reports"
    )
    taught = teaching.teach(recipe, seed=1)
    assert np.all(np.isfinite(taught.parameters))
    assert taught.parameters.any()
