"""Tasks with deliberate faults that the checker must detect."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coatcheck.entropy import seeded
from coatcheck.tasks import Answers, AnswerSize, Floats, References, Values, from_pairs


@dataclass(frozen=True)
class FirstCome:
    """First come, first served: the user at position i takes the nearest worker still free."""

    name = "first-come"
    groups = ("users", "workers")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Assign by position."""
        users, workers = estimates
        free = list(range(len(workers)))
        pairs = []
        for i, user in enumerate(users):
            if free:
                nearest = free[int(((workers[free] - user) ** 2).sum(axis=1).argmin())]
                free.remove(nearest)
                pairs.append((i, nearest))
        matched = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return [
            from_pairs((matched[0], matched[1]), reports=len(users), group=1),
            from_pairs((matched[1], matched[0]), reports=len(workers), group=0),
        ]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """One partner."""
        return ((0, min(1, sizes[1])), (min(1, sizes[0]), 0))

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """One reference."""
        return tuple(AnswerSize(references=1) for _ in dimensions)

    def params(self) -> dict[str, object]:
        """Only the name."""
        return {"name": self.name}


@dataclass(frozen=True)
class Numbers:
    """A task of one group whose answers are single numbers."""

    name = "numbers"
    groups = ("people",)

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Sum the coordinates; this is correct."""
        return [Values(estimates[0].sum(axis=1, keepdims=True))]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Nobody."""
        return tuple((0,) for _ in sizes)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """One number."""
        return tuple(AnswerSize(numbers=1) for _ in dimensions)

    def params(self) -> dict[str, object]:
        """Only the name."""
        return {"name": self.name}


class Tickets(Numbers):
    """A task that answers by position: a number in the queue."""

    name = "tickets"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Return the positions."""
        return [Values(np.arange(len(estimates[0]), dtype=np.float64)[:, None])]


class SeededDraw(Numbers):
    """A task with a draw seeded once, so the order decides who gets which number."""

    name = "seeded-draw"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Draw a number for each position."""
        return [Values(seeded(7).uniforms(len(estimates[0]))[:, None])]


class ChangesInput(Numbers):
    """A task that sorts its input in place."""

    name = "changes-input"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Return the sum after changing the input."""
        estimates[0].sort(axis=0)
        return super().__call__(estimates)


class TooShort(Numbers):
    """A task that forgets the last report."""

    name = "too-short"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Return one answer too few."""
        return [Values(estimates[0][:-1, :1])]


class FailsAlone(Numbers):
    """A task that fails for a single person."""

    name = "fails-alone"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Return the distance from the second report."""
        return [Values(np.abs(estimates[0][:, :1] - estimates[0][1:2, :1].max()) * 0)]


class TellsTooMuch(Numbers):
    """A task that refers to a person although it states that nobody is exposed."""

    name = "tells-too-much"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Refer to the person with the least first coordinate."""
        n = len(estimates[0])
        least = np.full(n, estimates[0][:, 0].argmin() if n else 0)
        return [References(0, np.arange(n + 1), least)]

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """One reference."""
        return tuple(AnswerSize(references=1) for _ in dimensions)
