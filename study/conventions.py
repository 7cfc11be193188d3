"""The conventions that reproduce the paper, each named once, and the designs of our best.

The paper does not state them all; we found the others by fitting its printed figures. This module
makes everything that the sheets measure: a mechanism, its decoder, and the local budget that a
global promise leaves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Literal

import numpy as np

from coatcheck import Ball, Box, Group, MinkowskiResponse, calibrate, choose, plan
from coatcheck.accounting.amplification import any_ldp
from coatcheck.accounting.composition import calibrate_rounds
from coatcheck.accounting.laws import Law, OwnCoin
from coatcheck.planning.tuning import even_prior
from coatcheck.randomizers import Decode, Randomizer, tuned
from coatcheck.randomizers.baselines import (
    Laplace,
    PlanarLaplace,
    PrivHS,
    PrivUnit,
    PrivUnitG,
    SquareWave,
    Staircase,
    published_minkowski,
)
from coatcheck.tasks import Task

# -- locations (Table errortime, the SC and the LBS figures)

SQUARE: Final = Box((-1, -1), (1, 1))
BASELINES: Final = (
    "laplace",
    "planar-laplace",
    "staircase",
    "square-wave",
    "privunitg",
    "privunit-bhowmick",
)
PUBLISHED: Final = "minkowski-paper"
MECHANISMS: Final = (*BASELINES, PUBLISHED)
# The figures are pictures without tables; the text names these budgets, or budgets between them.
LOCAL_BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0)
GLOBAL_BUDGETS: Final = (0.1, 0.5, 1.0, 2.0, 3.0)
SERVING_RADIUS: Final = 0.4  # 1.0 of [0, 5], on [-1, 1]
# The share of the crowd that the paper leaves to hide among, by the radius of the neighbours.
LEFT: Final = {0.2: 0.90, 0.1: 0.98}
_PLAYERS: Final = 4_096  # largest number of places of the prior on which a plan for a task is tried


@dataclass(frozen=True)
class Design:
    """A mechanism for locations, with its decoder."""

    randomizer: Randomizer
    how: Decode


def delta(crowd: int) -> float:
    """Return the paper's δ: a hundredth over the size of the group."""
    return 0.01 / crowd


def location_mechanism(name: str, epsilon: float) -> Design:
    """Return a mechanism as the paper has it: debiased, never clipped to the square.

    Its Minkowski response searches r in (0, 1] for the least squared error at the middle, its
    PrivUnit keeps the sufficient conditions of Bhowmick et al.
    """
    return Design(_location_mechanism(name, epsilon), "unbiased")


def _location_mechanism(name: str, epsilon: float) -> Randomizer:
    mechanisms: dict[str, Callable[..., Randomizer]] = {
        "laplace": Laplace,
        "planar-laplace": PlanarLaplace,
        "staircase": Staircase,
        "square-wave": SquareWave,
        "privunitg": PrivUnitG,
        "privunit-bhowmick": partial(PrivUnit, conditions="bhowmick"),
        PUBLISHED: published_minkowski,
    }
    return mechanisms[name](domain=SQUARE, epsilon=epsilon)


@cache
def local_budget(epsilon: float, *, crowd: int, anonymous: int) -> float:
    """Return the local ε that a promise leaves to any mechanism, the same for all of them.

    The paper computes it numerically for the worst of all ε-LDP mechanisms, and so does this.
    """
    guarantee = calibrate(epsilon=epsilon, crowd=anonymous, delta=delta(crowd), method="generic")
    return guarantee.local_epsilon


@cache
def design(mechanism: str, *, model: str, epsilon: float, crowd: int, anonymous: int) -> Design:
    """Return the design of a group of `crowd` people, of whom `anonymous` count as the crowd.

    `best` is what the library recommends for the same promise: `choose` for one report alone,
    `plan` in a crowd. Neither looks at the data.
    """
    if model == "local":
        if mechanism != "best":
            return location_mechanism(mechanism, epsilon)
        chosen = choose(epsilon=epsilon, domain=SQUARE)
        return Design(chosen.randomizer, chosen.how)
    if mechanism != "best":
        local = local_budget(epsilon, crowd=crowd, anonymous=anonymous)
        return location_mechanism(mechanism, local)
    groups = {"people": Group(SQUARE, crowd=anonymous)}
    best = plan(groups, epsilon=epsilon, delta=delta(crowd))["people"].best
    return Design(best.randomizer, best.how)


def designs_for(
    task: Task, *, epsilon: float, crowds: Sequence[int], anonymous: Sequence[int]
) -> list[Design]:
    """Return the plan by a task's score: one design per group, under the same promise.

    Trial rounds on places spread evenly over the square choose it, so it does not see the data.
    Its δ is that of the largest group, which is the smallest δ.
    """
    groups = dict(zip(task.groups, (Group(SQUARE, crowd=n) for n in anonymous), strict=True))
    prior = [even_prior(SQUARE, count=min(n, _PLAYERS)) for n in crowds]
    planned = plan(
        groups, epsilon=epsilon, delta=delta(max(crowds)), goal="task", task=task, prior=prior
    )
    bests = [planned[name].best for name in groups]
    return [Design(best.randomizer, best.how) for best in bests]


# -- federated learning (Tables flincentive1 and flincentive3)

