"""What a shuffler computes, in its worker: a release."""

from coatcheck.protocol.shuffler_moves import MOVES
from coatcheck.services import faults
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.release import Release
from coatcheck.stores.shuffler import ShufflerStore


def release(store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int) -> bool:
    """Release a closed round; False if it falls below its crowd.

    *Guarantee:* the same uploads and secret give the same bytes, so a second try after a crash
    changes nothing.
    """
    stored = store.round(digest)
    if not MOVES.allows(stored.phase, "release"):
        return True  # a try before this one did it
    faults.reach("shuffler.shuffle")
    manifest = Release(store, settings, stored, fence).make()
    if manifest is None:
        return False
    faults.reach("shuffler.release")
    store.move(digest, "release", fence=fence, batch=manifest)
    faults.reach("shuffler.released")
    return True
