"""Fixtures that several test files share."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each worker has a core: more threads for its linear algebra would only wait for each other, and
# turn while they wait. Before numpy is loaded, which reads this once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from coatcheck.services.local_cluster import Cluster
from made_data import made
from postgresql import Postgres
from study import datasets
from warm import Warm


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Send tests that share a fixture of their file to one worker, so that it is made once."""
    for item in items:
        used = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in used if found):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[None]:
    """Services start from a process that has loaded the libraries of others."""
    if sys.platform != "linux":  # children of others can be adopted there
        yield
        return
    patch, started = pytest.MonkeyPatch(), Warm(Cluster.launch)
    patch.setattr(Cluster, "launch", staticmethod(started.launch))
    yield
    patch.undo()
    started.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own."""
    # Not in pytest's folder, which every other session of pytest closes to the user postgres.
    with tempfile.TemporaryDirectory(prefix="coatcheck-pg-", ignore_cleanup_errors=True) as folder:
        started = Postgres(Path(folder))
        try:
            yield started
        finally:
            started.end()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built by its own build back end."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import hatchling.build as back, sys; print(back.build_wheel(sys.argv[1]))"
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", build, str(folder)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.strip().splitlines()[-1]


@pytest.fixture
def data_sets(monkeypatch: pytest.MonkeyPatch) -> bool:
    """The real data sets where they are (True); elsewhere small made-up ones of the same shape."""
    real = datasets.is_there()
    if not real:
        monkeypatch.setattr(datasets, "load", made)
    return real
