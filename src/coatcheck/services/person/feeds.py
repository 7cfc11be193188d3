"""Letters as a person fetches them: all of the round, or through a relay those to a few addresses.

Fetched directly, a part of the letters shows whose they are. Knows public things only. SPEC
sections 9 and 17.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from coatcheck.errors import Refused
from coatcheck.protocol.notices import RECIPIENT
from coatcheck.protocol.records import read_document
from coatcheck.services.board.documents import MORE, NUMBERS, RoundStatus
from coatcheck.services.http.client import BULK
from coatcheck.services.person.board import Peers
from coatcheck.services.person.relayed import RelayedClient

_NUMBER: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


class LettersFeed:
    """The letters of a round as the board shows them, each fetched once.

    Everybody fetches all of them, so that nobody tells whose are theirs. Several people on one
    machine may share a feed.
    """

    def __init__(self, url: str, *, size: int, peers: Peers) -> None:
        self.url, self.size = url, size
        self.postings: list[bytes] = []
        self._to: dict[bytes, list[int]] = {}
        self._peers = peers
        self._busy = asyncio.Lock()
        self._begun = self._fetched = 0  # fetches are numbered as they begin

    @property
    def read(self) -> int:
        """How many letters of the round were read."""
        return len(self.postings)

    async def update(self, addresses: Sequence[bytes] = ()) -> None:
        """Fetch what is new, page by page, whoever it is for; an empty page is the last."""
        del addresses
        asked = self._begun
        async with self._busy:
            if self._fetched > asked:
                return  # begun by somebody else since, so it has what this one asks for
            self._begun = number = self._begun + 1
            while raw := await self._peers.get(f"{self.url}?since={len(self.postings)}"):
                for at in range(0, len(raw), self.size):
                    posting = raw[at : at + self.size]
                    self._to.setdefault(posting[RECIPIENT], []).append(len(self.postings))
                    self.postings.append(posting)
                if len(self.postings) * self.size > BULK:
                    raise Refused(
                        f"{self.url} does not end: more letters than {BULK} bytes are not read"
                    )
            self._fetched = number

    def to(self, addresses: Iterable[bytes], *, since: int) -> list[bytes]:
        """Give the letters to these addresses from a place on, in the order of the board."""
        places = (self._to.get(address, []) for address in addresses)
        found = (at for those in places for at in those[bisect_left(those, since) :])
        return [self.postings[at] for at in sorted(found)]


class OwnFeed:
    """The letters to a few addresses, in pages of one size, through a relay.

    The board says how many letters the round has, and then only those are asked for, so all
    addresses are read up to the same place of the log.

    Attributes:
        read: how many letters of the round were read, or passed over as they are for others.
    """

    def __init__(self, url: str, *, size: int, peers: RelayedClient) -> None:
        self.url, self.size = url, size
        self.read = 0
        self._ends: dict[bytes, int] = {}
        self._to: dict[bytes, list[tuple[int, bytes]]] = {}
        self._peers = peers

    async def update(self, addresses: Sequence[bytes] = ()) -> None:
        """Fetch what is new for these addresses."""
        wrong = f"{self.url} does not say how many letters it has"
        end = read_document(await self._peers.get(self.url), RoundStatus, wrong).letters
        if not 0 <= end <= BULK // self.size:
            raise Refused(f"{self.url} has {end} letters: more than {BULK} bytes are not read")
        for address in addresses:
            while self._ends.get(address) != end and await self._page(address, end):
                pass
            self._ends[address] = end
        self.read = end

    async def _page(self, address: bytes, end: int) -> bool:
        """Fetch one page; tell whether there are more."""
        known = self._to.setdefault(address, [])
        asked = f"{self.url}/letters/{address.hex()}?since={len(known)}&until={end}"
        raw, told = await self._peers.page(asked)
        numbers = [int(one) for one in told.get(NUMBERS, "").split(",") if _NUMBER.fullmatch(one)]
        pieces = [raw[at : at + self.size] for at in range(0, len(raw), self.size)]
        fresh = list(zip(numbers, pieces, strict=False))
        places = [number for number, _ in known[-1:] + fresh]
        good = all(piece[RECIPIENT] == address for piece in pieces) and len(raw) % self.size == 0
        good &= len(numbers) == len(pieces) and all(number < end for number in numbers)
        if not good or places != sorted(set(places)):
            raise Refused("the board gives other letters than were asked for: do not rely on it")
        known += fresh
        return told.get(MORE) == "yes" and bool(fresh)

    def to(self, addresses: Iterable[bytes], *, since: int) -> list[bytes]:
        """Give the letters to these addresses from a number on, in the order of the board."""
        found = chain.from_iterable(self._to.get(address, []) for address in addresses)
        return [raw for number, raw in sorted(found) if since <= number < self.read]


Feed = LettersFeed | OwnFeed
