"""A release in parts equals the one made in memory, despite crashes and failures."""

from pathlib import Path

import pytest

from coatcheck.errors import Full, Unavailable
from coatcheck.protocol.agreement import write_signed
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.wire import batches as manifests
from coatcheck.protocol.wire.batches import PART, Batch
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services import clock
from coatcheck.services.batch_transfer import IN, OUT, part_name
from coatcheck.services.settings import Keyring, ShufflerSettings
from coatcheck.services.shuffler import pipeline
from coatcheck.services.shuffler.pipeline import Release
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.services.worker_pools import InlineRunner, PoolRunner, runner_for, shared_pool
from support.blob_stores import MUCH, leave_room, stored
from support.deaths import DiesAt, Lost
from support.jobs import manifest_of
from support.large import Large
from support.rounds import OPENS, SmallRound

CASCADE = SmallRound(shufflers=2, minimum=2)
CROWD = CASCADE.crowd(9)
FENCE = 1


class Scene:
    """A shuffler's store on disk with a closed round, and the same round in memory."""

    def __init__(self, folder: Path, hop: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifests, "_BITS", 1)
        monkeypatch.setattr(pipeline, "PART", 4)
        keys = CASCADE.roles.shufflers[hop]

        class Ring(Keyring):
            def __init__(self) -> None:
                self._pairs = {keys.signing.public_raw.hex(): keys}

        monkeypatch.setattr(pipeline, "keyring_of", lambda paths: Ring())  # noqa: ARG005 - one ring
        self.folder = folder
        self.settings = ShufflerSettings(
            name="shuffler",
            store="sqlite:store.db",
            keys=("shuffler.key",),
            admission="open",
            workers=1,
            folder=str(folder),
        )
        self.digest = CASCADE.round.digest
        self.store = ShufflerStore(*self.settings.places)
        self.store.lead("me", seconds=10_000)
        signed = write_signed(CASCADE.signed)
        self.store.begin(ShufflerRound(self.digest, "example", signed), fence=FENCE)
        self.role = CASCADE.shuffler(hop)
        self.role.state.secret[:] = self.store.secret(self.digest)
        CASCADE.upload(CROWD, self.role)
        for ticket in CROWD:
            self.store.put([self._vetted(ticket, hop)])
        if hop:
            self._accept(CASCADE.filled(CROWD))
        else:
            self.role.close(now=CASCADE.round.terms.closes)
            self.store.move(self.digest, "close", fence=FENCE)
        self.sealed = self.store.files(self.digest)
        self.files = folder / "store.blobs" / f"{self.digest.hex()}.round"
        self.role.state.held = self.store.held(self.digest)

    def _vetted(self, ticket: object, hop: int) -> Upload:
        raw = (ticket.upload, *ticket.registrations)[hop]  # type: ignore[attr-defined] # a ticket
        return self.role.check(raw, now=OPENS)

    def _accept(self, first: Shuffler) -> None:
        first.close(now=CASCADE.round.terms.closes)
        raw = first.release()
        self.role.accept(raw)
        batch = Batch.decode(raw, CASCADE.round)
        manifest = batch.manifest.encode()
        self.store.accept(self.digest, manifest, fence=FENCE, whole=False)
        for number, part in enumerate(batch.parts):
            self.store.files(self.digest).put(part_name(IN, number), part)
        self.store.accept(self.digest, manifest, fence=FENCE)

    def close_again(self, *, late: int) -> None:
        """Let this many more people join the first shuffler's round, and close it."""
        more = [CASCADE.join(0) for _ in range(late)]
        for ticket in more:
            self.store.put([self._vetted(ticket, 0)])
        self.store.move(self.digest, "close", fence=FENCE)
        self.role.state.phase = ShufflerPhase.OPEN
        for ticket in more:
            self.role.receive(ticket.upload, now=OPENS)
        self.role.close(now=CASCADE.round.terms.closes)

    def make(self) -> bytes | None:
        """Run the remaining stages of the release."""
        return manifest_of(self.store, self.settings, self.digest, FENCE)

    def check(self, manifest: bytes | None) -> None:
        """Compare every byte with what the role computes in memory."""
        raw = self.role.release()
        assert manifest is not None
        assert raw.startswith(manifest)
        parts = Batch.decode(raw, CASCADE.round).parts
        assert len(parts) == 32
        made = [self.sealed.get(part_name(OUT, n), use="batch") for n in range(len(parts))]
        assert made == list(parts)


