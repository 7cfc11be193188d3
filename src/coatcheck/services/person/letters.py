"""Letters as a person fetches them: all of the round, or through a relay those to a few addresses.

Fetched directly, a part of the letters shows whose they are. Knows public things only. SPEC
sections 9 and 17.
"""

import asyncio
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.settling import candidates
from coatcheck.protocol.settling.candidates import Candidates
from coatcheck.protocol.settling.rules import NOTICES, Kind
from coatcheck.protocol.wire.bulletins import RECIPIENT
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services.documents import MORE, NUMBERS, BoardRoundStatus
from coatcheck.services.person.board_view import Peers
from coatcheck.services.person.relay_client import STEP, RelayedClient, linger
from coatcheck.services.web.client import BULK

if TYPE_CHECKING:
    from coatcheck.services.person.session import Session

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
        end = read_document(await self._peers.get(self.url), BoardRoundStatus, wrong).letters
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

# HOUSE-DOC services.person.settling: "Settling over the network: a person's candidates, the board's letters, and the clock.\n\nEvery step is stored in the ticket before it is posted, so that a crash sends the same letters\nagain. Nobody is waited for longer than the terms say. SPEC section 15.\n"
_LOOKS: Final = 20  # so many times per pause a person looks for letters


async def settle(
    visit: "Session",
    place: Sequence[float],
    *,
    words: str = "",
    patience: float = 600.0,
    look: float = 1.0,
) -> Candidates:
    """Settle with the candidates of one's answer, or go on after a crash.

    Args:
        visit: a person's part in a round; the answer may be still to come.
        place: where the person is; candidates are told the cell, and only the partner more.
        words: what the partner is told at the end, the exact place say.
        patience: for how many seconds to wait for the bulletin, and for a board that is away.
        look: after how many seconds to look for letters again; at least twenty times per pause.
    """
    answer, heading = await visit.outcome(patience=patience)
    round_, text = visit.round, words.encode()
    pause = candidates.settle_terms(round_).pause
    if len(text) + 2 > round_.terms.letter_size:
        room = round_.terms.letter_size - 2
        raise Misuse(f"words of this round have at most {room} bytes, these have {len(text)}")
    ticket = candidates.begin(visit.ticket, place, round_=round_, now=time.time())
    await asyncio.to_thread(visit.keep, ticket)
    side = Candidates(ticket, answer, round_=round_, sizes=heading.sizes)
    progress, look = side.machine.progress, min(look, pause / _LOOKS)
    await _post(visit, side, patience)  # what a crash may have kept from leaving
    while not side.machine.done:
        await _wait(visit, side, pause=pause, look=look, patience=patience)
        if progress.placed and side.machine.steps[progress.step].kind is Kind.WORDS:
            await visit.check_posted(progress.placed, patience=patience)
        if side.speak(text):
            await asyncio.to_thread(visit.keep, side.ticket)  # the disk must not stop others
            await linger(STEP * pause if visit.window else 0)
            await _post(visit, side, patience)
    end = progress.begun + (len(side.machine.steps) + 1) * pause
    while len(side.words) < len(side.partners) and time.time() < end:
        await asyncio.sleep(min(visit.pause(look), pause))
        await _hear(visit, side)
    await asyncio.to_thread(visit.keep, side.ticket)
    return side


async def _wait(
    visit: "Session", side: Candidates, *, pause: float, look: float, patience: float
) -> None:
    """Wait until the next step may begin; a board that is away is asked again for a while.

    So is one that took the person's own notice and does not show it: without it nobody may go on.
    """
    progress, now = side.machine.progress, time.time()
    end, away = progress.begun + progress.step * pause, now + patience
    hidden = max(now, end) + patience
    while True:
        try:
            await _hear(visit, side)
            away = time.time() + patience
        except Unavailable:
            if time.time() > away:
                raise
        if side.machine.ready(late=time.time() >= end):
            return
        if time.time() > hidden:
            raise Unavailable(
                "the board took what you wrote and does not show it, so nobody can know of it: try"
                " later with the same ticket, or ask its operator"
            )
        await asyncio.sleep(min(visit.pause(look), pause))


async def _hear(visit: "Session", side: Candidates) -> None:
    feed = visit.feed
    await feed.update(side.addresses)
    side.hear(feed.to(side.addresses, since=side.machine.progress.read), read=feed.read)


async def _post(visit: "Session", side: Candidates, patience: float) -> None:
    """Post the letters of the step; where a notice is in the log is kept, to be proven."""
    progress = side.machine.progress
    if not progress.outbox:
        return
    stamped = [side.stamped(posting) for posting in progress.outbox]
    is_notice = side.machine.steps[progress.step - 1].kind in NOTICES
    try:
        place = await visit.post(stamped, patience=patience)
    except Refused:
        if is_notice:
            raise
        # A candidate whose mailbox somebody filled costs the letter to that candidate alone.
        for one in stamped if len(stamped) > 1 else ():
            with suppress(Refused):
                await visit.post([one], patience=patience)
        return
    if is_notice:
        progress.keep_place(place, progress.outbox[0])
