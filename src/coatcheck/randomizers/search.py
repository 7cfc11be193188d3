"""One search over mechanisms: which family, with which radius or grid, read in which way.

A shape is a mechanism but for its ε. A budget gives each shape the local ε that it may spend: the
same for all, or as much as keeps a promise in a crowd, where a smaller cap hides better and earns
more. `ranked` finds every family at its best by predicted error.
"""

import itertools
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from coatcheck.domains import Ball, Box, Categories, Domain, Product
from coatcheck.errors import Misuse
from coatcheck.randomizers.baselines.privunit import PrivUnit
from coatcheck.randomizers.caps import BoundedResponse, MinkowskiResponse
from coatcheck.randomizers.choice import (
    Budget,
    Choice,
    Shape,
    any_ldp,
    by_error,
    constant,
    fit,
)
from coatcheck.randomizers.contract import Decode, Goal, Randomizer, check_epsilon, check_goal
from coatcheck.randomizers.fieldwise import FieldwiseResponse
from coatcheck.randomizers.grid import GridResponse, finer_grids
from coatcheck.randomizers.informed import ranked_under, report_free
from coatcheck.randomizers.prediction import Floats, least
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.sphere import SphereResponse, has_sphere

Family = TypeVar("Family", MinkowskiResponse, BoundedResponse, GridResponse)

# Between two looks at log radii, for a search and for a quick one, and how far beyond the guesses.
_STEP: Final = 0.25
_QUICK: Final = 0.5
_BELOW: Final = 1.7
_ABOVE: Final = 1.5
_MOST_GRIDS: Final = 1 << 14


# -- what people call


def choose(
    *,
    epsilon: float,
    domain: Domain,
    goal: Goal = "mean",
    exact: bool = False,
    prior: Prior | None = None,
) -> Choice:
    """Return the mechanism and decode with the least predicted error for a goal.

    Goals: `mean`, the expected distance for a value uniform on the domain; `worst`, the largest
    expected distance over values; `unbiased`, the root of the largest mean squared error of an
    estimate that is right on average. With `exact` only mechanisms that services accept are
    considered. With a public prior the goal `mean` is the expected distance for people as the
    prior says, read by it. The choice also says what the best answer without any report has.

    >>> choose(epsilon=5.0, domain=Box((-1, -1), (1, 1))).randomizer.name
    'grid'
    """
    found = candidates(epsilon=epsilon, domain=domain, goal=goal, exact=exact, prior=prior)
    return found[0]


def candidates(
    *,
    epsilon: float,
    domain: Domain,
    goal: Goal = "mean",
    exact: bool = False,
    prior: Prior | None = None,
) -> list[Choice]:
    """Return every mechanism that fits, each at its best, the least predicted error first."""
    if isinstance(domain, Product):
        raise Misuse("fields have different units: choose for each field, or call fieldwise()")
    return ranked(domain, budget=constant(epsilon), goal=goal, exact=exact, prior=prior)


def tuned(
    family: type[Family],
    *,
    domain: Domain,
    epsilon: float,
    goal: Goal = "mean",
    decode: Decode | None = None,
) -> Family:
    """Return a family's mechanism with the radius or grid of the least predicted error.

    It is read by `decode`, or by what serves the goal best if none is given.
    """
    check_goal(goal)
    found = _Search(domain, constant(epsilon), goal, _STEP).best(family, decode).randomizer
    if not isinstance(found, family):
        raise TypeError(f"a search for {family} found {found}; this is a bug in coatcheck")
    return found


def fieldwise(*, epsilon: float, domain: Product, goal: Goal = "mean") -> FieldwiseResponse:
    """Return a product's randomizer: its shares of the budget, the best exact one per field."""
    parts: dict[str, Randomizer] = {}
    for name, share in domain.split(check_epsilon(epsilon)).items():
        field_ = domain.fields[name]
        parts[name] = choose(epsilon=share, domain=field_, goal=goal, exact=True).randomizer
    return FieldwiseResponse(domain=domain, parts=parts)


# -- the search


