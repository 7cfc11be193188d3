"""Recurring rounds: one per period despite crashes; people only need the service's address."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from coatcheck.cli import main
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.agreement import Trust
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import current_round
from coatcheck.services.server.drafts import Schedule
from coatcheck.services.settings import ScheduleSettings, ServerSettings, read_settings
from coatcheck.services.web.client import HttpClient
from support.service_rounds import MORTAL, PATIENCE, RANDOMIZER, Crowd, draft, get, until

HOUR = 3600


def made(folder: Path, **asked: Any) -> Schedule:
    """Return a schedule of a draft in a folder."""
    (folder / "draft.json").write_text(json.dumps(asked.pop("draft", draft("evening"))))
    settings = ServerSettings(
        name="server",
        store="memory:",
        keys=("x",),
        shufflers=("http://127.0.0.1:1",),
        board="http://127.0.0.1:2",
        folder=str(folder),
    )
    given = ScheduleSettings(**{"every": 60.0, "draft": "draft.json", **asked})
    return Schedule(settings, given, suite="x25519")


def scheduled(folder: Path, **asked: Any) -> Cluster:
    """Provide services whose server has a schedule."""
    folder.mkdir(exist_ok=True)
    (folder / "draft.json").write_text(json.dumps(draft("evening", minimum=2)))
    own = {"every": 60, "draft": "draft.json", "announce": "round.url", **asked}
    made = Cluster(folder, extra=MORTAL, relay=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in own.items()]
    file = folder / "server.toml"
    file.write_text("\n".join([file.read_text(), "[schedule]", *lines, ""]))
    return made


# -- which round is due


def test_a_round_is_named_after_its_beginning(tmp_path: Path) -> None:
    """Every moment of a period has the same round, and the next period another one."""
    hourly, noon = made(tmp_path), 1_800_000_000 // HOUR * HOUR
    slot = hourly.due(noon + 5)
    assert slot is not None
    assert slot == hourly.due(noon + HOUR - 1)
    assert (slot.opens, slot.closes, slot.expires) == (noon, noon + HOUR, noon + 2 * HOUR)
    assert slot.name == "evening 2027-01-15 08:00"
    assert hourly.due(noon + HOUR) == replace(
        slot,
        name="evening 2027-01-15 09:00",
        number=slot.number + 1,
        opens=noon + HOUR,
        closes=noon + 2 * HOUR,
        expires=noon + 3 * HOUR,
    )


def test_a_round_that_would_be_over_is_not_begun(tmp_path: Path) -> None:
    """A server that starts late waits for the next period."""
    short, noon = made(tmp_path, closes=10.0, expires=30.0), 1_800_000_000 // HOUR * HOUR
    assert short.due(noon + 599) is not None
    assert short.due(noon + 600) is None


def test_a_failure_is_followed_by_a_pause(tmp_path: Path) -> None:
    """Failed openings are spaced out, so a shuffler that is away does not fill the log."""
    hourly = made(tmp_path)
    with pytest.raises(Misuse), hourly.trying():
        raise Misuse("away")
    assert hourly.due(int(time.time())) is None


def test_some_rounds_use_the_draft_without_earlier_rounds(tmp_path: Path) -> None:
    """With `learn = 3`, every third round ignores earlier ones; with 0, every round does."""
    slots = [made(tmp_path, learn=3).due(n * HOUR) for n in range(500_000, 500_006)]
    placed = [made(tmp_path, learn=3).learns_from(slot) for slot in slots if slot]
    assert sorted(placed) == [False, False, True, True, True, True]
    assert not any(made(tmp_path).learns_from(slot) for slot in slots if slot)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"every": 0.001}, "`every` must be minutes"),
        ({"closes": 30.0, "expires": 20.0}, "`expires` must not be less than `closes`"),
        ({"draft": {"round": "x"}}, "missing"),
        ({"draft": draft("x" * 60)}, "makes no round"),
        ({"draft": {**draft("x"), "task": {"name": "baking"}}}, "baking"),
    ],
)
def test_a_bad_schedule_is_refused_in_a_sentence(
    tmp_path: Path, asked: dict[str, Any], sentence: str
) -> None:
    """The refusal comes at start, not when the first round is due."""
    with pytest.raises(Misuse, match=sentence) as told:
        made(tmp_path, **asked)
    assert str(told.value).startswith("[schedule]: ")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("every = 0\ndraft = 'd'", "Expected `float` > 0"),
        ("every = 5", "missing required field `draft`"),
        ("every = 5\ndraft = 'd'\nweekly = 1", "unknown field `weekly`"),
        ("every = 5\ndraft = 'none.json'", "none.json"),
    ],
)
def test_bad_settings_start_nothing(tmp_path: Path, lines: str, sentence: str) -> None:
    """One error message and exit code 2; no store is created."""
    Cluster(tmp_path)
    file = tmp_path / "server.toml"
    file.write_text(f"{file.read_text()}\n[schedule]\n{lines}\n")
    done = CliRunner().invoke(main, ["serve", "server", "--config", str(file)])
    assert done.exit_code == 2
    assert sentence in done.output
    assert len(done.output.splitlines()) == 1


def test_every_role_has_a_port_of_its_own(tmp_path: Path) -> None:
    """Without `listen`, a service returns to its former port."""
    file = tmp_path / "c.toml"
    file.write_text(
        '[server]\nname="server"\nstore="memory:"\nkeys=["x"]\nshufflers=["x"]\nboard="x"\n'
    )
    assert read_settings(file, role="server", kind=ServerSettings).listen == "127.0.0.1:8002"


# -- real services


@pytest.mark.service
@pytest.mark.parametrize("place", ["proposed", "signed", "opened"])
def test_a_crash_opens_no_round_twice(tmp_path: Path, place: str) -> None:
    """The server is killed at each step of opening, restarts and opens the same round once."""
    local = scheduled(tmp_path / "services", every=24 * 60)
    faults = local.folder / "faults"
    faults.mkdir()
    (faults / f"server.{place}").touch()
    local.start_all()
    try:
        until(lambda: not local.running("server"))
        assert not (faults / f"server.{place}").exists()
        local.start("server")
        local.wait_until_leads("server")
        current = f"{local.url('shuffler-1')}/rounds/current"
        until(lambda: get(current).status_code == 200)
        until((local.folder / "round.url").exists)
        address = (local.folder / "round.url").read_text().strip()
        assert address == f"{local.url('shuffler-1')}/rounds/{get(current).json()['digest']}"
        named = {
            name: [one["digest"] for one in get(f"{local.url(name)}/rounds").json()]
            for name in ("server", "shuffler-1", "board")
        }
        # At midnight there is a second round, which is another one.
        assert 1 <= len(named["server"]) <= 2
        assert set(named["shuffler-1"]) == set(named["board"]) == set(named["server"])
    finally:
        local.end()


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide services with a daily round that closes once its crowd is there."""
    local = scheduled(tmp_path_factory.mktemp("daily"), every=24 * 60)
    with local:
        until((local.folder / "round.url").exists)
        yield local


