"""The search for the best mechanism: family, parameters and decoder with the least predicted error.

`choose` returns the best choice and `candidates` all of them; what a `Choice` is and how its error
is predicted is in `choice`. A shape is a mechanism without its ε. A budget gives each shape the
local ε that it may spend: the same for all, or as much as keeps a promise in a crowd, where a
smaller cap hides better and may spend more. `ranked` searches with any budget: it takes every
family at its best, and the answer that needs no report.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from coatcheck.domains import Ball, Box, Categories, Domain, Product, domain_from_params
from coatcheck.errors import Misuse
from coatcheck.randomizers import from_open_params, installed
from coatcheck.randomizers.choice import (
    AVERAGES,
    Budget,
    Choice,
    Shape,
    any_ldp,
    by_error,
    by_worth,
    constant,
    crowd_of,
    fit,
    goal_error,
    one_place,
    report_free,
)
from coatcheck.randomizers.codebook import MOST_DIMENSIONS, CodebookResponse
from coatcheck.randomizers.composed import FieldwiseResponse
from coatcheck.randomizers.contract import (
    Decode,
    Goal,
    Randomizer,
    check_epsilon,
    check_goal,
    counted_law,
)
from coatcheck.randomizers.crowd_search import best_for_crowd, reads_batches
from coatcheck.randomizers.expected_error import Floats, least
from coatcheck.randomizers.grid import GridResponse, finer_grids
from coatcheck.randomizers.minkowski import BoundedResponse, MinkowskiResponse
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.sphere import SphereResponse, has_sphere

# Steps between log radii, in a search and in a quick one, and the range around the guesses.
_STEP: Final = 0.25
_QUICK: Final = 0.5
_BELOW: Final = 1.7
_ABOVE: Final = 1.5
_MOST_GRIDS: Final = 1 << 14
_PEOPLE: Final = 20_000
_EVEN: Final = 8_192  # for whom a codebook is placed without a prior


def choose(
    *,
    epsilon: float,
    domain: Domain,
    goal: Goal = "mean",
    exact: bool = False,
    prior: Prior | None = None,
    crowd: int | None = None,
) -> Choice:
    """Return the mechanism and decoder with the least predicted error for a goal.

    Goals: `mean`, the expected distance for a value uniform on the domain; `squared`, the root of
    its mean square; `median`, the distance within which half of all estimates lie; `worst`, the
    largest expected distance over values; `unbiased`, the root of the largest mean squared error
    of an estimate that is right on average. With `exact`, only mechanisms that services accept are
    considered. With a public prior, the first three goals are for people spread as in the prior.
    With a `crowd`, that many reports are decoded together, by the density of people that they show
    (decode `learned`); the mechanism is then the best one for made-up cities.

    The best answer without any report is a candidate too: a codebook of one point. If it wins,
    `worth_a_report` is false and `words` says so.

    >>> choose(epsilon=5.0, domain=Box((-1, -1), (1, 1))).randomizer.name
    'grid'
    """
    best = candidates(epsilon=epsilon, domain=domain, goal=goal, exact=exact, prior=prior)[0]
    if crowd is None or prior is not None or not reads_batches(domain, goal):
        return best
    budget, others = constant(epsilon), [best.randomizer] if best.worth_a_report else []
    return best_for_crowd(domain, budget=budget, crowd=crowd, goal=goal, others=others)  # type: ignore[arg-type] # checked


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
        raise Misuse("fields have different units; choose for each field, or call fieldwise()")
    return ranked(domain, budget=constant(epsilon), goal=goal, exact=exact, prior=prior)


_SEARCHED: Final[dict[str, Any]] = {
    kind.name: kind for kind in (MinkowskiResponse, BoundedResponse, GridResponse)
}


def from_draft(params: Mapping[str, Any]) -> Randomizer:
    """Build the randomizer of an organizer's draft.

    Like `from_params`, but a radius or grid that the draft leaves out is searched for its `goal`,
    and a codebook may have public `places` instead of points, which are then placed.
    """
    args = dict(params)
    if args.get("name") == CodebookResponse.name and "places" in args:
        args.pop("name")
        domain: Any = domain_from_params(args.pop("domain"))
        prior = Prior.from_points(args.pop("places"))
        return CodebookResponse.placed(domain=domain, points=prior, **args)
    kind = _SEARCHED.get(args.pop("name", None))
    if kind is None or {"radius", "cells"} & args.keys():
        return from_open_params(params)
    randomizer: Randomizer = tuned(kind, domain=domain_from_params(args.pop("domain")), **args)
    return randomizer


def fieldwise(*, epsilon: float, domain: Product, goal: Goal = "mean") -> FieldwiseResponse:
    """Return the randomizer of a product: per field the best exact one for its share of ε."""
    parts: dict[str, Randomizer] = {}
    for name, share in domain.split(check_epsilon(epsilon)).items():
        field_ = domain.fields[name]
        choices = ranked(field_, budget=constant(share), goal=goal, exact=True)
        parts[name] = choices[0].randomizer
    return FieldwiseResponse(domain=domain, parts=parts)


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

    A quick search tries fewer radii and comes within about 2 % of the best; it serves curves of
    many points.
    """
    check_goal(goal)
    if isinstance(domain, Product):
        randomizer = _fitted_fields(domain, budget, goal)
        return [Choice(randomizer=randomizer, how=randomizer.decode, goal=goal, error=math.nan)]
    used_prior = prior if prior is not None and not prior.is_even and goal in AVERAGES else None
    search = _Search(domain, budget, goal, _QUICK if quick else _STEP, used_prior, exact)
    choices = [choice for choice in search.every() if choice.randomizer.exact or not exact]
    if not choices:
        raise Misuse(
            f"no exact mechanism serves the goal {goal!r} on {domain}; choose another goal"
        )
    free = report_free(domain, goal=goal, prior=used_prior)
    if isinstance(domain, Box | Ball) and free is not None:
        choices = [choice for choice in choices if choice.worth_a_report]
        choices.append(search.without_reports(domain, free))
    return sorted((replace(choice, report_free=free) for choice in choices), key=by_worth)


