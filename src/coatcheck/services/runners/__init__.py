"""Runners: whose hands do the parts of a stage: this process, a pool of processes, a cluster."""

import os

from coatcheck.services.runners.contract import Runner
from coatcheck.services.runners.hands import Inline, Pool
from coatcheck.services.settings import Settings
from coatcheck.stores.crate import Crate


def runner_of(settings: Settings, crate: Crate, *, little: bool) -> Runner:
    """Choose a runner; what is little, or in memory, is done by this process."""
    count = settings.workers or os.cpu_count() or 1
    if little or settings.store == "memory:" or count == 1:
        return Inline(settings, crate)
    return Pool(settings, crate, count=count)
