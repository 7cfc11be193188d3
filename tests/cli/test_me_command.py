"""`coatcheck me`: stored settings are used by later commands, and mistakes change nothing."""

import json
import stat
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.guarantee import Disclosure
from coatcheck.accounting.laws import AnyLdp
from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import main
from coatcheck.cli.files import read_trust
from coatcheck.cli.profile import Profile, defaults, load, ticket_of
from coatcheck.errors import Misuse
from coatcheck.protocol.keys import read_public
from coatcheck.protocol.log.signed_notes import COSIGNATURE, ED25519, NoteKey
from coatcheck.services.person import session

URL = "http://127.0.0.1:9/rounds/00"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a separate folder for one person."""
    monkeypatch.setenv("COATCHECK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def typed(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, words)


def keys(role: str) -> str:
    """Make a role's keys, and return the file of its public keys."""
    Path(f"{role}.pub").write_text(typed("keygen", role, "--out", f"{role}.key").stdout)
    return f"{role}={role}.pub"


def test_a_profile_is_created_once(home: Path) -> None:
    """Folder and files have access for their owner only, and the limit stays."""
    assert typed("me", "begin", "--epsilon", "3", "--per-round", "1").exit_code == 0
    assert load() == Profile(epsilon=1.0, delta=1e-6)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}
    before = (home / "ledger.json").read_bytes()
    again = typed("me", "begin", "--epsilon", "9")
    assert again.exit_code == 2
    assert "set once" in again.stderr
    assert (home / "ledger.json").read_bytes() == before


def test_overdue_outcomes_are_named_with_what_they_may_cost(home: Path) -> None:
    """`me show` and `ledger show` tell what is spent and what is set aside, apart."""
    typed("me", "begin", "--epsilon", "5")
    book = Ledger.open(home / "ledger.json")
    promise = amplify(AnyLdp(epsilon=2.0), crowd=2000, delta=1e-6)
    assert "Overdue" not in typed("me", "show").stdout
    book.spend(promise, round_id="monday", until=1)
    shown = typed("me", "show").stdout
    assert "Overdue: monday" in shown
    assert "ε = 2; so much is set aside" in shown
    document = json.loads(typed("ledger", "show", str(home / "ledger.json"), "--json").stdout)
    assert document["spent"] == book.spent < document["worst"] == 2.0
    assert document["overdue"] == ["monday"]
    book.record_outcome("monday", answered=True)
    assert "Overdue" not in typed("me", "show").stdout


def test_what_letters_may_tell_is_limited_and_shown(home: Path) -> None:
    """`me set --disclosures` limits one round; `me show` prints the sum of all rounds."""
    typed("me", "begin", "--epsilon", "5")
    assert defaults()["take-part"]["disclosures"] == 40
    assert typed("me", "set", "--disclosures", "6").exit_code == 0
    assert defaults()["take-part"]["disclosures"] == 6
    assert typed("me", "set", "--disclosures", "0").exit_code == 2
    promise = amplify(AnyLdp(epsilon=1.0), crowd=2000, delta=1e-6)
    told = replace(promise, letters=Disclosure(candidates=4, cells=69))
    book = Ledger.open(home / "ledger.json")
    book.spend(told, round_id="monday")
    book.spend(told, round_id="tuesday")
    shown = typed("me", "show").stdout
    assert "By letters at most 8 candidates learned an answer about you" in shown
    assert "One round may tell at most 6 candidates" in shown
    assert json.loads(typed("me", "show", "--json").stdout)["disclosures"] == 8


