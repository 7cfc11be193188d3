"""Who is most like me: the nearest few over places, preferences and categories together.

Numbers differ by their distance, categories by whether they are the same; a weight per number of a
report says what a difference counts. A category is read as one axis per label, so that two labels
are as far apart as any other two. Sees estimates, never keys.

    >>> import numpy as np
    >>> from coatcheck.tasks.similar import Similar
    >>> people = np.array([[0.0, 1], [0.1, 2], [0.3, 1]])  # a number, and one of three labels
    >>> (found,) = Similar(limit=1, labels=(0, 3))([people])
    >>> [found.of(i).tolist() for i in range(3)]
    [[2], [2], [0]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Answers, Floats, References, Score
from coatcheck.tasks.distances import Scale, checked
from coatcheck.tasks.neighbours import Listing, mutual_only, nearest_within


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
