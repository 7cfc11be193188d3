"""Matching two groups, riders and drivers say: at the least total distance, or as many as possible.

A person's answer is the position of their partner, or nothing. Both tasks are exact at every size.
With `candidates` above 1 an answer has several possible partners instead, who settle the matter by
letter. Neither task sees keys. Paper, spatial crowdsourcing.

    >>> import numpy as np
    >>> from coatcheck.tasks.matching import LeastCostMatching
    >>> riders, drivers = LeastCostMatching()([np.array([[0.0], [5.0]]), np.array([[4.0]])])
    >>> riders.of(0), riders.of(1)
    (array([], dtype=int64), array([0]))

A person's client loads this file to compute whom answers expose, so that whatever loads SciPy is
imported where it is used.
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
    checked,
    from_pairs,
    measured,
    positive,
)

_PROVEN = 1e-9  # a gap this small is the rounding of sums, not a better matching
_COSTS = ("distance", "expected")
_Solver = Callable[[Any, Any], Positions]


@dataclass(frozen=True, kw_only=True)
class _Matching:
    """What both matchings share; lists from the terms become tuples."""

    groups: tuple[str, str] = ("users", "workers")
    capacity: tuple[int, int] = (1, 1)
    scale: Scale = ()
    candidates: int = 1
    cost: str = "distance"

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.groups) != 2 or len(self.capacity) != 2:
            raise Misuse("a matching has two groups, and a capacity for each")
        if min(self.capacity) != 1:
            raise Misuse(
                f"capacity is at least 1, and above 1 on one side only, got {self.capacity}"
            )
        if self.candidates < 1 or int(self.candidates) != self.candidates:
            raise Misuse(f"candidates is a whole number from 1 up, got {self.candidates!r}")
        if self.candidates > 1 and max(self.capacity) > 1:
            raise Misuse("candidates settle on one partner each: leave capacity at 1")
        if self.cost not in _COSTS:
            raise Misuse(f"cost is one of {', '.join(_COSTS)}, got {self.cost!r}")
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "capacity", tuple(int(count) for count in self.capacity))
        object.__setattr__(self, "scale", checked(self.scale))

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Match the two groups; partners refer to each other, and so do candidates."""
        places = [measured(group, self.scale) for group in estimates]
        if self.candidates > 1:
            return _listed(places, self.candidates)
        return [*_told(_pair_up(places, self.capacity, self._solve), places)]

    @property
    def reads_beliefs(self) -> bool:
        """Whether pairs are judged by what they are expected to cost."""
        return self.cost == "expected"

    def with_beliefs(self, estimates: Sequence[Floats], beliefs: Sequence[Belief]) -> list[Answers]:
        """Match at the least expected cost, by where the values behind reports can have been."""
        from coatcheck.tasks.solvers.assignment import expected_costs, match_kinds  # noqa: PLC0415 - loads SciPy

        places = [measured(group, self.scale) for group in estimates]
        known = [replace(one, places=measured(one.places, self.scale)) for one in beliefs]
        small, large = _sides(places, self.capacity)
        if not len(places[small]):
            return self(estimates)
        costs = expected_costs(known[small], known[large], self._pair_cost)
        if self.candidates > 1:
            return _listed(places, self.candidates, (costs, [one.kinds for one in known]))

        def solve(rows: Positions, columns: Positions) -> Positions:
            partners, gap = match_kinds(costs, rows, columns)
            return self._proven(partners, gap)

        return [*_told(_pair_up([one.kinds for one in known], self.capacity, solve), places)]

    def _pair_cost(self, ours: Floats, theirs: Floats) -> Floats:
        """What a pair costs at these places."""
        from scipy.spatial.distance import cdist  # noqa: PLC0415 - loads SciPy

        return np.asarray(cdist(ours, theirs))

    def _proven(self, partners: Positions, gap: float, allowed: float = 0.0) -> Positions:
        if gap > max(allowed, _PROVEN):
            raise Refused(
                f"the matching is only proven to be within {gap:.1e} of the least cost, but "
                f"the task allows a gap of {allowed:g}; no answer is given that may be worse: "
                "allow a larger gap in the terms"
            )
        return partners

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        """The partner of each row, or -1."""
        raise NotImplementedError

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """One's partners, as many as one may have; or one's candidates on both lists."""
        told = self._most()
        return ((0, min(told[0], sizes[1])), (min(told[1], sizes[0]), 0))

    def _most(self) -> tuple[int, int]:
        """How many others an answer of each group names at most."""
        return self.capacity if self.candidates == 1 else (2 * self.candidates, 2 * self.candidates)

    def least_crowds(self) -> tuple[int, ...]:
        """As many on each side as the other side has candidates for."""
        return (self.candidates, self.candidates)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - references only
        """As many references as an answer names others."""
        return tuple(AnswerSize(references=count) for count in self._most())

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
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
        """The pairs that a round ends with: what was answered, or what candidates settle on.

        Candidates settle by their true places, and the least-cost matching of the estimates
        pairs those whom this leaves over.
        """
        answers = self(estimates) if answers is None else answers
        if self.candidates == 1:
            return answers
        from coatcheck.tasks.shortlists import settled  # noqa: PLC0415 - loads SciPy
        from coatcheck.tasks.solvers.assignment import assign  # noqa: PLC0415 - loads SciPy

        small, large = _sides(truth, self.capacity)
        places = [measured(group, self.scale) for group in truth]
        lists = lists_of(answers[small], self.candidates)
        partner = settled(places[small], places[large], lists)
        over = np.flatnonzero(partner < 0)
        left = np.setdiff1d(np.arange(len(places[large])), partner)
        seen = [measured(group, self.scale) for group in estimates]
        if len(over):
            partner[over] = left[assign(seen[small][over], seen[large][left]).columns]
        pairs = np.arange(len(partner)), partner
        return _told(pairs if small == 0 else pairs[::-1], places)