def ranked(
    domain: Domain,
    *,
    budget: Budget,
    goal: Goal,
    exact: bool,
    quick: bool = False,
    prior: Prior | None = None,
) -> list[Choice]:
    """Return every family that fits, each at its best, the least predicted error first.

    A quick search looks at fewer radii: within about 2 % of the best, for a curve of many points.
    """
    check_goal(goal)
    if isinstance(domain, Product):
        made = _fitted_fields(domain, budget, goal)
        return [Choice(randomizer=made, how=made.decode, error=math.nan)]
    if prior is not None and not prior.is_even and goal == "mean":
        return ranked_under(prior, domain=domain, budget=budget, quick=quick)
    search = _Search(domain, budget, goal, _QUICK if quick else _STEP)
    found = [search.best(family) for family in _families(domain, goal)]
    if goal == "unbiased" and not exact and isinstance(domain, Box | Ball):
        # Better than any cap from about four dimensions up, unless ε is large.
        found.append(search.choice(partial(PrivUnit, domain=domain), "unbiased"))
    if goal == "unbiased" and isinstance(domain, Ball) and has_sphere(domain):
        found.append(search.choice(partial(SphereResponse, domain=domain), "unbiased"))
    found = [choice for choice in found if choice.randomizer.exact or not exact]
    if not found:
        raise Misuse(f"no exact mechanism serves the goal {goal!r} on {domain}")
    free = report_free(domain, goal=goal)
    return sorted((replace(choice, report_free=free) for choice in found), key=by_error)


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


def _fitted_fields(domain: Product, budget: Budget, goal: Goal) -> FieldwiseResponse:
    """Return a product's randomizer at the budget that its own law earns in a crowd.

    The best shapes depend on the budget, which depends on the shapes: from the budget of any
    mechanism, shapes and budget are found in turn, and the last shapes get what they earn.
    """
    epsilon = budget(any_ldp)
    for _ in range(2):
        made = fieldwise(epsilon=epsilon, domain=domain, goal=goal)
        epsilon = budget(lambda x, made=made: made.at(x).law)  # type: ignore[misc] # a plain lambda
    return made.at(epsilon)


def _families(domain: Domain, goal: Goal) -> list[Any]:
    if isinstance(domain, Categories):
        return [GridResponse]
    if goal == "unbiased":
        return [MinkowskiResponse]
    grids = [GridResponse] if isinstance(domain, Box) else []
    return [MinkowskiResponse, BoundedResponse, *grids]


def _readings(decodes: tuple[Decode, ...], goal: Goal) -> list[Decode]:
    """Return the ways to read that can serve a goal."""
    best: dict[Goal, Decode] = {"mean": "median", "worst": "project", "unbiased": "unbiased"}
    if best[goal] in decodes or goal == "unbiased":
        return [how for how in decodes if how == best[goal]]
    # Projecting never hurts a raw report.
    useless = {"unbiased", "raw"} if "project" in decodes else {"unbiased"}
    return [how for how in decodes if how not in useless]


