"""How well people of a round were served, by their true places, beside what they could have had.

Knows every place, as a simulation does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.choice import misses
from coatcheck.tasks.contract import scale_of


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How well people of the first group are served, by their true places.

    Attributes:
        served: people who were told of somebody.
        pairs: how many partners they were told of, all together.
        mean_distance: between a person and a partner, in the unit of the box; nan without pairs.
        median_distance: the same, for the pair in the middle.
        within: the share of pairs within the task's radius; of candidates without one, within a
            fifth of the box's shorter side; else nan.
    """

    served: int
    pairs: int
    mean_distance: float
    median_distance: float
    within: float


@dataclass(frozen=True, kw_only=True)
class Service:
    """How people were served, beside what they could have had.

    Attributes:
        private: how they were served by the server's answers; with candidates, by the one partner
            that the server would name from the same reports.
        settled: how they were served after candidates had settled; None if they did not.
        without_noise: how they would be if the server saw true places.
        at_random: how they would be if as many partners were drawn at random.
    """

    private: Quality
    settled: Quality | None
    without_noise: Quality
    at_random: Quality


def one_partner(task: tasks.Task) -> tasks.Task:
    """Return the same task without candidates: it names the one partner that seems best."""
    return tasks.from_params({**task.params(), "candidates": 1}) if names_many(task) else task


def names_many(task: tasks.Task) -> bool:
    """Whether a task gives candidates."""
    return getattr(task, "candidates", 1) > 1


def named_alone(
    task: tasks.Task, estimates: Sequence[Floats], owners: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """Return whom the server would name as the one partner of each, by whose rows they are."""
    first = tasks.answer(one_partner(task), list(estimates))[0]
    if not isinstance(first, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers: it has no partners")
    pairs = zip(first.owners(), first.indices, strict=True)
    return [(owners[0][one], owners[-1][other]) for one, other in pairs]


def shorter_side(box: Box) -> float:
    """Return the shorter side of a box, in its unit."""
    factors = scale_of(box) or (1.0,) * box.dimension
    return min((hi - lo) * f for lo, hi, f in zip(box.lo, box.hi, factors, strict=True))


def measure(
    told: Sequence[tuple[int, int]],
    values: Sequence[Floats],
    *,
    task: tasks.Task,
    box: Box,
    entropy: Entropy,
    settled: Sequence[tuple[int, int]] | None = None,
) -> Service:
    """Judge by true places who of the first group was told of whom of the last."""
    first = tasks.answer(one_partner(task), list(values))[0]
    if not isinstance(first, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers: it has no partners to measure")
    people, partners = _columns(told)
    radius = getattr(task, "radius", shorter_side(box) / 5 if names_many(task) else None)

    def quality(one: NDArray[np.int64], other: NDArray[np.int64]) -> Quality:
        apart = misses(box, values[0][one], values[-1][other])
        some = len(apart) > 0
        return Quality(
            served=len(np.unique(one)),
            pairs=len(one),
            mean_distance=float(apart.mean()) if some else math.nan,
            median_distance=float(np.median(apart)) if some else math.nan,
            within=float((apart <= radius).mean()) if some and radius is not None else math.nan,
        )

    return Service(
        private=quality(people, partners),
        settled=None if settled is None else quality(*_columns(settled)),
        without_noise=quality(first.owners(), first.indices),
        at_random=quality(people, entropy.below(len(values[-1]), len(people))),
    )


def _columns(pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
