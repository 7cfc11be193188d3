"""A server's round on disk in many small parts, and the same round in memory, for its tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from coatcheck.protocol.agreement import write_signed
from coatcheck.protocol.wire import batches as manifests
from coatcheck.protocol.wire.batches import Batch
from coatcheck.services.batch_transfer import IN, part_name
from coatcheck.services.server import pipeline, task_stage
from coatcheck.services.server.pipeline import End
from coatcheck.services.server.rounds import OutgoingBulletin
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.settings import Keyring, ServerSettings
from coatcheck.tasks import Answers, AnswerSize, Floats, References, Task
from support.jobs import end_of
from support.rounds import SmallRound, upload_of

FENCE = 1


@dataclass(frozen=True)
class Pointing:
    """A task that refers each person to some riders, to none or to several, with their places."""

    groups: tuple[str, ...] = ("riders", "drivers")
    name: str = field(default="pointing")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Refer person n to n % 4 riders, the last of them in a second pass."""
        return [self._told(len(group), len(estimates[0])) for group in estimates]

    def _told(self, people: int, riders: int) -> References:
        counts = np.arange(people) % 4
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = (7 * np.arange(indptr[-1]) + people) % riders
        second = np.minimum(counts, 1)
        return References(0, indptr, indices, ordered=True, located=True, second=second)

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return three riders each."""
        del sizes
        return ((3, 0), (3, 0))

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Return the size of three references."""
        return tuple(AnswerSize(references=3) for _ in dimensions)

    def params(self) -> dict[str, object]:
        """Return no parameters."""
        return {"name": self.name}


class Scene:
    """A server's store on disk with the batch of one round, which includes some invalid reports."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, task: Task | None = None
    ) -> None:
        monkeypatch.setattr(manifests, "_BITS", 2)
        for module in (task_stage, pipeline):
            monkeypatch.setattr(module, "PART", 4)
        self.small = SmallRound(task=task, note_size=2)
        self.round, self.digest = self.small.round, self.small.round.digest
        keys = self.small.roles.server

        class Ring(Keyring):
            def __init__(self) -> None:
                self._pairs = {keys.signing.public_raw.hex(): keys}

        for owner in (pipeline, task_stage):
            monkeypatch.setattr(owner, "keyring_of", lambda paths: Ring())  # noqa: ARG005 - one ring
        monkeypatch.setattr(task_stage, "task_of", lambda work, settings: self.small.task)  # noqa: ARG005 - one task
        self.settings = ServerSettings(
            name="server",
            store="sqlite:store.db",
            keys=("server.key",),
            shufflers=("http://localhost",),
            board="http://localhost",
            workers=1,
            folder=str(folder),
        )
        groups = range(len(self.small.task.groups))
        self.crowd = [self.small.join(group) for _ in range(11) for group in groups]
        self.raw = self._batch()
        self.store = ServerStore(*self.settings.places)
        self.store.lead("me", seconds=10_000)
        signed = write_signed(self.small.signed)
        self.store.begin(ServerRound(self.digest, "example", signed), fence=FENCE)
        self.store.agree(self.digest, signed, fence=FENCE)
        batch = Batch.decode(self.raw, self.round)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE, whole=False)
        self.sealed_files = self.store.files(self.digest)
        for number, part in enumerate(batch.parts):
            self.sealed_files.put(part_name(IN, number), part)
        self.store.accept(self.digest, batch.manifest.encode(), fence=FENCE)
        self.blobs = folder / "store.blobs"

    def _batch(self) -> bytes:
        """Shuffle all uploads, a second report with the same keys and one of another version."""
        shuffler = self.small.filled(self.crowd)
        last = len(self.small.task.groups) - 1
        size = self.round.report_size(last) - 2 - len(self.crowd[0].keys.contact_raw)
        for number, version in enumerate((1, 7)):
            text = bytes((version, last)) + self.crowd[0].keys.contact_raw + bytes(size)
            raw = upload_of(text, self.round, group=last, name=bytes([number]) * 16)
            shuffler.receive(raw, now=self.round.terms.opens)
        shuffler.close(now=self.round.terms.closes)
        return shuffler.release()

    def make(self) -> End:
        """Run the remaining stages of the answer."""
        return end_of(self.store, self.settings, self.digest, FENCE)

    def keep(self, end: End) -> bytes:
        """Store an outcome and return the bytes for the board."""
        given = {"parts": end.parts, "density": end.density, "fence": FENCE}
        self.store.answer(self.digest, end.move, end.heading, **given)  # type: ignore[arg-type] # as named
        return self.bulletin()

    def bulletin(self) -> bytes:
        """Return the bytes for the board."""
        going = OutgoingBulletin(self.store, self.digest)
        return going.heading + b"".join(map(going.part, going.names))

    def files(self) -> list[str]:
        """List the files in the blob store."""
        return sorted(path.name for path in self.blobs.rglob("*") if path.is_file())
