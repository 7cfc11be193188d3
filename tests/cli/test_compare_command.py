"""`coatcheck compare` at the shell: the table, the JSON, the plot and the errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck.cli import main


def run(*arguments: str) -> Result:
    """Run the command as a shell would, with standard error apart."""
    return CliRunner().invoke(main, ["compare", "--samples", "300", *arguments])


def test_json_is_a_list_of_rows_with_the_promised_keys() -> None:
    """One JSON document on standard output, nothing but progress on standard error."""
    done = run("--json", "--epsilon", "1,3")
    assert done.exit_code == 0
    assert all("measuring mechanisms" in line for line in done.stderr.splitlines())
    rows = json.loads(done.stdout)
    for row in rows:
        assert list(row) == [
            "mechanism",
            "decode",
            "epsilon",
            "mean_error",
            "paper",
            "exact",
            "microseconds",
        ]
    published = {row["epsilon"]: row for row in rows if row["mechanism"] == "minkowski-paper"}
    assert published[3.0]["paper"] == 0.98
    assert published[1.0]["exact"] is True
    assert [row["paper"] for row in rows if row["mechanism"] == "privunit"] == [None] * 4


def test_the_table_of_seven_budgets_fits_a_hundred_columns() -> None:
    """Every figure is whole, the paper's stands beside it, and no line exceeds 100 columns."""
    done = run()
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" not in done.stdout
    (published,) = [line for line in lines if line.startswith("minkowski-paper")]
    for figure in ("10.42", "4.50", "1.78", ".98", ".39", ".14", ".074"):
        assert figure in published.split()
    assert any("the paper's figure" in line for line in lines)


def test_a_domain_without_figures_of_the_paper_says_nothing_of_it() -> None:
    """On a line the output has no column of the paper's figures and no remark about it."""
    done = run("--domain", "line", "--epsilon", "2")
    assert done.exit_code == 0
    assert "paper's figure" not in done.stdout
    assert "[-1, 1];" in done.stdout


def test_the_plot_is_drawn_beside_the_output(tmp_path: Path) -> None:
    """A PNG is written, and standard error names it."""
    picture = tmp_path / "errors.png"
    done = run("--epsilon", "1,3", "--json", "--plot", str(picture))
    assert done.exit_code == 0
    assert json.loads(done.stdout)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    assert str(picture) in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--epsilon", "1,x"], "`--epsilon` takes numbers separated by commas, such as 0.5,1"),
        (["--epsilon", ","], "`--epsilon` takes numbers separated by commas"),
        (["--epsilon", "1,1.0"], "must name each budget once"),
        (["--epsilon", "0"], "`epsilon` must be a number above 0"),
        (["--epsilon", "nan"], "`--epsilon` takes numbers separated by commas"),
        (["--epsilon", "1", "--samples", "0"], "`samples` must be"),
        (["--epsilon", "1", "--seed", "-1"], "`seed` must be a whole number, 0 or more"),
        (["--domain", "torus"], "`--domain` must be one of square | line | cube, got 'torus'"),
        (["--epsilon", "1", "--plot", "errors.txt"], "must end in .png, .svg, .pdf"),
        (["--epsilon", "1", "--plot", "nowhere/errors.png"], "there is no folder nowhere"),
    ],
)
def test_wrong_input_is_an_error_line(arguments: list[str], sentence: str) -> None:
    """Exit code 2, one line on standard error with the program's name, and no output."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("coatcheck: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