# A report is a 6-vector clipped in l1 norm to 0.00015 and divided by the sampling rate of 0.15 %.
RADIUS: Final = 0.1
L1: Final = Ball(radius=RADIUS, p=1, dimension=6)
L2: Final = Ball(radius=RADIUS, p=2, dimension=6)  # contains the l1 ball; for unit vectors
CUBE: Final = Box((-RADIUS,) * 6, (RADIUS,) * 6)  # contains it too; for split budgets
FEDERATED_DELTA: Final = 0.01 / 50_000
# The printed local rows have ε = ε_c / 4 = ε_c / sqrt(80 · 0.2) a round; no valid composition of
# local reports gives that, so these rows have a larger budget than the promise allows.
LOCAL_SHARE: Final = 4.0
# The printed PIC rows do not share one budget. Laplace, PrivUnit and PrivHS fit the losses of the
# worst ε-LDP pair, composed with a secret sample; the printed errors of these imply more.
IMPLIED: Final = {
    ("minkowski", 1): 4.75,
    ("minkowski", 3): 6.7,
    ("staircase", 1): 4.81,
    ("staircase", 3): 6.79,
    ("square-wave", 1): 4.74,
    ("square-wave", 3): 6.66,
}
# The printed local Minkowski rows fit this radius at both budgets: the paper did not search again.
STALE_RADIUS: Final = 1.17
SHARE: Final = 0.2  # of the people, in each round
_RADII: Final = (0.6, 0.8, 1.0, 1.2, 1.5, 1.8)


Reading = Decode | Literal["posterior", "examples"]
_READINGS: Final[dict[str, Reading]] = {
    "best": "posterior",
    "projected": "project",
    "blind": "examples",
    "secret": "project",
}


@dataclass(frozen=True)
class FederatedDesign:
    """A mechanism for gradients, or none, and the decoder for one person's report.

    Attributes:
        how: a decoder of the library; `posterior`, the posterior mean given the gradients of the
            server's own examples; or `examples`, the mean of these whatever the report says.
        coins: whether participation coins decide who reports in a round.
    """

    randomizer: Randomizer | None
    how: Reading = "unbiased"
    coins: bool = False

    @property
    def epsilon(self) -> float:
        """Return the local budget of a round; infinite without a mechanism."""
        return math.inf if self.randomizer is None else self.randomizer.epsilon

    @property
    def radius(self) -> float:
        """Return the radius of a cap, or 0."""
        randomizer = self.randomizer
        return (
            randomizer.radius
            if isinstance(randomizer, MinkowskiResponse) and randomizer.radius
            else 0.0
        )


def federated(budget: int, model: str, *, mechanism: str) -> FederatedDesign:
    """Return the design of a row.

    Models: `none`; `local` and `pic` as printed; `sound`, the paper's mechanism with a budget that
    a proof supports, and `read`, the same with our decoder; `best`, ours: participation coins and
    the posterior; `projected`, the same without the server's examples; `blind`, the examples
    whatever the reports say; `secret`, projected and with the paper's secret sample.
    """
    if model == "none":
        return FederatedDesign(None)
    if model in _READINGS:
        coins = model != "secret"
        return FederatedDesign(_best_federated(budget, coins=coins), _READINGS[model], coins)
    if model == "local":
        epsilon = budget / LOCAL_SHARE
    elif model == "pic" and (mechanism, budget) in IMPLIED:
        epsilon = IMPLIED[mechanism, budget]
    else:
        epsilon = round_budget(budget)
    radius = STALE_RADIUS if model == "local" else None
    how: Reading = "posterior" if model == "read" else "unbiased"
    return FederatedDesign(_gradient_mechanism(mechanism, epsilon, radius), how)


def _gradient_mechanism(name: str, epsilon: float, radius: float | None) -> Randomizer:
    searched = partial(tuned, MinkowskiResponse, domain=L1, goal="unbiased")
    fixed = partial(MinkowskiResponse, domain=L1)
    mechanisms: dict[str, Callable[..., Randomizer]] = {
        "laplace": partial(Laplace, domain=L1),
        "minkowski": partial(fixed, radius=radius) if radius else searched,
        "privunit": partial(PrivUnit, domain=L2, conditions="bhowmick"),
        "privhs": partial(PrivHS, domain=L2),
        "staircase": partial(Staircase, domain=CUBE),
        "square-wave": partial(SquareWave, domain=CUBE),
    }
    return mechanisms[name](epsilon=epsilon)


@cache
def round_budget(budget: int, make: Callable[[float], Law] = any_ldp) -> float:
    """Return the local ε a round: 80 rounds, each with a secret fifth of 50,000 people."""
    return calibrate_rounds(
        make, epsilon=budget, crowd=10_000, delta=FEDERATED_DELTA, rounds=80, sampled=SHARE
    )


@cache
def coin_budget(budget: int, make: Callable[[float], Law]) -> float:
    """Return the local ε of a round with participation coins, where silence is a message too.

    The promise to each of the 50,000 people is the same, and no longer assumes that the server's
    sample stays secret.
    """
    return calibrate_rounds(make, epsilon=budget, crowd=50_000, delta=FEDERATED_DELTA, rounds=80)


def _law(epsilon: float, *, radius: float) -> Law:
    return MinkowskiResponse(domain=L1, epsilon=epsilon, radius=radius).law


def _coin_law(epsilon: float, *, radius: float) -> Law:
    law = MinkowskiResponse(domain=L1, epsilon=epsilon, radius=radius).law
    return OwnCoin(law=law, rate=SHARE)


@cache
def _best_federated(budget: int, *, coins: bool) -> MinkowskiResponse:
    """Search radius and local ε together under the mechanism's own law, for the mean."""
    candidates = []
    for radius in _RADII:
        if coins:
            epsilon = coin_budget(budget, partial(_coin_law, radius=radius))
        else:
            epsilon = round_budget(budget, partial(_law, radius=radius))
        response = MinkowskiResponse(domain=L1, epsilon=epsilon, radius=radius)
        candidates.append((response.squared_error(np.zeros(6)), response))
    return min(candidates, key=lambda one: one[0])[1]
