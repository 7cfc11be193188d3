"""What decoys hide: random small crowds enumerated in full, and the local ε that a promise leaves.

    python -m bench decoys

COATCHECK_CROWDS in the environment says how many crowds, 10,000 if it is not set: every data set of
a few people, with decoys, people who are lost or corrupted, and messages that the answers give
away. None may have a larger δ than the accountant says. Below stands, for ε_c = 1, the chance that
a report names the true cell, with no decoys, one or two per person.
"""

import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from bench import Figure, show
from coatcheck.accounting import hockey_stick
from coatcheck.accounting.amplification import anonymous, calibrate
from coatcheck.accounting.laws import grid, pair

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

_CROWDS = ((400, 1e-5), (532, 1e-5), (4036, 1e-6))
_CELLS = (9, 16, 25, 36, 64)


def main() -> int:
    """Enumerate and print; return 1 if a crowd has a larger δ than its bound."""
    count = int(os.environ.get("COATCHECK_CROWDS", "10000"))
    with ProcessPoolExecutor(2) as pool:
        ratios = list(pool.map(_ratio, range(count), chunksize=50))
    wrong = [seed for seed, ratio in enumerate(ratios) if ratio > 1]
    print(f"above their bound: {wrong}")
    figures = [
        Figure(what="crowds enumerated", value=count, unit=""),
        Figure(what="crowds above their bound", value=len(wrong), unit="", target=0),
        Figure(what="largest δ over its bound", value=max(ratios), unit="", target=1),
    ]
    for crowd, delta in _CROWDS:
        for cells in _CELLS:
            for decoys in (0, 1, 2):
                local = _local(crowd, delta, cells, decoys)
                truth = math.exp(local) / (math.exp(local) + cells - 1)
                what = f"{crowd} people, {cells} cells, {decoys} decoys: chance of the true cell"
                figures.append(Figure(what=what, value=truth, unit=""))
    return show(figures)


def _ratio(seed: int) -> float:
    from support.crowds import any_decoys, worst_with_decoys  # noqa: PLC0415 - of the tests

    channel, law, people, epsilon = any_decoys(seed)
    size = anonymous(**people, decoys=law.each)
    truth = worst_with_decoys(channel, law, people, epsilon)
    bound = hockey_stick.upper(pair(law), size=size, epsilon=epsilon)
    return max(0.0, truth - 1e-14) / bound if bound else 0.0


def _local(crowd: int, delta: float, cells: int, decoys: int) -> float:
    make = partial(grid, cells=cells)
    return calibrate(make, epsilon=1.0, crowd=crowd, delta=delta, decoys=decoys).local_epsilon


if __name__ == "__main__":
    sys.exit(main())
