"""The scenarios of the demo: who is near, taxis, friends, where one stands, a model that learns.

A scenario is what an organizer decides before a round, and what its people keep to themselves.
The services and the clients are the real ones. Paper, use cases.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from coatcheck import tasks
from coatcheck.demo import city, gradients, wages
from coatcheck.domains import Ball, Box, Floats
from coatcheck.errors import Misuse
from coatcheck.planning import Group, Recommendation, plan
from coatcheck.planning.search import usual_delta
from coatcheck.protocol.nearness import reply_size
from coatcheck.simulation.quality import names_many, one_partner
from coatcheck.simulation.settling import ASKS, usual_cell
from coatcheck.simulation.trial import box_around, make_task, plan_groups
from coatcheck.tasks.learning import Learning
from coatcheck.tasks.standing import Standing

NAMES: Final = ("nearby", "taxi", "friends", "standing", "learning")
FEWEST, MOST = 8, 2_000
_WORK: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "nearby": ("neighbours", {"radius": 1_000.0, "limit": 5}),
    "taxi": ("least-cost-matching", {}),
    "friends": ("neighbours", {"radius": 600.0, "limit": 5}),
}
_CANDIDATES: Final = 5
_LISTED: Final = {"nearby": 12, "friends": 32}  # whom one tests by letter, at most
_CELLS: Final = {"nearby": 4, "friends": 5}  # so many cells make a radius
_SEED: Final = 2026
_LINES: Final = {
    "nearby": ("coffee at the corner?", "in ten minutes"),
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
        settle: what the draft says of settling; None if candidates do not settle.
        alone: the task without settling, to compare with.
        trilaterator: who takes part from a false place, if somebody does.
        insight: what only the server knows and the terms do not say, for learning.
        turn: the number of the round, if people take part in several.
    """

    name: str
    epsilon: float
    task: tasks.Task
    drafts: tuple[Recommendation, ...]
    values: tuple[Floats, ...]
    box: Box | None
    lines: tuple[str, str] = ("", "")
    settle: dict[str, Any] | None = None
    alone: tasks.Task | None = None
    trilaterator: tuple[int, int] | None = None
    insight: gradients.Lesson | None = field(default=None, repr=False)
    turn: int = 1

    @property
    def people(self) -> int:
        """How many take part."""
        return sum(len(rows) for rows in self.values)

    @property
    def everybody(self) -> list[tuple[int, int]]:
        """Everybody, by group and row, the groups in turn as people come."""
        turns = zip_longest(*(range(len(rows)) for rows in self.values))
        return [
            (group, row)
            for row, turn in enumerate(turns)
            for group, there in enumerate(turn)
            if there is not None
        ]

    @property
    def _number(self) -> str:
        turn = self.turn if self.insight is None else self.insight.model.done + 1
        return f" {turn}" if turn > 1 else ""

    @property
    def besides(self) -> str:
        """What settling tells others beside the reports, in words."""
        if self.settle is None:
            return ""
        told = "the square you are in" if self.settle["settle"]["asks"] else "near or not near"
        return f"candidates also learn {told}"

    def next_round(self) -> "Scenario":
        """Return the same people's next round."""
        return replace(self, turn=self.turn + 1)

    def draft(self) -> dict[str, Any]:
        """Write the draft that the organizer hands to the server."""
        return {
            "round": f"demo {self.name}{self._number}",
            "task": self.task.params(),
            "groups": [draft.params() for draft in self.drafts],
            **(self.settle or {}),
        }


def make_scenario(
    name: str,
    *,
    people: int,
    epsilon: float,
    data: Mapping[str, Floats] | None = None,
    candidates: int | None = None,
    settle: bool = False,
    planning: Callable[[], object] = lambda: None,
) -> Scenario:
    """Make a scenario by name with so many people, or with the people of a file.

    With `candidates` riders get so many possible drivers, and they settle by letter. With `settle`
    there are the usual number of them, and friends find out by letter who is truly near, as those
    nearby always do. The last of those nearby is the trilaterator, at a place that it claims.
    `planning` is called once all that is asked for is in order, before what takes a moment.
    """
    if name not in NAMES:
        raise Misuse(f"the demos are {' | '.join(NAMES)}, not {name!r}")
    if not FEWEST <= people <= MOST:
        raise Misuse(
            f"a demo has from {FEWEST} to {MOST:,} people, not {people:,}: for a larger crowd use"
            " `coatcheck simulate`"
        )
    if name in {"standing", "learning"}:
        if candidates is not None or settle:
            raise Misuse(f"the {name} demo has no candidates: leave --candidates and --settle out")
        if data is not None:
            raise Misuse(f"the {name} demo makes its own numbers: leave --data out")
        planning()
        return (_standing if name == "standing" else _learning)(people, epsilon)
    groups = _groups(name, people, data)
    for group, rows in groups.items():
        if len(rows) < FEWEST // 4:
            raise Misuse(f"group {group!r} has {len(rows)} people: nobody hides among so few")
    box = city.CITY if data is None else box_around(groups, degrees=True)
    work, options = _WORK[name]
    if settle and name == "taxi" and candidates is None:
        candidates = _CANDIDATES
    task = make_task(work, names=tuple(groups), box=box, candidates=candidates, **options)
    alone = one_partner(task)
    if name == "nearby" or (settle and name == "friends"):
        task = tasks.from_params({**task.params(), "limit": _LISTED[name], "mutual": True})
    sizes = [len(rows) for rows in groups.values()]
    planning()
    return Scenario(
        name=name,
        epsilon=epsilon,
        task=task,
        drafts=plan_groups(sizes, task=task, domain=box, epsilon=epsilon),
        values=tuple(groups.values()),
        box=box,
        lines=_LINES[name],
        settle=_settle(name, task, box) if names_many(task) or task is not alone else None,
        alone=alone,
        trilaterator=(0, sizes[0] - 1) if name == "nearby" else None,
    )


