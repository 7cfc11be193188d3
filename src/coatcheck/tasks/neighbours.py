"""Who is near: the nearest of those within a radius, for everybody of one group.

On real check-ins a quarter of the crowd lies within the paper's radius, so an answer carries at
most `limit` neighbours; that is also what the accountant counts as exposed. Sees places, never
keys. Paper, location-based social systems.

    >>> import numpy as np
    >>> from coatcheck.tasks.neighbours import Neighbours
    >>> (found,) = Neighbours(radius=1.5, limit=1)([np.array([[0.0], [1.0], [1.2], [9.0]])])
    >>> [found.of(i).tolist() for i in range(4)]
    [[1], [2], [1], []]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from coatcheck.errors import Misuse
from coatcheck.tasks.contract import (
    Answers,
    AnswerSize,
    Floats,
    Positions,
    References,
    Scale,
    Score,
    checked,
    measured,
    positive,
)

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_CHUNK = 2**16
_SLACK = 1e-9  # the tree searches a little wider than asked; what it finds is compared exactly


class Listing:
    """A task among one group that tells everybody of at most `limit` others."""

    limit: int

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The limit, or everybody else if they are fewer."""
        return ((max(0, min(self.limit, sizes[0] - 1)),),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - references only
        """As many references as the limit."""
        return (AnswerSize(references=self.limit),)


@dataclass(frozen=True, kw_only=True)
class Neighbours(Listing):
    """Tell everybody the nearest `limit` of the others within `radius`, nearest first.

    Ties are settled by the places themselves, so the answer does not depend on the order; equal
    places are interchangeable.

    Attributes:
        radius: how far a neighbour may be, in the unit of distances.
        limit: the most neighbours that one answer holds, and exposes.
        mutual: keep only those who list each other. A person may otherwise be listed by more than
            `limit` others, who expose *themselves* if they write to a corrupted neighbour.
        scale: one factor per axis that turns estimates into distances; empty for 1.
    """

    radius: float
    limit: int = 16
    mutual: bool = False
    groups: tuple[str] = ("people",)
    scale: Scale = ()

    name = "neighbours"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive(self.radius, what="radius"))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "scale", checked(self.scale))
        if self.limit < 1 or len(self.groups) != 1:
            raise Misuse("neighbours need one group and a limit of at least 1")

    @classmethod
    def example(cls) -> "Neighbours":
        """A task to check."""
        return cls(radius=0.4, limit=3)

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Find everybody's neighbours."""
        places = self.placed(estimates[0])
        found = nearest_within(places, radius=self.radius, limit=self.limit)
        return [mutual_only(found) if self.mutual else found]

    @property
    def reach(self) -> float | None:
        """The radius; nothing less than everybody where lists must be mutual.

        Two regions may list different ones of those at one place, and then not each other.
        """
        return None if self.mutual else self.radius

    def placed(self, estimates: Floats) -> Floats:
        """The places in the unit of distances."""
        return measured(estimates, self.scale)

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
        return {
            "name": self.name,
            "radius": self.radius,
            "limit": self.limit,
            "mutual": self.mutual,
            "groups": list(self.groups),
            "scale": list(self.scale),
        }

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """The F1 of the lists as they are given out, each of at most `limit` people.

        Precision is the share of the listed who are truly within the radius. Recall is how many
        of them there are, as a share of what lists made from the true places would hold.
        """
        (found,) = self(estimates) if answers is None else answers
        if not isinstance(found, References):
            raise Misuse("the answers of neighbours are references")
        places = measured(truth[0], self.scale)
        apart = np.hypot.reduce(places[found.owners()] - places[found.indices], axis=1)
        right = int((apart <= self.radius).sum())
        possible = len(nearest_within(places, radius=self.radius, limit=self.limit).indices)
        total = len(found.indices) + possible
        value = 2 * right / total if total else 1.0
        return Score(name="F1 of the lists", value=value, higher_is_better=True)


def nearest_within(places: Floats, *, radius: float, limit: int) -> References:
    """The nearest `limit` others within the radius of each place, nearest first."""
    from scipy.spatial import cKDTree  # noqa: PLC0415 - SciPy is slow to load; clients only ask for `exposed`

    n = len(places)
    lists = np.full((n, limit), -1)
    tree = cKDTree(places if n else np.zeros((1, 1)))
    rank = np.empty(n, dtype=np.int64)
    rank[np.lexsort(places.T[::-1])] = np.arange(n)
    for start in range(0, n, _CHUNK):
        asking, count = np.arange(start, min(start + _CHUNK, n)), min(n, limit + 2)
        while len(asking):
            found, apart = _others(tree, places, asking, radius, count)
            found, apart = _in_order(found, apart, rank)
            clear = _clear(apart, limit) if count < n else np.ones(len(asking), dtype=np.bool_)
            settled = found[clear][:, :limit]
            lists[asking[clear], : settled.shape[1]] = settled
            asking, count = asking[~clear], min(n, 2 * count)
    kept = lists >= 0
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return References(0, indptr, lists[kept], ordered=True)


