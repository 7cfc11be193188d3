"""Mechanisms for comparison only, as in the paper; services reject all of them.

They draw floats (`exact` is False), except for the published Minkowski response. `coatcheck
compare`, the study and the benchmarks use them. The rest of the package loads them only when a user
names one, with one exception: for unbiased estimates `choose` considers PrivUnit, unless `exact`.
"""

import math
from typing import Final

import numpy as np

from coatcheck.domains import Ball, Box
from coatcheck.randomizers.baselines.additive import Laplace, PlanarLaplace, SquareWave, Staircase
from coatcheck.randomizers.baselines.inverse_transform import InverseTransform
from coatcheck.randomizers.baselines.privunit import PrivHS, PrivUnit, PrivUnitG
from coatcheck.randomizers.expected_error import least
from coatcheck.randomizers.minkowski import MinkowskiResponse

__all__ = [
    "BASELINES",
    "Laplace",
    "PlanarLaplace",
    "PrivHS",
    "PrivUnit",
    "PrivUnitG",
    "SquareWave",
    "Staircase",
    "published_minkowski",
]

BASELINES: Final[tuple[type[InverseTransform], ...]] = (
    PrivUnit,
    PrivUnitG,
    PrivHS,
    Laplace,
    PlanarLaplace,
    Staircase,
    SquareWave,
)


def published_minkowski(*, domain: Box | Ball, epsilon: float) -> MinkowskiResponse:
    """Return Minkowski response as in the paper's experiments.

    It is unbiased, with the radius in (0, 1] of the least squared error at 0. The paper's formulas
    for the radius are misprinted and not used.
    """

    def error(log_radius: float) -> float:
        mechanism = MinkowskiResponse(domain=domain, epsilon=epsilon, radius=math.exp(log_radius))
        return mechanism.squared_error(np.zeros(domain.dimension))

    radius = math.exp(least(error, -12.0, 0.0, looks=25))
    return MinkowskiResponse(domain=domain, epsilon=epsilon, radius=radius, decode="unbiased")