@pytest.mark.service
def test_people_need_to_know_the_service_only(
    daily: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`take-part SERVICE` joins the current round and, after an interruption, resumes it."""
    monkeypatch.setenv("COATCHECK_HOME", str(tmp_path))
    service = daily.url("shuffler-1")
    assert typed("me", "begin", "--epsilon", "20", "--delta", "1e-2")[0] == 0
    roles = {"server": "server", "shuffler": "shuffler-1", "board": "board"}
    keys = [f"{role}={daily.folder / f'{name}.public'}" for role, name in roles.items()]
    assert typed("me", "trust", *keys)[0] == 0
    part = ("take-part", service, "--group", "riders", "--value", "0.25,0.75", "--wait", "0.1")
    code, told = typed(*part)
    assert code == 1, told  # the round goes on till midnight
    address = get(f"{service}/rounds/current").json()["digest"]
    assert f"the current round is {service}/rounds/{address}" in told
    assert "has signed for your report" in told
    code, told = typed("take-part", f"{service}/rounds/current", *part[2:])
    assert code == 1
    assert "current round" not in told  # it was begun, and goes on
    assert len(list((tmp_path / "tickets").glob("*.json"))) == 1
    code, told = typed("take-part", daily.url("server"), *part[2:])
    assert code == 1
    assert "people ask the first shuffler" in told


@pytest.mark.service
def test_the_current_round_is_asked_for_through_the_relay(daily: Cluster) -> None:
    """The shuffler returns it to the relay's address; keys with a wrong signature are refused."""
    service, relay = daily.url("shuffler-1"), daily.url("relay")
    found = asyncio.run(current_round(service, trusted=daily.trusted, relay=relay))
    assert found == (daily.folder / "round.url").read_text().strip()
    with pytest.raises(Refused, match="not signed by a key that you trust"):
        asyncio.run(current_round(service, trusted=Trust.of([]), relay=relay))


def typed(*words: str) -> tuple[int, str]:
    """Run a command."""
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.output


@pytest.mark.world
def test_rounds_follow_each_other_and_learn(tmp_path: Path) -> None:
    """A later round gets a density prior from the noisy reports of an earlier one."""
    local = scheduled(tmp_path / "services", every=0.1, expires=60, learn=2)
    plan = draft("evening", minimum=30)
    for group in plan["groups"]:
        group["randomizer"] = {**RANDOMIZER, "name": "bounded", "epsilon": 6.0}
    (local.folder / "draft.json").write_text(json.dumps(plan))
    with local:
        service = local.url("shuffler-1")
        seen: dict[str, Any] = {}

        def is_placed() -> bool:
            for one in get(f"{service}/rounds").json():
                if one["digest"] not in seen:
                    offer = get(f"{service}/rounds/{one['digest']}").json()
                    seen[one["digest"]] = json.loads(offer["signed"]["document"])
            names = [group["randomizer"]["name"] for of in seen.values() for group in of["groups"]]
            return "codebook" in names

        async def answered() -> None:
            async with HttpClient() as peers:
                crowd = Crowd(local, (local.folder / "round.url").read_text().strip())
                await crowd.join(peers, people=30)
                await crowd.collect(patience=PATIENCE)

        until((local.folder / "round.url").exists)
        asyncio.run(answered())
        until(is_placed)
        promises = {of["groups"][0]["randomizer"]["name"]: of["groups"] for of in seen.values()}
        before, after = promises["bounded"][0]["promise"], promises["codebook"][0]["promise"]
        assert after["epsilon"] <= before["epsilon"]
        assert len({of["round"] for of in seen.values()}) == len(seen)
