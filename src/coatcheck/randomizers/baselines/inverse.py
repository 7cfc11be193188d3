"""What the baselines share: one map from a place and some uniforms to a float report.

The map is the inverse of the mechanism's distribution, so nothing is drawn twice and the work
does not depend on the value. The same map serves people (on random uniforms) and the predicted
error (on evenly spread ones). Floats leak through their last bits (Mironov 2012), hence `exact`
is False and the services refuse these mechanisms: they are here to be compared with.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from coatcheck.accounting.laws import AnyLdp
from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.balls import LatticeBall
from coatcheck.randomizers.contract import Decode, Randomizer, check_epsilon


@dataclass(frozen=True, kw_only=True)
class InverseTransform(Randomizer):
    """A baseline on the unit l_p ball, drawn in floats by inverting its distribution."""

    domain: Box | Ball
    epsilon: float
    decode: Decode = "unbiased"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"{self.name} works on a Box or a Ball, not on {self.domain}")
        self._check_decode(self.decode)

    @property
    def exact(self) -> bool:
        """Return False: floats lie between value and report."""
        return False

    @property
    def law(self) -> AnyLdp:
        """Return that it is ε-LDP in real numbers, and nothing more."""
        return AnyLdp(epsilon=self.epsilon_spent)

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the ways to read a report: right on average, or the nearest possible place."""
        return ("unbiased", "project")

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.float64

    @property
    def _ball(self) -> LatticeBall:
        return LatticeBall(self.domain.p, self.domain.dimension)

    @property
    def _half_diameter(self) -> float:
        """Return the largest l2 norm in the unit ball: 1, or √d for a cube."""
        return math.pow(self.domain.dimension, max(0.0, 0.5 - 1 / self.domain.p))

    def _unit(self, points: Points) -> Floats:
        return points / (self.domain.steps // 2)

    def _respond(self, points: Points, entropy: Entropy) -> Any:
        uniforms = entropy.uniforms(len(points) * self._draws).reshape(-1, self._draws)
        return self._report(self._unit(points), uniforms)

    @abstractmethod
    def _report(self, places: Floats, uniforms: Floats) -> Floats:
        """Return one report per place of the unit ball: the inverse of the distribution."""

    def _frame(self, reports: Floats) -> Floats:
        return reports

    def _outcomes(self, places: Floats, draws: Floats) -> list[tuple[float, Floats]]:
        return [(1.0, self._frame(self._report(places, draws)))]

    # -- the error, in closed form where the estimate is unbiased

    @abstractmethod
    def _axis_errors(self, squares: Floats) -> Floats:
        """Return the unbiased estimate's mean squared error along each axis, unit frame.

        It depends on the place only through its squared coordinates, and linearly.
        """

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate at a place of the unit ball."""
        return float((self.domain.scale**2 * self._axis_errors(place**2)).sum())


def any_ldp_variation(epsilon: float) -> float:
    """Return the total variation that no ε-LDP mechanism exceeds (Kairouz et al. 2015)."""
    return math.tanh(epsilon / 2)


def direction_draws(dimension: int) -> int:
    """Return how many uniforms `directions` needs."""
    return 1 if dimension <= 2 else dimension


def directions(uniforms: Floats, dimension: int) -> Floats:
    """Map uniforms onto the unit l2 sphere, measure for measure."""
    if dimension == 1:
        return np.copysign(1.0, uniforms - 0.5)
    if dimension == 2:
        angles = 2 * math.pi * uniforms[:, 0]
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    normals: Floats = special.ndtri(uniforms)
    around: Floats = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return around