def tuned(
    family: type[Any],
    *,
    domain: Domain,
    epsilon: float,
    goal: Goal = "mean",
    decode: Decode | None = None,
) -> Any:
    """Return a family's mechanism with the radius or grid of the least predicted error.

    Its decoder is `decode`, or the one that serves the goal best.
    """
    check_goal(goal)
    return _Search(domain, constant(epsilon), goal, _STEP).best(family, decode).randomizer


def _fitted_fields(domain: Product, budget: Budget, goal: Goal) -> FieldwiseResponse:
    """Return the randomizer of a product at the ε that its own law allows in a crowd.

    The best shapes depend on ε, and ε on the shapes: from the ε of any mechanism on, shapes and ε
    are computed in turn, and the last shapes get the ε that their law allows.
    """
    epsilon = budget(any_ldp)
    for _ in range(2):
        randomizer = fieldwise(epsilon=epsilon, domain=domain, goal=goal)
        if not randomizer.epsilon_spent:
            return randomizer
        epsilon = budget(lambda x, randomizer=randomizer: randomizer.at(x).law)  # type: ignore[misc] # a plain lambda
    return randomizer.at(epsilon)


def _decoders_for(decodes: tuple[Decode, ...], goal: Goal) -> list[Decode]:
    """Return the decoders that can serve a goal."""
    best: dict[Goal, Decode] = {
        "mean": "median",
        "median": "median",
        "worst": "project",
        "unbiased": "unbiased",
    }
    if best.get(goal) in decodes or goal == "unbiased":
        return [how for how in decodes if how == best[goal]]
    # Projecting a raw report never makes its error larger.
    useless = {"unbiased", "raw"} if "project" in decodes else {"unbiased"}
    return [how for how in decodes if how not in useless]


