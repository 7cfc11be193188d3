"""What a task may answer: numbers, or references to other reports by position.

A task never sees a key or an address. It refers to people by the position of their report, and the
server turns positions into one-time addresses. Keeping numbers (`Values`) apart from positions
(`References`) is what makes equivariance checkable: when the reports are permuted, numbers move,
and references move *and are renamed*. Paper, section on problem settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from coatcheck.domains import Box
from coatcheck.errors import Misuse

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Notes = npt.NDArray[np.uint8]


def _nothing() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers as answers: one row per report, and one row that everybody of the group is told.

    Attributes:
        data: shape (reports, width); row i is told to the owner of report i alone.
        shared: shape (width,); told to everybody, so it must not depend on the order of reports.
    """

    data: Floats
    shared: Floats = field(default_factory=_nothing)

    def __len__(self) -> int:
        return len(self.data)

    def take(self, order: Positions) -> "Values":
        """The answers of the reports at these positions, in that order."""
        return Values(self.data[order], self.shared)


@dataclass(frozen=True, eq=False)
class References:
    """Other reports as answers: report i is told of `indices[indptr[i]:indptr[i + 1]]`.

    Attributes:
        group: which group the positions are in (its number in `Task.groups`).
        indptr: shape (reports + 1,); where each report's references start and end.
        indices: positions in that group.
        ordered: whether the order of one report's references means something (nearest first).
        located: whether the server writes each one's estimate beside the address.
        second: how many of each report's references, its last ones, are for a second pass, shape
            (reports,); None where there is one pass.
    """

    group: int
    indptr: Positions
    indices: Positions
    ordered: bool = False
    located: bool = False
    second: Positions | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def of(self, report: int) -> Positions:
        """The positions that this report is told of."""
        return self.indices[self.indptr[report] : self.indptr[report + 1]]

    def counts(self) -> Positions:
        """How many references each report has."""
        return np.diff(self.indptr)

    def owners(self) -> Positions:
        """The report that each reference belongs to, as long as `indices`."""
        return np.repeat(np.arange(len(self)), self.counts())

    def take(self, order: Positions) -> "References":
        """The answers of the reports at these positions, in that order; positions keep names."""
        counts = self.counts()[order]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        inside = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        indices = self.indices[np.repeat(self.indptr[order], counts) + inside]
        second = None if self.second is None else self.second[order]
        return replace(self, indptr=indptr, indices=indices, second=second)

    def apart(self, ours: Floats, theirs: Floats) -> Floats:
        """The distance of every report to each one that it is told of, by both groups' places."""
        gaps = ours[self.owners()] - theirs[self.indices]
        return np.asarray(np.hypot.reduce(gaps, axis=1))  # squares could vanish or overflow

    def renamed(self, names: Positions) -> "References":
        """The same answers when position p of the other group is called `names[p]`."""
        return replace(self, indices=names[self.indices])


Answers = Values | References


@dataclass(frozen=True, kw_only=True)
class AnswerSize:
    """The most that one answer of a group holds; the server pads every answer to it."""

    references: int = 0
    numbers: int = 0


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well a round served its people, in the task's own measure."""

    name: str
    value: float
    higher_is_better: bool

    def better_than(self, other: "Score") -> bool:
        """Whether this round served its people strictly better than the other."""
        if self.higher_is_better:
            return self.value > other.value
        return self.value < other.value


def from_pairs(
    pairs: tuple[Positions, Positions], *, reports: int, group: int, ordered: bool = False
) -> References:
    """References from a list of (report, position in the group), in the order given."""
    owners, indices = pairs
    order = np.argsort(owners, kind="stable")
    indptr = np.zeros(reports + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=reports), out=indptr[1:])
    return References(group, indptr, indices[order].astype(np.int64), ordered)


def with_silent(answers: Answers, rows: Positions, *, size: int) -> Answers:
    """Spread the answers of those who spoke over everybody: whoever was silent is told zeros.

    References would have to be renamed, and silence would be told by them: a task that names
    people is refused with coins before a round begins.
    """
    if len(rows) == size:
        return answers
    if isinstance(answers, References):
        raise Misuse("a task that names people cannot be run with own coins")
    data = np.zeros((size, answers.data.shape[1]))
    data[rows] = answers.data
    return Values(data, answers.shared)


