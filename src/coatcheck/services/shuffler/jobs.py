"""What a shuffler computes, in its worker: peel, permute, and write the batch."""

from functools import cache
from pathlib import Path

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.agreement import read_signed, settle
from coatcheck.protocol.shuffler import Shuffler, ShufflerState
from coatcheck.protocol.terms import Round
from coatcheck.services import faults
from coatcheck.services.keyring import Keyring
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.workers import Lanes
from coatcheck.stores import ShufflerStore, shuffler_store


@cache
def _store(url: str) -> ShufflerStore:
    return shuffler_store(url)


@cache
def _keyring(paths: tuple[Path, ...]) -> Keyring:
    return Keyring(paths)


def release_stored(settings: ShufflerSettings, digest: bytes, fence: int, now: int) -> bool:
    """Release a closed round of a store that this process opens itself."""
    return release(_store(settings.store_url), settings, digest, fence, now)


def release(
    store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int, now: int
) -> bool:
    """Release a closed round; False if it falls below its crowd.

    *Guarantee:* the same uploads and secret give the same bytes, so a second try after a crash
    changes nothing.
    """
    gathering = next(one for one in store.rounds() if one.digest == digest)
    if gathering.phase != "closed":
        return True
    paths = tuple(settings.path(name) for name in settings.keys)
    round_ = settle(read_signed(gathering.signed))
    lanes = Lanes(paths, count=settings.workers)
    state = ShufflerState(bytearray(gathering.secret), [{} for _ in round_.terms.groups])
    shuffler = restore(round_, state, _keyring(paths), lanes)
    if shuffler.hop:
        shuffler.accept(store.incoming(digest))
    else:
        for parcel in store.parcels(digest):
            shuffler.state.held[parcel.group][parcel.id] = parcel.body
    faults.reach("shuffler.shuffle")
    try:
        # The round is closed for good, whatever the clock says now.
        batch = shuffler.release(now=max(now, round_.terms.closes))
    except Refused:
        shuffler.abandon()  # this object only: what the store has stays
        return False
    faults.reach("shuffler.release")
    store.release(digest, batch, fence=fence)
    faults.reach("shuffler.released")
    return True


def place_in(round_: Round, keys: Keyring) -> int | None:
    """Find this shuffler's place in the cascade; None without a key of the terms."""
    mine = [at for at, one in enumerate(round_.terms.shufflers) if keys.has(one.verifying)]
    return mine[0] if mine else None


def restore(
    round_: Round, state: ShufflerState, keys: Keyring, lanes: Lanes | None = None
) -> Shuffler:
    """Make the role's object, with the keys that the terms name."""
    hop = place_in(round_, keys)
    if hop is None:
        raise Misuse("the terms name a key that this shuffler does not have: list its file")
    pairs = keys.of(round_.terms.shufflers[hop].verifying)
    return Shuffler(round_, keys=pairs, state=state, bulk=lanes)
