"""The phases of a round at the server, and the moves between them. SPEC section 11.

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

# HOUSE-DOC protocol.moves: "Moves: the table by which a role's rounds go from phase to phase, and the one place to ask it.\n\nA role writes its table down once. Its object, its stores, its service and SPEC all read that table.\n"
P = TypeVar("P", bound=Enum)


class Transitions(Generic[P]):
    """Which moves a role allows in which phase, and the phase each one leads to.

    Attributes:
        phases: all the phases of the role.
    """

    def __init__(self, phases: type[P], table: Mapping[tuple[P, str], P]) -> None:
        self.phases = phases
        self._table = dict(table)

    def __iter__(self) -> Iterator[tuple[P, str, P]]:
        """List phase, move and next phase, in the order of the table."""
        return ((phase, move, after) for (phase, move), after in self._table.items())

    def after(self, phase: P, move: str) -> P:
        """Give the phase that a move leads to; a move that the table does not list is refused."""
        if (phase, move) not in self._table:
            raise Refused(f"a round that is {phase.value} does not take the move {move!r}")
        return self._table[phase, move]

    def allows(self, phase: P, move: str) -> bool:
        """Tell whether a move is allowed in a phase."""
        return (phase, move) in self._table

    def ahead(self, phase: P) -> set[P]:
        """Give this phase and all that a round in it can still come to."""
        found: set[P] = set()
        fresh = {phase}
        while fresh:
            found |= fresh
            fresh = {after for before, _, after in self if before in found} - found
        return found

    def is_last(self, phase: P) -> bool:
        """Tell whether no move leads out of a phase."""
        return all(before is not phase for before, _ in self._table)


class ServerPhase(Enum):
    """Where a round stands at the server."""

    PROPOSED = "proposed"  # the terms wait for signatures
    AWAITING = "awaiting"  # the terms are signed, the batch has not come
    BATCHED = "batched"  # the batch is here
    ANSWERED = "answered"  # the bulletin is made: every group kept its minimum crowd
    REFUSED = "refused"  # the bulletin is made, and answers nobody
    ABANDONED = "abandoned"  # the signed end is made, without a batch
    PUBLISHED = "published"  # the board has the bulletin
    OVERTAKEN = "overtaken"  # the board has another end of the round, and the bulletin is forgotten
    LAPSED = "lapsed"  # not everybody signed in time: nobody could join


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
"""Every move there is. To repeat one with the same bytes is no move: the first answer is given."""


class ServerState(Struct):
    """What a server must not lose in a crash: plain data for a driver to store.

    Attributes:
        accepted: the hash of the one batch that the round is answered for.
    """

    phase: ServerPhase = ServerPhase.AWAITING
    accepted: bytes = b""
    bulletin: bytes = b""


# HOUSE-DOC protocol.shuffler_moves: 'The phases of a round at a shuffler, and the moves between them. SPEC section 10.\n\nOPEN --close, accept--> CLOSED --release--> RELEASED --forget--> DELIVERED\n     <-----reopen------\nOPEN, CLOSED --abandon, expire, hear--> ABANDONED --tell--> ENDED\nRELEASED --expire--> ABANDONED\n'
class ShufflerPhase(Enum):
    """Where a round stands at this shuffler."""

    OPEN = "open"  # takes uploads, or waits for the batch of the shuffler before
    CLOSED = "closed"  # takes nothing more, and is released next
    RELEASED = "released"  # the batch is made, and everything else is forgotten
    DELIVERED = "delivered"  # the next one has the batch, and it is forgotten too
    ABANDONED = "abandoned"  # everything is forgotten, nothing left; the signed end is to be told
    ENDED = "ended"  # the board has the round's end


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
"""Every move there is. To repeat one with the same bytes is no move: the first answer is given."""


HOLDING: Final = frozenset({ShufflerPhase.OPEN, ShufflerPhase.CLOSED})
"""The phases in which uploads are held; in all others the secret and the uploads are gone."""
