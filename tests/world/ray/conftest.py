"""Fixtures that the tests of Ray share: one cluster for all of them, as it takes long to start."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench._nodes import HEAD, SECOND, Nodes
from coatcheck.services import clock
from coatcheck.services import ray_runner as rays
from support.buckets import Bucket
from support.certificates import certify


@pytest.fixture(scope="session")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a file ends the process, or the node, that comes to a place."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="session")
def ray_bucket() -> Iterator[Bucket]:
    """A bucket that nodes of Ray can reach."""
    with Bucket() as made:
        yield made


@pytest.fixture(scope="session")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, marks: Path, ray_bucket: Bucket
) -> Iterator[Nodes]:
    """Two nodes with a token and TLS."""
    del ray_bucket  # its address is in the environment
    folder = tmp_path_factory.mktemp("nodes")
    certify(folder, HEAD, SECOND)
    tls = {"tls_certificate": "tls.pem", "tls_key": "tls.key", "tls_ca": "tls.pem"}
    root = Path(__file__).parents[3]
    places = [str(root / "tests"), *os.environ.get("PYTHONPATH", "").split(":"), str(root)]
    env = {clock.VARIABLE: str(marks), "PYTHONPATH": ":".join(filter(None, places))}
    files = {name: str(folder / file) for name, file in tls.items()}
    with Nodes(folder, env=env, **files) as made:
        yield made
    rays._joined.cache_clear()
