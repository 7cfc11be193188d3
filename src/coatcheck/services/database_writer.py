"""Writes to a role's database: the lease of the process that leads, and group commit.

The process that holds the lease writes, the others stand by. Group commit puts everything that
waits into one transaction, and answers after it. Its queue is bounded: when it is full, clients are
asked to retry, so that no request waits for ever.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

from coatcheck.entropy import system
from coatcheck.errors import Damaged, Error, Full, Misuse, Unavailable
from coatcheck.services.telemetry import log, place_of
from coatcheck.services.web.routing import Problem
from coatcheck.stores.round_store import Store

_RENEWALS: Final = 3
"""How often the lease is renewed before it would end."""
Gained = Callable[[], Awaitable[None]]
_T = TypeVar("_T")


class Leadership:
    """The lease of one process, which it renews three times before the lease would end.

    *Guarantee:* `fence` is the fencing token under which the store takes writes, or did so a moment
    ago. In the second case the store refuses them.
    """

    def __init__(self, store: Store, *, seconds: float, gained: Gained) -> None:
        self._store = store
        self._seconds = seconds
        self._gained = gained
        self._holder = system().token(16).hex()
        self._until = 0.0
        self._prepared: int | None = None
        self.answers = False
        self._other_folder = 0
        self.failed: Callable[[str], None] = log.error
        # A separate thread: shared threads may all wait for a slow blob store, longer than a lease.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self._prepared is not None and time.monotonic() < self._until

    @property
    def fence(self) -> int:
        """The fencing token for a write; `Unavailable` while another process leads."""
        self.check()
        return self._prepared or 0  # lost at this moment: no store takes a write under 0

    def check(self) -> None:
        """Refuse unless this process leads."""
        if not self.leads:
            raise Unavailable("this process is a standby, or the database does not answer; retry")

    async def run(self) -> None:
        """Take the lease, renew it, and take it again when it was lost."""
        while True:
            await self.renew()
            await asyncio.sleep(self._seconds / _RENEWALS)

    async def renew(self) -> None:
        """Try once to take or renew the lease."""
        started = time.monotonic()
        try:
            lead = partial(self._store.lead, self._holder, seconds=self._seconds)
            fence = await self._run(lead)
            self.answers = True
            if fence is None:
                self._prepared = None
                return
            if fence != self._prepared:
                # Read what another leader did meanwhile, before any request is answered.
                await self._gained()
                self._prepared = fence
            # Counted from before the request, so that it ends here before it ends in the store.
            self._until = started + self._seconds
        except Damaged as error:
            self.answers = False
            self.failed(str(error))
        except Misuse as error:
            self.answers, self._prepared, self._other_folder = False, None, self._other_folder + 1
            # For the rest of its lease a dead process counts as leading; after that it is alive.
            if self._other_folder > _RENEWALS * 2:
                self.failed(str(error))
        except Error:
            self.answers = False
        except Exception as error:  # noqa: BLE001 - renewal must survive any error
            self.answers = False
            log.error("lead: internal error: %s", place_of(error))

    async def end(self) -> None:
        """Give the lease back."""
        self._prepared = None
        with contextlib.suppress(Error):
            await self._run(partial(self._store.resign, self._holder))
        self._thread.shutdown(wait=False)

    async def _run(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


_R = TypeVar("_R")
_LONGEST: Final = 0.005
"""The most seconds for which a group waits for more items."""


class GroupCommit(Generic[_T, _R]):
    """A queue in front of one writer.

    *Guarantee:* the future that `add` returns has its result after the transaction with the item
    is durable.
    """

    def __init__(
        self, write: Callable[[list[_T]], list[_R]], *, queue: int, group: int = 1000
    ) -> None:
        self._write = write
        self._queue = queue
        self._group = group
        self._waiting: list[tuple[_T, asyncio.Future[_R]]] = []
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._failed = ""
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return len(self._waiting)

    def add(self, item: _T) -> "asyncio.Future[_R]":
        """Put an item into the queue; the future has its result once the item is written."""
        if len(self._waiting) >= self._queue:
            raise Problem("busy", "the write queue is full; retry with the same bytes")
        # The loop is known: up to Python 3.11 looking it up costs a system call.
        future: asyncio.Future[_R] = (self._loop or asyncio.get_running_loop()).create_future()
        self._waiting.append((item, future))
        self._wake.set()
        return future

    async def apart(self, call: Callable[[], None]) -> None:
        """Make a call in the writer's thread, between two groups."""
        await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _log(self, error: Exception) -> None:
        """Log why nothing is written, once per reason."""
        reason = str(error) if isinstance(error, Error) else place_of(error)
        if reason != self._failed:
            log.warning("write: %s", reason)
        self._failed = reason

    async def run(self) -> None:
        """Write what waits, group by group; if a write fails, only the items of its group fail."""
        loop, seconds = asyncio.get_running_loop(), 0.0
        self._loop = loop
        try:
            while True:
                await self._wake.wait()
                # Half the time of a commit: items that come meanwhile join the group, and a commit
                # of many costs little more than one of a few (PostgreSQL manual, commit_delay).
                if len(self._waiting) < self._group:
                    await asyncio.sleep(min(seconds / 2, _LONGEST))
                group, self._waiting = self._waiting[: self._group], self._waiting[self._group :]
                if not self._waiting:
                    self._wake.clear()
                items = [item for item, _ in group]
                futures = [future for _, future in group]
                started = time.perf_counter()
                try:
                    results = await loop.run_in_executor(self._thread, self._write, items)
                except Exception as error:  # noqa: BLE001 - the writer must survive any error
                    self._log(error)
                    _fail(futures, error)
                else:
                    self._failed = ""
                    _resolve(futures, results)
                seconds = time.perf_counter() - started
        finally:
            self._loop = None
            _fail(
                [future for _, future in self._waiting],
                Unavailable("the service is stopping; retry with the same bytes"),
            )
            self._thread.shutdown(wait=False)


def _resolve(futures: list[asyncio.Future[_R]], results: list[_R]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():  # the client may have disconnected
            future.set_result(result)


def _fail(futures: list[asyncio.Future[_R]], error: Exception) -> None:
    """Fail a group; why a store or a folder of keys does not answer is for the operator's log."""
    shown: Exception = Unavailable("the database does not answer; retry with the same bytes")
    if isinstance(error, Full) or not isinstance(error, Unavailable):
        shown = (
            error
            if isinstance(error, Error | Problem)
            else Unavailable("the write failed; retry with the same bytes")
        )
    for future in futures:
        if not future.done():
            future.set_exception(shown)
