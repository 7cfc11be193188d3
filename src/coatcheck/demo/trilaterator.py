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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import entr

from coatcheck import tasks
from coatcheck.domains import Floats
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.protocol.nearness import offsets
from coatcheck.protocol.server import numbers
from coatcheck.tasks.distances import Scale, measured

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.randomizers import Decode

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
        self.places = measured(self._values, self.scale)

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
