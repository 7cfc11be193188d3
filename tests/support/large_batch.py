"""A server's batch on disk that is large enough to be answered in parts, for tests of runners."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from coatcheck.entropy import seeded
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs, SealingKey, read_keys
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.server import Server
from coatcheck.protocol.terms import ADDRESS_SIZE
from coatcheck.protocol.wire.batches import PART, Batch, bits_of
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.randomizers import from_params
from coatcheck.services.batch_transfer import IN, part_name
from coatcheck.services.server.pipeline import End
from coatcheck.services.server.rounds import OutgoingBulletin
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.settings import ServerSettings, read_settings
from support.jobs import end_of
from support.shufflers import LoneShuffler

FENCE: Final = 1


class LargeBatch:
    """A batch on disk, with real key files: by default two partitions of riders, one of drivers.

    Attributes:
        people: how many there are of each group.
    """

    def __init__(
        self,
        folder: Path,
        *,
        people: Sequence[int] = (PART + 200, 200),
        plan: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.people = people
        lone = LoneShuffler(folder, minimum=3, plan=plan)
        self.round, self.digest = lone.round, lone.round.digest
        plain = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        self.settings = msgspec.structs.replace(plain, **settings)
        self.keys = read_keys(folder / "server.key").pairs
        self.mine = KeyPairs(self.round.suite, bytes(32)).opening
        parts = [list(self._parted(*one)) for one in enumerate(people)]
        batch = Batch.compose(parts, [Tally(n) for n in people], digest=self.digest)
        self.raw = batch.sign(read_keys(folder / "shuffler-1.key").pairs.signing.sign)
        batch = Batch.decode(self.raw, self.round)
        self.store = ServerStore(*self.settings.places)
        self.store.lead("me", seconds=10_000)
        self.store.begin(ServerRound(self.digest, "large", lone.signed), fence=FENCE)
        self.store.agree(self.digest, lone.signed, fence=FENCE)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE, whole=False)
        for number, part in enumerate(batch.parts):
            self.store.files(self.digest).put(part_name(IN, number), part)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE)

    def _parted(self, group: int, count: int) -> Iterator[list[bytes]]:
        """Split a group into as many partitions as its size requires."""
        items = list(self._made(group, count))
        each = -(-count >> bits_of(count, self.round.item_size(group, 1)))
        return (items[at : at + each] for at in range(0, len(items), each))

    def _made(self, group: int, count: int) -> Iterator[bytes]:
        """Seal reports to the server; all people share one key for their answers."""
        of = self.round.terms.groups[group]
        randomizer = from_params(of.randomizer)
        form = PayloadFormat.between(randomizer.low, randomizer.high)
        where = np.random.default_rng(group).random((count, 2))
        bound = binding(Purpose.REPORT, digest=self.digest, group=group)
        to = SealingKey(self.round.suite, bytes.fromhex(self.round.terms.server.sealing))
        for report in randomizer.randomize(where, seeded(group)).tolist():
            contact = self.mine.public_raw + os.urandom(31) + b"\1"
            text = bytes((1, group)) + contact + form.encode(report) + bytes(of.note_size)
            yield seal(text, to=to, bound=bound)

    def read(self, raw: bytes) -> dict[bytes, bytes]:
        """Open every entry of a bulletin; return each answer by its address."""
        found = {}
        for group, entries in enumerate(verify_bulletin(raw, self.round).entries):
            bound = binding(Purpose.ANSWER, digest=self.digest, group=group)
            for entry in entries:
                text = unseal(entry[ADDRESS_SIZE:], key=self.mine, bound=bound)
                found[entry[:ADDRESS_SIZE]] = text
        return found

    def make(self) -> End:
        """Run the remaining stages of the answer."""
        return end_of(self.store, self.settings, self.digest, FENCE)

    def keep(self, end: End) -> bytes:
        """Store an outcome and return the bytes for the board."""
        self.store.answer(self.digest, end.move, end.heading, parts=end.parts, fence=FENCE)
        going = OutgoingBulletin(self.store, self.digest)
        return going.heading + b"".join(map(going.part, going.names))

    def whole(self) -> bytes:
        """Return the bulletin as one process computes it in memory."""
        return Server(self.round, keys=self.keys).answer(self.raw)

    def check(self, bulletin: bytes) -> None:
        """Check that every person has the same answer as computed in memory."""
        found = self.read(bulletin)
        assert len(found) == sum(self.people)
        assert found == self.read(self.whole())
