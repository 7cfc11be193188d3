"""Standing: for a private number, the share of the crowd below it, with an error bar.

A person gets three numbers: the share of people below them, the standard error of that share, and
the probability that they are above the median. Everybody also gets the nine deciles of the crowd,
among which people who know their true number can place it more exactly than the server can. Answers
name nobody, so nobody is exposed.

    >>> import numpy as np
    >>> from coatcheck.tasks.standing import Standing
    >>> (answers,) = Standing()([np.array([[3.0], [1.0], [2.0], [9.0]])])
    >>> answers.data[:, 0].tolist()
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
    """Answer everybody with the share of the crowd below them, and how sure that is.

    With estimates alone the task takes them for the truth. The server passes the posterior of each
    report as well (`with_beliefs`); then each share is its posterior mean, and the error its
    standard deviation.
    """

    groups: tuple[str] = ("people",)

    name: ClassVar[str] = "standing"
    dimensions: ClassVar[tuple[int]] = (1,)
    reads_beliefs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if len(self.groups) != 1:
            raise Misuse(f"`groups` must name one group, got {self.groups}")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Rank the estimates; equal ones share the middle of their ranks."""
        numbers, kinds, people = np.unique(
            _one_number(estimates[0]), return_inverse=True, return_counts=True
        )
        below, above = _ranks(people / max(1, people.sum()))
        answers = np.stack([below, np.zeros(len(below)), above], axis=1)
        return [Values(answers[kinds.ravel()], _deciles(numbers, people.astype(np.float64)))]

    def with_beliefs(self, estimates: Sequence[Floats], beliefs: Sequence[Belief]) -> list[Answers]:
        """Rank every number that may be behind a report, and average."""
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
        """Return 0: the answers hold numbers only."""
        return ((0,),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - always as many
        """Return three numbers for the person and nine for all."""
        return (AnswerSize(numbers=_NUMBERS + len(_TENTHS)),)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {"name": self.name, "groups": list(self.groups)}

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Return the mean difference between the share in the answers and the true one."""
        (ranks,) = self(estimates) if answers is None else answers
        (right,) = self(truth)
        if not (isinstance(ranks, Values) and isinstance(right, Values)):
            raise Misuse("the answers of a standing must be numbers, got references")
        apart = np.abs(ranks.data[:, 0] - right.data[:, 0])
        value = float(apart.mean()) if len(apart) else 0.0
        return Score(name="error of the share below", value=value, higher_is_better=False)


def _one_number(estimates: Floats) -> Floats:
    if estimates.shape[1] != 1:
        raise Misuse(f"a standing needs one number per person, got {estimates.shape[1]}")
    return estimates[:, 0]


def _ranks(crowd: Floats) -> tuple[Floats, Floats]:
    """Return for each number, in order, the share of people below, and if it is above half."""
    upto = np.cumsum(crowd)
    before = upto - crowd
    above = np.where(before >= 0.5, 1.0, np.where(upto <= 0.5, 0.0, 0.5))
    return before + crowd / 2, above


def _deciles(numbers: Floats, crowd: Floats) -> Floats:
    """Return the least number that each tenth of the people is at or below; 0 without people."""
    if not len(numbers):
        return np.zeros(len(_TENTHS))
    upto = np.cumsum(crowd) / crowd.sum()
    at = np.searchsorted(upto, _TENTHS * (1 - 1e-12))
    return np.asarray(numbers[np.minimum(at, len(numbers) - 1)], dtype=np.float64)
