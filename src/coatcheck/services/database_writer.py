"""Group commit: everything that waits goes into one transaction, and is answered after it.

Knows neither what is written nor by whom. The queue is bounded: beyond it people are told to come
back, and whatever the store does, nobody waits for ever.
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

# HOUSE-DOC services.leadership: 'One leader per database: the process that holds the lease writes, the others stand by.'
_RENEWALS: Final = 3
"""How many times per lease it is asked for."""
Gained = Callable[[], Awaitable[None]]
_T = TypeVar("_T")


class Leadership:
    """The lease of one process, which it renews three times before the lease would end.

    *Guarantee:* the store takes writes under the token `fence`, or did so a moment ago. In the
    second case it refuses them.
    """

    def __init__(self, store: Store, *, seconds: float, gained: Gained) -> None:
        self._store = store
        self._seconds = seconds
        self._gained = gained
        self._holder = system().token(16).hex()
        self._until = 0.0
        self._prepared: int | None = None
        self.answers = False
        self._strange = 0
        self.failed: Callable[[str], None] = log.error
        # Its own: those that all share may all wait for a slow depot, for longer than a lease.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self._prepared is not None and time.monotonic() < self._until

    @property
    def fence(self) -> int:
        """The token for a write; refused while another process leads."""
        self.check()
        return self._prepared or 0  # lost at this moment: no store takes a write under 0

    def check(self) -> None:
        """Refuse unless this process leads."""
        if not self.leads:
            raise Unavailable("this process stands by: another one leads, or the store is away")

    async def run(self) -> None:
        """Take the lease, renew it, take it back when it was lost."""
        while True:
            await self.renew()
            await asyncio.sleep(self._seconds / _RENEWALS)

    async def renew(self) -> None:
        """Ask for the lease once."""
        begun = time.monotonic()
        try:
            lead = partial(self._store.lead, self._holder, seconds=self._seconds)
            fence = await self._asked(lead)
            self.answers = True
            if fence is None:
                self._prepared = None
                return
            if fence != self._prepared:
                # Whatever another leader did meanwhile is read before anything is answered.
                await self._gained()
                self._prepared = fence
            # Counted from before the question, so that this end comes before the store's.
            self._until = begun + self._seconds
        except Damaged as error:
            self.answers = False
            self.failed(str(error))
        except Misuse as error:
            self.answers, self._prepared, self._strange = False, None, self._strange + 1
            # A process that died leads for the rest of its lease: this is one that lives.
            if self._strange > _RENEWALS * 2:
                self.failed(str(error))
        except Error:
            self.answers = False
        except Exception as error:  # noqa: BLE001 - renewal must outlive whatever it is
            self.answers = False
            log.error("lead: a mistake of ours: %s", place_of(error))

    async def end(self) -> None:
        """Hand the lease back."""
        self._prepared = None
        with contextlib.suppress(Error):
            await self._asked(partial(self._store.resign, self._holder))
        self._thread.shutdown(wait=False)

    async def _asked(self, question: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)


_R = TypeVar("_R")
_LONGEST: Final = 0.005
"""The most seconds for which a group waits for others to join."""


class GroupCommit(Generic[_T, _R]):
    """A queue in front of one writer.

    *Guarantee:* what `add` gives has its result after the transaction that holds the item is
    durable.
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
        """How many wait."""
        return len(self._waiting)

    def add(self, item: _T) -> "asyncio.Future[_R]":
        """Have an item written; whoever waits for what is returned waits until it is."""
        if len(self._waiting) >= self._queue:
            raise Problem("busy", "too many wait for the disk already; send the same bytes again")
        # Which loop runs is known: to ask costs a call into the kernel, up to Python 3.11.
        future: asyncio.Future[_R] = (self._loop or asyncio.get_running_loop()).create_future()
        self._waiting.append((item, future))
        self._wake.set()
        return future

    async def apart(self, call: Callable[[], None]) -> None:
        """Make a call in the writer's thread, between two groups."""
        await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _log(self, error: Exception) -> None:
        """Tell the operator why nothing is written, once per reason."""
        why = str(error) if isinstance(error, Error) else place_of(error)
        if why != self._failed:
            log.warning("write: %s", why)
        self._failed = why

    async def run(self) -> None:
        """Write what waits, group by group; a failed one is told to those in it and to no other."""
        loop, took = asyncio.get_running_loop(), 0.0
        self._loop = loop
        try:
            while True:
                await self._wake.wait()
                # Half the time of a commit: whoever comes meanwhile joins, and a commit of many
                # costs little more than one of a few. (PostgreSQL's manual on commit_delay.)
                if len(self._waiting) < self._group:
                    await asyncio.sleep(min(took / 2, _LONGEST))
                group, self._waiting = self._waiting[: self._group], self._waiting[self._group :]
                if not self._waiting:
                    self._wake.clear()
                items = [item for item, _ in group]
                futures = [future for _, future in group]
                begun = time.perf_counter()
                try:
                    results = await loop.run_in_executor(self._thread, self._write, items)
                except Exception as error:  # noqa: BLE001 - the writer must outlive whatever it is
                    self._log(error)
                    _fail(futures, error)
                else:
                    self._failed = ""
                    _settle(futures, results)
                took = time.perf_counter() - begun
        finally:
            self._loop = None
            _fail([future for _, future in self._waiting], Unavailable("the service is ending"))
            self._thread.shutdown(wait=False)


def _settle(futures: list[asyncio.Future[_R]], results: list[_R]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():  # somebody may have hung up meanwhile
            future.set_result(result)


def _fail(futures: list[asyncio.Future[_R]], error: Exception) -> None:
    """Tell that a write failed; why a store or a folder of keys is away is for the operator."""
    told: Exception = Unavailable("the store is away: send the same bytes again later")
    if isinstance(error, Full) or not isinstance(error, Unavailable):
        told = error if isinstance(error, Error | Problem) else Unavailable("the write failed")
    for future in futures:
        if not future.done():
            future.set_exception(told)
