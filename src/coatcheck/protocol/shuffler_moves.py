"""The phases of a round at a shuffler, and the moves between them. SPEC section 10.

OPEN --close, accept--> CLOSED --release--> RELEASED --forget--> DELIVERED
     <-----reopen------
OPEN, CLOSED --abandon, expire, hear--> ABANDONED --tell--> ENDED
RELEASED --expire--> ABANDONED
"""

from enum import Enum
from typing import Final

from coatcheck.protocol.moves import Moves


class Phase(Enum):
    """Where a round stands at this shuffler."""

    OPEN = "open"  # takes uploads, or waits for the batch of the shuffler before
    CLOSED = "closed"  # takes nothing more, and is released next
    RELEASED = "released"  # the batch is made, and everything else is forgotten
    DELIVERED = "delivered"  # the next one has the batch, and it is forgotten too
    ABANDONED = "abandoned"  # everything is forgotten, nothing left; the signed end is to be told
    ENDED = "ended"  # the board has the round's end


MOVES: Final = Moves(
    Phase,
    {
        (Phase.OPEN, "receive"): Phase.OPEN,
        (Phase.OPEN, "accept"): Phase.CLOSED,
        (Phase.OPEN, "close"): Phase.CLOSED,
        (Phase.OPEN, "abandon"): Phase.ABANDONED,
        (Phase.OPEN, "expire"): Phase.ABANDONED,
        (Phase.OPEN, "hear"): Phase.ABANDONED,
        (Phase.CLOSED, "reopen"): Phase.OPEN,
        (Phase.CLOSED, "release"): Phase.RELEASED,
        (Phase.CLOSED, "abandon"): Phase.ABANDONED,
        (Phase.CLOSED, "expire"): Phase.ABANDONED,
        (Phase.RELEASED, "forget"): Phase.DELIVERED,
        (Phase.RELEASED, "expire"): Phase.ABANDONED,
        (Phase.ABANDONED, "tell"): Phase.ENDED,
    },
)
"""Every move there is. To repeat one with the same bytes is no move: the first answer is given."""


HOLDING: Final = frozenset({Phase.OPEN, Phase.CLOSED})
"""The phases in which uploads are held; in all others the secret and the uploads are gone."""