def check_shape(answers: Answers, *, reports: int, sizes: tuple[int, ...], task: str) -> None:
    """Raise `Misuse` if these cannot be the answers to so many reports."""
    if len(answers) != reports:
        raise Misuse(
            f"task {task} gave {len(answers)} answers to {reports} reports; "
            "it must answer every report once, an empty answer included"
        )
    if isinstance(answers, Values):
        if answers.data.ndim != 2 or answers.shared.ndim != 1:
            raise Misuse(
                f"task {task} must answer with one row of numbers per report, shape (n, w)"
            )
        return
    if not 0 <= answers.group < len(sizes):
        raise Misuse(f"task {task} refers to group {answers.group} of {len(sizes)}")
    steps = np.diff(answers.indptr)
    if answers.indptr[0] != 0 or np.any(steps < 0) or answers.indptr[-1] != len(answers.indices):
        raise Misuse(f"task {task} gave references whose bounds do not fit their indices")
    second = answers.second
    if second is not None and (
        second.shape != steps.shape or np.any(second < 0) or np.any(second > steps)
    ):
        raise Misuse(f"task {task} gave second lists that do not fit its references")
    inside = (answers.indices >= 0) & (answers.indices < sizes[answers.group])
    if not np.all(inside):
        raise Misuse(f"task {task} refers to a report that does not exist")


# HOUSE-DOC tasks.distances: 'Distances in the unit people think in: one factor per axis turns estimates into it.\n\nFor degrees of latitude and longitude the factors are metres per degree: a radius is then in metres,\nand a circle is round. Knows points, not people.\n'
Scale = tuple[float, ...]


def scale_of(domain: Box) -> Scale:
    """The factors of a box: metres per degree if it is geographic, else none are needed."""
    if not domain.degrees:
        return ()
    half = (np.array(domain.hi) - np.array(domain.lo)) / 2
    return tuple(float(factor) for factor in domain.scale / half)


def checked_scale(scale: object) -> Scale:
    """The factors as a tuple (empty means 1 per axis); they arrive as a list from the terms."""
    factors = tuple(float(factor) for factor in scale) if isinstance(scale, list | tuple) else None
    if factors is None or not all(np.isfinite(factors)) or not all(f > 0 for f in factors):
        raise Misuse(f"scale must be positive factors, one per axis, got {scale!r}")
    return factors


def positive(value: float, *, what: str) -> float:
    """The number, if it is finite and above zero."""
    if not (np.isfinite(value) and value > 0):
        raise Misuse(f"{what} must be a positive number, got {value!r}")
    return float(value)


def scaled(points: Floats, scale: Scale) -> Floats:
    """The points in the unit of distances."""
    if not scale:
        return np.ascontiguousarray(points, dtype=np.float64)
    if len(scale) != points.shape[1]:
        raise Misuse(f"scale has {len(scale)} factors but estimates have {points.shape[1]} axes")
    return np.ascontiguousarray(points * np.array(scale))


def normalised(*sides: Floats) -> tuple[list[Floats], float]:
    """The points centred and scaled into [-1, 1], and the unit: the length of 1 there.

    The unit is a power of two, so that nothing is rounded but the shift. Squares of the results
    neither overflow nor vanish, and no offset eats the digits of a distance.
    """
    points = np.concatenate(sides)
    if not points.size:
        return list(sides), 1.0
    low, high = points.min(axis=0), points.max(axis=0)
    half = float((high / 2 - low / 2).max())
    exponent = int(np.frexp(half)[1])
    centre = low / 2 + high / 2
    return [np.ldexp(side - centre, -exponent) for side in sides], float(np.ldexp(1.0, exponent))


def distinct(points: Floats) -> tuple[Floats, Positions]:
    """The different places among points, at least one, in order; and which of them each is at."""
    order = np.lexsort(points.T[::-1])
    new = np.concatenate([[True], np.any(np.diff(points[order], axis=0) != 0, axis=1)])
    place = np.empty(len(points), dtype=np.int64)
    place[order] = np.cumsum(new) - 1
    return points[order[new]], place


# HOUSE-DOC tasks.contract: 'What every task is, and what some tasks can do besides.'
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
