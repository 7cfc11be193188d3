"""The search behind a plan: local budget and radius, or grid, together, under one promise.

A smaller cap hides better in a crowd and so earns a larger local ε; which of the two wins is
decided by the mechanism's own law for every candidate, never by a formula for one of them alone.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from coatcheck.accounting.amplification import Guarantee, amplify, any_ldp, calibrate
from coatcheck.accounting.laws import Law
from coatcheck.domains import Ball, Box, Categories, Domain, Product
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    BoundedResponse,
    Decode,
    Goal,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    fieldwise,
)
from coatcheck.randomizers.caps import goal_error
from coatcheck.randomizers.grid import _ever_finer as ever_finer

# Logs of radii to look at, from a first guess, and the finest difference worth a look.
_BELOW: Final = -1.7
_ABOVE: Final = 1.5
_LOOKS: Final = 15
_QUICK: Final = 7
_CLOSE: Final = 3e-3
_INSETS: Final = (0.02, 0.05, 0.1, 0.15, 0.25)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What is to be kept: ε and δ for each person, in a crowd of which some do not count."""

    epsilon: float
    delta: float
    crowd: int
    corrupted: int = 0
    exposed: int = 0
    lost: int = 0
    method: str = "mechanism"

    def budget(self, make: Callable[[float], Law]) -> float:
        """Find the largest local ε of a mechanism that keeps the promise."""
        return calibrate(
            make,
            epsilon=self.epsilon,
            crowd=self.crowd,
            delta=self.delta,
            method=self.method,
            corrupted=self.corrupted,
            exposed=self.exposed,
            lost=self.lost,
        ).local_epsilon

    def kept_by(self, law: Law, *, crowd: int | None = None, lost: int = 0) -> Guarantee:
        """Say what a law guarantees in this crowd, or another one, with more people lost."""
        return amplify(
            law,
            crowd=crowd or self.crowd,
            delta=self.delta,
            method=self.method,
            corrupted=self.corrupted,
            exposed=self.exposed,
            lost=self.lost + lost,
        )


@dataclass(frozen=True, kw_only=True)
class Design:
    """A mechanism at its best under a promise.

    Attributes:
        randomizer: the mechanism, with its local ε and radius or grid.
        how: the way to read its reports.
        error: what the goal makes small, in the unit of the domain (a share of wrong labels on
            categories).
        guarantee: what the crowd makes of it.
    """

    randomizer: Randomizer
    how: Decode
    error: float
    guarantee: Guarantee


def designs(promise: Promise, *, domain: Domain, goal: Goal, quick: bool = False) -> list[Design]:
    """Give every exact mechanism that fits the domain, each at its best, the least error first.

    A quick search looks at fewer radii: within about 2 % of the best, for a curve of many points.
    """
    looks = _QUICK if quick else _LOOKS
    found = sorted(_each(promise, domain, goal, looks), key=lambda design: design.error)
    if not found:
        raise Misuse(f"no exact mechanism serves the goal {goal!r} on {domain}")
    return found


def _each(promise: Promise, domain: Domain, goal: Goal, looks: int) -> Iterator[Design]:
    if isinstance(domain, Product):
        yield _by_fields(promise, domain, goal)
    elif isinstance(domain, Categories):
        yield _grid(promise, domain, (len(domain.labels),), "raw", goal)
    else:
        kinds: list[type[MinkowskiResponse | BoundedResponse]] = [MinkowskiResponse]
        if goal != "unbiased":
            kinds.append(BoundedResponse)
        for kind in kinds:
            design = _Caps(promise, kind, domain, goal, looks).best()
            if design.randomizer.exact:
                yield design
        if goal != "unbiased" and isinstance(domain, Box):
            yield _best_grid(promise, domain, goal)


def _finish(promise: Promise, randomizer: Randomizer, how: Decode, error: float) -> Design:
    guarantee = promise.kept_by(randomizer.law)
    return Design(randomizer=randomizer, how=how, error=error, guarantee=guarantee)


def _by_fields(promise: Promise, domain: Product, goal: Goal) -> Design:
    """Split one budget over the fields; the law of the whole is that of any randomizer."""
    made = fieldwise(epsilon=promise.budget(any_ldp), domain=domain, goal=goal)
    return _finish(promise, made, made.decode, math.nan)


# -- caps: a search over the radius, with the budget that each radius earns