@pytest.fixture(params=[0, 1], ids=["first hop", "second hop"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Provide a closed round at each place of a cascade of two, in many small parts."""
    return Scene(tmp_path, request.param, monkeypatch)


def test_parts_give_the_bytes_of_the_whole(scene: Scene) -> None:
    """From uploads or a batch, with repeated runs, one part after the other: the same manifest."""
    manifest = scene.make()
    before = scene.store.results(scene.digest)
    assert scene.make() == manifest
    assert scene.store.results(scene.digest) == before
    scene.check(manifest)
    assert scene.store.sweep(fence=FENCE) == set()
    scene.store.move(scene.digest, "release", fence=FENCE, batch=manifest or b"")
    assert not scene.files.exists()
    assert len(scene.sealed.names("batch")) == 32


STAGES = ("stage.export", "stage.peel", "stage.peeled", "stage.sift", "stage.gather")


@pytest.mark.parametrize("place", [*STAGES, "stage.gathered"])
def test_a_release_goes_on_where_it_stopped(
    place: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at every third event; stored parts are not computed again."""
    monkeypatch.setattr(clock, "reach", DiesAt(place, every=3, first=3))
    stops, manifest = 0, None
    while manifest is None:
        noted = scene.store.results(scene.digest)
        try:
            manifest = scene.make()
        except Lost:
            stops += 1
        assert noted.items() <= scene.store.results(scene.digest).items()
    # A release is sifted once, and only the first shuffler exports uploads.
    assert stops or place == "stage.sift" or (place == "stage.export" and scene.role.hop)
    scene.check(manifest)
    assert not [name for name in scene.sealed.names() if name.startswith(".")]


def test_a_blob_store_without_room_keeps_the_round_where_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the blob store; the round stays closed and is released later."""
    left = leave_room(monkeypatch, files=5)
    for _ in range(2):
        with pytest.raises(Full, match="blob store"):
            scene.make()
        assert scene.store.round(scene.digest).phase is ShufflerPhase.CLOSED
    left[0] = 10_000
    scene.check(scene.make())


def test_a_changed_file_is_named_and_can_be_made_again(scene: Scene) -> None:
    """Altered bytes are never used; once the file is gone, the stage makes it again."""
    scene.make()
    # The largest one: a file that no item was dealt to is not read.
    path = max(scene.files.glob("shares-*"), key=lambda one: one.stat().st_size)
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    for out in (scene.files.parent / f"{scene.digest.hex()}.batch").iterdir():
        out.unlink()
    with pytest.raises(Unavailable, match=f"{path.name}/.* is not what was put there"):
        scene.make()
    path.unlink()
    scene.check(scene.make())


def test_every_missing_file_of_a_release_is_made_again(scene: Scene) -> None:
    """This includes the lists of dropped ranks, which intermediate stages write."""
    first = scene.make()
    for folder in scene.files.parent.iterdir():
        for path in folder.iterdir():
            if not path.name.startswith("in-"):
                path.unlink()
    assert scene.make() == first
    scene.check(first)


def test_a_changed_partition_of_the_batch_before_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be made here: once it is restored, the release goes on."""
    scene = Scene(tmp_path, 1, monkeypatch)
    path = scene.files / part_name(IN, 3)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(Unavailable, match="in-3 in the blob store is not what was put there"):
        scene.make()
    path.write_bytes(good)
    scene.check(scene.make())


def test_a_round_that_reopens_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and files of the previous try are gone: the next try has other uploads."""
    scene = Scene(tmp_path, 0, monkeypatch)
    scene.make()
    scene.store.move(scene.digest, "reopen", fence=FENCE)
    assert (scene.store.results(scene.digest), scene.files.exists()) == ({}, False)
    assert scene.store.round_keys.listed() == {(scene.digest, "round")}
    scene.close_again(late=1)
    scene.check(scene.make())


def test_old_files_of_a_reopened_round_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed store or a crash left them behind: still no upload is lost."""
    scene = Scene(tmp_path, 0, monkeypatch)
    scene.make()
    with monkeypatch.context() as trouble:
        trouble.setattr(scene.store.blobs, "drop", _fails)
        with pytest.raises(Unavailable):
            scene.store.move(scene.digest, "reopen", fence=FENCE)
    scene.store.sweep(fence=FENCE)
    scene.store.clear()
    assert scene.files.exists()
    scene.close_again(late=6)
    scene.check(scene.make())


def test_a_late_worker_writes_no_file_of_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a former leader write their files after the next leader has peeled."""
    scene = Scene(tmp_path, 0, monkeypatch)
    scene.make()
    found = {path.name: path.read_bytes() for path in scene.files.iterdir()}
    scene.store.move(scene.digest, "reopen", fence=FENCE)
    scene.close_again(late=6)
    sifted = Release.sift

    def late(self: Release) -> pipeline.Sifted | None:
        for name, raw in found.items():
            (scene.files / name).write_bytes(raw)
        return sifted(self)

    monkeypatch.setattr(Release, "sift", late)
    scene.check(scene.make())


def _fails(of: object) -> None:
    raise Unavailable(f"the blob store keeps {of}")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Large:
    """Provide the large round and its result."""
    return Large(tmp_path_factory.mktemp("large"), people=PART + 200)


def test_killed_processes_cost_only_time(
    large: Large, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pool processes are killed at each step of each stage; the bytes are the same."""
    places = ("stage.peel", "stage.peeled", "stage.gather", "stage.gathered")
    for place in places:
        (tmp_path / place).touch()
    monkeypatch.setenv(clock.VARIABLE, str(tmp_path))
    shared_pool.cache_clear()
    manifest, told = None, []
    while manifest is None:
        try:
            manifest = large.make()
        except Unavailable as error:
            told.append(str(error))
    assert not list(tmp_path.iterdir())
    assert 1 <= len(told) <= len(places)
    assert all("it is tried again" in text for text in told)
    assert large.check(manifest) == 3
    assert stored(large.settings.folder) < MUCH * len(large.uploads)
    shared_pool(2).close()
    shared_pool.cache_clear()


def test_little_is_done_by_this_process(tmp_path: Path) -> None:
    """A round with one partition, or in memory, starts no processes."""
    files = ShufflerStore("memory:").files(bytes(32))

    def chosen(store: str, *, little: bool, workers: int = 2) -> type:
        asked = ShufflerSettings(
            name="s", store=store, keys=("k",), workers=workers, folder=str(tmp_path)
        )
        return type(runner_for(asked, files, is_small=little))

    assert chosen("sqlite:s.db", little=False) is PoolRunner
    assert chosen("sqlite:s.db", little=True) is InlineRunner
    assert chosen("sqlite:s.db", little=False, workers=1) is InlineRunner
    assert chosen("memory:", little=False) is InlineRunner
