"""The shuffler's routes: people upload, the server opens rounds, the operator ends them."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from coatcheck.protocol.agreement import SignedTerms, read_signed, write_signed
from coatcheck.protocol.shuffler import MOVES, Phase
from coatcheck.services.http.connections import Wire
from coatcheck.services.http.deliveries import delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Digest, Header, Reply, Route

if TYPE_CHECKING:
    from coatcheck.services.shuffler.rounds import ShufflerLiveRound
    from coatcheck.services.shuffler.service import ShufflerService


class GroupCount(Struct, frozen=True):
    """How many are there, and how many are needed."""

    name: str
    minimum: int
    crowd: int


class RoundStatus(Struct, frozen=True):
    """Where a round stands at this shuffler: counts, and nothing about anybody."""

    round: str
    digest: str
    phase: str
    delivered: bool
    hop: int | None
    opens: int
    closes: int
    expires: int
    groups: list[GroupCount]


class Offer(Struct, frozen=True):
    """What a person needs to take part: the terms, and where the board is."""

    signed: SignedTerms
    board: str
    status: RoundStatus


class Abandonment(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the operator is sure."""

    sure: bool


def _found(shuffler: "ShufflerService", digest: str) -> "ShufflerLiveRound":
    return shuffler.rounds.found(bytes.fromhex(digest))


def _status(live: "ShufflerLiveRound") -> RoundStatus:
    terms = live.round.terms
    return RoundStatus(
        round=terms.round,
        digest=live.round.digest.hex(),
        phase=live.stored.phase.value,
        delivered=live.stored.phase is Phase.DELIVERED,
        hop=live.hop,
        opens=terms.opens,
        closes=terms.closes,
        expires=terms.expires,
        groups=[
            GroupCount(name=group.name, minimum=group.minimum, crowd=live.crowd[number])
            for number, group in enumerate(terms.groups)
        ],
    )


# -- for everybody


async def rounds(shuffler: "ShufflerService") -> list[RoundStatus]:
    """List the rounds."""
    return [_status(live) for live in shuffler.rounds.values()]


async def offer(shuffler: "ShufflerService", digest: Digest) -> Offer:
    """Give the signed terms of a round and where it stands."""
    live = _found(shuffler, digest)
    board = shuffler.settings.value(shuffler.settings.board)
    return Offer(signed=read_signed(live.stored.signed), board=board, status=_status(live))


def upload(shuffler: "ShufflerService", digest: Digest, wire: Wire) -> Awaitable[None]:
    """Hand in a sealed report for a signed receipt; the same bytes again are no second report."""
    return shuffler.upload(bytes.fromhex(digest), *wire)


# -- for the server and for the shuffler before


async def sign(shuffler: "ShufflerService", body: SignedTerms) -> SignedTerms:
    """Counter-sign terms of a known server, once per name."""
    return read_signed(await shuffler.sign(write_signed(body)))


async def open_round(shuffler: "ShufflerService", digest: Digest, body: SignedTerms) -> RoundStatus:
    """Open a round on terms that everybody signed."""
    await shuffler.open(bytes.fromhex(digest), write_signed(body))
    return _status(_found(shuffler, digest))


def batch(shuffler: "ShufflerService", digest: Digest, wire: Wire) -> Awaitable[None]:
    """Take the batch of the shuffler before; the same one twice is one."""
    return shuffler.accept(bytes.fromhex(digest), *wire)


# -- for the operator


async def abandon(shuffler: "ShufflerService", digest: Digest, body: Abandonment) -> RoundStatus:
    """Give a round up: nothing of it leaves."""
    live = _found(shuffler, digest)
    if not body.sure:
        raise Problem("unprocessable", "say sure: true to give the round up for good")
    if not MOVES.allows(live.stored.phase, "abandon"):
        raise Problem("closed", f"the round is {live.stored.phase.value} already")
    await shuffler.abandon(live)
    return _status(_found(shuffler, digest))


async def close(shuffler: "ShufflerService", digest: Digest) -> RoundStatus:
    """Close a round whose time is over and whose crowd is there, without waiting for a look."""
    live = _found(shuffler, digest)
    if live.stored.phase is Phase.OPEN and shuffler.clock.now() < live.round.terms.closes:
        raise Problem("refused", "the terms keep this round open longer: wait, or abandon it")
    if live.stored.phase is Phase.OPEN and not shuffler.enough(live):
        raise Problem("refused", "a group is below its minimum crowd: wait, or abandon it")
    await shuffler.rounds.advance(live)
    return _status(_found(shuffler, digest))


_ONE: Final = "/rounds/{digest}"
_TOKEN: Final = Header("coatcheck-token", "An enrolment token, if asked for.", required=False)

ROUTES: Final = (
    Route(
        "POST",
        f"{_ONE}/uploads",
        upload,
        gives=Reply,
        status=201,
        reads=(_TOKEN,),
        problems=(403, 409, 425, 429, 507),
    ),
    Route("GET", "/rounds", rounds, problems=(503,)),
    Route("POST", "/rounds", sign, problems=(403, 409, 507)),
    Route("GET", _ONE, offer),
    Route("PUT", _ONE, open_round, problems=(403, 409, 507)),
    delivery(f"{_ONE}/batch", batch),
    Route("POST", f"{_ONE}/abandonment", abandon, operator=True, problems=(409, 507)),
    Route("POST", f"{_ONE}/closing", close, operator=True, problems=(409, 507)),
)
