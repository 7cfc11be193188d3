"""The search for a mechanism whose batch shows where people are.

A server reads each report by the density of people that all reports together show (`density`). For
this, the best mechanism is not the one that is best for people spread evenly: people live in
clusters, and reports have to tell clusters apart. `best_for_crowd` tries caps on made-up
cities, drawn from a fixed seed: a few clusters of unequal size and width, and some people anywhere.
It knows nothing of the real people, so it costs no privacy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final

import numpy as np

from coatcheck.domains import Ball, Box, Floats
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.choice import Budget, Choice, fit, misses
from coatcheck.randomizers.contract import Randomizer
from coatcheck.randomizers.density import DIMENSIONS
from coatcheck.randomizers.minkowski import BoundedResponse

GOALS: Final = {"mean": "learned", "median": "learned", "squared": "learned-mean"}
"""The goals that depend on where people are, and the decoder that serves each."""

_SEED: Final = 7_400
_CLUSTERS: Final = (3, 40)
_WIDTHS: Final = (0.01, 0.1)  # of a cluster, as a share of half the domain
_ANYWHERE: Final = 0.05
_RADII: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
_LOUD: Final = 4.0


@dataclass(frozen=True)
class _Effort:
    """How much is tried: at most so many people, in so many cities.

    Of two caps whose errors differ by less than the factor `tie` the smaller one is taken: real
    crowds are often more concentrated than the made-up ones.
    """

    people: int
    cities: int
    tie: float


_QUIET_EFFORT: Final = _Effort(people=5_000, cities=6, tie=1.015)
_LOUD_EFFORT: Final = _Effort(people=2_000, cities=3, tie=1.06)
"""For a local ε above `_LOUD`, where reading is slow and errors differ more."""


def _effort(epsilon: float) -> _Effort:
    return _LOUD_EFFORT if epsilon > _LOUD else _QUIET_EFFORT


def city(domain: Box | Ball, number: int, people: int) -> Floats:
    """Return the places of a made-up city, (people, d), on the unit ball."""
    draws = seeded(_SEED + number)
    dimension, low, high = domain.dimension, *_CLUSTERS
    clusters = low + draws.integer(high - low + 1)
    shares = 1 / np.arange(1, clusters + 1)  # the largest cluster has twice the second's people
    edges = np.cumsum(shares / shares.sum())
    centers = 0.9 * (2 * draws.uniforms(clusters * dimension).reshape(clusters, dimension) - 1)
    narrow, wide = np.log(_WIDTHS)
    widths = np.exp(narrow + (wide - narrow) * draws.uniforms(clusters))
    which = np.minimum(np.searchsorted(edges, draws.uniforms(people)), clusters - 1)
    spread = _normals(draws.uniforms(2 * people * dimension)).reshape(people, dimension)
    places = centers[which] + widths[which, None] * spread
    anywhere = 2 * draws.uniforms(people * dimension).reshape(people, dimension) - 1
    outside = np.linalg.norm(places, ord=domain.p, axis=1) > 1
    moved = np.where((outside | (draws.uniforms(people) < _ANYWHERE))[:, None], anywhere, places)
    norms = np.linalg.norm(moved, ord=domain.p, axis=1, keepdims=True)
    return np.asarray(moved / np.maximum(norms, 1.0))


def _normals(uniforms: Floats) -> Floats:
    """Return half as many normal numbers, by Box and Muller."""
    first, second = uniforms.reshape(2, -1)
    return np.asarray(np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * math.pi * second))


@dataclass(frozen=True)
class _Trials:
    """Trial rounds of mechanisms on made-up cities."""

    domain: Box | Ball
    crowd: int
    goal: str

    @property
    def how(self) -> Any:
        """The decoder."""
        return GOALS[self.goal]

    def error(self, randomizer: Randomizer) -> float:
        """Return the error of a mechanism, the mean over the cities."""
        effort = _effort(randomizer.epsilon)
        cities = _cities(self.domain, min(self.crowd, effort.people), effort.cities)
        return float(np.mean([self._error(randomizer, places) for places in cities]))

    def _error(self, randomizer: Randomizer, places: Floats) -> float:
        values = self.domain.from_unit(places)
        reports = randomizer.randomize(values, seeded(_SEED), clamp=True)
        return self._of(misses(self.domain, randomizer.estimate(reports, self.how), values))

    def _of(self, apart: Floats) -> float:
        """Return what the goal minimises of these distances."""
        if self.goal == "squared":
            return math.sqrt(float((apart * apart).mean()))
        return float(np.median(apart) if self.goal == "median" else apart.mean())

    def without_reports(self) -> float:
        """Return the error of one place for everybody, the middle: nobody knows a better one."""
        middle = self.domain.from_unit(np.zeros((1, self.domain.dimension)))
        cities = _cities(self.domain, min(self.crowd, _QUIET_EFFORT.people), _QUIET_EFFORT.cities)
        values = [self.domain.from_unit(places) for places in cities]
        return float(np.mean([self._of(misses(self.domain, middle, city)) for city in values]))


@cache
def _cities(domain: Box | Ball, people: int, count: int) -> tuple[Floats, ...]:
    return tuple(city(domain, number, people) for number in range(count))


def reads_batches(domain: object, goal: str) -> bool:
    """Return whether a batch of values of a domain can be read by its density, for a goal."""
    return isinstance(domain, Box | Ball) and domain.dimension <= DIMENSIONS and goal in GOALS


def best_for_crowd(
    domain: Box | Ball,
    *,
    budget: Budget,
    crowd: int,
    goal: str = "mean",
    others: Sequence[Randomizer] = (),
) -> Choice:
    """Return the mechanism that is best if a batch of `crowd` reports is read by its density.

    Args:
        domain: the domain of values.
        budget: the local ε that each shape may spend.
        crowd: how many reports the batch has.
        goal: mean, median or squared.
        others: further mechanisms to try, such as the best one for reports read one by one.
    """
    if not reads_batches(domain, goal):
        raise Misuse(
            f"a batch is read by density on boxes and balls of at most {DIMENSIONS} dimensions, for"
            f" the goals {', '.join(GOALS)}; leave out `crowd`"
        )
    if crowd < 1:
        raise Misuse(f"`crowd` must be at least 1, got {crowd}")
    trials = _Trials(domain, crowd, goal)
    tried = {radius: _cap(trials, budget, radius) for radius in _RADII}
    for step in (math.sqrt(2), 2**0.25):  # finer around the best
        middle = min(tried, key=lambda radius: tried[radius][0])
        finer = [radius for radius in (middle / step, middle * step) if radius < 1]
        tried |= {radius: _cap(trials, budget, radius) for radius in finer}
    least, widest = min(tried.values(), key=itemgetter(0))
    tie = _effort(widest.epsilon).tie
    error, randomizer = tried[min(x for x, (error, _) in tried.items() if error <= tie * least)]
    for rival in (other for other in others if trials.how in other.decodes):
        rivals_error = trials.error(rival)
        if rivals_error * tie < error:
            error, randomizer = rivals_error, rival
    return Choice(
        randomizer=randomizer,
        how=trials.how,
        goal=goal,
        error=error,
        report_free=trials.without_reports(),
        crowd=crowd,
    )


def _cap(trials: _Trials, budget: Budget, radius: float) -> tuple[float, Randomizer]:
    """Return the error of a cap at the local ε that it may spend, and its mechanism."""
    randomizer = fit(partial(BoundedResponse, domain=trials.domain, radius=radius), budget)
    return trials.error(randomizer), randomizer
