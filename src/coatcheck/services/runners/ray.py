"""Hands of a cluster: parts of stages as tasks of Ray, on machines that share the same files.

A node gets names, counts and paths, and gives hashes and counts. It reads keys and the depot by
itself. Ray does the parts of a lost node again, on the others.
"""

import importlib.util
import multiprocessing
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from coatcheck import errors
from coatcheck.errors import Error, Misuse, Unavailable
from coatcheck.files import read_secret
from coatcheck.services.runners.contract import Done, Given, Stage, elsewhere
from coatcheck.services.runners.driver import READY, drive
from coatcheck.services.settings import RaySettings, Settings
from coatcheck.stores.crate import Crate

_JOINS: Final = 180.0
"""Seconds that a driver has to join a cluster: Ray itself would wait for ever."""
_SOON: Final = 5.0
_LOST: Final = "was lost: what was under way is done again"
_QUIET: Final = 30.0
"""Seconds without a result after which the cluster is asked whether it has cores at all."""


class Ray:
    """Hands parts to a cluster."""

    def __init__(self, settings: Settings, crate: Crate) -> None:
        self._cluster = settings.cluster
        self._given = (elsewhere(settings), crate.digest)

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part; twice as many as there are cores are under way."""
        driver = _driver(self._cluster)
        waiting: dict[int, Given] = {}
        try:
            for number, part in enumerate(parts):
                driver.send(number, stage, *self._given, part)
                waiting[number] = part
                if len(waiting) >= 2 * driver.cores:
                    _take(driver, waiting, done)
            while waiting:
                _take(driver, waiting, done)
        except BaseException:
            driver.drain()
            raise


def _take(driver: "Driver", waiting: dict[int, Given], done: Done) -> None:
    """Wait for the next part that is done, and tell it."""
    number, result = driver.take()
    done(waiting.pop(number), result)


class Driver:
    """A driver's process, as the process that started it holds it.

    Attributes:
        cores: how many cores the cluster has; at least one.
    """

    def __init__(self, cluster: RaySettings) -> None:
        self._where = f"the Ray cluster at {cluster.address}"
        self._under_way = 0
        check(Path(cluster.token))
        _knock(cluster.address)
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=drive, args=(other, cluster), daemon=True)
        self._process.start()
        other.close()
        try:
            self._next(within=_JOINS)
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def send(self, *given: Any) -> None:
        """Hand a part over, by its number; the number alone asks for the cluster's cores."""
        try:
            self._pipe.send(given)
        except OSError:
            raise self._left(_LOST) from None
        self._under_way += len(given) > 1

    def take(self) -> tuple[int, bytes]:
        """Wait for a result: the part's number, and what came of it."""
        found = (READY, b"")
        while found[0] == READY:
            limit = None
            if not self._pipe.poll(_QUIET):
                self.send(READY)
                limit = _JOINS
            found = self._next(within=limit)
        return found

    def drain(self) -> None:
        """Wait for what is under way, so that nothing is done after a step has failed."""
        while self._under_way:
            with suppress(Error):
                self.take()

    def _next(self, *, within: float | None = None) -> tuple[int, bytes]:
        if not self._pipe.poll(within):
            raise self._left("does not answer: is it well?")
        try:
            number, kind, told = self._pipe.recv()
        except (EOFError, OSError):
            raise self._left(_LOST) from None
        self._under_way -= number != READY
        if kind:
            raise getattr(errors, kind, Unavailable)(told.decode())
        if number == READY:
            self.cores = int(told)
            if not self.cores:
                raise self._left("has no core to give: are its nodes up?")
        return number, told

    def _left(self, why: str) -> Unavailable:
        """Leave a cluster that does nothing more; what was under way there is not waited for."""
        self._under_way = 0
        self.end()
        return Unavailable(f"{self._where} {why}")

    def end(self) -> None:
        """End the process, and with it whatever it has under way."""
        self._pipe.close()
        self._process.join(_SOON)
        self._process.kill()
        self._process.join()


def _driver(cluster: RaySettings) -> Driver:
    """Give the driver of this process; a new one if the last one ended."""
    if not _joined(cluster).is_alive:
        _joined.cache_clear()
    return _joined(cluster)


@cache
def _joined(cluster: RaySettings) -> Driver:
    return Driver(cluster)


def check(token: Path) -> None:
    """Refuse what no cluster could mend: no Ray here, or no token."""
    if importlib.util.find_spec("ray") is None:
        raise Misuse("runner = \"ray\" needs Ray: pip install 'coatcheck[ray]'")
    if not read_secret(token).strip():
        raise Misuse(f"{token} is empty: write the cluster's token into it")


def _knock(address: str) -> None:
    """See whether anybody is at an address; Ray itself would wait there for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SOON).close()
    except (OSError, OverflowError) as error:
        raise Unavailable(f"no Ray cluster is at {address}: {error}; is its head up?") from None
