"""A person's side for plain programs: join, collect, write and read, the same verbs as in memory.

Each call is one `Visit`, run to its end; programs with an event loop use `Visit` itself. With
`ca`, a file of certificates is trusted instead of the system's.
SPEC section 12.
"""

import asyncio
from pathlib import Path
from typing import Any

from coatcheck.protocol.client import Budget, Inbox, Limit
from coatcheck.protocol.messages import Answer
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.trust import Trust
from coatcheck.services.person.visit import Offer, Visit

__all__ = ["Offer", "Visit", "collect", "join", "read", "write"]


def join(
    url: str,
    value: Any,
    *,
    ticket: Path,
    group: str,
    trusted: Trust,
    limit: Limit,
    ledger: Budget | None,
    token: str = "",
    ca: str = "",
) -> Ticket:
    """Take part in a round from a plain program."""

    async def whole() -> Ticket:
        async with Visit(url, path=ticket, trusted=trusted, ca=ca) as visit:
            return await visit.join(value, group=group, limit=limit, ledger=ledger, token=token)

    return asyncio.run(whole())


def collect(
    url: str, *, ticket: Path, trusted: Trust, patience: float = 600.0, ca: str = ""
) -> Answer:
    """Wait for the answer from a plain program."""

    async def whole() -> Answer:
        async with Visit(url, path=ticket, trusted=trusted, ca=ca) as visit:
            return await visit.collect(patience=patience)

    return asyncio.run(whole())


def write(url: str, body: bytes, *, to: bytes, ticket: Path, trusted: Trust, ca: str = "") -> None:
    """Write a letter from a plain program."""

    async def whole() -> None:
        async with Visit(url, path=ticket, trusted=trusted, ca=ca) as visit:
            await visit.write(body, to=to)

    asyncio.run(whole())


def read(url: str, *, ticket: Path, trusted: Trust, ca: str = "") -> Inbox:
    """Read one's letters from a plain program."""

    async def whole() -> Inbox:
        async with Visit(url, path=ticket, trusted=trusted, ca=ca) as visit:
            return await visit.read()

    return asyncio.run(whole())
