"""What Minkowski and Bounded response share: a cap around the value, and everywhere else.

A report is uniform on the cap of its value with probability β, else uniform on the whole output
ball. All caps are translates of one lattice ball, so they hold equally many points, and a
report's probability takes just two values, whose ratio the integers of `mixing` keep at e^ε.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from coatcheck.accounting.laws import TwoLevel
from coatcheck.domains import Ball, Box, Domain, Floats, Points, lattice_norm_within
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers import balls
from coatcheck.randomizers.contract import (
    Choice,
    Decode,
    Goal,
    Randomizer,
    check_epsilon,
    check_goal,
)
from coatcheck.randomizers.mixing import TOSSES, above, heads_for, spent
from coatcheck.randomizers.quadrature import evenly_twice

_MAX_REACH: Final = 2**30  # 2 reach + 1 stays a bound that bulk draws take


@dataclass(frozen=True, kw_only=True)
class CapResponse(Randomizer):
    """A mechanism with caps of one size; `radius` is the cap's, where the domain has radius 1.

    Without a radius the one with the least predicted error for `goal` is searched; `radius` then
    holds what was found, rounded to the lattice.
    """

    domain: Box | Ball
    epsilon: float
    radius: float = None  # type: ignore[assignment] # None asks for the search
    decode: Decode = None  # type: ignore[assignment] # None asks for the usual one
    goal: InitVar[Goal] = "mean"

    def __post_init__(self, goal: Goal) -> None:
        check_goal(goal)
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"{self.name} response works on a Box or a Ball, not on {self.domain}")
        if self.radius is None:
            self._search(goal)
        if not (isinstance(self.radius, int | float) and 0 < self.radius < math.inf):
            raise Misuse(f"a cap needs a radius above 0, got {self.radius!r}")
        object.__setattr__(self, "radius", self.reach / self._half)
        if self.decode is None:
            object.__setattr__(self, "decode", self.decodes[0])
        self._check_decode(self.decode)

    def _search(self, goal: Goal) -> None:
        tuned = type(self).tuned
        found = tuned(domain=self.domain, epsilon=self.epsilon, goal=goal, how=self.decode)
        if isinstance(found.randomizer, CapResponse):
            self._adopt(found.randomizer)

    def _adopt(self, found: "CapResponse") -> None:
        object.__setattr__(self, "radius", found.radius)
        object.__setattr__(self, "decode", found.decode)

    @classmethod
    def tuned(
        cls, *, domain: Domain, epsilon: float, goal: Goal = "mean", how: Decode | None = None
    ) -> Choice:
        """Return the radius and decode with the least predicted error for a goal."""
        check_goal(goal)
        if not isinstance(domain, Box | Ball):
            raise Misuse(f"{cls.name} response works on a Box or a Ball, not on {domain}")
        sample = cls(domain=domain, epsilon=epsilon, radius=0.5)
        hows = (sample._check_decode(how),) if how else sample._decodes_for(goal)
        return min((cls._best_radius(domain, epsilon, goal, each) for each in hows), key=_error)

    @classmethod
    def _best_radius(cls, domain: Box | Ball, epsilon: float, goal: Goal, how: Decode) -> Choice:
        def make(log_radius: float) -> CapResponse:
            return cls(domain=domain, epsilon=epsilon, radius=math.exp(log_radius), decode=how)

        def error(log_radius: float) -> float:
            return goal_error(make(log_radius), goal, how)

        found = make(least(error, *cls._log_radii(domain)))
        return Choice(found, how, goal_error(found, goal, how), goal)

    @classmethod
    @abstractmethod
    def _log_radii(cls, domain: Box | Ball) -> tuple[float, float]:
        """Return the range of log radii worth searching."""

    def _decodes_for(self, goal: Goal) -> tuple[Decode, ...]:
        if goal == "unbiased":
            if "unbiased" not in self.decodes:
                raise Misuse(f"{self.name} response has no unbiased estimate; use minkowski")
            return ("unbiased",)
        return tuple(how for how in self.decodes if how != "unbiased")

    # -- the lattice

    @property
    def _half(self) -> int:
        return self.domain.steps // 2

    @cached_property
    def _ball(self) -> balls.Ball:
        return balls.Ball(self.domain.p, self.domain.dimension)

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

    @abstractmethod
    def _centers(self, points: Points) -> Points:
        """Return the centers of the points' caps."""

    @cached_property
    def _counts(self) -> tuple[int, int]:
        return self._ball.counts(self.reach, self._whole)

    @cached_property
    def heads(self) -> int:
        """Return how many of 2^64 tosses of the coin choose the cap."""
        cap, whole = self._counts
        return heads_for(self.epsilon, cap=cap, whole=whole)

    @property
    def mixing(self) -> float:
        """Return β, the probability of an answer from the cap."""
        return self.heads / TOSSES

    # -- the promise

    @property
    def exact(self) -> bool:
        """Return whether draws are made in integers: not for odd norms, nor l2 above d = 8."""
        return self._ball.exact

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that the mechanism really costs."""
        cap, whole = self._counts
        return min(spent(self.heads, cap=cap, whole=whole), self.epsilon)

    @cached_property
    def law(self) -> TwoLevel:
        """Return the two-level law, with a cap no smaller and a kernel no larger than the truth.

        δ grows with `cap` and `apart` and falls with `kernel` (docs/explanation), so rounding
        this way is private. Two caps overlap least when their intersection is the kernel; then
        the law of G depends on cap - kernel alone, which is overstated.
        """
        share = self._ball.share_above(self.reach, self._whole)
        blanket = Fraction(TOSSES - self.heads, TOSSES) * share
        deep = self.reach - self._apart
        kernel = Fraction(0)
        if deep >= 0:
            kernel = blanket * Fraction(*self._ball.counts(deep, self.reach))
        return TwoLevel(
            epsilon=self.epsilon_spent,
            cap=above(blanket),
            apart=above(blanket - kernel),
            kernel=math.nextafter(float(kernel), 0.0),
            reached=self._ball.p == math.inf or self.domain.dimension == 1,
            third=self._three_apart,
        )

    @property
    def _three_apart(self) -> bool:
        """Return whether three caps can be disjoint; said of boxes only, where it is plain."""
        if self.domain.dimension == 1:
            return self._apart > 2 * self.reach
        return self._ball.p == math.inf and self._apart > self.reach

    @property
    def total_variation(self) -> float:
        """Return the total variation distance of the two values whose caps overlap least."""
        return self.mixing * self.law.apart / self.law.cap

    def density(self, reports: Points, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        offsets = reports - self._centers(points)
        inside = self._ball.norms(offsets) <= self.reach
        possible = self._ball.norms(reports) <= self._whole
        cap, whole = self._sizes
        return possible * (np.where(inside, self.mixing / cap, 0.0) + (1 - self.mixing) / whole)

    @property
    def _sizes(self) -> tuple[float, float]:
        ball = self._ball
        if ball.countable(self._whole):
            return float(ball.count(self.reach)), float(ball.count(self._whole))
        return ball.volume(self.reach), ball.volume(self._whole)

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        ball = self._ball
        if not (self.exact and ball.countable(self._whole)):
            raise Misuse("this lattice is too large to count; use density()")
        if not lattice_norm_within(report, self.domain.p, self._whole):
            return Fraction(0)
        center = self._centers(np.array([point], dtype=np.int64))[0].tolist()
        offset = [y - c for y, c in zip(report, center, strict=True)]
        near = lattice_norm_within(offset, self.domain.p, self.reach)
        heads = Fraction(self.heads, TOSSES)
        far = (1 - heads) / ball.count(self._whole)
        return far + heads / ball.count(self.reach) if near else far

    @property
    def low(self) -> Points:
        """Return the least value of each coordinate of a report."""
        return -self.high

    @property
    def high(self) -> Points:
        """Return the largest value of each coordinate of a report."""
        return np.full(self.domain.dimension, self._whole, dtype=np.int64)

    # -- drawing

    def _respond(self, points: Points, entropy: Entropy) -> Points:
        # All three are drawn every time, so that the work does not tell how the coin fell.
        near = entropy.coins(self.heads, len(points))
        reports = self._ball.sample(self.reach, len(points), entropy)
        reports += self._centers(points)
        far = self._ball.sample(self._whole, len(points), entropy)
        np.copyto(reports, far, where=~near[:, None])
        return reports

    def respond_one(self, point: tuple[int, ...], entropy: Entropy) -> tuple[int, ...]:
        """Return the report of one lattice point without touching an array."""
        if not lattice_norm_within(point, self.domain.p, self._half):
            raise Misuse(f"{point} is not a point of the lattice; snap() the value first")
        near = self._ball.sample_one(self.reach, entropy)
        far = self._ball.sample_one(self._whole, entropy)
        if not entropy.coin(self.heads):
            return far
        return tuple(c + u for c, u in zip(self._center_one(point), near, strict=True))

    @abstractmethod
    def _center_one(self, point: tuple[int, ...]) -> Sequence[int]:
        """Return the center of one point's cap."""

    # -- reading and predicting, in the frame where the domain is the unit ball

    def _frame(self, reports: Points) -> Floats:
        return reports / self._half

    def _nodes(self, size: int) -> tuple[Floats, Floats]:
        return evenly_twice(size, dimension=self.domain.dimension, p=self.domain.p)

    def _outcomes(self, places: Floats, draws: Floats) -> list[tuple[float, Floats]]:
        far = draws * (self._whole / self._half)
        near = self._unit_centers(places) + draws * self.radius
        return [(self.mixing, near), (1 - self.mixing, far)]

    @abstractmethod
    def _unit_centers(self, places: Floats) -> Floats:
        """Return the centers of the caps of places of the unit ball."""

    def _median(self, lo: Floats, hi: Floats) -> Floats:
        """Return the median, axis by axis, of 1 + (e^ε - 1) on the box lo..hi of [-1, 1]^d."""
        return box_median(lo, hi, math.expm1(self.epsilon))

    def params(self) -> dict[str, Any]:
        """Return plain data from which `from_params` makes an equal object."""
        plain = {"name": self.name, "domain": self.domain.params(), "epsilon": self.epsilon}
        return {**plain, "radius": self.radius, "decode": self.decode}


