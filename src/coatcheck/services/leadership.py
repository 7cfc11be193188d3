"""One leader per database: the process that holds the lease writes, the others stand by."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from coatcheck.entropy import system
from coatcheck.errors import Damaged, Error, Misuse, Unavailable
from coatcheck.services.log import log, place_of
from coatcheck.stores.store import Store

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
