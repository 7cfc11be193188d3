"""The trilaterator in rounds of coatcheck: what it learns there, and the bound on its best guess.

It joins as a person does, from places where it is not. In a round it is told a few one-time
addresses and finds out of each one whether it is near the place it claimed, and no more. It looks
for one person, Ada, and has found her if its guess is at most `WITHIN` metres off.

Two bounds hold, whatever it makes of what it sees. Let s be the largest share of the crowd that is
`WITHIN` of any one point. If Ada writes nothing that names her, she may be any of the crowd: all
that is seen treats people alike, in as many rounds as there are, so no guess is right with a
chance above s. If she signs her words with her name, whoever she is near knows her: one yes or no
per round and account, so after k of them the chance is at most 2^k s. Her ledger says when to stop.

`python -m bench trilateration` measures both over many trials. Rounds are made here with
the mechanism, the task and the cells of the terms, and without seals. THREATS.md, nearness.
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
from coatcheck.protocol.server import numbers
from coatcheck.protocol.settling.nearness import offsets
from coatcheck.tasks.contract import Scale, scaled

if TYPE_CHECKING:
    from coatcheck.accounting.guarantee import Guarantee
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.randomizers import Decode

# HOUSE-DOC demo.rounding_app: 'An app that rounds distances, and trilateration: the attack that finds its people to the metre.\n\nMany apps tell how far away somebody is, rounded, to whoever says where they are. The answer flips\nwhere the distance is exactly between two rounded ones. Whoever moves about by saying false places\nfinds such points, and three of them with their distances are three circles that meet in one point.\nPlaces are in metres, east and north.\n\n    >>> app = RoundingApp(np.array([[3210.0, 4567.0]]), step=500.0)\n    >>> found = trilaterate(lambda place: app.distance(place, who=0), start=(0.0, 0.0), step=500.0)\n    >>> bool(np.hypot(*(found.guess - app.places[0])) < 1.0)\n    True\n'
Circle = tuple[Floats, float]
_RAYS: Final = 3
_STRIDE: Final = 0.25  # of a step: small enough that no flip is jumped over
_FINE: Final = 1.0  # metres: how well a flip is found
_FAR: Final = 400  # strides: after so many a distance must have changed


@dataclass(frozen=True, eq=False)
class RoundingApp:
    """An app that tells anybody how far away its people are, to the nearest `step` metres."""

    places: Floats
    step: float

    def distance(self, claimed: Sequence[float] | Floats, *, who: int) -> float:
        """Tell whoever claims to be there how far away a person is."""
        away = float(np.hypot(*(self.places[who] - np.asarray(claimed))))
        return self.step * round(away / self.step)


@dataclass(frozen=True, eq=False)
class Pinned:
    """What trilateration found.

    Attributes:
        guess: where the person is.
        circles: the last three points where the answer flips, and how far the person is from each.
        asked: every place that was claimed, in order, with the distance that was told.
    """

    guess: Floats
    circles: list[Circle]
    asked: list[tuple[Floats, float]] = field(repr=False)


def trilaterate(
    ask: Callable[[Floats], float], *, start: Sequence[float] | Floats, step: float
) -> Pinned:
    """Find a person by an app's rounded distances: roughly first, then from close by."""
    asked: list[tuple[Floats, float]] = []

    def told(place: Floats) -> float:
        asked.append((place, ask(place)))
        return asked[-1][1]

    guess, circles = np.asarray(start, dtype=np.float64), list[Circle]()
    for _ in range(3):  # circles around points on all sides of a person meet at steeper angles
        turns = 2 * np.pi * np.arange(_RAYS) / _RAYS
        rays = np.column_stack([np.cos(turns), np.sin(turns)])
        circles = [_flip(told, guess, ray, step) for ray in rays]
        guess = meet(circles)
    return Pinned(guess, circles, asked)


def _flip(told: Callable[[Floats], float], start: Floats, ray: Floats, step: float) -> Circle:
    """Walk along a ray until the answer changes, and halve to where it does."""
    near, first = 0.0, told(start)
    for count in range(1, _FAR + 1):
        far = count * _STRIDE * step
        other = told(start + far * ray)
        if other != first:
            break
        near = far
    else:
        raise Refused("the distance does not change: this app does not tell where one is")
    while far - near > _FINE:
        middle = (near + far) / 2
        if told(start + middle * ray) == first:
            near = middle
        else:
            far = middle
    return start + (near + far) / 2 * ray, (first + other) / 2


