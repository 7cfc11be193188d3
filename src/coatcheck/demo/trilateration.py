"""The demo's attack: a trilaterator looks for one person, Ada, in a rounding app and in coatcheck.

Many apps tell how far away a person is, rounded, to any account that claims to be at a place. The
answer changes where the distance lies halfway between two rounded ones. By claiming false places an
attacker finds such points; three of them with their distances are three circles, which meet where
the person is. Places are in metres, east and north.

    >>> app = RoundingApp(np.array([[3210.0, 4567.0]]), step=500.0)
    >>> attack = trilaterate(lambda at: app.distance(at, person=0), start=(0.0, 0.0), step=500.0)
    >>> bool(np.hypot(*(attack.guess - app.places[0])) < 1.0)
    True

In a round of coatcheck the attacker joins like a person, from a place where it is not. It gets a
few one-time addresses, and learns of each only whether it is near the claimed place. It has found
Ada if its guess is at most `WITHIN` metres off. Two bounds hold for every way to guess. Let s be
the largest share of the crowd that is `WITHIN` of any one point. If Ada writes nothing that names
her, she may be any of the crowd: the attacker's view treats people alike, in any number of rounds,
so no guess is right with a chance above s. If she signs her letters with her name, everybody near
her recognises her: that is one yes or no per round and account, so that after k of them the chance
is at most 2^k s. Her ledger says when to stop.

`python -m bench trilateration` measures both over many trials. Rounds are made here with the
mechanism, the task and the cells of the terms, and without seals. THREATS.md, nearness.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import entr

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.ledger import Ledger
from coatcheck.demo import city
from coatcheck.domains import Floats
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol import server
from coatcheck.protocol.settling.rings import Rings
from coatcheck.tasks.contract import Scale, scaled

if TYPE_CHECKING:
    from coatcheck.accounting.guarantee import Guarantee
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.randomizers import Decode

# -- an app that rounds distances, and the attack on it

Circle = tuple[Floats, float]
_RAYS: Final = 3
_STRIDE: Final = 0.25  # of a step: small enough to miss no change of the answer
_FINE: Final = 1.0  # metres: how precisely a change is located
_FAR: Final = 400  # strides after which a distance must have changed


@dataclass(frozen=True, eq=False)
class RoundingApp:
    """An app that tells any account how far away its people are, to the nearest `step` metres."""

    places: Floats
    step: float

    def distance(self, claimed: Sequence[float] | Floats, *, person: int) -> float:
        """Return the rounded distance of a person from a claimed place."""
        away = float(np.hypot(*(self.places[person] - np.asarray(claimed))))
        return self.step * round(away / self.step)


@dataclass(frozen=True, eq=False)
class Located:
    """The result of trilateration.

    Attributes:
        guess: the place of the person.
        circles: the last three points where the answer changes, each with the person's distance.
        questions: every claimed place, in order, with the distance in the answer.
    """

    guess: Floats
    circles: list[Circle]
    questions: list[tuple[Floats, float]] = field(repr=False)


def trilaterate(
    ask: Callable[[Floats], float], *, start: Sequence[float] | Floats, step: float
) -> Located:
    """Locate a person by an app's rounded distances: roughly at first, then from nearby."""
    questions: list[tuple[Floats, float]] = []

    def distance(place: Floats) -> float:
        questions.append((place, ask(place)))
        return questions[-1][1]

    guess, circles = np.asarray(start, dtype=np.float64), list[Circle]()
    for _ in range(3):  # circles around points on all sides of a person meet at steeper angles
        turns = 2 * np.pi * np.arange(_RAYS) / _RAYS
        rays = np.column_stack([np.cos(turns), np.sin(turns)])
        circles = [_find_change(distance, guess, ray, step) for ray in rays]
        guess = meet(circles)
    return Located(guess, circles, questions)


