"""The scenarios of the demo: nearby people, taxis, friends, wages, and a model that learns.

A scenario is what an organizer decides before a round, and the private values of its people. The
services and the clients are the real ones. Paper, use cases. The made-up wages and the model stand
at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

import msgspec
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
from coatcheck.protocol.drafting import usual_settling
from coatcheck.protocol.terms import SettleTerms
from coatcheck.simulation.quality import names_many, one_partner
from coatcheck.simulation.trial import box_around, make_task, plan_groups
from coatcheck.tasks.contract import Values
from coatcheck.tasks.learning import Descent, Learning, Model, clipped
from coatcheck.tasks.standing import Standing

NAMES: Final = ("nearby", "taxi", "friends", "standing", "learning")
FEWEST, MOST = 8, 2_000
_TASKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "nearby": ("neighbours", {"radius": 1_000.0, "limit": 5}),
    "taxi": ("least-cost-matching", {}),
    "friends": ("neighbours", {"radius": 600.0, "limit": 5}),
}
_CANDIDATES: Final = 5
_LISTED: Final = {"nearby": 40, "friends": 40}  # the most candidates that a person tests by letter
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
        epsilon: the ε that the organizer asked for; the terms promise at most this.
        task: the task of the terms.
        values: the private values, an array per group with a row per person.
        box: the box of the places; None if values are not places.
        lines: a letter, and the reply to it.
        settle: the terms of settling; None if candidates do not settle.
        alone: the task without settling, for comparison.
        trilaterator: the person who claims a false place, if there is one.
        lesson: the data of the learning scenario; the server alone knows its direction.
        turn: the number of the round, if people take part in several.
    """

    name: str
    epsilon: float
    task: tasks.Task
    drafts: tuple[Recommendation, ...]
    values: tuple[Floats, ...]
    box: Box | None
    lines: tuple[str, str] = ("", "")
    settle: SettleTerms | None = None
    alone: tasks.Task | None = None
    trilaterator: tuple[int, int] | None = None
    lesson: "Lesson | None" = field(default=None, repr=False)
    turn: int = 1

    @property
    def people(self) -> int:
        """The number of people."""
        return sum(len(rows) for rows in self.values)

    @property
    def everybody(self) -> list[tuple[int, int]]:
        """Everybody by group and row, in the order in which they join: the groups in turn."""
        turns = zip_longest(*(range(len(rows)) for rows in self.values))
        return [
            (group, row)
            for row, turn in enumerate(turns)
            for group, present in enumerate(turn)
            if present is not None
        ]

    @property
    def _number(self) -> str:
        turn = self.turn if self.lesson is None else self.lesson.model.done + 1
        return f" {turn}" if turn > 1 else ""

    @property
    def besides(self) -> str:
        """What settling reveals to others besides the reports, in words."""
        if self.settle is None:
            return ""
        revealed = (
            "if you are near" if not self.settle.asks else "in which ring around them you are"
        )
        return (
            f"by letter each of at most {self.disclosures} candidates also learns {revealed}, which"
            " ε does not cover"
        )

    @property
    def disclosures(self) -> int:
        """The most candidates who learn an answer from a person by letter."""
        sizes = self.task.answer_size([1] * len(self.drafts))
        return max(size.references for size in sizes) if self.settle else 0

    def next_round(self) -> "Scenario":
        """Return the next round of the same people."""
        return replace(self, turn=self.turn + 1)

    def draft(self) -> dict[str, Any]:
        """Return the draft that the organizer gives to the server."""
        return {
            "round": f"demo {self.name}{self._number}",
            "task": self.task.params(),
            "groups": [draft.params() for draft in self.drafts],
            **({} if self.settle is None else {"settle": msgspec.to_builtins(self.settle)}),
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
    """Make a scenario with made-up people, or with the people of a file.

    Args:
        name: the name of the scenario.
        people: the number of people, if there is no file.
        epsilon: the ε to promise.
        data: the places of a file, by group.
        candidates: the number of possible drivers per rider; riders settle with one by letter.
        settle: let candidates settle, with the usual number of candidates. Friends then find out
            by letter who is truly near, as the people of the nearby scenario always do.
        planning: called after the arguments are checked, before the planning, which takes a moment.

    In the nearby scenario the last person is the trilaterator, at the place that it claims.
    """
    if name not in NAMES:
        raise Misuse(f"the demo must be one of {' | '.join(NAMES)}, got {name!r}")
    if not FEWEST <= people <= MOST:
        raise Misuse(
            f"`--people` must be from {FEWEST} to {MOST:,}, got {people:,}; for a larger crowd"
            " use `coatcheck simulate`"
        )
    if name in {"standing", "learning"}:
        if candidates is not None or settle:
            raise Misuse(
                f"the {name} demo has no candidates; leave out `--candidates` and `--settle`"
            )
        if data is not None:
            raise Misuse(f"the {name} demo makes up its own values; leave out `--data`")
        planning()
        return (_standing if name == "standing" else _learning)(people, epsilon)
    groups = _groups(name, people, data)
    for group, rows in groups.items():
        if len(rows) < FEWEST // 4:
            raise Misuse(
                f"group {group!r} has {len(rows)} people, too few to hide anybody; give a file with"
                f" at least {FEWEST // 4} per group"
            )
    box = city.CITY if data is None else box_around(groups, degrees=True)
    task_name, options = _TASKS[name]
    if settle and name == "taxi" and candidates is None:
        candidates = _CANDIDATES
    task = make_task(task_name, names=tuple(groups), box=box, candidates=candidates, **options)
    alone = one_partner(task)
    if name == "nearby" or (settle and name == "friends"):
        lists = {"limit": _LISTED[name], "mutual": True, "by": "chance"}
        task = tasks.from_params({**task.params(), **lists})
    sizes = [len(rows) for rows in groups.values()]
    planning()
    return Scenario(
        name=name,
        epsilon=epsilon,
        task=task,
        drafts=plan_groups(sizes, task=task, domain=box, epsilon=epsilon, decoys=0),
        values=tuple(groups.values()),
        box=box,
        lines=_LINES[name],
        settle=usual_settling(task, box) if names_many(task) or task is not alone else None,
        alone=alone,
        trilaterator=(0, sizes[0] - 1) if name == "nearby" else None,
    )


def _groups(name: str, people: int, data: Mapping[str, Floats] | None) -> dict[str, Floats]:
    """Return the places of each group of a scenario, from a file or made up."""
    groups = dict(data or {})
    if name in {"nearby", "friends"}:
        rows = np.concatenate(list(groups.values())) if data else city.places(people, entropy=_SEED)
        if name == "nearby":
            _place_ada(rows, made_up=not data)
        return {"members": rows}
    if data is None:
        riders = people * 9 // 20
        drivers = city.places(people - riders, entropy=_SEED + 1)
        return {"riders": city.places(riders, entropy=_SEED), "drivers": drivers}
    if len(groups) == 1:
        # One list of places: the first of every pair is a rider, so that both groups mix.
        (rows,) = groups.values()
        return {"riders": rows[0::2], "drivers": rows[1::2]}
    if len(groups) != 2:
        raise Misuse(
            f"the taxi demo needs two groups, riders and drivers; the file has {', '.join(groups)}"
        )
    return groups


def _place_ada(rows: Floats, *, made_up: bool) -> None:
    """Make the first row Ada's, with many people near, and the last row the trilaterator's."""
    if not made_up:
        rows[-1] = np.median(rows, axis=0)
        return
    ada = city.well_placed(rows, within=float(_TASKS["nearby"][1]["radius"]))
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
    data = lesson(people, entropy=SEED)
    ball = Ball(radius=CLIP, p=2, dimension=PARAMETERS)
    task = Learning(dimension=PARAMETERS, share_mean=True, groups=("learners",))
    planned = plan(
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
        drafts=planned.groups,
        values=(data.gradients,),
        box=None,
        lesson=data,
    )


def next_lesson(scenario: Scenario, mean: Floats) -> Scenario:
    """Return the scenario of the next round: the same people, and the updated model."""
    if scenario.lesson is None:
        raise Misuse(f"the scenario {scenario.name} does not learn")
    data = scenario.lesson.after(mean)
    return replace(scenario, lesson=data, values=(data.gradients,))


def with_places(scenario: Scenario) -> Scenario:
    """Return the scenario with reports that are places instead of cells, under the same promise.

    For a small crowd the best mechanism is a grid with few cells; on a map it would hide that each
    report is one person's. The error becomes a few percent larger.
    """
    if scenario.box is None:
        raise Misuse(f"`--page` needs places, and the {scenario.name} demo has none; leave it out")
    return replace(scenario, drafts=tuple(draft.without("grid") for draft in scenario.drafts))


# -- wages, for the standing demo: made up, of nobody real. Measured is the share of the crowd below
# a person: as the server computes it, as the person finds it from the deciles, and by chance.

LOWEST_WAGE, HIGHEST_WAGE = 10.0, 45.0
RANGE: Final = Box((LOWEST_WAGE,), (HIGHEST_WAGE,))
"""The domain: wages per hour."""
_MIDDLE, _SPREAD = 21.0, 0.35


def wages(people: int, *, entropy: Entropy | int) -> Floats:
    """Return made-up wages per hour: most near the middle, a few far above."""
    drawn = np.asarray(ndtri(source(entropy).uniforms(people)))
    return np.clip(np.round(_MIDDLE * np.exp(_SPREAD * drawn), 2), LOWEST_WAGE, HIGHEST_WAGE)[
        :, None
    ]


def share_among(wage: float, deciles: Sequence[float]) -> float:
    """Return the share of the crowd below a wage, from the nine public deciles."""
    ends = np.maximum.accumulate([LOWEST_WAGE, *deciles, HIGHEST_WAGE])
    return float(np.interp(wage, ends, np.linspace(0, 1, len(ends))))


def _exact_answers(values: Floats) -> Values:
    """Return the answers to true values."""
    (answers,) = Standing()([values])
    if not isinstance(answers, Values):
        raise Misuse("the task `standing` must answer with numbers")
    return answers


def measure_shares(values: Floats, shares: Floats, deciles: Sequence[float]) -> dict[str, Any]:
    """Return the errors of people's shares: private, with true numbers, and by chance."""
    exact = _exact_answers(values)
    true_shares = exact.data[:, 0]
    own = np.array([share_among(wage, deciles) for wage in values[:, 0]])
    return {
        "mean_error": {
            "private, your number among the deciles": float(np.abs(own - true_shares).mean()),
            "private, as the server tells you": float(np.abs(shares - true_shares).mean()),
            "with true numbers": 0.0,
            "by chance": float(np.abs(true_shares[:, None] - true_shares[None, :]).mean()),
        },
        "deciles": list(deciles),
        "true_deciles": exact.shared.tolist(),
    }


# -- a small model, for the learning demo: logistic regression, with one gradient per person. The
# data is made up from a seed. A quarter of the people have wrong labels, as rewards should show.

PARAMETERS: Final = 4
SEED: Final = 2026
_TRUTH: Final = np.array([1.6, -1.1, 0.7, 0.3])
_EXAMPLES: Final = 24
CLIP: Final = 0.5
"""The greatest length of a reported gradient; public, in the terms."""
ROUNDS: Final = 4
RATE: Final = 0.8
"""The probability with which a person reports in a round; otherwise they are silent."""
DESCENT: Final = Descent(step=4.0, rounds=ROUNDS, momentum=0.5)

Examples = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the people and the server know before a round of learning.

    Attributes:
        people: the examples of each person: features and labels.
        misled: which people have wrong labels.
        judges: the server's own, private examples.
        features: the features on which the model is tested.
        labels: the right labels of the test.
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
        """The server's own gradient, with which it rewards the others."""
        return self._gradient(self.judges)

    def after(self, mean: Floats) -> "Lesson":
        """Return the lesson of the next round."""
        return replace(self, model=self.model.after(mean))

    def _gradient(self, examples: Examples) -> Floats:
        features, labels = examples
        raw = features.T @ (expit(features @ self.model.parameters) - labels) / len(labels)
        return clipped(raw, dimension=PARAMETERS, clip=CLIP)

    def accuracy(self, weights: Floats) -> float:
        """Return the share of the test set that a model gets right."""
        return float(((self.features @ weights > 0) == (self.labels > 0.5)).mean())


def lesson(people: int, *, entropy: Entropy | int) -> Lesson:
    """Return made-up data of people, and a model of all zeros."""
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
