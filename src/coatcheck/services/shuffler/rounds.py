"""A shuffler's rounds as its process holds them: terms, crowd, phase, never the order's secret."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from msgspec import Struct

from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.shuffler import SECRET_SIZE, Shuffler, ShufflerState
from coatcheck.protocol.state_machine import HOLDING, ShufflerPhase
from coatcheck.protocol.terms import Round
from coatcheck.services.rounds import LiveRound, StageCount
from coatcheck.services.settings import Keyring
from coatcheck.services.shuffler.store import ShufflerRound

STEPS: Final = {
    "close": ("closed", ""),
    "release": ("released", ""),
    "reopen": ("reopened", ""),
    "forget": ("delivered", ""),
    "abandon": ("abandoned", ""),
    "expire": ("abandoned", ", because its time is over"),
    "hear": ("abandoned", ", because a shuffler before gave it up"),
    "tell": ("ended", ""),
}
"""How each move is counted and logged."""


class GroupCount(Struct, frozen=True):
    """How many are there, and how many are needed.

    Everybody is told the largest power of two up to the crowd, anew once per minute. Exact numbers
    would tell when each person came.
    """

    name: str
    minimum: int
    crowd: int
    enough: bool


class CrowdCount(Struct, frozen=True):
    """How many are there, exactly, and how far a release is: for the operator."""

    groups: list[GroupCount]
    stages: list[StageCount]


class ShufflerRoundStatus(Struct, frozen=True):
    """Where a round stands at this shuffler: counts, and nothing about anybody."""

    round: str
    digest: str
    phase: str
    hop: int | None
    opens: int
    closes: int
    expires: int
    groups: list[GroupCount]


class Abandonment(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the operator is sure."""

    sure: bool


@dataclass(kw_only=True)
class ShufflerLiveRound(LiveRound[ShufflerRound]):
    """A round as this process holds it.

    Attributes:
        role: checks uploads and signs for them; None once the round is delivered or given up.
        holds: whether uploads are held.
        hop: the place in the cascade; None if the round is over and its key was taken away.
        room: how many uploads it may have.
        crowd: how many uploads of each group, or registrations of a later shuffler, are on the
            disk.
        short: the crowd with which the round last fell below its minimum.
        rest: when it may be released again after that, by the steady clock.
    """

    keys: Keyring
    room: int
    crowd: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    rest: float = 0.0

    def __post_init__(self) -> None:
        self.largest = max(self.round.upload_sizes)
        mine = [self.keys.has(party.verifying) for party in self.round.terms.shufflers]
        self.hop = mine.index(True) if any(mine) else None
        self.role: Shuffler | None = None
        self._told: tuple[int, list[GroupCount]] = (-1, [])
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
            self.role = role_of(self.round, self.keys)
            self.role.state.phase, self.role.state.accepted = stored.phase, stored.accepted

    def sizes(self) -> tuple[int, ...]:
        """Give the crowd of each group."""
        return tuple(self.crowd[number] for number in range(len(self.round.terms.groups)))

    def counts(self) -> list[GroupCount]:
        """Count the crowd of each group, for the operator."""
        groups = zip(self.round.terms.groups, self.sizes(), strict=True)
        return [GroupCount(of.name, of.minimum, size, size >= of.minimum) for of, size in groups]

    def status(self, *, now: int) -> ShufflerRoundStatus:
        """Say where the round stands, to anybody."""
        terms, minute = self.round.terms, now // 60
        if self._told[0] != minute:
            self._told = (minute, [_coarse(count) for count in self.counts()])
        return ShufflerRoundStatus(
            round=terms.round,
            digest=self.round.digest.hex(),
            phase=self.stored.phase.value,
            hop=self.hop,
            opens=terms.opens,
            closes=terms.closes,
            expires=terms.expires,
            groups=self._told[1],
        )

    @classmethod
    def newest(
        cls, rounds: Iterable[Self], *, now: int, absent: Callable[[str], Exception]
    ) -> ShufflerRoundStatus:
        """Give the status of the round that began last of those that take uploads now."""
        found = [
            live
            for live in rounds
            if live.stored.phase is ShufflerPhase.OPEN
            and live.hop == 0
            and live.round.terms.opens <= now < live.round.terms.expires
        ]
        if not found:
            raise absent("no round takes reports here now: come back when the next one opens")
        last = max(found, key=lambda live: (live.round.terms.opens, live.round.terms.round))
        return last.status(now=now)


def _coarse(count: GroupCount) -> GroupCount:
    crowd = 1 << count.crowd.bit_length() >> 1
    return GroupCount(count.name, count.minimum, crowd, count.enough)


def role_of(
    round_: Round, keys: Keyring, state: ShufflerState | None = None, bulk: Bulk | None = None
) -> Shuffler:
    """Make the role's object, with the keys that the terms name.

    Without a state it only checks uploads: it holds neither parcels nor the order's secret.
    """
    pairs = keys.of(*(party.verifying for party in round_.terms.shufflers))
    blank = ShufflerState(bytearray(SECRET_SIZE))
    return Shuffler(round_, keys=pairs, state=state or blank, bulk=bulk)
