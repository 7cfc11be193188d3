"""Teaching a model by private means: the loop that all rows of `study.learning` share.

The speakers of a round are the people whose coin says so. The mean comes about in one of these
ways. `reports`: each speaker's clipped gradient becomes a report of the product's mechanism, drawn
by `study.bulk`, and the server decodes the sum of all. `law`: the same speakers, but noise of the
variance that the mechanism states instead of reports; such rows say so, and a part of
`study.learning` compares the two. `central`: the Gaussian mechanism of a trusted server. `none`: no
noise. `alone`: nobody takes part, and the server has its public examples only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Ball, seeded
from coatcheck.entropy import Entropy
from coatcheck.randomizers import CoinResponse, Randomizer, SphereResponse
from coatcheck.randomizers.composed import without_coin
from coatcheck.tasks.learning import Descent, clipped
from study import models
from study.bulk import Bulk
from study.recipes import Recipe, gaussian, local_epsilon, planned
from study.sheets import Cell, Row

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
_CHUNK: Final = 1_000
_ANY: Final = Ball(radius=1.0, p=2, dimension=1)  # a coin does not depend on the value
_STEPS: Final = 400  # of the server alone
_WARM: dict[tuple[str, str, int, int], Floats] = {}


@dataclass(frozen=True, eq=False)
class Taught:
    """A model with its parameters after the last round."""

    parameters: Floats
    model: models.Model


def measure(cell: Cell) -> Row:
    """Train by the recipe of a cell; return the accuracy on the test images."""
    recipe = Recipe.read(str(cell["recipe"]))
    taught = teach(recipe, seed=int(cell["seed"]))
    right = taught.model.accuracy(taught.parameters, "test")
    return {"accuracy": 100 * right, "local_epsilon": local_epsilon(recipe)}


def teach(
    recipe: Recipe,
    *,
    seed: int,
    stop: int | None = None,
    watch: Callable[[int, Floats], None] | None = None,
) -> Taught:
    """Train a model for all rounds, or until one of them; a callback may watch each round begin."""
    entropy = seeded(10_000 + seed)
    if recipe.way == "alone":
        return _alone(recipe, seed)
    model = _model(recipe, entropy)
    at = model.start(seed)
    if recipe.public:
        at = _warmed(recipe, model, seed)
    momentum = 0.0 if recipe.mover == "plain" else 0.9
    moved = Descent(step=recipe.step, rounds=recipe.rounds, momentum=momentum).start(at)
    adam = _Adam()
    # The first round of the linear model was for the private mean of the features.
    for number in range(recipe.model == "linear", recipe.rounds if stop is None else stop):
        if watch:
            watch(number, moved.parameters)
        mean = _slope(recipe, model, moved.parameters, entropy, seed)
        if recipe.mover == "adam":
            mean = adam.direction(mean)
        moved = moved.after(mean)
    return Taught(moved.parameters, model)


def _model(recipe: Recipe, entropy: Entropy) -> models.Model:
    """Return the model; the linear one spends a round on the private mean of the features."""
    if recipe.model == "network":
        return models.whole_network(edges_first=recipe.start == "edges")
    features = models.features("train")
    about = replace(recipe, clip=1.0, length="clipped")
    rows = _speakers(recipe, entropy)
    return models.linear(
        _mean(about, features.shape[1], rows, lambda some: features[some], entropy)
    )


def _speakers(recipe: Recipe, entropy: Entropy) -> Rows:
    """Draw the speakers: by participation coins, or by a secret sample."""
    if recipe.rate == 1:
        return np.arange(recipe.people)
    if recipe.sampling == "secret":
        return np.argsort(entropy.words(recipe.people))[: round(recipe.rate * recipe.people)]
    coin = CoinResponse(part=SphereResponse(domain=_ANY, epsilon=1.0), rate=recipe.rate)
    return np.flatnonzero(entropy.coins(coin.heads, recipe.people))


def _slope(recipe: Recipe, model: models.Model, at: Floats, entropy: Entropy, seed: int) -> Floats:
    """Return the mean of the speakers' gradients as a round would give it."""

    def gradients(rows: Rows) -> NDArray[Any]:
        return model.gradients(at, "train", rows)

    rows = _speakers(recipe, entropy)
    if not recipe.directions:
        return _mean(recipe, model.dimension, rows, gradients, entropy)
    shown = model.gradients(at, "validate", public_rows(recipe, seed)).astype(np.float64)
    main = np.linalg.svd(shown, full_matrices=False)[2][: recipe.directions]
    mean = _mean(recipe, len(main), rows, lambda some: gradients(some) @ main.T, entropy)
    return np.asarray(mean @ main)


