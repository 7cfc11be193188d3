"""The scenarios of the demo: riders and taxis, friends nearby, a crowd that teaches a model.

A scenario is what an organizer decides before a round, and what its people keep to themselves.
The services and the clients are the real ones. Paper, use cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.demo import city, gradients
from coatcheck.domains import Ball, Box
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import BoundedResponse, tuned
from coatcheck.simulation.trial import box_around, make_task, plan_groups, usual_delta
from coatcheck.tasks.learning import Learning

Floats = NDArray[np.float64]

NAMES: Final = ("taxi", "friends", "learning")
FEWEST, MOST = 8, 2_000
_FRIENDS_RADIUS: Final = 600.0
_FRIENDS_LIMIT: Final = 5
_SEED: Final = 2026
_LINES: Final = {
    "taxi": ("by the blue door", "two minutes, a green car"),
    "friends": ("coffee at the corner?", "in ten minutes"),
}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A round and its people.

    Attributes:
        epsilon: the ε that was asked for; the terms promise at most this.
        task: what the terms name.
        values: for each group one row per person: what each of them keeps to themselves.
        box: where places are; None where values are no places.
        lines: a letter and the reply to it.
        insight: what only the server knows and the terms do not say, for learning.
    """

    name: str
    epsilon: float
    task: tasks.Task
    drafts: tuple[GroupPlan, ...]
    values: tuple[Floats, ...]
    box: Box | None
    lines: tuple[str, str] = ("", "")
    insight: gradients.Lesson | None = field(default=None, repr=False)

    @property
    def people(self) -> int:
        """How many take part."""
        return sum(len(rows) for rows in self.values)

    def draft(self) -> dict[str, Any]:
        """Write the draft that the organizer hands to the server."""
        return {
            "round": f"demo {self.name}",
            "task": self.task.params(),
            "groups": [draft.params() for draft in self.drafts],
        }


def make_scenario(
    name: str, *, people: int, epsilon: float, data: Mapping[str, Floats] | None = None
) -> Scenario:
    """Make a scenario by name with so many people, or with the people of a file."""
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
    groups = _riders_and_drivers(people, data) if name == "taxi" else _members(people, data)
    for group, rows in groups.items():
        if len(rows) < FEWEST // 4:
            raise Misuse(f"group {group!r} has {len(rows)} people: nobody hides among so few")
    box = city.CITY if data is None else box_around(groups, degrees=True)
    names, sizes = tuple(groups), [len(rows) for rows in groups.values()]
    if name == "taxi":
        task = make_task("least-cost-matching", names=names, box=box)
    else:
        radius, limit = _FRIENDS_RADIUS, _FRIENDS_LIMIT
        task = make_task("neighbours", names=names, box=box, radius=radius, limit=limit)
    return Scenario(
        name=name,
        epsilon=epsilon,
        task=task,
        drafts=plan_groups(sizes, task=task, domain=box, epsilon=epsilon, delta=usual_delta(sizes)),
        values=tuple(groups.values()),
        box=box,
        lines=_LINES[name],
    )


def _riders_and_drivers(people: int, data: Mapping[str, Floats] | None) -> dict[str, Floats]:
    riders = people * 9 // 20
    groups = dict(data or {})
    if not groups:
        return {
            "riders": city.places(riders, seed=_SEED),
            "drivers": city.places(people - riders, seed=_SEED + 1),
        }
    if len(groups) == 1:
        # One list of places: the first of every pair is a rider, so that both sides mix.
        (rows,) = groups.values()
        return {"riders": rows[0::2], "drivers": rows[1::2]}
    if len(groups) != 2:
        raise Misuse(f"the taxi demo has riders and drivers, the file has {', '.join(groups)}")
    return groups


def _members(people: int, data: Mapping[str, Floats] | None) -> dict[str, Floats]:
    if not data:
        return {"members": city.places(people, seed=_SEED)}
    return {"members": np.concatenate(list(data.values()))}


def _learning(people: int, epsilon: float) -> Scenario:
    known = gradients.lesson(people, seed=_SEED)
    ball = Ball(radius=gradients.CLIP, p=2, dimension=gradients.PARAMETERS)
    task = Learning(dimension=gradients.PARAMETERS, share_mean=True, groups=("learners",))
    delta = usual_delta([people])
    return Scenario(
        name="learning",
        epsilon=epsilon,
        task=task,
        drafts=plan_groups(
            [people], task=task, domain=ball, epsilon=epsilon, delta=delta, goal="unbiased"
        ),
        values=(known.gradients,),
        box=None,
        insight=known,
    )


def with_places(scenario: Scenario) -> Scenario:
    """Let everybody report a place instead of a cell, under the same promise.

    A small crowd is best served by a grid of few cells; on a map they would hide that each
    report is one person's. *Guarantee:* the central ε is that of the scenario; the error is a few
    percent larger.
    """
    if scenario.box is None:
        raise Misuse("the page shows places on a map: choose the taxi or the friends demo")
    box = scenario.box
    return replace(scenario, drafts=tuple(_placed(draft, box) for draft in scenario.drafts))


def _placed(draft: GroupPlan, box: Box) -> GroupPlan:
    crowd, corrupted, delta = draft.minimum, draft.corrupted, draft.delta
    law = draft.randomizer.law
    promised = amplify(law, crowd=crowd, delta=delta, corrupted=corrupted).epsilon
    radius = tuned(BoundedResponse, domain=box, epsilon=draft.randomizer.epsilon).radius
    local = calibrate(
        lambda epsilon: BoundedResponse(domain=box, epsilon=epsilon, radius=radius).law,
        epsilon=promised,
        crowd=crowd,
        delta=delta,
        corrupted=corrupted,
    ).local_epsilon
    made = BoundedResponse(domain=box, epsilon=local, radius=radius, decode="median")
    return replace(draft, randomizer=made, decode="median")