def test_the_profile_fills_in_options(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust, limits, ledger, relay and ticket come from it; typed options take precedence."""

    async def once(ask: Callable[[], Awaitable[Any]], *_: float) -> Any:
        return await ask()

    monkeypatch.setattr(session, "patiently", once)  # a relay that is away is asked for 30 s
    typed("me", "begin", "--epsilon", "3", "--per-round", "1")
    for role in ("server", "shuffler", "board"):
        assert typed("me", "trust", keys(role)).exit_code == 0
    Path("server.pub").unlink()  # the folder has a copy
    assert typed("me", "set", "--relay", "http://127.0.0.1:8").exit_code == 0
    given = defaults()["take-part"]
    assert (given["epsilon"], given["relay"]) == (1.0, "http://127.0.0.1:8")
    assert [text.partition("=")[0] for text in given["trust"]] == ["server", "shuffler", "board"]
    result = typed("take-part", URL, "--group", "riders", "--value", "1,2", "--wait", "0")
    assert result.exit_code == 1
    assert "127.0.0.1:8" in result.stderr  # the relay is away, and nobody else is asked
    assert ticket_of(URL, None).parent == home / "tickets"
    assert ticket_of(URL + "/", None) == ticket_of(URL, None)
    shown = json.loads(typed("me", "show", "--json").stdout)
    assert (shown["limit"], shown["rounds"]) == ({"epsilon": 3.0, "delta": 1e-6}, [])
    assert "through http://127.0.0.1:8" in typed("me", "show").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["me", "trust", "server"], "give ROLE=FILE"),
        (["me", "trust", "baker=x"], "give ROLE=FILE"),
        (["me", "trust", "server=none.pub"], "none.pub"),
        (["me", "set", "--per-round", "-1"], "above 0"),
        (["me", "set", "--witnesses", "-1"], ">= 0"),
        (["me", "set", "--relay", "nonsense"], "give https://HOST"),
        (["me", "set", "--per-round", "4"], "must be at most 3"),
        (["me", "set"], "nothing to change"),
    ],
)
def test_a_mistake_changes_nothing(home: Path, words: list[str], told: str) -> None:
    """One error says what to do."""
    typed("me", "begin", "--epsilon", "3")
    before = (home / "profile.json").read_bytes()
    result = typed(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert (home / "profile.json").read_bytes() == before


def test_without_a_profile_or_with_a_broken_one(home: Path) -> None:
    """People learn how to create one; commands that need no profile run as usual."""
    assert "coatcheck me begin" in typed("me", "show").stderr
    typed("me", "begin", "--epsilon", "3")
    (home / "profile.json").write_text('{"epsilon": "much"}')
    assert "profile.json cannot be read" in typed("letters", "read", URL).stderr
    assert typed("calibrate", "--epsilon", "1", "--crowd", "100", "--delta", "1e-4").exit_code == 0


def test_a_key_of_another_role_is_not_trusted(home: Path) -> None:
    """It is refused for its name, or as it is trusted in another role: nothing is stored."""
    typed("me", "begin", "--epsilon", "3")
    keys("shuffler")
    Path("any.pub").write_text(typed("keygen", "any", "--out", "any.key").stdout)
    wrong = typed("me", "trust", "server=shuffler.pub")
    assert (wrong.exit_code, "the key of a shuffler" in wrong.stderr) == (2, True)
    assert typed("me", "trust", "shuffler=any.pub").exit_code == 0
    twice = typed("me", "trust", "board=any.pub")
    assert (twice.exit_code, "the key of a shuffler" in twice.stderr) == (2, True)
    assert len(load().trust) == 1  # type: ignore[union-attr] # it was begun above
    assert len(list(home.glob("*.pub"))) == 1


def test_letters_need_a_ticket() -> None:
    """An address of another round is refused before any request."""
    typed("me", "begin", "--epsilon", "3")
    for role in ("server", "shuffler", "board"):
        typed("me", "trust", keys(role))
    for words in (["write", URL, "--to", "1", "--message", "hello"], ["read", URL]):
        done = typed("letters", *words)
        assert done.exit_code == 2
        assert "you have no ticket" in done.stderr
        assert "take-part" in done.stderr


@pytest.mark.parametrize("group", [(), ("me",), ("round",), ("ledger",), ("terms",), ("letters",)])
def test_help_lists_whole_sentences(group: tuple[str, ...]) -> None:
    """No command's description is cut off in the middle of a sentence."""
    listed = typed(*group, "--help")
    assert listed.exit_code == 0
    assert "..." not in listed.stdout.split("\n", 1)[1]


def test_an_address_without_its_scheme_is_refused_at_once() -> None:
    """The command does not wait for an impossible request."""
    for words in (
        ["take-part", "localhost:8001", "--value", "1,2"],
        ["round", "list", "nonsense"],
        ["round", "status", "127.0.0.1:8001/rounds/00"],
        ["letters", "read", "localhost:8001"],
    ):
        done = typed(*words)
        assert done.exit_code == 2
        assert "must begin with http://HOST:PORT" in done.stderr


def test_a_policy_file_of_witnesses_is_kept_and_used(home: Path) -> None:
    """`me trust policy=FILE` copies it; commands read it; a bad file or a second way is refused."""
    typed("me", "begin", "--epsilon", "3")
    board = read_public(Path(keys("board").partition("=")[2]))
    log = NoteKey("board.example", bytes.fromhex(board.verifying), ED25519).text
    one, two = (NoteKey(f"w{n}.example", bytes((n,)) * 32, COSIGNATURE).text for n in (1, 2))
    Path("witnesses").write_text(
        f"log {log}\nwitness a {one}\nwitness b {two}\ngroup g any a b\nquorum g\n"
    )
    assert typed("me", "trust", "board=board.pub", "policy=witnesses").exit_code == 0
    trusted = read_trust(defaults()["take-part"]["trust"])
    assert trusted.witnesses.least == 1
    assert len(trusted.witnesses.members) == 2
    with pytest.raises(Misuse, match="how many witnesses it demands"):
        read_trust(defaults()["take-part"]["trust"], witnesses=1)
    Path("wrong").write_text("quorum nobody-defined\n")
    refused = typed("me", "trust", "policy=wrong")
    assert refused.exit_code == 1
    assert "line 1 of the policy file" in refused.stderr
    assert (home / "witnesses.policy").read_text() == Path("witnesses").read_text()
