"""Jobs of a shuffler and a server up to the transition that stores their result."""

from unittest.mock import patch

from coatcheck.services.server.pipeline import End, answer
from coatcheck.services.server.store import ServerStore
from coatcheck.services.settings import ServerSettings, ShufflerSettings
from coatcheck.services.shuffler.pipeline import release
from coatcheck.services.shuffler.store import ShufflerStore


def manifest_of(
    store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int
) -> bytes | None:
    """Run the remaining stages of a release; return its manifest, or None without a crowd."""
    with patch.object(store, "move") as move:
        done = release(store, settings, digest, fence)
    manifest: bytes | None = move.call_args.kwargs["batch"] if done else None
    return manifest


def end_of(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> End:
    """Run the remaining stages of an answer; return the round's outcome."""
    with patch.object(store, "answer", return_value="") as keep:
        answer(store, settings, digest, fence)
    _, move, heading = keep.call_args.args
    options = keep.call_args.kwargs
    return End(move, heading, options["parts"], options["density"])
