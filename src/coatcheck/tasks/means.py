"""The mean of whole gradients, a part of the reports at a time.

A model has thousands of parameters and a crowd a million people: the table of all estimates would
be many gigabytes, and to sort it takes longer than to add it up. A task that tells everybody the
mean and nothing else needs neither. Sees reports and estimates, never keys.
"""

from collections.abc import Callable
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Misuse
from coatcheck.tasks.answering import canonical_order
from coatcheck.tasks.answers import Floats, Values
from coatcheck.tasks.contract import Task
from coatcheck.tasks.learning import Learning

_NUMBERS: Final = 2**20  # estimates that are read at a time: 8 MB, and as much again to read them


def tells_mean_only(task: Task) -> TypeGuard[Learning]:
    """Tell whether it is learning without rewards, of whole gradients."""
    return isinstance(task, Learning) and not (task.rewards or task.sampled)


def mean_of(
    task: Learning, reports: NDArray[Any], read: Callable[[NDArray[Any]], Floats]
) -> Values:
    """Answer all reports with the mean of their estimates, as the task does.

    `read` estimates some reports, each by itself. They are added up in the order of their content,
    so that the order in which they came does not matter.
    """
    ordered = reports[canonical_order(reports)]
    total, rows = np.zeros(task.dimension), max(1, _NUMBERS // task.dimension)
    for start in range(0, len(ordered), rows):
        part = ordered[start : start + rows]
        total += task.mean(read(part)) * len(part)
    if not np.all(np.isfinite(total)):
        raise Misuse(f"estimates of group {task.groups[0]} are not all finite")
    return Values(np.empty((len(reports), 0)), total / max(1, len(reports)))
