"""Rewards from noisy reports, compared with the true Shapley values of whole gradients, at ε 1.

Besides 80 rounds of gradients there are five in which the speakers report one number instead: how
far their gradient goes along a direction that the server has published. Gradients are planned for
95 rounds, and the five use what is left, so that ε 1 holds over all 85 together. The truth is the
Shapley value in the cosine game of the speakers' whole gradients. Reach, cells and the 95 were
chosen on seeds 0 and 1.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Box, GridResponse, seeded
from coatcheck.accounting.composition import compose_all
from coatcheck.accounting.numerics import bisect
from coatcheck.randomizers import CoinResponse
from coatcheck.tasks.learning import Learning, clipped
from coatcheck.tasks.shapley import Game, mean_field
from study import models
from study.recipes import Recipe, planned
from study.sheets import Cell, Row, Sheet
from study.teaching import teach

Floats = NDArray[np.float64]

SEEDS: Final = (30, 31, 32, 33, 34)
JUDGED: Final = (0, 10, 20, 40, 60)
RECIPE: Final = Recipe(model="network", epsilon=1, step=6.0, rounds=95)
_ROUNDS: Final = 80  # of gradients, of the 95 that are planned for
_JUDGED: Final = 3_000  # of the speakers, in one game
_JUDGES: Final = 500
_REACH: Final = 0.5  # largest reported progress, in clips
_CELLS: Final = 5


@cache
def reward_mechanism() -> CoinResponse:
    """Return the mechanism of a reward, with the ε that the rounds of gradients leave to five."""
    gradients, people = planned(RECIPE, 64).law, RECIPE.people

    def response(local: float) -> CoinResponse:
        line = Box((-_REACH,), (_REACH,))
        part = GridResponse(domain=line, epsilon=local, cells=(_CELLS,))
        return CoinResponse(part=part, rate=RECIPE.rate)

    def keeps_promise(local: float) -> bool:
        kinds = [(gradients, people, _ROUNDS)]
        kinds += [(response(local).law, people, len(JUDGED))]
        return compose_all(kinds, delta=0.01 / people) <= RECIPE.epsilon

    return response(bisect(keeps_promise, good=2.0, bad=8.0, close=1e-3))


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List the seeds, and the last round that is judged."""
    last, seeds = (JUDGED[0], SEEDS[:1]) if quick else (JUDGED[-1], SEEDS)
    return [{"last": last, "seed": seed} for seed in seeds]


def measure(cell: Cell) -> Row:
    """Return the correlation in each judged round, and their mean."""
    entropy = seeded(30_000 + int(cell["seed"]))
    model = models.whole_network()
    row: Row = {"local_epsilon": reward_mechanism().epsilon}

    def judge(number: int, at: Floats) -> None:
        if number not in JUDGED:
            return
        direction = model.gradients(at, "validate", np.arange(_JUDGES)).mean(axis=0)
        direction = direction.astype(np.float64) / np.linalg.norm(direction)
        speaks = entropy.coins(reward_mechanism().heads, RECIPE.people)
        who = np.flatnonzero(speaks)[:_JUDGED]
        gradients = clipped(model.gradients(at, "train", who), dimension=len(at), clip=1.0)
        along = np.clip(gradients @ direction, -_REACH, _REACH)[:, None]
        part = reward_mechanism().part
        read = part.estimate(part.randomize(along, entropy), "learned-mean")
        (answers,) = Learning(dimension=1, game="progress")([np.asarray(read, dtype=np.float64)])
        rewards = answers.data[:, 0]  # type: ignore[union-attr] # numbers
        truth = mean_field(Game.dense(gradients, direction)).values
        row[f"round_{number + 1}"] = float(np.corrcoef(truth, rewards)[0, 1])

    teach(RECIPE, seed=int(cell["seed"]), stop=int(cell["last"]) + 1, watch=judge)
    every = [float(value) for name, value in row.items() if name.startswith("round")]
    return {**row, "mean": float(np.mean(every))}


SHEET: Final = Sheet("rewards", cells, measure)
