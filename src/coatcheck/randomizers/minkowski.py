"""Minkowski response, the paper's randomizer: a cap around the value, or the swollen domain.

The output ball is the domain swollen by the cap (the Minkowski sum), so every cap lies inside
whole and the estimate can be made unbiased. Section 5.2 of the paper; in one dimension it is the
piecewise mechanism and the square wave. The paper's formulas for the radius are misprinted and
not used: the radius is searched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.errors import Misuse
from coatcheck.randomizers.balls import Ball as LatticeBall
from coatcheck.randomizers.caps import CapResponse, least
from coatcheck.randomizers.contract import Choice, Decode, Goal


@dataclass(frozen=True, kw_only=True)
class MinkowskiResponse(CapResponse):
    """Uniform on the cap around the value with probability β, else on the swollen domain.

    `project` puts an estimate at least `inset` (of the domain's half width) inside the border;
    a value near the border gains by that, so the goal `worst` searches it with the radius.
    """

    name: ClassVar[str] = "minkowski"
    inset: float = 0.0

    def __post_init__(self, goal: Goal) -> None:
        if not 0 <= self.inset < 1:
            raise Misuse(f"an inset is a share of the half width below 1, got {self.inset}")
        super().__post_init__(goal)

    def _adopt(self, found: CapResponse) -> None:
        super()._adopt(found)
        if isinstance(found, MinkowskiResponse):
            object.__setattr__(self, "inset", found.inset)

    @classmethod
    def published(cls, *, domain: Box | Ball, epsilon: float) -> Self:
        """Return it as the paper's experiments have it: r in (0, 1], least MSE at 0, unbiased."""

        def error(log_radius: float) -> float:
            made = cls(domain=domain, epsilon=epsilon, radius=math.exp(log_radius))
            return made.squared_error(np.zeros(domain.dimension))

        radius = math.exp(least(error, -12.0, 0.0))
        return cls(domain=domain, epsilon=epsilon, radius=radius, decode="unbiased")

    @classmethod
    def _best_radius(cls, domain: Box | Ball, epsilon: float, goal: Goal, how: Decode) -> Choice:
        first = super()._best_radius(domain, epsilon, goal, how)
        if goal != "worst" or how != "project":
            return first

        def make(log_radius: float, inset: float) -> MinkowskiResponse:
            inset, radius = min(max(inset, 0.0), 0.5), math.exp(log_radius)
            return cls(domain=domain, epsilon=epsilon, radius=radius, decode=how, inset=inset)

        def error(at: Floats) -> float:
            return make(float(at[0]), float(at[1])).worst_error(how)

        from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

        start = math.log(first.randomizer.params()["radius"])
        simplex = np.array([(start, 0.02), (start + 0.1, 0.02), (start, 0.1)])
        found = optimize.minimize(
            error,
            simplex[0],
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 4e-3, "fatol": 1e-4, "maxiter": 40},
        )
        made = make(float(found.x[0]), float(found.x[1]))
        second = Choice(made, how, made.worst_error(how), goal)
        return min(first, second, key=lambda choice: choice.error)

    @classmethod
    def _log_radii(cls, domain: Box | Ball) -> tuple[float, float]:
        # A cap below 2^-40 of the whole is never chosen by the coin and says nothing.
        smallest = max(-12.0, -math.log(domain.steps), -40 * math.log(2) / domain.dimension)
        return smallest, min(8.0, math.log(2**31 / domain.steps))

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the ways to read a report; the median only where caps are boxes."""
        boxes = self._ball.p == math.inf or self.domain.dimension == 1
        return ("project", "median", "unbiased", "raw") if boxes else ("project", "unbiased", "raw")

    def _decodes_for(self, goal: Goal) -> tuple[Decode, ...]:
        # Projecting never hurts a raw report, and the median serves the middle, not the worst.
        if goal == "mean":
            return tuple(how for how in self.decodes if how not in {"unbiased", "raw"})
        return ("project",) if goal == "worst" else ("unbiased",)

    @property
    def _whole(self) -> int:
        return self._half + self.reach

    @property
    def _apart(self) -> int:
        return self._half

    def _centers(self, points: Points) -> Points:
        return points

    def _center_one(self, point: tuple[int, ...]) -> Sequence[int]:
        return point

    def _unit_centers(self, places: Floats) -> Floats:
        return places

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        if how == "raw":
            return reports
        if how == "unbiased":
            if self.heads == 0:
                raise Misuse(f"a cap of radius {self.radius:g} is too small to say anything")
            return reports / self.mixing
        if how == "median":
            lo = np.clip(reports - self._cap, -1, 1)
            return self._median(lo, np.clip(reports + self._cap, -1, 1))
        inner = 1 - self.inset
        return self._ball.project(reports / inner) * inner

    @property
    def _cap(self) -> float:
        return self.reach / self._half

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate at a place of the unit ball.

        Per axis, with κ the spread of the unit ball:
        [β(x² + κr²/d) + (1-β)κ(1+r)²/d]/β² - x², in the squared unit of the domain.
        """
        beta, radius, d = self.mixing, self._cap, self.domain.dimension
        if beta == 0:
            return math.inf
        axis = LatticeBall(self.domain.p, d).spread / d
        noise = (beta * axis * radius**2 + (1 - beta) * axis * (1 + radius) ** 2) / beta**2
        per_axis = noise + place**2 * (1 / beta - 1)
        return float((self.domain.scale**2 * per_axis).sum())

    def params(self) -> dict[str, Any]:
        """Return plain data from which `from_params` makes an equal object."""
        return {**super().params(), "inset": self.inset}