def meet(circles: Sequence[Circle]) -> Floats:
    """Return the point that lies on all circles: their differences are straight lines."""
    centers = np.array([center for center, _ in circles])
    radii = np.array([radius for _, radius in circles])
    slopes = 2 * (centers[1:] - centers[0])
    sides = (centers[1:] ** 2 - centers[0] ** 2).sum(axis=1) - (radii[1:] ** 2 - radii[0] ** 2)
    return np.asarray(np.linalg.lstsq(slopes, sides, rcond=None)[0])


WITHIN: Final = 100.0
"""How near a guess must be to have found somebody, in metres."""
_CLAIMS: Final = 200  # places that it may claim
_SELDOM, _OFTEN = 0.02, 0.95  # the chances of being listed that it reckons with


@dataclass(frozen=True, eq=False)
class Seen:
    """What one account saw in a round.

    Attributes:
        candidates: how many one-time addresses it was told.
        near: how many of them are near the place it claimed.
        named: the people behind those who are near, as far as they sign with their names.
    """

    candidates: int
    near: int
    named: frozenset[int]


class Rounds:
    """Rounds of one crowd: everybody's report is drawn anew each time, nobody moves.

    Attributes:
        places: where everybody is, in metres.
        scale: metres per degree, by axis.
    """

    def __init__(self, scenario: "Scenario", *, people: int | None = None) -> None:
        if scenario.settle is None or scenario.settle["settle"]["asks"]:
            raise Misuse("the trilaterator joins rounds in which people find out who is near")
        self._draft, self._task = scenario.drafts[0], scenario.task
        self._values = scenario.values[0][:people]
        params = scenario.task.params()
        self.scale = cast("Scale", params["scale"])
        self._side = float(scenario.settle["settle"]["cell"])
        radius = float(str(params["radius"]))
        around = np.array(offsets(radius, side=self._side, axes=2))
        self._reach = int(np.abs(around).max()) + 1  # the table's edge: nothing there is near
        self._table = np.zeros((2 * self._reach + 1,) * 2, dtype=np.bool_)
        self._table[tuple((around + self._reach).T)] = True
        self.places = scaled(self._values, self.scale)

    def near(self, claimed: Floats, places: Floats) -> NDArray[np.bool_]:
        """Tell which places count as near a claimed one, by their cells."""
        apart = np.floor(places / self._side) - np.floor(claimed / self._side)
        cells = np.clip(apart, -self._reach, self._reach).astype(int) + self._reach
        return np.asarray(self._table[cells[:, 0], cells[:, 1]])

    def join(self, claimed: Floats, entropy: Entropy) -> list[Seen]:
        """Hold a round with one more account per claimed place; tell what each of them saw."""
        draft, honest = self._draft, len(self._values)
        everybody = np.concatenate([self._values, claimed / np.array(self.scale)])
        reports = draft.randomizer.randomize(everybody, entropy, clamp=True)
        estimates = numbers(draft.randomizer, reports, cast("Decode", draft.decode))
        (lists,) = self._task([estimates])
        if not isinstance(lists, tasks.References):
            raise Misuse("the trilaterator needs a task that tells of people")
        seen = []
        for account, place in enumerate(claimed):
            told = lists.of(honest + account)
            people = told[told < honest]
            near = people[self.near(place, self.places[people])] if len(people) else people
            seen.append(Seen(len(told), len(near), frozenset(near.tolist())))
        return seen

    @cached_property
    def share(self) -> float:
        """The largest share of the crowd that is `WITHIN` of one point: the bound s."""
        return densest(self.places)


def densest(places: Floats, within: float = WITHIN) -> float:
    """Return the largest share of points in a disc: one with two of them on its edge, or alone."""
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
    """What a trilaterator believes of where one person is: weights on points of the city.

    Attributes:
        points: public knowledge of where people are, one equally likely point each.
        weights: the chance that the person is at each of them.
    """

    def __init__(self, points: Floats) -> None:
        self.points = points
        self.weights = np.full(len(points), 1.0 / len(points))
        self._tree = cKDTree(points)

    def learn(self, inside: NDArray[np.bool_], *, near: bool, listed: float) -> None:
        """Take in whether the person was near; if not, they may be near and not `listed`."""
        seen = np.where(inside, 1.0, 0.0) if near else np.where(inside, 1.0 - listed, 1.0)
        self.weights = self.weights * seen
        self.weights /= self.weights.sum()

    @property
    def guess(self) -> Floats:
        """The point with the most weight around it."""
        close = self._tree.query_ball_point(self.points, WITHIN)
        mass = [self.weights[some].sum() for some in close]
        return np.asarray(self.points[int(np.argmax(mass))])


