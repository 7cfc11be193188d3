"""The browser's times: drawn within the window of the terms with a relay, and at once without."""

from typing import Any

from world.web.browser import ask


def test_times_are_drawn_evenly_within_the_window() -> None:
    """600 waits of up to 8 s: a third in each third, and none outside.

    Fresh draws: a count of 200 with standard deviation 11.5 is 100 away less often than 1e-17.
    """
    waits = ask("lingered", seconds=8, count=600)
    assert len(waits) == 600
    assert all(0 <= wait <= 8 for wait in waits)
    for third in range(3):
        assert 100 < sum(8 * third / 3 <= wait < 8 * (third + 1) / 3 for wait in waits) < 300
    assert ask("lingered", seconds=0, count=3) == []


def test_only_a_relay_makes_people_wait() -> None:
    """Without a relay waiting hides nothing; without a window the terms ask for none."""
    options: dict[str, Any] = {
        "relay": "http://127.0.0.1:9",
        "url": "http://127.0.0.1:8/rounds/0",
        "trusted": {},
    }
    assert ask("windows", window=30, **options) == [30, 0, 0]
