"""A shuffler's rounds as its process holds them: terms, crowd, phase, never the order's secret."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from coatcheck.agreement import read_signed, settle
from coatcheck.services.keyring import Keyring
from coatcheck.services.shuffler_jobs import place_in, restore
from coatcheck.shuffler import SECRET_SIZE, Shuffler, ShufflerState
from coatcheck.stores import Gathering
from coatcheck.terms import Round


@dataclass
class Live:
    """A round as this process holds it.

    Attributes:
        role: checks uploads and signs for them; None once the round is over.
        hop: the place in the cascade; None if the round is over and its key was taken away.
    """

    round: Round
    role: Shuffler | None
    hop: int | None
    stored: Gathering
    largest: int
    crowd: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

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
