"""Jobs of a shuffler and a server up to the move that stores what they made, for tests of both."""

from unittest.mock import patch

from coatcheck.services.server.pipeline import End, answer
from coatcheck.services.server.store import ServerStore
from coatcheck.services.settings import ServerSettings, ShufflerSettings
from coatcheck.services.shuffler.pipeline import release
from coatcheck.services.shuffler.store import ShufflerStore


def manifest_of(
    store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int
) -> bytes | None:
    """Do what is left of a release; give its manifest, or None if too few people are left."""
    with patch.object(store, "move") as move:
        done = release(store, settings, digest, fence)
    manifest: bytes | None = move.call_args.kwargs["batch"] if done else None
    return manifest


def end_of(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> End:
    """Do what is left of an answer; give how the round ends."""
    with patch.object(store, "answer", return_value="") as keep:
        answer(store, settings, digest, fence)
    _, move, heading = keep.call_args.args
    options = keep.call_args.kwargs
    return End(move, heading, options["parts"], options["density"])