@dataclass(frozen=True)
class _Caps:
    """Minkowski or Bounded response on a domain, as a function of the log of the radius."""

    promise: Promise
    kind: type[MinkowskiResponse] | type[BoundedResponse]
    domain: Box | Ball
    goal: Goal
    count: int
    known: dict[float, float] = field(default_factory=dict)

    def make(self, at: float, how: Decode | None = None) -> MinkowskiResponse | BoundedResponse:
        """Make the mechanism of a radius with the budget that the radius earns."""
        if at not in self.known:
            self.known[at] = self.promise.budget(lambda x: self._at(x, at, None).law)
        return self._at(self.known[at], at, how)

    def _at(
        self, epsilon: float, at: float, how: Decode | None
    ) -> MinkowskiResponse | BoundedResponse:
        radius = math.exp(at)
        if how is None:
            return self.kind(domain=self.domain, epsilon=epsilon, radius=radius)
        return self.kind(domain=self.domain, epsilon=epsilon, radius=radius, decode=how)

    def error(self, at: float, how: Decode) -> float:
        """Predict the error, whatever it is that the goal makes small."""
        return goal_error(self.make(at, how), self.goal, how)

    def looks(self) -> list[float]:
        """Spread first looks around the radius of least squared error of the generic budget."""
        d = self.domain.dimension
        guess = (math.log(2 * d) - self.promise.budget(any_ldp)) / (d + 2)
        finest = math.log(4 / self.domain.steps)
        most = 0.0 if self.kind is BoundedResponse else guess + _ABOVE
        return [float(x) for x in np.linspace(max(finest, guess + _BELOW), most, self.count)]

    def hows(self) -> tuple[Decode, ...]:
        """List the ways to read a report that can serve the goal."""
        able = self.make(0.0).decodes
        wanted: dict[Goal, tuple[Decode, ...]] = {
            "mean": ("project", "median") if self.kind is MinkowskiResponse else ("raw", "median"),
            "worst": ("project",) if self.kind is MinkowskiResponse else ("raw",),
            "unbiased": ("unbiased",),
        }
        return tuple(how for how in wanted[self.goal] if how in able)

    def best(self) -> Design:
        """Search every way to read; where caps are few there can be two valleys, so try both."""
        found = []
        for how in self.hows():
            looks = self.looks()
            values = [self.error(x, how) for x in looks]
            for at in _valleys(values):
                error = partial(self.error, how=how)
                x = _refine(error, looks[max(0, at - 1)], looks[min(len(looks) - 1, at + 1)])
                found.append(self._finished(x, how))
        return min(found, key=lambda design: design.error)

    def _finished(self, at: float, how: Decode) -> Design:
        made = self.make(at, how)
        options: list[MinkowskiResponse | BoundedResponse] = [made]
        if isinstance(made, MinkowskiResponse) and self.goal == "worst":
            options += [replace(made, inset=inset, goal=self.goal) for inset in _INSETS]
        errors = [goal_error(option, self.goal, how) for option in options]
        best = int(np.argmin(errors))
        return _finish(self.promise, options[best], how, errors[best])


def _valleys(values: Sequence[float]) -> list[int]:
    """Find the two lowest local minima, if the second is within a tenth of the first."""
    padded = [math.inf, *values, math.inf]
    low = [i for i in range(len(values)) if padded[i] > values[i] <= padded[i + 2]]
    low.sort(key=lambda i: values[i])
    return [i for i in low[:2] if values[i] <= 1.1 * values[low[0]]]


def _refine(error: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize  # noqa: PLC0415 - slow to load

    found = optimize.minimize_scalar(
        error, bounds=(low, high), method="bounded", options={"xatol": _CLOSE, "maxiter": 10}
    )
    return float(found.x)


# -- grids: a search over ever finer cells


def _best_grid(promise: Promise, domain: Box, goal: Goal) -> Design:
    most = 16 + 8 * math.exp(min(16.0, promise.budget(any_ldp)))
    finer = itertools.takewhile(lambda cells: math.prod(cells) <= most, ever_finer(domain))
    shapes = [cells for cells in itertools.islice(finer, 2000) if math.prod(cells) > 1]
    known: dict[int, Design] = {}

    def at(index: int) -> float:
        if index not in known:
            tried = [_grid(promise, domain, shapes[index], how, goal) for how in _grid_hows(goal)]
            known[index] = min(tried, key=lambda design: design.error)
        return known[index].error

    stride = [0]
    while stride[-1] < len(shapes) - 1:
        stride.append(min(len(shapes) - 1, max(stride[-1] + 1, int(1.5 * stride[-1]))))
    best = min(range(len(stride)), key=lambda i: at(stride[i]))
    low, high = stride[max(0, best - 1)], stride[min(len(stride) - 1, best + 1)]
    near = range(low, high + 1, max(1, (high - low) // 12))
    return known[min([*near, stride[best]], key=at)]


def _grid_hows(goal: Goal) -> tuple[Decode, ...]:
    return ("raw",) if goal == "worst" else ("median",)


def _grid(
    promise: Promise, domain: Box | Categories, cells: tuple[int, ...], how: Decode, goal: Goal
) -> Design:
    local = promise.budget(lambda x: GridResponse(domain=domain, epsilon=x, cells=cells).law)
    made = GridResponse(domain=domain, epsilon=local, cells=cells, decode=how)
    return _finish(promise, made, how, goal_error(made, goal, how))