def goal_error(randomizer: Randomizer, goal: Goal, how: Decode) -> float:
    """Return the figure that a goal makes small.

    mean: the expected distance; worst: the largest expected distance; unbiased: the root of the
    largest mean squared error.
    """
    if goal == "mean":
        return randomizer.expected_error(how)
    if goal == "worst":
        return randomizer.worst_error(how)
    return math.sqrt(randomizer.worst_error(how, power=2))


def box_median(lo: Floats, hi: Floats, gain: float) -> Floats:
    """Return the median, axis by axis, of a density 1 + gain on lo..hi and 1 elsewhere.

    The marginal distribution function is piecewise linear, so the median is a formula.
    """
    width = np.maximum(hi - lo, 1e-300)
    weight = gain * np.prod(width / 2, axis=1, keepdims=True)
    # (t + 1)/2 + weight (t - lo)/width = (1 + weight)/2, unless t falls before or after the box
    inside = (weight / 2 + weight * lo / width) / (0.5 + weight / width)
    outside = np.where(lo >= weight, weight, -weight)
    median: Floats = np.where((lo >= weight) | (hi <= -weight), outside, inside)
    return median


def _error(choice: Choice) -> float:
    return choice.error


def least(error: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function of one variable is least: a coarse look, then Brent's search."""
    from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

    nodes = np.linspace(low, high, 25)
    at = int(np.argmin([error(float(node)) for node in nodes]))
    bracket = (float(nodes[max(at - 1, 0)]), float(nodes[min(at + 1, len(nodes) - 1)]))
    found = optimize.minimize_scalar(
        error, bounds=bracket, method="bounded", options={"xatol": 1e-3}
    )
    return float(found.x)