def _others(
    tree: "cKDTree", places: Floats, asking: Positions, radius: float, count: int
) -> tuple[Positions, Floats]:
    """The nearest others and their squared distances; -1 and infinity beyond the radius."""
    wide = radius * (1 + _SLACK)
    _, near = tree.query(places[asking], k=count, distance_upper_bound=wide)
    near = np.asarray(near).reshape(len(asking), count)
    there = (near < len(places)) & (near != asking[:, None])
    apart = ((places[asking][:, None, :] - places[np.where(there, near, 0)]) ** 2).sum(axis=2)
    apart[~there | (apart > radius * radius)] = np.inf
    return np.where(np.isfinite(apart), near, -1), apart


def _in_order(found: Positions, apart: Floats, rank: Positions) -> tuple[Positions, Floats]:
    """Nearest first, and of equally near ones the first by place."""
    order = np.lexsort((rank[found], apart), axis=1)
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(apart, order, axis=1)


def _clear(apart: Floats, limit: int) -> npt.NDArray[np.bool_]:
    """Whether nobody beyond what was looked at can be as near as the last who counts.

    One of the columns is the person (infinitely far), unless enough others are at the very same
    place; those are interchangeable.
    """
    last, beyond = apart[:, limit - 1], apart[:, -2]
    return np.asarray(np.isinf(beyond) | (beyond > last * (1 + _SLACK)) | (last == 0.0))


def mutual_only(found: References) -> References:
    """Only the references that are returned."""
    owners, indices, n = found.owners(), found.indices, len(found)
    kept = np.isin(owners * n + indices, indices * n + owners)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=n))])
    return References(0, indptr, indices[kept], ordered=True)


# HOUSE-DOC tasks.similar: 'Who is most like me: the nearest few over places, preferences and categories together.\n\nNumbers differ by their distance, categories by whether they are the same; a weight per number of a\nreport says what a difference counts. A category is read as one axis per label, so that two labels\nare as far apart as any other two. Sees estimates, never keys.\n\n    >>> import numpy as np\n    >>> from coatcheck.tasks.neighbours import Similar\n    >>> people = np.array([[0.0, 1], [0.1, 2], [0.3, 1]])  # a number, and one of three labels\n    >>> (found,) = Similar(limit=1, labels=(0, 3))([people])\n    >>> [found.of(i).tolist() for i in range(3)]\n    [[2], [2], [0]]\n'
@dataclass(frozen=True, kw_only=True)
class Similar(Listing):
    """Tell everybody the `limit` others who are most like them, most alike first.

    Attributes:
        limit: how many others an answer names, and exposes.
        weights: for each number of a report how much a difference of 1 counts, and for a category
            how much another label counts; empty for 1.
        labels: for each number of a report how many labels it chooses from, 0 if it is a quantity;
            empty if all are quantities.
        mutual: keep only those who list each other.
    """

    limit: int = 5
    weights: Scale = ()
    labels: tuple[int, ...] = ()
    mutual: bool = False
    groups: tuple[str] = ("people",)

    name: ClassVar[str] = "similar"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "weights", checked(self.weights))
        object.__setattr__(self, "labels", tuple(int(count) for count in self.labels))
        if self.limit < 1 or len(self.groups) != 1:
            raise Misuse("similar people are looked for in one group, with a limit of at least 1")
        if min(self.labels, default=0) < 0:
            raise Misuse(f"labels counts the labels of each number, 0 for none, got {self.labels}")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Find everybody's most similar others."""
        found = nearest_within(self._placed(estimates[0]), radius=np.inf, limit=self.limit)
        return [mutual_only(found) if self.mutual else found]

    def _placed(self, estimates: Floats) -> Floats:
        """The reports as points whose distances say how alike they are."""
        width = estimates.shape[1]
        weights = self.weights or (1.0,) * width
        labels = self.labels or (0,) * width
        if {len(weights), len(labels)} != {width}:
            raise Misuse(
                f"reports have {width} numbers: give as many weights and labels, or leave them out"
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
        """Parameters for the terms."""
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
        """How far apart people and those whom they are told truly are, on average."""
        (found,) = self(estimates) if answers is None else answers
        if not isinstance(found, References):
            raise Misuse("the answers about similar people are references")
        places = self._placed(truth[0])
        apart = found.apart(places, places)
        value = float(apart.mean()) if len(apart) else 0.0
        return Score(name="distance of the listed", value=value, higher_is_better=False)
