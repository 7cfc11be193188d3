"""A person's letters: their sources on the board, and settling by letter.

Without a relay a person fetches all letters of the round, because a request for some of them would
show whose they are. Through a relay, a person fetches only those to a few addresses. `settle`
drives a person's side of settling with these letters and the clock. SPEC sections 9 and 15, S17.26.
"""

import asyncio
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final, Protocol

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import TrustedTerms
from coatcheck.protocol.settling import candidates
from coatcheck.protocol.settling.candidates import Candidates
from coatcheck.protocol.settling.rules import NOTICES, Kind, words_room
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import RECIPIENT, Heading
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.protocol.wire.messages import Answer
from coatcheck.services.documents import MORE, NUMBERS, BoardRoundStatus
from coatcheck.services.person.board_view import Peers
from coatcheck.services.person.relay_client import RelayedClient, wait_random
from coatcheck.services.web.client import BULK

_NUMBER: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


class RoundLetters:
    """All letters of a round, each fetched once; several people on one machine may share them."""

    def __init__(self, url: str, *, size: int, peers: Peers) -> None:
        self.url, self.size = url, size
        self.postings: list[bytes] = []
        self._places: dict[bytes, list[int]] = {}
        self._peers = peers
        self._busy = asyncio.Lock()
        self._begun = self._fetched = 0  # fetches are numbered as they begin

    @property
    def read(self) -> int:
        """The number of letters of the round that were fetched."""
        return len(self.postings)

    async def update(self, addresses: Sequence[bytes] = ()) -> None:
        """Fetch new letters page by page, to whichever address; an empty page is the last."""
        del addresses
        begun = self._begun
        async with self._busy:
            if self._fetched > begun:
                return  # another caller has fetched since, and got everything that this one needs
            self._begun = number = self._begun + 1
            while raw := await self._peers.get(f"{self.url}?since={len(self.postings)}"):
                for at in range(0, len(raw), self.size):
                    posting = raw[at : at + self.size]
                    self._places.setdefault(posting[RECIPIENT], []).append(len(self.postings))
                    self.postings.append(posting)
                if len(self.postings) * self.size > BULK:
                    raise Refused(
                        f"{self.url} has letters of more than {BULK} bytes; do not rely on this"
                        " board"
                    )
            self._fetched = number

    def to(self, addresses: Iterable[bytes], *, since: int) -> list[bytes]:
        """Return the letters to these addresses from a number on, in the order of the board."""
        lists = (self._places.get(address, []) for address in addresses)
        places = (at for listed in lists for at in listed[bisect_left(listed, since) :])
        return [self.postings[at] for at in sorted(places)]


class OwnLetters:
    """The letters to a few addresses, fetched through a relay in pages of one size.

    The board first says how many letters the round has, and pages are requested up to that number,
    so that all addresses are read up to the same place of the log.

    Attributes:
        read: the number of letters of the round that were fetched, or skipped as others'.
    """

    def __init__(self, url: str, *, size: int, peers: RelayedClient) -> None:
        self.url, self.size = url, size
        self.read = 0
        self._ends: dict[bytes, int] = {}
        self._letters: dict[bytes, list[tuple[int, bytes]]] = {}
        self._peers = peers

    async def update(self, addresses: Sequence[bytes] = ()) -> None:
        """Fetch new letters to these addresses."""
        wrong = f"{self.url} does not say how many letters it has"
        end = read_document(await self._peers.get(self.url), BoardRoundStatus, wrong).letters
        if not 0 <= end <= BULK // self.size:
            raise Refused(
                f"{self.url} claims {end} letters, but at most {BULK // self.size} are read; do not"
                " rely on this board"
            )
        for address in addresses:
            while self._ends.get(address) != end and await self._fetch_page(address, end):
                pass
            self._ends[address] = end
        self.read = end

    async def _fetch_page(self, address: bytes, end: int) -> bool:
        """Fetch and check one page; return whether there are more."""
        letters = self._letters.setdefault(address, [])
        url = f"{self.url}/letters/{address.hex()}?since={len(letters)}&until={end}"
        raw, headers = await self._peers.page(url)
        listed = headers.get(NUMBERS, "").split(",")
        numbers = [int(number) for number in listed if _NUMBER.fullmatch(number)]
        pieces = [raw[at : at + self.size] for at in range(0, len(raw), self.size)]
        fresh = list(zip(numbers, pieces, strict=False))
        places = [number for number, _ in letters[-1:] + fresh]
        is_valid = (
            all(piece[RECIPIENT] == address for piece in pieces) and len(raw) % self.size == 0
        )
        is_valid &= len(numbers) == len(pieces) and all(number < end for number in numbers)
        if not is_valid or places != sorted(set(places)):
            raise Refused(
                "the board returned other letters than were requested; do not rely on this board"
            )
        letters += fresh
        return headers.get(MORE) == "yes" and bool(fresh)

    def to(self, addresses: Iterable[bytes], *, since: int) -> list[bytes]:
        """Return the letters to these addresses from a number on, in the order of the board."""
        letters = chain.from_iterable(self._letters.get(address, []) for address in addresses)
        return [raw for number, raw in sorted(letters) if since <= number < self.read]