@dataclass(frozen=True)
class _Search:
    """The search for one domain, budget, goal and prior; remembers the ε of each cap."""

    domain: Domain
    budget: Budget
    goal: Goal
    step: float
    prior: Prior | None = None
    exact: bool = False
    earned: dict[tuple[type, float], float] = field(default_factory=dict)

    def every(self) -> Iterator[Choice]:
        """Yield each family at its best."""
        domain, goal = self.domain, self.goal
        if isinstance(domain, Categories):
            yield self._labels(domain)
        elif isinstance(domain, Box | Ball):
            yield from self._unbiased(domain) if goal == "unbiased" else self._near(domain)
        for kind in (kind for kind in installed().values() if hasattr(kind, "fitted")):
            try:
                randomizer = fit(partial(kind.fitted, domain=domain, goal=goal), self.budget)
            except Misuse:  # it does not apply to this domain or goal
                continue
            yield self._judged(randomizer, randomizer.decode)

    def _unbiased(self, domain: Box | Ball) -> Iterator[Choice]:
        yield self.best(MinkowskiResponse)
        if domain.dimension == 1:  # a whole number of caps covers the reports: a better estimate
            whole = (self._cap(MinkowskiResponse, -math.log(i), "unbiased") for i in range(1, 41))
            yield min(whole, key=by_error)
        if not self.exact:  # better than any cap from about four dimensions up, unless ε is large
            from coatcheck.randomizers.baselines.privunit import PrivUnit  # noqa: PLC0415

            yield self.choice(partial(PrivUnit, domain=domain), "unbiased")
        if has_sphere(domain):
            yield self.choice(partial(SphereResponse, domain=domain), "unbiased")

    def _near(self, domain: Box | Ball) -> Iterator[Choice]:
        if self.prior is None:
            grids = [GridResponse] if isinstance(domain, Box) else []
            yield from (
                self.best(family) for family in (MinkowskiResponse, BoundedResponse, *grids)
            )
        yield from self._codebooks(domain)
        if domain.dimension > MOST_DIMENSIONS and has_sphere(domain):
            yield self.choice(partial(SphereResponse, domain=domain), "project")

    def best(self, family: Any, how: Decode | None = None) -> Choice:
        """Return a family's best choice, with one decoder or any that serves the goal."""
        if isinstance(self.domain, Categories) and family is GridResponse:
            return self._labels(self.domain)
        one_cell = {"cells": (1,) * self.domain.dimension}
        args: Any = one_cell if family is GridResponse else {"radius": 0.5}
        sample = family(domain=self.domain, epsilon=1.0, decode=how, **args)
        hows = [how] if how else _decoders_for(sample.plain_decodes, self.goal)
        if not hows:
            raise Misuse(f"{family.name} has no unbiased estimate; use minkowski")
        search = self._best_grid if family is GridResponse else partial(self._best_cap, family)
        return min((search(each) for each in hows), key=by_error)

    def choice(self, shape: Shape, how: Decode) -> Choice:
        """Return a shape at the ε of its budget, with its error."""
        return self._judged(fit(shape, self.budget, how), how)

    def without_reports(self, domain: Box | Ball, error: float) -> Choice:
        """Return the answer that is the same for everybody, as a codebook of one point."""
        place = domain.snap(one_place(domain, self.goal, self.prior), clamp=True)
        epsilon = self.budget(any_ldp)
        randomizer = CodebookResponse(
            domain=domain, epsilon=epsilon, points=(tuple(place[0].tolist()),)
        )
        return Choice(
            randomizer=randomizer, how="raw", goal=self.goal, error=error, prior=self.prior
        )

    def _judged(self, randomizer: Randomizer, how: Decode) -> Choice:
        error = goal_error(randomizer, self.goal, how, prior=self.prior)
        return Choice(randomizer=randomizer, how=how, goal=self.goal, error=error, prior=self.prior)

    def _labels(self, domain: Categories) -> Choice:
        randomizer = fit(partial(GridResponse, domain=domain), self.budget)
        if self.prior is None:
            return Choice(
                randomizer=randomizer, how="raw", goal=self.goal, error=randomizer.expected_error()
            )
        return self._judged(randomizer, "learned")

    # -- codebooks: under a prior, and where caps and grids do not reach the optimum

    def _codebooks(self, domain: Box | Ball) -> Iterator[Choice]:
        if domain.dimension > MOST_DIMENSIONS:
            return
        line = domain.dimension == 1
        if self.goal == "worst" and line:
            yield self._judged(
                CodebookResponse.evenest(domain=domain, budget=self._budget_of), "raw"
            )
        round_ = domain.p != math.inf and not line
        if self.goal in AVERAGES and (self.prior is not None or round_ or self.goal == "squared"):
            size = _EVEN if self.prior is None else _PEOPLE
            randomizer = CodebookResponse.placed(
                domain=domain,
                epsilon=partial(self._budget_of, 1),
                points=crowd_of(domain, self.prior, size),
                goal=self.goal,
                quick=self.step >= _QUICK,
            )
            yield self._judged(randomizer, "raw")

    def _budget_of(self, closest: int, size: int) -> float:
        """Return the ε of a codebook with this many closest points and points in all."""
        if size == 1:
            return self.budget(any_ldp)
        return self.budget(partial(counted_law, cap=closest, whole=size))

    # -- caps: over the log of the radius

    def _cap(self, family: Any, log_radius: float, how: Decode, **more: float) -> Choice:
        shape = partial(family, domain=self.domain, radius=math.exp(log_radius))
        key = family, log_radius
        if key not in self.earned:
            # The reports of a cap as large as the domain say nothing: any ε will do.
            earned = self.budget(lambda x: shape(epsilon=x).law)
            self.earned[key] = earned or self.budget(any_ldp)
        randomizer = shape(epsilon=self.earned[key], decode=how, **more)
        return self._judged(randomizer, how)

    def _best_cap(self, family: Any, how: Decode) -> Choice:
        low, high = self._log_radii(family)
        looks = 1 + math.ceil((high - low) / self.step)
        log_radius = least(lambda x: self._cap(family, x, how).error, low, high, looks=looks)
        best = self._cap(family, log_radius, how)
        if self.goal == "worst" and how == "project" and self.step < _QUICK:
            return min(best, self._with_inset(log_radius), key=by_error)
        return best

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
        """Search radius and inset of a Minkowski response together, from a radius on."""

        def at(place: Floats) -> Choice:
            x, inset = float(place[0]), min(max(float(place[1]), 0.0), 0.5)
            return self._cap(MinkowskiResponse, x, "project", inset=inset)

        def error(place: Floats) -> float:
            return at(place).error

        from scipy import optimize  # noqa: PLC0415 - slow to import, and seldom needed

        simplex = np.array([(log_radius, 0.02), (log_radius + 0.1, 0.02), (log_radius, 0.1)])
        minimum = optimize.minimize(
            error,
            simplex[0],
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 4e-3, "fatol": 1e-4, "maxiter": 40},
        )
        return at(minimum.x)

    # -- grids: over ever finer cells

    def _best_grid(self, how: Decode) -> Choice:
        domain = self.domain
        if not isinstance(domain, Box):
            raise Misuse(f"a grid works on a Box or on Categories, not on {domain}")
        most = 16 + 8 * math.exp(min(20.0, self.budget(any_ldp)))
        every = itertools.islice(finer_grids(domain), _MOST_GRIDS)
        finer = itertools.takewhile(lambda cells: math.prod(cells) <= most, every)
        shapes = [partial(GridResponse, domain=domain, cells=cells) for cells in finer]
        del shapes[0]  # a report of the only cell says nothing
        choices: dict[int, Choice] = {}

        def error(index: int) -> float:
            if index not in choices:
                choices[index] = self.choice(shapes[index], how)
            return choices[index].error

        looks = [0]
        while looks[-1] < len(shapes) - 1:
            looks.append(min(len(shapes) - 1, max(looks[-1] + 1, int(1.5 * looks[-1]))))
        while True:
            best = min(range(len(looks)), key=lambda i: error(looks[i]))
            low, high = looks[max(0, best - 1)], looks[min(len(looks) - 1, best + 1)]
            if all(index in choices for index in range(low, high + 1)):
                return min(choices.values(), key=by_error)
            looks = sorted({looks[best], *range(low, high + 1, max(1, (high - low) // 12)), high})
