"""Settling over the network: a person's candidates, the board's letters, and the clock.

Every step is stored in the ticket before it is posted, so that a crash sends the same letters
again. Nobody is waited for longer than the terms say. SPEC section 15.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol import candidates
from coatcheck.protocol.candidates import Candidates
from coatcheck.protocol.steps import NOTICES, Kind
from coatcheck.services.person.windows import STEP, linger

if TYPE_CHECKING:  # types only: whoever settles has a visit already
    from coatcheck.services.person.visit import Visit

_LOOKS: Final = 20  # so many times per pause a person looks for letters


async def settle(
    visit: "Visit",
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
    visit: "Visit", side: Candidates, *, pause: float, look: float, patience: float
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


async def _hear(visit: "Visit", side: Candidates) -> None:
    feed = visit.feed
    await feed.update(side.addresses)
    side.hear(feed.to(side.addresses, since=side.machine.progress.read), read=feed.read)


async def _post(visit: "Visit", side: Candidates, patience: float) -> None:
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
