"""Learning on MNIST: our rows beside central DP, no noise, and the server alone.

`python -m study learning` prints every row; `learning linear` or `learning network` those of one
model, `learning ablations` what each idea brings, `learning rewards` how rewards follow the true
Shapley values, `learning reports` the same training by real reports of every speaker. Nothing is
written. All choices (features, start, steps, clips) were made on seeds 0 and 1 and on images 50,000
to 54,999; rows are of other seeds, tried on images 55,000 to 59,999, which no choice has seen.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from statistics import fmean, stdev
from typing import Final

import numpy as np

from coatcheck import Box, GridResponse, seeded
from coatcheck.accounting.composition import calibrate_rounds
from coatcheck.accounting.laws import OwnCoin, grid
from coatcheck.tasks.descent import clipped
from coatcheck.tasks.learning import Learning
from coatcheck.tasks.shapley import Game, mean_field
from study import models
from study.teaching import ROUNDS, Recipe, alone, public_rows, teach

SEEDS: Final = (20, 21, 22, 23, 24)
NETWORK: Final = {
    (1, 0.2): Recipe(model="network", epsilon=1, rate=0.2, step=6.0),
    (3, 0.2): Recipe(model="network", epsilon=3, rate=0.2, step=9.0),
    (1, 1.0): Recipe(model="network", epsilon=1, rate=1.0, step=9.0),
    (3, 1.0): Recipe(model="network", epsilon=3, rate=1.0, step=14.0),
}
WARM: Final = {1: 4.0, 3: 6.0}  # the steps after a start from public examples
LINEAR: Final = {
    (50_000, 1): Recipe(model="linear", epsilon=1, rate=0.2, clip=0.25, step=320.0),
    (50_000, 3): Recipe(model="linear", epsilon=3, rate=0.2, clip=0.25, step=320.0),
    (5_000, 1): Recipe(model="linear", people=5_000, epsilon=1, rate=1.0, clip=0.25, step=40.0),
    (5_000, 3): Recipe(model="linear", people=5_000, epsilon=3, rate=1.0, clip=0.25, step=80.0),
}
_PUBLIC: Final = 200
_JUDGED: Final = (0, 10, 20, 40, 60)
_JUDGES: Final = 500
_REWARDED: Final = 3_000
_REACH: Final = 0.5  # of a progress that is reported, in clips
_CELLS: Final = 7

Row = tuple[str, Callable[[int], float]]


def _accuracy(recipe: Recipe, *, stop: int | None = None) -> Callable[[int], float]:
    def run(seed: int) -> float:
        taught = teach(recipe, seed=seed, stop=stop)
        return taught.model.accuracy(taught.parameters, "test")

    return run


def _alone(recipe: Recipe) -> Callable[[int], float]:
    def run(seed: int) -> float:
        # Nobody is there to give the middle of the features: the server takes its own.
        rows = public_rows(recipe, seed)
        if recipe.model == "network":
            return _accuracy(recipe, stop=0)(seed)
        middle = models.features("validate")[rows].mean(axis=0)
        found = models.linear(middle)
        return found.accuracy(alone(found, found.start(seed), rows), "test")

    return run


def linear() -> Iterator[Row]:
    """List the rows of the linear model."""
    for (people, epsilon), recipe in LINEAR.items():
        name = f"{people:,} people, ε {epsilon}"
        yield f"{name}: ours", _accuracy(recipe)
        yield f"{name}: central DP", _accuracy(replace(recipe, way="central"))
    yield "50,000 people, no noise", _accuracy(replace(LINEAR[50_000, 3], way="none"))
    recipe = replace(LINEAR[50_000, 1], public=_PUBLIC)
    yield f"server alone, {_PUBLIC} examples", _alone(recipe)


def network() -> Iterator[Row]:
    """List the rows of the paper's network."""
    for (epsilon, rate), recipe in NETWORK.items():
        yield f"ε {epsilon}, rate {rate:g}: ours, no public example", _accuracy(recipe)
    yield f"server alone, {_PUBLIC} examples", _alone(replace(NETWORK[1, 0.2], public=_PUBLIC))
    for (epsilon, rate), recipe in NETWORK.items():
        name = f"ε {epsilon}, rate {rate:g}"
        warm = replace(recipe, public=_PUBLIC, step=WARM[epsilon])
        yield f"{name}: ours, {_PUBLIC} public examples", _accuracy(warm)
    for epsilon in (1, 3):
        central = replace(NETWORK[3, 0.2], epsilon=epsilon, way="central")
        yield f"ε {epsilon}: central DP", _accuracy(central)
    yield "no noise", _accuracy(replace(NETWORK[3, 0.2], way="none"))