def _find_change(
    distance: Callable[[Floats], float], start: Floats, ray: Floats, step: float
) -> Circle:
    """Walk along a ray until the answer changes, and bisect to where it does."""
    near, first = 0.0, distance(start)
    for count in range(1, _FAR + 1):
        far = count * _STRIDE * step
        other = distance(start + far * ray)
        if other != first:
            break
        near = far
    else:
        raise Refused("the distances of this app do not change with the claimed place")
    while far - near > _FINE:
        middle = (near + far) / 2
        if distance(start + middle * ray) == first:
            near = middle
        else:
            far = middle
    return start + (near + far) / 2 * ray, (first + other) / 2


def meet(circles: Sequence[Circle]) -> Floats:
    """Return the point on all circles: the difference of two circles is a straight line."""
    centers = np.array([center for center, _ in circles])
    radii = np.array([radius for _, radius in circles])
    slopes = 2 * (centers[1:] - centers[0])
    sides = (centers[1:] ** 2 - centers[0] ** 2).sum(axis=1) - (radii[1:] ** 2 - radii[0] ** 2)
    return np.asarray(np.linalg.lstsq(slopes, sides, rcond=None)[0])


# -- the attack on rounds of coatcheck

WITHIN: Final = 100.0
"""How near a guess must be to have found somebody, in metres."""
_CLAIMS: Final = 200  # places that the attacker may claim
_SELDOM, _OFTEN = 0.02, 0.95  # the range of the chances of being listed that it assumes


@dataclass(frozen=True, eq=False)
class Seen:
    """What one account saw in a round.

    Attributes:
        candidates: the number of one-time addresses in its answer.
        near: the number of them that are near the claimed place.
        named: the people near the claimed place, whose names the account learns if they sign.
    """

    candidates: int
    near: int
    named: frozenset[int]


class Rounds:
    """Rounds of one crowd: people stay where they are, and draw a new report in each round.

    Attributes:
        places: the places of the crowd, in metres.
        scale: metres per degree, by axis.
    """

    def __init__(self, scenario: "Scenario", *, people: int | None = None) -> None:
        if scenario.settle is None or scenario.settle.asks:
            raise Misuse(
                "the trilaterator needs a scenario with the test of nearness, such as `nearby`"
            )
        self._draft, self._task = scenario.drafts[0], scenario.task
        self._values = scenario.values[0][:people]
        params = scenario.task.params()
        self.scale = cast("Scale", params["scale"])
        self._side = scenario.settle.cell
        rings = Rings(scenario.settle.rings, side=self._side, axes=2)
        around = np.array(list(rings.around))
        self._reach = int(np.abs(around).max()) + 1  # the edge of the table, where nothing is near
        self._table = np.zeros((2 * self._reach + 1,) * 2, dtype=np.bool_)
        self._table[tuple((around + self._reach).T)] = True
        self.places = scaled(self._values, self.scale)

    def near(self, claimed: Floats, places: Floats) -> NDArray[np.bool_]:
        """Return which places count as near a claimed place, by their cells."""
        apart = np.floor(places / self._side) - np.floor(claimed / self._side)
        cells = np.clip(apart, -self._reach, self._reach).astype(int) + self._reach
        return np.asarray(self._table[cells[:, 0], cells[:, 1]])

    def join(self, claimed: Floats, entropy: Entropy) -> list[Seen]:
        """Run a round with one more account per claimed place; return what each account saw."""
        draft, honest = self._draft, len(self._values)
        everybody = np.concatenate([self._values, claimed / np.array(self.scale)])
        reports = draft.randomizer.randomize(everybody, entropy, clamp=True)
        estimates = server.numbers(draft.randomizer, reports, cast("Decode", draft.decode))
        beliefs = [server.belief(draft.randomizer, reports)]
        (lists,) = tasks.answer(self._task, [estimates], beliefs=beliefs, canonical=False)
        if not isinstance(lists, tasks.References):
            raise Misuse("the trilaterator needs a task that answers with people")
        seen = []
        for account, place in enumerate(claimed):
            candidates = lists.of(honest + account)
            people = candidates[candidates < honest]
            near = people[self.near(place, self.places[people])] if len(people) else people
            seen.append(Seen(len(candidates), len(near), frozenset(near.tolist())))
        return seen

    @cached_property
    def share(self) -> float:
        """The largest share of the crowd that is `WITHIN` of one point: the bound s."""
        return densest(self.places)


