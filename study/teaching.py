"""Teaching a model by private means: the loop that all rows of `study.learning` share.

The people of a round are those whose coin says so. The mean is made in one of these ways:
`reports`: each speaker's clipped gradient goes through the product's own mechanism and is read by
it, the same code as in a round. `law`: the mean over some of the speakers, plus noise with the
variance that the mechanism states for a report. The two have the same mean and covariance, and
with thousands of reports both are Gaussian (tests/test_study_learning.py); `law` is a hundred times
quicker. `central`: the Gaussian mechanism of a trusted server. `none`: no noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from coatcheck import Ball, Group, plan, seeded
from coatcheck.accounting.composition import calibrate_rounds
from coatcheck.accounting.laws import AnyLdp, OwnCoin
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers import CoinResponse, Randomizer, SphereResponse
from coatcheck.randomizers.coin import speaker
from coatcheck.tasks.descent import Descent, clipped
from study import models

Floats = NDArray[np.float64]
Way = Literal["reports", "law", "central", "none"]

ROUNDS: Final = 80
_SIGNAL: Final = {"network": 500, "linear": 1_000}  # speakers whose mean is the signal of `law`
_CHUNK: Final = 1_000
_STEPS: Final = 400  # of the server alone
_WARM: dict[tuple[str, str, int, int], Floats] = {}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row: the model, the crowd, the promise and how the model moves.

    Attributes:
        public: examples that the server may use: to start from.
        start: edges, whose first layer is set by hand; or drawn.
        length: clipped, or all of one length.
        mover: momentum, plain (none), or adam.
        law: whether the mechanism's own law is accounted for, or that of any ε-LDP mechanism.
    """

    model: Literal["network", "linear"]
    people: int = 50_000
    epsilon: float = 1.0
    rate: float = 0.2
    step: float = 6.0
    clip: float = 1.0
    way: Way = "law"
    public: int = 0
    start: Literal["edges", "drawn"] = "edges"
    length: Literal["clipped", "unit"] = "clipped"
    mover: Literal["momentum", "plain", "adam"] = "momentum"
    law: Literal["own", "any"] = "own"
    rounds: int = ROUNDS


@cache
def mechanism(
    dimension: int, *, people: int, epsilon: float, rate: float, rounds: int = ROUNDS
) -> Randomizer:
    """Return the planned mechanism for gradients of length 1: a coin before sphere response.

    Its local ε does not depend on the dimension, so that it is planned once, for a small one.
    """
    small = Ball(radius=1.0, p=2, dimension=64)
    made = plan(
        {"people": Group(small, crowd=people)},
        epsilon=epsilon,
        delta=0.01 / people,
        goal="unbiased",
        rounds=rounds,
        rate=rate,
    )["people"].randomizer
    part = speaker(made)
    if not isinstance(part, SphereResponse):
        raise Misuse(f"whole gradients are planned with sphere response, not {part.name}")
    whole = replace(part, domain=Ball(radius=1.0, p=2, dimension=dimension))
    return CoinResponse(part=whole, rate=rate) if isinstance(made, CoinResponse) else whole


@cache
def any_epsilon(people: int, epsilon: float, rate: float, rounds: int) -> float:
    """Return the local ε that is left if the accountant knows nothing but ε of the mechanism."""
    return calibrate_rounds(
        lambda local: OwnCoin(law=AnyLdp(epsilon=local), rate=rate),
        epsilon=epsilon,
        crowd=people,
        delta=0.01 / people,
        rounds=rounds,
    )


@cache
def gaussian(*, people: int, epsilon: float, rate: float, rounds: int = ROUNDS) -> float:
    """Return the noise of a trusted server's sum for a clip of 1, by Google's dp-accounting.

    Its neighbours differ by one person more or less, which asks for half the noise that ours do.
    """
    from dp_accounting import dp_event, mechanism_calibration  # noqa: PLC0415 - an extra
    from dp_accounting.pld import pld_privacy_accountant  # noqa: PLC0415 - an extra

    def event(noise: float) -> dp_event.DpEvent:
        one: dp_event.DpEvent = dp_event.GaussianDpEvent(noise)
        if rate < 1:
            one = dp_event.PoissonSampledDpEvent(rate, one)
        return dp_event.SelfComposedDpEvent(one, rounds)

    found: float = mechanism_calibration.calibrate_dp_mechanism(
        pld_privacy_accountant.PLDAccountant,
        event,
        epsilon,
        0.01 / people,
        bracket_interval=mechanism_calibration.ExplicitBracketInterval(0.2, 60.0),
        tol=0.01,
    )
    return found


@dataclass(frozen=True, eq=False)
class Taught:
    """A model with its parameters after the last round."""

    parameters: Floats
    model: models.Model


def teach(
    recipe: Recipe,
    *,
    seed: int,
    stop: int | None = None,
    watch: Callable[[int, Floats], None] | None = None,
) -> Taught:
    """Teach a model for all rounds, or until one of them; each may be watched before it begins."""
    entropy = seeded(10_000 + seed)
    model = _model(recipe, entropy)
    at = model.start(seed)
    if recipe.public:
        at = _warmed(recipe, model, seed)
    momentum = 0.0 if recipe.mover == "plain" else 0.9
    moved = Descent(step=recipe.step, rounds=recipe.rounds, momentum=momentum).start(at)
    adam = _Adam()
    # The first round of the linear model was for the private middle of the features.
    for number in range(recipe.model == "linear", recipe.rounds if stop is None else stop):
        if watch:
            watch(number, moved.parameters)
        mean = _mean(recipe, model, moved.parameters, entropy)
        if recipe.mover == "adam":
            mean = adam.direction(mean)
        moved = moved.after(mean)
    return Taught(moved.parameters, model)


