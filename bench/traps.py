"""Attacks on the count of traps: what shufflers before an honest one can drop unnoticed.

Each attack is one round: the attacker passes on some of the two items of every person, the order
of which it does not know. It wins if the honest shuffler continues with fewer honest reports than
the minimum. By the theorem, its chance is at most `trap_delta`.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from coatcheck.protocol.wire import uploads

ATTACKS = 10_000
STRATEGIES = ("honest", "victim alone", "every other person", "at random", "half", "worst")


def attack(
    strategy: str, *, people: int, minimum: int, delta: float, rng: np.random.Generator
) -> tuple[bool, int]:
    """Run one attack; return whether the shuffler continues, and how many honest reports remain."""
    passed = passed_on(strategy, people=people, minimum=minimum, delta=delta, rng=rng)
    heads = rng.random(people) < 0.5  # the report is the first of the two
    reports = int(np.where(heads, passed[:, 0], passed[:, 1]).sum())
    counted = int(np.where(heads, passed[:, 1], passed[:, 0]).sum())
    shown = uploads.people(counted=counted, registered=people, delta=delta)
    return shown >= minimum, reports


def passed_on(
    strategy: str, *, people: int, minimum: int, delta: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which of the two items of each person the attacker passes on."""
    passed = np.ones((people, 2), dtype=np.bool_)
    if strategy == "victim alone":
        passed[1:] = False
    elif strategy == "every other person":
        passed[::2] = False
    elif strategy == "at random":
        passed = rng.random((people, 2)) < 0.97
    elif strategy == "half":
        passed[:, 0] = False
    elif strategy == "worst":
        passed[: worst(people, minimum, delta)[0], rng.integers(2)] = False
    return passed


@lru_cache(maxsize=64)
def worst(people: int, minimum: int, delta: float) -> tuple[int, float]:
    """Return of how many people to pass on one item, and the exact chance to win with it."""
    lost = np.arange(people + 1)
    shown = np.array(
        [uploads.people(counted=people - n, registered=people, delta=delta) for n in lost.tolist()]
    )
    best = (0, 0.0)
    for single in range(people + 1):
        wins = (shown >= minimum) & (people - single + lost < minimum) & (lost <= single)
        chance = float(binom.pmf(lost[wins], single, 0.5).sum())
        best = max(best, (single, chance), key=lambda found: found[1])
    return best


def main() -> int:
    """Print, for each strategy, how 10,000 attacks end."""
    failed = 0
    for people, minimum, delta in ((1_000, 900, 1e-3), (1_000, 900, 1e-9), (200, 100, 1e-3)):
        single, chance = worst(people, minimum, delta)
        print(f"{people:,} people, minimum {minimum}, trap_delta {delta:g}; s(0) =", end=" ")
        print(f"{uploads.slack(0, delta)}; worst: one item of {single} people, wins {chance:.3g}")
        failed += chance > delta
        rng = np.random.default_rng(1)
        for strategy in STRATEGIES:
            ends = [
                attack(strategy, people=people, minimum=minimum, delta=delta, rng=rng)
                for _ in range(ATTACKS)
            ]
            went_on = [reports for passed, reports in ends if passed]
            broken = sum(reports < minimum for reports in went_on)
            least = f"least honest reports {min(went_on)}" if went_on else "none went on"
            print(
                f"  {strategy:20} goes on {len(went_on):6,} of {ATTACKS:,}; {least}; won {broken}"
            )
            # A larger count has a chance below 1e-6 if the stated one is true.
            failed += broken > binom.isf(1e-6, ATTACKS, delta)
    return int(failed > 0)
