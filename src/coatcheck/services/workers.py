"""Workers: processes for everything that computes, so that the event loop only moves bytes.

A job is a function and plain data; it opens the store and the key files by itself, because a
private key is never pickled. A worker ends when the service that started it does.
"""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from coatcheck.errors import Unavailable
from coatcheck.services.settings import Settings
from coatcheck.stores.places import Place
from coatcheck.stores.store import Store

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
