"""Independent libraries speak Oblivious HTTP with our relay and our gateway."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from coatcheck.protocol.oblivious_http import SIZES
from coatcheck.protocol.wire.bulletins import CHECKPOINT_SIZE, Checkpoint
from coatcheck.services.local_cluster import Cluster
from world.web.browser import HERE, needed


def test_a_client_made_of_hpke_and_bhttp_js_is_answered(tmp_path: Path) -> None:
    """A checkpoint and an unknown round: both answers are sealed and have one size."""
    npm, node = needed("npm"), needed("node")
    peer = tmp_path / "peer"
    shutil.copytree(HERE / "peer", peer)
    install = [npm, "ci", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=peer, check=False, capture_output=True, timeout=120)  # noqa: S603 - by the lock file
    if done.returncode and not os.environ.get("CI"):
        pytest.skip("npm cannot fetch the packages that this client is made of")
    assert done.returncode == 0, done.stderr
    local = Cluster(tmp_path / "cluster", relay=True)
    try:
        for name in ("board", "relay"):
            local.start(name)
        local.wait_until_leads("board")
        paths = ("/checkpoint", f"/rounds/{'0' * 64}/heading")
        command = [node, "client.mjs", local.url("relay"), local.url("board"), *paths]
        result = subprocess.run(command, cwd=peer, check=True, capture_output=True, timeout=120)  # noqa: S603 - our own script
    finally:
        local.end()
    first, second = json.loads(result.stdout)
    assert [(answer["outer"], answer["size"]) for answer in (first, second)] == [
        (200, SIZES[0])
    ] * 2
    assert first["status"] == 200
    raw = bytes.fromhex(first["body"])
    assert len(raw) == CHECKPOINT_SIZE
    assert Checkpoint.decode(raw).size == 0
    assert second["status"] == 404
    assert json.loads(bytes.fromhex(second["body"]))["status"] == 404
