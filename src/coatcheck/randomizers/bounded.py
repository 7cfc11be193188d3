"""Bounded response: the cap is pushed inside, so that reports stay where values live.

The cap's center is the value moved towards the middle until the cap fits; the output ball is the
domain itself. All caps keep one size, so the privacy argument is that of Minkowski response; the
estimate is biased towards the middle and has the smaller error. In one dimension it is the
optimal piecewise mechanism (Zheng et al. 2025).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.randomizers.caps import CapResponse
from coatcheck.randomizers.contract import Decode


@dataclass(frozen=True, kw_only=True)
class BoundedResponse(CapResponse):
    """Uniform on a cap inside the domain with probability β, else on the domain."""

    name: ClassVar[str] = "bounded"

    @classmethod
    def _log_radii(cls, domain: Box | Ball) -> tuple[float, float]:
        return max(-12.0, -math.log(domain.steps)), 0.0

    @property
    def _largest_reach(self) -> int:
        return self._half

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the ways to read a report; the median only where caps are boxes."""
        boxes = self._ball.p == math.inf or self.domain.dimension == 1
        return ("raw", "median") if boxes else ("raw",)

    @property
    def _whole(self) -> int:
        return self._half

    @property
    def _apart(self) -> int:
        return self._half - self.reach

    def _centers(self, points: Points) -> Points:
        return self._ball.shrink(points, self._apart)

    def _center_one(self, point: tuple[int, ...]) -> Sequence[int]:
        edge = self._apart
        if self._ball.p == math.inf:
            return [max(-edge, min(edge, i)) for i in point]
        moved: list[int] = self._centers(np.array([point], dtype=np.int64))[0].tolist()
        return moved

    def _unit_centers(self, places: Floats) -> Floats:
        edge = self._apart / self._half
        if edge == 0:
            return np.zeros_like(places)
        if self._ball.p == math.inf:
            return self._ball.project(places / edge) * edge
        norms = np.linalg.norm(places, ord=self._ball.p, axis=1)
        moved: Floats = places / np.maximum(norms / edge, 1.0)[:, None]
        return moved

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        if how == "raw":
            return reports
        cap, edge = self.reach / self._half, self._apart / self._half
        # Values beyond the last center share its cap, so such a cap reaches to the border.
        lo = np.where(reports - cap <= -edge, -1.0, reports - cap)
        hi = np.where(reports + cap >= edge, 1.0, reports + cap)
        return self._median(lo, hi)
