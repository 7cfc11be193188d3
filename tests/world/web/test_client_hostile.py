"""The JavaScript client among hostile peers, and when several of its visits happen at once."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.oblivious_http import GatewayKey, write_keys
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.bulletins import PERIOD, KeyList
from coatcheck.services.local_cluster import Cluster
from support.rounds import SmallRound
from support.service_rounds import QUICK, draft
from world.web import browser

FIRST = "https://shuffler.example/rounds/" + "0" * 64
TRUSTED = {"shufflers": [["11" * 32]], "board": ["22" * 32]}


@pytest.fixture(scope="module")
def ask() -> Any:
    """Ask the client's sources, whose packages are installed."""
    browser.packages()
    return partial(browser.ask, script="hostile.mjs")


def settling(**settle: Any) -> str:
    """Write terms by which people settle; nobody's signature is looked at."""
    plain = json.loads(SmallRound().round.document)
    work = {"name": "least-cost-matching", "params": {"candidates": 2}}
    rings = {"cell": 0.1, "rings": [0.4], "asks": [1], "pause": 1}
    return json.dumps({**plain, "task": work, "settle": {**rings, **settle}})


@pytest.mark.parametrize("kind", ["slow", "storage", "files"])
def test_visits_that_join_at_once_spend_one_after_the_other(
    ask: Any, kind: str, tmp_path: Path
) -> None:
    """Each sees what the others spent, in whatever store; who comes too late is refused."""
    result = ask("ledgers", kind=kind, folder=str(tmp_path))
    assert (result["entered"], len(result["rounds"])) == (1, 1)


def test_files_that_are_written_at_once_stay_whole(ask: Any, tmp_path: Path) -> None:
    """One of the texts is there, and nobody is told of a missing file."""
    assert ask("written", folder=str(tmp_path)) is True
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_a_checkpoint_of_a_board_never_goes_back(ask: Any) -> None:
    """Another round of the same person may have stored a newer one."""
    assert ask("remembered") == 9


def test_a_relay_that_sends_without_end_is_not_read(ask: Any) -> None:
    """A message of a relay has at most 2^20 bytes."""
    reply, megabytes = ask("endless", first=FIRST, trusted=TRUSTED)
    assert reply.startswith("Refused: https://relay.example answers with more than")
    assert megabytes < 10


def test_an_end_of_keys_that_is_no_time_is_refused(ask: Any) -> None:
    """The relay chooses this header."""
    values = ["-1", "1e5", "x", "9" * 30, "", "86401"]
    replies = ask("until", first=FIRST, trusted=TRUSTED, values=values)
    assert all(
        reply.startswith("Refused: the relay did not say for which day") for reply in replies
    )


def test_a_second_key_list_of_a_day_is_refused(ask: Any) -> None:
    """Also by the next session of the same store, which goes on with the list seen first."""
    signing = KeyPairs(CLASSICAL, bytes(32)).signing
    trusted = {**TRUSTED, "shufflers": [[signing.public_raw.hex()]]}
    today = int(time.time() + 60) // PERIOD  # the slack covers a midnight during this test

    def listed(number: int, period: int) -> dict[str, Any]:
        keys, until = write_keys([GatewayKey(number, bytes([number] * 32))]), (period + 1) * PERIOD
        signature = signing.sign(KeyList.signed_part(keys, until)).hex()
        return {"keys": keys.hex(), "until": until, "signatures": signature}

    first, second = listed(1, today), listed(2, today)
    old, forged = listed(3, today - 2), {**first, "until": first["until"] + PERIOD}
    replies = ask(
        "lists",
        first=FIRST,
        trusted=trusted,
        sessions=[[old], [forged], [first, first, second], [second], [first]],
    )
    tomorrow, two = "at the latest tomorrow", "two key lists for one day"
    expected = ["not for today", "no key that you trust", tomorrow, two, two, tomorrow]
    for reply, words in zip(replies, expected, strict=True):
        assert words in reply


