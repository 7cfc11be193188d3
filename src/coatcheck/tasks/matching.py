"""Matchings of two groups, such as riders and drivers: of least total distance, or of most pairs.

The answer of a person is the position of their partner, or empty. Both tasks are exact at every
size. With `candidates` above 1 an answer holds several possible partners instead, who settle by
letter. Paper, spatial crowdsourcing.

    >>> import numpy as np
    >>> from coatcheck.tasks.matching import LeastCostMatching
    >>> riders, drivers = LeastCostMatching()([np.array([[0.0], [5.0]]), np.array([[4.0]])])
    >>> riders.of(0), riders.of(1)
    (array([], dtype=int64), array([0]))

A person's client loads this file to compute how many people the answers expose. So functions import
what loads SciPy where they use it.
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coatcheck.errors import Misuse, Refused
from coatcheck.tasks.contract import (
    Answers,
    AnswerSize,
    Belief,
    Floats,
    Positions,
    References,
    Scale,
    Score,
    checked_scale,
    from_pairs,
    positive,
    scaled,
)

_PROVEN = 1e-9  # a gap this small is the rounding of sums, not a better matching
_COSTS = ("distance", "expected")
_Solver = Callable[[Any, Any], Positions]


@dataclass(frozen=True, kw_only=True)
class _Matching:
    """The common part of both matchings; lists from the terms become tuples."""

    groups: tuple[str, str] = ("users", "workers")
    capacity: tuple[int, int] = (1, 1)
    scale: Scale = ()
    candidates: int = 1
    cost: str = "distance"

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.groups) != 2:
            raise Misuse(f"`groups` must name two groups, got {self.groups}")
        if len(self.capacity) != 2:
            raise Misuse(f"`capacity` must have one number per group, two, got {self.capacity}")
        if min(self.capacity) < 1:
            raise Misuse(f"`capacity` must be at least 1 in each group, got {self.capacity}")
        if min(self.capacity) > 1:
            raise Misuse(f"`capacity` may be above 1 in one group only, got {self.capacity}")
        if self.candidates < 1 or int(self.candidates) != self.candidates:
            raise Misuse(f"`candidates` must be a whole number from 1 on, got {self.candidates!r}")
        if self.candidates > 1 and max(self.capacity) > 1:
            raise Misuse("candidates settle on one partner each; leave `capacity` at 1")
        if self.cost not in _COSTS:
            raise Misuse(f"`cost` must be one of {', '.join(_COSTS)}, got {self.cost!r}")
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "capacity", tuple(int(count) for count in self.capacity))
        object.__setattr__(self, "scale", checked_scale(self.scale))

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Match the two groups; partners refer to each other, and so do candidates."""
        places = [scaled(group, self.scale) for group in estimates]
        if self.candidates > 1:
            return _listed(places, self.candidates)
        return [*_both_sides(_pair_up(places, self.capacity, self._solve), places)]

    @property
    def reads_beliefs(self) -> bool:
        """Return whether the cost of a pair is its expected cost."""
        return self.cost == "expected"

    def with_beliefs(self, estimates: Sequence[Floats], beliefs: Sequence[Belief]) -> list[Answers]:
        """Match at the least expected cost, under the posteriors of the values."""
        from coatcheck.tasks.solvers.assignment import expected_costs, match_kinds  # noqa: PLC0415 - loads SciPy

        places = [scaled(group, self.scale) for group in estimates]
        scaled_beliefs = [
            replace(belief, places=scaled(belief.places, self.scale)) for belief in beliefs
        ]
        small, large = _sides(places, self.capacity)
        if not len(places[small]):
            return self(estimates)
        costs = expected_costs(scaled_beliefs[small], scaled_beliefs[large], self._pair_cost)
        if self.candidates > 1:
            return _listed(
                places, self.candidates, (costs, [belief.kinds for belief in scaled_beliefs])
            )

        def solve(rows: Positions, columns: Positions) -> Positions:
            partners, gap = match_kinds(costs, rows, columns)
            return self._proven(partners, gap)

        return [
            *_both_sides(
                _pair_up([belief.kinds for belief in scaled_beliefs], self.capacity, solve), places
            )
        ]

    def _pair_cost(self, ours: Floats, theirs: Floats) -> Floats:
        """Return what a pair costs at these places."""
        from scipy.spatial.distance import cdist  # noqa: PLC0415 - loads SciPy

        return np.asarray(cdist(ours, theirs))

    def _proven(self, partners: Positions, gap: float, allowed: float = 0.0) -> Positions:
        if gap > max(allowed, _PROVEN):
            raise Refused(
                f"the matching is only proven to be within {gap:.1e} of the least cost, but the "
                f"task allows a gap of {allowed:g}, so no answer is released; to accept it, "
                "allow a larger gap in the terms"
            )
        return partners

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        """Return the partner of each row, or -1."""
        raise NotImplementedError

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the most partners that a person may have, or candidates on both lists."""
        limits = self._partner_limits()
        return ((0, min(limits[0], sizes[1])), (min(limits[1], sizes[0]), 0))

    def _partner_limits(self) -> tuple[int, int]:
        """Return how many people of the other group an answer of each group names at most."""
        return self.capacity if self.candidates == 1 else (2 * self.candidates, 2 * self.candidates)

    def least_crowds(self) -> tuple[int, ...]:
        """Return the least crowds: each side must have as many people as one list names."""
        return (self.candidates, self.candidates)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - references only
        """Return as many references as an answer names others."""
        return tuple(AnswerSize(references=count) for count in self._partner_limits())

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {
            "name": self.name,
            "groups": list(self.groups),
            "capacity": list(self.capacity),
            "scale": list(self.scale),
            "candidates": self.candidates,
            "cost": self.cost,
        }

    def _pairs(
        self,
        truth: Sequence[Floats],
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None,
    ) -> Sequence[Answers]:
        """Return the final pairs of a round: the answers, or the pairs on which candidates settle.

        Candidates settle by their true places; the least-cost matching of the estimates pairs
        those who remain.
        """
        answers = self(estimates) if answers is None else answers
        if self.candidates == 1:
            return answers
        from coatcheck.tasks.shortlists import settled  # noqa: PLC0415 - loads SciPy
        from coatcheck.tasks.solvers.assignment import assign  # noqa: PLC0415 - loads SciPy

        small, large = _sides(truth, self.capacity)
        places = [scaled(group, self.scale) for group in truth]
        lists = lists_of(answers[small], self.candidates)
        partner = settled(places[small], places[large], lists)
        unpaired = np.flatnonzero(partner < 0)
        unused = np.setdiff1d(np.arange(len(places[large])), partner)
        estimated = [scaled(group, self.scale) for group in estimates]
        if len(unpaired):
            rows, columns = estimated[small][unpaired], estimated[large][unused]
            partner[unpaired] = unused[assign(rows, columns).columns]
        pairs = np.arange(len(partner)), partner
        return _both_sides(pairs if small == 0 else pairs[::-1], places)


@dataclass(frozen=True, kw_only=True)
class LeastCostMatching(_Matching):
    """Match every member of the smaller side; the sum of distances is the least possible.

    Attributes:
        groups: what the two sides are called.
        capacity: how many partners one member of each side may have; only one side above 1.
        scale: one factor per axis that turns estimates into distances; empty for 1.
        candidates: above 1, how many possible partners each member of the smaller side gets, and
            as many again for a second pass.
        cost: "distance" between estimates, or "expected": the mean distance under the posteriors
            of the values, by the density that the batch shows or by the prior.
        gap: the share by which the cost may exceed the least; 0 for the least itself. A matching
            that is not proven to be within it is refused.
    """

    gap: float = 0.0

    name = "least-cost-matching"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gap < 1:
            raise Misuse(f"`gap` must be from 0 to below 1, got {self.gap!r}")

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        from coatcheck.tasks.solvers.assignment import assign  # noqa: PLC0415 - loads SciPy

        assignment = assign(rows, columns, gap=self.gap)
        return self._proven(assignment.columns, assignment.gap, self.gap)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {**super().params(), "gap": self.gap}

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """Return the total distance between partners, which every optimum shares."""
        return float(_distances(estimates, answers, self.scale).sum())

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the travel cost: the sum of the true distances between partners."""
        cost = self.objective(truth, self._pairs(truth, estimates, answers))
        return Score(name="travel cost", value=cost, higher_is_better=False)


