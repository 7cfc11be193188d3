"""Square wave (Li et al. 2020), coordinate by coordinate: Minkowski response in one dimension.

Each coordinate spends ε/d. The wave's half width b of the original, on [0, 1], is r = 2b on
[-1, 1]; a report is near its value with probability β, else anywhere. Reports are floats in the
frame where the domain is the unit l_p ball; densities are by volume of that frame. The original
is read as a histogram; here a single report is, so it is debiased.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coatcheck.domains import Floats, Points
from coatcheck.randomizers.contract import Decode
from coatcheck.randomizers.inverse import InverseTransform, any_ldp_variation


@dataclass(frozen=True, kw_only=True)
class SquareWave(InverseTransform):
    """A wave of one width around every coordinate, or anywhere in reach."""

    name: ClassVar[str] = "square-wave"

    @property
    def radius(self) -> float:
        """Return r = 2b: b = (εe^ε - e^ε + 1)/(2e^ε(e^ε - 1 - ε)), with ε/d for ε."""
        share = self.epsilon / self.domain.dimension
        if share < 1e-4:
            return 1 - 2 * share / 3  # the ratio of two differences that floats cannot take
        return (share + math.expm1(-share)) / (math.expm1(share) - share)

    @property
    def mixing(self) -> float:
        """Return β, the probability of an answer near the value; any radius keeps e^ε with it."""
        gain = math.expm1(self.epsilon / self.domain.dimension)
        return 1 / (1 + (1 + 1 / self.radius) / gain)

    @property
    def total_variation(self) -> float:
        """Return an upper bound: the overlap is at least the product of those of the axes."""
        axis = self.mixing * min(1.0, 1 / self.radius)
        product = 1 - (1 - axis) ** self.domain.dimension
        return min(product, any_ldp_variation(self.epsilon))

    @property
    def _draws(self) -> int:
        return self.domain.dimension

    def _report(self, places: Floats, uniforms: Floats) -> Floats:
        # One uniform decides and, stretched, places: below β it is the wave's.
        beta, radius = self.mixing, self.radius
        near = places + radius * (2 * uniforms / beta - 1)
        miss = max(1 - beta, np.finfo(np.float64).tiny)
        far = (1 + radius) * (2 * (uniforms - beta) / miss - 1)
        return np.where(uniforms < beta, near, far)

    def density(self, reports: Floats, points: Points) -> Floats:
        """Return the density of each report from each point, by volume of the unit frame."""
        beta, radius = self.mixing, self.radius
        near = np.abs(reports - self._unit(points)) <= radius
        axes = np.where(near, beta / (2 * radius), 0.0) + (1 - beta) / (2 + 2 * radius)
        density: Floats = (axes * (np.abs(reports) <= 1 + radius)).prod(axis=1)
        return density

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        return reports / self.mixing if how == "unbiased" else self._ball.project(reports)

    def _axis_errors(self, squares: Floats) -> Floats:
        beta, radius = self.mixing, self.radius
        noise = (beta * radius**2 + (1 - beta) * (1 + radius) ** 2) / (3 * beta**2)
        errors: Floats = noise + squares * (1 / beta - 1)
        return errors
