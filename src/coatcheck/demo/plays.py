"""What can be played: riders and taxis, friends nearby, a crowd that teaches a model.

A play is everything an organizer decides before a round and everything its people would keep to
themselves; the processes and the clients are the real ones. Paper, use cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.demo import city, gradients
from coatcheck.domains import Ball, Box
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.simulation.trial import box_around, make_task, plan_groups, usual_delta
from coatcheck.tasks.learning import Learning

Floats = NDArray[np.float64]

NAMES: Final = ("taxi", "friends", "learning")
FEWEST, MOST = 8, 2_000
_FRIENDS_RADIUS: Final = 600.0
_FRIENDS_LIMIT: Final = 5
_SEED: Final = 2026


@dataclass(frozen=True, kw_only=True)
class Play:
    """A round to be played.

    Attributes:
        values: for each group one row a person: what each of them keeps to themselves.
        task: what the terms name.
        insight: what the server knows besides and the terms do not say, for learning.
        box: where places are; None where values are no places.
        heroes: the names of two of the people: the first of group 0 and whom they meet.
    """

    name: str
    task: tasks.Task
    drafts: tuple[GroupPlan, ...]
    values: tuple[Floats, ...]
    box: Box | None
    heroes: tuple[str, str]
    lines: tuple[str, str] = ("", "")
    insight: gradients.Lesson | None = field(default=None, repr=False)

    @property
    def people(self) -> int:
        """How many take part."""
        return sum(len(rows) for rows in self.values)


def make_play(
    name: str, *, people: int, epsilon: float, data: Mapping[str, Floats] | None = None
) -> Play:
    """Cast a play by name with so many people, or with the people of a file."""
    if name not in NAMES:
        raise Misuse(f"the demos are {' | '.join(NAMES)}, not {name!r}")
    if not FEWEST <= people <= MOST:
        raise Misuse(
            f"a demo has from {FEWEST} to {MOST:,} people, not {people:,}: for a larger crowd use"
            " `coatcheck simulate`"
        )
    if name == "learning":
        if data is not None:
            raise Misuse("the learning demo makes its own gradients: leave --data out")
        return _learning(people, epsilon)
    return _taxi(people, epsilon, data) if name == "taxi" else _friends(people, epsilon, data)


def _taxi(people: int, epsilon: float, data: Mapping[str, Floats] | None) -> Play:
    riders = people * 9 // 20
    groups = dict(data) if data else _both(riders, people - riders)
    if len(groups) == 1:
        # One list of places: the first of every pair is a rider, so that both sides mix.
        (rows,) = groups.values()
        groups = {"riders": rows[0::2], "drivers": rows[1::2]}
    if len(groups) != 2:
        raise Misuse(f"the taxi demo has riders and drivers, the file has {', '.join(groups)}")
    _check_sizes(groups)
    box = city.CITY if data is None else box_around(groups, degrees=True)
    return _located(
        "taxi",
        groups,
        task=make_task("least-cost-matching", names=tuple(groups), box=box),
        box=box,
        epsilon=epsilon,
        lines=("by the blue door", "two minutes, a green car"),
    )


def _friends(people: int, epsilon: float, data: Mapping[str, Floats] | None) -> Play:
    groups = {"members": city.places(people, seed=_SEED)}
    if data:
        groups = {"members": np.concatenate(list(data.values()))}
    _check_sizes(groups)
    box = city.CITY if data is None else box_around(groups, degrees=True)
    task = make_task(
        "neighbours", names=tuple(groups), box=box, radius=_FRIENDS_RADIUS, limit=_FRIENDS_LIMIT
    )
    lines = ("coffee at the corner?", "in ten minutes")
    return _located("friends", groups, task=task, box=box, epsilon=epsilon, lines=lines)


def _learning(people: int, epsilon: float) -> Play:
    known = gradients.lesson(people, seed=_SEED)
    ball = Ball(radius=gradients.CLIP, p=2, dimension=gradients.PARAMETERS)
    task = Learning(dimension=gradients.PARAMETERS, share_mean=True, groups=("learners",))
    drafts = plan_groups(
        [people],
        task=task,
        domain=ball,
        epsilon=epsilon,
        delta=usual_delta([people]),
        goal="unbiased",
    )
    return Play(
        name="learning",
        task=task,
        drafts=drafts,
        values=(known.gradients,),
        box=None,
        heroes=("Ada", "Bo"),
        insight=known,
    )


def _both(riders: int, drivers: int) -> dict[str, Floats]:
    return {
        "riders": city.places(riders, seed=_SEED),
        "drivers": city.places(drivers, seed=_SEED + 1),
    }


def _check_sizes(groups: Mapping[str, Floats]) -> None:
    for name, rows in groups.items():
        if len(rows) < FEWEST // 4:
            raise Misuse(f"group {name!r} has {len(rows)} people: nobody hides among so few")


def _located(
    name: str,
    groups: Mapping[str, Floats],
    *,
    task: tasks.Task,
    box: Box,
    epsilon: float,
    lines: tuple[str, str],
) -> Play:
    sizes = [len(rows) for rows in groups.values()]
    drafts = plan_groups(sizes, task=task, domain=box, epsilon=epsilon, delta=usual_delta(sizes))
    return Play(
        name=name,
        task=task,
        drafts=drafts,
        values=tuple(groups.values()),
        box=box,
        heroes=("Ada", "Bo"),
        lines=lines,
    )
