"""What the board proves of its log: a signed checkpoint, that it has something, that it only grew.

SPEC section 9.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from coatcheck.protocol.board import Board
from coatcheck.protocol.terms import Round
from coatcheck.services.board.documents import Logged, Number, Proof, Seen
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import ROUND, Digest, Reply, Route

R = TypeVar("R")


class Proves(Protocol):
    """What is needed of the board."""

    seen: Seen

    async def found(self, digest: str) -> Round:
        """Find a round."""

    async def read(self, call: Callable[[Board], R]) -> R:
        """Look at the board."""

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
    path = await service.read(lambda log: log.inclusion(place, size=size))
    return Proof(path=[step.hex() for step in path])


async def consistency(service: Proves, old: Number, new: Number) -> Proof:
    """Prove that the log only grew between two sizes."""
    service.check_size(new)
    if not 1 <= old <= new:
        raise Problem("unprocessable", "the old size is at least 1 and at most the new one")
    path = await service.read(lambda log: log.consistency(old, new=new))
    return Proof(path=[step.hex() for step in path])


async def log_path(service: Proves, place: int, *, size: int, seen: Seen) -> bytes:
    """Prove a place of the log under a checkpoint of this size, or 0 for what is seen."""
    service.check_size(size)
    under = size or seen.size
    if place >= under:
        raise Problem("unavailable", "this is not under that checkpoint yet")
    return b"".join(await service.read(lambda log: log.inclusion(place, size=under)))


async def logged(service: Proves, digest: Digest, size: Number = 0) -> Logged:
    """Prove that the log has the terms of a round; whoever joins asks before.

    The proof is under the log's first `size` places, or under all of them.
    """
    seen, round_ = service.seen, await service.found(digest)
    record = await service.read(lambda log: log.record(round_.digest))
    if record is None:
        raise Problem("not-found", "the terms of this round are not in the log")
    path = await log_path(service, record.terms, size=size, seen=seen)
    return Logged(place=record.terms, path=path, checkpoint=seen.checkpoint)


PROOFS: Final = (
    Route("GET", f"{ROUND}/logged", logged, relayed=True),
    Route("GET", "/checkpoint", checkpoint, problems=(503,), relayed=True),
    Route("GET", "/proofs/inclusion", inclusion, problems=(404, 503), relayed=True),
    Route("GET", "/proofs/consistency", consistency, problems=(404, 503), relayed=True),
)
"""What the board serves of it."""
