"""Stages on a cluster of Ray give the bytes of one process, whoever is lost on the way."""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

import ray_stages
from bench._nodes import Nodes
from coatcheck.errors import Full, Unavailable
from coatcheck.protocol import manifest as manifests
from coatcheck.services import faults
from coatcheck.services.runners import ray as rays
from coatcheck.services.runners import runner_of
from coatcheck.services.runners.contract import Given, Stage
from coatcheck.services.settings import RaySettings
from coatcheck.services.shuffler import release as releases
from coatcheck.services.shuffler.release import Release
from large import Large
from ray_stages import failing, whose

PLACES = ("stage.peeled", "stage.gather")
"""After and before the file of a part is written."""
WORDS = "words of a person that no log may have"


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a file ends the process on a node that comes to a place."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[Nodes]:
    """Two nodes."""
    env = {faults.VARIABLE: str(marks), "PYTHONPATH": str(Path(ray_stages.__file__).parent)}
    with Nodes(tmp_path_factory.mktemp("nodes"), env=env) as made:
        yield made
    rays._joined.cache_clear()


@pytest.fixture
def large(tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Large:
    """A round of nine parts to peel and of 33 partitions."""
    monkeypatch.setattr(manifests, "_BITS", 4)
    monkeypatch.setattr(releases, "PART", 40)
    return Large(tmp_path, people=320, runner="ray", ray=RaySettings(**nodes.settings()))


def test_workers_that_are_killed_cost_time_only(large: Large, marks: Path, nodes: Nodes) -> None:
    """Kill -9 of a process of a node at each place of each stage: the same bytes, no failure.

    And neither token nor key nor anything of the round is in what Ray wrote.
    """
    for place in PLACES:
        (marks / place).touch()
    manifest = large.make()
    assert not list(marks.iterdir())
    assert manifest is not None
    assert large.check(manifest) == 33
    key = large.store.vault._path(large.digest, "round").read_bytes()
    seed = bytes.fromhex(large.seed)
    told = [nodes.token.read_bytes(), *(large.uploads[0].body[at : at + 16] for at in (0, 100))]
    found = 0
    for path in nodes.logs.rglob("*"):
        if path.is_file():
            raw, found = path.read_bytes(), found + 1
            for secret in (*told, key, seed, large.digest):
                assert secret not in raw, path
                assert secret.hex().encode() not in raw, path
    assert found > 10


@pytest.mark.parametrize("stage", ["peel", "gather"])
def test_a_node_that_is_killed_costs_time_only(
    stage: str, large: Large, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill -9 of a raylet after the first part of a stage: nothing is lost, nothing is doubled."""
    real, killed, noted = Release._note, list[str](), list[str]()

    def note(self: Release, name: str, raw: bytes) -> None:
        noted.append(name)
        real(self, name, raw)
        if name.startswith(stage) and not killed:
            killed.append(name)
            nodes.kill()

    monkeypatch.setattr(Release, "_note", note)
    manifest = None
    while manifest is None:
        try:
            manifest = large.make()
        except Unavailable as error:
            assert "Ray cluster" in str(error)  # noqa: PT017 - the next try goes on
    nodes.mend()
    assert killed
    assert len(noted) == len(set(noted))
    assert len(noted) > 32 + 8
    assert large.check(manifest) == 33


class Parts:
    """Has parts of a stage done on the cluster, and keeps what came of them."""

    def __init__(self, large: Large) -> None:
        self.settings = large.settings
        self.crate = large.store.crate(large.digest)
        self.told: list[bytes] = []

    def run(self, stage: Stage, parts: Iterable[Given]) -> None:
        """Do parts, with the settings as they are now."""
        runner = runner_of(self.settings, self.crate, little=False)
        runner.run(stage, parts, lambda _, result: self.told.append(result))


def test_a_driver_that_is_lost_is_replaced(large: Large) -> None:
    """As when the cluster is gone: the step fails with a sentence, and the next one goes on."""
    some = Parts(large)
    some.run(whose, [(1,)])
    driver = rays._driver(large.settings.cluster)

    def parts() -> Iterator[Given]:
        yield (2,)
        driver._process.kill()
        driver._process.join()
        yield (3,)

    with pytest.raises(Unavailable, match="was lost: what was under way is done again"):
        some.run(whose, parts())
    some.run(whose, [(4,)])
    assert rays._driver(large.settings.cluster) is not driver
    assert b"%d" % os.getpid() not in some.told


def test_errors_of_a_node_are_told_as_they_are(large: Large, nodes: Nodes) -> None:
    """Those of ours by kind and text, others by kind and line; none is in what Ray writes."""
    some = Parts(large)
    for kind in (Full, Unavailable):
        with pytest.raises(kind, match=rf"^no room \(on node {socket.gethostname()}\)$"):
            some.run(failing, [(kind.__name__, "no room")])
    with pytest.raises(Unavailable, match=r"failing failed: ValueError at ray_stages.py") as caught:
        some.run(failing, [("other", WORDS)])
    assert WORDS not in str(caught.value)
    logs = [path for path in nodes.logs.rglob("*") if path.is_file()]
    assert not [path for path in logs if WORDS.encode() in path.read_bytes()]


def test_a_wrong_token_is_told_and_mended(large: Large, nodes: Nodes, tmp_path: Path) -> None:
    """It is named by its file; once that is right, the same settings serve."""
    some, token = Parts(large), tmp_path / "other.token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    wrong = RaySettings(**{**nodes.settings(), "token": token.name})
    some.settings = msgspec.structs.replace(large.settings, ray=wrong)
    with pytest.raises(Unavailable, match=rf"127.0.0.2:\d+ refuses the token in {token}"):
        some.run(whose, [(1,)])
    token.write_bytes(nodes.token.read_bytes())
    some.run(whose, [(1,)])
    assert len(some.told) == 1


def test_nobody_at_the_address_is_told_and_mended(
    large: Large, nodes: Nodes, tmp_path: Path
) -> None:
    """At once, though Ray would wait for minutes; an address in a file is read at each try."""
    some = Parts(large)
    there = RaySettings(**{**nodes.settings(), "address": "@head"})
    some.settings = msgspec.structs.replace(large.settings, ray=there)
    with pytest.raises(Unavailable, match="head is not there yet"):
        some.run(whose, [(1,)])
    (tmp_path / "head").write_text("127.0.0.2:1\n")
    with pytest.raises(Unavailable, match=r"no Ray cluster is at 127.0.0.2:1: .* is its head up"):
        some.run(whose, [(1,)])
    (tmp_path / "head").write_text(nodes.address)
    some.run(whose, [(1,)])
    assert len(some.told) == 1