def ablations() -> Iterator[Row]:
    """List the network at ε 1, rate 0.2, with one idea taken away at a time."""
    ours = NETWORK[1, 0.2]
    yield "ours, ε 1, rate 0.2", _accuracy(ours)
    yield "start drawn, not edges", _accuracy(replace(ours, start="drawn"))
    yield "gradients of one length, not clipped", _accuracy(replace(ours, length="unit"))
    yield "no momentum", _accuracy(replace(ours, mover="plain"))
    yield "Adam with a step of 0.01", _accuracy(replace(ours, mover="adam", step=0.01))
    yield "everybody speaks (rate 1), same step", _accuracy(replace(ours, rate=1.0))
    yield "fewer speak (rate 0.05), same step", _accuracy(replace(ours, rate=0.05))
    yield "the law of any ε-LDP mechanism", _accuracy(replace(ours, law="any"))


def reports() -> Iterator[Row]:
    """List rows by real reports of every speaker."""
    for (people, epsilon), recipe in LINEAR.items():
        name = f"linear, {people:,} people, ε {epsilon}: by reports"
        yield name, _accuracy(replace(recipe, way="reports"))
    recipe = replace(NETWORK[1, 0.2], way="reports")
    yield "network, ε 1, rate 0.2: by reports", _accuracy(recipe)


def rewards() -> Iterator[Row]:
    """List how progress rewards follow the true Shapley values of whole gradients."""
    for number in _JUDGED:
        yield f"ε 1, rewards of round {number + 1}", lambda seed, n=number: _judged(seed)[n]  # type: ignore[misc]
    yield "ε 1, rewards of all these rounds together", lambda seed: _judged(seed)[-1]


@cache
def _reward_epsilon() -> float:
    """Return the local ε of a reward's few cells, by their own law."""
    return calibrate_rounds(
        lambda local: OwnCoin(law=grid(local, cells=_CELLS), rate=0.2),
        epsilon=1.0,
        crowd=50_000,
        delta=0.01 / 50_000,
        rounds=ROUNDS,
    )


_KEPT: dict[int, dict[int, float]] = {}


def _judged(seed: int) -> dict[int, float]:
    """Return the correlation in each judged round, and of the sums under -1.

    People report how far their gradient goes along a public direction, the server's own
    gradient: one number, so that a report says much. Its Shapley value in the game of progress,
    U(S) = <v, sum of g>, is the number itself. A reward round takes the place of a gradient round.
    """
    if seed in _KEPT:
        return _KEPT[seed]
    entropy = seeded(30_000 + seed)
    who = np.argsort(entropy.words(50_000))[:_REWARDED]
    line = Box((-_REACH,), (_REACH,))
    told = GridResponse(domain=line, epsilon=_reward_epsilon(), cells=(_CELLS,))
    found: dict[int, float] = {}
    sums = np.zeros((2, _REWARDED))
    model = models.whole_network()

    def judge(number: int, at: models.Floats) -> None:
        if number not in _JUDGED:
            return
        gradients = clipped(model.gradients(at, "train", who), dimension=model.dimension, clip=1.0)
        direction = model.gradients(at, "validate", np.arange(_JUDGES)).mean(axis=0)
        direction /= np.linalg.norm(direction)
        truth = mean_field(Game.dense(gradients, direction)).values
        along = np.clip(gradients @ direction, -_REACH, _REACH)[:, None]
        drawn = told.randomize(along, entropy, clamp=True)
        read = np.asarray(told.estimate(drawn, "learned-mean"), dtype=np.float64)
        (answers,) = Learning(dimension=1, game="progress")([read])
        given = answers.data[:, 0]  # type: ignore[union-attr] # numbers
        sums[:] += np.stack([truth, given])
        found[number] = float(np.corrcoef(truth, given)[0, 1])

    teach(NETWORK[1, 0.2], seed=seed, stop=max(_JUDGED) + 1, watch=judge)
    found[-1] = float(np.corrcoef(*sums)[0, 1])
    _KEPT[seed] = found
    return found


def show(part: str, *, seeds: int) -> None:
    """Measure the rows of a part and print each as soon as it is there."""
    print(f"{part}: mean, standard deviation, least of {seeds} seeds", flush=True)
    for name, run in globals()[part]():
        begun = time.perf_counter()
        found = [100 * run(seed) for seed in SEEDS[:seeds]]
        spread = stdev(found) if len(found) > 1 else 0.0
        taken = f"{time.perf_counter() - begun:.0f} s"
        told = f"{fmean(found):6.2f} ± {spread:4.2f}  (least {min(found):.2f})  {taken}"
        print(f"  {name:<46} {told}", file=sys.stdout, flush=True)
