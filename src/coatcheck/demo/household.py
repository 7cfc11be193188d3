"""The people of a demo as one household: what everybody may see is fetched once, each checks it.

Four hundred clients on one machine would fetch the same terms, checkpoints, proofs and boards four
hundred times. Here they share the copy, as a household shares a newspaper: every client checks its
signatures and proofs as if it had come alone. What one of them sends, and what is for one of them
alone, goes as its own sealed request. A person elsewhere has `RelayedClient`, which shares nothing.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import DOCUMENT, Answered
from coatcheck.services.http.origins import origin_of
from coatcheck.services.person.relayed import RelayedClient
from coatcheck.services.relay.pipes import Pipes

_FRESH: Final = 0.5
"""Seconds for which a copy is as good as a fetch."""
_CONNECTIONS: Final = 16


class Household(RelayedClient):
    """Asks roles through a relay, for everybody of a demo.

    *Guarantee:* only documents that are the same for whoever asks are shared.
    """

    def __init__(self, relay: str, *, first: str, trusted: Trust, door: "Door") -> None:
        super().__init__(relay, first=first, trusted=trusted, http=door)
        self._copies: dict[str, tuple[float, asyncio.Task[bytes]]] = {}

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document, or take the copy that somebody fetched a moment ago."""
        if "/letters?" in url:  # these grow all the time, and each feed fetches them once
            return await super().get(url, most=most)
        begun, copy = self._copies.get(url, (0.0, None))
        if copy is None or time.monotonic() - begun > _FRESH or _failed(copy):
            copy = asyncio.ensure_future(super().get(url, most=most))
            self._copies[url] = time.monotonic(), copy
        return await asyncio.shield(copy)


def _failed(copy: "asyncio.Task[bytes]") -> bool:
    return copy.done() and (copy.cancelled() or copy.exception() is not None)


class Door:
    """The way out of the household: a few lean connections on this machine."""

    def __init__(self) -> None:
        self._pipes = Pipes()
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> Answered:
        """Ask once; a refusal is an answer, too."""
        del most  # a pipe has a limit of its own
        origin = origin_of(url)
        async with self._turns:
            path = url[len(origin.url) :] or "/"
            return await self._pipes.exchange(method, origin, path, body, headers=headers or {})

    async def close(self) -> None:
        """Close the connections."""
        await self._pipes.close()
