"""Every task at a million people per group: time and memory, each in a separate process.

`python -m bench tasks --large` runs all of them; `--people N` takes another size, and `--only WORD`
the rows that have this word in their name. Seconds are CPU time of the task alone, with loops
compiled before; memory is the peak of the whole process, the crowd included.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench import Figure, show
from bench._crowds import check_ins, gradients, reported, reports, spread
from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded
from coatcheck.protocol.server import belief, numbers
from coatcheck.randomizers import GridResponse, SphereResponse
from coatcheck.tasks import answer
from coatcheck.tasks.learning import Learning, mean_of
from coatcheck.tasks.matching import LeastCostMatching, MaximumMatching
from coatcheck.tasks.neighbours import Neighbours, nearest_within
from coatcheck.tasks.solvers.close_pairs import agreement
from coatcheck.tasks.standing import Standing

MILLION: Final = 1_000_000
_MOST_SECONDS: Final = 300.0
_MOST_GIGABYTES: Final = 4.0
_LINEAR: Final = 1161  # parameters of the study's linear model
_WARM: Final = 3000  # people with whom loops are compiled: too many for the dense ways

Job = Callable[[int], Callable[[], object]]
"""Makes a crowd of so many people per group; what it returns is measured."""


def _neighbours(mechanism: str, people: int) -> Callable[[], object]:
    places = reports(people, 1, mechanism=mechanism)
    return lambda: answer(Neighbours(radius=0.05), [places])


def _standing(people: int) -> Callable[[], object]:
    """Rank numbers such as incomes as the server does: by the posterior of each report."""
    randomizer = GridResponse(domain=Box((0.0,), (100.0,)), epsilon=2.0, cells=(64,))
    values = np.random.default_rng(1).gamma(4.0, 8.0, (people, 1))
    reports = randomizer.randomize(values, seeded(1), clamp=True)
    return lambda: answer(
        Standing(), [numbers(randomizer, reports)], beliefs=[belief(randomizer, reports)]
    )


def _mean(people: int) -> Callable[[], object]:
    """Decode and add up whole gradients; any reports take as long to decode as honest ones."""
    randomizer = SphereResponse(domain=Ball(radius=1.0, p=2, dimension=_LINEAR), epsilon=4.0)
    reports = np.random.default_rng(1).integers(
        randomizer.low[0], randomizer.high[0] + 1, (people, 1)
    )
    task = Learning(dimension=_LINEAR, share_mean=True, rewards=False)
    return lambda: mean_of(task, reports, partial(numbers, randomizer))


def _sampled(people: int) -> Callable[[], object]:
    """Run the paper's learning round: six of 4,292 coordinates, the mean and Shapley values."""
    game = gradients(people)
    task = Learning(dimension=len(game.direction), sampled=6, share_mean=True)
    notes = task.notes(game.coordinates)
    judged = task.judged_by(game.direction)
    return lambda: answer(judged, [game.values], notes=[notes])


def _progress(people: int) -> Callable[[], object]:
    """Run a reward round: one number per person."""
    numbers_reported = np.random.default_rng(1).normal(size=(people, 1))
    return lambda: answer(Learning(dimension=1, game="progress"), [numbers_reported])


def _maximum(mechanism: str, radius: float, people: int) -> Callable[[], object]:
    groups = [reports(people, seed, mechanism=mechanism) for seed in (1, 2)]
    return lambda: answer(MaximumMatching(radius=radius), groups)


def _sparse(people: int) -> Callable[[], object]:
    groups = [spread(people, seed) for seed in (1, 2)]
    return lambda: answer(MaximumMatching(radius=math.sqrt(3 / math.pi / people)), groups)


def _critical(times: float, people: int) -> Callable[[], object]:
    """Match people anywhere, with a radius at which only just nearly everybody can be matched.

    The longest distance that a full matching needs is of the order of log(n)^(3/4) / sqrt(n).
    """
    groups = [spread(people, seed) for seed in (1, 2)]
    radius = times * math.log(people) ** 0.75 / math.sqrt(people)
    return lambda: answer(MaximumMatching(radius=radius), groups)


def _least_cost(mechanism: str, gap: float, people: int) -> Callable[[], object]:
    groups = [reports(people, seed, mechanism=mechanism) for seed in (1, 2)]
    return lambda: answer(LeastCostMatching(gap=gap), groups)


def _check_ins(people: int) -> Callable[[], object]:
    """Compute F1 and lists of a number of real check-ins; 0 means all of them."""
    truth = check_ins("foursquare_nyc", people or None)
    noisy = reported(truth)

    def both() -> None:
        agreement(truth, noisy, radius=0.2)
        nearest_within(noisy, radius=0.2, limit=16)

    return both


JOBS: Final[dict[str, Job]] = {
    "check-ins": _check_ins,
    "neighbours, bounded": partial(_neighbours, "bounded"),
    "neighbours, grid": partial(_neighbours, "grid"),
    "standing": _standing,
    f"learning, mean of {_LINEAR} parameters": _mean,
    "learning, mean and rewards, 6 of 4292 sampled": _sampled,
    "learning, rewards of one number": _progress,
    "maximum, grid": partial(_maximum, "grid", 0.11),
    "maximum, bounded": partial(_maximum, "bounded", 0.02),
    "maximum, anywhere, degree 3": _sparse,
    "maximum, at the critical radius": partial(_critical, 0.5),
    "least-cost, grid": partial(_least_cost, "grid", 0.0),
    "least-cost, bounded, gap 0.01": partial(_least_cost, "bounded", 0.01),
    "least-cost, bounded": partial(_least_cost, "bounded", 0.0),
}


def main() -> int:
    """Run the chosen jobs; return 1 if one takes too much time or memory."""
    people, only = int(_option("--people", str(MILLION))), _option("--only", "")
    worst = 0
    for name in (name for name in JOBS if only in name and name != "check-ins"):
        seconds, peak = measured(name, people)
        what = f"{name}, {people}"
        worst |= show(
            [
                Figure(what=what, value=seconds, unit="s", target=_MOST_SECONDS),
                Figure(what="  peak memory", value=peak, unit="GB", target=_MOST_GIGABYTES),
            ]
        )
        sys.stdout.flush()
    return worst


def _option(name: str, usual: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else usual


def measured(name: str, people: int) -> tuple[float, float]:
    """Return the seconds and the peak gigabytes of a job, run in a separate process."""
    done = subprocess.run(  # noqa: S603 - our own program, by our own interpreter
        [sys.executable, "-m", "bench._large", name, str(people)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, peak = map(float, done.stdout.split()[-2:])
    return seconds, peak


def peak() -> float:
    """Return the peak memory of this process in GB, without that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    make_job = JOBS[sys.argv[1]]
    make_job(_WARM)()
    job = make_job(int(sys.argv[2]))
    start = time.process_time()
    job()
    print(time.process_time() - start, peak())