@dataclass(frozen=True, kw_only=True)
class LeastCostMatching(_Matching):
    """Match every member of the smaller side; the sum of distances is the least possible.

    Attributes:
        groups: what the two sides are called.
        capacity: how many partners one member of each side may have; only one side above 1.
        scale: one factor per axis that turns estimates into distances; empty for 1.
        candidates: above 1, how many possible partners each member of the smaller side gets, and
            as many again for a second pass.
        cost: "distance" between estimates, or "expected": the mean distance over where the values
            behind the reports can have been, by the density that the batch shows or by the prior.
        gap: the share by which the cost may exceed the least; 0 for the least itself. A matching
            that is not proven to be within it is refused.
    """

    gap: float = 0.0

    name = "least-cost-matching"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gap < 1:
            raise Misuse(f"gap is a share from 0 up to 1, got {self.gap!r}")

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        from coatcheck.tasks.solvers.assignment import assign  # noqa: PLC0415 - loads SciPy

        found = assign(rows, columns, gap=self.gap)
        return self._proven(found.columns, found.gap, self.gap)

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
        return {**super().params(), "gap": self.gap}

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """The total distance of those who name each other, which every optimum shares."""
        return float(_distances(estimates, answers, self.scale).sum())

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """The travel cost: the sum of the true distances between partners."""
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
        """A task to check."""
        return cls(radius=0.3)

    def _solve(self, rows: Floats, columns: Floats) -> Positions:
        from coatcheck.tasks.solvers.maximum import maximum  # noqa: PLC0415 - loads SciPy

        return maximum(rows, columns, radius=self.radius)

    def _pair_cost(self, ours: Floats, theirs: Floats) -> Floats:
        """One for a pair that is too far apart: the least sum has the most expected successes."""
        from scipy.spatial.distance import cdist  # noqa: PLC0415 - loads SciPy

        return np.asarray(cdist(ours, theirs) > self.radius, dtype=np.float64)

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
        return {**super().params(), "radius": self.radius}

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """The number of pairs within the radius, which every optimum shares."""
        apart = _distances(estimates, answers, self.scale)
        return float((apart <= self.radius * (1 + 1e-12)).sum())

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """The share of the smaller side that is matched and truly within the radius."""
        answers = self._pairs(truth, estimates, answers)
        sides = [len(group) * most for group, most in zip(truth, self.capacity, strict=True)]
        share = self.objective(truth, answers) / max(min(sides), 1)
        return Score(name="matched within the radius", value=share, higher_is_better=True)


def _sides(groups: Sequence[Sized], capacity: tuple[int, int]) -> tuple[int, int]:
    """The numbers of the smaller side and of the larger one, by the partners that they can have."""
    first, second = (len(group) * most for group, most in zip(groups, capacity, strict=True))
    return (1, 0) if first > second else (0, 1)


def _pair_up(
    reports: Sequence[Any], capacity: tuple[int, int], solve: _Solver
) -> tuple[Positions, Positions]:
    """Matched pairs of positions; a member with room for several is listed that many times."""
    owners = [np.repeat(np.arange(len(r)), c) for r, c in zip(reports, capacity, strict=True)]
    small, large = _sides(reports, capacity)
    if not len(owners[small]):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    partner = solve(reports[small][owners[small]], reports[large][owners[large]])
    matched = np.flatnonzero(partner >= 0)
    pairs = owners[small][matched], owners[large][partner[matched]]
    return pairs if small == 0 else (pairs[1], pairs[0])


def _told(pairs: tuple[Positions, Positions], places: Sequence[Floats]) -> list[References]:
    """The pairs as the answers of both sides."""
    return [
        from_pairs(pairs, reports=len(places[0]), group=1),
        from_pairs(pairs[::-1], reports=len(places[1]), group=0),
    ]


def _listed(
    places: list[Floats], count: int, costs: tuple[Floats, list[Positions]] | None = None
) -> list[Answers]:
    """The candidates of both sides: the first list of each person, then the second."""
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
    found: list[Answers] = []
    for own, told in enumerate(_told(pairs, places)):
        second = np.bincount(pairs[own][later[order]], minlength=len(places[own]))
        found.append(replace(told, second=second))
    return found


def lists_of(told: Answers, count: int) -> tuple[Positions, Positions]:
    """The two lists of each report as tables, (reports, count), filled up with -1."""
    if not isinstance(told, References) or told.second is None:
        raise Misuse("the answers of a matching with candidates have two lists")
    place = np.arange(len(told.indices)) - told.indptr[:-1][told.owners()]
    first = (told.counts() - told.second)[told.owners()]
    tables = np.full((2, len(told), count), -1)
    later = place >= first
    tables[later.astype(np.int64), told.owners(), place - later * first] = told.indices
    return tables[0], tables[1]


def _distances(places: Sequence[Floats], answers: Sequence[Answers], scale: Scale) -> Floats:
    """The distance between the partners of each pair."""
    first = answers[0]
    if not isinstance(first, References):
        raise Misuse("the answers of a matching are references")
    return first.apart(measured(places[0], scale), measured(places[1], scale))