def _model(recipe: Recipe, entropy: Entropy) -> models.Model:
    """Return the model; the linear one spends a round on the private mean of the features."""
    if recipe.model == "network":
        return models.whole_network(edges_first=recipe.start == "edges")
    rows = _speakers(recipe, entropy)
    seen = models.features("train")[rows]
    return models.linear(_private(recipe, seen.mean(axis=0), seen, entropy))


def _speakers(recipe: Recipe, entropy: Entropy) -> NDArray[np.intp]:
    return np.flatnonzero(entropy.uniforms(recipe.people) < recipe.rate)


def _mean(recipe: Recipe, model: models.Model, at: Floats, entropy: Entropy) -> Floats:
    """Return the mean of the speakers' gradients as a round would give it, over the clip."""
    rows = _speakers(recipe, entropy)
    if recipe.way == "reports":
        return _reported(recipe, model, at, rows, entropy)
    few = rows[entropy.below(len(rows), _SIGNAL[recipe.model])]
    values = _shortened(recipe, model.gradients(at, "train", few))
    return recipe.clip * _private(recipe, values.mean(axis=0), values, entropy, count=len(rows))


def _shortened(recipe: Recipe, gradients: Floats) -> Floats:
    """Return gradients as people report them: shortened to the clip, over the clip."""
    d = gradients.shape[1]
    if recipe.length == "unit":
        length = np.linalg.norm(gradients, axis=1, keepdims=True)
        return clipped(gradients / np.maximum(length, 1e-12), dimension=d, clip=1.0)
    return clipped(gradients, dimension=d, clip=recipe.clip) / recipe.clip


def _reported(
    recipe: Recipe, model: models.Model, at: Floats, rows: NDArray[np.intp], entropy: Entropy
) -> Floats:
    """Return the mean by real reports of all speakers."""
    part = speaker(_planned(recipe, model.dimension))
    total = np.zeros(model.dimension)
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        values = _shortened(recipe, model.gradients(at, "train", some))
        reports = part.randomize(values * (1 - 1e-9), entropy)
        total += part.estimate(reports, "unbiased").sum(axis=0)
    return recipe.clip * total / len(rows)


def _private(
    recipe: Recipe, mean: Floats, values: Floats, entropy: Entropy, *, count: int | None = None
) -> Floats:
    """Return a mean of vectors of length at most 1 with the noise of a way; by reports if asked."""
    d, n = len(mean), count or len(values)
    if recipe.way == "none":
        return mean
    if recipe.way == "central":
        settings = {"people": recipe.people, "epsilon": recipe.epsilon, "rate": recipe.rate}
        deviation = gaussian(**settings, rounds=recipe.rounds) / n
    else:
        part = speaker(_planned(recipe, d))
        if recipe.way == "reports":
            reports = part.randomize(values * (1 - 1e-9), entropy)
            return np.asarray(part.estimate(reports, "unbiased").mean(axis=0))
        deviation = math.sqrt(part.squared_error(np.zeros(d)) / d / n)
    return mean + deviation * normal(entropy, d)


def _planned(recipe: Recipe, dimension: int) -> Randomizer:
    if recipe.law == "any":
        epsilon = any_epsilon(recipe.people, recipe.epsilon, recipe.rate, recipe.rounds)
        return SphereResponse(domain=Ball(radius=1.0, p=2, dimension=dimension), epsilon=epsilon)
    return mechanism(
        dimension,
        people=recipe.people,
        epsilon=recipe.epsilon,
        rate=recipe.rate,
        rounds=recipe.rounds,
    )


def normal(entropy: Entropy, size: int) -> Floats:
    """Draw normal numbers."""
    from scipy.special import ndtri  # noqa: PLC0415 - as everywhere

    return np.asarray(ndtri((entropy.uniforms(size) * (1 - 2e-16)) + 1e-16))


# -- the server alone


def public_rows(recipe: Recipe, seed: int) -> NDArray[np.intp]:
    """Draw the server's own examples from the part that nobody of the crowd has."""
    count = len(models.part("validate")[1])
    return np.argsort(seeded(20_000 + seed).words(count))[: recipe.public]


def _warmed(recipe: Recipe, model: models.Model, seed: int) -> Floats:
    """Return where the server's own examples lead; the network's is the same in many rows."""
    named = (recipe.model, recipe.start, recipe.public, seed)
    if recipe.model == "linear" or named not in _WARM:
        _WARM[named] = alone(model, model.start(seed), public_rows(recipe, seed))
    return _WARM[named]


def alone(model: models.Model, at: Floats, rows: NDArray[np.intp]) -> Floats:
    """Return what the server learns from its own examples: 400 steps of Adam on all of them."""
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
        """Return where to go against, with steps of about 1 per coordinate."""
        self._time += 1
        self._mean = 0.9 * self._mean + 0.1 * slope
        self._square = 0.999 * self._square + 0.001 * slope**2
        mean = self._mean / (1 - 0.9**self._time)
        square = self._square / (1 - 0.999**self._time)
        return np.asarray(mean / (np.sqrt(square) + 1e-8))
