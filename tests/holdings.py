"""What a shuffler's store holds of a round, read back as a release reads it."""

from coatcheck.protocol.parcels import ID_SIZE
from coatcheck.stores.shuffler import ShufflerStore, opened


def held(store: ShufflerStore, digest: bytes) -> dict[bytes, tuple[int, bytes]]:
    """Give group and body of all uploads by their ids; `Forgotten` if the key is gone."""
    key = store.shelf(digest).key()
    found = {}
    for group in store.crowd(digest):
        for page in store.pages(digest, group, 7):
            for name, body in page:
                raw = opened(key, digest, group, name, body)
                found[raw[:ID_SIZE]] = (group, raw[ID_SIZE:])
    return found


def secret(store: ShufflerStore, digest: bytes) -> bytes:
    """Give the secret of a round's order; `Forgotten` if the key is gone."""
    return store.shelf(digest).key().secret
