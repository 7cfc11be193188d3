"""The doors: how much one source address may take up, so that nobody keeps the others out.

A source is an IPv4 address, or an IPv6 network of 64 bits. Sources are in memory only, those of
connections while they are open and those of requests for some seconds. They are never written.
"""

import ipaddress
import time
from collections.abc import Callable, MutableMapping
from functools import lru_cache
from typing import Any, Final, Protocol

from coatcheck.errors import Misuse
from coatcheck.protocol.oblivious import GATEWAY_PATH
from coatcheck.services.http.problems import Problem
from coatcheck.services.settings import ProcessSettings

_BURST: Final = 10.0
"""Seconds whose requests may come at once."""
_RELAYED: Final = 20
"""A relay asks for many people: so many requests to the gateway count as one."""
_MANY: Final = 10_000
"""So many sources are remembered before those of which nothing is left to count are dropped."""


class Connection(Protocol):
    """What the doors need to know of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer on it: no request has come whole."""

    def turn_away(self) -> None:
        """Say that too many are here, and close."""


class Doors:
    """Counts connections and requests by source.

    *Guarantee:* while one source holds connections without asking anything, every other one gets
    in. A whole request is never dropped for a newcomer.
    """

    def __init__(
        self, settings: ProcessSettings, *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = settings.connections
        self._each = settings.connections_each
        self._pace = 1.0 / settings.requests_each
        self._header = settings.source_header.lower().encode()
        try:
            self._proxies = [ipaddress.ip_network(one) for one in settings.proxies]
        except ValueError as error:
            raise Misuse(f"`proxies` has addresses and networks: {error}") from None
        self._inside: dict[str, dict[Connection, None]] = {}
        self._sources: dict[Connection, str] = {}
        self._due: dict[str, float] = {}
        self._steady = steady
        self._found = lru_cache(maxsize=4096)(self._find)

    def enter(self, one: Connection, host: str) -> None:
        """Let a connection in; if there are too many, the oldest idle one of its source goes.

        If there are too many in all, it is one of the source that has most.
        """
        source, is_proxy = self._found(host)
        mine = self._inside.setdefault(source, {})
        mine[one] = None
        self._sources[one] = source
        if len(self._sources) > self._most:
            mine = max(self._inside.values(), key=len)
        elif len(mine) <= self._each or is_proxy:
            return
        # A newcomer has not asked yet either, and is the last in line.
        going = next((other for other in mine if other.is_idle), one)
        self.leave(going)
        going.turn_away()

    def leave(self, one: Connection) -> None:
        """Forget a connection that ended."""
        source = self._sources.pop(one, None)
        if source is not None:
            del self._inside[source][one]
            if not self._inside[source]:
                del self._inside[source]

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Refuse a request that changes something if its source asked for too many of late."""
        client = scope.get("client")
        if client is None:
            return  # from a gateway: the relay knows who it was, and nobody here does
        source, is_proxy = self._found(client[0])
        if is_proxy:
            told = [value for name, value in scope["headers"] if name == self._header]
            if not told:
                return
            # The proxy adds the last one; what stands before it anybody may have written.
            source, _ = self._found(told[-1].rpartition(b",")[2].strip().decode("latin-1"))
        now = self._steady()
        share = _RELAYED if scope["path"] == GATEWAY_PATH else 1
        due = max(self._due.get(source, 0.0), now) + self._pace / share
        if due - now > _BURST:
            raise Problem("busy", "too many requests came from your network address")
        self._due[source] = due
        if len(self._due) > _MANY:
            self._due = {source: due for source, due in self._due.items() if due > now}

    def _find(self, host: str) -> tuple[str, bool]:
        """Give the source of a host, and whether many people come through it."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host[:64], False
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        is_proxy = any(address in network for network in self._proxies)
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.IPv6Network((address, 64), strict=False)), is_proxy
        return str(address), is_proxy
