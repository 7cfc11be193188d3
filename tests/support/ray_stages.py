"""Stages for tests only, on nodes of Ray that are lost while they run."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench._nodes import SECOND, Nodes
from coatcheck import errors
from coatcheck.errors import Unavailable
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.wire import batches
from coatcheck.services import clock
from coatcheck.services.server import task_stage
from coatcheck.services.settings import Settings
from coatcheck.services.worker_pools import PartArgs, Record, Runner, Stage
from coatcheck.stores.blobs import SealedFiles
from support.repeatable import seal_each

BITS: Final = 4
SIZE: Final = 1 << BITS
"""How many items a partition has here."""


def whose(files: SealedFiles, settings: Settings, number: int) -> bytes:
    """Return which process runs a part."""
    assert (settings.store, len(files.digest), number > 0) == ("elsewhere:", 32, True)
    return b"%d" % os.getpid()


def failing(files: SealedFiles, settings: Settings, kind: str, text: str) -> bytes:
    """Fail."""
    del files, settings
    raise getattr(errors, kind, ValueError)(text)


def small(files: SealedFiles, settings: Settings, stage: Stage, *part: Any) -> bytes:
    """Run a part of a real stage, in small partitions and with repeatable seals."""
    with ExitStack() as changed:
        changed.enter_context(patch.object(batches, "_BITS", BITS))
        changed.enter_context(patch.object(task_stage, "PART", SIZE))
        changed.enter_context(patch.object(Bulk, "seal_each", seal_each))
        made = stage(files, settings, *part)
    _lose(stage.__name__)
    return made


def _lose(stage: str) -> None:
    """Stop the second node if the stage left a mark for it: the work is done but not reported."""
    mark = Path(os.environ.get(clock.VARIABLE, "/nowhere")) / stage
    if not mark.exists():
        return
    raylet = os.getppid()
    if SECOND.encode() in Path(f"/proc/{raylet}/cmdline").read_bytes():
        mark.unlink()
        os.kill(raylet, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(20):  # or the first node might do all parts before the second has begun
        time.sleep(0.1)
        if not mark.exists():
            return
    raise Unavailable("the Ray cluster shall do a part of this stage on the node that is lost")


class Losing:
    """A runner with small parts that replaces a node which is lost during a stage."""

    def __init__(self, runner: Runner, marks: Path, nodes: Nodes | None = None) -> None:
        self._runner, self._marks, self._nodes = runner, marks, nodes

    def run(self, stage: Stage, parts: Iterable[PartArgs], record: Record) -> None:
        """Run a stage for each part."""
        mark = self._marks / stage.__name__
        lives = not mark.exists()
        try:
            given = ((stage, *part) for part in parts)
            self._runner.run(small, given, lambda part, made: record(part[1:], made))
        finally:
            if self._nodes and not lives and not mark.exists():
                self._nodes.mend()


def leaks(nodes: Nodes, secrets: Iterable[bytes]) -> list[Path]:
    """List the files of Ray that contain a secret, raw or in hex."""
    written = [path for path in nodes.logs.rglob("*") if path.is_file()]
    assert len(written) > 10
    told = [form for one in secrets for form in (one, one.hex().encode())]
    return [path for path in written if any(one in path.read_bytes() for one in told)]
