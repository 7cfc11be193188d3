"""A shuffler's rounds: what its process holds of each, and the step that is due in each phase.

A live round has the terms, the crowd and the phase, and never the secret of the order.
"""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.outcomes import OPERATOR, due, outcome_due
from coatcheck.protocol.shuffler import SECRET_SIZE, Shuffler, ShufflerState
from coatcheck.protocol.state_machine import HOLDING, SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import capacity_of
from coatcheck.services import clock
from coatcheck.services.batch_transfer import hand_on
from coatcheck.services.documents import GroupCount, ShufflerRoundStatus
from coatcheck.services.rounds import LiveRound, RoundService
from coatcheck.services.settings import Keyring, ShufflerSettings
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.services.web.routing import OCTETS, Problem

RELEASE: Final = "coatcheck.services.shuffler.pipeline:release"
_MOVES: Final = {
    "close": ("closed", ""),
    "release": ("released", ""),
    "reopen": ("reopened", ""),
    "forget": ("delivered", ""),
    "abandon": ("abandoned", ""),
    "expire": ("abandoned", ", because its time is over"),
    "hear": ("abandoned", ", because an earlier shuffler abandoned it"),
    "tell": ("ended", ""),
}
"""The name under which each move is counted and logged, and the reason in the log."""
_REST: Final = 9.0
"""A release that fell short is not tried again for this many times as long as it took."""
_QUICK: Final = 0.5
"""A release that took fewer seconds than this is tried again without a rest."""


@dataclass(kw_only=True)
class ShufflerLiveRound(LiveRound[ShufflerRound]):
    """A round as this process holds it.

    Attributes:
        role: checks uploads and signs receipts; None once the round is delivered or abandoned.
        holds: whether the round holds uploads.
        hop: the place in the cascade; None if the round is over and its key file was removed.
        capacity: how many uploads the round may have.
        crowd: how many uploads of each group, or registrations of a later shuffler, are on the
            disk.
        short: the crowd with which the round last fell below its minimum.
        rest: when it may be released again after that, by the steady clock.
    """

    keys: Keyring
    capacity: int
    crowd: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    rest: float = 0.0

    def __post_init__(self) -> None:
        self.largest = max(self.round.upload_sizes)
        own = [self.keys.has(party.verifying) for party in self.round.terms.shufflers]
        self.hop = own.index(True) if any(own) else None
        self.role: Shuffler | None = None
        self._public_counts: tuple[int, list[GroupCount]] = (-1, [])
        self._take(self.stored)

    def update(self, stored: ShufflerRound) -> None:
        """Take over where the round stands now."""
        if stored.phase is not self.stored.phase:
            self._take(stored)

    def _take(self, stored: ShufflerRound) -> None:
        self.stored = stored
        self.holds = stored.phase in HOLDING
        self.role = None
        if self.holds or stored.phase is ShufflerPhase.RELEASED:
            self.role = shuffler_of(self.round, self.keys)
            self.role.state.phase, self.role.state.accepted = stored.phase, stored.accepted

    def sizes(self) -> tuple[int, ...]:
        """Return the crowd of each group."""
        return tuple(self.crowd[number] for number in range(len(self.round.terms.groups)))

    def counts(self) -> list[GroupCount]:
        """Count the crowd of each group exactly, for the operator."""
        groups = zip(self.round.terms.groups, self.sizes(), strict=True)
        return [
            GroupCount(group.name, group.minimum, size, size >= group.minimum)
            for group, size in groups
        ]

    def status(self, *, now: int) -> ShufflerRoundStatus:
        """Return what everybody may see of the round."""
        terms, minute = self.round.terms, now // 60
        if self._public_counts[0] != minute:
            self._public_counts = (minute, [_coarse(count) for count in self.counts()])
        return ShufflerRoundStatus(
            round=terms.round,
            digest=self.round.digest.hex(),
            phase=self.stored.phase.value,
            hop=self.hop,
            opens=terms.opens,
            closes=terms.closes,
            expires=terms.expires,
            groups=self._public_counts[1],
        )


def _coarse(count: GroupCount) -> GroupCount:
    crowd = 1 << count.crowd.bit_length() >> 1
    return GroupCount(count.name, count.minimum, crowd, count.enough)


def shuffler_of(
    round_: Round, keys: Keyring, state: ShufflerState | None = None, bulk: Bulk | None = None
) -> Shuffler:
    """Make the role's object for a round, with the keys that the terms name.

    Without a state it only checks uploads: it holds neither uploads nor the order's secret.
    """
    pairs = keys.of(*(party.verifying for party in round_.terms.shufflers))
    blank = ShufflerState(bytearray(SECRET_SIZE))
    return Shuffler(round_, keys=pairs, state=state or blank, bulk=bulk)


