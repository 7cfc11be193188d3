"""How often trilaterators find people in rounds of coatcheck, with the bound on any guess.

The first table is about neighbours, who learn whether they are near. The second is about people who
settle by rings: accomplices are among one person's candidates, and each asks about a cell of its
own choice. They choose the cells of a round together, before any answer, as the protocol makes
them; those of the next round with all that they know. They know where people usually are.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from coatcheck.demo import city
from coatcheck.demo.scenarios import make_scenario
from coatcheck.demo.trilateration import WITHIN, Belief, Rounds, Trilaterator
from coatcheck.domains import Floats
from coatcheck.entropy import seeded
from coatcheck.protocol.drafting import usual_settling
from coatcheck.protocol.settling.rings import Rings
from coatcheck.simulation.trial import make_task
from coatcheck.tasks.contract import scale_of, scaled

PEOPLE, TRIALS, TOGETHER = 400, 10, 20


def main() -> int:
    """Print the share of people found within 100 m; 1 if it is above the bound."""
    rounds = Rounds(make_scenario("nearby", people=PEOPLE, epsilon=1.0), people=PEOPLE - 1)
    attacker = Trilaterator(rounds, scaled(city.places(3_000, entropy=77), rounds.scale))
    print("rounds  without names   bound  signed with names   bound")
    missed = 0
    for count in (1, 2, 4):
        alone = []
        off: list[float] = []
        for trial in range(TRIALS):
            guess, _ = attacker.without_names(count=count, entropy=seeded(trial))
            alone.append(float((np.hypot(*(rounds.places - guess).T) <= WITHIN).mean()))
            sought = range(TOGETHER * trial, TOGETHER * trial + TOGETHER)
            off += attacker.by_name(sought, count=count, entropy=seeded(trial))
        named, most = float(np.mean(np.array(off) <= WITHIN)), min(1.0, 2.0**count * rounds.share)
        row = f"{count:6d} {np.mean(alone):14.1%} {rounds.share:7.1%}"
        print(f"{row} {named:18.1%} {most:7.1%}", flush=True)
        missed |= max(alone) > rounds.share or named > most
    print()
    _by_rings()
    return int(missed)


ACCOMPLICES, SEASON, SOUGHT = (1, 2, 5, 10), (1, 2, 4), 100


def _by_rings() -> None:
    """Print what accomplices among a person's candidates find out by the rings."""
    task = make_task("least-cost-matching", names=("few", "many"), box=city.CITY, candidates=5)
    terms = usual_settling(task, city.CITY)
    rings = Rings(terms.rings, side=terms.cell, axes=2)
    scale = scale_of(city.CITY)
    habits = scaled(city.places(3_000, entropy=77), scale)
    people = scaled(city.places(SOUGHT, entropy=78), scale)
    chance = _found([Belief(habits)] * SOUGHT, people)[0]
    print(f"rings of {', '.join(f'{radius:.0f}' for radius in terms.rings)} m, cells of", end=" ")
    print(f"{terms.cell:.0f} m; a guess without letters finds {chance:.1%} within {WITHIN:.0f} m")
    print("accomplices rounds  found within 100 m  median error  cells left (median)")
    claims = habits[:: len(habits) // 300]
    answers = _rings_of(rings, terms.cell, claims, habits)
    true = _rings_of(rings, terms.cell, claims, people)
    cells = np.unique(np.floor(habits / terms.cell), axis=0, return_inverse=True)[1].ravel()
    for accomplices in ACCOMPLICES:
        beliefs = [Belief(habits) for _ in people]
        for number in range(1, max(SEASON) + 1):
            for person, belief in enumerate(beliefs):
                for claim in _together(answers, belief.weights, accomplices):
                    same = answers[claim] == true[claim, person]
                    if (belief.weights * same).sum() > 0:
                        belief.weights = belief.weights * same / (belief.weights * same).sum()
            if number in SEASON:
                found, off = _found(beliefs, people)
                left = np.median([len(np.unique(cells[one.weights > 0])) for one in beliefs])
                row = f"{accomplices:11d} {number:6d} {found:18.1%} {off:13.0f} {left:14.0f}"
                print(row, flush=True)


def _rings_of(rings: Rings, side: float, claims: Floats, places: Floats) -> NDArray[np.int64]:
    """Return the ring of each place from each claim, 0 beyond the last."""
    reach = rings.width // 2 + 1
    table = np.zeros((2 * reach + 1,) * 2, dtype=np.int64)
    for (x, y), ring in rings.around.items():
        table[x + reach, y + reach] = ring
    apart = np.floor(places / side)[None] - np.floor(claims / side)[:, None]
    at = np.clip(apart, -reach, reach).astype(np.int64) + reach
    return np.asarray(table[at[..., 0], at[..., 1]])


def _together(answers: NDArray[np.int64], weights: Floats, count: int) -> list[int]:
    """Choose claims one by one so that all their answers together say the most."""
    (alive,) = np.nonzero(weights)
    known, chosen = np.zeros(len(alive), dtype=np.int64), list[int]()
    kinds = int(answers.max()) + 1
    for _ in range(count):
        joint = known[None] * kinds + answers[:, alive]
        masses = [np.bincount(row, weights[alive]) for row in joint]
        entropies = [-(mass[mass > 0] * np.log(mass[mass > 0])).sum() for mass in masses]
        chosen.append(int(np.argmax(entropies)))
        known = np.unique(joint[chosen[-1]], return_inverse=True)[1].ravel()
    return chosen


def _found(beliefs: list[Belief], people: Floats) -> tuple[float, float]:
    """Return the share of people that a best guess finds, and the median error."""
    off = [
        float(np.hypot(*(belief.guess - place)))
        for belief, place in zip(beliefs, people, strict=True)
    ]
    return float(np.mean(np.array(off) <= WITHIN)), float(np.median(off))


if __name__ == "__main__":
    sys.exit(main())
