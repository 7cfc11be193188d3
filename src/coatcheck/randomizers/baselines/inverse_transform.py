"""Base of the baselines: a map from a place and some uniforms to a float report.

`InverseTransform` is the base of all, `Lifted` of those that lean towards a unit vector. The map is
the inverse of the mechanism's distribution, so nothing is drawn twice and the work does not depend
on the value. It draws reports (from random uniforms) and predicts errors (from evenly spread
uniforms). Floats leak through their last bits (Mironov 2012), so `exact` is False and services
reject these mechanisms: they are for comparison only.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from scipy import special

from coatcheck.accounting.laws import AnyLdp, Fieldwise, Ratios, TwoLevel
from coatcheck.domains import Ball, Box, Floats, Points
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Decode, Randomizer, check_epsilon
from coatcheck.randomizers.lattice_balls import LatticeBall

GRAIN: Final = 1 << 20  # lattice steps of a report of `Lifted` in one unit of length


@dataclass(frozen=True, kw_only=True)
class InverseTransform(Randomizer):
    """A baseline on the unit l_p ball, drawn in floats by inverting its distribution."""

    exact: ClassVar[bool] = False
    decodes: ClassVar[tuple[Decode, ...]] = ("unbiased", "project")
    domain: Box | Ball
    epsilon: float
    decode: Decode = "unbiased"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"{self.name} works on a Box or a Ball, not on {self.domain}")
        self._check_decode(self.decode)

    @property
    @abstractmethod
    def law(self) -> TwoLevel | Fieldwise | Ratios | AnyLdp:
        """Return the privacy law of one report, computed in real numbers."""

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.float64

    @property
    def _draws(self) -> int:
        return self.domain.dimension

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


@dataclass(frozen=True, kw_only=True)
class Lifted(InverseTransform):
    """What PrivUnit, PrivUnitG and PrivHS share: a unit vector, and noise that leans towards it.

    A value x of the unit ball is lifted to the sphere of one dimension more,
    z = (x/ρ, √(1 - |x|²/ρ²)) with ρ the largest |x|_2. A report V has the component T along z
    above a threshold γ with probability p, else below; across z it leans nowhere. E[V] = m z, so
    V/m is unbiased. Reports are rounded to a lattice by a map that knows no value, so that they
    have one size on the wire; they are floats before, hence not `exact`.
    """

    # -- the law of the component along z

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Return γ."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """Return p, the probability of a component of at least γ."""

    @abstractmethod
    def _share_above(self, threshold: float) -> float:
        """Return q, the probability that uniform noise has a component of at least γ >= 0."""

    @abstractmethod
    def _mean_above(self, threshold: float) -> float:
        """Return the mean component of such noise, counted only above γ."""

    @abstractmethod
    def _square_above(self, threshold: float) -> float:
        """Return the mean squared component of such noise, counted only above γ."""

    @abstractmethod
    def _component(self, share: Floats) -> Floats:
        """Return the component that such noise exceeds with this probability."""

    @abstractmethod
    def _across(self, components: Floats, uniforms: Floats) -> Floats:
        """Return the rest of the report in the D - 1 directions across z."""

    @property
    def _reach(self) -> int:
        """Return a bound on every coordinate of a report, in lattice steps."""
        return GRAIN

    # -- the promise

    @property
    def _levels(self) -> tuple[float, float]:
        """Return the density above and below γ, relative to noise that leans nowhere."""
        above = self.chance / self._share_above(self.threshold)
        return above, above * math.exp(-self.epsilon_spent)

    @property
    def law(self) -> TwoLevel:
        """Return the two-level law; the caps of opposite vectors cannot meet as γ >= 0."""
        share = self._share_above(self.threshold)
        cap = share * (1 - self.chance) / (1 - share) * (1 + 1e-12)
        return TwoLevel(epsilon=self.epsilon_spent, cap=cap, apart=cap)

    @property
    def total_variation(self) -> float:
        """Return the distance of two opposite vectors, whose caps cannot meet as γ >= 0."""
        return self.chance - self._share_above(self.threshold) * self._levels[1]

    @cached_property
    def strength(self) -> float:
        """Return m, the length of the mean report."""
        above, below = self._levels
        return self._mean_above(self.threshold) * (above - below)

    @cached_property
    def _square(self) -> float:
        """Return E T²."""
        above, below = self._levels
        part = self._square_above(self.threshold)
        return above * part + below * (2 * self._square_above(0.0) - part)

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the density of each report from each point.

        Relative to noise that leans nowhere: the uniform probability on the sphere for PrivUnit
        and PrivHS, the Gaussian for PrivUnitG.
        """
        along = (self._frame(reports) * self._lift(self._unit(points))).sum(axis=1)
        above, below = self._levels
        density: Floats = np.where(along >= self.threshold, above, below)
        return density

    # -- drawing

    @property
    def width(self) -> int:
        """Return D = d + 1."""
        return self.domain.dimension + 1

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.int64

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""
        return np.full(self.width, self._reach, dtype=np.int64)

    @property
    def _draws(self) -> int:
        return 1 + direction_draws(self.width - 1)

    def _lift(self, places: Floats) -> Floats:
        flat = places / self._half_diameter
        rest = np.maximum(1 - (flat * flat).sum(axis=1, keepdims=True), 0.0)
        return np.concatenate([flat, np.sqrt(rest)], axis=1)

    def _report(self, places: Floats, uniforms: Floats) -> Any:
        vectors = self._lean(self._lift(places), uniforms)
        return np.clip(np.rint(vectors * GRAIN), -self._reach, self._reach).astype(np.int64)

    def _lean(self, lifted: Floats, uniforms: Floats) -> Floats:
        # One uniform chooses the branch (above γ if below p) and, stretched, the component.
        share, p, coin = self._share_above(self.threshold), self.chance, uniforms[:, 0]
        miss = max(1 - p, np.finfo(np.float64).tiny)
        exceeded = np.where(coin < p, share * coin / p, share + (1 - share) * (coin - p) / miss)
        along = self._component(exceeded)
        upright = np.column_stack([self._across(along, uniforms[:, 1:]), -along])
        # The reflection that takes the last axis to -z; z's last coordinate is >= 0, so the
        # mirror's normal is never short.
        normal = lifted.copy()
        normal[:, -1] += 1
        share_along = (upright * normal).sum(axis=1) / normal[:, -1]
        mirrored: Floats = upright - share_along[:, None] * normal
        return mirrored

    # -- decoding and predicting

    def _frame(self, reports: Any) -> Floats:
        framed: Floats = reports / GRAIN
        return framed

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        """Decode as V/m; `project` takes the place of the domain nearest to that."""
        places = reports[:, :-1] * (self._half_diameter / self.strength)
        return places if how == "unbiased" else self._ball.project(places)

    @property
    def _across_variance(self) -> float:
        """Return the variance of a report in each direction across z."""
        return (1 - self._square) / (self.width - 1)

    def _axis_errors(self, squares: Floats) -> Floats:
        lifted = squares / self._half_diameter**2
        second = self._square * lifted + self._across_variance * (1 - lifted)
        errors: Floats = self._half_diameter**2 * (second / self.strength**2 - lifted)
        return np.maximum(errors, 0.0)


@dataclass(frozen=True, kw_only=True)
class OnSphere(Lifted):
    """A mechanism whose reports are unit vectors."""

    def _share_above(self, threshold: float) -> float:
        rest = 1 - threshold**2
        return float(special.betainc((self.width - 1) / 2, 0.5, rest)) / 2

    def _mean_above(self, threshold: float) -> float:
        D = self.width
        whole = (D - 1) * float(special.beta((D - 1) / 2, 0.5))
        return math.pow(1 - threshold**2, (D - 1) / 2) / whole

    def _square_above(self, threshold: float) -> float:
        D = self.width
        return float(special.betainc((D - 1) / 2, 1.5, 1 - threshold**2)) / (2 * D)

    def _component(self, share: Floats) -> Floats:
        if self.width == 3:
            return 1 - 2 * share  # Archimedes: uniform along any diameter
        half = (self.width - 1) / 2
        components: Floats = 1 - 2 * special.betaincinv(half, half, share)
        return components

    def _across(self, components: Floats, uniforms: Floats) -> Floats:
        lengths = np.sqrt(np.maximum(1 - components * components, 0.0))
        across: Floats = directions(uniforms, self.width - 1) * lengths[:, None]
        return across
