"""How well a round served people, measured by their true places and compared with alternatives.

These measures need everybody's true place, which only a simulation knows.
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
        served: people who got at least one partner.
        pairs: how many partners they got, all together.
        mean_distance: between a person and a partner, in the unit of the box; nan without pairs.
        median_distance: the median of the same distances.
        within: precision: the share of pairs that are near, which is within the task's radius; for
            candidates of a task without a radius, within a fifth of the box's shorter side;
            otherwise nan.
        recall: near pairs as a share of those that the task names from true places. For everybody
            at most as many count as an answer to true places may name, so that finding many near
            people for some does not make up for finding nobody for others; nan without a radius.
    """

    served: int
    pairs: int
    mean_distance: float
    median_distance: float
    within: float
    recall: float


@dataclass(frozen=True, kw_only=True)
class Service:
    """The quality of a round, and of the same round under other conditions.

    Attributes:
        private: with the server's answers; for candidates, with the one partner that the server
            would name from the same reports.
        settled: after candidates settled; None if they did not.
        without_noise: if the server saw true places.
        at_random: if as many partners were drawn at random.
    """

    private: Quality
    settled: Quality | None
    without_noise: Quality
    at_random: Quality


def one_partner(task: tasks.Task) -> tasks.Task:
    """Return the same task without candidates, so that it names the one best partner."""
    return tasks.from_params({**task.params(), "candidates": 1}) if names_many(task) else task


def names_many(task: tasks.Task) -> bool:
    """Return whether a task answers with several candidates."""
    return getattr(task, "candidates", 1) > 1


def named_alone(
    task: tasks.Task, estimates: Sequence[Floats], owners: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """Return the one partner that the server would name for each person, as pairs of rows."""
    first = tasks.answer(one_partner(task), list(estimates))[0]
    if not isinstance(first, tasks.References):
        raise Misuse(f"task {task.name} answers with numbers, not with partners; choose another")
    pairs = zip(first.owners(), first.indices, strict=True)
    return [(owners[0][person], owners[-1][partner]) for person, partner in pairs]


def shorter_side(box: Box) -> float:
    """Return the shorter side of a box, in its unit."""
    factors = scale_of(box) or (1.0,) * box.dimension
    return min((hi - lo) * f for lo, hi, f in zip(box.lo, box.hi, factors, strict=True))


def measure(
    named: Sequence[tuple[int, int]],
    values: Sequence[Floats],
    *,
    task: tasks.Task,
    box: Box,
    entropy: Entropy,
    settled: Sequence[tuple[int, int]] | None = None,
) -> Service:
    """Measure by true places the pairs that a round named, of the first and the last group."""
    first = tasks.answer(one_partner(task), list(values))[0]
    if not isinstance(first, tasks.References):
        raise Misuse(
            f"task {task.name} answers with numbers, not with partners to measure; choose another"
        )
    people, partners = _columns(named)
    radius = getattr(task, "radius", shorter_side(box) / 5 if names_many(task) else None)

    limit = int(getattr(task, "limit", 1))

    def near(rows: NDArray[np.int64], others: NDArray[np.int64]) -> int:
        apart = misses(box, values[0][rows], values[-1][others])
        return int(np.minimum(np.bincount(rows[apart <= (radius or 0.0)]), limit).sum())

    possible = near(first.owners(), first.indices)

    def quality(rows: NDArray[np.int64], others: NDArray[np.int64]) -> Quality:
        apart = misses(box, values[0][rows], values[-1][others])
        some = len(apart) > 0
        return Quality(
            served=len(np.unique(rows)),
            pairs=len(rows),
            mean_distance=float(apart.mean()) if some else math.nan,
            median_distance=float(np.median(apart)) if some else math.nan,
            within=float((apart <= radius).mean()) if some and radius is not None else math.nan,
            recall=near(rows, others) / possible if possible and radius is not None else math.nan,
        )

    return Service(
        private=quality(people, partners),
        settled=None if settled is None else quality(*_columns(settled)),
        without_noise=quality(first.owners(), first.indices),
        at_random=quality(people, entropy.below(len(values[-1]), len(people))),
    )


def _columns(pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
