"""The choice of cells and decoys for tasks whose people find out by letter who is near.

What the server lists is only half of such a round: people settle by their true places. So designs
are compared by what people end up with, in trial rounds of made-up or public crowds: how many of
the smaller group settle with somebody near, or how many of the near people everybody finds. Each
report names a cell of a grid; finer cells need a smaller local ε, or decoys beside the report.
Decoys cost messages, letters and a larger local ε. So they are chosen only if they serve clearly
more people than longer lists with as many letters, on crowds that had no part in the choice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.accounting.laws import Law
from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.planning.budget_search import Design, Promise, designed
from coatcheck.protocol.server import belief
from coatcheck.randomizers import GridResponse, Prior, Randomizer
from coatcheck.randomizers.choice import Choice
from coatcheck.tasks.contract import Positions, scale_of, scaled
from coatcheck.tasks.matching import lists_of
from coatcheck.tasks.neighbours import share_found
from coatcheck.tasks.shortlists import settled

MOST_DECOYS: Final = 2
"""The most decoys per person that a plan tries: three messages of each."""
_CELLS: Final = (4, 9, 16, 25, 36, 49)
_FIRST, _PEOPLE = 300, 900  # of the largest group of a trial round, at first and later
_AGAIN: Final = 2  # rounds of the best designs for each number of decoys
_BEST: Final = 2
_HELD_OUT: Final = 6  # rounds that decide between the best with decoys and the best without
_CLEARLY: Final = 2.0  # standard errors
_WORTH: Final = 0.02  # of the people: fewer more are not worth a larger local ε
_ASKS: Final = (3, 2)
_RINGS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A design and its score in trial rounds.

    Attributes:
        task: the task, perhaps with longer lists than the planned one.
        decoys: how many each person sends.
        randomizers: the mechanism of each group.
        values: the share of people who are served, for each round.
        held_out: whether no round had a part in the choice.
    """

    task: tasks.Task
    decoys: int
    randomizers: tuple[GridResponse, ...]
    values: tuple[float, ...] = ()
    held_out: bool = False

    @property
    def score(self) -> float:
        """The share of people who are served, averaged over rounds."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """The standard error of the score; not a number after a single round."""
        if len(self.values) < 2:
            return math.nan
        return float(np.std(self.values, ddof=1)) / math.sqrt(len(self.values))

    @property
    def candidates(self) -> int:
        """The most others that are listed for a person, over all messages and passes."""
        sizes = self.task.answer_size([one.domain.dimension for one in self.randomizers])
        return (self.decoys + 1) * sizes[0].references

    @property
    def cells(self) -> int:
        """The number of cells of the grid."""
        return math.prod(self.randomizers[0].cells)

    @property
    def local_epsilon(self) -> float:
        """The largest local ε of a group."""
        return max(one.epsilon for one in self.randomizers)

    def __str__(self) -> str:
        beside = {0: "no decoys", 1: "1 decoy"}.get(self.decoys, f"{self.decoys} decoys")
        error = f" ± {200 * self.standard_error:.2g}" if len(self.values) > 1 else ""
        return (
            f"{beside}, {self.cells} cells, local ε = {self.local_epsilon:.3g}: "
            f"{100 * self.score:.1f}{error} % served, {self.candidates} candidates per person"
        )


def has_letters(task: tasks.Task) -> bool:
    """Return whether people find out by letter which of their candidates are near."""
    return getattr(task, "candidates", 1) > 1 or getattr(task, "by", "") == "chance"


def choose_settled(
    task: tasks.Task,
    promises: Sequence[Promise],
    *,
    domains: Sequence[Any],
    prior: Sequence[Floats | Prior | None] | None,
    entropy: Entropy,
    decoys: int | None = None,
) -> tuple[list[Tried], list[list[Design]]]:
    """Return the tried designs, the chosen one first, and the chosen design of each group.

    `promises` are without decoys; those with decoys expose as many more messages. `decoys` fixes
    their number.
    """
    if not all(isinstance(domain, Box) for domain in domains):
        raise Misuse("rounds with letters are planned for places in a box; give boxes as domains")
    rounds = _Rounds(domains, promises, prior=prior, entropy=entropy)
    counts = range(MOST_DECOYS + 1) if decoys is None else (decoys,)
    best = [_best(rounds, task, count) for count in counts]
    plain, leader = best[0], min(best[1:], key=_worst, default=best[0])
    finalists = [plain]
    if leader is not plain:
        longer = _longer(task, leader.decoys + 1, promises)
        finalists += [leader, replace(plain, task=longer)]
    crowds = rounds.crowds(_HELD_OUT, most=_PEOPLE)
    finals = [rounds.tried(one, crowds, held_out=True) for one in finalists]
    chosen = finals[1] if len(finals) > 1 and _clearly(finals[1], finals[2]) else finals[0]
    rest = [one for one in finals if one is not chosen]
    return [chosen, *rest], rounds.designs(chosen)


def _best(rounds: "_Rounds", task: tasks.Task, decoys: int) -> Tried:
    """Return the best number of cells for so many decoys, tried in two steps."""
    few = rounds.crowds(1, most=_FIRST)
    first = [rounds.tried(rounds.fitted(task, decoys, cells), few) for cells in _CELLS]
    crowds = rounds.crowds(_AGAIN, most=_PEOPLE)
    return min((rounds.tried(one, crowds) for one in sorted(first, key=_worst)[:_BEST]), key=_worst)


def _longer(task: tasks.Task, factor: int, promises: Sequence[Promise]) -> tasks.Task:
    """Return the task with lists that are so many times as long, if the crowds are large enough."""
    name = "candidates" if getattr(task, "candidates", 1) > 1 else "limit"
    most = min(promise.crowd for promise in promises)
    length = min(factor * int(getattr(task, name)), most)
    return tasks.from_params({**task.params(), name: length})


def _worst(one: Tried) -> tuple[float, int]:
    return -one.score, one.decoys


def _clearly(first: Tried, second: Tried) -> bool:
    """Return whether the first is better by more than chance, and by enough."""
    gain = np.subtract(first.values, second.values)
    chance = _CLEARLY * gain.std(ddof=1) / math.sqrt(len(gain))
    return bool(gain.mean() > max(_WORTH, chance))


class _Rounds:
    """Trial rounds of one task, with crowds by a prior or spread evenly."""

    def __init__(
        self,
        domains: Sequence[Box],
        promises: Sequence[Promise],
        *,
        prior: Sequence[Floats | Prior | None] | None,
        entropy: Entropy,
    ) -> None:
        self._domains, self._promises, self._entropy = domains, promises, entropy
        self._prior = prior or [None] * len(domains)

    def crowds(self, count: int, *, most: int) -> list[list[Floats]]:
        """Draw crowds, of at most so many people in the largest group."""
        sizes = [promise.crowd for promise in self._promises]
        shrink = min(1.0, most / max(sizes))
        return [
            [
                self._people(own, domain, max(2, round(size * shrink)))
                for own, domain, size in zip(self._prior, self._domains, sizes, strict=True)
            ]
            for _ in range(count)
        ]

    def _people(self, own: Floats | Prior | None, domain: Box, count: int) -> Floats:
        if own is None or isinstance(own, Prior):
            return np.asarray((own or Prior.even(domain)).draw(domain, count, self._entropy))
        people = np.asarray(own, dtype=np.float64)
        return people[self._entropy.below(len(people), count)]

    def fitted(self, task: tasks.Task, decoys: int, cells: int) -> Tried:
        """Return a grid of about so many cells with the local ε that the promises allow."""
        randomizers = []
        for promise, domain in zip(self._with_decoys(task, decoys), self._domains, strict=True):
            grid = GridResponse(domain=domain, epsilon=1.0, cells=near_squares(domain, cells))
            budget = promise.budget(partial(_law_at, grid))
            randomizers.append(replace(grid, epsilon=budget))
        return Tried(task=task, decoys=decoys, randomizers=tuple(randomizers))

    def tried(
        self, one: Tried, crowds: Sequence[Sequence[Floats]], *, held_out: bool = False
    ) -> Tried:
        """Try a design on these crowds."""
        values = tuple(self._served(one, crowd) for crowd in crowds)
        return replace(one, values=values, held_out=held_out)

    def designs(self, one: Tried) -> list[list[Design]]:
        """Return the design of each group."""
        promises = self._with_decoys(one.task, one.decoys)
        return [
            [
                designed(
                    promise,
                    Choice(
                        randomizer=randomizer,
                        how="raw",
                        goal="task",
                        error=1 - one.score,
                        standard_error=one.standard_error,
                    ),
                )
            ]
            for promise, randomizer in zip(promises, one.randomizers, strict=True)
        ]

    def _with_decoys(self, task: tasks.Task, decoys: int) -> list[Promise]:
        """Return the promises with decoys: answers then expose more messages."""
        if not decoys:
            return list(self._promises)
        exposed = tasks.exposure(
            task,
            sizes=[promise.crowd for promise in self._promises],
            corrupted=[promise.corrupted for promise in self._promises],
            decoys=[decoys] * len(self._promises),
        )
        return [
            replace(promise, exposed=count, decoys=decoys)
            for promise, count in zip(self._promises, exposed, strict=True)
        ]

    def _served(self, one: Tried, crowd: Sequence[Floats]) -> float:
        """Run a round, and return the share of people who are served."""
        messages, owners, beliefs = [], [], []
        for randomizer, people in zip(one.randomizers, crowd, strict=True):
            reports, rows = with_decoys(randomizer, people, one.decoys, self._entropy)
            messages.append(np.asarray(randomizer.estimate(reports, "raw"), dtype=np.float64))
            owners.append(rows)
            beliefs.append(belief(randomizer, reports, decoys=one.decoys))
        answers = tasks.answer(one.task, messages, beliefs=beliefs)
        places = [
            scaled(people, scale_of(domain))
            for people, domain in zip(crowd, self._domains, strict=True)
        ]
        return share_served(
            one.task, answers, places, owners, near_radii(one.task, self._domains[0])
        )


def with_decoys(
    randomizer: Randomizer, people: Floats, decoys: int, entropy: Entropy
) -> tuple[NDArray[np.int64], Positions]:
    """Return reports and decoys in random order, and whose they are: -1 for decoys."""
    own = np.asarray(randomizer.randomize(people, entropy, clamp=True), dtype=np.int64)
    if not decoys:
        return own, np.arange(len(own))
    count = decoys * len(own)
    widths = (randomizer.high - randomizer.low + 1).tolist()
    columns = [entropy.below(width, count) for width in widths]
    messages = np.concatenate([own, np.stack(columns, axis=1).astype(np.int64) + randomizer.low])
    owners = np.concatenate([np.arange(len(own)), np.full(count, -1)])
    order = np.argsort(entropy.words(len(owners)), kind="stable")
    return messages[order], owners[order]


def share_served(
    task: tasks.Task,
    answers: Sequence[tasks.Answers],
    places: Sequence[Floats],
    owners: Sequence[Positions],
    radii: Sequence[float],
) -> float:
    """Return the share of people who are served, if all find out by letter and nobody lies.

    That is the share of the smaller group who settle with somebody near; or in one group the share
    of the near people, up to a few for everybody, who are listed. `owners` says whose place belongs
    to each message, -1 for decoys.
    """
    if len(places) == 1:
        lists = cast("tasks.References", answers[0])
        return share_found(lists, places[0], radius=radii[-1], owners=owners[0])
    asking = int(len(owners[0]) > len(owners[1]))
    tables = [
        people_only(table, owners[asking], owners[1 - asking], rows=len(places[asking]))
        for table in lists_of(answers[asking], int(getattr(task, "candidates", 1)))
    ]
    ours, theirs = places[asking], places[1 - asking]
    partners = settled(ours, theirs, tables, asks=_ASKS, radii=radii)
    return float((partners >= 0).sum()) / min(map(len, places))


def _law_at(grid: GridResponse, epsilon: float) -> Law:
    return replace(grid, epsilon=epsilon).law


def near_radii(task: tasks.Task, box: Box) -> tuple[float, ...]:
    """Return the rings by which people settle; whoever is beyond the last is not near."""
    radius = getattr(task, "radius", None)
    if radius is None:
        sides = np.subtract(box.hi, box.lo) * (scale_of(box) or (1.0,) * box.dimension)
        radius = float(sides.min()) / 5
    return tuple(radius * n / _RINGS for n in range(1, _RINGS + 1))


def near_squares(box: Box, count: int) -> tuple[int, ...]:
    """Return how many cells each axis has, if about so many cells are nearly squares."""
    sides = np.subtract(box.hi, box.lo) * (scale_of(box) or (1.0,) * box.dimension)
    side = (float(np.prod(sides)) / count) ** (1 / box.dimension)
    return tuple(max(1, round(float(length) / side)) for length in sides)


def people_only(table: Positions, ours: Positions, theirs: Positions, *, rows: int) -> Positions:
    """Return lists of messages as lists of people, one row per person; -1 for decoys."""
    lists = np.full((rows, table.shape[1]), -1)
    is_own = ours >= 0
    lists[ours[is_own]] = np.where(table[is_own] >= 0, theirs[table[is_own]], -1)
    return lists
