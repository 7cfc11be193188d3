"""A task by regions: space is cut into boxes, and each is answered with those around it.

A task that looks only so far (`RunsByRegion`) gives a report the same answer when it sees only the
reports within its reach. So each region is a pure function of its own reports and of a halo, and
regions can be answered anywhere, in any order. Sees places, never keys.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Floats, Positions, References
from coatcheck.tasks.contract import RunsByRegion

_SLACK = 1e-9  # a halo is a little wider than the reach, for the rounding of distances

Map = Callable[[Callable[["Region"], References], Iterable["Region"]], Iterable[References]]


@dataclass(frozen=True, eq=False)
class Region:
    """Reports that are answered together.

    Attributes:
        own: the positions of those who are answered, in order.
        around: the positions of those whom the task sees: `own` and the halo, in order.
    """

    own: Positions
    around: Positions


def regions(places: Floats, *, reach: float, count: int) -> list[Region]:
    """Cut places by halves along the widest side, into `count` regions of about the same size."""
    found = []
    for own in _halved(places, np.arange(len(places)), count):
        low, high = places[own].min(axis=0), places[own].max(axis=0)
        beyond = np.maximum(np.maximum(low - places, places - high), 0.0)
        near = np.hypot.reduce(beyond, axis=1) <= reach * (1 + _SLACK)
        found.append(Region(own, np.flatnonzero(near)))
    return found


def answer_region(task: RunsByRegion, estimates: Floats, region: Region) -> References:
    """The answers of a region's own reports; `estimates` are of those around it, in order."""
    (told,) = task([estimates])
    if not isinstance(told, References):
        raise Misuse(f"task {task.name} runs by region, so it must answer with references")
    return told.take(np.searchsorted(region.around, region.own)).renamed(region.around)


def joined(parts: Sequence[Region], told: Sequence[References]) -> References:
    """The answers of all regions as those of the whole group."""
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([one.counts() for one in told]))])
    indices = np.concatenate([one.indices for one in told])
    whole = References(told[0].group, indptr, indices, told[0].ordered, told[0].located)
    return whole.take(np.argsort(np.concatenate([part.own for part in parts])))


def by_regions(
    task: RunsByRegion, estimates: Floats, *, count: int, run: Map = map
) -> list[References]:
    """What the task answers to the whole group, found region by region.

    `run` is given what to do and the regions; it may do them in other processes.
    """
    if task.reach is None:
        raise Misuse(f"task {task.name} looks at everybody: run it on the whole group")
    if not len(estimates):
        return [answer_region(task, estimates, Region(np.arange(0), np.arange(0)))]
    parts = regions(task.placed(estimates), reach=task.reach, count=count)
    return [joined(parts, list(run(partial(_answer, task, estimates), parts)))]


def _answer(task: RunsByRegion, estimates: Floats, region: Region) -> References:
    return answer_region(task, estimates[region.around], region)


def _halved(places: Floats, own: Positions, count: int) -> list[Positions]:
    """The positions of each part, in order; no part is empty."""
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
