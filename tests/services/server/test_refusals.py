"""A round that its task cannot answer ends with a signed refusal, without endless retries."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coatcheck.errors import Error, Misuse, Refused
from coatcheck.protocol.agreement import write_signed
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.outcomes import OPERATOR, TASK, inconsistency
from coatcheck.protocol.state_machine import ServerPhase
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.bulletins import ABANDONED, REFUSED, SERVER
from coatcheck.services.batch_transfer import IN, part_name
from coatcheck.services.server import pipeline, task_stage
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.settings import Keyring, ServerSettings
from support.rounds import Echo, SmallRound


class Scene:
    """A server's store with the batch of a round, and a task that fails as the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.small = SmallRound()
        self.batch = Batch.decode(self.small.batch(self.small.crowd(2)), self.small.round)
        self.store = ServerStore("memory:")
        self.digest = self.small.round.digest
        self.store.lead("me", seconds=60)
        signed = write_signed(self.small.signed)
        self.store.begin(ServerRound(self.digest, "example", signed), fence=1)
        self.store.agree(self.digest, signed, fence=1)
        self.store.accept(self.digest, self.batch.manifest.encode(), fence=1)
        for number, part in enumerate(self.batch.parts):
            self.store.files(self.digest).put(part_name(IN, number), part)
        self.settings = ServerSettings(
            name="server",
            store="memory:",
            keys=("server.key",),
            shufflers=("http://localhost",),
            board="http://localhost",
            workers=1,
            folder=str(folder),
        )
        keys = self.small.roles.server

        class Ring(Keyring):
            def __init__(self) -> None:
                self._pairs = {keys.signing.public_raw.hex(): keys}

        class Failing(Echo):
            def __call__(self, estimates: object) -> list[object]:  # type: ignore[override]
                del estimates
                raise error

        for module in (pipeline, task_stage):
            monkeypatch.setattr(module, "keyring_of", lambda paths: Ring())  # noqa: ARG005 - one ring
        monkeypatch.setattr(task_stage, "task_of", lambda work, settings: Failing())  # noqa: ARG005 - one task

    def answer(self) -> str:
        """Try to answer."""
        return pipeline.answer(self.store, self.settings, self.digest, 1)


@pytest.mark.parametrize("job", [pipeline.answer, pipeline.refuse])
def test_a_batch_whose_key_is_gone_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Callable[..., str]
) -> None:
    """A batch that cannot be opened ends the round at once, and nothing of it is counted."""
    scene = Scene(tmp_path, monkeypatch, Refused("never asked"))
    scene.store.round_keys.destroy(scene.digest, "round")
    assert scene.store.sweep(fence=1) == {scene.digest}
    assert job(scene.store, scene.settings, scene.digest, 1) == "abandoned"
    heading = verify_bulletin(scene.store.blob(scene.digest, "bulletin"), scene.small.round).heading
    assert (heading.outcome, heading.reason, heading.signer) == (ABANDONED, OPERATOR, SERVER)
    assert not inconsistency(heading, scene.small.round)


def test_what_the_task_refuses_is_told_to_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A crowd too large for the answers stays too large: the refusal is a signed bulletin."""
    scene = Scene(tmp_path, monkeypatch, Refused("12 reports, and 5f3a9c is one of them"))
    assert scene.answer() == "refused"
    bulletin = verify_bulletin(scene.store.blob(scene.digest, "bulletin"), scene.small.round)
    assert bulletin.heading.outcome == REFUSED
    assert scene.store.rounds()[0].phase is ServerPhase.REFUSED
    assert "5f3a9c" not in caplog.text


@pytest.mark.parametrize(
    "error", [Misuse("a file is missing"), ZeroDivisionError("a bug"), MemoryError()]
)
def test_what_may_pass_or_be_mended_is_tried_again_until_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Faults that may pass are retried; the round's deadline ends it with a signed outcome."""
    scene = Scene(tmp_path, monkeypatch, error)
    with pytest.raises((Error, ZeroDivisionError, MemoryError)):
        scene.answer()
    assert scene.store.rounds()[0].phase is ServerPhase.BATCHED
    assert pipeline.refuse(scene.store, scene.settings, scene.digest, 1) == "refused"
    heading = verify_bulletin(scene.store.blob(scene.digest, "bulletin"), scene.small.round).heading
    assert (heading.outcome, heading.reason, heading.signer) == (REFUSED, TASK, SERVER)
    assert not inconsistency(heading, scene.small.round)
