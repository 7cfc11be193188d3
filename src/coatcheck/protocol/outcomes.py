"""How a round ends: outcomes, reasons, deadlines, consistency, and the text that people see.

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
"""The reasons that each outcome can have."""
_REASON_TEXTS: Final = {
    FEW_REPORTS: "too few valid reports were left",
    FEW_TRAPS: "too few traps arrived, so an earlier shuffler may have replaced reports",
    TASK: "its task could not compute answers in time",
    LATE: "a batch was not delivered in time",
    OPERATOR: "its operator ended it",
}
PATIENCE: Final = 7 * 86_400
"""Seconds after an outcome was due for which a role still tries to deliver it (S10.52)."""


def due(round_: Round, share: int) -> int:
    """Return the time when `share` shares of the grace are over (S9.10).

    The shuffler at hop h, and after the last one the server, has its batch by `due(h)`.
    """
    return round_.terms.expires + round_.terms.grace * share // _shares(round_)


def answer_due(round_: Round) -> int:
    """Return the time by which the server must have made its bulletin."""
    return due(round_, _shares(round_) - 1)


def outcome_due(round_: Round) -> int:
    """Return the time by which the board must show the round's outcome."""
    return due(round_, _shares(round_))


def _shares(round_: Round) -> int:
    return len(round_.terms.shufflers) + 2


def signer_of(heading: Heading, round_: Round) -> Party:
    """Return the party that signed an outcome: the server, or a shuffler that abandoned it."""
    if heading.signer == SERVER:
        return round_.terms.server
    if heading.signer >= len(round_.terms.shufflers):
        raise Malformed("the signer of this outcome is a shuffler that the round does not have")
    return round_.terms.shufflers[heading.signer]


def abandonment(round_: Round, *, reason: int, signer: int) -> Bulletin:
    """Write the outcome of an abandoned round, still to be signed; it has no counts."""
    groups = round_.terms.groups
    tallies = [Tally(0) for _ in groups]
    no_entries: list[list[bytes]] = [[] for _ in groups]
    roots = [bytes(HASH_SIZE)] * len(round_.terms.shufflers)
    counts = (tallies, roots)
    return Bulletin.compose(
        no_entries, ABANDONED, round_.digest, *counts, reason=reason, signer=signer
    )


def outcome_without_batch(
    round_: Round, *, sign: Callable[[bytes], bytes], reason: int = LATE
) -> bytes:
    """Return the server's signed outcome of a round whose batch never arrived, or was lost."""
    return abandonment(round_, reason=reason, signer=SERVER).signed(sign).encode()


def is_short(tallies: Sequence[Tally], round_: Round) -> bool:
    """Return whether a group has fewer reports than its minimum crowd hands in."""
    pairs = zip(tallies, round_.terms.groups, strict=True)
    return any(tally.kept < (1 + group.decoys) * group.minimum for tally, group in pairs)


def inconsistency(heading: Heading, round_: Round) -> str:
    """Say how a heading contradicts itself (S9.7); empty if it does not."""
    if heading.reason not in REASONS[heading.outcome]:
        return "its outcome cannot have this reason"
    if heading.outcome != ABANDONED and heading.signer != SERVER:
        return "a shuffler signed an outcome that only the server can sign"
    short = is_short(heading.tallies, round_)
    if heading.outcome == ANSWERED and short:
        return "it answers a group with fewer reports than its minimum crowd hands in"
    if heading.outcome == REFUSED and short != (heading.reason == FEW_REPORTS):
        return "its reason contradicts its counts"
    counts = any(tally != Tally(0) for tally in heading.tallies) or any(map(any, heading.roots))
    if heading.outcome == ABANDONED and counts:
        return "it has counts, although the round was abandoned"
    return ""


def check_consistent(heading: Heading, round_: Round) -> None:
    """Refuse a heading that contradicts itself: it is no outcome (S9.8)."""
    contradiction = inconsistency(heading, round_)
    if contradiction:
        raise Malformed(f"this heading is inconsistent: {contradiction}")


def outcome_text(heading: Heading, round_: Round) -> str:
    """Return the text of an outcome that people see."""
    if heading.outcome == ANSWERED:
        return "the round is answered"
    role = "server" if heading.signer == SERVER else "shuffler"
    name, outcome = signer_of(heading, round_).name, OUTCOMES[heading.outcome]
    return f"the {role} {name!r} {outcome} the round: {_REASON_TEXTS[heading.reason]}"


def pending_text(round_: Round, *, now: int) -> str:
    """Say by when the board shows the outcome of a round that has none yet."""
    deadline = _time(outcome_due(round_))
    if now < outcome_due(round_):
        return (
            f"the round has not ended; its outcome is due by {deadline}: keep the ticket, and"
            " try again later"
        )
    board = round_.terms.board.name
    return (
        f"the round's outcome was due by {deadline}, and the board {board!r} owes it: try again"
        " later"
    )


def check_not_overdue(round_: Round, *, now: int) -> None:
    """Refuse to wait for an outcome that is overdue."""
    if now < outcome_due(round_):
        return
    raise Refused(
        f"the board shows no signed outcome of this round, which the server"
        f" {round_.terms.server.name!r} has owed since {_time(outcome_due(round_))}: keep the"
        " ticket, ask the server's operator, and try again later; until the outcome is there, your"
        " ledger sets its local ε aside"
    )


def _time(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(second))


def is_outcome(raw: bytes, round_: Round) -> bool:
    """Return whether bytes have the size of an outcome without entries."""
    return len(raw) == heading_size(len(round_.terms.groups), len(round_.terms.shufflers))
