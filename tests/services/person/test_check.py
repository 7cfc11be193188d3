"""`coatcheck check` plays a person through running services, and names the role that fails."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck.cli import main
from coatcheck.services.local_cluster import Cluster, make_keys
from coatcheck.services.web.client import HttpClient
from support.service_rounds import PATIENCE, QUICK, Crowd, draft

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start services of this file's own, with a relay and a witness: roles are killed here."""
    folder = tmp_path_factory.mktemp("check")
    with Cluster(folder, relay=True, witnesses=1, extra=QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def url(local: Cluster) -> str:
    """Open a round that three riders and three drivers have joined; it needs four riders."""
    drafted = draft("checked")
    drafted["groups"][0]["minimum"] = 4
    url = local.open_round(drafted, closes=1, expires=3600)

    async def gather() -> None:
        async with HttpClient() as peers:
            await Crowd(local, url).join(peers, people=3)

    asyncio.run(gather())
    return url


def check(local: Cluster, address: str, *words: str, relay: bool = True) -> Result:
    """Run the command as an operator would."""
    shuffler = next(name for name in local.names if name.startswith("shuffler"))
    roles = {"server": "server", "shuffler": shuffler, "board": "board"}
    roles["witness"] = local.witnesses[0]
    options = [
        word
        for role, name in roles.items()
        for word in ("--trust", f"{role}={local.folder / name}.public")
    ]
    options += ["--relay", local.url("relay")] if relay else []
    return CliRunner().invoke(main, ["check", address, *options, *words])


def failures(result: Result) -> list[str]:
    """Return the roles of the steps that failed."""
    assert result.exit_code in {0, 1}, result.output
    document = json.loads(result.stdout)
    failed = [step["role"] for step in document["steps"] if step["failure"]]
    assert document["passed"] == (result.exit_code == 0) == (not failed)
    return failed


def test_a_person_gets_through_to_the_answer(local: Cluster, url: str) -> None:
    """Every role is asked, directly and through the relay, and one report goes all the way."""
    done = check(local, url, "--group", "riders", "--value", "0.1,0.2", "--wait", f"{PATIENCE}")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert all(line.startswith("works ") for line in lines)
    for needed in ("clock", "cosigned by your witnesses", "relay 127.0.0.1", "signs for it"):
        assert any(needed in line for line in lines), needed
    assert "opened through" in lines[-1]


def test_without_a_value_nothing_is_handed_in(local: Cluster) -> None:
    """The address of the service is enough: its current round is checked and stays as it was."""
    url = local.open_round(draft("looked at"), closes=3600, expires=7200)
    done = check(local, url.partition("/rounds/")[0], "--json")
    assert failures(done) == []
    assert not any("report" in step["what"] for step in json.loads(done.stdout)["steps"])


def test_keys_that_are_not_trusted_are_the_first_shufflers_failure(
    local: Cluster, url: str, tmp_path: Path
) -> None:
    """Nothing is asked of anybody else, as a person would not."""
    make_keys(tmp_path / "other", name="server")
    other = tmp_path / "other.public"
    done = check(local, url, "--trust", f"board={other}", "--json", relay=False)
    assert failures(done) == []  # one more key for a role is harmless
    only = CliRunner().invoke(main, ["check", url, "--trust", f"server={other}", "--json"])
    assert len(failures(only)) == 1
    assert "not one you trust" in only.stdout


@pytest.mark.parametrize("away", ["relay", "board"])  # the last test: it leaves the roles away
def test_the_role_that_is_away_is_named(local: Cluster, away: str) -> None:
    """One failure, and what needs that role is not tried; a relay is told from a role."""
    url = local.open_round(draft(f"without the {away}"), closes=3600, expires=7200)
    local.kill(away)
    try:
        shown = check(local, url, "--json")
    finally:
        if away == "relay":  # a board would have to wait until the lease of the dead one ends
            local.start(away)
    failed = failures(shown)
    assert len(failed) == 1
    assert failed[0].startswith(away)
    skipped = [step["role"] for step in json.loads(shown.stdout)["steps"] if step["skipped"]]
    assert skipped
    assert all(away in role for role in skipped)
