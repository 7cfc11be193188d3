"""Who is near: how many of the near people find out by letter, on crowds that chose nothing.

    python -m bench neighbours

The demo's city with 400 people and a kilometre, and another crowd of 600 with 500 metres, at ε 1.
Everybody reports a cell, perhaps with decoys; the server lists those most likely near; people find
out by letter who is. Printed are served people and recall (see the glossary) for several lengths of
lists, with as many letters for every number of decoys; and beside them letters to people drawn at
random, without any report, the server's own choice without letters, and true places. Letters are
not sent here: whoever is listed and near is found, as the letters of `coatcheck simulate` do.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bench import Figure, show
from coatcheck import tasks
from coatcheck.accounting.amplification import calibrate
from coatcheck.accounting.laws import Law
from coatcheck.demo import city
from coatcheck.domains import Floats
from coatcheck.entropy import Entropy, seeded
from coatcheck.planning.budget_search import usual_delta
from coatcheck.planning.settled_rounds import near_squares, with_decoys
from coatcheck.protocol.server import belief, numbers
from coatcheck.randomizers import GridResponse
from coatcheck.tasks import References
from coatcheck.tasks.contract import Positions, scale_of, scaled
from coatcheck.tasks.neighbours import WANTED, Neighbours, share_found

SEEDS = range(100, 106)
_NOISE = 1_000  # noise is drawn from other seeds than places
_LISTED = (24, 36, 48)  # candidates per person, over all messages
_EPSILON = 1.0


@dataclass(frozen=True)
class _Crowd:
    """People of the demo's city, the distance that is near, and how many cells they report."""

    people: int
    radius: float
    cells: int

    def __str__(self) -> str:
        return f"{self.people} people, {self.radius:.0f} m"

    def places(self, seed: int) -> Floats:
        return city.places(self.people, entropy=seed)


_CROWDS = (_Crowd(400, 1_000.0, 9), _Crowd(600, 500.0, 16))


def main() -> int:
    """Measure and print; return 1 if a goal is missed."""
    figures = []
    for crowd in _CROWDS:
        for decoys in (0, 1, 2):
            for listed in _LISTED:
                limit = listed // (decoys + 1)
                runs = [_by_letter(crowd, seed, decoys=decoys, limit=limit) for seed in SEEDS]
                figures += _figures(f"{crowd}: {decoys} decoys, lists of {limit}", runs)
        for listed in _LISTED:
            runs = [_without_reports(crowd, seed, listed) for seed in SEEDS]
            figures += _figures(f"{crowd}: no reports, lists of {listed}", runs)
        figures += _figures(
            f"{crowd}: the server alone names 5", [_alone(crowd, seed) for seed in SEEDS]
        )
        figures += _figures(f"{crowd}: true places", [_true(crowd, seed) for seed in SEEDS])
    return show(figures)


def _figures(what: str, runs: Sequence[tuple[float, float]]) -> list[Figure]:
    recall, served = np.mean(runs, axis=0)
    return [
        Figure(what=f"{what}: recall", value=float(recall), unit=""),
        Figure(what="  people served", value=float(served), unit=""),
    ]


def _reports(
    crowd: _Crowd, values: Floats, draws: Entropy, decoys: int
) -> tuple[GridResponse, Positions, Positions]:
    """Return the mechanism, the messages, and whose they are: -1 for decoys."""
    delta = usual_delta([crowd.people])
    cells = near_squares(city.CITY, crowd.cells)
    grid = GridResponse(domain=city.CITY, epsilon=1.0, cells=cells)
    budget = calibrate(
        partial(_law, grid), epsilon=_EPSILON, crowd=crowd.people, delta=delta, decoys=decoys
    )
    grid = replace(grid, epsilon=budget.local_epsilon)
    return grid, *with_decoys(grid, values, decoys, draws)


def _law(grid: GridResponse, epsilon: float) -> Law:
    return replace(grid, epsilon=epsilon).law


def _by_letter(crowd: _Crowd, seed: int, *, decoys: int, limit: int) -> tuple[float, float]:
    values = crowd.places(seed)
    grid, messages, owners = _reports(crowd, values, seeded(_NOISE + seed), decoys)
    task = Neighbours(
        radius=crowd.radius, limit=limit, mutual=True, by="chance", scale=scale_of(city.CITY)
    )
    beliefs = [belief(grid, messages, decoys=decoys)]
    (lists,) = tasks.answer(task, [numbers(grid, messages, "raw")], beliefs=beliefs)
    return _found(crowd, lists, values, owners)


def _alone(crowd: _Crowd, seed: int) -> tuple[float, float]:
    """Return what the server finds without letters: five people for everybody, near or not."""
    values = crowd.places(seed)
    grid, messages, owners = _reports(crowd, values, seeded(_NOISE + seed), 0)
    task = Neighbours(radius=crowd.radius, limit=WANTED, scale=scale_of(city.CITY))
    (lists,) = tasks.answer(task, [numbers(grid, messages, "raw")])
    return _found(crowd, lists, values, owners)


def _without_reports(crowd: _Crowd, seed: int, listed: int) -> tuple[float, float]:
    """Return what letters to people drawn at random find, without any report."""
    draws = seeded(_NOISE + seed)
    turns = [np.argsort(draws.words(crowd.people - 1))[:listed] for _ in range(crowd.people)]
    owners = np.arange(crowd.people)[:, None]
    others = np.stack(turns) + (np.stack(turns) >= owners)
    lists = References(0, listed * np.arange(crowd.people + 1), others.ravel())
    return _found(crowd, lists, crowd.places(seed), np.arange(crowd.people))


def _true(crowd: _Crowd, seed: int) -> tuple[float, float]:
    values = crowd.places(seed)
    task = Neighbours(radius=crowd.radius, limit=WANTED, scale=scale_of(city.CITY))
    (lists,) = task([values])
    return _found(crowd, lists, values, np.arange(crowd.people))


def _found(
    crowd: _Crowd, lists: tasks.Answers, values: Floats, owners: Positions
) -> tuple[float, float]:
    """Return recall, and how many people find anybody."""
    if not isinstance(lists, References):
        raise TypeError(type(lists).__name__)
    places = scaled(values, scale_of(city.CITY))
    recall = share_found(lists, places, radius=crowd.radius, owners=owners)
    people, others = owners[lists.owners()], owners[lists.indices]
    both = (people >= 0) & (others >= 0)
    people, others = people[both], others[both]
    near = np.hypot.reduce(places[people] - places[others], axis=1) <= crowd.radius
    return recall, float(len(np.unique(people[near])))


if __name__ == "__main__":
    sys.exit(main())
