"""The contract of every task: what it provides, what it may answer, distances in people's units.

A task answers with numbers (`Values`) or with references to other reports by position
(`References`). It never sees a key or an address: it refers to people by the position of their
report, and the server turns positions into one-time addresses. Keeping numbers apart from positions
makes equivariance checkable: when the reports are permuted, numbers move, and references move *and
are renamed*. Paper, section on problem settings.
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
    """Numbers as answers: one row per report, and one row for everybody in the group.

    Attributes:
        data: shape (reports, width); row i is for the owner of report i alone.
        shared: shape (width,); for everybody, so it must not depend on the order of reports.
    """

    data: Floats
    shared: Floats = field(default_factory=_nothing)

    def __len__(self) -> int:
        return len(self.data)

    def take(self, order: Positions) -> "Values":
        """Return the answers of the reports at these positions, in that order."""
        return Values(self.data[order], self.shared)


@dataclass(frozen=True, eq=False)
class References:
    """Other reports as answers: that of report i is `indices[indptr[i]:indptr[i + 1]]`.

    Attributes:
        group: the group of the positions (its number in `Task.groups`).
        indptr: shape (reports + 1,); where the references of each report start and end.
        indices: positions in that group.
        ordered: whether the order of a report's references has a meaning (nearest first).
        located: whether the server writes the estimate of each reference beside its address.
        second: how many of each report's references, the last ones, are for a second pass, shape
            (reports,); None where there is only one pass.
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
        """Return the positions in the answer of this report."""
        return self.indices[self.indptr[report] : self.indptr[report + 1]]

    def counts(self) -> Positions:
        """Return how many references each report has."""
        return np.diff(self.indptr)

    def owners(self) -> Positions:
        """Return the report that each reference belongs to, as long as `indices`."""
        return np.repeat(np.arange(len(self)), self.counts())

    def take(self, order: Positions) -> "References":
        """Return the answers of the reports at these positions; references are not renamed."""
        counts = self.counts()[order]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        inside = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        indices = self.indices[np.repeat(self.indptr[order], counts) + inside]
        second = None if self.second is None else self.second[order]
        return replace(self, indptr=indptr, indices=indices, second=second)

    def apart(self, ours: Floats, theirs: Floats) -> Floats:
        """Return the distance of every report to each of its references, by both groups' places."""
        gaps = ours[self.owners()] - theirs[self.indices]
        return np.asarray(np.hypot.reduce(gaps, axis=1))  # squares could vanish or overflow

    def renamed(self, names: Positions) -> "References":
        """Return the same answers when position p of the other group is called `names[p]`."""
        return replace(self, indices=names[self.indices])


Answers = Values | References


