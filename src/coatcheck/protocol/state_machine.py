"""The state tables of a round at a shuffler and at the server, and the class that applies them.

A role's object, its stores, its service and SPEC all read the same table (S10.1, S11.1). A
transition that the table does not list is refused (S10.2, S11.2).

Shuffler:
OPEN --close, accept--> CLOSED --release--> RELEASED --forget--> DELIVERED
     <-----reopen------
OPEN, CLOSED --abandon, expire, hear--> ABANDONED --tell--> ENDED
RELEASED --expire--> ABANDONED

Server:
PROPOSED --agree--> AWAITING --accept--> BATCHED --answer--> ANSWERED --publish--> PUBLISHED
BATCHED --refuse--> REFUSED  --publish--> PUBLISHED
AWAITING --abandon-------------------> ABANDONED --publish--> PUBLISHED
BATCHED, ANSWERED --lose-------------> ABANDONED
PROPOSED --lapse--> LAPSED              ANSWERED, REFUSED, ABANDONED --yield--> OVERTAKEN
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from msgspec import Struct

from coatcheck.errors import Refused

P = TypeVar("P", bound=Enum)


class Transitions(Generic[P]):
    """The transitions that a role allows in each phase, and the phases that they lead to.

    Attributes:
        phases: all the phases of the role.
    """

    def __init__(self, phases: type[P], table: Mapping[tuple[P, str], P]) -> None:
        self.phases = phases
        self._table = dict(table)

    def __iter__(self) -> Iterator[tuple[P, str, P]]:
        """List phase, transition and next phase, in the order of the table."""
        return ((phase, name, after) for (phase, name), after in self._table.items())

    def after(self, phase: P, name: str) -> P:
        """Return the phase that a transition leads to; one that is not in the table is refused."""
        if (phase, name) not in self._table:
            allowed = [other for before, other, _ in self if before is phase]
            raise Refused(
                f"a round that is {phase.value} does not allow the transition {name!r}; it allows"
                f" {', '.join(allowed) or 'none'}"
            )
        return self._table[phase, name]

    def allows(self, phase: P, name: str) -> bool:
        """Return whether a transition is allowed in a phase."""
        return (phase, name) in self._table

    def ahead(self, phase: P) -> set[P]:
        """Return this phase and all that a round in it can still reach."""
        reached: set[P] = set()
        added = {phase}
        while added:
            reached |= added
            added = {after for before, _, after in self if before in reached} - reached
        return reached

    def is_last(self, phase: P) -> bool:
        """Return whether no transition leads out of a phase."""
        return all(before is not phase for before, _ in self._table)


class ServerPhase(Enum):
    """Where a round stands at the server."""

    PROPOSED = "proposed"  # the terms lack signatures
    AWAITING = "awaiting"  # the terms are signed, the batch has not arrived
    BATCHED = "batched"  # the batch is here
    ANSWERED = "answered"  # the bulletin is made: every group kept its minimum crowd
    REFUSED = "refused"  # the bulletin is made, and answers nobody
    ABANDONED = "abandoned"  # the signed outcome is made, without a batch
    PUBLISHED = "published"  # the board has the bulletin
    OVERTAKEN = "overtaken"  # the board has another outcome, and the bulletin is erased
    LAPSED = "lapsed"  # not all parties signed in time: nobody could join


SERVER_TRANSITIONS: Final = Transitions(
    ServerPhase,
    {
        (ServerPhase.PROPOSED, "agree"): ServerPhase.AWAITING,
        (ServerPhase.PROPOSED, "lapse"): ServerPhase.LAPSED,
        (ServerPhase.AWAITING, "accept"): ServerPhase.BATCHED,
        (ServerPhase.AWAITING, "abandon"): ServerPhase.ABANDONED,
        (ServerPhase.BATCHED, "answer"): ServerPhase.ANSWERED,
        (ServerPhase.BATCHED, "refuse"): ServerPhase.REFUSED,
        (ServerPhase.BATCHED, "lose"): ServerPhase.ABANDONED,
        (ServerPhase.ANSWERED, "lose"): ServerPhase.ABANDONED,
        (ServerPhase.ANSWERED, "publish"): ServerPhase.PUBLISHED,
        (ServerPhase.ANSWERED, "yield"): ServerPhase.OVERTAKEN,
        (ServerPhase.REFUSED, "publish"): ServerPhase.PUBLISHED,
        (ServerPhase.REFUSED, "yield"): ServerPhase.OVERTAKEN,
        (ServerPhase.ABANDONED, "publish"): ServerPhase.PUBLISHED,
        (ServerPhase.ABANDONED, "yield"): ServerPhase.OVERTAKEN,
    },
)
"""All transitions. A repeated message is none: the role answers it as before."""


class ServerState(Struct):
    """The state of a round that a server stores, so that a crash does not lose it.

    Attributes:
        accepted: the hash of the one batch that the server answers.
    """

    phase: ServerPhase = ServerPhase.AWAITING
    accepted: bytes = b""
    bulletin: bytes = b""


class ShufflerPhase(Enum):
    """Where a round stands at this shuffler."""

    OPEN = "open"  # takes uploads, or waits for the batch of the shuffler before
    CLOSED = "closed"  # takes nothing more, and is released next
    RELEASED = "released"  # the batch is made, and everything else is erased
    DELIVERED = "delivered"  # the next role has the batch, and it is erased too
    ABANDONED = "abandoned"  # everything is erased; the signed outcome is to be sent
    ENDED = "ended"  # the board has the round's outcome


SHUFFLER_TRANSITIONS: Final = Transitions(
    ShufflerPhase,
    {
        (ShufflerPhase.OPEN, "receive"): ShufflerPhase.OPEN,
        (ShufflerPhase.OPEN, "accept"): ShufflerPhase.CLOSED,
        (ShufflerPhase.OPEN, "close"): ShufflerPhase.CLOSED,
        (ShufflerPhase.OPEN, "abandon"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.OPEN, "expire"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.OPEN, "hear"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.CLOSED, "reopen"): ShufflerPhase.OPEN,
        (ShufflerPhase.CLOSED, "release"): ShufflerPhase.RELEASED,
        (ShufflerPhase.CLOSED, "abandon"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.CLOSED, "expire"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.RELEASED, "forget"): ShufflerPhase.DELIVERED,
        (ShufflerPhase.RELEASED, "expire"): ShufflerPhase.ABANDONED,
        (ShufflerPhase.ABANDONED, "tell"): ShufflerPhase.ENDED,
    },
)
"""All transitions. A repeated message is none: the role answers it as before."""


HOLDING: Final = frozenset({ShufflerPhase.OPEN, ShufflerPhase.CLOSED})
"""The phases in which a shuffler holds uploads; in all others it has erased them and the secret."""
