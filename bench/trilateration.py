"""How often a trilaterator finds people in rounds of coatcheck, with the bound on any guess."""

import numpy as np

from coatcheck.demo import city
from coatcheck.demo.scenarios import make_scenario
from coatcheck.demo.trilateration import WITHIN, Rounds, Trilaterator
from coatcheck.entropy import seeded
from coatcheck.tasks.contract import scaled

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
    return int(missed)
