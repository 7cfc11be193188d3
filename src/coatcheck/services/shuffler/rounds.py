"""A shuffler's rounds as its process holds them: terms, crowd, phase, never the order's secret."""

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.notices import heading_size
from coatcheck.protocol.shuffler import HOLDING, MOVES, SECRET_SIZE, Shuffler, ShufflerState
from coatcheck.protocol.terms import Round
from coatcheck.services.keyring import Keyring
from coatcheck.services.rounds import LiveRound
from coatcheck.stores.shuffler import ShufflerRound


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
    hop: int | None
    opens: int
    closes: int
    expires: int
    groups: list[GroupCount]


@dataclass(kw_only=True)
class ShufflerLiveRound(LiveRound[ShufflerRound]):
    """A round as this process holds it.

    Attributes:
        role: checks uploads and signs for them; None once the round is over.
        holds: whether uploads are held.
        hop: the place in the cascade; None if the round is over and its key was taken away.
        crowd: how many uploads of each group, or registrations of a later shuffler, are on the
            disk.
        coming: how many wait for it.
        short: the crowd with which the round last fell below its minimum.
        rest: when it may be released again after that, by the steady clock.
    """

    keys: Keyring
    crowd: Counter[int] = field(default_factory=Counter)
    coming: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    rest: float = 0.0

    def __post_init__(self) -> None:
        groups = range(len(self.round.terms.groups))
        self.largest = max(self.round.upload_sizes)
        # Whatever is larger: one's items in the first batch, or one's entry on the bulletin.
        self._hops = len(self.round.terms.shufflers)
        self._sizes = [
            max(self._hops * self.round.item_size(group, 1), self.round.entry_size(group))
            for group in groups
        ]
        mine = [self.keys.has(party.verifying) for party in self.round.terms.shufflers]
        self.hop = mine.index(True) if any(mine) else None
        self.role: Shuffler | None = None
        self._take(self.stored)

    def update(self, stored: ShufflerRound) -> None:
        """Take over where the round stands now."""
        if stored.phase is not self.stored.phase:
            self._take(stored)

    def _take(self, stored: ShufflerRound) -> None:
        self.stored = stored
        self.holds = stored.phase in HOLDING
        self.role = None
        if not MOVES.is_last(stored.phase):
            self.role = role_of(self.round, self.keys)
            self.role.state.phase, self.role.state.accepted = stored.phase, stored.accepted

    def sizes(self) -> tuple[int, ...]:
        """Give the crowd of each group."""
        return tuple(self.crowd[number] for number in range(len(self._sizes)))

    def status(self) -> RoundStatus:
        """Say where the round stands."""
        terms = self.round.terms
        return RoundStatus(
            round=terms.round,
            digest=self.round.digest.hex(),
            phase=self.stored.phase.value,
            hop=self.hop,
            opens=terms.opens,
            closes=terms.closes,
            expires=terms.expires,
            groups=[
                GroupCount(name=group.name, minimum=group.minimum, crowd=crowd)
                for group, crowd in zip(terms.groups, self.sizes(), strict=True)
            ],
        )

    def fits(self, group: int, *, limit: int) -> bool:
        """Tell whether a batch and a bulletin of so many bytes carry one more report of a group."""
        whole = heading_size(len(self._sizes), self._hops) + self._sizes[group]
        for number, size in enumerate(self._sizes):
            whole += size * (self.crowd[number] + self.coming[number])
        return whole <= limit


def role_of(
    round_: Round, keys: Keyring, state: ShufflerState | None = None, bulk: Bulk | None = None
) -> Shuffler:
    """Make the role's object, with the keys that the terms name.

    Without a state it only checks uploads: it holds neither parcels nor the order's secret.
    """
    pairs = keys.of(*(party.verifying for party in round_.terms.shufflers))
    blank = ShufflerState(bytearray(SECRET_SIZE))
    return Shuffler(round_, keys=pairs, state=state or blank, bulk=bulk)
