"""The nearest people: by place within a radius, or by several fields together.

On real check-ins a quarter of the crowd is within the paper's radius, so an answer of `Neighbours`
holds at most `limit` people, which is also what the accountant counts as exposed. Paper,
location-based social systems.

`Similar` compares places, preferences and categories together. Numbers differ by their distance,
categories by whether they are the same; a weight per number says how much a difference counts.

    >>> import numpy as np
    >>> from coatcheck.tasks.neighbours import Neighbours
    >>> (answers,) = Neighbours(radius=1.5, limit=1)([np.array([[0.0], [1.0], [1.2], [9.0]])])
    >>> [answers.of(i).tolist() for i in range(4)]
    [[1], [2], [1], []]

    >>> from coatcheck.tasks.neighbours import Similar
    >>> people = np.array([[0.0, 1], [0.1, 2], [0.3, 1]])  # a number, and one of three labels
    >>> (answers,) = Similar(limit=1, labels=(0, 3))([people])
    >>> [answers.of(i).tolist() for i in range(3)]
    [[2], [0], [0]]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from coatcheck.errors import Misuse
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
    positive,
    scaled,
)

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_CHOICES = ("distance", "chance")
_CHUNK = 2**16
_SLACK = 1e-9  # the tree searches this much wider; its results are then compared exactly


class Listing:
    """A task in one group that names at most `limit` others to everybody."""

    limit: int

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the limit, or everybody else if they are fewer."""
        return ((max(0, min(self.limit, sizes[0] - 1)),),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - references only
        """Return as many references as the limit."""
        return (AnswerSize(references=self.limit),)


@dataclass(frozen=True, kw_only=True)
class Neighbours(Listing):
    """Answer everybody with the nearest `limit` of the others within `radius`, nearest first.

    The places themselves break ties, so the answer does not depend on the order of reports; equal
    places are interchangeable.

    Attributes:
        radius: how far a neighbour may be, in the unit of distances.
        limit: the most neighbours that one answer holds, and exposes.
        mutual: list only people who list each other. Otherwise more than `limit` others may list
            a person, and expose *themselves* if they write to a corrupted neighbour.
        by: how people are chosen: `distance` between estimates; or `chance`, for mutual lists of
            people who find out by letter who is near: those most likely within the radius, under
            the posteriors of all values.
        scale: one factor per axis that turns estimates into distances; empty for 1.
    """

    radius: float
    limit: int = 16
    mutual: bool = False
    groups: tuple[str] = ("people",)
    scale: Scale = ()
    by: str = "distance"

    name = "neighbours"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive(self.radius, what="radius"))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "scale", checked_scale(self.scale))
        if self.limit < 1:
            raise Misuse(f"`limit` must be at least 1, got {self.limit}")
        if len(self.groups) != 1:
            raise Misuse(f"`groups` must name one group, got {self.groups}")
        if self.by not in _CHOICES:
            raise Misuse(f"`by` must be one of {', '.join(_CHOICES)}, got {self.by!r}")
        if self.by == "chance" and not self.mutual:
            raise Misuse("lists by `chance` are mutual: set `mutual`, or choose by distance")

    @classmethod
    def example(cls) -> "Neighbours":
        """Return a task to check."""
        return cls(radius=0.4, limit=3)

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Find everybody's neighbours."""
        places = self.placed(estimates[0])
        lists = nearest_within(places, radius=self.radius, limit=self.limit)
        return [mutual_only(lists) if self.mutual else lists]

    @property
    def reads_beliefs(self) -> bool:
        """Return whether lists are chosen by chance."""
        return self.by == "chance"

    def with_beliefs(self, estimates: Sequence[Floats], beliefs: Sequence[Belief]) -> list[Answers]:  # noqa: ARG002 - beliefs say more
        """List for everybody those who are most likely near."""
        from coatcheck.tasks.likely_lists import likely_lists  # noqa: PLC0415 - loads SciPy

        (belief,) = beliefs
        belief = replace(belief, places=scaled(belief.places, self.scale))
        return [likely_lists(belief, radius=self.radius, limit=self.limit)]

    @property
    def reach(self) -> float | None:
        """Return the radius; None, which means everybody, if lists must be mutual.

        Of several people at one place two regions may list different ones, so their lists would
        not be mutual.
        """
        return None if self.mutual else self.radius

    def placed(self, estimates: Floats) -> Floats:
        """Return the places in the unit of distances."""
        return scaled(estimates, self.scale)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {
            "name": self.name,
            "radius": self.radius,
            "limit": self.limit,
            "mutual": self.mutual,
            "groups": list(self.groups),
            "scale": list(self.scale),
            "by": self.by,
        }

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the F1 score of the lists, each of at most `limit` people.

        Precision is the share of listed people who are truly within the radius. Recall is their
        number as a share of the entries that lists from the true places would have.
        """
        (lists,) = self(estimates) if answers is None else answers
        if not isinstance(lists, References):
            raise Misuse("the answers of neighbours must be references, got numbers")
        places = scaled(truth[0], self.scale)
        apart = np.hypot.reduce(places[lists.owners()] - places[lists.indices], axis=1)
        right = int((apart <= self.radius).sum())
        possible = len(nearest_within(places, radius=self.radius, limit=self.limit).indices)
        total = len(lists.indices) + possible
        value = 2 * right / total if total else 1.0
        return Score(name="F1 of the lists", value=value, higher_is_better=True)


def nearest_within(places: Floats, *, radius: float, limit: int) -> References:
    """Return the nearest `limit` others within the radius of each place, nearest first."""
    from scipy.spatial import cKDTree  # noqa: PLC0415 - SciPy is slow to load; clients only ask for `exposed`

    n = len(places)
    lists = np.full((n, limit), -1)
    tree = cKDTree(places if n else np.zeros((1, 1)))
    rank = np.empty(n, dtype=np.int64)
    rank[np.lexsort(places.T[::-1])] = np.arange(n)
    for start in range(0, n, _CHUNK):
        asking, count = np.arange(start, min(start + _CHUNK, n)), min(n, limit + 2)
        while len(asking):
            others, apart = _others(tree, places, asking, radius, count)
            others, apart = _in_order(others, apart, rank)
            clear = _clear(apart, limit) if count < n else np.ones(len(asking), dtype=np.bool_)
            final = others[clear][:, :limit]
            lists[asking[clear], : final.shape[1]] = final
            asking, count = asking[~clear], min(n, 2 * count)
    filled = lists >= 0
    indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
    return References(0, indptr, lists[filled], ordered=True)


def _others(
    tree: "cKDTree", places: Floats, asking: Positions, radius: float, count: int
) -> tuple[Positions, Floats]:
    """Return the nearest others and their squared distances; -1 and infinity beyond the radius."""
    wide = radius * (1 + _SLACK)
    _, near = tree.query(places[asking], k=count, distance_upper_bound=wide)
    near = np.asarray(near).reshape(len(asking), count)
    is_other = (near < len(places)) & (near != asking[:, None])
    apart = ((places[asking][:, None, :] - places[np.where(is_other, near, 0)]) ** 2).sum(axis=2)
    apart[~is_other | (apart > radius * radius)] = np.inf
    return np.where(np.isfinite(apart), near, -1), apart


def _in_order(others: Positions, apart: Floats, rank: Positions) -> tuple[Positions, Floats]:
    """Sort nearest first, and equally near ones by place."""
    order = np.lexsort((rank[others], apart), axis=1)
    return np.take_along_axis(others, order, axis=1), np.take_along_axis(apart, order, axis=1)


def _clear(apart: Floats, limit: int) -> npt.NDArray[np.bool_]:
    """Return whether nobody beyond these columns can be as near as the last person listed.

    One of the columns is the person (infinitely far), unless enough others are at the very same
    place, who are interchangeable.
    """
    last, beyond = apart[:, limit - 1], apart[:, -2]
    return np.asarray(np.isinf(beyond) | (beyond > last * (1 + _SLACK)) | (last == 0.0))


WANTED = 5
"""How many near people everybody wants to find: more make nobody better served."""


def share_found(
    lists: References,
    places: Floats,
    *,
    radius: float,
    owners: Positions | None = None,
    wanted: int = WANTED,
) -> float:
    """Return the share of the near people, up to `wanted` for everybody, who are on the lists.

    `owners` says whose place belongs to each report, -1 for decoys; by default all in order.
    """
    from scipy.spatial import cKDTree  # noqa: PLC0415 - SciPy is slow to load

    owners = np.arange(len(lists)) if owners is None else owners
    people, others = owners[lists.owners()], owners[lists.indices]
    both = (people >= 0) & (others >= 0)
    people, others = people[both], others[both]
    near = np.hypot.reduce(places[people] - places[others], axis=1) <= radius
    near_listed = np.bincount(people[near], minlength=len(places))
    tree = cKDTree(places)
    there = tree.query_ball_point(places, radius, return_length=True) - 1
    possible = int(np.minimum(there, wanted).sum())
    return float(np.minimum(near_listed, wanted).sum()) / possible if possible else 1.0


def mutual_only(references: References) -> References:
    """Return only the references that are mutual."""
    owners, indices, n = references.owners(), references.indices, len(references)
    returned = np.isin(owners * n + indices, indices * n + owners)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners[returned], minlength=n))])
    return References(0, indptr, indices[returned], ordered=True)


@dataclass(frozen=True, kw_only=True)
class Similar(Listing):
    """Answer everybody with the `limit` others most like them, the most alike first.

    Attributes:
        limit: how many others an answer names, and exposes.
        weights: for each number of a report how much a difference of 1 counts, and for a category
            how much another label counts; empty for 1.
        labels: for each number of a report how many labels it may be, 0 for a quantity; empty if
            all are quantities.
        mutual: list only people who list each other.
    """

    limit: int = 5
    weights: Scale = ()
    labels: tuple[int, ...] = ()
    mutual: bool = False
    groups: tuple[str] = ("people",)

    name: ClassVar[str] = "similar"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "weights", checked_scale(self.weights))
        object.__setattr__(self, "labels", tuple(int(count) for count in self.labels))
        if self.limit < 1:
            raise Misuse(f"`limit` must be at least 1, got {self.limit}")
        if len(self.groups) != 1:
            raise Misuse(f"`groups` must name one group, got {self.groups}")
        if min(self.labels, default=0) < 0:
            raise Misuse(f"`labels` must be at least 0, 0 for a quantity, got {self.labels}")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Find everybody's most similar others."""
        lists = nearest_within(self._placed(estimates[0]), radius=np.inf, limit=self.limit)
        return [mutual_only(lists) if self.mutual else lists]

    def _placed(self, estimates: Floats) -> Floats:
        """Return the reports as points whose distances say how alike they are."""
        width = estimates.shape[1]
        weights = self.weights or (1.0,) * width
        labels = self.labels or (0,) * width
        if {len(weights), len(labels)} != {width}:
            raise Misuse(
                f"reports have {width} numbers; give as many `weights` and `labels`, or none"
            )
        axes = []
        for column, weight, count in zip(estimates.T, weights, labels, strict=True):
            if count:
                same = np.rint(column)[:, None] == np.arange(count)
                axes.append(same * (weight / np.sqrt(2)))  # two labels: the weight apart
            else:
                axes.append(column[:, None] * weight)
        return np.concatenate([*axes, np.empty((len(estimates), 0))], axis=1)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {
            "name": self.name,
            "limit": self.limit,
            "weights": list(self.weights),
            "labels": list(self.labels),
            "mutual": self.mutual,
            "groups": list(self.groups),
        }

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the mean true distance between people and those on their lists."""
        (lists,) = self(estimates) if answers is None else answers
        if not isinstance(lists, References):
            raise Misuse("the answers of similar must be references, got numbers")
        places = self._placed(truth[0])
        apart = lists.apart(places, places)
        value = float(apart.mean()) if len(apart) else 0.0
        return Score(name="distance of the listed", value=value, higher_is_better=False)
