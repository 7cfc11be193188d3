"""What a shuffler computes, in its worker: peel, permute, and write the batch."""

from functools import cache
from pathlib import Path

from coatcheck.agreement import read_signed, settle
from coatcheck.entropy import system
from coatcheck.errors import Refused
from coatcheck.services import faults
from coatcheck.services.keyring import Keyring
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.workers import Lanes
from coatcheck.shuffler import Shuffler, ShufflerState, fresh_state
from coatcheck.stores import Gathering, ShufflerStore, shuffler_store
from coatcheck.terms import Round


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
    shuffler = restore(round_, gathering, _keyring(paths), Lanes(paths, count=settings.workers))
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
        return False
    faults.reach("shuffler.release")
    store.release(digest, batch, fence=fence)
    faults.reach("shuffler.released")
    return True


def restore(
    round_: Round, gathering: Gathering, keys: Keyring, lanes: Lanes | None = None
) -> Shuffler:
    """Make the role's object again from what is stored."""
    blank = fresh_state(round_, system())
    state = ShufflerState(bytearray(gathering.secret), blank.held)
    mine = next(party for party in round_.terms.shufflers if keys.has(party.verifying))
    return Shuffler(round_, keys=keys.of(mine.verifying), state=state, bulk=lanes)
