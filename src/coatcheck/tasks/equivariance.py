"""The search for a counterexample to the permutation equivariance of a task.

Reports are drawn in general position, on a coarse lattice (for ties) and all equal, for groups that
are empty, of one person, and larger. The task must answer permuted reports with permuted answers:
numbers move, references move and are renamed. Two differences are allowed: another optimum with the
same objective, and equal reports that swapped their answers. A counterexample is made as small as
possible by dropping reports. Paper, definition of permutation-equivariance.

    >>> from coatcheck.tasks.equivariance import check_equivariance
    >>> from coatcheck.tasks.neighbours import Neighbours
    >>> check_equivariance(Neighbours(radius=0.5, limit=2), trials=30).equivariant
    True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from coatcheck.entropy import Entropy, seeded, source
from coatcheck.errors import Error, Misuse
from coatcheck.tasks import Optimizes, ReadsNotes, Task, answer
from coatcheck.tasks.contract import Answers, Floats, Notes, Positions, References, Values

Draw = Callable[[Entropy, Sequence[int]], Sequence[Floats]]

_SIZES = (0, 1, 2, 3, 4, 7, 20, 60)
_CLOSE = 1e-9


@dataclass(frozen=True, eq=False)
class Reports:
    """The reports of one trial, and the order in which the task gets them the second time."""

    estimates: list[Floats]
    notes: list[Notes] | None
    orders: list[Positions]

    def without(self, group: int, report: int) -> "Reports":
        """Return the same reports without one."""
        orders = list(self.orders)
        left = orders[group][orders[group] != report]
        orders[group] = left - (left > report)
        return Reports(
            [np.delete(e, report, 0) if g == group else e for g, e in enumerate(self.estimates)],
            self.notes
            and [np.delete(n, report, 0) if g == group else n for g, n in enumerate(self.notes)],
            orders,
        )

    def permuted(self) -> "Reports":
        """Return the reports in their second order."""
        notes = self.notes and [n[o] for n, o in zip(self.notes, self.orders, strict=True)]
        shown = [e[o] for e, o in zip(self.estimates, self.orders, strict=True)]
        return Reports(shown, notes, self.orders)


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict:
    """The result of the trials; `str` gives it in words.

    Attributes:
        task: the name of the task.
        equivariant: whether every trial passed.
        equal: trials with exactly the permuted answers.
        tied: trials that differ by another optimum, or by a swap of equal reports.
        reason: what went wrong, or empty.
        counterexample: the smallest reports that show it, as far as the search sees.
        cured: whether the task passes when the server sorts the reports first.
    """

    task: str
    equivariant: bool
    equal: int
    tied: int
    reason: str = ""
    counterexample: Reports | None = None
    cured: bool = False
    groups: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if self.equivariant:
            ties = f", {self.tied} up to ties" if self.tied else ""
            trials = self.equal + self.tied
            return f"{self.task}: equivariant in {trials} trials ({self.equal} equal{ties})"
        lines = [f"{self.task}: not equivariant: {self.reason}"]
        if self.counterexample is not None:
            lines += _counterexample_lines(self.counterexample, self.groups)
        lines.append(
            "it passes in canonical order, in which the server shows reports by default"
            if self.cured
            else "it fails in canonical order too: the server cannot mend it"
        )
        return "\n".join(lines)


def check_equivariance(
    task: Task, *, trials: int = 120, entropy: Entropy | int = 0, draw: Draw | None = None
) -> Verdict:
    """Search for a counterexample to equivariance; the same seed tries the same reports.

    Without `draw`, a report is two numbers in [-1, 1], or as many as the attribute `dimensions` of
    the task says.
    """
    seed = source(entropy).seed()
    first = _trials(task, trials, seed, draw, canonical=False)
    if first.equivariant:
        return first
    again = _trials(task, trials, seed, draw, canonical=True)
    return replace(first, cured=again.equivariant, groups=tuple(task.groups))


def _trials(task: Task, trials: int, seed: int, draw: Draw | None, *, canonical: bool) -> Verdict:
    if trials < 1:
        raise Misuse(f"`trials` must be at least 1, got {trials}")
    entropy = seeded(seed)
    outcomes: list[str] = []
    for trial in range(trials):
        reports = _draw_reports(task, trial, entropy, draw)
        outcome, _ = _judge(task, reports, canonical=canonical)
        if outcome == "wrong":
            smallest = _shrink(task, reports, canonical=canonical)
            return Verdict(
                task=task.name,
                equivariant=False,
                equal=outcomes.count("equal"),
                tied=outcomes.count("tied"),
                reason=_judge(task, smallest, canonical=canonical)[1],
                counterexample=smallest,
            )
        outcomes.append(outcome)
    equal, tied = outcomes.count("equal"), outcomes.count("tied")
    return Verdict(task=task.name, equivariant=True, equal=equal, tied=tied)


def _draw_reports(task: Task, trial: int, entropy: Entropy, draw: Draw | None) -> Reports:
    """Draw reports: every third trial on a coarse lattice, every seventh all equal."""
    sizes = [_SIZES[int(entropy.below(len(_SIZES), 1)[0])] for _ in task.groups]
    if trial < len(_SIZES):
        sizes[trial % len(sizes)] = _SIZES[trial]
    dimensions = getattr(task, "dimensions", (2,) * len(sizes))
    if draw is not None:
        estimates = [np.asarray(group, dtype=np.float64) for group in draw(entropy, sizes)]
    else:
        estimates = [
            entropy.uniforms(n * d).reshape(n, d) * 2 - 1
            for n, d in zip(sizes, dimensions, strict=True)
        ]
    coarse = trial % 3 == 1
    if coarse:
        estimates = [np.rint(group * 2) / 2 for group in estimates]
    if trial % 7 == 5:
        estimates = [np.repeat(group[:1], len(group), axis=0) for group in estimates]
    notes = None
    if isinstance(task, ReadsNotes):
        notes = [_notes(entropy, len(group), task.note_size, coarse=coarse) for group in estimates]
    orders = [np.argsort(entropy.words(len(group))) for group in estimates]
    return Reports(estimates, notes, orders)


def _notes(entropy: Entropy, count: int, size: int, *, coarse: bool) -> Notes:
    notes = np.frombuffer(entropy.token(count * size), dtype=np.uint8).reshape(count, size)
    return notes % 2 if coarse else notes


def _judge(task: Task, reports: Reports, *, canonical: bool) -> tuple[str, str]:
    """Return the outcome of one trial: equal, tied or wrong, and why."""
    estimates = [group.copy() for group in reports.estimates]
    permuted = reports.permuted()
    try:
        before = _run(task, estimates, reports.notes, canonical=canonical)
        if not all(np.array_equal(a, b) for a, b in zip(estimates, reports.estimates, strict=True)):
            return "wrong", "it changes the reports that it gets"
        repeat = _run(task, estimates, reports.notes, canonical=canonical)
        after = _run(task, permuted.estimates, permuted.notes, canonical=canonical)
    except Exception as error:  # noqa: BLE001 - a stranger's task may raise anything
        prefix = "" if isinstance(error, Error) else f"it raises {type(error).__name__}: "
        return "wrong", f"{prefix}{error}"
    if not _same_answers(before, repeat):
        return "wrong", "it answers the same reports differently the second time"
    return _compare(task, permuted, _moved(before, reports.orders), after)


def _compare(
    task: Task, permuted: Reports, expected: list[Answers], after: list[Answers]
) -> tuple[str, str]:
    """Return whether the answers moved with the reports, or differ in a way that is allowed."""
    if _same_answers(expected, after):
        return "equal", ""
    if _same_by_content(permuted.estimates, permuted.notes, expected, after):
        return "tied", ""
    if not isinstance(task, Optimizes):
        return "wrong", "the same reports in another order get other answers"
    values = [task.objective(permuted.estimates, answers) for answers in (expected, after)]
    if np.isclose(values[0], values[1], rtol=_CLOSE, atol=_CLOSE):
        return "tied", ""
    return "wrong", f"another order gives an objective of {values[1]:g}, not {values[0]:g}"


def _run(
    task: Task, estimates: list[Floats], notes: list[Notes] | None, *, canonical: bool
) -> list[Answers]:
    return answer(task, estimates, notes=notes, canonical=canonical)


def _moved(answers: list[Answers], orders: list[Positions]) -> list[Answers]:
    """Return the answers that reports in these orders must get."""
    names = [np.argsort(order) for order in orders]
    moved = [own.take(order) for own, order in zip(answers, orders, strict=True)]
    return [m.renamed(names[m.group]) if isinstance(m, References) else m for m in moved]


def _shrink(task: Task, reports: Reports, *, canonical: bool) -> Reports:
    """Drop reports as long as the trial still fails."""
    for group in range(len(reports.estimates)):
        for report in range(len(reports.estimates[group]) - 1, -1, -1):
            fewer = reports.without(group, report)
            if _judge(task, fewer, canonical=canonical)[0] == "wrong":
                return _shrink(task, fewer, canonical=canonical)
    return reports


def _counterexample_lines(reports: Reports, groups: tuple[str, ...]) -> list[str]:
    """Return the counterexample in words."""
    lines = []
    for name, estimates, order in zip(groups, reports.estimates, reports.orders, strict=True):
        places = ", ".join(str(tuple(round(float(x), 3) for x in row)) for row in estimates)
        lines.append(f"  {name}: {places or 'nobody'}; shown again in the order {order.tolist()}")
    return lines


def _same_answers(left: Sequence[Answers], right: Sequence[Answers]) -> bool:
    """Return whether all answers are the same, numbers up to rounding."""
    return all(_same(a, b) for a, b in zip(left, right, strict=True))


def _same_by_content(
    estimates: Sequence[Floats],
    notes: Sequence[Notes] | None,
    left: Sequence[Answers],
    right: Sequence[Answers],
) -> bool:
    """Return whether equal reports, taken together, get the same answers about equal reports.

    Equal reports are interchangeable: it does not matter which of two people at one place gets
    which answer, nor which of them an answer refers to. So references are compared by the content
    of the reports that they point to.
    """
    kinds = [
        _kinds(group, notes[g] if notes is not None else None) for g, group in enumerate(estimates)
    ]
    return all(
        _same_in_kind(kinds, own, a, b) for own, a, b in zip(kinds, left, right, strict=True)
    )


def _same(left: Answers, right: Answers) -> bool:
    if isinstance(left, Values) and isinstance(right, Values):
        return _near(left.data, right.data) and _near(left.shared, right.shared)
    if not (isinstance(left, References) and isinstance(right, References)):
        return False
    if left.group != right.group or not np.array_equal(left.indptr, right.indptr):
        return False
    sides = [_rows(side, side.indices) for side in (left, right)]
    return sides[0] == sides[1]


def _same_in_kind(kinds: list[Positions], own: Positions, left: Answers, right: Answers) -> bool:
    order = np.argsort(own, kind="stable")
    bounds = np.flatnonzero(np.diff(own[order], prepend=-1, append=-1))
    if isinstance(left, Values) and isinstance(right, Values):
        if not _near(left.shared, right.shared) or left.data.shape != right.data.shape:
            return False
        sides = [_sorted_within(side.data[order], bounds) for side in (left, right)]
        return _near(*sides)
    if not (isinstance(left, References) and isinstance(right, References)):
        return False
    if left.group != right.group:
        return False
    rows = [_rows(side, kinds[side.group][side.indices]) for side in (left, right)]
    return all(
        sorted(rows[0][i] for i in order[a:b]) == sorted(rows[1][i] for i in order[a:b])
        for a, b in pairwise(bounds)
    )


def _near(left: Floats, right: Floats) -> bool:
    if left.shape != right.shape:
        return False
    scale = float(np.abs(left).max(initial=0.0))
    return bool(np.allclose(left, right, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True))


def _rows(references: References, named: Positions) -> list[tuple[list[int], list[int]]]:
    """Return each report's two lists under these names, sorted unless order has a meaning."""
    later = (
        np.zeros(len(references), dtype=np.int64)
        if references.second is None
        else references.second
    )
    bounds = zip(
        references.indptr[:-1], references.indptr[1:] - later, references.indptr[1:], strict=True
    )
    rows = [(named[a:b].tolist(), named[b:c].tolist()) for a, b, c in bounds]
    return (
        rows if references.ordered else [(sorted(first), sorted(second)) for first, second in rows]
    )


def _sorted_within(data: Floats, bounds: Positions) -> Floats:
    """Sort rows within each run of equal reports."""
    parts = [data[a:b][np.lexsort(data[a:b].round(9).T[::-1])] for a, b in pairwise(bounds)]
    return np.concatenate([data[:0], *parts]) if data.shape[1] else data


def _kinds(estimates: Floats, notes: Notes | None) -> Positions:
    """Return a number for each report, equal for equal reports."""
    content = estimates if notes is None else np.concatenate([estimates, notes], axis=1)
    if not len(content):
        return np.empty(0, dtype=np.int64)
    kinds = np.unique(content, axis=0, return_inverse=True)[1]
    return np.asarray(kinds, dtype=np.int64).reshape(-1)
