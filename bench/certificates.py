"""Replay random promises over the whole accepted range in interval arithmetic: none may fail.

    python -m bench certificates

COATCHECK_PROMISES in the environment says how many, 500 if it is not set; 10,000 take about half
an hour on one core. Needs the extra `certify`.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench import Figure, show

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


def main() -> int:
    """Replay promises and print; return 1 if one is not confirmed."""
    count = int(os.environ.get("COATCHECK_PROMISES", "500"))
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(_held, range(count), chunksize=20))
    wrong = [seed for seed, held in enumerate(outcomes) if held is False]
    open_ = [seed for seed, held in enumerate(outcomes) if held is None]
    print(f"false: {wrong}; not decided: {open_}")
    per_promise = (time.perf_counter() - start) / count
    return show(
        [
            Figure(what="promises replayed", value=count, unit=""),
            Figure(what="promises that are false", value=len(wrong), unit="", target=0),
            Figure(what="promises not decided", value=len(open_), unit="", target=count / 1000),
            Figure(what="time per promise", value=per_promise, unit="s"),
        ]
    )


def _held(seed: int) -> bool | None:
    from coatcheck.accounting.amplification import amplify, bounding_laws  # noqa: PLC0415 - in each process
    from coatcheck.accounting.certificate import replayed  # noqa: PLC0415 - as above
    from support.crowds import any_promise  # noqa: PLC0415 - of the tests

    law, crowd, delta = any_promise(seed)
    guarantee = amplify(law, crowd=crowd, delta=delta)
    laws = bounding_laws(law)
    _, low, high = replayed(*laws, size=crowd, epsilon=guarantee.epsilon, decide=delta, both=False)
    if high <= delta:
        return True
    return False if low > delta else None
