"""The execution of a task: in canonical order, whole or by region, with its promises checked.

Reports reach the server in a random order, so an answer that depended on it would depend on
chance. Therefore `answer` sorts the reports by content before the task sees them. Every
deterministic task is then equivariant on distinct reports; equal reports stay in the shuffler's
order. This file sees estimates and notes, never keys. Paper, problem settings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from coatcheck.errors import Misuse, Refused
from coatcheck.tasks.contract import (
    Answers,
    Belief,
    Floats,
    Notes,
    Positions,
    ReadsBeliefs,
    ReadsNotes,
    References,
    RunsByRegion,
    Task,
    check_shape,
)

# -- a task by regions
#
# Space is cut into boxes. A task of limited reach (`RunsByRegion`) gives a report the same answer
# if it sees only the reports within its reach. So the answers of a region are a pure function of
# its own reports and of a halo around them, and any worker may compute any region, in any order.

_SLACK = 1e-9  # a halo is this much wider than the reach, because distances are rounded

Map = Callable[[Callable[["Region"], References], Iterable["Region"]], Iterable[References]]


@dataclass(frozen=True, eq=False)
class Region:
    """Reports that are answered together.

    Attributes:
        own: the positions of the reports that are answered, in order.
        around: the positions of the reports that the task sees: `own` and the halo, in order.
    """

    own: Positions
    around: Positions


def regions(places: Floats, *, reach: float, count: int) -> list[Region]:
    """Cut places by halves along the widest side, into `count` regions of about the same size."""
    parts = []
    for own in _halved(places, np.arange(len(places)), count):
        low, high = places[own].min(axis=0), places[own].max(axis=0)
        beyond = np.maximum(np.maximum(low - places, places - high), 0.0)
        near = np.hypot.reduce(beyond, axis=1) <= reach * (1 + _SLACK)
        parts.append(Region(own, np.flatnonzero(near)))
    return parts


def answer_region(task: RunsByRegion, estimates: Floats, region: Region) -> References:
    """Return the answers of a region's own reports, from the estimates around it, in order."""
    (answers,) = task([estimates])
    if not isinstance(answers, References):
        raise Misuse(
            f"task {task.name} runs by region, so it must answer with references, got numbers"
        )
    return answers.take(np.searchsorted(region.around, region.own)).renamed(region.around)


def joined(parts: Sequence[Region], answers: Sequence[References]) -> References:
    """Join the answers of all regions into those of the whole group."""
    indptr = np.concatenate(
        [[0], np.cumsum(np.concatenate([part_answers.counts() for part_answers in answers]))]
    )
    indices = np.concatenate([part_answers.indices for part_answers in answers])
    by_part = References(answers[0].group, indptr, indices, answers[0].ordered, answers[0].located)
    return by_part.take(np.argsort(np.concatenate([part.own for part in parts])))


def by_regions(
    task: RunsByRegion, estimates: Floats, *, count: int, run: Map = map
) -> list[References]:
    """Answer the whole group region by region.

    `run` maps the function over the regions, possibly in other processes.
    """
    if task.reach is None:
        raise Misuse(
            f"task {task.name} looks at everybody; run it on the whole group, with one region"
        )
    if not len(estimates):
        return [answer_region(task, estimates, Region(np.arange(0), np.arange(0)))]
    parts = regions(task.placed(estimates), reach=task.reach, count=count)
    return [joined(parts, list(run(partial(_answer, task, estimates), parts)))]


def _answer(task: RunsByRegion, estimates: Floats, region: Region) -> References:
    return answer_region(task, estimates[region.around], region)