LetterSource = RoundLetters | OwnLetters


# -- settling

_REQUESTS_PER_PAUSE: Final = 20
"""The least number of requests for letters within a pause of the terms."""


class Correspondent(Protocol):
    """The part of a `Session` that settling uses for one address.

    The sending methods are those of the person; ticket and letters are those of the address.
    """

    @property
    def ticket(self) -> Ticket:
        """The ticket, as it is stored."""

    @property
    def round(self) -> TrustedTerms:
        """The terms of the round."""

    @property
    def letter_source(self) -> LetterSource:
        """The source of letters."""

    @property
    def window(self) -> int:
        """The seconds within which the times of requests are drawn; 0 without a relay."""

    def keep(self, ticket: Ticket) -> None:
        """Store the letters of the ticket."""

    async def post(self, stamped: Sequence[bytes], *, patience: float = 60.0) -> int:
        """Post letters; return the place of the first one."""

    async def check_posted(self, placed: Sequence[tuple[int, bytes]], *, patience: float) -> None:
        """Check that the board's log has letters, each at its place."""

    def pause(self, due: float) -> float:
        """Return how long to wait before the next request."""


class Settler(Correspondent, Protocol):
    """The part of a `Session` that settling uses: it corresponds for the report's address."""

    @property
    def decoy_answers(self) -> Sequence[Answer | None]:
        """The answers to the decoys, once the answer is there; None for one not on the board."""

    async def outcome(self, *, patience: float) -> tuple[Answer, Heading]:
        """Return the answer and the bulletin's signed heading."""

    def for_decoys(self) -> Sequence[Correspondent]:
        """Return who corresponds for each decoy's address."""


async def settle(
    session: Settler,
    place: Sequence[float] | None,
    *,
    axes: int = 0,
    words: str = "",
    patience: float = 600.0,
    look: float = 1.0,
) -> Candidates:
    """Settle with the candidates of the answer, or continue after a crash.

    Each step is stored in the ticket before it is posted, so that a crash sends the same letters
    again. Each step waits for candidates no longer than the terms say. The person's decoys settle
    meanwhile, as addresses of nobody: otherwise their silence would show which address is that of
    the report.

    Args:
        session: a person's session in a round; its answer may not be there yet.
        place: where the person is; candidates get only the ring in which they are of each other.
            Without one the person settles with nobody, and writes the same letters, without words.
        axes: the number of numbers of a place, if there is none.
        words: what partners get at the end, for example a place to meet; nothing unless stated.
        patience: seconds to wait for the bulletin, and for a board that does not answer.
        look: seconds between two requests for letters; they come at least twenty times per pause.
    """
    answer, heading = await session.outcome(patience=patience)
    round_, text = session.round, words.encode()
    terms = candidates.settle_terms(round_)
    if len(text) > (most := words_room(round_.terms.letter_size)):
        raise Misuse(f"`words` may have at most {most} bytes in this round, got {len(text)}")
    if place is None and text:
        raise Misuse(
            "nobody gets `words` from an address of nobody: give a place, or leave them out"
        )
    decoys = list(zip(session.for_decoys(), session.decoy_answers, strict=True))
    # At random times, or the order of the log would show which addresses are one person's (S15.32).
    settle_one = partial(
        _settle,
        sizes=heading.sizes,
        axes=axes if place is None else len(place),
        spread=terms.posting_seconds if session.window or decoys else 0.0,
        patience=patience,
        look=look,
    )
    try:
        async with asyncio.TaskGroup() as group:
            own = group.create_task(settle_one(session, answer, place, text))
            for decoy, shown in decoys:
                if shown is not None:  # an address that is not on the board gets no letters
                    group.create_task(settle_one(decoy, shown, None, b""))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return own.result()


