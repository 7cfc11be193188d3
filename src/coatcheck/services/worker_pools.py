"""Worker processes: whatever computes runs in them, so that the event loop only moves bytes.

A *job* is what a service has done for one round, such as a release; it runs in a worker of the
service. A *stage* is one kind of work on the files of a round, such as peeling; a job splits it
into parts, and a *runner* does them: in the job's own process, in a pool of processes, or on a
cluster. Jobs and stages open the store and the key files by themselves, because a private key is
never pickled. A worker ends when the process that started it does.
"""

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from coatcheck.errors import Unavailable
from coatcheck.protocol.agreement import AgreedTerms, read_signed, verify_signatures
from coatcheck.services.settings import Settings
from coatcheck.stores import Place, blob_place, open_blobs
from coatcheck.stores.blobs import SealedFiles
from coatcheck.stores.round_keys import RoundKeys
from coatcheck.stores.round_store import Store

_R = TypeVar("_R")
_SWEPT: Final = "ignore:resource_tracker:UserWarning"
"""Silences Python's resource tracker, which removes the semaphores of a process that was killed.

It would report them as leaked, although none is left.
"""


class WorkerPool:
    """Processes for jobs or for parts of stages.

    One rule for a process that dies: everything that the pool has under way fails with
    `Unavailable`, new processes take the place of the old ones, and the next tick of the service
    tries again.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._start()

    def _start(self) -> None:
        if _SWEPT not in sys.warnoptions:
            sys.warnoptions.append(_SWEPT)  # which Python passes on to the processes that it starts
        # Fresh processes, not forks: a fork would inherit sockets, locks and the event loop.
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(
            self._count, mp_context=context, initializer=end_with_parent
        )

    def submit(self, call: Callable[..., _R], *args: Any) -> Future[_R]:
        """Have a process make a call."""
        return self._executor.submit(call, *args)

    @contextmanager
    def replaced_if_dead(self, work: str) -> Iterator[None]:
        """Replace the processes if one of them dies while the caller waits for their results."""
        try:
            yield
        except BrokenProcessPool:
            self.replace()
            text = f"a worker process ended in the middle of {work}; it is tried again"
            raise Unavailable(text) from None

    def replace(self) -> None:
        """Kill the processes, whatever they do, and start others when there is work for them."""
        for process in list((self._executor._processes or {}).values()):  # noqa: SLF001 - `kill_workers` is of Python 3.14
            process.kill()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._start()

    def close(self) -> None:
        """End the processes once they have done what they are at."""
        self._executor.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Watch the process that started this one, and end when it does, however it does."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# Jobs


class JobWorkers:
    """Two processes for the jobs of a service: a long job leaves room for short ones.

    Each is a pool of its own, so that ending one job does not end the other.
    """

    def __init__(self) -> None:
        self._idle = [WorkerPool(1), WorkerPool(1)]
        self._turns = asyncio.Semaphore(len(self._idle))

    async def run(self, job: Callable[..., _R], *args: Any) -> _R:
        """Run a job in an idle process.

        If the caller stops waiting, the process is killed: a job that computes for ever would keep
        its place for ever.
        """
        async with self._turns:
            pool = self._idle.pop()
            try:
                with pool.replaced_if_dead("a job"):
                    return await asyncio.wrap_future(pool.submit(job, *args))
            except asyncio.CancelledError:
                pool.replace()
                raise
            finally:
                self._idle.append(pool)

    def close(self) -> None:
        """End the processes; one in the middle of a job was killed when nobody waited for it."""
        for pool in self._idle:
            pool.close()


def run_by_name(job: str, *args: Any, **options: Any) -> Any:
    """Run a job that is named as `package.module:function`.

    A service names its jobs and imports none of them: what computes is loaded by the worker.
    """
    module, _, name = job.partition(":")
    return getattr(import_module(module), name)(*args, **options)


OpenStore = Callable[[str, Path, Place | None], Store]


def run_with_store(job: str, open_store: OpenStore, settings: Settings, *args: Any) -> Any:
    """Run a named job on the store of a role, which is opened once per process."""
    return run_by_name(job, _opened(open_store, *settings.places), settings, *args)


@cache
def _opened(open_store: OpenStore, url: str, keys: Path, blobs: Place | None) -> Store:
    return open_store(url, keys, blobs)


# Stages

Stage = Callable[..., bytes]
"""A function of the files of a round, the settings, and the names and counts of one part.

