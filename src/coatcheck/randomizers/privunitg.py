"""PrivUnitG (Asi et al. 2022): PrivUnit with a Gaussian vector in the place of the sphere.

Simpler to analyze in high dimensions and nearly as good there; in two it is worse than PrivUnit
from ε = 3 on, because the length of the report is noise too. Tuned by the exact ratio.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from scipy import special

from coatcheck.domains import Floats
from coatcheck.randomizers.lifted import GRAIN, Lifted
from coatcheck.randomizers.privunit import chance_at, leaning_most

_LONGEST: Final = 16  # no draw of 2^-53 granularity at ε <= 64 has a longer coordinate


@dataclass(frozen=True, kw_only=True)
class PrivUnitG(Lifted):
    """A Gaussian vector whose component along the lifted value is large, or is not."""

    name: ClassVar[str] = "privunitg"

    @cached_property
    def threshold(self) -> float:
        """Return γ."""
        return leaning_most(self, bounded=False)

    @property
    def chance(self) -> float:
        """Return p, the probability of a component of at least γ."""
        return chance_at(self, self.threshold)

    @property
    def _deviation(self) -> float:
        return 1 / math.sqrt(self.width)

    def _share_above(self, threshold: float) -> float:
        return float(special.ndtr(-threshold / self._deviation))

    def _mean_above(self, threshold: float) -> float:
        size = threshold / self._deviation
        return self._deviation * math.exp(-size * size / 2) / math.sqrt(2 * math.pi)

    def _square_above(self, threshold: float) -> float:
        share, mean = self._share_above(threshold), self._mean_above(threshold)
        return self._deviation**2 * share + threshold * mean

    def _component(self, share: Floats) -> Floats:
        components: Floats = -self._deviation * special.ndtri(share)
        return components

    @property
    def _draws(self) -> int:
        return self.width

    def _across(self, components: Floats, uniforms: Floats) -> Floats:  # noqa: ARG002 - independent of it
        across: Floats = self._deviation * special.ndtri(uniforms)
        return across

    @property
    def _across_variance(self) -> float:
        return self._deviation**2

    @property
    def _reach(self) -> int:
        return _LONGEST * GRAIN
