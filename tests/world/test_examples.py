"""The notebooks in `examples/` run from top to bottom, on a small size."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("taxi", "drivers have a rider"),
        ("friends", "neighbours are near"),
        ("learning", "round 2"),
        ("questions", "groups: people named are"),
    ],
)
def test_example_runs(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each example runs as a script and says what it found."""
    monkeypatch.setenv("PEOPLE", "80")
    monkeypatch.setenv("ROUNDS", "4")
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_opens_as_a_notebook(path: Path) -> None:
    """Each example is in the percent format, and opens with text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines.count("# %%") >= 3