class Trilaterator:
    """An attacker who knows the crowd's habits, `points`, and looks for one person or several."""

    def __init__(self, rounds: Rounds, points: Floats) -> None:
        self._rounds, self._points = rounds, points
        self._claims = points[:: max(1, len(points) // _CLAIMS)]
        self._near = np.array([rounds.near(claim, points) for claim in self._claims])

    def without_names(
        self, *, count: int, entropy: Entropy
    ) -> tuple[Floats, list[tuple[Floats, Seen]]]:
        """Look for somebody who tells no name: go where the most addresses were near."""
        chosen = np.linspace(0, len(self._claims) - 1, count).astype(int)
        seen = [self._rounds.join(self._claims[one][None], entropy)[0] for one in chosen]
        belief = Belief(self._points)
        for at, one in zip(chosen, seen, strict=True):
            belief.weights = belief.weights * np.where(self._near[at], 1.0 + one.near, 1.0)
        return belief.guess, list(zip(self._claims[chosen], seen, strict=True))

    def _telling(self, belief: Belief, listed: float) -> int:
        """Choose the place whose near or not near tells most of the person, in bits."""
        mass = self._near @ belief.weights
        told = entr(listed * mass) + entr(1 - listed * mass)
        return int(np.argmax(told - mass * (entr(listed) + entr(1 - listed))))

    def by_name(self, targets: Sequence[int], *, count: int, entropy: Entropy) -> list[float]:
        """Look for people who sign with their names, an account for each; how far off it ends."""
        beliefs = [Belief(self._points) for _ in targets]
        people = len(self._rounds.places)
        listed = _OFTEN
        for _ in range(count):
            chosen = [self._telling(belief, listed) for belief in beliefs]
            seen = self._rounds.join(self._claims[chosen], entropy)
            there = people * self._near[chosen].mean()  # so many people should be near
            listed = min(_OFTEN, max(_SELDOM, float(np.mean([one.near for one in seen])) / there))
            for who, belief, at, one in zip(targets, beliefs, chosen, seen, strict=True):
                belief.learn(self._near[at], near=who in one.named, listed=listed)
        both = zip(targets, beliefs, strict=True)
        return [float(np.hypot(*(one.guess - self._rounds.places[who]))) for who, one in both]


# HOUSE-DOC demo.story: "The opening story: one attacker looks for Ada, in an app that rounds distances and in coatcheck.\n\nEverything that the command and the page show of it, as one plain document; places are latitudes and\nlongitudes. Holds Ada's place, as only a demo may.\n"
STEP: Final = 500.0
"""To how many metres the app rounds."""
_ADA: Final = 0
_HABITS: Final = 3_000  # made-up people from whom the attacker knows where people are
_SEED: Final = 77


def trilateration(scenario: "Scenario") -> dict[str, Any]:
    """Attack Ada by both ways; what was asked and told, what was found, and what bounds it."""
    if scenario.trilaterator is None:
        raise Misuse("the trilaterator is in the nearby demo only")
    others = Rounds(scenario, people=scenario.trilaterator[1])
    scale = cast("Scale", scenario.task.params()["scale"])
    claimed = scaled(scenario.values[0][-1:], scale)[0]
    ledger = _ledger(scenario)
    count = len(ledger["spent"])
    habits = (
        city.places(_HABITS, entropy=_SEED) if scenario.box == city.CITY else scenario.values[0]
    )
    attacker = Trilaterator(others, scaled(habits, scale))
    guess, seen = attacker.without_names(count=count, entropy=seeded(_SEED))
    rounds = [
        {"claimed": _degrees(place, scale), "candidates": one.candidates, "near": one.near}
        for place, one in seen
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
    found: list[float] = np.round(place / np.array(scale), 6).tolist()
    return found


def _app(places: Floats, claimed: Floats, scale: Scale) -> dict[str, Any]:
    """Find Ada by an app's rounded distances."""
    app = RoundingApp(places, STEP)
    found = trilaterate(lambda place: app.distance(place, who=_ADA), start=claimed, step=STEP)
    return {
        "step_m": STEP,
        "asked": [
            {"claimed": _degrees(place, scale), "told_m": told} for place, told in found.asked
        ],
        "circles": [
            {"center": _degrees(center, scale), "radius_m": radius}
            for center, radius in found.circles
        ],
        "guess": _degrees(found.guess, scale),
        "error_m": float(np.hypot(*(found.guess - places[_ADA]))),
    }


def _ledger(scenario: "Scenario") -> dict[str, Any]:
    """Let Ada join until her ledger says no; it allows twice what one round may cost."""
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
