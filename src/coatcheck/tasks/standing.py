"""Where do I stand: for a private number, the share of the crowd below it, with an error bar.

A person is told three numbers: the share of people below them, the standard error of that share,
and the chance that they are above the median. Everybody is also told the nine deciles of the crowd;
who knows their true number finds their place among these more exactly than the server can. Nobody
is named, so nobody is exposed. Sees numbers, never keys.

    >>> import numpy as np
    >>> from coatcheck.tasks.standing import Standing
    >>> (told,) = Standing()([np.array([[3.0], [1.0], [2.0], [9.0]])])
    >>> told.data[:, 0].tolist()
    [0.625, 0.125, 0.375, 0.875]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.contract import Answers, AnswerSize, Belief, Floats, Score, Values

_TENTHS = np.arange(1, 10) / 10
_NUMBERS = 3


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Tell everybody which share of the crowd is below them, and how sure that is.

    Called with estimates alone it takes them for the truth. The server also gives it what is known
    of each report (`with_beliefs`); then each share is the mean over where the number can have
    been, and the error is its standard deviation.
    """

    groups: tuple[str] = ("people",)

    name: ClassVar[str] = "standing"
    dimensions: ClassVar[tuple[int]] = (1,)
    reads_beliefs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if len(self.groups) != 1:
            raise Misuse("a standing is among the people of one group: name one group")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Rank the estimates; equal ones share the middle of their ranks."""
        numbers, kinds, people = np.unique(
            _one_number(estimates[0]), return_inverse=True, return_counts=True
        )
        below, above = _ranks(people / max(1, people.sum()))
        answers = np.stack([below, np.zeros(len(below)), above], axis=1)
        return [Values(answers[kinds.ravel()], _deciles(numbers, people.astype(np.float64)))]

    def with_beliefs(self, estimates: Sequence[Floats], beliefs: Sequence[Belief]) -> list[Answers]:
        """Rank every number that a report can stand for, and average."""
        if not len(_one_number(estimates[0])):
            return self(estimates)
        belief = beliefs[0]
        order = np.argsort(belief.places[:, 0], kind="stable")
        places, weights = belief.places[order, 0], belief.weights[:, order]
        crowd = np.bincount(belief.kinds, minlength=len(weights)) @ weights / len(belief.kinds)
        below, above = _ranks(crowd)
        share = weights @ below
        error = np.sqrt(np.maximum(weights @ below**2 - share**2, 0.0))
        answers = np.stack([share, error, weights @ above], axis=1)
        return [Values(answers[belief.kinds], _deciles(places, crowd))]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:  # noqa: ARG002 - nobody is named
        """Nobody: the answers hold numbers only."""
        return ((0,),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - always as many
        """Three numbers for the person, nine for all."""
        return (AnswerSize(numbers=_NUMBERS + len(_TENTHS)),)

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
        return {"name": self.name, "groups": list(self.groups)}

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """The mean difference between the share that people are told and their true one."""
        (ranks,) = self(estimates) if answers is None else answers
        (right,) = self(truth)
        if not (isinstance(ranks, Values) and isinstance(right, Values)):
            raise Misuse("the answers of a standing are numbers")
        apart = np.abs(ranks.data[:, 0] - right.data[:, 0])
        value = float(apart.mean()) if len(apart) else 0.0
        return Score(name="error of the share below", value=value, higher_is_better=False)


def _one_number(estimates: Floats) -> Floats:
    if estimates.shape[1] != 1:
        raise Misuse(f"a standing is of one number per person, these have {estimates.shape[1]}")
    return estimates[:, 0]


def _ranks(crowd: Floats) -> tuple[Floats, Floats]:
    """For each number, in order, the share of people below it, and whether it is above half."""
    upto = np.cumsum(crowd)
    before = upto - crowd
    above = np.where(before >= 0.5, 1.0, np.where(upto <= 0.5, 0.0, 0.5))
    return before + crowd / 2, above


def _deciles(numbers: Floats, crowd: Floats) -> Floats:
    """The least number that each tenth of the people is at or below; 0 of nobody."""
    if not len(numbers):
        return np.zeros(len(_TENTHS))
    upto = np.cumsum(crowd) / crowd.sum()
    at = np.searchsorted(upto, _TENTHS * (1 - 1e-12))
    return np.asarray(numbers[np.minimum(at, len(numbers) - 1)], dtype=np.float64)
