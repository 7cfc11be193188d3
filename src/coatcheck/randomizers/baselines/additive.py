"""Baselines of the paper that add noise: Laplace, planar Laplace, staircase and square wave.

Reports are floats in the frame where the domain is the unit l_p ball; densities are with respect
to volume in that frame. The error of the unbiased estimate is the noise itself and does not depend
on the value. Appendix "mechanisms" of the paper; sensitivities are those of the domain, not the
4 and 2√2 of the square alone.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from scipy import special

from coatcheck.accounting import noise_laws
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Ratios
from coatcheck.domains import Floats, Points
from coatcheck.randomizers.baselines.inverse_transform import (
    InverseTransform,
    any_ldp_variation,
    direction_draws,
    directions,
)
from coatcheck.randomizers.contract import Decode

_PLANE: Final = 1 + math.asinh(1) / math.sqrt(2)  # E|(X, Y)| of two Laplace variables of scale 1


@dataclass(frozen=True, kw_only=True)
class Additive(InverseTransform):
    """A value plus noise that does not depend on it."""

    def _report(self, places: Floats, uniforms: Floats) -> Floats:
        return places + self._noise(uniforms)

    @abstractmethod
    def _noise(self, uniforms: Floats) -> Floats:
        """Return the noise for these uniforms."""

    @property
    @abstractmethod
    def _axis_variance(self) -> float:
        """Return the variance of the noise along one axis."""

    def _axis_errors(self, squares: Floats) -> Floats:
        return np.full(squares.shape, self._axis_variance)

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        return reports if how == "unbiased" else self._ball.project(reports)

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean error; unbiased, it is the same everywhere."""
        if self._check_decode(how) == "unbiased":
            return self.expected_error("unbiased", power=power)
        return super().worst_error(how, power=power)

    @property
    def _even_scale(self) -> float | None:
        """Return the scale of the axes if all have the same."""
        scale = self.domain.scale
        return float(scale[0]) if (scale == scale[0]).all() else None


@dataclass(frozen=True, kw_only=True)
class Laplace(Additive):
    """Independent Laplace noise on every coordinate, as wide as the l1 diameter requires."""

    name: ClassVar[str] = "laplace"

    @property
    def width_of_noise(self) -> float:
        """Return b: the l1 diameter of the unit ball over ε."""
        d, p = self.domain.dimension, self.domain.p
        return 2 * math.pow(d, 1 - 1 / p) / self.epsilon

    @property
    def law(self) -> Ratios | AnyLdp:
        """Return the law of noise per coordinate; on a ball of several dimensions, only the ε."""
        d = self.domain.dimension
        if d > 1 and self.domain.p < math.inf:
            return AnyLdp(epsilon=self.epsilon)
        return noise_laws.laplace(self.epsilon, dimension=d)

    @property
    def total_variation(self) -> float:
        """Return 1 - e^(-ε/2): reached along one axis, and an upper bound along any line.

        The overlap of two products is at least the product of overlaps e^(-s/2b), whose
        exponents add up to ε/2 over the l1 diameter.
        """
        return -math.expm1(-self.epsilon / 2)

    def _noise(self, uniforms: Floats) -> Floats:
        sides = 2 * uniforms - 1
        return np.copysign(self.width_of_noise * np.log1p(-np.abs(sides)), sides)

    def density(self, reports: Floats, points: Points) -> Floats:
        """Return the density of each report from each point, by volume of the unit frame."""
        b = self.width_of_noise
        axes = np.exp(-np.abs(reports - self._unit(points)) / b) / (2 * b)
        density: Floats = axes.prod(axis=1)
        return density

    @property
    def _axis_variance(self) -> float:
        return 2 * self.width_of_noise**2

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain."""
        scale, d = self._even_scale, self.domain.dimension
        if self._check_decode(how) == "unbiased" and power == 1 and scale and d <= 2:
            return scale * self.width_of_noise * (1.0, _PLANE)[d - 1]
        return super().expected_error(how, power=power)


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(Additive):
    """Noise in a uniform direction with a Gamma(d) length (Andrés et al. 2013), in any d."""

    name: ClassVar[str] = "planar-laplace"

    @property
    def rate(self) -> float:
        """Return how fast the density falls with distance: ε over the l2 diameter."""
        return self.epsilon / (2 * self._half_diameter)

    @property
    def law(self) -> Ratios | AnyLdp:
        """Return the law of the ball around the domain."""
        return noise_laws.planar_laplace(self.epsilon, dimension=self.domain.dimension)

    @cached_property
    def total_variation(self) -> float:
        """Return the distance of two opposite places: the mass between them along their line."""
        d = self.domain.dimension
        if d == 1:
            return -math.expm1(-self.epsilon / 2)
        # With c the cosine to the line and R ~ Gamma(d): P(R c < ε/2), averaged over directions.
        nodes, weights = np.polynomial.legendre.leggauss(200)
        angles = (nodes + 1) * (math.pi / 4)
        weights = weights * np.sin(angles) ** (d - 2)
        below = special.gammainc(d, self.epsilon / 2 / np.cos(angles))
        between = float((weights * below).sum() / weights.sum())
        return min(between * (1 + 1e-9), any_ldp_variation(self.epsilon))

    @property
    def _draws(self) -> int:
        d = self.domain.dimension
        return d + direction_draws(d)

    def _noise(self, uniforms: Floats) -> Floats:
        d = self.domain.dimension
        lengths = -np.log(uniforms[:, :d]).sum(axis=1) / self.rate
        noise: Floats = directions(uniforms[:, d:], d) * lengths[:, None]
        return noise

    def density(self, reports: Floats, points: Points) -> Floats:
        """Return the density of each report from each point, by volume of the unit frame."""
        d, rate = self.domain.dimension, self.rate
        lengths = np.linalg.norm(reports - self._unit(points), axis=1)
        log_whole = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2) + math.lgamma(d)
        density: Floats = np.exp(d * math.log(rate) - log_whole - rate * lengths)
        return density

    @property
    def _axis_variance(self) -> float:
        return (self.domain.dimension + 1) / self.rate**2

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain."""
        scale = self._even_scale
        if self._check_decode(how) == "unbiased" and power == 1 and scale:
            return scale * self.domain.dimension / self.rate
        return super().expected_error(how, power=power)


