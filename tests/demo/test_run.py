"""The demo at a small size: real processes, a crowd over HTTP, nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coatcheck.demo import city, scenarios
from coatcheck.demo.scenarios import NAMES, make_scenario
from coatcheck.randomizers.choice import misses

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 600.0


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a demo as a user would, with a temporary folder and an identifying mark."""
    (folder / "tmp").mkdir()
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "coatcheck", "demo", *arguments],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE),
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(folder / "tmp"),
            "COATCHECK_TEST_MARK": str(folder),
            "LC_ALL": "C.UTF-8",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left_behind(folder: Path) -> list[int]:
    """Find every process with this folder's mark, including descendants."""
    mark = f"COATCHECK_TEST_MARK={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in environment and state != "Z":
            found.append(int(entry.name))
    return found


def assert_nothing_left(folder: Path) -> None:
    """Check that no process or file is left; on a busy machine their end may take a while."""
    until = time.monotonic() + PATIENCE
    while left_behind(folder) and time.monotonic() < until:
        time.sleep(0.05)
    assert left_behind(folder) == []
    assert list((folder / "tmp").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["tmp"]


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for a demo to end."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def summary_of(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a demo to its end and return its summary."""
    code, out, err = finish(start(folder, *arguments, "--json"))
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def wait_for_line(process: "subprocess.Popen[str]", words: str) -> None:
    """Read the output of a demo until this text."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"the demo ended before it said {words!r}: {said}")


def assert_all_were_answered(found: dict[str, Any], people: int, *groups: str) -> None:
    """Check that each side counted the same crowd, with at most the requested ε."""
    assert found["people"] == people
    assert [group["name"] for group in found["groups"]] == list(groups)
    assert sum(group["people"] for group in found["groups"]) == people
    assert found["board"]["entries"] == people
    assert sum(found["server"]["reports"]) == people
    assert found["server"]["dropped"] == [0] * len(groups)
    for group in found["groups"]:
        assert 0 < group["epsilon"] <= found["epsilon_asked"]
        assert "Assumes:" in group["guarantee"]
    assert {step["name"] for step in found["steps"]} >= {"people join"}


@pytest.mark.service
def test_both_heroes_of_the_taxi_demo_agree(tmp_path: Path) -> None:
    """Ada's driver is Bo, Bo's rider is Ada, their letters cross; nothing is left."""
    found = summary_of(tmp_path, "taxi", "--people", "60", "--epsilon", "2")
    assert_all_were_answered(found, 60, "riders", "drivers")
    ada, bo = found["heroes"]
    assert (ada["group"], bo["group"]) == ("riders", "drivers")
    assert ada["partners"] == [bo["address"]]
    assert bo["partners"] == [ada["address"]]
    assert ada["distances_m"] == bo["distances_m"]
    apart = misses(city.CITY, np.array([ada["kept"]]), np.array([bo["kept"]]))
    assert ada["distances_m"] == pytest.approx(apart.tolist())
    assert ada["wrote_letters"] == bo["got_letters"] == ["by the blue door"]
    assert bo["wrote_letters"] == ada["got_letters"] == ["two minutes, a green car"]
    service = found["service"]
    assert service["private"]["pairs"] == service["without_noise"]["pairs"] == 27
    assert service["private"]["mean_distance"] > service["without_noise"]["mean_distance"]
    assert found["letters"] == {"posted": 54, "read": 28}
    assert_nothing_left(tmp_path)


@pytest.mark.service
def test_the_nearby_demo_defeats_the_trilaterator(tmp_path: Path) -> None:
    """Listed people are truly near; the app's Ada is found, coatcheck's is not."""
    found = summary_of(tmp_path, "--people", "60", "--epsilon", "3")
    assert_all_were_answered(found, 60, "members")
    service = found["service"]
    assert service["settled"]["within"] > 0.9
    assert service["settled"]["mean_distance"] < service["private"]["mean_distance"]
    attack = found["trilateration"]
    assert attack["app"]["error_m"] < 10
    assert attack["coatcheck"]["found"] <= attack["coatcheck"]["bound"]
    assert attack["this_round"]["near"] <= attack["this_round"]["candidates"] <= 40
    for hero in found["heroes"]:
        assert not any(char.isdigit() for body in hero["got_letters"] for char in body)
    assert_nothing_left(tmp_path)


@pytest.mark.world
@pytest.mark.parametrize(
    "words", [("taxi", "--candidates", "3"), ("friends", "--settle")], ids=["taxi", "friends"]
)
def test_candidates_settle_by_letter(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Both sides of a pair agree, and words come from partners; nothing is left."""
    found = summary_of(tmp_path, *words, "--people", "24", "--epsilon", "4")
    service = found["service"]
    assert set(service) == {"private", "settled", "without_noise", "at_random"}
    for row in service.values():
        assert {"mean_distance", "median_distance", "within"} <= set(row)
    settled = service["settled"]
    if words[0] == "taxi":
        assert 0 < settled["pairs"] == settled["served"] <= 10
        assert found["letters"]["read"] == 2 * settled["pairs"]
    else:
        assert found["letters"]["read"] == settled["pairs"]
        assert not settled["pairs"] or settled["within"] > 0.8
    for hero in found["heroes"]:
        assert len(hero["got_letters"]) == len(hero["partners"])
    assert_nothing_left(tmp_path)


@pytest.mark.world
def test_friends_get_at_most_five_others(tmp_path: Path) -> None:
    """No list has its own person, and none is longer than the terms say."""
    found = summary_of(tmp_path, "friends", "--people", "40")
    assert_all_were_answered(found, 40, "members")
    for hero in found["heroes"]:
        assert len(hero["partners"]) <= 5
        assert hero["address"] not in hero["partners"]
    served = found["service"]["private"]
    assert served["pairs"] <= 5 * 40
    assert found["letters"]["posted"] == 2 * served["served"]
    assert_nothing_left(tmp_path)


@pytest.mark.service
def test_learners_are_rewarded_and_keep_leaves_the_folder(tmp_path: Path) -> None:
    """Rewards come from a direction that only the server has; the kept folder is the owner's."""
    found = summary_of(tmp_path, "learning", "--people", "60", "--epsilon", "3", "--keep")
    assert_all_were_answered(found, 60, "learners")
    taught = found["learning"]
    assert len(taught["accuracy"]) == len(taught["accuracy_without_noise"]) == 4
    assert all(-1 <= one <= 1 for one in taught["cosine_to_true_mean"])
    assert all(0 < spoke <= 60 for spoke in taught["spoke"])
    assert any(spoke < 60 for spoke in taught["spoke"])
    assert len(taught["rewards_right_labels"]) + len(taught["rewards_wrong_labels"]) == 60
    assert any(taught["rewards_right_labels"])
    assert taught["error_bar"] > 0
    kept = Path(found["kept"])
    names = {path.name for path in kept.iterdir()}
    assert {"server.key", "server.public", "shuffler-1.db", "board.log", "people"} <= names
    assert (kept / "server.key").stat().st_mode & 0o777 == 0o600
    assert "direction" not in (kept / "board.log").read_text(encoding="utf-8")
    assert left_behind(tmp_path) == []


@pytest.mark.service
def test_people_learn_where_they_stand(tmp_path: Path) -> None:
    """Private, true and chance figures stand side by side; no person is named or written to."""
    found = summary_of(tmp_path, "standing", "--people", "80", "--epsilon", "4")
    assert_all_were_answered(found, 80, "people")
    own, told, true, chance = found["standing"]["mean_error"].values()
    assert true == 0.0 < own < chance
    assert told < chance
    assert len(found["standing"]["deciles"]) == len(found["standing"]["true_deciles"]) == 9
    ada, bo = found["heroes"]
    assert all(0 <= one["share"] <= 1 and 0 <= one["own_share"] <= 1 for one in (ada, bo))
    assert ada["kept"] != bo["kept"]
    assert found["letters"] == {"posted": 0, "read": 0}
    assert_nothing_left(tmp_path)


@pytest.mark.world
def test_people_can_be_put_at_the_places_of_a_file(tmp_path: Path) -> None:
    """A file with a column of sides gives the crowd, and its name those of the groups."""
    places = city.places(24, entropy=3)
    rows = "".join(
        f"{lat:.6f},{lon:.6f},{'guests' if row % 2 else 'cabs'}\n"
        for row, (lat, lon) in enumerate(places)
    )
    path = tmp_path.parent / f"{tmp_path.name}-places.csv"
    path.write_text(f"lat,lon,side\n{rows}", encoding="utf-8")
    arguments = ("taxi", "--data", str(path), "--group-by", "side")
    code, out, err = finish(start(tmp_path, *arguments))
    assert code == 0, err
    for words in ("Ada's side (cabs)", "Bo's side (guests)", "The server's side", "The promise"):
        assert words in out
    assert "people join" in err
    assert_nothing_left(tmp_path)


@pytest.mark.service
@pytest.mark.parametrize(
    ("end", "moment", "delay"),
    [
        (signal.SIGINT, "people join", 0.3),
        (signal.SIGINT, "the roles, a relay and a witness start", 0.0),
        pytest.param(
            signal.SIGTERM,
            "the roles, a relay and a witness start",
            0.3,
            marks=pytest.mark.world,
        ),
        (signal.SIGTERM, "terms are drafted", 0.0),
        (signal.SIGKILL, "people join", 0.3),
    ],
)
def test_an_interrupted_demo_leaves_no_process(
    tmp_path: Path, end: signal.Signals, moment: str, delay: float
) -> None:
    """This holds at any time and for any signal; only kill -9 leaves the folder."""
    # So many that it is not over before the signal comes.
    process = start(tmp_path, "taxi", "--people", "800")
    wait_for_line(process, moment)
    time.sleep(delay)
    process.send_signal(end)
    code, _, err = finish(process)
    assert code != 0
    assert "Traceback" not in err
    if end is signal.SIGKILL:
        for path in (tmp_path / "tmp").glob("coatcheck-demo-*"):
            shutil.rmtree(path)
    assert_nothing_left(tmp_path)


@pytest.mark.service
def test_a_role_that_ends_is_reported(tmp_path: Path) -> None:
    """The demo names the process, shows the last lines of its log, and cleans up."""
    process = start(tmp_path, "taxi", "--people", "800")
    wait_for_line(process, "people join")
    for pid in left_behind(tmp_path):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"coatcheck.services.process" in words and b"server" in words:
            os.kill(pid, signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 1
    assert out == ""
    assert "coatcheck: the server ended" in err
    assert_nothing_left(tmp_path)


def test_the_city_is_the_same_for_the_same_seed_and_inside_its_box() -> None:
    """Clusters are denser than the box, and no place is outside."""
    places = city.places(3_000, entropy=5)
    assert np.array_equal(places, city.places(3_000, entropy=5))
    assert not np.array_equal(places, city.places(3_000, entropy=6))
    city.CITY.snap(places)
    counts, *_ = np.histogram2d(places[:, 0], places[:, 1], bins=8)
    assert counts.max() > 4 * counts.mean()
    assert {city.quarter(place) for place in places} == {
        "harbor",
        "old town",
        "university",
        "station",
    }


def test_the_lesson_can_be_learned() -> None:
    """One step of the true mean gradient beats guessing, and wrong labels point the other way."""
    lesson = scenarios.lesson(200, entropy=1)
    assert np.linalg.norm(lesson.gradients, axis=1).max() <= scenarios.CLIP * (1 + 1e-12)
    assert lesson.accuracy(lesson.after(lesson.gradients.mean(axis=0)).model.parameters) > 0.7
    along = lesson.gradients @ lesson.direction
    assert along[lesson.misled].mean() < 0 < along[~lesson.misled].mean()


@pytest.mark.world
def test_a_scenario_has_people_in_every_group() -> None:
    """Every group of every scenario, and one of another size."""
    for name, people in (*((name, 30) for name in NAMES), ("taxi", 300)):
        scenario = make_scenario(name, people=people, epsilon=1.5)
        assert scenario.people == people
        assert all(draft.minimum >= 2 for draft in scenario.drafts)


def test_ada_is_where_many_are_near() -> None:
    """The story follows a person who has an answer, and the attacker is elsewhere."""
    for people in (60, 400):
        (rows,) = make_scenario("nearby", people=people, epsilon=1.0).values
        near = [int((misses(city.CITY, rows, one[None]) <= 1_000).sum()) for one in rows]
        assert city.quarter(rows[0]) == "old town"
        assert near[0] >= np.quantile(near, 0.8)
        assert city.quarter(rows[-1]) == "university"
