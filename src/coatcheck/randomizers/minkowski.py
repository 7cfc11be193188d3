"""Minkowski and Bounded response: a report from a cap around the value, or from everywhere.

A report is uniform on the cap of its value with probability β, else uniform on the whole output
ball. All caps are translates of one lattice ball, so they hold equally many points, and the
probability of a report has just two values. The integers of the coin keep their ratio at e^ε.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Floats, Points, lattice_norm_within
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import (
    TOSSES,
    Decode,
    MixedResponse,
    check_epsilon,
    float_above,
    is_number,
)
from coatcheck.randomizers.density import Near
from coatcheck.randomizers.expected_error import box_median, evenly_twice
from coatcheck.randomizers.grid import Stairs
from coatcheck.randomizers.lattice_balls import LatticeBall

_MAX_REACH: Final = 2**30  # 2 reach + 1 stays a bound that bulk draws take


@dataclass(frozen=True, kw_only=True)
class CapResponse(MixedResponse):
    """A mechanism with caps of one size.

    `radius` is that of the cap, in a domain of radius 1; it is rounded to the lattice. `tuned`
    searches the radius with the least predicted error.
    """

    domain: Box | Ball
    epsilon: float
    radius: float
    decode: Decode = None  # type: ignore[assignment] # None is the default

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"{self.name} works on a Box or a Ball, not on {self.domain}")
        if not (is_number(self.radius) and 0 < self.radius < math.inf):
            raise Misuse(f"`radius` must be a number above 0, got {self.radius!r}")
        object.__setattr__(self, "radius", self.reach / self._half)
        object.__setattr__(self, "decode", self._check_decode(self.decode or self.decodes[0]))

    # -- the lattice

    @property
    def _half(self) -> int:
        return self.domain.steps // 2

    @cached_property
    def _ball(self) -> LatticeBall:
        return LatticeBall(self.domain.p, self.domain.dimension)

    @cached_property
    def reach(self) -> int:
        """Return the cap's radius in lattice steps."""
        return max(1, min(round(self.radius * self._half), self._largest_reach))

    @property
    def _largest_reach(self) -> int:
        return _MAX_REACH - self._half

    @property
    @abstractmethod
    def _whole(self) -> int:
        """Return the radius of the output ball in lattice steps."""

    @property
    @abstractmethod
    def _apart(self) -> int:
        """Return how far from 0 the center of a cap can be, in lattice steps."""

    def _centers(self, points: Points) -> Points:
        """Return the centers of the points' caps: the points, unless a mechanism moves caps."""
        return points

    @cached_property
    def _counts(self) -> tuple[int, int]:
        return self._ball.counts(self.reach, self._whole)

    # -- the promise

    @property
    def exact(self) -> bool:
        """Return whether draws are in integers: p = 1, inf, or 2 up to eight dimensions."""
        return self._ball.exact

    @cached_property
    def law(self) -> TwoLevel:
        """Return the two-level law, with the cap rounded up and the kernel down.

        δ grows with `apart` and with cap - kernel (docs/explanation), so this rounding keeps the
        promise. Two caps share at least the kernel, and in l2 a lens.
        """
        share = self._ball.share_above(self.reach, self._whole)
        blanket = Fraction(TOSSES - self.heads, TOSSES) * share
        deep = self.reach - self._apart
        core = Fraction(*self._ball.counts(deep, self.reach)) if deep >= 0 else Fraction(0)
        shared = max(core, Fraction(self._ball.lens(self.reach, self._apart)))
        return TwoLevel(
            epsilon=self.epsilon_spent,
            cap=float_above(blanket),
            apart=float_above(blanket * (1 - shared)),
            kernel=math.nextafter(float(blanket * core), 0.0),
            reached=self._boxes,
            # whether three caps can be disjoint; stated for boxes only, where it is easy to see
            axes=self.domain.dimension if self._boxes and deep >= 0 else 0,
            third=self._boxes and self._apart > self.reach * (1 + (self.domain.dimension == 1)),
        )

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        offsets = reports - self._centers(points)
        inside = self._ball.norms(offsets) <= self.reach
        possible = self._ball.norms(reports) <= self._whole
        ball, whole = self._ball, self._whole
        size = ball.count if ball.countable(whole) else ball.volume
        near = np.where(inside, self.mixing / size(self.reach), 0.0)
        return possible * (near + (1 - self.mixing) / size(whole))

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        ball = self._ball
        if not (self.exact and ball.countable(self._whole)):
            raise Misuse("the lattice is too large to count its points; use density()")
        if not lattice_norm_within(report, self.domain.p, self._whole):
            return Fraction(0)
        center = self._center_one(tuple(point))
        offset = [y - c for y, c in zip(report, center, strict=True)]
        near = lattice_norm_within(offset, self.domain.p, self.reach)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / ball.count(self._whole)
        return far + heads / ball.count(self.reach) if near else far

    @property
    def high(self) -> Points:
        """Return the largest value of each coordinate of a report."""
        return np.full(self.domain.dimension, self._whole, dtype=np.int64)

    # -- drawing

    def _respond(self, points: Points, entropy: Entropy) -> Points:
        # All three are drawn every time, so that the work does not reveal how the coin fell.
        near = entropy.coins(self.heads, len(points))
        reports = self._ball.sample(self.reach, len(points), entropy)
        reports += self._centers(points)
        far = self._ball.sample(self._whole, len(points), entropy)
        np.copyto(reports, far, where=~near[:, None])
        return reports

    def respond_one(self, point: tuple[int, ...], entropy: Entropy) -> tuple[int, ...]:
        """Return the report of one lattice point, without arrays."""
        if not lattice_norm_within(point, self.domain.p, self._half):
            raise Misuse(f"{point} is not a point of the lattice; snap() the value first")
        # Both are drawn every time, so that the time does not reveal how the coin fell.
        center, offset = self._center_one(point), self._ball.sample_one(self.reach, entropy)
        near = tuple([c + u for c, u in zip(center, offset, strict=True)])
        far = self._ball.sample_one(self._whole, entropy)
        return near if entropy.coin(self.heads) else far

    @property
    def takes_decoys(self) -> bool:
        """Return whether the mechanism is exact: then an answer from everywhere is uniform."""
        return self.exact

    def decoy(self, entropy: Entropy) -> tuple[int, ...]:
        """Return a uniform point of the output ball."""
        if not self.exact:
            return super().decoy(entropy)
        return self._ball.sample_one(self._whole, entropy)

    def _center_one(self, point: tuple[int, ...]) -> Sequence[int]:
        """Return the center of one point's cap."""
        return point

    # -- decoding and predicting, in the frame where the domain is the unit ball

    def _frame(self, reports: Points) -> Floats:
        return reports / self._half

    def _nodes(self, size: int) -> tuple[Floats, Floats]:
        return evenly_twice(size, dimension=self.domain.dimension, p=self.domain.p)

    def _draws_at(self, size: int) -> Floats:
        _, half = self._nodes(size // 2)
        return np.concatenate([half, -half])  # the ball is symmetric, so its draws are too

    def _outcomes(self, places: Floats, draws: Floats) -> list[tuple[float, Floats]]:
        far = draws * (self._whole / self._half)
        near = self._unit_centers(places) + draws * self.radius
        return [(self.mixing, near), (1 - self.mixing, far)]

    def _unit_centers(self, places: Floats) -> Floats:
        """Return the centers of the caps of places of the unit ball."""
        return places

    @property
    def _boxes(self) -> bool:
        """Return whether caps are boxes, for which the median of a report has a formula."""
        return self._ball.p == math.inf or self.domain.dimension == 1

    @property
    def near(self) -> Near | None:
        """Return the branch of the cap, if caps are boxes."""
        return Near(self.mixing, self._centers, self.reach) if self._boxes else None


@dataclass(frozen=True, kw_only=True)
class MinkowskiResponse(CapResponse):
    """The paper's randomizer: uniform on the cap around the value, else on the swollen domain.

    The output ball is the domain swollen by the cap (the Minkowski sum), so every cap lies inside
    it whole and the estimate can be made unbiased (paper, section 5.2). In one dimension it is
    the piecewise mechanism and the square wave.

    `project` moves an estimate at least `inset` (of the domain's half width) inside the border.
    This helps values near the border, so the goal `worst` searches inset and radius together.
    """

    name: ClassVar[str] = "minkowski"
    inset: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.inset < 1:
            raise Misuse(f"`inset` must be from 0 to below 1, got {self.inset}")
        super().__post_init__()

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the decoders of a report; the median only where caps are boxes."""
        median: tuple[Decode, ...] = ("median",) if self._boxes else ()
        return ("project", *median, "unbiased", "raw", *self.learns)

    @property
    def _whole(self) -> int:
        return self._half + self.reach

    @property
    def _apart(self) -> int:
        return self._half

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        if how == "raw":
            return reports
        if how == "unbiased":
            if self.heads == 0:
                raise Misuse(
                    f"a cap of radius {self.radius:g} is too small to reveal anything; take a "
                    "larger `radius`"
                )
            return self._stairs.estimate(reports) if self._stairs else reports / self.mixing
        if how == "median":
            lo = np.clip(reports - self.radius, -1, 1)
            hi = np.clip(reports + self.radius, -1, 1)
            return box_median(lo, hi, math.expm1(self.epsilon))
        inner = 1 - self.inset
        return self._ball.project(reports / inner) * inner

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate at a place of the unit ball.

        Per axis, with κ the spread of the unit ball:
        [β(x² + κr²/d) + (1-β)κ(1+r)²/d]/β² - x², in the squared unit of the domain.
        """
        beta, radius, d = self.mixing, self.radius, self.domain.dimension
        if beta == 0:
            return math.inf
        if self._stairs:
            return float(self.domain.scale[0] ** 2) * self._stairs.error(float(place[0]))
        axis = self._ball.spread / d
        noise = (beta * axis * radius**2 + (1 - beta) * axis * (1 + radius) ** 2) / beta**2
        per_axis = noise + place**2 * (1 / beta - 1)
        return float((self.domain.scale**2 * per_axis).sum())

    @cached_property
    def _stairs(self) -> Stairs | None:
        """Return the unbiased estimator on a line that has less noise, if it fits."""
        if self.domain.dimension > 1 or self.heads == 0:
            return None
        stairs = Stairs(self._half, self.reach, self.mixing)
        return stairs if stairs.share else None

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power over values of the domain."""
        if power == 2 and self._check_decode(how) == "unbiased" and self._stairs:
            return float(self.domain.scale[0] ** 2) * self._stairs.worst
        return super().worst_error(how, power=power)

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain."""
        if power == 2 and self._check_decode(how) == "unbiased" and self._stairs:
            return float(self.domain.scale[0] ** 2) * self._stairs.mean
        return super().expected_error(how, power=power)


@dataclass(frozen=True, kw_only=True)
class BoundedResponse(CapResponse):
    """Uniform on a cap inside the domain with probability β, else on the domain.

    The center of the cap is the value, moved towards the middle until the cap fits; the output
    ball is the domain itself. The estimate is biased towards the middle, and its error is smaller.
    In one dimension this is the optimal piecewise mechanism (Zheng et al. 2025).
    """

    name: ClassVar[str] = "bounded"

    @property
    def _largest_reach(self) -> int:
        return self._half

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the decoders of a report; the median only where caps are boxes."""
        median: tuple[Decode, ...] = ("median",) if self._boxes else ()
        return ("raw", *median, *self.learns)

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
        if self._ball.p == math.inf:  # quicker than an array
            return [max(-edge, min(edge, i)) for i in point]
        center: list[int] = self._centers(np.array([point], dtype=np.int64))[0].tolist()
        return center

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
        cap, edge = self.radius, self._apart / self._half
        # Values beyond the last center share its cap, so such a cap reaches to the border.
        lo = np.where(reports - cap <= -edge, -1.0, reports - cap)
        hi = np.where(reports + cap >= edge, 1.0, reports + cap)
        return box_median(lo, hi, math.expm1(self.epsilon))
