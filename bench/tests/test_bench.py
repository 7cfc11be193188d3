"""The bench's frame: names are found, figures know their targets."""

import json
import sys

import pytest

from bench import Figure, quickest, show
from bench.__main__ import NAMES, main
from bench.scale import growth


def test_an_unknown_bench_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name ends with exit code 2 and the list of right ones."""
    assert main(["nope"]) == 2
    assert f"unknown name nope; the names are {', '.join(NAMES)}" in capsys.readouterr().out
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


def test_options_are_the_benches_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the first option is no name of a bench."""
    ran: list[str] = []

    def run() -> int:
        ran.append("randomizers")
        return 0

    monkeypatch.setattr("bench.randomizers.main", run)
    assert main(["randomizers", "--reports", "1000", "nope", "--json"]) == 0
    assert ran == ["randomizers"]


def test_a_task_is_measured_in_a_process_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--large` has a row for the time and one for the memory of each task that is asked for."""
    words = ["bench", "tasks", "--large", "--people", "2000", "--only", "standing", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    assert main(words[1:]) == 0
    seconds, peak = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert seconds["what"] == "standing, 2000"
    assert seconds["unit"] == "s"
    assert peak["unit"] == "GB"
    assert 0.01 < peak["value"] < 4


def test_solvers_are_measured_beside_scipys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--scipy` has a table for each task: seconds, their ratio to ours, and the same answer."""
    only = "pairs listed in the plane: anywhere, degree 3"
    words = ["bench", "matchings", "--scipy", "--sizes", "300", "--only", only]
    monkeypatch.setattr(sys, "argv", words)
    assert main(words[1:]) == 0
    *_, row, _ = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert row[:2] == ["| anywhere, degree 3", "300"]
    assert all(" GB" in cell and "answer" not in cell for cell in row[2:])
    assert "x)" in row[3]


def test_a_rehearsal_goes_through_the_services(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage has a row with the names that others read, and capacity follows from them."""
    words = ["bench", "scale", "--reports", "1000", "--stand-in", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setenv("BENCH_STAGES", "")  # so that it is gone again afterwards
    main(words[1:])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stages = {row["stage"]: row for row in rows if "stage" in row}
    for name in ("peel", "open", "seal", "release", "answer", "task"):
        row = stages[name]
        assert row["reports"] == 1000
        for key in ("seconds", "cpu_seconds", "serial_microseconds", "peak_bytes"):
            assert row[key] > 0
        assert row["share_of_limit"] is None  # there is no curve in it
    assert stages["closed to published"]["seconds"] > 0
    assert any("cores, server" in row.get("what", "") for row in rows)


def test_growth_is_an_exponent() -> None:
    """Twice the reports and four times the seconds are growth of order two."""
    rows = [{"stage": "peel", "reports": n, "seconds": n**2, "peak_bytes": 5} for n in (1000, 2000)]
    found = {figure.what: figure for figure in growth(rows)}
    assert found["growth of peel, seconds"].value == pytest.approx(2)
    assert not found["growth of peel, seconds"].passed
    assert found["growth of peel, peak_bytes"].value == 0
