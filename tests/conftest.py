"""The tiers of tests, and the fixtures that several folders share.

A test without a marker is a unit test: it starts no service. The others are marked `service`,
`world` or `slow` (pyproject.toml says what each means); what is in `world/`, uses
PostgreSQL or shares running services gets its marker here.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest

# Each worker has a core: more threads for its linear algebra would only wait for each other, and
# turn while they wait. Before numpy is loaded, which reads this once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from coatcheck.services.local_cluster import Cluster
from support.postgresql import Postgres
from support.service_rounds import QUICK
from support.warm import Warm

HERE = Path(__file__).parent

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every
# program that they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark what the world needs, and send tests that share a fixture of their file to one worker.

    So the fixture is made once.
    """
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        path = item.path.relative_to(HERE)
        if path.parts[0] == "world" or "postgres" in item.fixturenames:
            item.add_marker(pytest.mark.world)
        if "running" in item.fixturenames:
            item.add_marker(pytest.mark.service)
        used = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in used if found):
            item.add_marker(pytest.mark.xdist_group(str(path)))
        if not any(map(item.get_closest_marker, ("service", "world", "slow"))):
            _UNITS.add(item.nodeid.partition("@")[0])


_UNITS: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped on CI, where everything it needs is installed."""
    report = yield
    if report.skipped and os.environ.get("CI") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        report.outcome, report.longrepr = "failed", f"skipped on CI: {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[None]:
    """Provide a process that has loaded the third-party libraries, to start services from."""
    patch, plain = pytest.MonkeyPatch(), Cluster.launch
    # Only on Linux can children of others be adopted.
    started = Warm(plain) if sys.platform == "linux" else None

    def launch(
        command: list[str], log: IO[bytes], env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("@")[0]
        assert test not in _UNITS, f"{test} starts a service: mark it with `service`"
        return started.launch(command, log, env) if started else plain(command, log, env)

    patch.setattr(Cluster, "launch", staticmethod(launch))
    yield
    patch.undo()
    if started:
        started.end()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide services that all tests of a worker share: each opens new rounds, none is killed.

    One shuffler, a server, a board, a witness and a relay.
    """
    with Cluster(
        tmp_path_factory.mktemp("running"), relay=True, witnesses=1, extra=QUICK
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Provide a PostgreSQL cluster for the tests."""
    # Not in pytest's folder, which every other session of pytest closes to the user postgres.
    with tempfile.TemporaryDirectory(prefix="coatcheck-pg-", ignore_cleanup_errors=True) as folder:
        started = Postgres(Path(folder))
        try:
            yield started
        finally:
            started.end()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.world)])
def database(request: pytest.FixtureRequest) -> Postgres | None:
    """Provide each database in turn: PostgreSQL, or None for SQLite in the service's folder."""
    if request.param == "sqlite":
        return None
    found: Postgres = request.getfixturevalue("postgres")
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the wheel of this tree, built by its build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import hatchling.build as back, sys; print(back.build_wheel(sys.argv[1]))"
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", build, str(folder)],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.strip().splitlines()[-1]
