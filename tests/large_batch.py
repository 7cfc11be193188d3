"""A server's batch on a disk that is large enough to be answered in parts, for tests of runners."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from coatcheck.entropy import seeded
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keyfiles import read_keys
from coatcheck.protocol.keys import KeyPairs, SealingKey
from coatcheck.protocol.manifest import PART, Batch
from coatcheck.protocol.messages import PayloadFormat
from coatcheck.protocol.parcels import Tally
from coatcheck.protocol.server import Server
from coatcheck.protocol.suites import ADDRESS_SIZE
from coatcheck.protocol.verification import verify_bulletin
from coatcheck.randomizers import from_params
from coatcheck.services.batches import IN, part_name
from coatcheck.services.server.answering import Answering, End
from coatcheck.services.server.bulletins import Outgoing
from coatcheck.services.settings import ServerSettings, read_settings
from coatcheck.stores.server import ServerRound, ServerStore
from shufflers import LoneShuffler

FENCE: Final = 1


class LargeBatch:
    """A batch of two partitions of riders and one of drivers, on a disk, with real key files."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        lone = LoneShuffler(folder, minimum=3)
        self.round, self.digest = lone.round, lone.round.digest
        plain = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        self.settings = msgspec.structs.replace(plain, **settings)
        self.keys = read_keys(folder / "server.key").pairs
        self.mine = KeyPairs(self.round.suite, bytes(32)).opening
        riders, drivers = (list(self._made(group, n)) for group, n in ((0, PART + 200), (1, 200)))
        parts = [[riders[:9000], riders[9000:]], [drivers]]
        batch = Batch.compose(parts, [Tally(len(riders)), Tally(len(drivers))], digest=self.digest)
        self.raw = batch.sign(read_keys(folder / "shuffler-1.key").pairs.signing.sign)
        batch = Batch.decode(self.raw, self.round)
        self.store = ServerStore(*self.settings.places)
        self.store.lead("me", seconds=10_000)
        self.store.begin(ServerRound(self.digest, "large", lone.signed), fence=FENCE)
        self.store.agree(self.digest, lone.signed, fence=FENCE)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE, whole=False)
        for number, part in enumerate(batch.parts):
            self.store.crate(self.digest).put(part_name(IN, number), part)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE)

    def _made(self, group: int, count: int) -> Iterator[bytes]:
        """Seal reports to the server; everybody has one key to receive with."""
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
        """Open every entry of a bulletin; its answer by its address."""
        found = {}
        for group, entries in enumerate(verify_bulletin(raw, self.round).entries):
            bound = binding(Purpose.ANSWER, digest=self.digest, group=group)
            for entry in entries:
                text = unseal(entry[ADDRESS_SIZE:], key=self.mine, bound=bound)
                found[entry[:ADDRESS_SIZE]] = text
        return found

    def make(self) -> End:
        """Do what is left of the answer."""
        return Answering(self.store, self.settings, self.store.round(self.digest), FENCE).make()

    def check(self, end: End) -> None:
        """Keep an end; everybody has the one answer that one process gives in memory."""
        self.store.answer(self.digest, end.move, end.heading, parts=end.parts, fence=FENCE)
        going = Outgoing(self.store, self.digest)
        found = self.read(going.heading + b"".join(map(going.part, going.names)))
        assert len(found) == PART + 400
        assert found == self.read(Server(self.round, keys=self.keys).answer(self.raw))
