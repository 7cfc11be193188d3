"""Fixtures that several test files share."""

from collections.abc import Iterator

import pytest

from clusters import Cluster
from made_data import made
from study import datasets


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A PostgreSQL of the tests' own."""
    cluster = Cluster(tmp_path_factory.mktemp("postgres"))
    yield cluster
    cluster.end()


@pytest.fixture
def data_sets(monkeypatch: pytest.MonkeyPatch) -> bool:
    """The real data sets where they are (True); elsewhere small made-up ones of the same shape."""
    real = datasets.is_there()
    if not real:
        monkeypatch.setattr(datasets, "load", made)
    return real
