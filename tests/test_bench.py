"""The bench's frame: names are found, figures know their targets."""

import pytest

from bench import Figure, quickest, show
from bench.__main__ import NAMES, main


def test_an_unknown_bench_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name ends with exit code 2 and the list of right ones."""
    assert main(["nope"]) == 2
    assert f"there is no nope; there are {', '.join(NAMES)}" in capsys.readouterr().out
    assert "randomizers" in NAMES


def test_a_missed_target_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures pass up to their target; one that misses it makes the exit code 1."""
    good = Figure(what="ratio", value=1.5, unit="x", target=1.5)
    plain = Figure(what="count", value=1234.5, unit="")
    bad = Figure(what="time", value=2.0, unit="µs", target=1.0)
    assert show([good, plain]) == 0
    assert show([good, bad]) == 1
    assert capsys.readouterr().out.count("MISSED") == 1


def test_the_quickest_of_several_rounds_counts() -> None:
    """Jobs take turns, and each job's least time is returned."""
    order: list[str] = []
    times = quickest(lambda: order.append("a"), lambda: order.append("b"), rounds=3)
    assert order == ["a", "b"] * 3
    assert all(0 < seconds < 1 for seconds in times)
