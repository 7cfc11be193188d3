"""Commands over the network: open a round, take part, write to the match, close, abandon."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import main
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import LIMIT, Crowd, draft

pytestmark = pytest.mark.service


@pytest.fixture
def local(running: Cluster) -> Cluster:
    """Provide running services."""
    return running


def call(*words: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def told(result: Result) -> Any:
    """Decode the document that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def opened(local: Cluster, name: str, *, minimum: int, closes: int = 1, expires: int = 600) -> str:
    """Open a round by command and return its address."""
    file = local.folder / f"{name}.json"
    file.write_text(json.dumps(draft(name, minimum=minimum)))
    token = local.folder / "admin.token"
    words = ("--server", local.url("server"), "--token", token, "--json")
    times = ("--closes", closes, "--expires", expires)
    url: str = told(call("round", "open", file, *words, *times))["url"]
    return url


def trust(local: Cluster) -> list[str]:
    """Return the options that trust the public keys."""
    files = sorted(local.folder.glob("*.public"))
    return [word for file in files for word in ("--trust", str(file))]


def test_a_round_by_commands(local: Cluster, tmp_path: Path) -> None:
    """One rider takes part by command, is matched, and the two write to each other."""
    url = opened(local, "by hand", minimum=3)
    assert told(call("round", "status", url, "--json"))["phase"] == "open"
    rounds = json.loads(call("round", "list", local.url("server"), "--json").stdout)
    assert [one["opened"] for one in rounds if one["url"] == url] == [True]
    assert "by hand" in call("round", "list", local.url("server")).stdout
    for role in ("server", "shuffler-1"):  # the whole address, folded where the terminal is narrow
        lines = call("round", "list", local.url(role)).stdout.splitlines()
        assert url in "".join(word for line in lines for word in line.split()[-1:])
    ledger, ticket = tmp_path / "ledger", tmp_path / "ticket"
    Ledger.open(ledger, epsilon=20.0, delta=1e-2)
    crowd = Crowd(local, url)

    async def others() -> None:
        async with HttpClient() as peers:
            await crowd.join(peers, people=2)
            path, trusted = tmp_path / "driver", local.trusted
            third = Session(url, path=path, trusted=trusted, peers=peers)
            await third.join((0.5, 0.5), group="drivers", limit=LIMIT, ledger=None)
            crowd.sessions.append(third)

    async def letters() -> list[bytes]:
        async with HttpClient() as peers:
            for session in crowd.sessions:
                session._peers = peers
            boxes = [await session.read() for session in crowd.sessions]
            return [letter.body for box in boxes for letter in box.letters]

    # Without me the riders are one too few, so the round waits for me.
    asyncio.run(others())
    mine = (url, *trust(local), "--ticket", ticket)
    limit = ("--epsilon", 10, "--delta", 1e-3, "--ledger", ledger)
    value = ("--group", "riders", "--value", "0.25,0.75")
    words = ("take-part", *mine, *limit, *value, "--json")
    answer = told(call(*words))
    spent = Ledger.open(ledger).spent
    assert told(call(*words)) == answer  # again: the same ticket, the same answer
    assert Ledger.open(ledger).spent == spent
    contact = answer["partners"][0]["contact"]
    wrote = call("letters", "write", *mine, "--to", contact, "--message", "at the corner")
    assert wrote.exit_code == 0, wrote.output
    assert asyncio.run(letters()) == [b"at the corner"]
    assert told(call("letters", "read", *mine, "--json"))["letters"] == []


def test_a_round_is_closed_or_abandoned_by_its_operator(local: Cluster) -> None:
    """An operator cannot close a round early or below its crowd, but can abandon it."""
    url = opened(local, "early", minimum=3, closes=600, expires=900)
    token = local.folder / "admin.token"
    early = call("round", "close", url, "--token", token)
    assert early.exit_code == 1
    assert "keep this round open until" in early.output
    given_up = told(call("round", "close", url, "--token", token, "--abandon", "--json"))
    assert given_up["phase"] == "abandoned"
    again = call("round", "close", url, "--token", token, "--abandon")
    assert again.exit_code == 1
    assert re.search(r"the round is (abandoned|ended) already", again.output)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("serve", "shuffler", "--config", "none.toml"), "cannot read none.toml"),
        (("round", "status", "http://127.0.0.1:9/rounds/0"), "does not answer"),
        (("round", "status", "nonsense"), "URL must begin with http://HOST:PORT"),
        (
            ("round", "open", "none.json", "--server", "http://127.0.0.1:9", "--token", "t"),
            "cannot read none.json",
        ),
    ],
)
def test_wrong_input_is_an_error(words: tuple[str, ...], sentence: str) -> None:
    """A mistake gives one error and no traceback."""
    result = call(*words)
    assert result.exit_code in {1, 2}
    assert sentence in result.output
    assert result.output.startswith("coatcheck: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[server]\n", "has no table [board]"),
        ("[board]\nname = 1\n", "Expected `str`"),
        ('[board]\nname = "b"\nstore = "memory:"\n', "missing required field `keys`"),
        ('[board]\nname="b"\nstore="memory:"\nkeys=["x.key"]\nwrong=1\n', "unknown field `wrong`"),
        ("[board\n", "is not a TOML file"),
        ('[board]\nname="b"\nstore="memory:"\nkeys=["x.key"]\n', "cannot read"),
    ],
)
def test_wrong_settings_are_errors(text: str, sentence: str, tmp_path: Path) -> None:
    """Settings are read strictly, and the error names the mistake."""
    file = tmp_path / "s.toml"
    file.write_text(text)
    result = call("serve", "board", "--config", file)
    assert result.exit_code == 2
    assert sentence in result.output
