"""A batch of more items than one partition, answered by a pool of processes that are killed."""

import os
from pathlib import Path

import pytest

from coatcheck.errors import Unavailable
from coatcheck.protocol.wire.batches import PART
from coatcheck.services import clock
from coatcheck.services.worker_pools import shared_pool
from support.blob_stores import MUCH, stored
from support.large_batch import LargeBatch

PLACES = ("open", "opened", "compute", "computed", "deal", "dealt", "seal", "sealed")


@pytest.mark.world
def test_killed_processes_cost_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are killed at each step of each stage; all people get their one answer."""
    large = LargeBatch(tmp_path)
    folder = tmp_path / "deaths"
    folder.mkdir()
    for place in PLACES:
        (folder / f"stage.{place}").touch()
    monkeypatch.setenv(clock.VARIABLE, str(folder))
    shared_pool.cache_clear()
    end, told = None, []
    while end is None:
        try:
            end = large.make()
        except Unavailable as error:
            told.append(str(error))
    assert not list(folder.iterdir())
    assert 1 <= len(told) <= len(PLACES)
    assert all("it is tried again" in text for text in told)
    assert large.store.progress(large.digest) == {
        "open": (3, 3),
        "compute": (1, 1),
        "deal": (3, 3),
        "seal": (2, 2),
    }
    # A part that was sealed when the pool broke is sealed afresh, and its file stays until the end.
    left = len(told) * PART * large.round.entry_size(0)
    assert stored(large.settings.folder) < MUCH * sum(large.people) + left
    large.check(large.keep(end))
    shared_pool(os.cpu_count() or 1).close()
    shared_pool.cache_clear()
