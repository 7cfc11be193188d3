"""Stages that only tests have done, on nodes of Ray that are lost while they are at it."""

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
from coatcheck.services.worker_pools import Done, Given, Runner, Stage
from coatcheck.stores.blobs import SealedFiles
from support.repeatable import seal_each

BITS: Final = 4
SIZE: Final = 1 << BITS
"""How many items a partition has here."""


def whose(crate: SealedFiles, settings: Settings, number: int) -> bytes:
    """A stage that tells which process does a part."""
    assert (settings.store, len(crate.digest), number > 0) == ("elsewhere:", 32, True)
    return b"%d" % os.getpid()


def failing(crate: SealedFiles, settings: Settings, kind: str, text: str) -> bytes:
    """A stage that fails."""
    del crate, settings
    raise getattr(errors, kind, ValueError)(text)


def small(crate: SealedFiles, settings: Settings, stage: Stage, *part: Any) -> bytes:
    """Do a part of a real stage, in small partitions and with seals that repeat."""
    with ExitStack() as changed:
        changed.enter_context(patch.object(batches, "_BITS", BITS))
        changed.enter_context(patch.object(task_stage, "PART", SIZE))
        changed.enter_context(patch.object(Bulk, "seal_each", seal_each))
        made = stage(crate, settings, *part)
    _lose(stage.__name__)
    return made


def _lose(stage: str) -> None:
    """End the second node if a mark of the stage asks for it: work is done, and nobody knows."""
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
    """A runner whose parts are small; a node that is lost in a stage is replaced after it."""

    def __init__(self, runner: Runner, marks: Path, nodes: Nodes | None = None) -> None:
        self._runner, self._marks, self._nodes = runner, marks, nodes

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part."""
        mark = self._marks / stage.__name__
        lives = not mark.exists()
        try:
            given = ((stage, *part) for part in parts)
            self._runner.run(small, given, lambda part, made: done(part[1:], made))
        finally:
            if self._nodes and not lives and not mark.exists():
                self._nodes.mend()


def leaks(nodes: Nodes, secrets: Iterable[bytes]) -> list[Path]:
    """List what Ray wrote that has a secret in it, as it is or in hex."""
    written = [path for path in nodes.logs.rglob("*") if path.is_file()]
    assert len(written) > 10
    told = [form for one in secrets for form in (one, one.hex().encode())]
    return [path for path in written if any(one in path.read_bytes() for one in told)]
