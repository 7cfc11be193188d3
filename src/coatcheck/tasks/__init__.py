"""Tasks by name: what a server may compute on the shuffled estimates.

A task gets one array of estimates per group, and the notes if it reads them. It never sees a key,
an address or a message, and cannot import the code that handles them. It answers every report once,
with numbers (`Values`) or with other reports by position (`References`). It must be
permutation-equivariant: `check_equivariance` looks for a counterexample. A new task is a file here
and a line in `_BUILT_IN`, or a plug-in: an installed package with an entry point. Paper, sections
on problem settings and post-computation communication.

    >>> import numpy as np
    >>> from coatcheck.tasks import answer, from_params
    >>> task = from_params({"name": "maximum-matching", "radius": 1.0})
    >>> users, workers = answer(task, [np.array([[0.0, 0.0]]), np.array([[0.5, 0.0], [9.0, 9.0]])])
    >>> users.of(0), workers.of(1)
    (array([0]), array([], dtype=int64))
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Misuse
from coatcheck.tasks.contract import (
    Answers,
    AnswerSize,
    Belief,
    Floats,
    NeedsCrowds,
    Notes,
    Optimizes,
    Positions,
    ReadsBeliefs,
    ReadsNotes,
    References,
    RunsByRegion,
    Score,
    Scored,
    Task,
    Values,
    from_pairs,
    with_silent,
)
from coatcheck.tasks.execution import answer, canonical_order

__all__ = [
    "AnswerSize",
    "Answers",
    "Belief",
    "Floats",
    "NeedsCrowds",
    "Notes",
    "Optimizes",
    "Positions",
    "ReadsBeliefs",
    "ReadsNotes",
    "References",
    "RunsByRegion",
    "Score",
    "Scored",
    "Task",
    "Values",
    "answer",
    "canonical_order",
    "check_coin_allowed",
    "check_decoys_allowed",
    "exposure",
    "from_pairs",
    "from_params",
    "load",
    "names",
    "with_silent",
]

ENTRY_POINTS = "coatcheck.tasks"

_BUILT_IN = {
    "download": "coatcheck.tasks.download:Download",
    "groups": "coatcheck.tasks.grouping:Groups",
    "learning": "coatcheck.tasks.learning:Learning",
    "least-cost-matching": "coatcheck.tasks.matching:LeastCostMatching",
    "maximum-matching": "coatcheck.tasks.matching:MaximumMatching",
    "neighbours": "coatcheck.tasks.neighbours:Neighbours",
    "similar": "coatcheck.tasks.neighbours:Similar",
    "standing": "coatcheck.tasks.standing:Standing",
}


def names() -> tuple[str, ...]:
    """Return the names of all tasks, built in or installed as plug-ins."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in _plug_ins())}))


def load(name: str) -> type[Task]:
    """Load the class of a task; built-in names win over those of plug-ins."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast("type[Task]", getattr(import_module(module), attribute))
    for point in _plug_ins():
        if point.name == name:
            return cast("type[Task]", point.load())
    raise Misuse(f"no task is called {name!r}; the tasks are {', '.join(names())}")


def from_params(params: dict[str, object]) -> Task:
    """Build a task from its parameters in the terms."""
    rest = {key: value for key, value in params.items() if key != "name"}
    name = params.get("name")
    if not isinstance(name, str):
        raise Misuse("the parameters of a task need its name; set `name`")
    try:
        return load(name)(**rest)
    except Misuse:
        raise
    except UNTRUSTED_DATA_ERRORS as error:
        raise Misuse(f"task {name} does not take these parameters: {error}") from error


def exposure(
    task: Task,
    *,
    sizes: Sequence[int],
    corrupted: Sequence[int],
    shufflers: int = 1,
    decoys: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return an upper bound on the reports of each group that answers to the corrupted expose.

    With |C_g| corrupted people in group g, who get r_g answers each, at most
    sum_g |C_g| * r_g * exposed[g][h] reports of group h leave the crowd (paper, post-computation
    communication): people, or with decoys reports of either sort. r_g is the number of items of an
    upload, `shufflers` plus the group's `decoys`, because a report may stand in the place of each.
    *Assumes*, as in the paper, that which people are corrupted does not depend on the reports
    (docs/explanation/exposure.md).
    """
    extra = decoys or (0,) * len(sizes)
    reports = [size * (1 + more) for size, more in zip(sizes, extra, strict=True)]
    exposed = task.exposed(reports)
    if [len(row) for row in exposed] != [len(sizes)] * len(sizes):
        raise Misuse(
            f"task {task.name} states the exposure of {len(exposed)} groups; there are {len(sizes)}"
        )
    answers = [count * (shufflers + more) for count, more in zip(corrupted, extra, strict=True)]
    return tuple(
        min(
            (sizes[h] - corrupted[h]) * (1 + extra[h]),
            sum(count * exposed[g][h] for g, count in enumerate(answers)),
        )
        for h in range(len(sizes))
    )


def check_coin_allowed(task: Task, *, sizes: Sequence[int]) -> None:
    """Refuse participation coins where answers name people: the number of reports is unknown."""
    if any(any(row) for row in task.exposed(sizes)):
        raise Misuse(
            f"task {task.name} names people in its answers, so everybody must report; leave the "
            "participation coin out, or choose a task that answers with numbers"
        )


def check_decoys_allowed(task: Task, *, sizes: Sequence[int]) -> None:
    """Refuse decoys where answers name nobody: they would count in every number, unseen."""
    if not any(any(row) for row in task.exposed(sizes)):
        raise Misuse(
            f"task {task.name} answers with numbers, and decoys would change them: leave `decoys` "
            "out, or choose a task that names people"
        )


def _plug_ins() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))