def _halved(places: Floats, own: Positions, count: int) -> list[Positions]:
    """Return the positions of each part, in order; no part is empty."""
    if count <= 1 or len(own) <= 1:
        return [own]
    few = count // 2
    axis = int(np.argmax(np.ptp(places[own], axis=0)))
    cut = max(1, len(own) * few // count)
    order = np.argpartition(places[own, axis], cut)
    return [
        *_halved(places, np.sort(own[order[:cut]]), few),
        *_halved(places, np.sort(own[order[cut:]]), count - few),
    ]


def answer(
    task: Task,
    estimates: Sequence[Floats],
    *,
    notes: Sequence[Notes] | None = None,
    beliefs: Sequence[Belief] | None = None,
    canonical: bool = True,
    regions: int = 1,
    run: Map = map,
) -> list[Answers]:
    """Run a task on estimates, one array per group, and return one answer per report.

    A task that reads notes or beliefs gets them as well. A task that can run by region does so
    with several `regions`, which `run` maps over (`by_regions`).

    *Guarantee:* the answers expose at most what `task.exposed` states; otherwise none is returned.
    """
    groups = _checked(task, estimates)
    _check_notes(notes, groups)
    by = regions, run
    if canonical:
        orders = [
            canonical_order(group, notes[g] if notes is not None else None)
            for g, group in enumerate(groups)
        ]
        answers = _unsorted(_run(task, *_sorted(groups, notes, beliefs, orders), by), orders)
    else:
        answers = _run(task, groups, notes, beliefs, by)
    _check_promises(task, answers, groups)
    return answers


def canonical_order(estimates: Floats, notes: Notes | None = None) -> Positions:
    """Return the positions of the reports sorted by content: estimates first, then notes."""
    keys = list(estimates.T)
    if notes is not None:
        keys += list(notes.T)
    if not keys or not len(estimates):
        return np.arange(len(estimates))
    return np.lexsort(keys[::-1])


def _checked(task: Task, estimates: Sequence[Floats]) -> list[Floats]:
    if len(estimates) != len(task.groups):
        raise Misuse(
            f"task {task.name} has {len(task.groups)} groups {task.groups}, "
            f"but got {len(estimates)} arrays; give one array per group"
        )
    groups = [np.asarray(group, dtype=np.float64) for group in estimates]
    for name, group in zip(task.groups, groups, strict=True):
        if group.ndim != 2:
            raise Misuse(f"estimates of group {name} must have the shape (n, d), got {group.shape}")
        if not np.all(np.isfinite(group)):
            raise Misuse(
                f"estimates of group {name} are not all finite; a task needs finite numbers"
            )
    return groups


def _check_notes(notes: Sequence[Notes] | None, groups: list[Floats]) -> None:
    if notes is not None and [len(note) for note in notes] != [len(group) for group in groups]:
        raise Misuse("`notes` must have one note per report, in arrays like the estimates")


def _sorted(
    groups: list[Floats],
    notes: Sequence[Notes] | None,
    beliefs: Sequence[Belief] | None,
    orders: list[Positions],
) -> tuple[list[Floats], Sequence[Notes] | None, Sequence[Belief] | None]:
    return (
        [group[order] for group, order in zip(groups, orders, strict=True)],
        notes and [note[order] for note, order in zip(notes, orders, strict=True)],
        beliefs and [belief.take(order) for belief, order in zip(beliefs, orders, strict=True)],
    )


def _run(
    task: Task,
    groups: list[Floats],
    notes: Sequence[Notes] | None,
    beliefs: Sequence[Belief] | None,
    by: tuple[int, Map],
) -> list[Answers]:
    all_answers: list[Answers]
    if beliefs is not None and isinstance(task, ReadsBeliefs) and task.reads_beliefs:
        all_answers = list(task.with_beliefs(groups, beliefs))
    elif notes is not None and isinstance(task, ReadsNotes):
        all_answers = list(task.with_notes(groups, notes))
    elif by[0] > 1 and isinstance(task, RunsByRegion) and task.reach is not None:
        all_answers = [*by_regions(task, groups[0], count=by[0], run=by[1])]
    else:
        all_answers = list(task(groups))
    if len(all_answers) != len(groups):
        raise Misuse(
            f"task {task.name} answered {len(all_answers)} groups; it must answer {len(groups)}"
        )
    sizes = tuple(len(group) for group in groups)
    for size, answers in zip(sizes, all_answers, strict=True):
        check_shape(answers, reports=size, sizes=sizes, task=task.name)
    return all_answers


def _unsorted(all_answers: list[Answers], orders: list[Positions]) -> list[Answers]:
    back = [np.argsort(order) for order in orders]
    moved = [answers.take(place) for answers, place in zip(all_answers, back, strict=True)]
    return [a.renamed(orders[a.group]) if isinstance(a, References) else a for a in moved]


def _check_promises(task: Task, all_answers: list[Answers], groups: list[Floats]) -> None:
    exposed = task.exposed([len(group) for group in groups])
    sizes = task.answer_size([group.shape[1] for group in groups])
    if [len(row) for row in (*exposed, sizes)] != [len(groups)] * (len(groups) + 1):
        raise Misuse(
            f"task {task.name} must state an exposure for every pair of groups and an answer size "
            f"for each of {len(groups)} groups"
        )
    for own, (answers, size) in enumerate(zip(all_answers, sizes, strict=True)):
        if not isinstance(answers, References):
            numbers = answers.data.shape[1] + len(answers.shared)
            if numbers > size.numbers:
                raise Refused(
                    f"task {task.name} answered with {numbers} numbers but stated {size.numbers}; "
                    "a longer answer would stand out on the board, so no answer is released"
                )
            continue
        longest = int(answers.counts().max(initial=0))
        if longest > size.references:
            raise Refused(
                f"task {task.name} answered with {longest} references but stated "
                f"{size.references}; a longer answer would stand out on the board, so no answer is "
                "released"
            )
        is_other = (
            answers.indices != answers.owners() if answers.group == own else answers.indices > -1
        )
        named = int(np.bincount(answers.owners()[is_other], minlength=1).max(initial=0))
        if named > exposed[own][answers.group]:
            raise Refused(
                f"task {task.name} named {named} others to one person but stated "
                f"{exposed[own][answers.group]}; the guarantee was computed from the smaller "
                "number, so no answer is released"
            )
