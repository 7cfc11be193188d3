"""Groups of equal size from nearby people, for shared rides or study groups.

The people are halved again and again, along the axis on which they spread most, until a half is one
group. Then people of neighbouring groups swap as long as that brings groups closer together. The
best grouping of a large crowd cannot be computed, so `bounds` says how much better it can be.

    >>> import numpy as np
    >>> from coatcheck.tasks.grouping import Groups
    >>> (answers,) = Groups(size=2)([np.array([[0.0], [5.0], [0.2], [5.1]])])
    >>> [answers.of(i).tolist() for i in range(4)]
    [[2], [3], [0], [1]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.contract import (
    Answers,
    AnswerSize,
    Floats,
    Positions,
    References,
    Scale,
    Score,
    checked_scale,
    from_pairs,
    normalised,
    scaled,
)

_SWEEPS = 30
_NEAR = 12  # others with whom a person may swap
_LEAST = 1e-12  # an exchange that gains less is the rounding of sums


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Put people into groups of `size`, close together; fewer than `size` people get no group.

    Attributes:
        size: how many people a group has.
        scale: one factor per axis that turns estimates into distances; empty for 1.
    """

    size: int = 4
    groups: tuple[str] = ("people",)
    scale: Scale = ()

    name: ClassVar[str] = "groups"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "scale", checked_scale(self.scale))
        if self.size < 2:
            raise Misuse(f"`size` must be two or more, got {self.size}")
        if len(self.groups) != 1:
            raise Misuse(f"`groups` must name one group, got {self.groups}")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Answer everybody with the others of their group."""
        places = scaled(estimates[0], self.scale)
        teams = group_up(places, self.size)
        owners = np.repeat(teams, self.size - 1, axis=1).ravel()
        others = np.tile(teams, (1, self.size)).reshape(len(teams), self.size, self.size)
        partners = others[:, ~np.eye(self.size, dtype=bool)].ravel()
        return [from_pairs((owners, partners), reports=len(places), group=0)]

    def least_crowds(self) -> tuple[int, ...]:
        """Return the size of one group."""
        return (self.size,)

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return how many people an answer names: the others of the person's group."""
        return ((max(0, min(self.size, sizes[0]) - 1),),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - references only
        """Return as many references as a group has others."""
        return (AnswerSize(references=self.size - 1),)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {
            "name": self.name,
            "size": self.size,
            "groups": list(self.groups),
            "scale": list(self.scale),
        }

    def bounds(
        self, estimates: Sequence[Floats], answers: Sequence[Answers]
    ) -> tuple[float, float]:
        """Return the mean distance within groups, and a lower bound for any grouping.

        Nobody is nearer to the others of a group than to their nearest neighbours.
        """
        (places,), unit = normalised(scaled(estimates[0], self.scale))
        teams = len(places) // self.size
        if not teams:
            return 0.0, 0.0
        from scipy.spatial import cKDTree  # noqa: PLC0415 - loads SciPy

        apart = self._apart(estimates, answers)
        near, _ = cKDTree(places).query(places, k=self.size)
        bounds = np.sort(np.asarray(near)[:, 1:].sum(axis=1))[: teams * self.size]
        return float(apart.mean()), float(bounds.mean()) / (self.size - 1) * unit

    def _apart(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> Floats:
        """Return the distance of everybody to every other of their group."""
        (references,) = answers
        if not isinstance(references, References):
            raise Misuse("the answers of groups must be references, got numbers")
        places = scaled(estimates[0], self.scale)
        return references.apart(places, places)

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the mean true distance between two people of a group."""
        apart = self._apart(truth, self(estimates) if answers is None else answers)
        value = float(apart.mean()) if len(apart) else 0.0
        return Score(name="distance within groups", value=value, higher_is_better=False)


def group_up(places: Floats, size: int) -> Positions:
    """Return the members of each group, (groups, size); the most remote people have none."""
    from scipy.spatial import cKDTree  # noqa: PLC0415 - loads SciPy

    order = np.lexsort(places.T[::-1])
    (sorted_places,), _ = normalised(places[order])
    over = len(places) % size
    inside = np.arange(len(places))
    if over and len(places) > size:
        near, _ = cKDTree(sorted_places).query(sorted_places, k=size)
        remote = np.argsort(-np.asarray(near)[:, -1], kind="stable")[:over]
        inside = np.delete(inside, remote)
    if len(places) < size:
        return np.empty((0, size), dtype=np.int64)
    grouped = sorted_places[inside]
    team_of = _halved(grouped, size)
    if len(grouped) > size:
        _exchange(grouped, team_of, size)
    return order[inside[np.argsort(team_of, kind="stable")]].reshape(-1, size)


def _halved(places: Floats, size: int) -> Positions:
    """Return the group of each place, when the places are halved until a half is one group."""
    team_of, teams = np.empty(len(places), dtype=np.int64), 0
    parts = [np.arange(len(places))]
    while parts:
        part = parts.pop()
        if len(part) == size:
            team_of[part] = teams
            teams += 1
            continue
        axis = int(np.argmax(np.ptp(places[part], axis=0)))
        by_axis = part[np.argsort(places[part, axis], kind="stable")]
        cut = len(part) // size // 2 * size
        parts += [by_axis[cut:], by_axis[:cut]]
    return team_of


def _exchange(places: Floats, team_of: Positions, size: int) -> None:
    """Swap near people of two groups while that brings their groups closer together."""
    from scipy.spatial import cKDTree  # noqa: PLC0415 - loads SciPy

    n = len(places)
    _, near = cKDTree(places).query(places, k=min(n, _NEAR + 1))
    first_of_pair = np.repeat(np.arange(n), near.shape[1])
    second_of_pair = np.asarray(near).ravel()
    first_of_pair, second_of_pair = (
        first_of_pair[first_of_pair < second_of_pair],
        second_of_pair[first_of_pair < second_of_pair],
    )
    for _ in range(_SWEEPS):
        members = np.argsort(team_of, kind="stable").reshape(-1, size)
        apart = team_of[first_of_pair] != team_of[second_of_pair]
        a, b = first_of_pair[apart], second_of_pair[apart]
        # The distances of each to their own group, and to the other's after the swap.
        now = _to_team(places, a, members[team_of[a]]) + _to_team(places, b, members[team_of[b]])
        both = np.hypot.reduce(places[a] - places[b], axis=1)
        then = _to_team(places, a, members[team_of[b]]) + _to_team(places, b, members[team_of[a]])
        gain = now - (then - 2 * both)
        better = np.flatnonzero(gain > _LEAST)
        if not len(better):
            return
        better = better[np.argsort(-gain[better], kind="stable")]
        touched = np.zeros(len(members), dtype=bool)
        for i in better:  # each group changes once per sweep, so that the gains stay true
            first, second = team_of[a[i]], team_of[b[i]]
            if not (touched[first] or touched[second]):
                touched[first] = touched[second] = True
                team_of[a[i]], team_of[b[i]] = second, first


def _to_team(places: Floats, people: Positions, members: Positions) -> Floats:
    """Return the sum of distances from each person to these members."""
    gaps = places[people][:, None, :] - places[members]
    return np.asarray(np.sqrt((gaps**2).sum(axis=2)).sum(axis=1))