async def _settle(
    session: Correspondent,
    answer: Answer,
    place: Sequence[float] | None,
    text: bytes,
    *,
    sizes: Sequence[int],
    axes: int,
    spread: float,
    patience: float,
    look: float,
) -> Candidates:
    """Settle for one address; without a place nobody is there.

    Letters are posted at random times within `spread` seconds.
    """
    round_ = session.round
    pause = candidates.settle_terms(round_).pause
    ticket = candidates.begin(session.ticket, place, round_=round_, now=time.time(), axes=axes)
    await asyncio.to_thread(session.keep, ticket)
    side = Candidates(ticket, answer, round_=round_, sizes=sizes)
    progress, look = side.machine.progress, min(look, pause / _REQUESTS_PER_PAUSE)
    if progress.outbox:  # letters of the last step, if a crash came before they were posted
        await wait_random(spread)
        await _post(session, side, patience)
    while not side.machine.done:
        await _wait(session, side, pause=pause, look=look, patience=patience)
        if progress.placed and side.machine.steps[progress.step].kind is Kind.WORDS:
            await session.check_posted(progress.placed, patience=patience)
        if side.speak(text):
            await asyncio.to_thread(session.keep, side.ticket)  # a slow disk must not block others
            await wait_random(spread)
            await _post(session, side, patience)
    end = progress.begun + (len(side.machine.steps) + 1) * pause
    while not side.machine.complete and time.time() < end:
        await asyncio.sleep(min(session.pause(look), pause))
        await _hear(session, side)
    await asyncio.to_thread(session.keep, side.ticket)
    return side


async def _wait(
    session: Correspondent, side: Candidates, *, pause: float, look: float, patience: float
) -> None:
    """Wait until the next step may begin; fail if the board does not answer for `patience` seconds.

    Fail also if the board took the person's own notice but does not show it: no candidate may
    continue before it does (S15.21).
    """
    progress, now = side.machine.progress, time.time()
    end, offline_deadline = progress.begun + progress.step * pause, now + patience
    hidden_deadline = max(now, end) + patience
    while True:
        try:
            await _hear(session, side)
            offline_deadline = time.time() + patience
        except Unavailable:
            if time.time() > offline_deadline:
                raise
        if side.machine.ready(late=time.time() >= end):
            return
        if time.time() > hidden_deadline:
            raise Unavailable(
                "the board accepted your letter and does not show it, so no candidate can see it;"
                " try later with the same ticket, or ask its operator"
            )
        await asyncio.sleep(min(session.pause(look), pause))


async def _hear(session: Correspondent, side: Candidates) -> None:
    """Fetch the candidates' letters and pass them to the state machine."""
    source = session.letter_source
    await source.update(side.addresses)
    side.hear(source.to(side.addresses, since=side.machine.progress.read), read=source.read)


async def _post(session: Correspondent, side: Candidates, patience: float) -> None:
    """Post the letters of the step; store a notice's place in the log, to verify it later."""
    progress = side.machine.progress
    if not progress.outbox:
        return
    stamped = [side.stamped(posting) for posting in progress.outbox]
    is_notice = side.machine.steps[progress.step - 1].kind in NOTICES
    try:
        place = await session.post(stamped, patience=patience)
    except Refused:
        if is_notice:
            raise
        # A candidate whose address has reached its limit costs only the letter to that candidate.
        for letter in stamped if len(stamped) > 1 else ():
            with suppress(Refused):
                await session.post([letter], patience=patience)
        return
    if is_notice and progress.step > 1:  # of the points, S15.22 needs no proof
        progress.keep_place(place, progress.outbox[0])
