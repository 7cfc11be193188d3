"""What each role asks of its store: records as plain data, and three small interfaces.

All calls are blocking and may be made from any thread. They raise `Unavailable` (`Full` when
there is no room) if nothing was done and a later try is right, and `Fenced` if another process
leads. Everything else that a call refuses is told by what it returns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from msgspec import Struct


class Verdict(Enum):
    """What became of an upload."""

    NEW = "new"
    KNOWN = "known"  # the same bytes once more
    CONFLICT = "conflict"  # other bytes under this id
    SPENT = "spent"  # the enrolment token was used for another upload
    CLOSED = "closed"  # the round takes no uploads


class Parcel(Struct, frozen=True):
    """An upload as the store keeps it; `token` is the hash of an enrolment token, if one is asked.

    Nothing here says when it came, or in which order.
    """

    digest: bytes
    group: int
    id: bytes
    body: bytes
    token: bytes | None = None

    def __repr__(self) -> str:
        return f"Parcel(group={self.group})"


@dataclass(frozen=True)
class Gathering:
    """A shuffler's round: `open`, `closed` (no uploads any more), `released` or `abandoned`.

    Attributes:
        signed: the terms with all signatures.
        secret: the key of the order; zeros once the round is over.
        waiting: whether a batch is there that was not delivered yet.
        accepted: the hash of the batch that came from the shuffler before, if one did.
    """

    digest: bytes
    name: str
    signed: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    phase: str = "open"
    waiting: bool = False
    accepted: bytes = b""


@dataclass(frozen=True)
class Sitting:
    """A server's round: `proposed`, `awaiting`, `batched`, `answered`, `refused`, `published`.

    `batch` is the hash of the batch that the round is answered for.
    """

    digest: bytes
    name: str
    signed: bytes = field(repr=False)
    phase: str = "proposed"
    batch: bytes = b""
    outcome: str = ""


@dataclass(frozen=True)
class Shown:
    """Something the board showed: a bulletin (the first of a round) or a letter."""

    digest: bytes
    raw: bytes = field(repr=False)


class Leased(Protocol):
    """One leader a database: whoever holds the lease writes, with its token."""

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else has it."""

    def resign(self, holder: str) -> None:
        """Give the lease back at once."""

    def probe(self) -> None:
        """Raise `Unavailable` unless the store answers."""

    def close(self) -> None:
        """Let go of the connection."""


class ShufflerStore(Leased, Protocol):
    """What a shuffler must not lose."""

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name; the digest that came first."""

    def begin(self, round_: Gathering, *, fence: int) -> None:
        """Open a round; again, nothing changes."""

    def rounds(self) -> list[Gathering]:
        """List all rounds."""

    def put(self, parcels: Sequence[Parcel], *, fence: int) -> list[Verdict]:
        """Keep uploads in one transaction; one verdict each, in the order given."""

    def knows(self, parcel: Parcel) -> bool:
        """Tell whether this very upload is kept."""

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""

    def parcels(self, digest: bytes) -> list[Parcel]:
        """Give all uploads of a round, in an order that says nothing."""

    def close_round(self, digest: bytes, *, fence: int) -> None:
        """Take no more uploads."""

    def reopen(self, digest: bytes, *, fence: int) -> None:
        """Take uploads again: the crowd was too small."""

    def accept(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch of the shuffler before; False if another one came first."""

    def incoming(self, digest: bytes) -> bytes:
        """Give the batch that was accepted."""

    def release(self, digest: bytes, batch: bytes, *, fence: int) -> None:
        """Keep the released batch, and forget secret, uploads and incoming batch with it."""

    def batch(self, digest: bytes) -> bytes:
        """Give the released batch."""

    def forget(self, digest: bytes, *, fence: int) -> None:
        """Drop the batch: the next one has it."""

    def abandon(self, digest: bytes, *, fence: int) -> None:
        """Forget everything of a round that nobody will see."""

    def scrub(self) -> bool:
        """Take what was forgotten off the disk; False if that has to be tried again."""


class ServerStore(Leased, Protocol):
    """What a server must not lose."""

    def propose(self, round_: Sitting, *, fence: int) -> Sitting:
        """Keep a proposal; if one of this name is there, that one is given and nothing changes."""

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures: the round awaits its batch."""

    def rounds(self) -> list[Sitting]:
        """List all rounds."""

    def receive(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch; False if another one came first."""

    def batch(self, digest: bytes) -> bytes:
        """Give the batch."""

    def answer(self, digest: bytes, bulletin: bytes, *, outcome: str, fence: int) -> None:
        """Keep the bulletin and forget the batch."""

    def bulletin(self, digest: bytes) -> bytes:
        """Give the bulletin."""

    def publish(self, digest: bytes, *, fence: int) -> None:
        """Remember that the board has the bulletin."""


class BoardStore(Leased, Protocol):
    """What a board must not lose: everything, in order."""

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round; again, nothing changes."""

    def rounds(self) -> dict[bytes, bytes]:
        """Give the signed terms by digest."""

    def append(self, shown: Iterable[Shown], *, at: int, fence: int) -> None:
        """Show things at these places of the log, all or none."""

    def history(self) -> list[Shown]:
        """Give everything shown, in order."""
