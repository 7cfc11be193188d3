"""An answer in parts equals the bulletin made in memory, despite crashes and failures."""

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coatcheck.errors import Forgotten, Full, Refused, Unavailable
from coatcheck.protocol import client
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.state_machine import ServerPhase
from coatcheck.protocol.wire.uploads import REASONS
from coatcheck.services import clock
from coatcheck.services.server import pipeline, task_stage
from coatcheck.tasks import References, execution
from coatcheck.tasks.execution import Region
from coatcheck.tasks.neighbours import Neighbours
from support.answers import FENCE, Pointing, Scene
from support.blob_stores import leave_room
from support.deaths import DiesAt, Lost
from support.repeatable import seal_each
from support.rounds import Echo

TASKS = [Echo(), Pointing()]


@pytest.fixture(params=TASKS, ids=lambda task: task.name)
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Provide a round with its batch, in many small parts, for answers of both kinds."""
    return Scene(tmp_path, monkeypatch, request.param)


def test_parts_give_the_bytes_of_the_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte is equal with repeatable seals; a second run makes nothing again."""
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    end = scene.make()
    before = scene.store.results(scene.digest)
    assert scene.make() == end
    assert scene.store.results(scene.digest) == before
    assert scene.keep(end) == scene.small.server().answer(scene.raw)
    assert len(end.parts) == 6 * 32


def test_all_people_read_their_answers(scene: Scene) -> None:
    """With real seals all answers open; invalid reports are counted and harm nobody else."""
    bulletin = verify_bulletin(scene.keep(scene.make()), scene.small.round)
    assert [len(group) for group in bulletin.entries] == [11, 11]
    counted = dict(zip(REASONS, bulletin.heading.tallies[1].dropped, strict=True))
    assert {name for name, count in counted.items() if count} == {"malformed", "duplicate-address"}
    for ticket in scene.crowd:
        client.collect(ticket, bulletin)


def test_nothing_is_left_once_the_board_has_it(scene: Scene) -> None:
    """Reports are deleted with the bulletin, and its entries once the board has them."""
    scene.keep(scene.make())
    assert scene.store.round_keys.listed() == {(scene.digest, "batch")}
    assert {name.partition("-")[0] for name in scene.files()} == {"out"}
    assert scene.store.sweep(fence=FENCE) == set()
    scene.store.finish(scene.digest, "publish", fence=FENCE)
    assert (scene.files(), scene.store.round_keys.listed()) == ([], set())


@pytest.mark.parametrize("move", ["refuse", "lose"])
def test_an_abandoned_round_leaves_nothing(scene: Scene, move: str) -> None:
    """Files of every stage are deleted, however far the answer had got."""
    scene.make()
    assert len({name.partition("-")[0] for name in scene.files()}) == 8
    scene.store.answer(scene.digest, move, b"end", fence=FENCE)
    assert (scene.files(), scene.store.round_keys.listed()) == ([], set())


def test_a_bulletin_whose_key_is_gone_is_abandoned(scene: Scene) -> None:
    """Its entries cannot be decrypted any more: a signed outcome says that there is no answer."""
    scene.keep(scene.make())
    scene.store.round_keys.destroy(scene.digest, "batch")
    assert scene.store.sweep(fence=FENCE) == {scene.digest}
    scene.store.clear()
    with pytest.raises(Forgotten):
        scene.bulletin()
    with pytest.raises(Refused):
        scene.store.answer(scene.digest, "abandon", b"end", fence=FENCE)
    scene.store.answer(scene.digest, "lose", b"end", fence=FENCE)
    assert scene.files() == []
    assert scene.bulletin() == b"end"


PLACES = (
    *("stage.open", "stage.opened", "stage.compare", "stage.compute", "stage.computed"),
    *("stage.deal", "stage.dealt", "stage.seal", "stage.sealed"),
)


