"""What a shuffler computes, in its worker: peel, permute, and write the batch."""

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import read_signed, settle
from coatcheck.protocol.manifest import Batch
from coatcheck.protocol.shuffler import ShufflerState
from coatcheck.protocol.shuffler_moves import MOVES
from coatcheck.services import faults
from coatcheck.services.batches import OUT, joined, part_name
from coatcheck.services.keyring import keyring_of
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.rounds import role_of
from coatcheck.services.workers import Lanes
from coatcheck.stores.shuffler import ShufflerStore


def release(store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int) -> bool:
    """Release a closed round; False if it falls below its crowd.

    *Guarantee:* the same uploads and secret give the same bytes, so a second try after a crash
    changes nothing.
    """
    stored = store.round(digest)
    if not MOVES.allows(stored.phase, "release"):
        return True  # a try before this one did it
    round_ = settle(read_signed(stored.signed))
    state = ShufflerState(
        bytearray(store.secret(digest)),
        store.held(digest),
        stored.phase,
        joined(store, round_, store.kept(digest, "incoming")) if stored.accepted else b"",
        stored.accepted,
    )
    keys = keyring_of(settings.key_files)
    role = role_of(round_, keys, state, Lanes(settings))
    faults.reach("shuffler.shuffle")
    try:
        batch = role.release()
    except Refused:
        role.abandon()  # this object only: what the store has stays
        return False
    faults.reach("shuffler.release")
    found = Batch.decode(batch, round_)
    store.prepare(digest, fence=fence)
    for number, part in enumerate(found.parts):
        store.stow(digest, part_name(OUT, number), part, use="batch")
    store.move(digest, "release", fence=fence, batch=found.manifest.encode())
    faults.reach("shuffler.released")
    return True
