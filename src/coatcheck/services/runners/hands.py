"""Hands of this machine: this process, or a pool of processes."""

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool

from coatcheck.errors import Unavailable
from coatcheck.services.runners.contract import Done, Given, Stage, run_stage
from coatcheck.services.settings import Settings
from coatcheck.services.workers import shared_pool
from coatcheck.stores.crate import Crate


class Inline:
    """Does one part after the other, in this process: for what is too little to hand out."""

    def __init__(self, settings: Settings, crate: Crate) -> None:
        self._settings = settings
        self._crate = crate

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part."""
        for part in parts:
            done(part, stage(self._crate, self._settings, *part))


class Pool:
    """Hands parts to processes; only names and counts go there, and hashes and counts come back."""

    def __init__(self, settings: Settings, crate: Crate, *, count: int) -> None:
        self._settings = settings
        self._digest = crate.digest
        self._count = count

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part; twice as many as there are processes are under way."""
        pool = shared_pool(self._count)
        waiting: dict[Future[bytes], Given] = {}
        try:
            for part in parts:
                given = (stage, self._settings, self._digest, part)
                waiting[pool.submit(run_stage, *given)] = part
                if len(waiting) >= 2 * self._count:
                    _take(waiting, done)
            while waiting:
                _take(waiting, done)
        except BrokenProcessPool:
            shared_pool.cache_clear()
            raise Unavailable(
                f"a process ended in the middle of {stage.__name__}: its part is done again"
            ) from None
        except BaseException:
            for one in waiting:
                one.cancel()
            wait(waiting)
            raise


def _take(waiting: dict[Future[bytes], Given], done: Done) -> None:
    """Wait for the next part that is done, and tell it."""
    ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for one in ready:
        done(waiting.pop(one), one.result())