def densest(places: Floats, within: float = WITHIN) -> float:
    """Return the largest share of points in any disc.

    The disc may be chosen with two points on its edge, or with a point at its center.
    """
    tree = cKDTree(places)
    pairs = tree.query_pairs(2 * within, output_type="ndarray")
    first, second = places[pairs[:, 0]], places[pairs[:, 1]]
    half = (second - first) / 2
    length = np.maximum(np.hypot(*half.T), 1e-9)
    out = np.sqrt(np.maximum(within**2 - length**2, 0.0)) / length
    aside = np.column_stack([-half[:, 1], half[:, 0]]) * out[:, None]
    centers = np.concatenate([places, first + half + aside, first + half - aside])
    counts = tree.query_ball_point(centers, within * (1 + 1e-9), return_length=True)
    return float(np.max(counts)) / len(places)


class Belief:
    """What a trilaterator believes about a person's place: weights on points of the city.

    Attributes:
        points: public knowledge of where people are, as equally likely points.
        weights: the probability of each point.
    """

    def __init__(self, points: Floats) -> None:
        self.points = points
        self.weights = np.full(len(points), 1.0 / len(points))
        self._tree = cKDTree(points)

    def learn(self, inside: NDArray[np.bool_], *, near: bool, listed: float) -> None:
        """Learn whether the person was seen near; if not, they may be near but not listed."""
        seen = np.where(inside, 1.0, 0.0) if near else np.where(inside, 1.0 - listed, 1.0)
        self.weights = self.weights * seen
        self.weights /= self.weights.sum()

    @property
    def guess(self) -> Floats:
        """The point with the most weight around it."""
        close = self._tree.query_ball_point(self.points, WITHIN)
        mass = [self.weights[points].sum() for points in close]
        return np.asarray(self.points[int(np.argmax(mass))])


