"""PrivHS (Duchi et al. 2018): a uniform unit vector from the value's half of the sphere, or not.

PrivUnit with the threshold 0. More ε only sharpens the coin, so its error stops falling at
about ε = 4. Named by the paper's federated tables.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from coatcheck.randomizers.lifted import OnSphere


@dataclass(frozen=True, kw_only=True)
class PrivHS(OnSphere):
    """A unit vector of the lifted value's hemisphere, or of the other one."""

    name: ClassVar[str] = "privhs"

    @property
    def threshold(self) -> float:
        """Return 0: the cap is half of the sphere."""
        return 0.0

    @property
    def chance(self) -> float:
        """Return e^ε/(1 + e^ε)."""
        return 1 / (1 + math.exp(-self.epsilon))
