"""PrivUnit and the related PrivUnitG and PrivHS, all on the lifted value.

PrivUnit (Bhowmick et al. 2018) reports a unit vector in the cap around the lifted value with
probability p, else outside. It is ε-LDP if and only if p/q <= e^ε (1-p)/(1-q), with q the cap's
share of the sphere; `conditions="exact"` spends all of that and takes the cap that leans most.
The authors proved two sufficient conditions, which have 7 to 30 % more error; the paper's figures
use those.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

from scipy import special

from coatcheck.domains import Floats
from coatcheck.errors import Misuse
from coatcheck.randomizers.baselines.inverse_transform import GRAIN, Lifted, OnSphere
from coatcheck.randomizers.expected_error import least

Conditions = Literal["exact", "bhowmick"]
CONDITIONS: Final = ("exact", "bhowmick")
_LONGEST: Final = 16  # no draw of 2^-53 granularity at ε <= 64 has a longer coordinate


@dataclass(frozen=True, kw_only=True)
class PrivUnit(OnSphere):
    """A unit vector in the cap around the lifted value, or outside it."""

    name: ClassVar[str] = "privunit"
    conditions: Conditions = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conditions not in CONDITIONS:
            raise Misuse(f"`conditions` must be {' | '.join(CONDITIONS)}, got {self.conditions!r}")
        if self.conditions == "bhowmick" and self.width < 3:
            raise Misuse(
                'Bhowmick\'s conditions need two dimensions or more; use `conditions="exact"`'
            )

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

        part = least(shortness, 0.0, 1.0, looks=25)
        threshold, chance = cap(part)
        share = self._share_above(threshold)
        spent = (1 - part) * self.epsilon + math.log((1 - share) / share)
        return threshold, chance, min(spent * (1 + 1e-12), self.epsilon)


@dataclass(frozen=True, kw_only=True)
class PrivUnitG(Lifted):
    """PrivUnit with a Gaussian vector in the place of the sphere (Asi et al. 2022).

    It is simpler to analyse in high dimensions and nearly as good there. In two dimensions it is
    worse than PrivUnit from ε = 3 on, because the length of the report is noise too.
    """

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


@dataclass(frozen=True, kw_only=True)
class PrivHS(OnSphere):
    """A unit vector of the lifted value's half of the sphere, or of the other (Duchi et al. 2018).

    PrivUnit with the threshold 0. More ε only sharpens the coin, so its error stops falling at
    about ε = 4. The paper's federated tables name it.
    """

    name: ClassVar[str] = "privhs"
    threshold: ClassVar[float] = 0.0  # the cap is half of the sphere

    @property
    def chance(self) -> float:
        """Return e^ε/(1 + e^ε)."""
        return 1 / (1 + math.exp(-self.epsilon))


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

    return at(least(shortness, -7.0, 2.8, looks=25))


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
