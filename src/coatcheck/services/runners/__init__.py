"""Runners: whose hands do the parts of a stage: this process, a pool of processes, a cluster."""

import os

from coatcheck.services.runners import ray
from coatcheck.services.runners.contract import Runner
from coatcheck.services.runners.hands import Inline, Pool
from coatcheck.services.runners.knock import check
from coatcheck.services.settings import Settings
from coatcheck.stores.crate import Crate


def check_runner(settings: Settings) -> None:
    """Refuse a runner that cannot begin here."""
    if settings.runner == "ray" and settings.ray:
        check(settings.path(settings.ray.token))


def runner_of(settings: Settings, crate: Crate, *, little: bool) -> Runner:
    """Choose a runner; what is little, or in memory, is done by this process."""
    count = settings.workers or os.cpu_count() or 1
    if little or settings.store == "memory:":
        return Inline(settings, crate)
    if settings.runner == "ray":
        return ray.Ray(settings, crate)
    return Inline(settings, crate) if count == 1 else Pool(settings, crate, count=count)
