"""A role's process for `bench scale`: the shipped service, with a record of each stage's cost.

`python -m bench._staged ROLE SETTINGS LISTEN` serves as `coatcheck.services.process` does. Every
process that computes imports this file again, and so records its calls, one line each, in the file
that the environment names. After every part it opens or seals for a moment more, which measures the
speed of the machine at that time. With `STAND_IN` nothing is sealed: bytes of the same size stand
in.
"""

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from bench._curves import curve
from coatcheck import tasks
from coatcheck.protocol.envelope import Bulk
from coatcheck.services import process, worker_pools

NOTES: Final = "BENCH_STAGES"
STAND_IN: Final = "BENCH_STAND_IN"
NODES: Final = "BENCH_NODES"
OVERHEAD: Final = 48
_TICK: Final = os.sysconf("SC_CLK_TCK")
_MOMENT: Final = 0.01
_SOME: Final = 1000
"""How many are opened or sealed at least, before a moment of it counts for little."""


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak_of(pid: int) -> int:
    """Return the peak memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def children(of: int | str = "self") -> list[int]:
    """Return the processes that a process has started."""
    listed = Path(f"/proc/{of}/task").glob("*/children")
    return [int(pid) for one in listed for pid in one.read_text(encoding="ascii").split()]


def worker_processes() -> list[int]:
    """Return the processes that work for this one: its children, or those of Ray's nodes."""
    processes, nodes = children(), os.environ.get(NODES)
    todo = children(nodes) if nodes else []
    while todo:
        processes.append(todo.pop())
        todo += children(processes[-1])
    return processes


def noted(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Record the time and memory of each call of a function, here and in its worker processes."""

    @wraps(call)
    def inside(*args: Any, **options: Any) -> Any:
        wall, own = time.perf_counter(), time.process_time()
        before = sum(map(cpu_of, worker_processes()))
        result = call(*args, **options)
        own = time.process_time() - own
        helpers = worker_processes()
        row = {
            "stage": stage,
            "role": sys.argv[1],
            "pid": os.getpid(),
            "seconds": time.perf_counter() - wall,
            "own_seconds": own,
            "cpu_seconds": own + sum(map(cpu_of, helpers)) - before,
            "peak_bytes": max(
                [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]
                + [peak_of(pid) for pid in helpers]
            ),
        }
        _note(row)
        return result

    return inside


def _note(row: dict[str, Any]) -> None:
    with Path(os.environ[NOTES]).open("a", encoding="ascii") as notes:
        notes.write(json.dumps(row) + "\n")


def sampled(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Open or seal for a moment after each part, as part of the stage's time."""

    @wraps(call)
    def inside(bulk: Bulk, many: Sequence[bytes], **options: Any) -> Any:
        result = call(bulk, many, **options)
        if len(many) >= _SOME:
            done = curve(kind, _MOMENT)
            _note({"stage": f"limit {kind}", "role": sys.argv[1], **done._asdict()})
        return result

    return inside


def _uncovered(_: Bulk, sealed: Sequence[bytes], **options: Any) -> list[bytes | None]:
    del options
    return [one[:-OVERHEAD] for one in sealed]


def _covered(_: Bulk, plain: Sequence[bytes], **options: Any) -> list[bytes]:
    del options
    return [one + bytes(OVERHEAD) for one in plain]


def _job(job: str, *args: Any) -> Any:
    return noted(job.rpartition(":")[2], _with_store)(job, *args)


class _Noting:
    """A runner that records the cost of each stage."""

    def __init__(self, runner: worker_pools.Runner) -> None:
        self._runner = runner

    def run(self, stage: Callable[..., bytes], *args: Any) -> None:
        """Run a stage."""
        noted(stage.__name__, self._runner.run)(stage, *args)


def _runner_for(*args: Any, **options: Any) -> _Noting:
    return _Noting(_plain_runner_for(*args, **options))


if NOTES in os.environ:
    if STAND_IN in os.environ:
        Bulk.unseal_each = _uncovered  # type: ignore[assignment, method-assign]
        Bulk.seal_each = _covered  # type: ignore[assignment, method-assign]
    else:
        Bulk.unseal_each = sampled("open", Bulk.unseal_each)  # type: ignore[method-assign]
        Bulk.seal_each = sampled("seal", Bulk.seal_each)  # type: ignore[method-assign]
    tasks.answer = noted("task", tasks.answer)
    _plain_runner_for = worker_pools.runner_for
    worker_pools.runner_for = _runner_for
    _with_store = worker_pools.run_with_store
    wraps(_with_store)(_job)
    worker_pools.run_with_store = _job  # type: ignore[assignment]
    # Not before: its imports bind both names as they are then.
    if "shuffler" in sys.argv:
        from coatcheck.services.shuffler.pipeline import Release

        Release.sift = noted("sift", Release.sift)  # type: ignore[method-assign]
    if "server" in sys.argv:
        from coatcheck.services.server.pipeline import Answering

        Answering.compare = noted("compare", Answering.compare)  # type: ignore[method-assign]

if __name__ == "__main__":
    threading.Thread(target=process._end_with_the_starter, daemon=True).start()  # noqa: SLF001 - as it does
    sys.exit(process.serve(sys.argv[1], Path(sys.argv[2]), listen=sys.argv[3] or None))
