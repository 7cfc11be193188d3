"""Clipping and descent: wrong gradients are refused, and a failed round changes no model."""

import numpy as np
import pytest

from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.tasks.learning import Descent, clipped


def test_a_gradient_is_shortened_and_never_lengthened() -> None:
    """Also where squares would overflow; what is short enough stays as it is."""
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e200, 0.0], [1e-200, 0.0]])
    found = clipped(rows, dimension=2, clip=1.0)
    assert np.allclose(found, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [1.0, 0.0], [1e-200, 0.0]])
    assert (clipped(rows[1], dimension=2, clip=1.0) == rows[1]).all()
    many = clipped(np.random.default_rng(1).normal(size=(2_000, 50)), dimension=50, clip=1.0)
    Ball(radius=1.0, p=2, dimension=50).snap(many)  # none is outside by a rounding


@pytest.mark.parametrize(
    ("gradient", "sentence"),
    [
        ([1.0, np.nan], "not finite"),
        ([1.0, np.inf], "not finite"),
        ([1.0], "the model has 2 parameters"),
        ([[[1.0, 2.0]]], "the model has 2 parameters"),
        (["a", "b"], "a list of numbers"),
        ([[1.0, 2.0], [1.0]], "a list of numbers"),
    ],
)
def test_a_wrong_gradient_is_refused(gradient: object, sentence: str) -> None:
    """The error comes before anything is randomized."""
    with pytest.raises(Misuse, match=sentence):
        clipped(gradient, dimension=2, clip=1.0)
    for clip in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(Misuse, match="`clip` must be"):
            clipped([1.0, 2.0], dimension=2, clip=clip)


def test_descent_finds_the_bottom_of_a_bowl_through_noise() -> None:
    """The step falls to 0, so that most of the noise of a mean (1.7 long) dies out."""
    rng = np.random.default_rng(2)
    goal = np.array([1.0, -2.0, 0.5])

    def off(momentum: float) -> float:
        model = Descent(step=0.5, rounds=200, momentum=momentum).start(np.zeros(3))
        for _ in range(200):
            model = model.after(model.parameters - goal + rng.normal(size=3))
        assert model.done == 200
        with pytest.raises(Misuse, match="planned rounds are done"):
            model.after(goal)
        return float(np.linalg.norm(model.parameters - goal))

    assert np.mean([off(0.9) for _ in range(20)]) < 0.5


def test_what_is_no_mean_leaves_the_model_as_it_was() -> None:
    """A round that failed is tried again on the same model."""
    model = Descent(step=1.0, rounds=3).start([0.0, 1.0])
    for wrong in ([np.nan, 0.0], [1.0], [[1.0, 2.0]]):
        with pytest.raises(Misuse, match="stays as it was"):
            model.after(wrong)
    assert (model.parameters == [0.0, 1.0]).all()
    assert model.done == 0
    with pytest.raises(Misuse, match="one row of finite numbers"):
        Descent(step=1.0, rounds=3).start([np.nan])
    for wrong_step in ({"step": 0.0}, {"rounds": 0}, {"momentum": 1.0}):
        with pytest.raises(Misuse):
            Descent(**{"step": 1.0, "rounds": 3, **wrong_step})  # type: ignore[arg-type]
