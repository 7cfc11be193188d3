"""What a task may answer: numbers, or references to other reports by position.

A task never sees a key or an address. It refers to people by the position of their report, and the
server turns positions into one-time addresses. Keeping numbers (`Values`) apart from positions
(`References`) is what makes equivariance checkable: when the reports are permuted, numbers move,
and references move *and are renamed*. Paper, section on problem settings.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

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


def among(answers: Answers, who: Positions, *, size: int) -> Answers:
    """Spread the answers of those who spoke over everybody: whoever was silent is told zeros.

    References would have to be renamed, and silence would be told by them: a task that names
    people is refused with coins before a round begins.
    """
    if len(who) == size:
        return answers
    if isinstance(answers, References):
        raise Misuse("a task that names people cannot be run with own coins")
    told = np.zeros((size, answers.data.shape[1]))
    told[who] = answers.data
    return Values(told, answers.shared)


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
