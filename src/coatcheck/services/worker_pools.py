"""Workers: processes for everything that computes, so that the event loop only moves bytes.

A job is a function and plain data; it opens the store and the key files by itself, because a
private key is never pickled. A worker ends when the service that started it does.
"""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
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


def _pool(count: int) -> ProcessPoolExecutor:
    # Fresh processes, not forks: a fork would inherit sockets, locks and the event loop.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)


def end_with_parent() -> None:
    """Watch the process that started this one, and end when it does, however it does."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Workers:
    """Two processes for the jobs of a service: a long computation leaves room for short ones."""

    def __init__(self) -> None:
        self._idle = [_pool(1), _pool(1)]
        self._turns = asyncio.Semaphore(len(self._idle))

    async def run(self, job: Callable[..., _R], *given: Any) -> _R:
        """Run a job; if the worker died under it, the next try gets a new one.

        A job that is not awaited any more is ended, with its process: one that computes for ever
        would keep its place for ever.
        """
        loop = asyncio.get_running_loop()
        async with self._turns:
            worker = self._idle.pop()
            try:
                return await loop.run_in_executor(worker, partial(job, *given))
            except BrokenProcessPool:
                worker = _replaced(worker)
                text = "a worker ended in the middle of a job: it is tried again"
                raise Unavailable(text) from None
            except asyncio.CancelledError:
                worker = _replaced(worker)
                raise
            finally:
                self._idle.append(worker)

    def close(self) -> None:
        """End the workers; one in the middle of a job was ended when nobody waited for it."""
        for worker in self._idle:
            worker.shutdown(cancel_futures=True)


def _replaced(worker: ProcessPoolExecutor) -> ProcessPoolExecutor:
    """End a worker's process, whatever it does, and give a new worker."""
    for process in list((worker._processes or {}).values()):  # noqa: SLF001 - `kill_workers` is of Python 3.14
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)
    return _pool(1)


@cache
def shared_pool(count: int) -> ProcessPoolExecutor:
    """Give the processes that all jobs of this process share."""
    return _pool(count)


@cache
def _opened(
    open_store: Callable[[str, Path, Place | None], Store],
    url: str,
    keys: Path,
    depot: Place | None,
) -> Store:
    return open_store(url, keys, depot)


def with_store(
    job: Callable[..., _R],
    open_store: Callable[[str, Path, Place | None], Store],
    settings: Settings,
    *given: Any,
) -> _R:
    """Run a job whose first arguments are the store, opened once per process, and the settings."""
    store = _opened(open_store, *settings.places)
    return job(store, settings, *given)


# HOUSE-DOC services.runners.contract: 'What a stage is, and what does its parts.\n\nA stage is a function of a crate, the settings and a few plain values. It loads keys by itself, so\nnone is ever given to a runner, and it may be done twice.\n'
_TERMS: Final = "terms"
Stage = Callable[..., bytes]
Given = tuple[Any, ...]
Done = Callable[[Given, bytes], None]


class Runner(Protocol):
    """Does the parts of a stage."""

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part, and tell each result as it comes.

        A part is taken when there is a hand for it. Whatever fails is raised, and those that were
        told are done.
        """


def run_stage(stage: Stage, settings: Settings, digest: bytes, part: Given) -> bytes:
    """Do a part of a stage, in whichever process this is."""
    url, keys, place = settings.places
    crate = SealedFiles(
        RoundKeys(keys, prepared=True), open_blobs(place, url=url, keys=keys), digest
    )
    return stage(crate, settings, *part)


def elsewhere(settings: Settings) -> Settings:
    """Give what a stage on another machine needs: where files are, and no word of the database.

    The address of a database may have a password in it, and that of a collector a token.
    """
    url, keys, place = settings.places
    depot = str(blob_place(place, url=url, keys=keys))
    nothing = {"store": "elsewhere:", "traces": "", "admin_token": ""}
    return msgspec.structs.replace(settings, depot=depot, round_keys=str(keys), **nothing)


def keep_terms(crate: SealedFiles, signed: bytes) -> None:
    """Put the signed terms of a round where its stages find them."""
    if _TERMS not in crate.names():
        crate.put(_TERMS, signed)


def terms_of(crate: SealedFiles) -> AgreedTerms:
    """Give the terms of the round that a stage works on."""
    return verify_signatures(read_signed(crate.get(_TERMS)))


# HOUSE-DOC services.runners.hands: 'Hands of this machine: this process, or a pool of processes.'
class Inline:
    """Does one part after the other, in this process: for what is too little to hand out."""

    def __init__(self, settings: Settings, crate: SealedFiles) -> None:
        self._settings = settings
        self._crate = crate

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part."""
        for part in parts:
            done(part, stage(self._crate, self._settings, *part))


class Pool:
    """Hands parts to processes; only names and counts go there, and hashes and counts come back."""

    def __init__(self, settings: Settings, crate: SealedFiles, *, count: int) -> None:
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


# HOUSE-DOC services.runners: 'Runners: whose hands do the parts of a stage: this process, a pool of processes, a cluster.'
def check_runner(settings: Settings) -> None:
    """Refuse a runner that cannot begin here."""
    if settings.runner == "ray" and settings.ray:
        from coatcheck.services.ray_runner import check  # noqa: PLC0415 - an extra

        check(settings.path(settings.ray.token))


def runner_of(settings: Settings, crate: SealedFiles, *, little: bool) -> Runner:
    """Choose a runner; what is little, or in memory, is done by this process."""
    count = settings.workers or os.cpu_count() or 1
    if little or settings.store == "memory:":
        return Inline(settings, crate)
    if settings.runner == "ray":
        from coatcheck.services.ray_runner import Ray  # noqa: PLC0415 - an extra

        return Ray(settings, crate)
    return Inline(settings, crate) if count == 1 else Pool(settings, crate, count=count)
