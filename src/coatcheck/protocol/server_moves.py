"""The phases of a round at the server, and the moves between them. SPEC section 11.

PROPOSED --agree--> AWAITING --accept--> BATCHED --answer--> ANSWERED --publish--> PUBLISHED
BATCHED --refuse--> REFUSED  --publish--> PUBLISHED
AWAITING --abandon-------------------> ABANDONED --publish--> PUBLISHED
BATCHED, ANSWERED --lose-------------> ABANDONED
PROPOSED --lapse--> LAPSED              ANSWERED, REFUSED, ABANDONED --yield--> OVERTAKEN
"""

from enum import Enum
from typing import Final

from msgspec import Struct

from coatcheck.protocol.moves import Moves


class Phase(Enum):
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


MOVES: Final = Moves(
    Phase,
    {
        (Phase.PROPOSED, "agree"): Phase.AWAITING,
        (Phase.PROPOSED, "lapse"): Phase.LAPSED,
        (Phase.AWAITING, "accept"): Phase.BATCHED,
        (Phase.AWAITING, "abandon"): Phase.ABANDONED,
        (Phase.BATCHED, "answer"): Phase.ANSWERED,
        (Phase.BATCHED, "refuse"): Phase.REFUSED,
        (Phase.BATCHED, "lose"): Phase.ABANDONED,
        (Phase.ANSWERED, "lose"): Phase.ABANDONED,
        (Phase.ANSWERED, "publish"): Phase.PUBLISHED,
        (Phase.ANSWERED, "yield"): Phase.OVERTAKEN,
        (Phase.REFUSED, "publish"): Phase.PUBLISHED,
        (Phase.REFUSED, "yield"): Phase.OVERTAKEN,
        (Phase.ABANDONED, "publish"): Phase.PUBLISHED,
        (Phase.ABANDONED, "yield"): Phase.OVERTAKEN,
    },
)
"""Every move there is. To repeat one with the same bytes is no move: the first answer is given."""


class ServerState(Struct):
    """What a server must not lose in a crash: plain data for a driver to store.

    Attributes:
        accepted: the hash of the one batch that the round is answered for.
    """

    phase: Phase = Phase.AWAITING
    accepted: bytes = b""
    bulletin: bytes = b""
