"""What people read: answers, times and keys in words, and hints that name the remedy."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from coatcheck.cli import main
from coatcheck.cli.output import answer_text, contact_of, plain, show, store_contacts
from coatcheck.errors import Misuse

CONTACT = "0123456789abcdef" * 8
PARTNER = {"group": "drivers", "address": "00" * 16, "estimate": [31.2, 121.4], "contact": CONTACT}
URL = "http://127.0.0.1:8001/rounds/00"


def test_a_partner_is_shown_without_128_digits() -> None:
    """The output has the place with its noise, a short key and the next command."""
    text = "\n".join(answer_text({"partners": [PARTNER]}, URL))
    assert "Partner 1 (group drivers), estimated as 31.2, 121.4 (with noise)" in text
    assert CONTACT not in text
    assert f"coatcheck letters write {URL} --to 1" in text


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"values": []}, "The answer names no partner for you this time."),
        ({"values": [0.25, 3.0]}, "Your answer: 0.25, 3"),
        ({"values": [1.0], "shared": [0.5]}, "For everybody: 0.5"),
        ({"partners": [PARTNER], "settled": {"partners": []}}, "Nobody settled with you"),
        (
            {"settled": {"partners": [{"contact": CONTACT, "words": "at the door"}]}},
            "Settled with 01234567…cdef: at the door",
        ),
    ],
)
def test_every_kind_of_answer_is_a_sentence(found: dict[str, object], told: str) -> None:
    """No sentence contains brackets or braces."""
    text = "\n".join(answer_text(found))
    assert told in text
    assert not set("[]{}") & set(text)


def test_a_letter_goes_to_a_partner_by_number(tmp_path: Path) -> None:
    """The contacts are stored beside the ticket with access for the owner only."""
    ticket = tmp_path / "my.ticket"
    store_contacts(ticket, {"partners": [PARTNER]})
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert contact_of(ticket, "1") == contact_of(ticket, CONTACT) == bytes.fromhex(CONTACT)
    for wrong, sentence in (
        ("2", "named 1 partners"),
        ("0", "named 1"),
        ("xyz", "partner's number"),
    ):
        with pytest.raises(Misuse, match=sentence):
            contact_of(ticket, wrong)
    with pytest.raises(Misuse, match="cannot read"):
        contact_of(tmp_path / "other", "1")


def test_documents_are_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Times by the clock, groups without JSON, yes and no; --json stays exact."""
    group = {"name": "riders", "minimum": 3, "crowd": 4, "enough": True}
    status = {"round": "evening", "closes": int(time.time()), "groups": [group]}
    show(status, as_json=False)
    text = capsys.readouterr().out
    assert "name riders, minimum 3, crowd 4, enough yes" in text
    assert str(status["closes"]) not in text
    show(status, as_json=True)
    assert json.loads(capsys.readouterr().out) == status
    assert plain("rounds", []) == "none"
    assert plain("delta", 1e-6) == "1e-06"
    assert plain("hop", None) == "-"


@pytest.mark.parametrize("begun", [False, True])
def test_a_missing_trust_points_to_the_profile(
    begun: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hint names the command to run; nothing was sent or changed."""
    monkeypatch.setenv("COATCHECK_HOME", str(tmp_path / "home"))
    if begun:
        CliRunner().invoke(main, ["me", "begin", "--epsilon", "3"])
    done = CliRunner().invoke(main, ["take-part", URL, "--group", "all", "--value", "1,2"])
    assert done.exit_code == 2
    assert "--trust" in done.output
    assert "coatcheck me begin" in done.output
    assert "coatcheck me trust" in done.output
