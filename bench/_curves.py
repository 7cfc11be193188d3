"""Time of the curve operations alone: how fast this machine opens and seals on idle cores.

A machine's speed varies by a third within minutes, so a stage is compared with measurements that
its own processes take between its parts, not with those of a minute before or after.
"""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs, SealingKey
from coatcheck.protocol.terms import CLASSICAL

CORES: Final = os.cpu_count() or 1


class Done(NamedTuple):
    """A count of openings or seals, with the seconds and the CPU seconds that they took."""

    many: int
    seconds: float
    cpu: float


class Limit(NamedTuple):
    """The time of one opening or one seal: seconds if all cores do nothing else, and CPU."""

    seconds: float
    cpu: float

    @classmethod
    def of(cls, done: list[Done]) -> "Limit":
        """Add up the work of processes with a core each."""
        many = sum(one.many for one in done)
        return cls(
            sum(one.seconds for one in done) / many / CORES, sum(one.cpu for one in done) / many
        )


def pool() -> ProcessPoolExecutor:
    """Start a process per core."""
    return ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn"))


def limits(seconds: float = 2.0) -> dict[str, Limit]:
    """Measure what one opening and one seal take, on all cores at once."""
    with pool() as workers:
        measured_limits = {}
        for kind in ("open", "seal"):
            list(workers.map(curve, [kind] * CORES, [0.1] * CORES))  # warm
            measured_limits[kind] = Limit.of(
                list(workers.map(curve, [kind] * CORES, [seconds] * CORES))
            )
        return measured_limits


def curve(kind: str, seconds: float) -> Done:
    """Open or seal for some seconds, with objects made per item as a role must."""
    keys = KeyPairs(CLASSICAL, bytes(32))
    bound = binding(Purpose.ANSWER, digest=bytes(32), group=0)
    public = keys.opening.public_raw
    sealed = seal(bytes(128), to=keys.opening.public, bound=bound)
    done, begun, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < begun + seconds:
        for _ in range(50):
            if kind == "open":
                unseal(sealed, key=keys.opening, bound=bound)
            else:
                seal(bytes(128), to=SealingKey(CLASSICAL, public), bound=bound)
        done += 50
    return Done(done, time.perf_counter() - begun, time.process_time() - cpu)