@dataclass(frozen=True, kw_only=True)
class AnswerSize:
    """The largest answer of a group; the server pads every answer to it."""

    references: int = 0
    numbers: int = 0


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well a round served its people, in the measure of its task."""

    name: str
    value: float
    higher_is_better: bool

    def better_than(self, other: "Score") -> bool:
        """Return whether this round served its people strictly better than the other."""
        if self.higher_is_better:
            return self.value > other.value
        return self.value < other.value


def from_pairs(
    pairs: tuple[Positions, Positions], *, reports: int, group: int, ordered: bool = False
) -> References:
    """Build references from pairs of report and position in the group, in their order."""
    owners, indices = pairs
    order = np.argsort(owners, kind="stable")
    indptr = np.zeros(reports + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=reports), out=indptr[1:])
    return References(group, indptr, indices[order].astype(np.int64), ordered)


def with_silent(answers: Answers, rows: Positions, *, size: int) -> Answers:
    """Return the answers of all reports from those of the rows that are not silent.

    A silent report gets zeros. References are an error: they would have to be renamed and would
    reveal silence, so a task that names people is refused with participation coins before a
    round begins.
    """
    if len(rows) == size:
        return answers
    if isinstance(answers, References):
        raise Misuse("a task that names people cannot run with participation coins; leave them out")
    data = np.zeros((size, answers.data.shape[1]))
    data[rows] = answers.data
    return Values(data, answers.shared)


def check_shape(answers: Answers, *, reports: int, sizes: tuple[int, ...], task: str) -> None:
    """Raise `Misuse` if these cannot be the answers to this number of reports."""
    if len(answers) != reports:
        raise Misuse(
            f"task {task} gave {len(answers)} answers to {reports} reports; "
            "it must answer every report once, if only with an empty answer"
        )
    if isinstance(answers, Values):
        if answers.data.ndim != 2:
            raise Misuse(
                f"task {task} must answer with one row of numbers per report, shape (n, w), got "
                f"{answers.data.shape}"
            )
        if answers.shared.ndim != 1:
            raise Misuse(
                f"task {task} must share one row of numbers, shape (w,), got {answers.shared.shape}"
            )
        return
    if not 0 <= answers.group < len(sizes):
        raise Misuse(
            f"task {task} must refer to a group from 0 to {len(sizes) - 1}, got {answers.group}"
        )
    steps = np.diff(answers.indptr)
    if answers.indptr[0] != 0 or np.any(steps < 0) or answers.indptr[-1] != len(answers.indices):
        raise Misuse(f"task {task} gave references whose `indptr` does not fit `indices`")
    second = answers.second
    if second is not None and (
        second.shape != steps.shape or np.any(second < 0) or np.any(second > steps)
    ):
        raise Misuse(f"task {task} gave references whose `second` does not fit `indptr`")
    inside = (answers.indices >= 0) & (answers.indices < sizes[answers.group])
    if not np.all(inside):
        raise Misuse(f"task {task} refers to a report that does not exist")


# -- distances in the unit that people think in
#
# One factor per axis turns estimates into that unit. For degrees of latitude and longitude the
# factors are metres per degree: a radius is then in metres, and a circle is round.
Scale = tuple[float, ...]


def scale_of(domain: Box) -> Scale:
    """Return the factors of a box: metres per degree if it is geographic, else none are needed."""
    if not domain.degrees:
        return ()
    half = (np.array(domain.hi) - np.array(domain.lo)) / 2
    return tuple(float(factor) for factor in domain.scale / half)


def checked_scale(scale: object) -> Scale:
    """Return the factors as a tuple (empty means 1 per axis); terms have them as a list."""
    factors = tuple(float(factor) for factor in scale) if isinstance(scale, list | tuple) else None
    if factors is None or not all(np.isfinite(factors)) or not all(f > 0 for f in factors):
        raise Misuse(f"`scale` must be positive numbers, one per axis, got {scale!r}")
    return factors


def positive(value: float, *, what: str) -> float:
    """Return the number, if it is finite and above zero."""
    if not (np.isfinite(value) and value > 0):
        raise Misuse(f"`{what}` must be a positive number, got {value!r}")
    return float(value)


def scaled(points: Floats, scale: Scale) -> Floats:
    """Return the points in the unit of distances."""
    if not scale:
        return np.ascontiguousarray(points, dtype=np.float64)
    if len(scale) != points.shape[1]:
        raise Misuse(
            f"`scale` must have one factor per axis; it has {len(scale)}, estimates have "
            f"{points.shape[1]} axes"
        )
    return np.ascontiguousarray(points * np.array(scale))


def normalised(*sides: Floats) -> tuple[list[Floats], float]:
    """Return the points centred and scaled into [-1, 1], and the unit: the length of 1 there.

    The unit is a power of two, so that only the shift is rounded. Squares of the results neither
    overflow nor vanish, and no offset takes digits from a distance.
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
    """Return the different places of points, at least one, in order; and the place of each."""
    order = np.lexsort(points.T[::-1])
    new = np.concatenate([[True], np.any(np.diff(points[order], axis=0) != 0, axis=1)])
    place = np.empty(len(points), dtype=np.int64)
    place[order] = np.cumsum(new) - 1
    return points[order[new]], place


