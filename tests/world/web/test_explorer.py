"""The explorer's table is the library's, cell by cell, and its answers keep their promise."""

import contextlib
import io
import json
import shlex
from itertools import pairwise

import pytest
from click.testing import CliRunner

from coatcheck.accounting.amplification import amplify
from coatcheck.cli import main
from coatcheck.demo.page import app
from coatcheck.errors import Misuse
from coatcheck.randomizers import from_params

TABLE = json.loads(app.TABLE.read_text())


@pytest.mark.parametrize(("row", "column"), [(2, 5), (8, 1)])
def test_a_cell_of_the_table_is_what_the_library_plans(row: int, column: int) -> None:
    """Error and local ε of every mechanism, to the four digits that the table stores."""
    crowd, epsilon = app.CROWDS[row], app.EPSILONS[column]
    answer = app.answer(crowd=crowd, epsilon=epsilon, share=0.0)
    for design in answer["designs"]:
        at = app.MECHANISMS.index(design["mechanism"])
        assert TABLE["errors"][row][column][at] == pytest.approx(design["error"], rel=2e-3)
        assert TABLE["locals"][row][column][at] == pytest.approx(design["local_epsilon"], rel=2e-3)


def test_every_design_of_an_answer_keeps_its_promise() -> None:
    """What the page shows when it is opened holds: the mechanism's own law gives at most ε."""
    crowd, epsilon, share = app.FIRST
    first = app.answer(crowd=crowd, epsilon=epsilon, share=share)
    for design in first["designs"]:
        mechanism = from_params(design["parameters"])
        guarantee = amplify(
            mechanism.law, crowd=crowd, delta=app.DELTA, corrupted=first["corrupted"]
        )
        assert guarantee.epsilon <= epsilon * (1 + 1e-9)
        assert mechanism.expected_error(design["decode"]) == pytest.approx(design["error"])


def test_more_people_and_more_epsilon_never_hurt() -> None:
    """Down a column and along a row of the table the least error falls."""
    errors = [[min(cell) for cell in row] for row in TABLE["errors"]]
    for row, below in pairwise(errors):
        assert all(more <= less * 1.001 for less, more in zip(row, below, strict=True))
    for row in errors:
        assert all(more <= less * 1.001 for less, more in pairwise(row))


def test_the_copied_command_and_python_say_what_the_page_says() -> None:
    """Both print the recommended design's local ε and error, as the page shows the plan."""
    answer = app.answer(crowd=300, epsilon=1.0, share=0.1)
    best = answer["designs"][0]
    result = CliRunner().invoke(main, [*shlex.split(answer["command"])[1:], "--json"])
    assert result.exit_code == 0, result.output
    assert repr(best["error"]) in result.output
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(answer["python"], {})  # noqa: S102 - what a reader would paste
    assert printed.getvalue().strip() == answer["plan"]


@pytest.mark.parametrize("question", [(1, 1.0, 0.0), (100, 0.0, 0.0), (100, 1.0, 0.9)])
def test_what_has_no_answer_gets_a_sentence(question: tuple[int, float, float]) -> None:
    """A crowd of one, no ε, or mostly corrupted people: the sentence says what to change."""
    with pytest.raises(Misuse, match="must be from"):
        app.answer(crowd=question[0], epsilon=question[1], share=question[2])
