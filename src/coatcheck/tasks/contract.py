"""What every task is, and what some tasks can do besides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from coatcheck.tasks.answers import Answers, AnswerSize, Floats, Notes, Positions, Score


class Task(Protocol):
    """A permutation-equivariant function of the estimates of each group."""

    @property
    def name(self) -> str:
        """The name in the terms."""

    @property
    def groups(self) -> tuple[str, ...]:
        """What the groups are called, in the order of the arrays."""

    def __call__(self, estimates: Sequence[Floats]) -> Sequence[Answers]:
        """Answer every report of every group once."""

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Upper bounds: entry [g][h] is how many others of group h an answer in g can expose.

        *Guarantee:* the accountant takes these people out of the crowd (`exposure`), so a number
        that is too small breaks the promise; the server refuses answers that exceed it.
        """

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """The most that an answer of each group holds, for estimates of these dimensions."""

    def params(self) -> dict[str, object]:
        """JSON-able parameters, the name included, from which `from_params` rebuilds the task."""


@runtime_checkable
class ReadsNotes(Protocol):
    """A task that also reads the notes: fixed-size bytes that travel with a report as they are."""

    @property
    def note_size(self) -> int:
        """The bytes of a note, the same in every group."""

    def with_notes(self, estimates: Sequence[Floats], notes: Sequence[Notes]) -> Sequence[Answers]:
        """Answer every report; `notes[g]` has one row of bytes per report of group g."""


@dataclass(frozen=True, eq=False)
class Belief:
    """What is known of the values behind a group's reports: how likely each is at each place.

    Attributes:
        kinds: for each report the row of `weights` that is about it, shape (reports,).
        weights: how likely each place is, one row per kind of report; rows add up to 1.
        places: the places, (places, d), in the unit of the estimates.
    """

    kinds: Positions
    weights: Floats
    places: Floats

    def take(self, order: Positions) -> "Belief":
        """The beliefs about the reports at these positions, in that order."""
        return replace(self, kinds=self.kinds[order])


@runtime_checkable
class ReadsBeliefs(Protocol):
    """A task that can use what is known of the values behind reports, not estimates alone."""

    @property
    def reads_beliefs(self) -> bool:
        """Whether it does, with these parameters."""

    def with_beliefs(
        self, estimates: Sequence[Floats], beliefs: Sequence[Belief]
    ) -> Sequence[Answers]:
        """Answer every report; `beliefs[g]` is about the reports of group g."""


@runtime_checkable
class RunsByRegion(Task, Protocol):
    """A task of one group that needs only those near a report to answer it (`tasks.regions`).

    Its answer to a report must be the same when reports beyond the reach are left out and the
    others keep their order; those at one place are interchangeable.
    """

    @property
    def reach(self) -> float | None:
        """How far from a report it looks, in the unit of `placed`; None if at everybody."""

    def placed(self, estimates: Floats) -> Floats:
        """Where the reports are."""


@runtime_checkable
class NeedsCrowds(Protocol):
    """A task that serves nobody well below a certain size of the groups."""

    def least_crowds(self) -> tuple[int, ...]:
        """The least minimum crowd of each group; terms with a smaller one are not drafted."""


@runtime_checkable
class Optimizes(Protocol):
    """A task whose answers are one of possibly several optima; all share this objective."""

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """The number that every optimal answer to these estimates has in common."""


@runtime_checkable
class Scored(Protocol):
    """A task that can say how well a round served its people, when the truth is known."""

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Compare what estimates led to with the true values; answers save computing them again."""