class ShufflerRounds(RoundService[ShufflerSettings, ShufflerStore, ShufflerLiveRound]):
    """The part of a shuffler's service that takes rounds from phase to phase."""

    role = "shuffler"
    moves = SHUFFLER_TRANSITIONS
    settings_type = ShufflerSettings
    store_type = ShufflerStore

    def hold(self, stored: ShufflerRound) -> ShufflerLiveRound:
        """Make a live round of its record."""
        round_ = verify_signatures(read_signed(stored.signed))
        capacity = capacity_of(round_, self.settings.batch_limit)
        return ShufflerLiveRound(round=round_, stored=stored, keys=self.keyring, capacity=capacity)

    async def refresh(self) -> None:
        """Read the rounds again, and count their crowds, whichever process took the uploads."""
        await super().refresh()
        for digest, crowd in (await asyncio.to_thread(self.store.crowds)).items():
            if digest in self.rounds and self.rounds[digest].holds:
                self.rounds[digest].crowd = Counter(crowd)

    async def follow(self) -> None:
        """Read the rounds also while another process leads: uploads come in here too."""
        await self.refresh()

    def newest(self) -> ShufflerLiveRound:
        """Return the round that opened last among those that take reports here now."""
        now = self.clock.now()
        open_rounds = [
            live
            for live in self.rounds.unfinished()
            if live.stored.phase is ShufflerPhase.OPEN
            and live.hop == 0
            and live.round.terms.opens <= now < live.round.terms.expires
        ]
        if not open_rounds:
            raise self.absent("no round takes reports here now; retry when the next one opens")
        return max(open_rounds, key=lambda live: (live.round.terms.opens, live.round.terms.round))

    def batched(self, digest: str) -> tuple[ShufflerLiveRound, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        live = self.live_round(digest)
        if live.hop is None:
            raise Problem("closed", "the round is over, and its key was removed")
        if not live.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        return live, live.hop - 1

    # The steps, phase by phase

    async def _close(self, live: ShufflerLiveRound) -> None:
        if await self._expired(live, late=True):
            return
        if self.is_ready(live):
            clock.reach("shuffler.close")
            await self.move(live, "close")
            clock.reach("shuffler.closed")
        else:
            await self._expired(live)

    def is_ready(self, live: ShufflerLiveRound) -> bool:
        """Tell whether a round can close, and has more people than when it last fell short.

        After a long release that fell short the round rests, open for uploads: otherwise rubbish
        that makes up the number would have everything peeled over and over.
        """
        now = self.clock.now()
        if live.role is None or live.role.why_open(now=now, crowd=live.sizes()):
            return False
        rested = time.monotonic() >= live.rest or live.role.expired(now=now)
        return live.crowd != live.short and rested

    async def _release(self, live: ShufflerLiveRound) -> None:
        """Have a worker release the round; if too few people are left, open it again."""
        if await self._expired(live, late=True):
            return
        started = time.monotonic()
        deadline = due(live.round, (live.hop or 0) + 1)
        if await self.within(deadline, self.run_in_worker(RELEASE, live)):
            await self.done(live, *_MOVES["release"])
        elif not await self._expired(live):
            live.short = Counter(live.crowd)
            seconds = time.monotonic() - started
            live.rest = time.monotonic() + (seconds * _REST if seconds > _QUICK else 0)
            await self.move(live, "reopen")

    async def _deliver(self, live: ShufflerLiveRound) -> None:
        if await self._expired(live, late=True):
            return
        own = live.round.terms.shufflers[live.hop or 0].verifying
        await hand_on(self, live, to=self._next(live), signer=own)
        await self.move(live, "forget")

    def _next(self, live: ShufflerLiveRound) -> str:
        """Return the address of the role after this one: the next shuffler, or the server."""
        terms = live.round.terms
        return [*terms.shufflers, terms.server][(live.hop or 0) + 1].url

    async def _tell(self, live: ShufflerLiveRound) -> None:
        """Send the signed outcome to the board, then to the next role, which then stops waiting."""
        outcome = await asyncio.to_thread(self.store.blob, live.round.digest, "end")
        try:
            await self._send(live, outcome, to=live.round.terms.board.url)
            if self.clock.now() < outcome_due(live.round):  # later it has ended the round itself
                with suppress(Refused):  # it has a batch, or an outcome already
                    await self._send(live, outcome, to=self._next(live))
        except Unavailable:
            if not self.is_too_late(live):
                raise
        except Refused:
            if not await self.shown_outcome(live) and not self.is_too_late(live):
                raise
        await self.move(live, "tell")

    async def _send(self, live: ShufflerLiveRound, outcome: bytes, *, to: str) -> None:
        url = f"{to}/rounds/{live.round.digest.hex()}/end"
        clock.reach("shuffler.tell")
        await self.peers.send(url, outcome, headers={"content-type": OCTETS})
        clock.reach("shuffler.told")

    steps = (
        (ShufflerPhase.OPEN, "close", _close),
        (ShufflerPhase.CLOSED, "release", _release),
        (ShufflerPhase.RELEASED, "deliver", _deliver),
        (ShufflerPhase.ABANDONED, "tell", _tell),
    )

    # The end of a round without a batch

    async def lose(self, live: ShufflerLiveRound) -> None:
        """Abandon a round whose key is gone: nothing can open its uploads, or its batch."""
        released = live.stored.phase is ShufflerPhase.RELEASED
        await self.abandon_round(live, "expire" if released else "abandon", OPERATOR)

    async def _expired(self, live: ShufflerLiveRound, *, late: bool = False) -> bool:
        """Abandon a round whose time is over; `late`: only if the next role waits no longer."""
        now, role = self.clock.now(), live.role
        reason = role.overdue(now=now) if role and (role.is_late(now=now) or not late) else 0
        if reason:
            await self.abandon_round(live, "expire", reason)
        return bool(reason)

    async def abandon_round(self, live: ShufflerLiveRound, move: str, reason: int) -> None:
        """Sign that this shuffler abandons a round, and make the move that says so."""
        if live.role is None:
            raise Problem("closed", "the round is over already")
        await self.move(live, move, end=live.role.outcome(reason))
        clock.reach("shuffler.abandoned")

    async def move(self, live: ShufflerLiveRound, move: str, *, end: bytes = b"") -> None:
        """Make a move of a round in the store, count it and log it."""
        self.untidy = True  # until the key is known to be gone too
        await self.write(partial(self.store.move, end=end), live.round.digest, move)
        await self.done(live, *_MOVES[move])
