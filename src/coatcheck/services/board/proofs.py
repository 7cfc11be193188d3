"""What the board proves of its log: a signed checkpoint, that it has something, that it only grew.

SPEC section 9.
"""

import threading
from typing import Final, Protocol

from coatcheck.protocol.board import Board
from coatcheck.services.board.documents import Number, Proof, Seen
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Reply, Route


class Proves(Protocol):
    """What is needed of the board."""

    log: Board
    seen: Seen
    lock: threading.Lock

    def check_size(self, size: int = 0) -> None:
        """Refuse to prove what is not there, or not known here."""


async def checkpoint(service: Proves) -> Reply:
    """Give the board's signature over everything it has shown."""
    service.check_size()
    return Reply(service.seen.checkpoint)


async def inclusion(service: Proves, place: Number, size: Number) -> Proof:
    """Prove that a place is under the checkpoint of this size."""
    service.check_size(size)
    if place >= size:
        raise Problem("not-found", "this place is not among the first ones asked for")
    with service.lock:
        path = service.log.inclusion(place, size=size)
    return Proof(path=[step.hex() for step in path])


async def consistency(service: Proves, old: Number, new: Number) -> Proof:
    """Prove that the log only grew between two sizes."""
    service.check_size(new)
    if not 1 <= old <= new:
        raise Problem("unprocessable", "the old size is at least 1 and at most the new one")
    with service.lock:
        path = service.log.consistency(old, new=new)
    return Proof(path=[step.hex() for step in path])


PROOFS: Final = (
    Route("GET", "/checkpoint", checkpoint, problems=(503,), relayed=True),
    Route("GET", "/proofs/inclusion", inclusion, problems=(404, 503), relayed=True),
    Route("GET", "/proofs/consistency", consistency, problems=(404, 503), relayed=True),
)
"""What the board serves of it."""
