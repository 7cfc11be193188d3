"""The scenarios of the demo: who is near, taxis, friends, where one stands, a model that learns.

A scenario is what an organizer decides before a round, and what its people keep to themselves.
The services and the clients are the real ones. Paper, use cases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from coatcheck import tasks
from coatcheck.demo import city
from coatcheck.domains import Ball, Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.planning import Group, Recommendation, plan
from coatcheck.planning.budget_search import usual_delta
from coatcheck.protocol.settling.nearness import reply_size
from coatcheck.simulation.quality import names_many, one_partner
from coatcheck.simulation.settling import ASKS, usual_cell
from coatcheck.simulation.trial import box_around, make_task, plan_groups
from coatcheck.tasks.contract import Values
from coatcheck.tasks.learning import Descent, Learning, Model, clipped
from coatcheck.tasks.standing import Standing

# HOUSE-DOC demo.wages: 'Where do I stand: made-up wages of a crowd, and how well people find their place among them.\n\nNobody real is in it. What is measured is the share of the crowd below a person, as the server tells\nit, as the person finds it among the public deciles, and by chance; with true numbers it is exact.\n'
LOWEST_WAGE, HIGHEST_WAGE = 10.0, 45.0
RANGE: Final = Box((LOWEST_WAGE,), (HIGHEST_WAGE,))
"""Wages per hour."""
_MIDDLE, _SPREAD = 21.0, 0.35


def wages(people: int, *, entropy: Entropy | int) -> Floats:
    """Make up what people earn per hour: most near the middle, a few far above."""
    drawn = np.asarray(ndtri(source(entropy).uniforms(people)))
    return np.clip(np.round(_MIDDLE * np.exp(_SPREAD * drawn), 2), LOWEST_WAGE, HIGHEST_WAGE)[
        :, None
    ]


def share_among(wage: float, deciles: Sequence[float]) -> float:
    """Find the share of the crowd below a wage from the nine public deciles, as a person would."""
    ends = np.maximum.accumulate([LOWEST_WAGE, *deciles, HIGHEST_WAGE])
    return float(np.interp(wage, ends, np.linspace(0, 1, len(ends))))


def _exactly(values: Floats) -> Values:
    """Give the answers to true numbers."""
    (answers,) = Standing()([values])
    if not isinstance(answers, Values):
        raise Misuse("the answers of a standing are numbers")
    return answers


def measured(values: Floats, told: Floats, deciles: Sequence[float]) -> dict[str, Any]:
    """Measure how far off people's shares are: private, with true numbers, and by chance."""
    exact = _exactly(values)
    right = exact.data[:, 0]
    own = np.array([share_among(wage, deciles) for wage in values[:, 0]])
    return {
        "mean_error": {
            "private, your number among the deciles": float(np.abs(own - right).mean()),
            "private, as the server tells you": float(np.abs(told - right).mean()),
            "with true numbers": 0.0,
            "by chance": float(np.abs(right[:, None] - right[None, :]).mean()),
        },
        "deciles": list(deciles),
        "true_deciles": exact.shared.tolist(),
    }


# HOUSE-DOC demo.gradients: 'A tiny model that a crowd teaches in a few rounds: logistic regression, a gradient per person.\n\nA quarter of the people learned from wrong labels, which their rewards should show. Data is made\nup from a seed; nobody real is in it. Paper, federated learning with incentives.\n'
PARAMETERS: Final = 4
SEED: Final = 2026
_TRUTH: Final = np.array([1.6, -1.1, 0.7, 0.3])
_EXAMPLES: Final = 24
CLIP: Final = 0.5
"""The longest gradient that a person reports; public, stated in the terms."""
ROUNDS: Final = 4
RATE: Final = 0.8
"""The chance with which a person speaks in a round; who does not is silent."""
DESCENT: Final = Descent(step=4.0, rounds=ROUNDS, momentum=0.5)

Examples = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the people and the server know before a round of learning.

    Attributes:
        people: each person's examples: features and labels.
        misled: whose labels were wrong.
        judges: the server's own examples, which it keeps to itself.
        features: what the model is tried on.
        labels: the right answers to it.
        model: the model of this round.
    """

    people: tuple[Examples, ...]
    misled: NDArray[np.bool_]
    judges: Examples
    features: Floats
    labels: Floats
    model: Model

    @property
    def gradients(self) -> Floats:
        """Everybody's gradient at the model of this round, clipped."""
        return np.array([self._gradient(examples) for examples in self.people])

    @property
    def direction(self) -> Floats:
        """The server's own gradient, by which the others are judged."""
        return self._gradient(self.judges)

    def after(self, mean: Floats) -> "Lesson":
        """Return the lesson of the next round."""
        return replace(self, model=self.model.after(mean))

    def _gradient(self, examples: Examples) -> Floats:
        features, labels = examples
        raw = features.T @ (expit(features @ self.model.parameters) - labels) / len(labels)
        return clipped(raw, dimension=PARAMETERS, clip=CLIP)

    def accuracy(self, weights: Floats) -> float:
        """Return the share of the trial set that a model gets right."""
        return float(((self.features @ weights > 0) == (self.labels > 0.5)).mean())


def lesson(people: int, *, entropy: Entropy | int) -> Lesson:
    """Make the data of so many people, and a model of all zeros."""
    drawn = source(entropy)
    misled = drawn.uniforms(people) < 0.25
    everybody = []
    for wrong in misled:
        features, labels = _examples(_EXAMPLES, drawn)
        everybody.append((features, 1 - labels if wrong else labels))
    features, labels = _examples(2_000, drawn)
    judges = _examples(400, drawn)
    start = DESCENT.start(np.zeros(PARAMETERS))
    return Lesson(tuple(everybody), misled, judges, features, labels, start)


def _examples(count: int, entropy: Entropy) -> Examples:
    features = np.asarray(ndtri(entropy.uniforms(count * PARAMETERS))).reshape(count, PARAMETERS)
    labels = (entropy.uniforms(count) < expit(features @ _TRUTH)).astype(np.float64)
    return features, labels


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
    insight: Lesson | None = field(default=None, repr=False)
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
    groups = {"people": Group(RANGE, crowd=people)}
    return Scenario(
        name="standing",
        epsilon=epsilon,
        task=task,
        drafts=plan(groups, epsilon=epsilon, delta=delta, task=task).groups,
        values=(wages(people, entropy=_SEED),),
        box=None,
    )


def _learning(people: int, epsilon: float) -> Scenario:
    known = lesson(people, entropy=SEED)
    ball = Ball(radius=CLIP, p=2, dimension=PARAMETERS)
    task = Learning(dimension=PARAMETERS, share_mean=True, groups=("learners",))
    found = plan(
        {"learners": Group(ball, crowd=people)},
        epsilon=epsilon,
        delta=usual_delta([people]),
        goal="unbiased",
        task=task,
        rounds=ROUNDS,
        rate=RATE,
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