@dataclass(frozen=True)
class _Search:
    """The search for one domain, budget and goal; remembers what each cap earned."""

    domain: Domain
    budget: Budget
    goal: Goal
    step: float
    earned: dict[tuple[type, float], float] = field(default_factory=dict)

    def best(self, family: Any, how: Decode | None = None) -> Choice:
        """Return a family's best candidate, read one way or any way that serves the goal."""
        if isinstance(self.domain, Categories) and family is GridResponse:
            made = fit(partial(GridResponse, domain=self.domain), self.budget)
            return Choice(randomizer=made, how="raw", error=made.expected_error())
        one_cell = {"cells": (1,) * self.domain.dimension}
        given: Any = one_cell if family is GridResponse else {"radius": 0.5}
        sample = family(domain=self.domain, epsilon=1.0, decode=how, **given)
        hows = [how] if how else _readings(sample.plain_decodes, self.goal)
        if not hows:
            raise Misuse(f"{family.name} response has no unbiased estimate; use minkowski")
        search = self._best_grid if family is GridResponse else partial(self._best_cap, family)
        return min((search(each) for each in hows), key=by_error)

    def choice(self, shape: Shape, how: Decode) -> Choice:
        """Return a shape at its budget with its error."""
        return self._judged(fit(shape, self.budget, how), how)

    def _judged(self, made: Randomizer, how: Decode) -> Choice:
        return Choice(randomizer=made, how=how, error=goal_error(made, self.goal, how))

    # -- caps: over the log of the radius

    def _cap(self, family: Any, log_radius: float, how: Decode, **more: float) -> Choice:
        shape = partial(family, domain=self.domain, radius=math.exp(log_radius))
        key = family, log_radius
        if key not in self.earned:
            self.earned[key] = self.budget(lambda x: shape(epsilon=x).law)
        made = shape(epsilon=self.earned[key], decode=how, **more)
        return self._judged(made, how)

    def _best_cap(self, family: Any, how: Decode) -> Choice:
        low, high = self._log_radii(family)
        looks = 1 + math.ceil((high - low) / self.step)
        log_radius = least(lambda x: self._cap(family, x, how).error, low, high, looks=looks)
        found = self._cap(family, log_radius, how)
        if self.goal == "worst" and how == "project" and self.step < _QUICK:
            return min(found, self._with_inset(log_radius), key=by_error)
        return found

    def _log_radii(self, family: Any) -> tuple[float, float]:
        """Return a range around the radii of least distance and of least squared distance."""
        d = self.domain.dimension
        above = math.log(2 * d) - self.budget(any_ldp)
        finest = math.log(4 / self.domain.steps)  # type: ignore[union-attr] # a Box or a Ball
        low = max(finest, min(above / (d + 1), above / (d + 2)) - _BELOW)
        if family is BoundedResponse:
            return min(low, -self.step), 0.0
        return low, max(low + self.step, above / (d + 2) + _ABOVE)

    def _with_inset(self, log_radius: float) -> Choice:
        """Return Minkowski response with radius and inset searched together, from a radius."""

        def at(place: Floats) -> Choice:
            x, inset = float(place[0]), min(max(float(place[1]), 0.0), 0.5)
            return self._cap(MinkowskiResponse, x, "project", inset=inset)

        def error(place: Floats) -> float:
            return at(place).error

        from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

        simplex = np.array([(log_radius, 0.02), (log_radius + 0.1, 0.02), (log_radius, 0.1)])
        found = optimize.minimize(
            error,
            simplex[0],
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 4e-3, "fatol": 1e-4, "maxiter": 40},
        )
        return at(found.x)

    # -- grids: over ever finer cells

    def _best_grid(self, how: Decode) -> Choice:
        domain = self.domain
        if not isinstance(domain, Box):
            raise Misuse(f"grid response works on a Box or on Categories, not on {domain}")
        most = 16 + 8 * math.exp(min(20.0, self.budget(any_ldp)))
        every = itertools.islice(finer_grids(domain), _MOST_GRIDS)
        finer = itertools.takewhile(lambda cells: math.prod(cells) <= most, every)
        shapes = [partial(GridResponse, domain=domain, cells=cells) for cells in finer]
        if not self.budget(lambda x: shapes[0](epsilon=x).law):
            del shapes[0]  # one cell, which says nothing, earns nothing in a crowd
        known: dict[int, Choice] = {}

        def error(index: int) -> float:
            if index not in known:
                known[index] = self.choice(shapes[index], how)
            return known[index].error

        looks = [0]
        while looks[-1] < len(shapes) - 1:
            looks.append(min(len(shapes) - 1, max(looks[-1] + 1, int(1.5 * looks[-1]))))
        while True:
            best = min(range(len(looks)), key=lambda i: error(looks[i]))
            low, high = looks[max(0, best - 1)], looks[min(len(looks) - 1, best + 1)]
            if all(index in known for index in range(low, high + 1)):
                return min(known.values(), key=by_error)
            looks = sorted({looks[best], *range(low, high + 1, max(1, (high - low) // 12)), high})
