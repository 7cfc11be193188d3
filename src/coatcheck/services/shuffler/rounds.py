"""A shuffler's rounds as its process holds them: terms, crowd, phase, never the order's secret."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from coatcheck.protocol.agreement import read_signed, settle
from coatcheck.protocol.notices import heading_size
from coatcheck.protocol.shuffler import SECRET_SIZE, Shuffler, ShufflerState
from coatcheck.protocol.terms import Round
from coatcheck.services.keyring import Keyring
from coatcheck.services.shuffler.jobs import place_in, restore
from coatcheck.stores import Gathering


@dataclass
class Live:
    """A round as this process holds it.

    Attributes:
        role: checks uploads and signs for them; None once the round is over.
        hop: the place in the cascade; None if the round is over and its key was taken away.
        crowd: how many uploads of each group are on the disk.
        coming: how many wait for it.
        short: the crowd with which the round last fell below its minimum.
        rest: when it may be released again after that, by the steady clock.
    """

    round: Round
    role: Shuffler | None
    hop: int | None
    stored: Gathering
    largest: int
    crowd: Counter[int] = field(default_factory=Counter)
    coming: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    rest: float = 0.0
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        groups = range(len(self.round.terms.groups))
        # Whatever is larger: its item in the first batch, or its entry on the bulletin.
        self._sizes = [
            max(self.round.item_size(group, 1), self.round.entry_size(group)) for group in groups
        ]

    def fits(self, group: int, *, limit: int) -> bool:
        """Tell whether a batch and a bulletin of so many bytes carry one more report of a group."""
        whole = heading_size(len(self._sizes)) + self._sizes[group]
        for number, size in enumerate(self._sizes):
            whole += size * (self.crowd[number] + self.coming[number])
        return whole <= limit

    def update(self, stored: Gathering) -> None:
        """Take over where the round stands now."""
        self.stored = without_secret(stored)
        if is_over(stored):
            self.role = None


def is_over(stored: Gathering) -> bool:
    """Tell whether nothing is left to do for a round, so that no key is needed for it."""
    return stored.phase in {"released", "abandoned"} and not stored.waiting


def without_secret(stored: Gathering) -> Gathering:
    """Leave the secret out: only the worker that releases needs it, and reads it by itself."""
    return replace(stored, secret=bytes(SECRET_SIZE))


def opened(round_: Round, keys: Keyring) -> Shuffler:
    """Make the object that checks uploads; it holds neither parcels nor the order's secret."""
    state = ShufflerState(bytearray(SECRET_SIZE), [{} for _ in round_.terms.groups])
    return restore(round_, state, keys)


def made_live(stored: Gathering, keys: Keyring, crowd: dict[int, int]) -> Live:
    """Make a round of its record; one that is over needs no key any more."""
    round_ = settle(read_signed(stored.signed))
    largest = max(round_.upload_size(group) for group in range(len(round_.terms.groups)))
    role = None if is_over(stored) else opened(round_, keys)
    hop = place_in(round_, keys)
    return Live(round_, role, hop, without_secret(stored), largest, Counter(crowd))
