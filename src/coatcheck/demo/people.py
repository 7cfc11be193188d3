"""Some people of a run, each a client of their own: they join, collect, settle, write and read.

Each one is a `Visit`, the client that ships: it examines the terms with its own arithmetic, joins
with system randomness, keeps its ticket in a file, uploads, waits, collects, checks the board and
writes. What came of an errand is told as plain data, so that it may come from another process.
"""

import asyncio
from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from coatcheck.demo.events import Done, Invited, Person
from coatcheck.demo.household import Door, Household
from coatcheck.randomizers import Randomizer
from coatcheck.services.cluster import PATIENCE
from coatcheck.services.person.feeds import LettersFeed
from coatcheck.services.person.settling import settle
from coatcheck.services.person.visit import Visit

if TYPE_CHECKING:
    from coatcheck.protocol.messages import Answer

_LOOK: Final = 0.1


class Noting:
    """A person's randomizer that remembers the one report it gave, for the page to show."""

    def __init__(self, inner: Randomizer) -> None:
        self._inner = inner
        self.report: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def randomize(self, values: Any, entropy: Any, *, clamp: bool = False) -> Any:
        """Randomize as the inner one does."""
        reports = self._inner.randomize(values, entropy, clamp=clamp)
        self.report = [int(number) for number in reports[0]]
        return reports


class People:
    """People of one round on this process."""

    def __init__(self, invited: Invited) -> None:
        self._invited = invited
        self._door = Door()
        first, trusted = invited.url, invited.trusted
        self.through = Household(invited.relay, first=first, trusted=trusted, door=self._door)
        self._visits = {who: self._visit(who) for who in invited.values}
        self._busy: dict[Person, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[Person, Answer] = {}

    def _visit(self, who: Person) -> Visit:
        name = f"{self._invited.names[who[0]]}-{who[1]}.ticket"
        path, trusted = self._invited.homes / name, self._invited.trusted
        return Visit(self._invited.url, path=path, trusted=trusted, peers=self.through)

    async def close(self) -> None:
        """Close the connections."""
        await self._door.close()

    async def join(self, who: Person) -> Done:
        """Let a person take part."""
        visit, name = self._visits[who], self._invited.names[who[0]]
        limit = self._invited.limit
        invitation = await visit.invitation(group=name, limit=limit, patience=PATIENCE)
        noting = Noting(invitation.randomizer)
        mine = replace(invitation, randomizer=cast("Randomizer", noting))
        value = self._invited.values[who]
        await asyncio.to_thread(visit.prepare, mine, value, ledger=None, clamp=True)
        ticket = await visit.hand_in(invitation.round, patience=PATIENCE)
        return Done(who, ticket=ticket, guarantee=invitation.guarantee, report=noting.report)

    async def collect(self, who: Person) -> Done:
        """Let a person fetch the whole bulletin, check it and open their own entry."""
        answer = await self._visits[who].collect(patience=PATIENCE)
        self._answers[who] = answer
        return Done(who, answer=answer)

    @cached_property
    def _all_letters(self) -> LettersFeed:
        """The letters of the round, fetched once for everybody here."""
        return next(iter(self._visits.values())).all_letters()

    async def settle(self, who: Person) -> Done:
        """Let a person settle with their candidates, by letters of their own."""
        visit, place = self._visits[who], self._invited.values[who]
        visit.feed = self._all_letters
        words, terms = self._invited.lines[who[0]], visit.round.terms.settle
        if terms and terms.asks:  # a partner; else all who are near
            words = ", ".join(f"{number:.5f}" for number in place) + f": {words}"
        side = await settle(visit, place, words=words, look=_LOOK)
        written = side.words
        letters = ((one, _text(written.get(one, b""))) for one in side.partners)
        posted = len(self._all_letters.postings)
        return Done(who, partners=side.partners, letters=tuple(letters), posted=posted)

    async def write(self, who: Person) -> Done:
        """Let a person write to their nearest partner."""
        to = self._answers[who].partners[0].contact
        async with self._busy[who]:
            await self._visits[who].write(self._invited.lines[0].encode(), to=to)
        return Done(who, posted=1)

    async def read(self, who: Person) -> Done:
        """Let a person read what has come, and reply to all that is no reply itself."""
        visit, (_, reply) = self._visits[who], self._invited.lines
        read, posted = [], 0
        async with self._busy[who]:
            for letter in (await visit.read()).letters:
                body = _text(letter.body)
                # Not to a reply: two people would write to each other for ever.
                if body != reply:
                    await visit.write(reply.encode(), to=letter.sender.raw)
                    posted += 1
                read.append((letter.sender.raw, body))
        return Done(who, letters=tuple(read), posted=posted)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