def _mean(
    recipe: Recipe,
    dimension: int,
    rows: Rows,
    gradients: Callable[[Rows], NDArray[Any]],
    entropy: Entropy,
) -> Floats:
    """Return a mean of clipped vectors in the way of a row."""
    part = without_coin(planned(recipe, dimension))
    if recipe.way == "reports" and isinstance(part, SphereResponse):
        bulk = _bulk(part, recipe.clip, stretch=recipe.length == "unit")
        total = bulk.total(rows, gradients, entropy, project=recipe.project)
        return recipe.clip * total / len(rows)
    total = np.zeros(dimension)
    for start in range(0, len(rows), _CHUNK):
        values = _shortened(recipe, gradients(rows[start : start + _CHUNK]))
        if recipe.way == "reports":
            values = part.estimate(part.randomize(values * (1 - 1e-9), entropy), "unbiased")
        total += values.sum(axis=0)
    return recipe.clip * (total / len(rows) + _noise(recipe, part, len(rows), entropy))


@cache
def _bulk(part: SphereResponse, clip: float, *, stretch: bool) -> Bulk:
    """Return the sampler; the codebook stays the same from round to round."""
    return Bulk(part, clip=clip, stretch=stretch)


def _noise(recipe: Recipe, part: Randomizer, count: int, entropy: Entropy) -> Floats | float:
    """Return the noise of the mean of vectors of length at most 1, where no report is drawn."""
    dimension = part.domain.dimension
    if recipe.way == "central":
        settings = {"people": recipe.people, "epsilon": recipe.epsilon, "rate": recipe.rate}
        deviation = gaussian(**settings, rounds=recipe.rounds) / count
    elif recipe.way == "law":
        deviation = math.sqrt(part.squared_error(np.zeros(dimension)) / dimension / count)
    else:
        return 0.0
    return deviation * normal(entropy, dimension)


def _shortened(recipe: Recipe, gradients: NDArray[Any]) -> Floats:
    """Return gradients as people report them: clipped, and divided by the clip."""
    d = gradients.shape[1]
    if recipe.length == "unit":
        length = np.linalg.norm(gradients, axis=1, keepdims=True)
        return clipped(gradients / np.maximum(length, 1e-12), dimension=d, clip=1.0)
    return clipped(gradients, dimension=d, clip=recipe.clip) / recipe.clip


def normal(entropy: Entropy, size: int) -> Floats:
    """Draw normal numbers."""
    from scipy.special import ndtri  # noqa: PLC0415 - as everywhere

    return np.asarray(ndtri((entropy.uniforms(size) * (1 - 2e-16)) + 1e-16))


# -- the server alone


def public_rows(recipe: Recipe, seed: int) -> NDArray[np.intp]:
    """Draw the server's own examples from the part that the crowd does not have."""
    count = len(models.part("validate")[1])
    return np.argsort(seeded(20_000 + seed).words(count))[: recipe.public]


def _warmed(recipe: Recipe, model: models.Model, seed: int) -> Floats:
    """Return the model trained on the server's own examples; many rows share the network's."""
    named = (recipe.model, recipe.start, recipe.public, seed)
    if recipe.model == "linear" or named not in _WARM:
        _WARM[named] = alone(model, model.start(seed), public_rows(recipe, seed))
    return _WARM[named]


def _alone(recipe: Recipe, seed: int) -> Taught:
    """Return the server's model without a crowd; the features' mean is that of its own examples."""
    if recipe.model == "network":
        model = models.whole_network(edges_first=recipe.start == "edges")
    else:
        own = models.features("validate")[public_rows(recipe, seed)]
        model = models.linear(own.mean(axis=0))
    return Taught(_warmed(recipe, model, seed), model)


def alone(model: models.Model, at: Floats, rows: NDArray[np.intp]) -> Floats:
    """Train on the server's own examples: 400 steps of Adam on all of them."""
    adam = _Adam()
    for number in range(_STEPS):
        slope = model.gradients(at, "validate", rows).mean(axis=0)
        at = at - 0.01 * (1 - number / _STEPS) * adam.direction(slope)
    return at


class _Adam:
    """The direction of Adam (Kingma and Ba 2015) with its usual constants."""

    def __init__(self) -> None:
        self._mean: Floats | float = 0.0
        self._square: Floats | float = 0.0
        self._time = 0

    def direction(self, slope: Floats) -> Floats:
        """Return the direction, with steps of about 1 per coordinate."""
        self._time += 1
        self._mean = 0.9 * self._mean + 0.1 * slope
        self._square = 0.999 * self._square + 0.001 * slope**2
        mean = self._mean / (1 - 0.9**self._time)
        square = self._square / (1 - 0.999**self._time)
        return np.asarray(mean / (np.sqrt(square) + 1e-8))
