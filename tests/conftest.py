"""Fixtures that several test files share."""

from collections.abc import Iterator

import pytest

from clusters import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A PostgreSQL of the tests' own."""
    cluster = Cluster(tmp_path_factory.mktemp("postgres"))
    yield cluster
    cluster.end()