It loads the keys that it needs by itself, and doing a part twice does no harm.
"""
PartArgs = tuple[Any, ...]
Record = Callable[[PartArgs, bytes], None]
"""Is called with the arguments of a part and its result, as soon as the part is done."""


class Runner(Protocol):
    """Does the parts of a stage."""

    def run(self, stage: Stage, parts: Iterable[PartArgs], record: Record) -> None:
        """Do a stage for each part, and record each result as it comes.

        A part is taken from `parts` when a process is free for it. An error of a part is raised;
        the parts that were recorded are done.
        """


def runner_for(settings: Settings, files: SealedFiles, *, is_small: bool) -> Runner:
    """Choose a runner; a job that is small, or whose files are in memory, does its parts itself."""
    count = settings.workers or os.cpu_count() or 1
    if is_small or settings.store == "memory:":
        return InlineRunner(settings, files)
    if settings.runner == "ray":
        from coatcheck.services.ray_runner import RayRunner  # noqa: PLC0415 - an extra

        return RayRunner(settings, files)
    if count == 1:
        return InlineRunner(settings, files)
    return PoolRunner(settings, files, count=count)


def check_runner(settings: Settings) -> None:
    """Refuse settings of a runner that cannot start here."""
    if settings.runner == "ray" and settings.ray:
        from coatcheck.services.ray_runner import check  # noqa: PLC0415 - an extra

        check(settings.path(settings.ray.token))


class InlineRunner:
    """Does one part after the other in this process."""

    def __init__(self, settings: Settings, files: SealedFiles) -> None:
        self._settings = settings
        self._files = files

    def run(self, stage: Stage, parts: Iterable[PartArgs], record: Record) -> None:
        """Do a stage for each part."""
        for part in parts:
            record(part, stage(self._files, self._settings, *part))


class PoolRunner:
    """Gives parts to a pool: names and counts go to its processes, hashes and counts come back."""

    def __init__(self, settings: Settings, files: SealedFiles, *, count: int) -> None:
        self._settings = settings
        self._digest = files.digest
        self._count = count

    def run(self, stage: Stage, parts: Iterable[PartArgs], record: Record) -> None:
        """Do a stage for each part; up to twice as many as there are processes are under way."""
        pool = shared_pool(self._count)
        under_way: dict[Future[bytes], PartArgs] = {}
        with pool.replaced_if_dead(stage.__name__):
            try:
                for part in parts:
                    future = pool.submit(run_part, stage, self._settings, self._digest, part)
                    under_way[future] = part
                    if len(under_way) >= 2 * self._count:
                        _record_next(under_way, record)
                while under_way:
                    _record_next(under_way, record)
            except BaseException:
                for future in under_way:
                    future.cancel()
                wait(under_way)
                raise


@cache
def shared_pool(count: int) -> WorkerPool:
    """Return the pool that all jobs of this process share."""
    return WorkerPool(count)


def _record_next(under_way: dict[Future[bytes], PartArgs], record: Record) -> None:
    """Wait until a part is done, and record it."""
    ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
    for future in ready:
        record(under_way.pop(future), future.result())


def run_part(stage: Stage, settings: Settings, digest: bytes, part: PartArgs) -> bytes:
    """Do a part of a stage in a process that has nothing of the round open yet."""
    url, keys, place = settings.places
    blobs = open_blobs(place, url=url, keys=keys)
    return stage(SealedFiles(RoundKeys(keys, prepared=True), blobs, digest), settings, *part)


def remote_settings(settings: Settings) -> Settings:
    """Return the settings that a stage on another machine needs.

    They have no address of the database, which may hold a password, nor of the collector of
    traces, which may hold a token.
    """
    url, keys, place = settings.places
    blobs = str(blob_place(place, url=url, keys=keys))
    removed = {"store": "elsewhere:", "traces": "", "admin_token": ""}
    return msgspec.structs.replace(settings, blobs=blobs, round_keys=str(keys), **removed)


_TERMS: Final = "terms"


def put_terms(files: SealedFiles, signed: bytes) -> None:
    """Put the signed terms of a round where its stages find them."""
    if _TERMS not in files.names():
        files.put(_TERMS, signed)


def terms_of(files: SealedFiles) -> AgreedTerms:
    """Read the terms of the round that a stage works on."""
    return verify_signatures(read_signed(files.get(_TERMS)))