def test_a_relay_serves_no_role_of_its_own_operator(ask: Any) -> None:
    """By domain: also a short one below a country's letters."""
    cases = [
        ("https://relay.a.org", "https://board.a.org", "Misuse"),
        ("https://relay.foo.io", "https://board.foo.io", "Misuse"),
        ("https://relay.a.co.uk", "https://board.a.co.uk", "Misuse"),
        ("https://a.co.uk", "https://b.co.uk", "Unavailable"),
        ("https://relay.org", "https://board.org", "Unavailable"),
    ]
    replies = ask("apart", trusted=TRUSTED, pairs=[case[:2] for case in cases])
    assert replies == [case[2] for case in cases]


def test_pauses_between_looks_are_drawn_with_a_relay() -> None:
    """Evenly from nothing to the window; 600 draws are in each third of it 100 to 300 times."""
    result = browser.ask("drawn", script="hostile.mjs", window=8, due=0.25, count=600)
    assert result["plain"] == 0.25
    for third in range(3):
        low, high = 8 * third / 3, 8 * (third + 1) / 3
        assert 100 < sum(low <= pause < high for pause in result["drawn"]) < 300
    longer = browser.ask("drawn", script="hostile.mjs", window=1, due=5, count=100)["drawn"]
    assert 5 < max(longer) <= 10


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay."""
    with Cluster(tmp_path_factory.mktemp("looks"), relay=True, extra=QUICK) as cluster:
        yield cluster


def test_whoever_waits_for_the_end_looks_at_random_times(ask: Any, local: Cluster) -> None:
    """Not at those that everybody knows: each would be met within 0.15 s with a chance of 8 %."""
    url = local.open_round({**draft("looks"), "window": 4}, closes=600, expires=3600)
    pauses = ask("looks", url=url, relay=local.url("relay"), trusted=local.trusted.plain())
    ladder = [0.25 * 1.3**n for n in range(len(pauses))]
    assert len(pauses) >= 2
    assert any(abs(pause - due) > 0.15 for pause, due in zip(pauses, ladder, strict=True))


def test_strange_answers_of_a_board_are_refused(ask: Any) -> None:
    """No JSON, a place below zero or beyond all numbers, letters without end."""
    replies = ask("strange", document=settling())
    assert all(reply.startswith("Refused: ") for reply in replies)
    assert "does not end" in replies[-1]


def test_places_without_a_cell_are_refused(ask: Any) -> None:
    """As in Python: tests/protocol/settling/test_settling.py."""
    good = [([0.5, -1.0], [], 1.0), ([2**31 - 2048, 2048 - 2**31], [], 1.0), ([1.0], [2.0], 0.5)]
    bad = [
        ([0.5, 1.0], [], 1e-10),
        ([0.5, 1.0], [], 5e-324),
        ([2**31 - 2047, 0], [], 1.0),
        ([0.5, 1.0], [1.0], 1.0),
        ([0.5, 1.0], "ab", 1.0),
    ]
    result = ask("cells", places=good + bad)
    assert result[: len(good)] == [[0, -1], [2**31 - 2048, 2048 - 2**31], [4]]
    assert result[len(good) :] == ["Refused"] * len(bad)
    cases = [(6, 2), (6, 4), (6, 40), (0.5, 1000), (1.2, 3)]
    assert ask("axes", sizes=cases) == [113, "Refused", "Refused", 1, 7]


def test_a_full_mailbox_costs_one_letter_and_a_hidden_notice_some_patience(ask: Any) -> None:
    """The other candidate gets every letter; one's own notice is not awaited for ever."""
    result = ask("settle", document=settling(), full=True, patience=1)
    assert result["taken"].count(1) == result["taken"].count(0) + result["taken"].count(1) > 0
    assert result["end"].startswith("Unavailable: the board accepted your notice")
