"""Ends: how a round ends, by when, in which numbers and in which words.

Every round has one signed heading on the board: answered, refused or abandoned. Everything here
can be checked without a key. SPEC section 9.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from coatcheck.errors import Malformed, Refused
from coatcheck.protocol.log.merkle import HASH_SIZE
from coatcheck.protocol.terms import Party, Round
from coatcheck.protocol.wire.bulletins import (
    ABANDONED,
    ANSWERED,
    REFUSED,
    SERVER,
    Bulletin,
    Heading,
    heading_size,
)
from coatcheck.protocol.wire.uploads import Tally

NO_REASON: Final = 0
FEW_REPORTS: Final = 1
FEW_TRAPS: Final = 2
TASK: Final = 3
LATE: Final = 4
OPERATOR: Final = 5
OUTCOMES: Final = {ANSWERED: "answered", REFUSED: "refused", ABANDONED: "abandoned"}
REASONS: Final = {
    ANSWERED: {NO_REASON},
    REFUSED: {FEW_REPORTS, TASK},
    ABANDONED: {FEW_REPORTS, FEW_TRAPS, LATE, OPERATOR},
}
"""The reasons that an outcome can have."""
_WORDS: Final = {
    FEW_REPORTS: "too few good reports were left to hide among",
    FEW_TRAPS: "too few traps came through, so somebody before it may have replaced reports",
    TASK: "its task could not answer these reports in time",
    LATE: "a batch was not handed on in time",
    OPERATOR: "its operator ended it",
}
PATIENCE: Final = 7 * 86_400
"""Seconds after a round's end was due for which a role tries to hand it to the board."""


def due(round_: Round, share: int) -> int:
    """Give the time by which so many shares of the grace are over.

    The shuffler at hop h, and after the last one the server, has its batch by `due(h)`.
    """
    return round_.terms.expires + round_.terms.grace * share // _shares(round_)


def answer_due(round_: Round) -> int:
    """Give the time by which the server has made its bulletin."""
    return due(round_, _shares(round_) - 1)


def end_due(round_: Round) -> int:
    """Give the time by which the board shows the round's end."""
    return due(round_, _shares(round_))


def _shares(round_: Round) -> int:
    return len(round_.terms.shufflers) + 2


def speaker(heading: Heading, round_: Round) -> Party:
    """Find who says how the round ended: the server, or a shuffler that gave it up."""
    if heading.who == SERVER:
        return round_.terms.server
    if heading.who >= len(round_.terms.shufflers):
        raise Malformed("this end is signed by a shuffler that the round does not have")
    return round_.terms.shufflers[heading.who]


def abandoned(round_: Round, *, reason: int, who: int) -> Bulletin:
    """Write the end of a round that is given up, still to be signed: it tells no numbers."""
    groups = round_.terms.groups
    tallies = [Tally(0) for _ in groups]
    none: list[list[bytes]] = [[] for _ in groups]
    roots = [bytes(HASH_SIZE)] * len(round_.terms.shufflers)
    counts = (tallies, roots)
    return Bulletin.compose(none, ABANDONED, round_.digest, *counts, reason=reason, who=who)


def unheard(round_: Round, *, sign: Callable[[bytes], bytes], reason: int = LATE) -> bytes:
    """Make the end of a round whose batch never came to the server, or was lost there."""
    return abandoned(round_, reason=reason, who=SERVER).signed(sign).encode()


def is_short(tallies: Sequence[Tally], round_: Round) -> bool:
    """Tell whether a group kept fewer than its minimum."""
    pairs = zip(tallies, round_.terms.groups, strict=True)
    return any(tally.kept < group.minimum for tally, group in pairs)


def flaw(heading: Heading, round_: Round) -> str:
    """Say which of its own numbers a heading breaks; empty if none."""
    if heading.reason not in REASONS[heading.outcome]:
        return "its outcome has another reason than such an outcome can have"
    if heading.outcome != ABANDONED and heading.who != SERVER:
        return "a shuffler says what only the server can"
    short = is_short(heading.tallies, round_)
    if heading.outcome == ANSWERED and short:
        return "it answers a group that kept fewer than its minimum"
    if heading.outcome == REFUSED and short != (heading.reason == FEW_REPORTS):
        return "its reason is not what its counts say"
    told = any(tally != Tally(0) for tally in heading.tallies) or any(map(any, heading.roots))
    if heading.outcome == ABANDONED and told:
        return "it tells counts of a round that was given up"
    return ""


def check_flawless(heading: Heading, round_: Round) -> None:
    """Refuse a heading that breaks its own numbers."""
    wrong = flaw(heading, round_)
    if wrong:
        raise Malformed(f"this heading breaks its own numbers: {wrong}")


def words(heading: Heading, round_: Round) -> str:
    """Tell in words how a round ended."""
    if heading.outcome == ANSWERED:
        return "the round is answered"
    role = "server" if heading.who == SERVER else "shuffler"
    name, outcome = speaker(heading, round_).name, OUTCOMES[heading.outcome]
    return f"the {role} {name!r} {outcome} the round: {_WORDS[heading.reason]}"


def still_due(round_: Round, *, now: int) -> str:
    """Say by when a round of which no end is seen must have one, or who owes it."""
    by = _time(end_due(round_))
    if now < end_due(round_):
        return f"the round has not ended, and must by {by}: your ticket waits"
    board = round_.terms.board.name
    return f"the round's end was due by {by}, and the board {board!r} owes you a look at it"


def check_owed(round_: Round, *, now: int) -> None:
    """Refuse to wait for an end that is overdue, and say who owes it."""
    if now < end_due(round_):
        return
    raise Refused(
        f"the board shows no signed end of this round, due by {_time(end_due(round_))}: the server"
        f" {round_.terms.server.name!r} owes it. Your ledger counts the round with its local ε"
        " until the end is there. Keep the ticket and what was signed for it, ask whoever runs the"
        " round, and try again later"
    )


def _time(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(second))


def is_outcome(raw: bytes, round_: Round) -> bool:
    """Tell whether bytes have the size of an end without entries."""
    return len(raw) == heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
