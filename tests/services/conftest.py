"""Fixtures that the tests of Ray share: one cluster for all of them, as it takes long to start."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ray_stages
from bench._nodes import HEAD, SECOND, Nodes
from buckets import Bucket
from certificates import certify
from coatcheck.services import clock
from coatcheck.services import ray_runner as rays


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
    found = [str(Path(ray_stages.__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")]
    root = str(Path(__file__).parents[2])
    env = {clock.VARIABLE: str(marks), "PYTHONPATH": ":".join(filter(None, [*found, root]))}
    files = {name: str(folder / file) for name, file in tls.items()}
    with Nodes(folder, env=env, **files) as made:
        yield made
    rays._joined.cache_clear()
