"""The board's routes: bulletins and letters are bytes, proofs and counts are JSON."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms, write_signed
from coatcheck.protocol.notices import posting_size
from coatcheck.services.http.connections import Wire
from coatcheck.services.http.deliveries import delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Digest, Header, Reply, Route

if TYPE_CHECKING:
    from coatcheck.services.board.service import BoardService

Group = Annotated[int, Meta(ge=0, lt=16)]
Address = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Number = Annotated[int, Meta(ge=0, le=2**40)]
PAGE: Final = 1 << 18
"""The most bytes of a page of letters: a copy is held for each reader."""


class RoundStatus(Struct, frozen=True):
    """What the board has of a round."""

    round: str
    digest: str
    shown: bool
    letters: int


class Entry(Struct, frozen=True):
    """One entry of a bulletin with the path to its root, and the bulletin's place in the log."""

    entry: str
    place: int
    path: list[str]


class Proof(Struct, frozen=True):
    """Hashes that prove something about the log."""

    path: list[str]


class Posted(Struct, frozen=True):
    """Where in the log a letter is shown."""

    place: int


def _status(board: "BoardService", digest: bytes) -> RoundStatus:
    letters = board.seen.letters
    return RoundStatus(
        round=board.found(digest).terms.round,
        digest=digest.hex(),
        shown=digest in letters,
        letters=letters.get(digest, 0),
    )


def _shown(board: "BoardService", digest: str) -> bytes:
    raw = bytes.fromhex(digest)
    board.found(raw)
    if raw not in board.seen.letters:
        raise Problem("not-found", "this round is not answered yet: ask again later")
    return raw


def _check_size(board: "BoardService", size: int = 0) -> None:
    """Let only a leader speak of the log: an older one would look like one taken back."""
    if not board.app.leadership.leads:
        raise Problem("unavailable", "this process stands by, and does not know the log")
    if size > board.seen.size:
        raise Problem("not-found", f"the log has {board.seen.size} places")


async def rounds(board: "BoardService") -> list[RoundStatus]:
    """List the rounds."""
    return [_status(board, digest) for digest in board.rounds]


async def round_(board: "BoardService", digest: Digest) -> RoundStatus:
    """Say what the board has of a round."""
    return _status(board, bytes.fromhex(digest))


async def admit(board: "BoardService", digest: Digest, body: SignedTerms) -> RoundStatus:
    """Take up a round of a known server, on terms that everybody signed."""
    await board.admit(bytes.fromhex(digest), write_signed(body))
    return _status(board, bytes.fromhex(digest))


async def bulletin(board: "BoardService", digest: Digest) -> Reply:
    """Give the whole bulletin: whoever fetches all of it tells nothing about themselves."""
    raw = board.role.bulletin(_shown(board, digest))
    return Reply(raw, {"cache-control": "public, max-age=31536000, immutable"})


async def entry(board: "BoardService", digest: Digest, group: Group, address: Address) -> Entry:
    """Give one entry with its proof; asking shows which one you want, so ask through a relay."""
    raw = _shown(board, digest)
    if group >= len(board.found(raw).terms.groups):
        raise Problem("not-found", "the round has no such group")
    try:
        found, place, path = await asyncio.to_thread(
            board.role.entry, raw, group=group, address=bytes.fromhex(address)
        )
    except Refused:
        raise Problem("not-found", "nobody has this address in this round") from None
    return Entry(entry=found.hex(), place=place, path=[step.hex() for step in path])


async def letters(board: "BoardService", digest: Digest, since: Number = 0) -> Reply:
    """Give a page of the letters from a place on, one after the other; they have one size.

    An empty page is the last.
    """
    raw = _shown(board, digest)
    page = max(1, PAGE // posting_size(board.found(raw)))
    many = min(page, max(0, board.seen.letters[raw] - since))
    found = board.role.letters(raw, since=since)[:many]
    return Reply(b"".join(found), {"coatcheck-next": str(since + len(found))})


async def checkpoint(board: "BoardService") -> Reply:
    """Give the board's signature over everything it has shown."""
    _check_size(board)
    return Reply(board.seen.checkpoint)


async def place(board: "BoardService", digest: Digest) -> int:
    """Give the place of a round's heading in the log."""
    return board.role.place(_shown(board, digest))


async def inclusion(board: "BoardService", place: Number, size: Number) -> Proof:
    """Prove that a place is under the checkpoint of this size."""
    _check_size(board, size)
    if place >= size:
        raise Problem("not-found", "this place is not among the first ones asked for")
    with board.lock:
        path = board.role.inclusion(place, size=size)
    return Proof(path=[step.hex() for step in path])


async def consistency(board: "BoardService", old: Number, new: Number) -> Proof:
    """Prove that the log only grew between two sizes."""
    _check_size(board, new)
    if not 1 <= old <= new:
        raise Problem("unprocessable", "the old size is at least 1 and at most the new one")
    with board.lock:
        path = board.role.consistency(old, new=new)
    return Proof(path=[step.hex() for step in path])


def publish(board: "BoardService", digest: Digest, wire: Wire) -> Awaitable[None]:
    """Show the bulletin of a round, which its server delivers; again, nothing changes."""
    return board.publish(bytes.fromhex(digest), *wire)


def post(board: "BoardService", digest: Digest, wire: Wire) -> Awaitable[None]:
    """Show a sealed letter; again, nothing changes."""
    return board.post(bytes.fromhex(digest), *wire)


_KEPT: Final = Header("cache-control", "A bulletin never changes.")
_NEXT: Final = Header("coatcheck-next", "The place to ask for next.", "^[0-9]+$")
_ONE: Final = "/rounds/{digest}"
_LETTERS: Final = f"{_ONE}/letters"

ROUTES: Final = (
    Route("GET", "/rounds", rounds),
    Route("GET", _ONE, round_),
    Route("PUT", _ONE, admit, problems=(403, 409, 507)),
    Route("GET", f"{_ONE}/bulletin", bulletin, sends=(_KEPT,)),
    delivery(f"{_ONE}/bulletin", publish),
    Route("GET", f"{_ONE}/entries/{{group}}/{{address}}", entry),
    Route("GET", _LETTERS, letters, sends=(_NEXT,)),
    Route("POST", _LETTERS, post, gives=Posted, status=201, problems=(409, 429, 507)),
    Route("GET", f"{_ONE}/place", place),
    Route("GET", "/checkpoint", checkpoint, problems=(503,)),
    Route("GET", "/proofs/inclusion", inclusion, problems=(404, 503)),
    Route("GET", "/proofs/consistency", consistency, problems=(404, 503)),
)
