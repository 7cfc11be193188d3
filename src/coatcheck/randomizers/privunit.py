"""PrivUnit (Bhowmick et al. 2018) with the exact ratio, and with its authors' conditions.

A report is a unit vector in the cap around the lifted value with probability p, else outside.
The mechanism is ε-LDP if and only if p/q <= e^ε (1-p)/(1-q), with q the cap's share of the
sphere; `conditions="exact"` spends all of that and picks the cap that leans most. The authors
proved two sufficient conditions, which the paper's figures are of: 7 to 30 % more error.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

from coatcheck.errors import Misuse
from coatcheck.randomizers.caps import least
from coatcheck.randomizers.lifted import Lifted, OnSphere

Conditions = Literal["exact", "bhowmick"]
CONDITIONS: Final = ("exact", "bhowmick")


@dataclass(frozen=True, kw_only=True)
class PrivUnit(OnSphere):
    """A unit vector in the cap around the lifted value, or outside it."""

    name: ClassVar[str] = "privunit"
    conditions: Conditions = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conditions not in CONDITIONS:
            raise Misuse(f"conditions are {' | '.join(CONDITIONS)}, got {self.conditions!r}")
        if self.conditions == "bhowmick" and self.width < 3:
            raise Misuse("Bhowmick's conditions need two dimensions or more; use the exact ratio")

    @property
    def threshold(self) -> float:
        """Return γ, which makes the cap."""
        return self._cap[0]

    @property
    def chance(self) -> float:
        """Return p, the probability of a report from the cap."""
        return self._cap[1]

    @property
    def epsilon_spent(self) -> float:
        """Return the log of the ratio inside to outside: ε, or less under the conditions."""
        return self._cap[2]

    @cached_property
    def _cap(self) -> tuple[float, float, float]:
        return self._by_conditions() if self.conditions == "bhowmick" else self._by_ratio()

    def _by_ratio(self) -> tuple[float, float, float]:
        if self.width == 3:
            chance = 1 / (1 + math.exp(-self.epsilon / 2))
            return math.tanh(self.epsilon / 4), chance, self.epsilon
        threshold = leaning_most(self)
        return threshold, chance_at(self, threshold), self.epsilon

    def _by_conditions(self) -> tuple[float, float, float]:
        """Split ε between the coin and the cap so that the mean report is longest."""

        def cap(part: float) -> tuple[float, float]:
            threshold = _sufficient(part * self.epsilon, self.width)
            return threshold, 1 / (1 + math.exp(-(1 - part) * self.epsilon))

        def shortness(part: float) -> float:
            threshold, chance = cap(part)
            share = self._share_above(threshold)
            return -self._mean_above(threshold) * (chance / share - (1 - chance) / (1 - share))

        part = least(shortness, 0.0, 1.0)
        threshold, chance = cap(part)
        share = self._share_above(threshold)
        spent = (1 - part) * self.epsilon + math.log((1 - share) / share)
        return threshold, chance, min(spent * (1 + 1e-12), self.epsilon)

    def params(self) -> dict[str, Any]:
        """Return plain data from which `from_params` makes an equal object."""
        return {**super().params(), "conditions": self.conditions}


def chance_at(mechanism: Lifted, threshold: float) -> float:
    """Return the largest p that is ε-LDP with a threshold: 1/(1 + e^-ε (1-q)/q)."""
    share = mechanism._share_above(threshold)  # noqa: SLF001 - the family's own formula
    return 1 / (1 + math.exp(-mechanism.epsilon) * (1 - share) / share)


def leaning_most(mechanism: Lifted, *, bounded: bool = True) -> float:
    """Return the threshold whose mean report is longest.

    With p at its largest, p/q - (1-p)/(1-q) = (1 - e^-ε)/(q + e^-ε (1-q)).
    """
    low = math.exp(-mechanism.epsilon)

    def at(log: float) -> float:
        return math.tanh(math.exp(log)) if bounded else math.exp(log)

    def shortness(log: float) -> float:
        share = mechanism._share_above(at(log))  # noqa: SLF001 - the family's own formula
        return -float(mechanism._mean_above(at(log)) / (share + low * (1 - share)))  # noqa: SLF001 - as above

    return at(least(shortness, -7.0, 2.8))


def _sufficient(epsilon: float, dimension: int) -> float:
    """Return the larger γ of Bhowmick et al. (2018), Theorem 4, equations (a) and (b)."""
    wide = math.tanh(epsilon / 2) * math.sqrt(math.pi / (2 * (dimension - 1)))

    def excess(gamma: float) -> float:
        fixed = math.log(dimension) / 2 + math.log(6)
        return fixed - (dimension - 1) / 2 * math.log1p(-(gamma**2)) + math.log(gamma) - epsilon

    from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

    start, end = math.sqrt(2 / dimension), 1 - 1e-15
    if excess(start) >= 0:
        return wide
    if excess(end) <= 0:
        return end
    return max(wide, float(optimize.brentq(excess, start, end)))
