"""Everybody of a run settles with their candidates, each by letters of their own."""

import asyncio
from typing import TYPE_CHECKING, Final

from coatcheck.demo.events import Letter, Person
from coatcheck.protocol.keys import address_of
from coatcheck.services.person.settling import settle

if TYPE_CHECKING:
    from coatcheck.demo.run import Run

_LOOK: Final = 0.2


async def settle_all(run: "Run") -> None:
    """Let everybody settle at the same time; the letters are fetched once for all of them."""
    people = list(run.tickets)
    feed = run.visits[people[0]].all_letters()
    for who in people:
        run.visits[who].feed = feed
    try:
        async with asyncio.TaskGroup() as group:
            for who in people:
                group.create_task(_settle(run, who))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    run.posted = len(feed.postings)


async def _settle(run: "Run", who: Person) -> None:
    group, row = who
    place = run.scenario.values[group][row].tolist()
    words = run.scenario.lines[group]
    if run.round.terms.settle and run.round.terms.settle.asks:  # a partner; else all who are near
        words = ", ".join(f"{number:.5f}" for number in place) + f": {words}"
    side = await settle(run.visits[who], place, words=words, look=_LOOK)
    found, written = [], side.words
    for contact in side.partners:
        partner = run.person_at(address_of(run.round.suite, contact))
        text = written.get(contact, b"").decode(errors="replace")
        run.letters.append(Letter(partner, who, text))
        found.append(partner)
    run.settled[who] = found
    run.tell("settled", who=who)