@dataclass(frozen=True, kw_only=True)
class Staircase(Additive):
    """Staircase noise on every coordinate (Geng et al. 2015), each with ε/d and sensitivity 2."""

    name: ClassVar[str] = "staircase"

    @property
    def _share(self) -> float:
        return self.epsilon / self.domain.dimension

    @property
    def ledge(self) -> float:
        """Return γ = 1/(1 + e^(ε/2)), the part of a step on the higher level."""
        return 1 / (1 + math.exp(self._share / 2))

    @property
    def _falling(self) -> tuple[float, float, float]:
        """Return b = e^-ε, 1 - b, and the mass of the higher level within a step."""
        b, ledge = math.exp(-self._share), self.ledge
        return b, -math.expm1(-self._share), ledge / (ledge + (1 - ledge) * b)

    @property
    def _within(self) -> float:
        """Return the chance of noise of at most 1 on an axis."""
        _, rest, upper = self._falling
        return rest * (upper + (1 - upper) * (0.5 - self.ledge) / (1 - self.ledge))

    @property
    def law(self) -> Fieldwise:
        """Return the product of the laws of the axes, each with two levels."""
        d = self.domain.dimension
        return noise_laws.staircase(self.epsilon, within=self._within, dimension=d)

    @property
    def total_variation(self) -> float:
        """Return an upper bound: the overlap is at least the product of those of the axes.

        Along an axis the density is symmetric and falls, so the distance over the sensitivity
        is the mass within half of it.
        """
        product = 1 - (1 - self._within) ** self.domain.dimension
        return min(product, any_ldp_variation(self.epsilon))

    def _noise(self, uniforms: Floats) -> Floats:
        b, rest, upper = self._falling
        sides = 2 * uniforms - 1
        left = 1 - np.abs(sides)
        steps = np.floor(-np.log(left) / self._share)
        within = np.clip((1 - left / b**steps) / rest, 0.0, 1.0)
        high = self.ledge * within / upper
        low = self.ledge + (1 - self.ledge) * (within - upper) / (1 - upper)
        noise: Floats = np.copysign(2 * (steps + np.where(within < upper, high, low)), sides)
        return noise

    def density(self, reports: Floats, points: Points) -> Floats:
        """Return the density of each report from each point, by volume of the unit frame."""
        b, rest, upper = self._falling
        steps = np.abs(reports - self._unit(points)) / 2
        whole = np.floor(steps)
        level = np.where(steps - whole < self.ledge, 1.0, b) * upper / self.ledge
        density: Floats = (rest / 4 * b**whole * level).prod(axis=1)
        return density

    @property
    def _axis_variance(self) -> float:
        """Return E(2(G + Z))² with G geometric and Z the place within a step."""
        b, rest, upper = self._falling
        ledge = self.ledge
        steps, steps_squared = b / rest, b * (1 + b) / rest**2
        place = upper * ledge / 2 + (1 - upper) * (1 + ledge) / 2
        squared = upper * ledge**2 / 3 + (1 - upper) * (1 + ledge + ledge**2) / 3
        return 4 * (steps_squared + 2 * steps * place + squared)


@dataclass(frozen=True, kw_only=True)
class SquareWave(InverseTransform):
    """A wave of one width around every coordinate, else anywhere in range (Li et al. 2020).

    Each coordinate spends ε/d. The wave's half width b of the original, on [0, 1], is r = 2b on
    [-1, 1]. The original decodes a batch into a histogram; here each report is decoded by itself,
    so its bias is removed.
    """

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
    def law(self) -> Fieldwise:
        """Return the product of the laws of the axes, each a Minkowski response."""
        d = self.domain.dimension
        return noise_laws.square_wave(self.epsilon, radius=self.radius, dimension=d)

    @property
    def total_variation(self) -> float:
        """Return an upper bound: the overlap is at least the product of those of the axes."""
        axis = self.mixing * min(1.0, 1 / self.radius)
        product = 1 - (1 - axis) ** self.domain.dimension
        return min(product, any_ldp_variation(self.epsilon))

    def _report(self, places: Floats, uniforms: Floats) -> Floats:
        # One uniform chooses the branch (the wave below β) and, stretched, the place in it.
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