# -- what a task is, and what some tasks can do besides


class Task(Protocol):
    """A permutation-equivariant function of the estimates of each group."""

    @property
    def name(self) -> str:
        """Return its name in the terms."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of the groups, in the order of the arrays."""

    def __call__(self, estimates: Sequence[Floats]) -> Sequence[Answers]:
        """Answer every report of every group once."""

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return upper bounds: [g][h] is how many others of group h an answer in g can expose.

        *Guarantee:* the accountant takes these people out of the crowd (`exposure`). A number that
        is too small would break the promise, so the server refuses answers that exceed it.
        """

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Return the largest answer of each group, for estimates of these dimensions."""

    def params(self) -> dict[str, object]:
        """Return its parameters as JSON data, with the name; `from_params` rebuilds the task."""


@runtime_checkable
class ReadsNotes(Protocol):
    """A task that also reads notes: bytes of a fixed size that travel unchanged with a report."""

    @property
    def note_size(self) -> int:
        """Return how many bytes a note has, the same in every group."""

    def with_notes(self, estimates: Sequence[Floats], notes: Sequence[Notes]) -> Sequence[Answers]:
        """Answer every report; `notes[g]` has one row of bytes per report of group g."""


@dataclass(frozen=True, eq=False)
class Belief:
    """The posterior of the values behind a group's reports: how likely each is at each place.

    Attributes:
        kinds: for each report its row in `weights`, shape (reports,).
        weights: how likely each place is, one row per kind of report; rows add up to 1.
        places: the places, (places, d), in the unit of the estimates.
        real: for each kind the chance that a message is a report, not a decoy; empty for 1.
    """

    kinds: Positions
    weights: Floats
    places: Floats
    real: Floats = field(default_factory=lambda: np.ones(0))

    @property
    def chances(self) -> Floats:
        """Return for each kind how likely it is that somebody is at each place."""
        return self.weights * self.real[:, None] if len(self.real) else self.weights

    def take(self, order: Positions) -> "Belief":
        """Return the beliefs about the reports at these positions, in that order."""
        return replace(self, kinds=self.kinds[order])


@runtime_checkable
class ReadsBeliefs(Protocol):
    """A task that can use the posteriors of the values, not only estimates."""

    @property
    def reads_beliefs(self) -> bool:
        """Return whether it uses posteriors with these parameters."""

    def with_beliefs(
        self, estimates: Sequence[Floats], beliefs: Sequence[Belief]
    ) -> Sequence[Answers]:
        """Answer every report; `beliefs[g]` is about the reports of group g."""


@runtime_checkable
class RunsByRegion(Task, Protocol):
    """A task of one group that answers a report from the reports near it alone (`by_regions`).

    Its answer to a report must be the same when reports beyond the reach are left out and the
    others keep their order; those at one place are interchangeable.
    """

    @property
    def reach(self) -> float | None:
        """Return how far from a report it looks, in the unit of `placed`; None if at everybody."""

    def placed(self, estimates: Floats) -> Floats:
        """Return where the reports are."""


@runtime_checkable
class NeedsCrowds(Protocol):
    """A task that needs groups of at least a certain size."""

    def least_crowds(self) -> tuple[int, ...]:
        """Return the least minimum crowd of each group; drafting refuses smaller ones."""


@runtime_checkable
class Optimizes(Protocol):
    """A task whose answers are one of several possible optima with the same objective."""

    def objective(self, estimates: Sequence[Floats], answers: Sequence[Answers]) -> float:
        """Return the objective, which all optimal answers to these estimates share."""


@runtime_checkable
class Scored(Protocol):
    """A task that can score a round against the true values."""

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,
    ) -> Score:
        """Score the answers against the true values; without `answers` they are computed."""