@pytest.mark.parametrize("place", PLACES)
def test_an_answer_goes_on_where_it_stopped(
    place: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at every second event; stored parts are not computed again."""
    monkeypatch.setattr(clock, "reach", DiesAt(place, every=2, first=1))
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    stops, end = 0, None
    while end is None:
        noted = scene.store.results(scene.digest)
        noted.pop("plan", None)
        try:
            end = scene.make()
        except Lost:
            stops += 1
        assert noted.items() <= scene.store.results(scene.digest).items()
    assert stops
    assert scene.keep(end) == scene.small.server().answer(scene.raw)


@pytest.fixture
def spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Provide a round whose task has a limited reach."""
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    return Scene(tmp_path, monkeypatch, Neighbours(radius=0.4))


@pytest.mark.parametrize("place", ["", "stage.near", "stage.neared", "stage.compute"])
def test_a_task_of_limited_reach_runs_by_region(
    place: str, spread: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each region is a part and may run again; together they give the answers of the whole."""
    stopped: list[str] = []

    def reach(name: str, *, alone: bool = False) -> None:
        del alone
        if name == place and len(stopped) < 2:
            stopped.append(name)
            raise Lost

    monkeypatch.setattr(clock, "reach", reach)
    end = None
    while end is None:
        with contextlib.suppress(Lost):
            end = spread.make()
    assert len(stopped) == 2 * bool(place)
    assert spread.store.progress(spread.digest)["near"] == (3, 3)
    assert spread.keep(end) == spread.small.server().answer(spread.raw)


def test_a_region_that_the_task_refuses_ends_the_round(
    spread: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The round ends as with the whole task, and the task's message is not logged."""

    def answer_region(*_: object) -> None:
        raise Refused("5f3a9c is one of them")

    monkeypatch.setattr(task_stage, "answer_region", answer_region)
    assert pipeline.answer(spread.store, spread.settings, spread.digest, FENCE) == "refused"
    assert "5f3a9c" not in caplog.text
    assert "Refused at" in caplog.text
    assert spread.files() == []


def test_a_part_that_was_sealed_twice_counts_once(scene: Scene) -> None:
    """Seals differ on every try: a late try writes another file, which is never read."""
    end = scene.make()
    late = scene.store.results(scene.digest)["seal 2"]
    scene.store.save_result(scene.digest, "seal 2", bytes(64), fence=FENCE)
    again = scene.make()
    assert late != scene.store.results(scene.digest)["seal 2"]
    bulletin = verify_bulletin(scene.keep(again), scene.small.round)
    assert again.heading != end.heading
    for ticket in scene.crowd:
        client.collect(ticket, bulletin)


def test_a_blob_store_without_room_keeps_the_round_where_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the blob store; the batch stays and is answered once there is room."""
    left = leave_room(monkeypatch, files=20)
    for _ in range(2):
        with pytest.raises(Full, match="blob store"):
            pipeline.answer(scene.store, scene.settings, scene.digest, FENCE)
        assert scene.store.round(scene.digest).phase is ServerPhase.BATCHED
    left[0] = 10_000
    assert pipeline.answer(scene.store, scene.settings, scene.digest, FENCE) == "answered"
    verify_bulletin(scene.bulletin(), scene.small.round)


@pytest.mark.parametrize("name", ["columns", "places", "answers", "requests", "shares"])
def test_a_changed_file_is_named_and_can_be_made_again(scene: Scene, name: str) -> None:
    """Altered bytes are never used; once the file is gone, the stage makes it again."""
    scene.make()
    if name == "requests" and isinstance(scene.small.task, Echo):
        return  # nobody names anybody, and every piece has counts only
    found = [path for path in scene.blobs.rglob("*") if path.name.partition("-")[0] == name]
    path = max(found, key=lambda one: one.stat().st_size)
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    for other in scene.blobs.rglob("*"):
        if other.name.partition("-")[0] in {"out", "shares"} - {name}:
            other.unlink()
    with pytest.raises(Unavailable, match=f"{path.name}/.* is not what was put there"):
        scene.make()
    path.unlink()
    scene.keep(scene.make())
    verify_bulletin(scene.bulletin(), scene.small.round)


class Lonely(Pointing):
    """A task that finds a partner only for the first person of each group."""

    def _told(self, people: int, riders: int) -> References:
        told = super()._told(people, riders)
        indptr = np.minimum(np.arange(people + 1), 1)
        return replace(told, indptr=indptr, indices=told.indices[:1], second=indptr[1:] * 0)


def test_a_part_in_which_nobody_has_a_partner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries are made as usual: there are not always as many drivers as riders."""
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    scene = Scene(tmp_path, monkeypatch, Lonely())
    whole = scene.small.server().answer(scene.raw)
    assert scene.keep(scene.make()) == whole


class Otherwise(Pointing):
    """The same task with another rounding: it refers each person to other riders."""

    def _told(self, people: int, riders: int) -> References:
        told = super()._told(people, riders)
        return replace(told, indices=(told.indices + 1) % riders)


def test_a_late_try_of_the_task_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was taken for lost may finish late with other answers; they are not used."""
    monkeypatch.setattr(Bulk, "seal_each", seal_each)
    scene, late = Scene(tmp_path, monkeypatch, Pointing()), Otherwise()
    whole = scene.small.server().answer(scene.raw)
    given: list[tuple[Any, ...]] = []
    compute = task_stage.compute

    def seen(*parts: Any) -> bytes:
        given.append(parts)
        return compute(*parts)

    def reach(name: str, *, alone: bool = False) -> None:
        del alone
        if name == "stage.deal" and given:
            monkeypatch.setattr(task_stage, "task_of", lambda *_: late)
            compute(*given.pop())

    monkeypatch.setattr(task_stage, "compute", seen)
    monkeypatch.setattr(clock, "reach", reach)
    end = scene.make()
    assert not given
    assert len([name for name in scene.files() if name.startswith("answers-")]) == 2
    assert scene.keep(end) == whole


def test_other_cuts_of_regions_give_the_same_answers(
    spread: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts at equal places depend on the processor, so answers name the person."""

    def otherwise(places: Any, *, reach: float, count: int) -> list[Region]:
        del count
        return execution.regions(-places[:, ::-1], reach=reach, count=2)

    whole = spread.small.server().answer(spread.raw)
    monkeypatch.setattr(execution, "by_regions", partial(_by_regions, cut=otherwise))
    assert spread.keep(spread.make()) == whole


def _by_regions(task: Any, estimates: Any, *, count: int, run: Any, cut: Any) -> list[References]:
    parts = cut(task.placed(estimates), reach=task.reach, count=count)
    return [execution.joined(parts, list(run(None, parts)))]


def test_a_part_is_sealed_only_with_all_its_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing share is an error and never leaves a person out."""
    seal, scene = pipeline.seal, Scene(tmp_path, monkeypatch, Echo())

    def short(files: Any, settings: Any, number: int, part: Any, shares: Any) -> bytes:
        return seal(files, settings, number, part, shares[1:])

    monkeypatch.setattr(pipeline, "seal", short)
    with pytest.raises(Unavailable, match=r"part 0 of the bulletin lacks entries"):
        scene.make()
