"""A round on disk that is large enough to be released in parts, for tests of runners."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from coatcheck.protocol.envelope import Purpose, binding, seal
from coatcheck.protocol.keys import SealingKey, read_keys
from coatcheck.protocol.shuffler import Shuffler, ShufflerState
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.batch_transfer import OUT, part_name
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from support.jobs import manifest_of
from support.shufflers import LoneShuffler

FENCE: Final = 1


class Large:
    """A closed round of many people in the first of two groups, with real key files.

    Attributes:
        settings: those of the shuffler, with a pool of two.
    """

    def __init__(self, folder: Path, *, people: int, **settings: Any) -> None:
        lone = LoneShuffler(folder, minimum=3)
        self.round, self.digest = lone.round, lone.round.digest
        self.settings = ShufflerSettings(
            name="shuffler-1",
            store="sqlite:large.db",
            keys=("shuffler-1.key",),
            admission="open",
            workers=2,
            folder=str(folder),
            **settings,
        )
        self.store = ShufflerStore(*self.settings.places)
        self.store.lead("me", seconds=10_000)
        self.store.begin(ShufflerRound(self.digest, "large", lone.signed), fence=FENCE)
        self.uploads = list(self._made(people))
        each = max(1, people // 40)
        for at in range(0, len(self.uploads), each):
            self.store.put(self.uploads[at : at + each])
        self.store.move(self.digest, "close", fence=FENCE)
        keys = read_keys(folder / "shuffler-1.key")
        self.seed, self.pairs = keys.seed, keys.pairs

    def _made(self, count: int) -> Iterator[Upload]:
        """Seal bytes that only this shuffler can open; the content does not matter."""
        to = SealingKey(self.round.suite, bytes.fromhex(self.round.terms.shufflers[0].sealing))
        for number in range(count + count // 80):
            group, name = int(number >= count), os.urandom(16)
            text = os.urandom(self.round.item_size(group, 1))
            place = {"digest": self.digest, "group": group, "upload": name}
            bound = binding(Purpose.LAYER, hop=0, **place)  # type: ignore[arg-type] # as named
            yield Upload(group, self.digest, name, seal(text, to=to, bound=bound))

    def make(self) -> bytes | None:
        """Run the remaining stages of the release."""
        return manifest_of(self.store, self.settings, self.digest, FENCE)

    def whole(self) -> bytes:
        """Return the batch as one process computes it in memory."""
        kept = {one.id: (one.group, one.body) for one in self.uploads}
        state = ShufflerState(bytearray(self.store.secret(self.digest)), kept)
        role = Shuffler(self.round, keys=self.pairs, state=state)
        role.close(now=self.round.terms.closes)
        return role.release()

    def check(self, manifest: bytes) -> int:
        """Check every byte against the batch made in memory; return the number of partitions."""
        whole = self.whole()
        assert whole.startswith(manifest)
        parts = Batch.decode(whole, self.round).parts
        sealed_files = self.store.files(self.digest)
        made = [sealed_files.get(part_name(OUT, n), use="batch") for n in range(len(parts))]
        assert made == list(parts)
        return len(parts)