@dataclass(frozen=True, kw_only=True)
class MaximumMatching(_Matching):
    """Match as many as possible of those at most `radius` apart; the others get no partner.

    Attributes:
        radius: the farthest that partners may be apart, in the unit of distances.
        groups: what the two sides are called.
        capacity: how many partners one member of each side may have; only one side above 1.
        scale: one factor per axis that turns estimates into distances; empty for 1.
        candidates: above 1, how many possible partners each member of the smaller side gets, and
            as many again for a second pass; the nearest, whether or not within the radius.
        cost: "distance" between estimates, or "expected": everybody of the smaller side is matched
            so that the expected number of pairs within the radius is largest.
    """

    radius: float

    name = "maximum-matching"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radius", positive(self.radius, what="radius"))

    @classmethod
    def example(cls) -> "MaximumMatching":
        """Return a task to check."""
        return cls(radius=0.3)

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        from coatcheck.tasks.solvers.maximum import maximum  # noqa: PLC0415 - loads SciPy

        return maximum(rows, columns, radius=self.radius)

    def _pair_cost(self, ours: Floats, theirs: Floats) -> Floats:
        """Return 1 for a pair that is too far apart, so that the least sum has most pairs."""
        from scipy.spatial.distance import cdist  # noqa: PLC0415 - loads SciPy

        return np.asarray(cdist(ours, theirs) > self.radius, dtype=np.float64)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {**super().params(), "radius": self.radius}

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """Return the number of pairs within the radius, which every optimum shares."""
        apart = _distances(estimates, answers, self.scale)
        return float((apart <= self.radius * (1 + 1e-12)).sum())

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the share of the smaller side that is matched and truly within the radius."""
        answers = self._pairs(truth, estimates, answers)
        sides = [len(group) * most for group, most in zip(truth, self.capacity, strict=True)]
        share = self.objective(truth, answers) / max(min(sides), 1)
        return Score(name="matched within the radius", value=share, higher_is_better=True)


def _sides(groups: Sequence[Sized], capacity: tuple[int, int]) -> tuple[int, int]:
    """Return the index of the side with fewer partners to have, then that of the other."""
    first, second = (len(group) * most for group, most in zip(groups, capacity, strict=True))
    return (1, 0) if first > second else (0, 1)


def _pair_up(
    reports: Sequence[Any], capacity: tuple[int, int], solve: _Solver
) -> tuple[Positions, Positions]:
    """Return matched pairs of positions; a member counts as often as its capacity."""
    owners = [np.repeat(np.arange(len(r)), c) for r, c in zip(reports, capacity, strict=True)]
    small, large = _sides(reports, capacity)
    if not len(owners[small]):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    partner = solve(reports[small][owners[small]], reports[large][owners[large]])
    matched = np.flatnonzero(partner >= 0)
    pairs = owners[small][matched], owners[large][partner[matched]]
    return pairs if small == 0 else (pairs[1], pairs[0])


def _both_sides(pairs: tuple[Positions, Positions], places: Sequence[Floats]) -> list[References]:
    """Return the pairs as the answers of both sides."""
    return [
        from_pairs(pairs, reports=len(places[0]), group=1),
        from_pairs(pairs[::-1], reports=len(places[1]), group=0),
    ]


def _listed(
    places: list[Floats], count: int, costs: tuple[Floats, list[Positions]] | None = None
) -> list[Answers]:
    """Return the candidates of both sides: the first list of each person, then the second."""
    from coatcheck.tasks.shortlists import candidates  # noqa: PLC0415 - loads SciPy

    small, large = _sides(places, (1, 1))
    table = costs and (costs[0], costs[1][small], costs[1][large])
    lists = candidates(places[small], places[large], count=count, table=table)
    named = np.concatenate(lists, axis=1)
    owners, at = np.nonzero(named >= 0)
    later = at >= count
    order = np.argsort(later, kind="stable")
    pairs = owners[order], named[owners, at][order]
    pairs = pairs if small == 0 else pairs[::-1]
    answers: list[Answers] = []
    for own, references in enumerate(_both_sides(pairs, places)):
        second = np.bincount(pairs[own][later[order]], minlength=len(places[own]))
        answers.append(replace(references, second=second))
    return answers


def lists_of(answers: Answers, count: int) -> tuple[Positions, Positions]:
    """Return the two lists of each report as tables, (reports, count), filled up with -1."""
    if not isinstance(answers, References) or answers.second is None:
        raise Misuse("the answers of a matching with candidates must be references in two lists")
    place = np.arange(len(answers.indices)) - answers.indptr[:-1][answers.owners()]
    first = (answers.counts() - answers.second)[answers.owners()]
    tables = np.full((2, len(answers), count), -1)
    later = place >= first
    tables[later.astype(np.int64), answers.owners(), place - later * first] = answers.indices
    return tables[0], tables[1]


def _distances(places: Sequence[Floats], answers: Sequence[Answers], scale: Scale) -> Floats:
    """Return the distance between the partners of each pair."""
    first = answers[0]
    if not isinstance(first, References):
        raise Misuse("the answers of a matching must be references, got numbers")
    return first.apart(scaled(places[0], scale), scaled(places[1], scale))
