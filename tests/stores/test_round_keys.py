"""Destruction of round keys, and records that arrive too late."""

import os
from pathlib import Path

import pytest

from coatcheck.errors import Forgotten, Refused
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.stores.round_keys import RoundKeys

DIGEST = b"d" * 32


def test_a_key_is_overwritten_before_it_is_removed(tmp_path: Path) -> None:
    """A second name of the key's file shows zeros."""
    round_keys = RoundKeys(tmp_path / "keys")
    round_keys.make(DIGEST)
    (path,) = (tmp_path / "keys").iterdir()
    os.link(path, tmp_path / "other")
    round_keys.destroy(DIGEST, "round")
    assert not path.exists()
    assert (tmp_path / "other").read_bytes() == bytes(32)
    with pytest.raises(Forgotten):
        round_keys.key(DIGEST)


def test_a_result_that_comes_after_its_phase_is_dropped() -> None:
    """A slow worker does not write into the next try of a reopened round."""
    store = ShufflerStore("memory:")
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(DIGEST, "one", b"signed"), fence=1)
    for move, kept in (("close", True), ("reopen", False)):
        store.move(DIGEST, move, fence=1)
        if kept:
            store.save_result(DIGEST, "peel 0-0", b"raw", fence=1)
            continue
        with pytest.raises(Refused, match="has moved on"):
            store.save_result(DIGEST, "peel 0-0", b"raw", fence=1)
        assert store.results(DIGEST) == {}
