"""Ray drivers are replaced when their cluster does nothing; a node without keys ends no round."""

import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from coatcheck import __version__
from coatcheck.errors import Unavailable
from coatcheck.services import ray_runner as rays
from coatcheck.services.ray_runner import READY, Driver, RayRunner, do_part
from coatcheck.services.settings import RaySettings, Settings
from coatcheck.services.worker_pools import run_part
from coatcheck.stores.blobs import SealedFiles
from support.ray_stages import failing, whose

CLUSTER = RaySettings(address="127.0.0.2:1", token="some.token")  # noqa: S106 - the name of a file


class Process:
    """A stand-in for the process of a driver."""

    def __init__(self) -> None:
        self.killed = False

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return not self.killed

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread ends."""
        del timeout

    def kill(self) -> None:
        """End the thread."""
        self.killed = True


Answer = Callable[[Connection, Any], None]


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Driver]]:
    """Provide a driver whose process is a thread of the test that answers as the test says."""
    threads = []

    def make(answer: Answer) -> Driver:
        mine, other = Pipe()
        driver = object.__new__(Driver)
        for name, value in {"_where": "the cluster", "_under_way": 0, "cores": 1}.items():
            setattr(driver, name, value)
        driver._pipe, driver._process = mine, Process()  # type: ignore[assignment]

        def live() -> None:
            try:
                while True:
                    answer(other, other.recv())
            except (EOFError, OSError):
                other.close()

        threads.append(threading.Thread(target=live))
        threads[-1].start()
        monkeypatch.setattr(rays, "_driver", lambda _: driver)
        return driver

    monkeypatch.setattr(rays, "_QUIET", 0.01)
    yield make
    for thread in threads:
        thread.join()


def run(tmp_path: Path) -> None:
    """Run two parts on the cluster."""
    settings = Settings(
        name="s", store="sqlite:s", keys=("k",), runner="ray", ray=CLUSTER, folder=str(tmp_path)
    )
    runner = object.__new__(RayRunner)
    runner._cluster, runner._args = CLUSTER, (settings, bytes(32))
    runner.run(whose, [(1,), (2,)], lambda *_: None)


def test_a_cluster_without_a_core_is_an_error_at_once(
    driven: Callable[[Answer], Driver], tmp_path: Path
) -> None:
    """Waiting for a core would hide the reason why nothing happens."""

    def answer(pipe: Connection, given: Any) -> None:
        if given == (READY,):
            pipe.send((READY, "", b"0"))

    driver = driven(answer)
    with pytest.raises(Unavailable, match=r"^the cluster has no core; check that its nodes run$"):
        run(tmp_path)
    assert not driver.is_alive


def test_a_driver_that_does_not_answer_is_ended(
    driven: Callable[[Answer], Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step starts another driver."""
    monkeypatch.setattr(rays, "_JOINS", 0.01)
    driver = driven(lambda *_: None)
    with pytest.raises(Unavailable, match=r"^the cluster does not answer; check its nodes$"):
        run(tmp_path)
    assert not driver.is_alive


def test_a_driver_that_is_slow_is_waited_for(
    driven: Callable[[Answer], Driver], tmp_path: Path
) -> None:
    """A slow driver is kept while its cluster has cores."""
    asked: list[Any] = []

    def answer(pipe: Connection, given: Any) -> None:
        if given != (READY,):
            asked.append(given[0])
            return
        pipe.send((READY, "", b"1"))
        if asked:
            pipe.send((asked.pop(0), "", b"done"))

    driver = driven(answer)
    run(tmp_path)
    assert driver.is_alive
    driver.end()


def test_a_node_without_the_keys_of_rounds_ends_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may not be mounted: only the role knows whether a key is gone."""
    settings = Settings(name="s", store="elsewhere:", keys=("k",), folder=str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    given = (settings, bytes(32), ("Forgotten", "the key of this round is gone"))
    kind, text = do_part(__version__, failing, *given)
    assert kind == "Unavailable"
    assert b"share the folder of round keys with this node" in text


def test_a_stage_without_the_folder_of_keys_is_tried_again(tmp_path: Path) -> None:
    """This holds in a process of this machine too: an absent folder has not lost its keys."""
    settings = Settings(name="s", store="sqlite:s.db", keys=("k",), folder=str(tmp_path))
    with pytest.raises(Unavailable, match="mount it"):
        run_part(reading, settings, bytes(32), ())


def reading(files: SealedFiles, settings: Settings) -> bytes:
    """A stage that reads a key."""
    del settings
    return files.key().secret