class Trilaterator:
    """An attacker that knows the crowd's habits, `points`, and looks for one person or several."""

    def __init__(self, rounds: Rounds, points: Floats) -> None:
        self._rounds, self._points = rounds, points
        self._claims = points[:: max(1, len(points) // _CLAIMS)]
        self._near = np.array([rounds.near(claim, points) for claim in self._claims])

    def without_names(
        self, *, count: int, entropy: Entropy
    ) -> tuple[Floats, list[tuple[Floats, Seen]]]:
        """Look for a person that gives no name: guess where the most addresses were near."""
        chosen = np.linspace(0, len(self._claims) - 1, count).astype(int)
        views = [self._rounds.join(self._claims[claim][None], entropy)[0] for claim in chosen]
        belief = Belief(self._points)
        for claim, view in zip(chosen, views, strict=True):
            belief.weights = belief.weights * np.where(self._near[claim], 1.0 + view.near, 1.0)
        return belief.guess, list(zip(self._claims[chosen], views, strict=True))

    def _best_claim(self, belief: Belief, listed: float) -> int:
        """Return the claim whose answer, near or not, reveals the most bits about the person."""
        mass = self._near @ belief.weights
        answer = entr(listed * mass) + entr(1 - listed * mass)
        return int(np.argmax(answer - mass * (entr(listed) + entr(1 - listed))))

    def by_name(self, targets: Sequence[int], *, count: int, entropy: Entropy) -> list[float]:
        """Look for people who sign with their names, an account each; return the errors."""
        beliefs = [Belief(self._points) for _ in targets]
        people = len(self._rounds.places)
        listed = _OFTEN
        for _ in range(count):
            chosen = [self._best_claim(belief, listed) for belief in beliefs]
            views = self._rounds.join(self._claims[chosen], entropy)
            expected = people * self._near[chosen].mean()  # number of people near a claim
            share = float(np.mean([view.near for view in views])) / expected
            listed = min(_OFTEN, max(_SELDOM, share))
            for person, belief, claim, view in zip(targets, beliefs, chosen, views, strict=True):
                belief.learn(self._near[claim], near=person in view.named, listed=listed)
        places = self._rounds.places[list(targets)]
        return [
            float(np.hypot(*(belief.guess - place)))
            for belief, place in zip(beliefs, places, strict=True)
        ]


# -- the opening story: both attacks on Ada, as one document

STEP: Final = 500.0
"""The metres to which the app rounds."""
_ADA: Final = 0
_HABITS: Final = 3_000  # made-up people, from whom the attacker knows where people usually are
_SEED: Final = 77


def trilateration(scenario: "Scenario") -> dict[str, Any]:
    """Attack Ada in both ways; return questions, answers, guesses and bounds as one document.

    Places are latitudes and longitudes. The document holds Ada's place, as only a demo may.
    """
    if scenario.trilaterator is None:
        raise Misuse("only the nearby demo has a trilaterator")
    others = Rounds(scenario, people=scenario.trilaterator[1])
    scale = cast("Scale", scenario.task.params()["scale"])
    claimed = scaled(scenario.values[0][-1:], scale)[0]
    ledger = _ledger(scenario)
    count = len(ledger["spent"])
    habits = (
        city.places(_HABITS, entropy=_SEED) if scenario.box == city.CITY else scenario.values[0]
    )
    attacker = Trilaterator(others, scaled(habits, scale))
    guess, views = attacker.without_names(count=count, entropy=seeded(_SEED))
    rounds = [
        {"claimed": _degrees(place, scale), "candidates": view.candidates, "near": view.near}
        for place, view in views
    ]
    return {
        "app": _app(others.places, claimed, scale),
        "coatcheck": {
            "rounds": rounds,
            "guess": _degrees(guess, scale),
            "error_m": float(np.hypot(*(guess - others.places[_ADA]))),
            "within_m": WITHIN,
            "found": float((np.hypot(*(others.places - guess).T) <= WITHIN).mean()),
            "bound": others.share,
            "bound_if_named": min(1.0, 2.0**count * others.share),
        },
        "ledger": ledger,
    }


def _degrees(place: Floats, scale: Sequence[float]) -> list[float]:
    degrees: list[float] = np.round(place / np.array(scale), 6).tolist()
    return degrees


def _app(places: Floats, claimed: Floats, scale: Scale) -> dict[str, Any]:
    """Return the attack on Ada in an app that rounds distances."""
    app = RoundingApp(places, STEP)
    located = trilaterate(lambda place: app.distance(place, person=_ADA), start=claimed, step=STEP)
    return {
        "step_m": STEP,
        "asked": [
            {"claimed": _degrees(place, scale), "told_m": distance}
            for place, distance in located.questions
        ],
        "circles": [
            {"center": _degrees(center, scale), "radius_m": radius}
            for center, radius in located.circles
        ],
        "guess": _degrees(located.guess, scale),
        "error_m": float(np.hypot(*(located.guess - places[_ADA]))),
    }


def _ledger(scenario: "Scenario") -> dict[str, Any]:
    """Let Ada join until her ledger refuses; its limit is twice that of one round."""
    draft = scenario.drafts[0]
    promise = amplify(draft.randomizer.law, crowd=draft.minimum, delta=draft.delta)
    limit, delta = 2 * scenario.epsilon, 10 * draft.delta
    with TemporaryDirectory(prefix="coatcheck-ledger-") as folder:
        ledger = Ledger.open(Path(folder) / "ada.ledger", epsilon=limit, delta=delta)
        spent, refused = _until_refused(ledger, promise)
    return {"limit": limit, "delta": delta, "spent": spent, "refused": refused}


def _until_refused(ledger: Ledger, promise: "Guarantee", most: int = 16) -> tuple[list[float], str]:
    spent: list[float] = []
    for number in range(1, most + 1):
        try:
            spent.append(ledger.spend(promise, round_id=f"nearby-{number}"))
        except Refused as refusal:
            return spent, str(refusal)
    return spent, ""
