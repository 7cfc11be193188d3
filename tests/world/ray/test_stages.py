"""Rounds on a cluster of Ray give the bytes of one process, whoever is lost on the way."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from bench._nodes import Nodes
from coatcheck.errors import Unavailable
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.keys import read_keys
from coatcheck.protocol.wire import batches as manifests
from coatcheck.services.server import pipeline
from coatcheck.services.server.pipeline import Answering
from coatcheck.services.server.store import ServerStore
from coatcheck.services.settings import RaySettings
from coatcheck.services.shuffler import pipeline as releases
from coatcheck.services.shuffler.pipeline import Release
from coatcheck.services.worker_pools import Runner, runner_of, shared_pool
from support.buckets import Bucket
from support.large import Large
from support.large_batch import LargeBatch
from support.ray_stages import BITS, SIZE, Losing, leaks
from support.repeatable import seal_each
from support.service_rounds import draft

# Libraries of others use names that will go away some day.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
Made = TypeVar("Made")


@pytest.fixture(autouse=True)
def in_small_parts(nodes: Nodes, marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of few items, seals that repeat, and runners that replace nodes."""

    def losing(*given: Any, **named: Any) -> Runner:
        return Losing(runner_of(*given, **named), marks, nodes)

    monkeypatch.setattr(manifests, "_BITS", BITS)
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    for module in (releases, pipeline):
        monkeypatch.setattr(module, "PART", SIZE)
        monkeypatch.setattr(module, "runner_of", losing)


def batch_of(folder: Path, **settings: Any) -> LargeBatch:
    """Make a batch of people who ask who is near, which is a task that runs by region."""
    plan = draft("near")
    plan["task"] = {"name": "neighbours", "radius": 0.2, "limit": 3}
    plan["groups"] = [{**plan["groups"][0], "name": "people"}]
    return LargeBatch(folder, people=[100], plan=plan, **settings)


def patiently(make: Callable[[], Made]) -> Made:
    """Try again while the cluster is lost, as a role does."""
    while True:
        try:
            return make()
        except Unavailable as error:
            assert "Ray cluster" in str(error)  # noqa: PT017 - the next try goes on


def noted(monkeypatch: pytest.MonkeyPatch, job: type[Answering | Release]) -> list[str]:
    """Watch what is written down."""
    names, real = list[str](), job._note

    def note(self: Any, name: str, raw: bytes) -> None:
        names.append(name)
        real(self, name, raw)

    monkeypatch.setattr(job, "_note", note)
    return names


def test_a_release_whose_nodes_are_killed(
    nodes: Nodes, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill -9 of a node in *peel* and *collect*, and of a process at a place of each: same bytes.

    Every part is written down once. Neither token nor key nor anything of the round is in what Ray
    wrote.
    """
    large = Large(tmp_path, people=320, runner="ray", ray=RaySettings(**nodes.settings()))
    names = noted(monkeypatch, Release)
    for mark in ("peel", "collect", "stage.peeled", "stage.gather"):
        (marks / mark).touch()
    manifest = patiently(large.make)
    assert not list(marks.iterdir())
    assert len(names) == len(set(names)) > 32 + 8
    assert manifest is not None
    assert large.check(manifest) == 33
    key = large.store.vault._path(large.digest, "round").read_bytes()
    told = [nodes.token.read_bytes(), *(large.uploads[0].body[at : at + 16] for at in (0, 100))]
    assert not leaks(nodes, [*told, key, bytes.fromhex(large.seed), large.digest])


def test_an_answer_whose_nodes_are_killed(
    nodes: Nodes, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill -9 of a node in each stage: the bulletin is the pool's, byte for byte.

    Every part is written down once, everybody has their one answer, and nothing private is in what
    Ray wrote.
    """
    large = batch_of(tmp_path / "ray", runner="ray", ray=RaySettings(**nodes.settings()))
    shutil.copytree(tmp_path / "ray", tmp_path / "pool")
    names = noted(monkeypatch, Answering)
    for stage in ("open_reports", "cut", "near", "compute", "deal", "seal"):
        (marks / stage).touch()
    bulletin = large.keep(patiently(large.make))
    assert not list(marks.iterdir())
    assert len(names) == len(set(names)) == 8 + 1 + 1 + 7 + 1 + 8 + 7
    large.check(bulletin)
    assert bulletin == large.whole()
    key = large.store.vault._path(large.digest, "batch").read_bytes()
    seed = bytes.fromhex(read_keys(tmp_path / "ray" / "server.key").seed)
    told = [nodes.token.read_bytes(), large.raw[-16:], bulletin[-16:]]
    assert not leaks(nodes, [*told, key, seed, large.digest])

    large.settings = msgspec.structs.replace(
        large.settings, folder=str(tmp_path / "pool"), runner="pool", workers=2
    )
    large.store = ServerStore(*large.settings.places)
    large.store.lead("me", seconds=10_000)
    assert large.keep(large.make()) == bulletin
    shared_pool(2).shutdown()
    shared_pool.cache_clear()


def test_a_round_whose_depot_is_in_s3(nodes: Nodes, ray_bucket: Bucket, tmp_path: Path) -> None:
    """Nodes find the bucket by themselves; the bytes are the same, and nothing is left there."""
    where = {"runner": "ray", "ray": RaySettings(**nodes.settings())}
    large = Large(tmp_path / "s", people=240, depot=f"{ray_bucket.url}/shuffler", **where)
    manifest = patiently(large.make)
    assert manifest is not None
    assert large.check(manifest) == 17
    answer = batch_of(tmp_path / "a", depot=f"{ray_bucket.url}/server", **where)
    bulletin = answer.keep(patiently(answer.make))
    assert bulletin == answer.whole()
    names = ray_bucket.names()
    assert {name.partition("/")[0] for name in names} == {"shuffler", "server"}
    assert not list(tmp_path.rglob("in-*"))
    held = [ray_bucket.get(name) for name in names]
    assert not [raw for raw in held if bulletin[-16:] in raw]
    answer.store.finish(answer.digest, "publish", fence=1)
    large.store.move(large.digest, "abandon", fence=1, end=b"end")
    assert ray_bucket.names() == []
