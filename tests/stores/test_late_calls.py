"""Slow calls that finish after a change: another process leads, or a missing file exists."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.errors import Forgotten, Refused, Unavailable
from coatcheck.protocol.state_machine import ServerPhase, ShufflerPhase
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.stores.round_keys import RoundKeys

DIGEST = b"d" * 32
BATCH = (DIGEST, "batch")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[ShufflerStore, ShufflerStore]]:
    """Return two processes' stores of one shuffler with a closed round; the first leads."""
    url, keys = f"sqlite:{tmp_path / 'store.db'}", tmp_path / "keys"
    both = ShufflerStore(url, keys), ShufflerStore(url, keys)
    both[0].lead("first", seconds=60)
    both[0].begin(ShufflerRound(DIGEST, "one", b"signed", phase=ShufflerPhase.CLOSED), fence=1)
    yield both
    for one in both:
        one.close()


def test_a_key_that_is_being_destroyed_seals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a slow disk writes the zeros, a late worker that reads them gets no key."""
    round_keys, sync, met = RoundKeys(tmp_path), os.fsync, []
    round_keys.make(DIGEST)

    def slow(file: int) -> None:
        sync(file)
        if (tmp_path / f"{DIGEST.hex()}.round").exists():
            with pytest.raises(Forgotten):
                round_keys.key(DIGEST)
            met.append(file)

    monkeypatch.setattr(os, "fsync", slow)
    round_keys.destroy(DIGEST, "round")
    assert len(met) == 1


def test_a_key_that_a_crash_left_half_destroyed_is_drawn_anew(tmp_path: Path) -> None:
    """Zeros are no valid key, even for the process that makes the next one."""
    (tmp_path / f"{DIGEST.hex()}.batch").write_bytes(bytes(32))
    round_keys = RoundKeys(tmp_path)
    assert not round_keys.has(*BATCH)
    round_keys.make(*BATCH)
    assert round_keys.has(*BATCH)
    assert (tmp_path / f"{DIGEST.hex()}.batch").read_bytes() != bytes(32)


def test_a_former_leader_takes_nothing_from_the_next_one(
    stores: tuple[ShufflerStore, ShufflerStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first leader's blob store is slow; meanwhile the second one leads and releases."""
    first, second = stores
    first.prepare(DIGEST, "release", fence=1)
    first.files(DIGEST).put("out-0", b"old", use="batch")
    drop = first.blobs.drop
    late: list[tuple[bytes, str]] = []

    def slow(of: tuple[bytes, str]) -> None:
        if not late:
            late.append(of)
            first.resign("first")
            assert second.lead("second", seconds=60) == 2
            second.move(DIGEST, "close", fence=2)
            second.prepare(DIGEST, "release", fence=2)
            second.files(DIGEST).put("out-0", b"new", use="batch")
            second.move(DIGEST, "release", fence=2, batch=b"manifest")
        drop(of)

    monkeypatch.setattr(first.blobs, "drop", slow)
    first.move(DIGEST, "reopen", fence=1)
    assert len(late) == 1
    assert second.files(DIGEST).get("out-0", use="batch") == b"new"
    assert second.blob(DIGEST, "batch") == b"manifest"
    assert second.sweep(fence=2) == set()


def test_files_that_a_worker_makes_again_are_not_cleared(
    stores: tuple[ShufflerStore, ShufflerStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service sweeps leftovers while its worker, another process, restarts a release."""
    service, worker = stores
    service.blobs.put(BATCH, "out-0", b"under a key that is gone")
    listed = service.round_keys.listed

    def slow() -> set[tuple[bytes, str]]:
        found = listed()
        worker.prepare(DIGEST, "release", fence=1)
        assert worker.blobs.names(BATCH) == set()
        worker.files(DIGEST).put("out-0", b"new", use="batch")
        return found

    monkeypatch.setattr(service.round_keys, "listed", slow)
    service.clear()
    assert worker.files(DIGEST).get("out-0", use="batch") == b"new"


def test_files_of_a_lost_key_do_not_count_as_complete(
    stores: tuple[ShufflerStore, ShufflerStore],
) -> None:
    """Otherwise a resumed release would pass on files that no key opens."""
    store, _ = stores
    store.prepare(DIGEST, "release", fence=1)
    store.files(DIGEST).put("out-0", b"made", use="batch")
    store.prepare(DIGEST, "release", fence=1)
    assert store.files(DIGEST).get("out-0", use="batch") == b"made"
    store.round_keys.destroy(*BATCH)
    store.clear()
    assert store.blobs.names(BATCH) == {"out-0"}
    store.prepare(DIGEST, "release", fence=1)
    assert store.blobs.names(BATCH) == set()


@pytest.fixture
def awaiting(tmp_path: Path) -> Iterator[ServerStore]:
    """Provide a server that awaits a batch."""
    store = ServerStore(f"sqlite:{tmp_path / 'server.db'}", tmp_path / "keys")
    store.lead("me", seconds=60)
    store.begin(ServerRound(DIGEST, "one", b"signed"), fence=1)
    store.agree(DIGEST, b"signed", fence=1)
    yield store
    store.close()


def test_a_manifest_of_a_lost_key_gives_way_to_the_next_key(
    awaiting: ServerStore,
) -> None:
    """A crash came after the next key was made and before the manifest was stored under it."""
    assert awaiting.accept(DIGEST, b"manifest", fence=1, whole=False)
    awaiting.files(DIGEST).put("in-0", b"part")
    awaiting.round_keys.destroy(DIGEST, "round")
    awaiting.round_keys.make(DIGEST)
    assert awaiting.accept(DIGEST, b"manifest", fence=1, whole=False)
    assert awaiting.blob(DIGEST, "incoming") == b"manifest"
    assert awaiting.files(DIGEST).names() == set()


def test_a_batch_whose_key_is_lost_at_the_last_moment_is_sent_again(awaiting: ServerStore) -> None:
    """Its partitions are gone: the sender must not be told that the server has them."""
    assert awaiting.accept(DIGEST, b"manifest", fence=1, whole=False)
    awaiting.files(DIGEST).put("in-0", b"part")
    awaiting.round_keys.destroy(DIGEST, "round")
    with pytest.raises(Unavailable, match="send the batch again"):
        awaiting.accept(DIGEST, b"manifest", fence=1)
    assert awaiting.round(DIGEST).phase is ServerPhase.AWAITING
    assert awaiting.accept(DIGEST, b"manifest", fence=1, whole=False)
    assert awaiting.files(DIGEST).names() == set()


def test_a_batch_that_came_in_time_is_not_abandoned(awaiting: ServerStore) -> None:
    """The waiting step may learn late that the batch is here: then the server goes on with it."""
    assert awaiting.accept(DIGEST, b"manifest", fence=1)
    with pytest.raises(Refused):
        awaiting.answer(DIGEST, "abandon", b"end", fence=1)
    assert awaiting.round(DIGEST).phase is ServerPhase.BATCHED
    assert awaiting.blob(DIGEST, "incoming") == b"manifest"
    assert awaiting.answer(DIGEST, "lose", b"end", fence=1) == "abandoned"