def _settle(name: str, task: tasks.Task, box: Box) -> dict[str, Any]:
    """Write what the draft says of settling: by asking, or by the test of nearness."""
    if names_many(task):
        return {"settle": {"cell": usual_cell(box), "asks": ASKS}}
    radius = task.params()["radius"]
    side = float(str(radius)) / _CELLS[name]
    size = reply_size(side * _CELLS[name], side=side, axes=box.dimension)
    return {"settle": {"cell": side, "asks": []}, "letter_size": size}


def _groups(name: str, people: int, data: Mapping[str, Floats] | None) -> dict[str, Floats]:
    """Put the people of a file, or made-up ones, into the groups of a scenario."""
    groups = dict(data or {})
    if name in {"nearby", "friends"}:
        rows = np.concatenate(list(groups.values())) if data else city.places(people, entropy=_SEED)
        if name == "nearby":
            _cast(rows, made_up=not data)
        return {"members": rows}
    if data is None:
        riders = people * 9 // 20
        drivers = city.places(people - riders, entropy=_SEED + 1)
        return {"riders": city.places(riders, entropy=_SEED), "drivers": drivers}
    if len(groups) == 1:
        # One list of places: the first of every pair is a rider, so that both sides mix.
        (rows,) = groups.values()
        return {"riders": rows[0::2], "drivers": rows[1::2]}
    if len(groups) != 2:
        raise Misuse(f"the taxi demo has riders and drivers, the file has {', '.join(groups)}")
    return groups


def _cast(rows: Floats, *, made_up: bool) -> None:
    """Let the first row be Ada's, where many are near, and the last one the trilaterator's."""
    if not made_up:
        rows[-1] = np.median(rows, axis=0)
        return
    ada = city.well_placed(rows, within=float(_WORK["nearby"][1]["radius"]))
    rows[[0, ada]] = rows[[ada, 0]]
    rows[-1] = city.place_of("university")


def _standing(people: int, epsilon: float) -> Scenario:
    task, delta = Standing(), usual_delta([people])
    groups = {"people": Group(wages.RANGE, crowd=people)}
    return Scenario(
        name="standing",
        epsilon=epsilon,
        task=task,
        drafts=plan(groups, epsilon=epsilon, delta=delta, task=task).groups,
        values=(wages.wages(people, entropy=_SEED),),
        box=None,
    )


def _learning(people: int, epsilon: float) -> Scenario:
    known = gradients.lesson(people, entropy=gradients.SEED)
    ball = Ball(radius=gradients.CLIP, p=2, dimension=gradients.PARAMETERS)
    task = Learning(dimension=gradients.PARAMETERS, share_mean=True, groups=("learners",))
    found = plan(
        {"learners": Group(ball, crowd=people)},
        epsilon=epsilon,
        delta=usual_delta([people]),
        goal="unbiased",
        task=task,
        rounds=gradients.ROUNDS,
        rate=gradients.RATE,
    )
    return Scenario(
        name="learning",
        epsilon=epsilon,
        task=task,
        drafts=found.groups,
        values=(known.gradients,),
        box=None,
        insight=known,
    )


def next_lesson(scenario: Scenario, mean: Floats) -> Scenario:
    """Return the scenario of the next round: the same people, and the model that was taught."""
    if scenario.insight is None:
        raise Misuse(f"nobody learns in the scenario {scenario.name}")
    known = scenario.insight.after(mean)
    return replace(scenario, insight=known, values=(known.gradients,))


def with_places(scenario: Scenario) -> Scenario:
    """Let everybody report a place instead of a cell, under the same promise.

    A small crowd is best served by a grid of few cells; on a map they would hide that each
    report is one person's. The error is a few percent larger.
    """
    if scenario.box is None:
        raise Misuse(f"the page shows places on a map: the {scenario.name} demo has none")
    return replace(scenario, drafts=tuple(draft.without("grid") for draft in scenario.drafts))
